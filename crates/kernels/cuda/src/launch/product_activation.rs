//! Products with the activation that follows, or its gradient, which one kernel may compute.

use config::Activation;
use device::{DeviceError, Op, Orientation, Tensor};

use super::mat_mul_blocks::Narrow;
use super::{Parameters, Place, Site};

/// Numbers that a thread takes at once, and the rows begin at multiples of their bytes.
const IN_CHUNK: usize = 8;
const CHUNK_BYTES: usize = 16;

/// The function of a kernel: `CurveNumber`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Curve {
    GeluTanh,
    GeluErf,
    GeluSigmoid,
    Relu,
    Silu,
    ClampedSilu,
}

/// The columns to which a function is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Plain,
    /// The first half, which lets the second half through.
    Gated,
}

impl Form {
    /// The form and the curve of `activation`.
    pub fn of(activation: Activation) -> (Form, Curve) {
        match activation {
            Activation::GeluTanh => (Form::Plain, Curve::GeluTanh),
            Activation::GeluErf => (Form::Plain, Curve::GeluErf),
            Activation::GeluSigmoid => (Form::Plain, Curve::GeluSigmoid),
            Activation::Relu => (Form::Plain, Curve::Relu),
            Activation::SwiGlu => (Form::Gated, Curve::Silu),
            Activation::GeGlu => (Form::Gated, Curve::GeluErf),
            Activation::GeGluTanh => (Form::Gated, Curve::GeluTanh),
            Activation::SwiGluClamped => (Form::Gated, Curve::ClampedSilu),
        }
    }
}

/// The activation that follows a product, or its gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Activation(Form),
    Gradient(Form),
}

impl End {
    /// The layout of the factors.
    pub fn orientation(self) -> Orientation {
        match self {
            End::Activation(_) => Orientation::Nt,
            End::Gradient(_) => Orientation::Nn,
        }
    }

    /// Columns of the product for each of `y`.
    pub fn cols_per_output(self) -> usize {
        match self {
            End::Activation(Form::Gated) => 2,
            End::Activation(Form::Plain) | End::Gradient(Form::Plain | Form::Gated) => 1,
        }
    }
}

/// A product and what follows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fused {
    pub end: End,
    pub curve: Curve,
    pub factors: [Tensor; 2],
    bias: Option<Tensor>,
    /// Forward `x`, backward `x` and `dx`; then `y`.
    matrices: [Option<Tensor>; 3],
    pub y: Tensor,
}

impl Fused {
    /// The fused form of an operation whose tensors have one narrow type and are not empty; `None` for others, and for
    /// clamped gates: one more curve would take registers of all fused kernels.
    pub fn of(op: &Op) -> Option<Fused> {
        let fused = if let Op::MatMulActivation { a, b, bias, activation, x, y } = *op {
            let (form, curve) = Form::of(activation);
            let matrices = [Some(x), None, Some(y)];
            Fused { end: End::Activation(form), curve, factors: [a, b], bias, matrices, y }
        } else if let Op::MatMulActivationBackward { a, b, activation, dy: _, x, dx, y } = *op {
            let (form, curve) = Form::of(activation);
            let matrices = [Some(x), Some(dx), Some(y)];
            Fused { end: End::Gradient(form), curve, factors: [a, b], bias: None, matrices, y }
        } else {
            return None;
        };
        let is_fused = match fused.curve {
            Curve::GeluTanh | Curve::GeluErf | Curve::GeluSigmoid | Curve::Relu | Curve::Silu => true,
            Curve::ClampedSilu => false,
        };
        let has_factors = fused.factors.iter().all(|factor| factor.dtype == fused.y.dtype && !factor.is_empty());
        (is_fused && Narrow::of(fused.factors).is_ok() && has_factors && !fused.y.is_empty()).then_some(fused)
    }

    /// Whether a kernel can compute both: it accesses all matrices in chunks, and writes nothing that other blocks
    /// read. Two kernels, one after the other, have no such limit.
    pub fn fits(&self, site: &Site, op: &Op) -> Result<bool, DeviceError> {
        Ok(!self.writes_what_it_reads(op) && self.has_chunks(site)?)
    }

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
            has_all &= site.matrix(matrix, self.y.dtype)?.has_rows_at_multiples(CHUNK_BYTES, size);
        }
        Ok(has_all && site.optional_dense(self.bias, self.y.dtype)?.has_rows_at_multiples(2 * size, size))
    }

    /// Appends the parameters of the bias, where a kernel has one, and of the matrices.
    pub fn places(&self, site: &Site, mut parameters: Parameters) -> Result<Parameters, DeviceError> {
        match self.end {
            End::Activation(_) => parameters = parameters.place(site.optional_dense(self.bias, self.y.dtype)?),
            End::Gradient(_) => {}
        }
        let places = self.matrices.into_iter().flatten().map(|matrix| site.matrix(matrix, self.y.dtype));
        let places = places.collect::<Result<Vec<Place>, DeviceError>>()?;
        Ok(places.into_iter().fold(parameters, Parameters::place))
    }
}
