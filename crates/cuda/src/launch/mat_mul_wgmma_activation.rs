//! Products with the activation that follows, or its gradient, in one kernel of compute capability 9.0:
//! kernels/mat_mul_wgmma_activation.cu.

use config::{Activation, Products};
use device::{DeviceError, Op, Orientation, Tensor};

use super::mat_mul_blocks::Narrow;
use super::mat_mul_wgmma::{ALIGNMENT, Factor, ROWS, along, in_tiles};
use super::{Code, Launch, Parameters, Place, Site};

/// Columns of a tile.
const COLS: usize = 128;
/// Numbers that a lane takes at once, and the rows begin at multiples of them.
const IN_CHUNK: usize = 8;

/// The function of a kernel: `CurveNumber`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Curve {
    GeluTanh,
    GeluErf,
    GeluSigmoid,
    Relu,
    Silu,
}

/// The columns to which a function is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Plain,
    /// The first half, which lets the second half through.
    Gated,
}

impl Form {
    fn of(activation: Activation) -> (Form, Curve) {
        match activation {
            Activation::GeluTanh => (Form::Plain, Curve::GeluTanh),
            Activation::GeluErf => (Form::Plain, Curve::GeluErf),
            Activation::GeluSigmoid => (Form::Plain, Curve::GeluSigmoid),
            Activation::Relu => (Form::Plain, Curve::Relu),
            Activation::SwiGlu => (Form::Gated, Curve::Silu),
            Activation::GeGlu => (Form::Gated, Curve::GeluErf),
            Activation::GeGluTanh => (Form::Gated, Curve::GeluTanh),
        }
    }
}

/// The kernel of an operation, and how it divides its outputs.
#[derive(Clone, Copy, Debug)]
struct Kernel {
    entry: &'static str,
    orientation: Orientation,
    /// Lanes of a box of the right factor.
    lanes: usize,
    /// Columns of `y` in a tile.
    cols: usize,
}

/// A product and what follows it.
#[derive(Clone, Copy, Debug)]
struct Fused {
    kernel: Kernel,
    curve: Curve,
    factors: [Tensor; 2],
    bias: Option<Tensor>,
    /// Forward `x`, backward `x` and `dx`; then `y`.
    matrices: [Option<Tensor>; 3],
    y: Tensor,
}

impl Fused {
    fn of(op: &Op) -> Option<Fused> {
        if let Op::MatMulActivation { a, b, bias, activation, x, y } = *op {
            let (form, curve) = Form::of(activation);
            let (entry, cols) = match form {
                Form::Plain => ("mat_mul_wgmma_activation", COLS),
                Form::Gated => ("mat_mul_wgmma_gated", COLS / 2),
            };
            let kernel = Kernel { entry, orientation: Orientation::Nt, lanes: cols, cols };
            return Some(Fused { kernel, curve, factors: [a, b], bias, matrices: [Some(x), None, Some(y)], y });
        }
        let Op::MatMulActivationBackward { a, b, activation, dy: _, x, dx, y } = *op else { return None };
        let (form, curve) = Form::of(activation);
        let entry = match form {
            Form::Plain => "mat_mul_wgmma_activation_backward",
            Form::Gated => "mat_mul_wgmma_gated_backward",
        };
        let kernel = Kernel { entry, orientation: Orientation::Nn, lanes: COLS, cols: COLS };
        Some(Fused { kernel, curve, factors: [a, b], bias: None, matrices: [Some(x), Some(dx), Some(y)], y })
    }

    /// Whether other blocks read what a block has written: two kernels, one after the other, have no such order.
    fn writes_what_it_reads(&self, op: &Op) -> bool {
        let overlap = |one: Tensor, other: Tensor| {
            let (one, other) = (one.bytes(), other.bytes());
            one.start < other.end && other.start < one.end
        };
        let read = || self.factors.into_iter().chain(self.bias);
        let operands = op.operands();
        operands.writes().any(|written| read().any(|read| overlap(written, read)))
    }

    /// Whether chunks of all matrices can be accessed at once, and a pair of numbers of the bias.
    fn has_chunks(&self, site: &Site) -> Result<bool, DeviceError> {
        let size = self.y.dtype.size_bytes();
        let mut has_all = self.y.cols.is_multiple_of(IN_CHUNK);
        for matrix in self.matrices.into_iter().flatten() {
            has_all &= site.matrix(matrix, self.y.dtype)?.has_rows_at_multiples(ALIGNMENT, size);
        }
        Ok(has_all && site.optional_dense(self.bias, self.y.dtype)?.has_rows_at_multiples(2 * size, size))
    }
}

/// Whether there is a kernel for this operation, wherever its tensors are.
pub(super) fn has_kernel(op: &Op) -> bool {
    let Some(fused) = Fused::of(op) else { return false };
    Narrow::of(fused.factors).is_ok()
        && fused.factors.iter().all(|factor| factor.dtype == fused.y.dtype)
        && !fused.y.is_empty()
        && fused.factors.iter().all(|factor| !factor.is_empty())
}

/// The one launch of an operation, whose tensors fit together; `None` where there is no kernel for it.
///
/// # Errors
/// As [`super::launches`].
pub(super) fn in_one_launch(site: &Site, op: &Op) -> Result<Option<Launch>, DeviceError> {
    let in_blocks = match site.products {
        Products::Blocks16 => site.code == Code::Of90,
        Products::Chained | Products::Pairs | Products::Blocks8 | Products::Device => false,
    };
    let Some(fused) = Fused::of(op).filter(|_| in_blocks && has_kernel(op)) else { return Ok(None) };
    let Fused { kernel, curve, factors, bias, matrices, y } = fused;
    let factor = |tensor: Tensor| Ok(Factor { tensor, place: site.matrix(tensor, tensor.dtype)? });
    let [a, b] = [factor(factors[0])?, factor(factors[1])?];
    if fused.writes_what_it_reads(op) || !fused.has_chunks(site)? || !a.has_boxes() || !b.has_boxes() {
        return Ok(None);
    }
    let narrow = Narrow::of(factors)?;
    let [of_a, of_b] = along(kernel.orientation);
    let maps = vec![a.boxes(site, narrow, ROWS, of_a), b.boxes(site, narrow, kernel.lanes, of_b)];
    let place = |matrix: Option<Tensor>| matrix.map(|matrix| site.matrix(matrix, y.dtype)).transpose();
    let mut parameters = Parameters::new();
    if kernel.orientation == Orientation::Nt {
        parameters = parameters.place(site.optional_dense(bias, y.dtype)?);
    }
    for matrix in matrices {
        let place: Option<Place> = place(matrix)?;
        parameters = place.into_iter().fold(parameters, Parameters::place);
    }
    let parameters = parameters.u32(factors[0].cols as u32).u32(narrow as u32).u32(curve as u32);
    let shape = in_tiles(site, [y.rows, y.cols], kernel.cols);
    Ok(Some(Launch::new(kernel.entry, shape, parameters).with_maps(maps)))
}
