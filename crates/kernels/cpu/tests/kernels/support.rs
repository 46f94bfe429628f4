//! Random inputs, comparisons and central differences.

use cpu::instruction_set::InstructionSet;

/// The largest relative error of one f32 operation.
pub const ROUNDING: f64 = 1.0 / (1u64 << 24) as f64;

/// `len` numbers in `[-scale, scale)`, a function of `name`.
pub fn random(name: &str, len: usize, scale: f32) -> Vec<f32> {
    let hash = name.bytes().fold(17u64, |hash, byte| hash.wrapping_mul(0x100_0000_01b3) ^ u64::from(byte));
    let word = |i: usize| philox::philox4x32_10([i as u32, 0, 0, 0], philox::key_of_seed(hash))[0];
    (0..len).map(|i| (philox::half_open_f32(word(i)) * 2.0 - 1.0) * scale).collect()
}

/// The same numbers in f64.
pub fn double(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}

/// The result of `kernel`, after checking that it has the same bits on every available instruction set.
pub fn same_on_all_sets(kernel: impl Fn(InstructionSet) -> Vec<f32>) -> Vec<f32> {
    let expected = kernel(InstructionSet::Scalar);
    for set in InstructionSet::available() {
        let actual = kernel(set);
        assert_eq!(actual.len(), expected.len());
        for (i, (a, e)) in actual.iter().zip(&expected).enumerate() {
            assert_eq!(a.to_bits(), e.to_bits(), "element {i} on {set:?}: {a:e}, scalar {e:e}");
        }
    }
    expected
}

/// Holds `|actual - exact| <= bound` for every element.
pub fn assert_within(what: &str, actual: &[f32], exact: &[f64], bound: impl Fn(usize) -> f64) {
    assert_eq!(actual.len(), exact.len(), "{what}");
    let mut largest: f64 = 0.0;
    for (i, (&actual, &exact)) in actual.iter().zip(exact).enumerate() {
        let error = (f64::from(actual) - exact).abs();
        let bound = bound(i);
        assert!(error <= bound, "{what}[{i}] = {actual:e}, exactly {exact:e}: error {error:e} > bound {bound:e}");
        if bound > 0.0 {
            largest = largest.max(error / bound);
        }
    }
    println!("{what}: largest error is {largest:.3} of its bound");
}

/// Holds that `gradient` is the gradient of `function` at `x` by central differences. With a step of 1e-5 their error
/// is about 1e-10 of third derivatives plus 1e-11 of the function's value.
pub fn assert_gradient(what: &str, function: impl Fn(&[f64]) -> f64, x: &[f64], gradient: &[f64]) {
    const STEP: f64 = 1e-5;
    let mut moved = x.to_vec();
    for i in 0..x.len() {
        moved[i] = x[i] + STEP;
        let above = function(&moved);
        moved[i] = x[i] - STEP;
        let below = function(&moved);
        moved[i] = x[i];
        let slope = (above - below) / (2.0 * STEP);
        let error = (slope - gradient[i]).abs();
        assert!(error < 1e-7 * (1.0 + slope.abs()), "{what}[{i}]: {} but differences give {slope}", gradient[i]);
    }
}

/// The inner product.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
