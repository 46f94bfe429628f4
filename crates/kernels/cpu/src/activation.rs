//! The function between the two linear layers of the feed-forward block, and its gradient.
//!
//! | kind | `y` |
//! |---|---|
//! | `GeluTanh` | `x/2 (1 + tanh(u)) = x sigmoid(2u)`, `u = sqrt(2/pi) (x + 0.044715 x^3)` (Hendrycks, Gimpel, arXiv 1606.08415) |
//! | `GeluErf` | `x P(x)`, `P` the normal distribution |
//! | `GeluSigmoid` | `x sigmoid(1.702 x)` (Hendrycks, Gimpel, arXiv 1606.08415) |
//! | `Relu` | `max(x, 0)`, slope 0 at 0 |
//! | `SwiGlu`, `GeGlu`, `GeGluTanh` | `silu(gate) up`, `gelu_erf(gate) up`, `gelu_tanh(gate) up` (Shazeer, arXiv 2002.05202) |
//! | `SwiGluClamped` | `g sigmoid(1.702 g) (u + 1)`, `g` = gate up to 7, `u` = up within 7; slope 0 beyond (gpt-oss) |
//!
//! Plain kinds read `x[T,F]`, gated kinds `x[T,2F]` = gate | up.

use std::marker::PhantomData;

use config::{Activation, SWIGLU_LIMIT};

use crate::lanes::{Kernel, Lanes, Stored, for_each_block};
use crate::math::{normal, sigmoid_and_complement};
use crate::view::{MatMut, MatRef};

/// `y[T,F]`, assigned.
pub struct ActivationForward<'a, E = f32> {
    /// Which function.
    pub activation: Activation,
    /// `[T,F]` or `[T,2F]`
    pub x: MatRef<'a, E>,
    /// `[T,F]`
    pub y: MatMut<'a, E>,
}

/// `dx` (the shape of `x`) from `dy[T,F]`, and `y[T,F]` once more, so that it need not be kept; both assigned.
pub struct ActivationBackward<'a, E = f32> {
    /// Which function.
    pub activation: Activation,
    /// Input of the forward pass, `[T,F]` or `[T,2F]`.
    pub x: MatRef<'a, E>,
    /// `[T,F]`
    pub dy: MatRef<'a, E>,
    /// `[T,F]` or `[T,2F]`
    pub dx: MatMut<'a, E>,
    /// `[T,F]`
    pub y: MatMut<'a, E>,
}

/// A function of one variable with its derivative, and of gated kinds the factor of its value.
pub(crate) trait Curve {
    /// `(f(x), f'(x))`; what is not used is not computed.
    fn value_and_slope<L: Lanes>(x: L) -> (L, L);

    /// The factor of the value.
    #[inline(always)]
    fn factor<L: Lanes>(up: L) -> L {
        up
    }

    /// The gradient of `up`, from that of its factor.
    #[inline(always)]
    fn gradient_of_up<L: Lanes>(_up: L, gradient: L) -> L {
        gradient
    }
}

struct GeluTanh;
struct GeluErf;
struct GeluSigmoid;
struct Silu;
struct ClampedSilu;
struct Relu;

impl Curve for GeluTanh {
    #[inline(always)]
    fn value_and_slope<L: Lanes>(x: L) -> (L, L) {
        // Twice u, and its derivative: 2 sqrt(2/pi) (1 + 3 * 0.044715 x^2).
        const LINEAR: f32 = 1.595_769;
        const CUBIC: f32 = 0.071_354_814;
        let square = x * x;
        let twice_u = x * square.mul_add(L::splat(CUBIC), L::splat(LINEAR));
        let slope_of_twice_u = square.mul_add(L::splat(3.0 * CUBIC), L::splat(LINEAR));
        let (sigmoid, complement) = sigmoid_and_complement(twice_u);
        let value = x * sigmoid;
        // Far below zero both factors are zero, but the slope of u overflows with x^2 only beyond 1e19.
        (value, (value * complement).mul_add(slope_of_twice_u, sigmoid))
    }
}

impl Curve for GeluErf {
    #[inline(always)]
    fn value_and_slope<L: Lanes>(x: L) -> (L, L) {
        let (cumulative, density) = normal(x);
        (x * cumulative, x.mul_add(density, cumulative))
    }
}

impl Curve for GeluSigmoid {
    #[inline(always)]
    fn value_and_slope<L: Lanes>(x: L) -> (L, L) {
        let scaled = x * L::splat(1.702);
        let (sigmoid, complement) = sigmoid_and_complement(scaled);
        // As x nears minus infinity the sigmoid is zero before the product with x overflows.
        (x * sigmoid, (scaled * sigmoid).mul_add(complement, sigmoid))
    }
}

impl Curve for Silu {
    #[inline(always)]
    fn value_and_slope<L: Lanes>(x: L) -> (L, L) {
        let (sigmoid, complement) = sigmoid_and_complement(x);
        let value = x * sigmoid;
        (value, value.mul_add(complement, sigmoid))
    }
}

/// NaN stays NaN: comparisons with it are false, and `min` and `max` return their second operand.
impl Curve for ClampedSilu {
    #[inline(always)]
    fn value_and_slope<L: Lanes>(x: L) -> (L, L) {
        let limit = L::splat(SWIGLU_LIMIT);
        let (value, slope) = GeluSigmoid::value_and_slope(limit.min(x));
        (value, L::select(limit.less(x), L::zero(), slope))
    }

