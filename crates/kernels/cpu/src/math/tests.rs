//! Errors against f64, in units in the last place of the exact value, and equal bits everywhere.

use super::*;
use crate::instruction_set::InstructionSet;
use crate::lanes::{Kernel, LANES, run};

#[derive(Clone, Copy, Debug)]
enum Function {
    Exp,
    PowerOfDepth,
    Log,
    Sigmoid,
    Complement,
    Tanh,
    Erf,
    Cumulative,
    Density,
}

struct Apply<'a>(Function, &'a [f32; LANES]);

impl Kernel for Apply<'_> {
    type Output = [f32; LANES];
    #[inline(always)]
    fn run<L: Lanes>(self) -> [f32; LANES] {
        let x = L::load(self.1);
        let y = match self.0 {
            Function::Exp => exp(x),
            Function::PowerOfDepth => power_of_depth(x),
            Function::Log => log(x),
            Function::Sigmoid => sigmoid(x),
            Function::Complement => sigmoid_and_complement(x).1,
            Function::Tanh => tanh(x),
            Function::Erf => erf(x),
            Function::Cumulative => normal(x).0,
            Function::Density => normal(x).1,
        };
        let mut out = [0.0; LANES];
        y.store(&mut out);
        out
    }
}

/// erf and erfc in f64: the Taylor series below 2.5, the continued fraction of erfc above.
fn erfc_f64(x: f64) -> f64 {
    let a = x.abs();
    let positive = if a < 2.5 {
        1.0 - erf_series(a)
    } else {
        let mut fraction = a;
        for k in (1..200).rev() {
            fraction = a + f64::from(k) * 0.5 / fraction;
        }
        (-a * a).exp() / (fraction * std::f64::consts::PI.sqrt())
    };
    if x < 0.0 { 2.0 - positive } else { positive }
}

