//! The function between the two products of an expert, and its gradient, of which a weight is a factor.

use config::Activation;

use super::row_at;
use crate::activation::{ActivationForward, Curve, OnCurve, assert_widths, gate_and_up, on_curve};
use crate::instruction_set::InstructionSet;
use crate::lanes::{Kernel, Lanes, Stored, row_sum, run};
use crate::view::{MatMut, MatRef};

/// `y[R,F]` of `x[R,F]` or `x[R,2F]`, assigned, for the rows at `places`: [`ActivationForward`] of each.
pub fn expert_activation<E: Stored>(
    activation: Activation,
    x: MatRef<'_, E>,
    mut y: MatMut<'_, E>,
    places: &[i32],
    instruction_set: InstructionSet,
) {
    let (inputs, outputs) = (x.cols(), y.cols());
    for row in places.iter().copied().filter_map(row_at) {
        let (x, y) = (x.block(row, 1, 0, inputs), y.block(row, 1, 0, outputs));
        run(instruction_set, ActivationForward { activation, x, y });
    }
}

/// Gradients of `sum of w W activation(x)` over rows, from `dy[R,F]`, the gradient of `activation(x)` but for the
/// factor `w`. All are assigned, those of rows at `places` only:
///
/// - `dx = w dy activation'(x)`: `w dy` is rounded, then multiplied as by [`crate::activation::ActivationBackward`].
/// - `y = w activation(x)`: the activation is rounded to `f32`, then the product.
/// - `dweights[T,k] = sum over columns of dy activation(x)`, each product rounded, added by [`row_sum`]; 0 for slots
///   without a row.
pub struct ExpertActivationBackward<'a, E = f32> {
    /// Which function.
    pub activation: Activation,
    /// `[R,F]` or `[R,2F]`
    pub x: MatRef<'a, E>,
    /// `[R,F]`
    pub dy: MatRef<'a, E>,
    /// `[T,k]`
    pub weights: MatRef<'a>,
    /// `[R,F]` or `[R,2F]`
    pub dx: MatMut<'a, E>,
    /// `[R,F]`
    pub y: MatMut<'a, E>,
    /// `[T,k]`
    pub dweights: MatMut<'a>,
    /// `[T,k]`
    pub places: &'a [i32],
}

impl<E: Stored> Kernel for ExpertActivationBackward<'_, E> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        assert_widths(self.activation, self.x.cols(), self.y.cols());
        let (tokens, per_token) = (self.weights.rows(), self.weights.cols());
        assert_eq!(
            (self.dweights.rows(), self.dweights.cols()),
            (tokens, per_token),
            "gradients of the weights' shape"
        );
        assert_eq!(self.places.len(), tokens * per_token, "k places for each token");
        for (index, place) in self.places.iter().enumerate() {
            let (token, slot) = (index / per_token, index % per_token);
            self.dweights.row_mut(token)[slot] = match row_at(*place) {
                None => 0.0,
                Some(row) => {
                    let (x, dy) = (self.x.row(row), self.dy.row(row));
                    let (dx, y) = (self.dx.row_mut(row), self.y.row_mut(row));
                    on_curve(
                        self.activation,
                        OfRow::<L, E> { x, dy, weight: L::splat(self.weights.row(token)[slot]), dx, y },
                    )
                }
            };
        }
    }
}

/// Gradients of a row; returns that of its weight.
struct OfRow<'a, L, E> {
    x: &'a [E],
    dy: &'a [E],
    weight: L,
    dx: &'a mut [E],
    y: &'a mut [E],
}

impl<L: Lanes, E: Stored> OnCurve<f32> for OfRow<'_, L, E> {
    #[inline(always)]
    fn plain<C: Curve>(self) -> f32 {
        let OfRow { x, dy, weight, dx, y } = self;
        let sum = row_sum(
            y.len(),
            #[inline(always)]
            |block| {
                let ((value, slope), dy) = (C::value_and_slope::<L>(block.load(x)), block.load::<L>(dy));
                block.store(y, weight * value);
                block.store(dx, slope * (weight * dy));
                dy * value
            },
        );
        sum as f32
    }

    #[inline(always)]
    fn gated<C: Curve>(self) -> f32 {
        let OfRow { x, dy, weight, dx, y } = self;
        let (gate, up) = gate_and_up(x);
        let (dgate, dup) = dx.split_at_mut(x.len() / 2);
        let sum = row_sum(
            y.len(),
            #[inline(always)]
            |block| {
                let (value, slope) = C::value_and_slope::<L>(block.load(gate));
                let (up, dy) = (block.load::<L>(up), block.load::<L>(dy));
                let factor = C::factor(up);
                let (weighted, output) = (weight * dy, value * factor);
                block.store(y, weight * output);
                block.store(dgate, weighted * factor * slope);
                block.store(dup, C::gradient_of_up(up, weighted * value));
                dy * output
            },
        );
        sum as f32
    }
}
