//! Tiles that were chosen for the products of a run, each with or without the activation that follows. They change no
//! bit.

use std::collections::HashMap;

use config::{Activation, Products};
use device::{Dtype, Op, Orientation, Tensor, Write};
use gpu::{BiasForm, Capability, DevicePointer, FactorForm, MatrixElement, MatrixProduct, ResultForm, alignment};

use crate::chosen_algorithms::ANY_ARENA;
use crate::launch::{Code, ProductTile, Site, library_product};
use crate::timing_memory::offsets;

/// A product of pleach's kernels with everything on which their times depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelProduct {
    pub product: MatrixProduct,
    following: Following,
}

/// The operation that follows a product, which a kernel may compute with it. Offsets of its tensors are powers of two
/// that their addresses are multiples of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Following {
    None,
    Activation { activation: Activation, y: Tensor },
    Gradient { activation: Activation, x: Tensor, dx: Tensor, y: Tensor },
}

impl KernelProduct {
    /// The product of an operation; `None` for operations without one.
    pub fn of(op: &Op) -> Option<KernelProduct> {
        let first = op.unfused().next()?;
        let (product, _) = library_product(&first, &any_site()).ok().flatten()?;
        let at = |tensor: Tensor| {
            let offset_bytes = alignment(DevicePointer(tensor.offset_bytes as u64)) as usize;
            Tensor { offset_bytes, ..tensor }
        };
        let mut following = Following::None;
        if let Op::MatMulActivation { activation, y, .. } = *op {
            following = Following::Activation { activation, y: at(y) };
        } else if let Op::MatMulActivationBackward { activation, x, dx, y, .. } = *op {
            following = Following::Gradient { activation, x: at(x), dx: at(dx), y: at(y) };
        }
        Some(KernelProduct { product, following })
    }

    /// A product that nothing follows.
    pub fn alone(product: MatrixProduct) -> KernelProduct {
        KernelProduct { product, following: Following::None }
    }

    /// Its operation from the first byte of an arena on, and the first byte after it; `None` for factors that are both
    /// transposed, which no operation has.
    pub(crate) fn op(&self) -> Option<(Op, usize)> {
        let (op, mut end) = product_op(&self.product)?;
        let Op::MatMul { a, b, bias, out, .. } = op else { return None };
        let mut place = |tensor: Tensor| {
            let largest = MatrixProduct::MAX_ALIGNMENT as usize;
            let offset_bytes = end + tensor.offset_bytes % largest;
            let placed = Tensor { offset_bytes, ..tensor };
            end = placed.bytes().end.next_multiple_of(largest);
            placed
        };
        let op = match self.following {
            Following::None => op,
            Following::Activation { activation, y } => {
                Op::MatMulActivation { a, b, bias, activation, x: out, y: place(y) }
            }
            Following::Gradient { activation, x, dx, y } => {
                let [x, dx, y] = [x, dx, y].map(place);
                Op::MatMulActivationBackward { a, b, activation, dy: out, x, dx, y }
            }
        };
        Some((op, end))
    }
}

/// Memory of a run, wherever it is.
fn any_site() -> Site {
    Site {
        arena: ANY_ARENA,
        arena_bytes: usize::MAX,
        multiprocessors: 1,
        capability: Capability { major: 9, minor: 0 },
        products: Products::Blocks16,
        code: Code::Of90,
        tile: None,
    }
}

/// The tile of each of some products of pleach's kernels, on one GPU model. Other products have the tile that is
/// estimated to be the fastest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChosenTiles(HashMap<KernelProduct, ProductTile>);

impl ChosenTiles {
    /// The tile of a product that has one.
    pub fn of(&self, product: &KernelProduct) -> Option<ProductTile> {
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

impl FromIterator<(KernelProduct, ProductTile)> for ChosenTiles {
    fn from_iter<I: IntoIterator<Item = (KernelProduct, ProductTile)>>(all: I) -> ChosenTiles {
        ChosenTiles(all.into_iter().collect())
    }
}

/// As [`KernelProduct::op`], of the product alone.
fn product_op(product: &MatrixProduct) -> Option<(Op, usize)> {
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