    #[inline(always)]
    fn factor<L: Lanes>(up: L) -> L {
        let limit = L::splat(SWIGLU_LIMIT);
        L::splat(-SWIGLU_LIMIT).max(limit.min(up)) + L::splat(1.0)
    }

    #[inline(always)]
    fn gradient_of_up<L: Lanes>(up: L, gradient: L) -> L {
        let least = L::splat(-SWIGLU_LIMIT);
        let not_above = L::select(L::splat(SWIGLU_LIMIT).less(up), L::zero(), gradient);
        L::select(up.less(least), L::zero(), not_above)
    }
}

impl Curve for Relu {
    #[inline(always)]
    fn value_and_slope<L: Lanes>(x: L) -> (L, L) {
        let is_positive = L::zero().less(x);
        // `max` returns its second operand for a NaN, which must stay one.
        (L::zero().max(x), L::select(is_positive, L::splat(1.0), L::zero()))
    }
}

/// `x` of a gated kind as `(gate, up)`.
pub(crate) fn gate_and_up<E>(x: &[E]) -> (&[E], &[E]) {
    x.split_at(x.len() / 2)
}

/// Work on a row whose activation is made of a curve. Implement with `#[inline(always)]`.
pub(crate) trait OnCurve<R> {
    /// Of plain kinds.
    fn plain<C: Curve>(self) -> R;
    /// Of gated kinds.
    fn gated<C: Curve>(self) -> R;
}

/// Does `work` with the curve of `activation`.
#[inline(always)]
pub(crate) fn on_curve<R>(activation: Activation, work: impl OnCurve<R>) -> R {
    match activation {
        Activation::GeluTanh => work.plain::<GeluTanh>(),
        Activation::GeluErf => work.plain::<GeluErf>(),
        Activation::GeluSigmoid => work.plain::<GeluSigmoid>(),
        Activation::Relu => work.plain::<Relu>(),
        Activation::SwiGlu => work.gated::<Silu>(),
        Activation::GeGlu => work.gated::<GeluErf>(),
        Activation::GeGluTanh => work.gated::<GeluTanh>(),
        Activation::SwiGluClamped => work.gated::<ClampedSilu>(),
    }
}

struct ForwardRow<'a, L, E> {
    x: &'a [E],
    y: &'a mut [E],
    lanes: PhantomData<L>,
}

impl<L: Lanes, E: Stored> OnCurve<()> for ForwardRow<'_, L, E> {
    #[inline(always)]
    fn plain<C: Curve>(self) {
        let ForwardRow { x, y, lanes: _ } = self;
        for_each_block(
            y.len(),
            #[inline(always)]
            |block| block.store(y, C::value_and_slope::<L>(block.load(x)).0),
        );
    }

    #[inline(always)]
    fn gated<C: Curve>(self) {
        let ForwardRow { x, y, lanes: _ } = self;
        let (gate, up) = gate_and_up(x);
        for_each_block(
            y.len(),
            #[inline(always)]
            |block| block.store(y, C::value_and_slope::<L>(block.load(gate)).0 * C::factor(block.load(up))),
        );
    }
}

struct BackwardRow<'a, L, E> {
    x: &'a [E],
    dy: &'a [E],
    dx: &'a mut [E],
    y: &'a mut [E],
    lanes: PhantomData<L>,
}

impl<L: Lanes, E: Stored> OnCurve<()> for BackwardRow<'_, L, E> {
    #[inline(always)]
    fn plain<C: Curve>(self) {
        let BackwardRow { x, dy, dx, y, lanes: _ } = self;
        for_each_block(
            y.len(),
            #[inline(always)]
            |block| {
                let (value, slope) = C::value_and_slope::<L>(block.load(x));
                block.store(y, value);
                block.store(dx, slope * block.load(dy));
            },
        );
    }

    #[inline(always)]
    fn gated<C: Curve>(self) {
        let BackwardRow { x, dy, dx, y, lanes: _ } = self;
        let (gate, up) = gate_and_up(x);
        let (dgate, dup) = dx.split_at_mut(x.len() / 2);
        for_each_block(
            y.len(),
            #[inline(always)]
            |block| {
                let (value, slope) = C::value_and_slope::<L>(block.load(gate));
                let (up, dy) = (block.load::<L>(up), block.load::<L>(dy));
                let factor = C::factor(up);
                block.store(y, value * factor);
                block.store(dgate, dy * factor * slope);
                block.store(dup, C::gradient_of_up(up, dy * value));
            },
        );
    }
}

/// Asserts that `x` has the width that `outputs` columns need.
pub(crate) fn assert_widths(activation: Activation, inputs: usize, outputs: usize) {
    let factor = activation.inputs_per_output();
    assert_eq!(inputs, factor * outputs, "{activation:?} of {inputs} columns has not {outputs} outputs");
}

impl<E: Stored> Kernel for ActivationForward<'_, E> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        assert_widths(self.activation, self.x.cols(), self.y.cols());
        for row in 0..self.x.rows() {
            let (x, y) = (self.x.row(row), self.y.row_mut(row));
            on_curve(self.activation, ForwardRow { x, y, lanes: PhantomData::<L> });
        }
    }
}

impl<E: Stored> Kernel for ActivationBackward<'_, E> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        assert_widths(self.activation, self.x.cols(), self.y.cols());
        for row in 0..self.x.rows() {
            let (x, dy) = (self.x.row(row), self.dy.row(row));
            let (dx, y) = (self.dx.row_mut(row), self.y.row_mut(row));
            on_curve(self.activation, BackwardRow { x, dy, dx, y, lanes: PhantomData::<L> });
        }
    }
}