fn erf_series(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..120 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

fn exact(function: Function, x: f64) -> f64 {
    match function {
        Function::Exp => x.exp(),
        Function::PowerOfDepth => (1.0 - x).exp2(),
        Function::Log => x.ln(),
        Function::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Function::Complement => 1.0 / (1.0 + x.exp()),
        Function::Tanh => x.tanh(),
        Function::Erf if x.abs() < 1.0 => erf_series(x),
        Function::Erf => (1.0 - erfc_f64(x.abs())).copysign(x),
        Function::Cumulative => 0.5 * erfc_f64(-x * std::f64::consts::FRAC_1_SQRT_2),
        Function::Density => (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt(),
    }
}

/// Calls `check(x, y)` for the function at `count` points of `[first, last]` on every instruction set, after
/// holding that all of them agree to the bit.
fn sweep(function: Function, first: f32, last: f32, count: usize, mut check: impl FnMut(f32, f32)) {
    for start in (0..count).step_by(LANES) {
        let x: [f32; LANES] = std::array::from_fn(|lane| {
            let share = (start + lane) as f64 / count as f64;
            (f64::from(first) + share * (f64::from(last) - f64::from(first))) as f32
        });
        let y = run(InstructionSet::detect(), Apply(function, &x));
        if start % (64 * LANES) == 0 {
            for set in InstructionSet::available() {
                let other = run(set, Apply(function, &x));
                assert_eq!(y.map(f32::to_bits), other.map(f32::to_bits), "{function:?} {set:?}");
            }
        }
        for (x, y) in x.into_iter().zip(y) {
            check(x, y);
        }
    }
}

/// The spacing of f32 at `value`.
fn ulp(value: f64) -> f64 {
    let exponent = value.abs().log2().floor().max(-126.0);
    (exponent - 23.0).exp2()
}

fn largest_error_in_ulp(function: Function, ranges: &[(f32, f32)]) -> f64 {
    let mut largest: f64 = 0.0;
    for &(first, last) in ranges {
        sweep(function, first, last, 400_000, |x, y| {
            let truth = exact(function, f64::from(x));
            largest = largest.max((f64::from(y) - truth).abs() / ulp(truth));
        });
    }
    println!("{function:?}: {largest:.3} ulp");
    largest
}

#[test]
fn errors_are_those_written_in_the_table() {
    let exp_ranges = [(-86.6, 88.72), (-1.0, 1.0)];
    assert!(largest_error_in_ulp(Function::Exp, &exp_ranges) < 1.0);
    let log_ranges = [(1e-40, 1e-37), (1e-6, 0.5), (0.5, 2.0), (2.0, 1e6), (1e30, 3e38)];
    assert!(largest_error_in_ulp(Function::Log, &log_ranges) < 0.9);
    assert!(largest_error_in_ulp(Function::Sigmoid, &[(-79.0, 20.0), (-1.0, 1.0)]) < 2.5);
    assert!(largest_error_in_ulp(Function::Complement, &[(-79.0, 79.0)]) < 3.0);
    assert!(largest_error_in_ulp(Function::Tanh, &[(-12.0, 12.0), (-0.7, 0.7)]) < 1.6);
    assert!(largest_error_in_ulp(Function::Erf, &[(-5.0, 5.0), (-1.1, 1.1)]) < 1.6);
}

/// All exponents and all last bits are among the depths.
#[test]
fn powers_of_depths_are_within_their_bound() {
    let mut largest: f64 = 0.0;
    for (first, last) in [(-126.0, 126.0), (0.0, 2.0), (-1.0, 1.0)] {
        sweep(Function::PowerOfDepth, first, last, 400_000, |x, y| {
            let truth = exact(Function::PowerOfDepth, f64::from(x));
            largest = largest.max((f64::from(y) / truth - 1.0).abs());
        });
    }
    println!("2^{:.2} of the result", largest.log2());
    assert!(largest < 2f64.powf(-18.4));
    let special = [1.0, 0.0, 2.0, 126.0, 126.00001, -126.0, -127.0, f32::INFINITY, -f32::INFINITY, f32::NAN];
    let mut x = [0.0; LANES];
    x[..special.len()].copy_from_slice(&special);
    for set in InstructionSet::available() {
        let y = run(set, Apply(Function::PowerOfDepth, &x));
        let smallest = 2f32.powi(-125);
        assert_eq!(y[..5], [1.0, 2.0, 0.5, smallest, 0.0], "{set:?}");
        assert_eq!(y[5..9], [2f32.powi(127), f32::INFINITY, 0.0, f32::INFINITY], "{set:?}");
        assert!(y[9].is_nan(), "{set:?}");
    }
}

#[test]
fn normal_distribution_is_accurate_absolutely_and_in_its_lower_tail() {
    for (function, bound) in [(Function::Cumulative, 2e-7), (Function::Density, 1.2e-7)] {
        sweep(function, -12.0, 8.0, 400_000, |x, y| {
            let truth = exact(function, f64::from(x));
            let error = (f64::from(y) - truth).abs();
            assert!(error < bound, "{function:?}({x}) is off by {error:e}");
            // The square is rounded before the exponential, which magnifies it by x^2 / 2.
            if (-10.0..0.0).contains(&x) {
                let relative = 1e-6 + f64::from(x * x) * 6e-8;
                assert!(error < relative * truth, "{function:?}({x}) is off by {error:e} of {truth:e}");
            }
        });
    }
}

#[test]
fn special_values() {
    let inf = f32::INFINITY;
    let mut x = [0.0; LANES];
    x[..8].copy_from_slice(&[0.0, inf, -inf, f32::NAN, -1.0, 1.0, 1e30, -1e30]);
    for set in InstructionSet::available() {
        let y = run(set, Apply(Function::Exp, &x));
        assert_eq!((y[0], y[1], y[2], y[6], y[7]), (1.0, inf, 0.0, inf, 0.0));
        assert!(y[3].is_nan());
        let y = run(set, Apply(Function::Log, &x));
        assert_eq!((y[0], y[1], y[5]), (-inf, inf, 0.0));
        assert!(y[2].is_nan() && y[3].is_nan() && y[4].is_nan());
        for function in [Function::Tanh, Function::Erf] {
            let y = run(set, Apply(function, &x));
            assert_eq!((y[0], y[1], y[2], y[6], y[7]), (0.0, 1.0, -1.0, 1.0, -1.0));
            assert!(y[3].is_nan());
        }
        let y = run(set, Apply(Function::Cumulative, &x));
        assert_eq!((y[1], y[2], y[6], y[7]), (1.0, 0.0, 1.0, 0.0));
        assert!(y[3].is_nan());
        assert!(run(set, Apply(Function::Sigmoid, &x))[3].is_nan());
    }
}

#[test]
fn double_functions_agree_with_the_library() {
    for i in 0..200_000 {
        let share = f64::from(i) / 200_000.0;
        let x = share * 1000.0 - 500.0;
        assert!((exp_f64(x) / x.exp() - 1.0).abs() < 2f64.powi(-51), "exp {x}");
        let x = (x * 0.1).exp();
        let error = (log_f64(x) - x.ln()).abs();
        assert!(error <= 2f64.powi(-50) * x.ln().abs(), "log {x}: {error:e}");
        for x in [share * 10.0, share * 1e5, -share * 1e6] {
            let (sin, cos) = sin_cos_f64(x);
            let error = (sin - x.sin()).abs().max((cos - x.cos()).abs());
            assert!(error < 2f64.powi(-50), "{x}: {error:e}");
        }
    }
}

#[test]
fn turns_are_reduced_exactly() {
    struct Turn<'a>(&'a [u32; LANES]);
    impl Kernel for Turn<'_> {
        type Output = [[f32; LANES]; 2];
        #[inline(always)]
        fn run<L: Lanes>(self) -> Self::Output {
            let (sin, cos) = sin_cos_of_turn::<L>(self.0);
            let mut out = [[0.0; LANES]; 2];
            sin.store(&mut out[0]);
            cos.store(&mut out[1]);
            out
        }
    }
    for block in 0..20_000u32 {
        let words: [u32; LANES] = std::array::from_fn(|lane| (block * 16 + lane as u32).wrapping_mul(13_421));
        let [sin, cos] = run(InstructionSet::detect(), Turn(&words));
        for set in InstructionSet::available() {
            assert_eq!(run(set, Turn(&words)), [sin, cos]);
        }
        for lane in 0..LANES {
            let angle = f64::from(words[lane]) * std::f64::consts::TAU / 4_294_967_296.0;
            assert!((f64::from(sin[lane]) - angle.sin()).abs() < 1.5e-7);
            assert!((f64::from(cos[lane]) - angle.cos()).abs() < 1.5e-7);
        }
    }
}
