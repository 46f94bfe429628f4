//! Tiles that were chosen for the products of a run. They change no bit.

use std::collections::HashMap;

use device::{Dtype, Op, Orientation, Tensor, Write};
use gpu::{BiasForm, FactorForm, MatrixElement, MatrixProduct, ResultForm};

use crate::launch::ProductTile;
use crate::timing_memory::offsets;

/// The tile of each of some products of pleach's kernels, on one GPU model. Other products have the tile that is
/// estimated to be the fastest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChosenTiles(HashMap<MatrixProduct, ProductTile>);

impl ChosenTiles {
    /// The tile of a product that has one.
    pub fn of(&self, product: &MatrixProduct) -> Option<ProductTile> {
        self.0.get(product).copied()
    }

    /// Number of products that have one.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no product has one.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(MatrixProduct, ProductTile)> for ChosenTiles {
    fn from_iter<I: IntoIterator<Item = (MatrixProduct, ProductTile)>>(all: I) -> ChosenTiles {
        ChosenTiles(all.into_iter().collect())
    }
}

/// The operation of a product from the first byte of an arena on, and the first byte after it; `None` for factors that
/// are both transposed, which no operation has.
pub(crate) fn product_op(product: &MatrixProduct) -> Option<(Op, usize)> {
    let orientation = match (product.a, product.b) {
        (FactorForm::Plain, FactorForm::Transposed) => Orientation::Nt,
        (FactorForm::Plain, FactorForm::Plain) => Orientation::Nn,
        (FactorForm::Transposed, FactorForm::Plain) => Orientation::Tn,
        (FactorForm::Transposed, FactorForm::Transposed) => return None,
    };
    let ([a_offset, b_offset, d_offset, bias_offset], end) = offsets(product);
    let [a, b, d] = product.shapes();
    let [a_stride, b_stride, d_stride] = product.strides;
    let tensor = |offset_bytes, [rows, cols]: [u64; 2], row_stride: u64, element| Tensor {
        row_stride: row_stride as usize,
        ..Tensor::new(offset_bytes, rows as usize, cols as usize, dtype(element))
    };
    let bias = match product.bias {
        BiasForm::Absent => None,
        BiasForm::Present => Some(Tensor::new(bias_offset, 1, product.sizes[1] as usize, dtype(product.result))),
    };
    let op = Op::MatMul {
        orientation,
        a: tensor(a_offset, a, a_stride, product.factors),
        b: tensor(b_offset, b, b_stride, product.factors),
        bias,
        out: tensor(d_offset, d, d_stride, product.result),
        write: match product.write {
            ResultForm::Assigned => Write::Assign,
            ResultForm::Accumulated => Write::Accumulate,
        },
    };
    Some((op, end))
}

fn dtype(element: MatrixElement) -> Dtype {
    match element {
        MatrixElement::F32 => Dtype::F32,
        MatrixElement::Bf16 => Dtype::Bf16,
        MatrixElement::F16 => Dtype::F16,
    }
}
