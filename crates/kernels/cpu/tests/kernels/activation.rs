use config::Activation;
use cpu::activation::{ActivationBackward, ActivationForward};
use cpu::lanes::run;
use cpu::view::{MatMut, MatRef};

use crate::kernels::support::*;

fn normal_cumulative(x: f64) -> f64 {
    // Abramowitz and Stegun 26.2.10 (series) and 26.2.14 (continued fraction of the tail).
    if x.abs() < 4.0 {
        let (mut term, mut sum) = (x, x);
        for n in 1..100 {
            term *= x * x / f64::from(2 * n + 1);
            sum += term;
        }
        return 0.5 + sum * density(x);
    }
    let mut fraction = x.abs();
    for k in (1..200).rev() {
        fraction = x.abs() + f64::from(k) / fraction;
    }
    let tail = density(x) / fraction;
    if x < 0.0 { tail } else { 1.0 - tail }
}

fn density(x: f64) -> f64 {
    (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt()
}

/// Value and slope of the curve that an activation is made of.
fn curve(activation: Activation, x: f64) -> (f64, f64) {
    match activation {
        Activation::GeluTanh | Activation::GeGluTanh => {
            let factor = (2.0 / std::f64::consts::PI).sqrt();
            let tanh = (factor * (x + 0.044_715 * x.powi(3))).tanh();
            let slope = factor * (1.0 + 3.0 * 0.044_715 * x * x);
            (0.5 * x * (1.0 + tanh), 0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * slope)
        }
        Activation::GeluErf | Activation::GeGlu => (x * normal_cumulative(x), normal_cumulative(x) + x * density(x)),
        Activation::GeluSigmoid => {
            let sigmoid = 1.0 / (1.0 + (-1.702 * x).exp());
            (x * sigmoid, sigmoid + 1.702 * x * sigmoid * (1.0 - sigmoid))
        }
        Activation::Relu => (x.max(0.0), if x > 0.0 { 1.0 } else { 0.0 }),
        Activation::SwiGluClamped => {
            let (value, slope) = curve(Activation::GeluSigmoid, x.min(7.0));
            (value, if x <= 7.0 { slope } else { 0.0 })
        }
        Activation::SwiGlu => {
            let sigmoid = 1.0 / (1.0 + (-x).exp());
            (x * sigmoid, sigmoid + x * sigmoid * (1.0 - sigmoid))
        }
    }
}

/// The factor of the curve's value, and its slope: 1 for kinds without a gate.
fn factor(activation: Activation, x: &[f64], i: usize) -> (f64, f64) {
    let up = x.get(x.len() / 2 + i).copied().unwrap_or(1.0);
    match activation {
        Activation::GeluTanh | Activation::GeluErf | Activation::GeluSigmoid | Activation::Relu => (1.0, 0.0),
        Activation::SwiGlu | Activation::GeGlu | Activation::GeGluTanh => (up, 1.0),
        Activation::SwiGluClamped => (up.clamp(-7.0, 7.0) + 1.0, if up.abs() <= 7.0 { 1.0 } else { 0.0 }),
    }
}

pub fn forward(activation: Activation, x: &[f64]) -> Vec<f64> {
    let outputs = x.len() / activation.inputs_per_output();
    (0..outputs).map(|i| curve(activation, x[i]).0 * factor(activation, x, i).0).collect()
}

pub fn backward(activation: Activation, x: &[f64], dy: &[f64]) -> Vec<f64> {
    let slope = |i: usize| curve(activation, x[i]).1;
    if activation.inputs_per_output() == 1 {
        return (0..dy.len()).map(|i| slope(i) * dy[i]).collect();
    }
    let dgate = (0..dy.len()).map(|i| dy[i] * factor(activation, x, i).0 * slope(i));
    let dup = (0..dy.len()).map(|i| dy[i] * curve(activation, x[i]).0 * factor(activation, x, i).1);
    dgate.chain(dup).collect()
}

#[test]
fn reference_gradients_agree_with_differences() {
    // The larger numbers are beyond the limit of the clamped kind.
    for (activation, scale) in
        Activation::ALL.into_iter().flat_map(|activation| [(activation, 5.0), (activation, 12.0)])
    {
        let x = double(&random("x", 40, scale));
        let dy = double(&random("dy", 40 / activation.inputs_per_output(), 1.0));
        let loss = |x: &[f64]| dot(&forward(activation, x), &dy);
        assert_gradient("dx", loss, &x, &backward(activation, &x, &dy));
    }
}

#[test]
fn values_and_gradients_are_within_their_bounds() {
    for (rows, outputs, gap, scale) in [(1, 1, 0, 1.0), (3, 16, 5, 3.0), (4, 71, 0, 8.0), (2, 333, 2, 30.0)] {
        for activation in Activation::ALL {
            let cols = outputs * activation.inputs_per_output();
            let x = random("x", rows * (cols + gap), scale);
            let dy = random("dy", rows * outputs, 1.0);
            let input = || MatRef::new(&x, rows, cols, cols + gap);
            let y = same_on_all_sets(|set| {
                let mut y = vec![0.0; rows * outputs];
                run(set, ActivationForward { activation, x: input(), y: MatMut::dense(&mut y, rows, outputs) });
                y
            });
            let dx = same_on_all_sets(|set| {
                let (mut dx, mut again) = (vec![0.0; rows * cols], vec![0.0; rows * outputs]);
                let arguments = ActivationBackward {
                    activation,
                    x: input(),
                    dy: MatRef::dense(&dy, rows, outputs),
                    dx: MatMut::dense(&mut dx, rows, cols),
                    y: MatMut::dense(&mut again, rows, outputs),
                };
                run(set, arguments);
                assert_eq!(again, y, "the backward pass writes the same output");
                dx
            });
            for row in 0..rows {
                let x = double(input().row(row));
                let dy = double(&dy[row * outputs..(row + 1) * outputs]);
                check_row(
                    activation,
                    &x,
                    &dy,
                    &y[row * outputs..(row + 1) * outputs],
                    &dx[row * cols..(row + 1) * cols],
                );
            }
        }
    }
}

/// The argument of the exponential is off by at most 4 roundings of itself, which are as many times its size in the
/// result; where that size exceeds 30 the result is below 1e-12. The functions themselves are off by at most 6 (their
/// tables), and three multiplications follow. Near zero slopes are of size 1, so sums have absolute errors.
fn check_row(activation: Activation, x: &[f64], dy: &[f64], y: &[f32], dx: &[f32]) {
    // The reference itself cancels far below zero, in f64, where the slope of the tanh form's argument is up to 2 +
    // x^2.
    let reference_error = |i: usize| 1e-15 * x[i].abs() * (2.0 + x[i].powi(2));
    let roundings = |i: usize| 12.0 + 4.0 * x[i].powi(2).min(30.0);
    // Of a factor with a sum, its size is that of both terms.
    let up = |i: usize| match activation {
        Activation::SwiGluClamped => x[dy.len() + i].abs().min(7.0) + 1.0,
        Activation::SwiGlu | Activation::GeGlu | Activation::GeGluTanh => x[dy.len() + i].abs(),
        Activation::GeluTanh | Activation::GeluErf | Activation::GeluSigmoid | Activation::Relu => 1.0,
    };
    assert_within(&format!("{activation:?}"), y, &forward(activation, x), |i| {
        roundings(i) * ROUNDING * curve(activation, x[i]).0.abs() * up(i) + reference_error(i) * up(i)
    });
    assert_within(&format!("{activation:?} gradient"), dx, &backward(activation, x, dy), |i| {
        let j = i % dy.len();
        let (value, slope) = curve(activation, x[j]);
        let size = if i < dy.len() {
            // The two terms of the slope have opposite signs below zero.
            (slope.abs() + 2.0 * value.abs() * (1.0 + x[j].abs())) * up(j)
        } else {
            value.abs()
        };
        roundings(j) * ROUNDING * size * dy[j].abs() + reference_error(j) * up(j) * dy[j].abs()
    });
}

#[test]
fn far_from_zero_nothing_overflows_and_nan_stays() {
    for activation in [Activation::GeluTanh, Activation::GeluErf, Activation::Relu] {
        let x = [-1e4, -1e2, 1e2, 1e4, f32::NAN, -0.0];
        let dy = [1.0; 6];
        let (mut dx, mut y) = ([0.0; 6], [0.0; 6]);
        let arguments = ActivationBackward {
            activation,
            x: MatRef::dense(&x, 1, 6),
            dy: MatRef::dense(&dy, 1, 6),
            dx: MatMut::dense(&mut dx, 1, 6),
            y: MatMut::dense(&mut y, 1, 6),
        };
        run(cpu::instruction_set::InstructionSet::detect(), arguments);
        assert!(y[0].abs() < 1e-30 && y[1].abs() < 1e-30 && dx[0].abs() < 1e-20 && dx[1].abs() < 1e-20, "{y:?} {dx:?}");
        assert_eq!((y[2], y[3], dx[2], dx[3]), (1e2, 1e4, 1.0, 1.0));
        assert!(y[4].is_nan(), "{activation:?}");
        assert_eq!(y[5], 0.0);
    }
}
