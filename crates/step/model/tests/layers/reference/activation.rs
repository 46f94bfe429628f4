//! Activations and their derivatives.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

use config::Activation;
use device::{Op, Tensor};

use super::Memory;

pub fn run(memory: &mut Memory, op: &Op) {
    match *op {
        Op::Activation { activation, x, y } => {
            for_each(memory, activation, x, y.cols, |memory, (row, col), point| {
                memory.set(y, row, col, point.value(activation));
            });
        }
        Op::ActivationBackward { activation, x, dy, dx, y } => {
            for_each(memory, activation, x, y.cols, |memory, (row, col), point| {
                let dy_value = memory.get(dy, row, col);
                let (first, second) = point.derivatives(activation);
                memory.set(dx, row, col, dy_value * first);
                if activation.inputs_per_output() == 2 {
                    memory.set(dx, row, y.cols + col, dy_value * second);
                }
                memory.set(y, row, col, point.value(activation));
            });
        }
        other => unreachable!("{other:?}"),
    }
}

fn for_each(
    memory: &mut Memory,
    activation: Activation,
    x: Tensor,
    cols: usize,
    mut body: impl FnMut(&mut Memory, (usize, usize), Point),
) {
    assert_eq!(x.cols, cols * activation.inputs_per_output());
    for row in 0..x.rows {
        for col in 0..cols {
            let point = Point::of(memory, activation, x, (row, col));
            body(memory, (row, col), point);
        }
    }
}

/// Input of an activation at one place: gate and up, or the value and 1.
pub struct Point {
    first: f64,
    up: f64,
}

impl Point {
    pub fn of(memory: &Memory, activation: Activation, x: Tensor, (row, col): (usize, usize)) -> Point {
        let is_gated = activation.inputs_per_output() == 2;
        let up = if is_gated { memory.get(x, row, x.cols / 2 + col) } else { 1.0 };
        Point { first: memory.get(x, row, col), up }
    }

    pub fn value(&self, activation: Activation) -> f64 {
        scalar(activation, self.first).0 * factor(activation, self.up).0
    }

    /// With respect to the value or gate, and to up.
    pub fn derivatives(&self, activation: Activation) -> (f64, f64) {
        let (value, derivative) = scalar(activation, self.first);
        let (factor, of_factor) = factor(activation, self.up);
        (derivative * factor, value * of_factor)
    }
}

/// The factor of the function of the gate, and its derivative.
fn factor(activation: Activation, up: f64) -> (f64, f64) {
    match activation {
        Activation::SwiGluClamped => (up.clamp(-7.0, 7.0) + 1.0, f64::from(up.abs() <= 7.0)),
        Activation::GeluTanh | Activation::GeluErf | Activation::GeluSigmoid | Activation::Relu => (up, 1.0),
        Activation::SwiGlu | Activation::GeGlu | Activation::GeGluTanh => (up, 1.0),
    }
}

/// The function of the value or gate, and its derivative.
fn scalar(activation: Activation, x: f64) -> (f64, f64) {
    match activation {
        Activation::GeluTanh | Activation::GeGluTanh => {
            let root = (2.0 / PI).sqrt();
            let tanh = (root * (x + 0.044_715 * x.powi(3))).tanh();
            let inner = root * (1.0 + 3.0 * 0.044_715 * x * x);
            (0.5 * x * (1.0 + tanh), 0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * inner)
        }
        Activation::GeluErf | Activation::GeGlu => {
            let below = 0.5 * (1.0 + error_function(x * FRAC_1_SQRT_2));
            (x * below, below + x * (-0.5 * x * x).exp() / (2.0 * PI).sqrt())
        }
        Activation::GeluSigmoid => {
            let sigmoid = 1.0 / (1.0 + (-1.702 * x).exp());
            (x * sigmoid, sigmoid * (1.0 + 1.702 * x * (1.0 - sigmoid)))
        }
        Activation::SwiGluClamped => {
            let (value, derivative) = scalar(Activation::GeluSigmoid, x.min(7.0));
            (value, if x <= 7.0 { derivative } else { 0.0 })
        }
        Activation::Relu => (x.max(0.0), f64::from(x > 0.0)),
        Activation::SwiGlu => {
            let sigmoid = 1.0 / (1.0 + (-x).exp());
            (x * sigmoid, sigmoid * (1.0 + x * (1.0 - sigmoid)))
        }
    }
}

/// The Taylor series near zero, the continued fraction of the complement far from it; good to about 1e-13.
fn error_function(x: f64) -> f64 {
    if x.abs() > 2.0 {
        let square = x * x;
        let fraction = (1..=80).rev().fold(1.0, |rest, n| 1.0 + f64::from(n) / (2.0 * square) / rest);
        return x.signum() - (-square).exp() / (x * PI.sqrt() * fraction);
    }
    let (mut sum, mut power) = (0.0, x);
    for n in 0..60 {
        sum += power / f64::from(2 * n + 1);
        power *= -x * x / f64::from(n + 1);
    }
    sum * 2.0 / PI.sqrt()
}
