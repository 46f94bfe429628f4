//! The definition of products in AMX order, a sum at a time.

use cpu::gemm::PAIRS_BLOCK;

/// Zero of its sign where a number is subnormal.
fn flushed(value: f32) -> f32 {
    if value.is_subnormal() { 0.0f32.copysign(value) } else { value }
}

/// 2^exponent.
fn power(exponent: i32) -> f32 {
    2.0f64.powi(exponent) as f32
}

/// `a b + addend`, rounded to 24 bits with an exponent of any size, and zero below 2^-126.
fn multiply_add(a: f32, b: f32, addend: f32) -> f32 {
    let sum = a.mul_add(b, addend);
    if sum.is_nan() || sum.abs() >= power(-100) {
        return sum;
    }
    // Far below overflow: 2^80 times as large all of it is normal, unless large terms have cancelled to zero.
    if addend.abs() >= power(-60) {
        assert!(sum == 0.0, "{a:e} * {b:e} + {addend:e}: the rest of large terms is not a small number");
        return sum;
    }
    let (a, b) = if a.abs() < b.abs() { (a * power(80), b) } else { (a, b * power(80)) };
    let large = a.mul_add(b, addend * power(80));
    if large.abs() < power(80 - 126) { 0.0f32.copysign(sum) } else { large * power(-80) }
}

/// `sum`, with the products of these steps' elements added.
pub fn continued(sum: f32, steps: usize, elements: impl Fn(usize) -> (f32, f32)) -> f32 {
    let mut sum = flushed(sum);
    for block in (0..steps).step_by(PAIRS_BLOCK) {
        let mut chains = [0.0f32; 2];
        for step in block..block + PAIRS_BLOCK {
            let (a, b) = if step < steps { elements(step) } else { (0.0, 0.0) };
            let chain = &mut chains[step % 2];
            *chain = multiply_add(flushed(a), flushed(b), *chain);
        }
        sum = flushed(sum + flushed(chains[0] + chains[1]));
    }
    sum
}
