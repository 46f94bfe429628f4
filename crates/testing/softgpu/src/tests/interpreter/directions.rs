//! Directions of double precision against the nearest number and the sign of its exact error.

use crate::tests::interpreter::machine::{DOUBLE, evaluate, inputs};

/// The sums of two, exactly: the nearest number, and its error.
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let b_part = sum - a;
    (sum, (a - (sum - b_part)) + (b - b_part))
}

/// The sign of the error of the nearest `a b + c`, after Boldo and Muller.
fn fused_error(a: f64, b: f64, c: f64) -> f64 {
    let near = a.mul_add(b, c);
    let high = a * b;
    let low = a.mul_add(b, -high);
    let (high_of_low, rest) = two_sum(c, low);
    let (first, second) = two_sum(high, high_of_low);
    ((first - near) + second) + rest
}

/// The nearest number, or its neighbour where the error tells that the exact one is beyond it.
fn directed(near: f64, error: f64, direction: &str) -> f64 {
    let is_down = direction == "rm" || direction == "rz" && near > 0.0;
    match error {
        _ if error > 0.0 && !is_down => near.next_up(),
        _ if error < 0.0 && is_down => near.next_down(),
        _ => near,
    }
}

/// Whether a number and the products and errors that it takes part in are far from the ends of the format.
fn is_usual(bits: u64) -> bool {
    (600..1400).contains(&(bits >> 52 & 0x7ff))
}

#[test]
fn directions_of_double_precision_are_on_their_side() {
    type Case = (&'static str, &'static str, fn(f64, f64, f64) -> (f64, f64));
    let cases: [Case; 6] = [
        ("add", "%g1, %g2", |a, b, _| two_sum(a, b)),
        ("sub", "%g1, %g2", |a, b, _| two_sum(a, -b)),
        ("mul", "%g1, %g2", |a, b, _| (a * b, a.mul_add(b, -(a * b)))),
        ("fma", "%g1, %g2, %g3", |a, b, c| (a.mul_add(b, c), fused_error(a, b, c))),
        ("div", "%g1, %g2", |a, b, _| (a / b, (-(a / b)).mul_add(b, a) * b.signum())),
        ("sqrt", "%g1", |a, _, _| (a.sqrt(), (-a.sqrt()).mul_add(a.sqrt(), a))),
    ];
    let usual = |input: &[u64; 3]| input.iter().all(|bits| is_usual(*bits));
    let all: Vec<[u64; 3]> = (1..4).flat_map(inputs).filter(usual).collect();
    for (opcode, operands, expected) in cases {
        for direction in ["rz", "rm", "rp"] {
            let results = evaluate(&format!("{opcode}.{direction}.f64 %g0, {operands};"), DOUBLE, &all);
            let mut differing = 0;
            for (input, result) in all.iter().zip(results) {
                let [a, b, c] = input.map(f64::from_bits);
                let (near, error) = expected(a, b, c);
                if near.is_nan() || near == 0.0 {
                    continue;
                }
                let wanted = directed(near, error, direction);
                differing += u32::from(wanted != near);
                assert_eq!(result, wanted.to_bits(), "{opcode}.{direction} of {a:e}, {b:e}, {c:e}: {wanted:e}");
            }
            assert!(differing > 100, "{opcode}.{direction}: {differing} of {} are not the nearest", all.len());
        }
    }
}

#[test]
fn directions_at_the_ends_of_double_precision() {
    let least = f64::from_bits(1);
    let (most, infinity, tiny) = (f64::MAX, f64::INFINITY, f64::powi(2.0, -200));
    // The operation, its operands, and its results toward zero, down and up.
    let cases = [
        ("add", [most, most, 0.0], [most, most, infinity]),
        ("add", [-most, -most, 0.0], [-most, -infinity, -most]),
        ("add", [1.0, tiny, 0.0], [1.0, 1.0, 1.0f64.next_up()]),
        ("sub", [1.0, tiny, 0.0], [1.0f64.next_down(), 1.0f64.next_down(), 1.0]),
        ("sub", [1.5, 1.5, 0.0], [0.0, -0.0, 0.0]),
        ("add", [-0.0, -0.0, 0.0], [-0.0, -0.0, -0.0]),
        ("add", [0.0, -0.0, 0.0], [0.0, -0.0, 0.0]),
        ("add", [infinity, -1.0, 0.0], [infinity; 3]),
        ("mul", [least, 0.5, 0.0], [0.0, 0.0, least]),
        ("mul", [-least, tiny, 0.0], [-0.0, -least, -0.0]),
        ("mul", [most, 2.0, 0.0], [most, most, infinity]),
        ("mul", [-0.0, 3.0, 0.0], [-0.0, -0.0, -0.0]),
        ("fma", [most, most, -infinity], [-infinity; 3]),
        ("fma", [1.0 + f64::EPSILON, 1.0 - f64::EPSILON, -1.0], [-f64::EPSILON * f64::EPSILON; 3]),
        ("fma", [least, least, 1.0], [1.0, 1.0, 1.0f64.next_up()]),
        ("fma", [least, -least, 1.0], [1.0f64.next_down(), 1.0f64.next_down(), 1.0]),
        ("fma", [2.0, 3.0, -6.0], [0.0, -0.0, 0.0]),
        ("div", [1.0, 0.0, 0.0], [infinity; 3]),
        ("div", [least, 2.0, 0.0], [0.0, 0.0, least]),
        ("div", [most, least, 0.0], [most, most, infinity]),
        ("div", [6.0, -3.0, 0.0], [-2.0; 3]),
    ];
    for (opcode, input, expected) in cases {
        let operands = if opcode == "fma" { "%g1, %g2, %g3" } else { "%g1, %g2" };
        for (direction, wanted) in ["rz", "rm", "rp"].into_iter().zip(expected) {
            let body = format!("{opcode}.{direction}.f64 %g0, {operands};");
            let result = evaluate(&body, DOUBLE, &[input.map(f64::to_bits)])[0];
            assert_eq!(result, wanted.to_bits(), "{body} of {input:?}: {:e}, not {wanted:e}", f64::from_bits(result));
        }
    }
    let nan = evaluate("sqrt.rm.f64 %g0, %g1;", DOUBLE, &[[(-1.0f64).to_bits(), 0, 0]]);
    assert_eq!(nan, [0xfff8_0000_0000_0000]);
    let subnormal = evaluate("sqrt.rp.f64 %g0, %g1;", DOUBLE, &[[1, 0, 0]]);
    assert_eq!(subnormal, [f64::powi(2.0, -537).to_bits()]);
    let reciprocal = evaluate("rcp.rm.f64 %g0, %g1;", DOUBLE, &[[3.0f64.to_bits(), 0, 0]]);
    // The nearest to 1/3 is below it.
    assert_eq!(reciprocal, [(1.0f64 / 3.0).to_bits()]);
}
