//! The products of a run, as libraries and as pleach's kernels take them, and what is chosen for them.

use std::collections::HashMap;
use std::fmt;

use config::{Activation, Products};
use device::{Dtype, Op, Orientation, Stream, Tensor, Write};
use gpu::{BiasForm, Capability, DevicePointer, FactorForm, MatrixElement, MatrixProduct, ResultForm, alignment};

use crate::launch::{Code, ProductTile, Site, library_product};
use crate::library_products::workspace_bytes;

/// The tile of each of some products of pleach's kernels, on one GPU model. Other products have the tile that is
/// estimated to be the fastest. Tiles change no bit.
pub type ChosenTiles = HashMap<KernelProduct, ProductTile>;

/// The words of an algorithm for each of some products, on one GPU model with one driver and one library. Other
/// products have the first algorithm that the library proposes.
pub type ChosenAlgorithms = HashMap<StreamProduct, [u64; 8]>;

/// In place of the words of an algorithm: pleach's kernels. No library has these words.
pub const BY_KERNELS: [u64; 8] = [u64::MAX; 8];

/// A product of a run, as pleach's kernels and as a library take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RunProduct {
    pub of_kernels: KernelProduct,
    pub of_library: StreamProduct,
}

impl RunProduct {
    /// The product of an operation on a stream; `None` for operations that libraries do not have.
    pub fn of(op: &Op, stream: Stream) -> Option<RunProduct> {
        let of_kernels = KernelProduct::of(op)?;
        let of_library = StreamProduct { product: of_kernels.product, workspace_bytes: workspace_bytes(stream) };
        Some(RunProduct { of_kernels, of_library })
    }
}

/// A product with the memory that algorithms have on its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamProduct {
    pub product: MatrixProduct,
    /// 0 on streams without a workspace.
    pub workspace_bytes: usize,
}

impl fmt::Display for StreamProduct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MatrixProduct { sizes: [m, n, k], factors, result, a, b, write, bias, .. } = self.product;
        let letter = |form| match form {
            FactorForm::Plain => 'N',
            FactorForm::Transposed => 'T',
        };
        let write = match write {
            ResultForm::Assigned => "",
            ResultForm::Accumulated => ", accumulated",
        };
        let bias = match bias {
            BiasForm::Absent => "",
            BiasForm::Present => ", with bias",
        };
        let [factors, result] = [factors, result].map(name);
        write!(f, "{m} x {n} x {k} {}{} from {factors} to {result}{bias}{write}", letter(a), letter(b))
    }
}

fn name(element: MatrixElement) -> &'static str {
    match element {
        MatrixElement::F32 => "fp32",
        MatrixElement::Bf16 => "bf16",
        MatrixElement::F16 => "fp16",
    }
}

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

/// Memory of a run, wherever it is: its address has the alignment of every arena.
pub(crate) fn any_site() -> Site {
    Site {
        arena: DevicePointer(1 << 40),
        arena_bytes: usize::MAX,
        multiprocessors: 1,
        capability: Capability { major: 9, minor: 0 },
        products: Products::Blocks16,
        code: Code::Of90,
        tile: None,
    }
}

/// Returns the same as [`KernelProduct::op`], of the product alone.
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

/// Distance of matrices, and the largest alignment that a product knows.
const ALIGNMENT: usize = MatrixProduct::MAX_ALIGNMENT as usize;

/// Where a product's a, b, d and bias are, as bytes after a multiple of [`ALIGNMENT`], and the first byte after them.
pub(crate) fn offsets(product: &MatrixProduct) -> ([usize; 4], usize) {
    let [a, b, d] = product.shapes();
    let bias = match product.bias {
        BiasForm::Absent => [0, 0],
        BiasForm::Present => [1, product.sizes[1]],
    };
    let [a_stride, b_stride, d_stride] = product.strides;
    let elements = [product.factors, product.factors, product.result, product.result];
    let matrices = [(a, a_stride), (b, b_stride), (d, d_stride), (bias, 0)];
    let (mut offsets, mut next) = ([0; 4], 0);
    for (index, (([rows, cols], stride), element)) in matrices.into_iter().zip(elements).enumerate() {
        // No multiple of more than the product's alignment.
        offsets[index] = next + product.alignments[index] as usize % ALIGNMENT;
        let elements = rows.saturating_sub(1) * stride + cols;
        next = (offsets[index] + elements as usize * element.bytes()).next_multiple_of(ALIGNMENT);
    }
    (offsets, next)
}

fn dtype(element: MatrixElement) -> Dtype {
    match element {
        MatrixElement::F32 => Dtype::F32,
        MatrixElement::Bf16 => Dtype::Bf16,
        MatrixElement::F16 => Dtype::F16,
    }
}
