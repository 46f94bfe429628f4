//! Floating-point numbers against Rust's, and directions against exact neighbours.

use crate::tests::interpreter::machine::{DOUBLE, HALF, SINGLE, compare};

type OfSingle = fn(f32, f32, f32) -> f32;
type OfDouble = fn(f64, f64, f64) -> f64;

fn single(value: f32) -> u64 {
    if value.is_nan() { 0x7fff_ffff } else { u64::from(value.to_bits()) }
}

fn double(value: f64) -> u64 {
    if value.is_nan() { 0xfff8_0000_0000_0000 } else { value.to_bits() }
}

#[test]
fn single_precision_to_the_nearest() {
    let cases: &[(&str, OfSingle)] = &[
        ("add.rn.f32 %f0, %f1, %f2;", |a, b, _| a + b),
        ("sub.f32 %f0, %f1, %f2;", |a, b, _| a - b),
        ("mul.rn.f32 %f0, %f1, %f2;", |a, b, _| a * b),
        ("fma.rn.f32 %f0, %f1, %f2, %f3;", f32::mul_add),
        ("div.rn.f32 %f0, %f1, %f2;", |a, b, _| a / b),
        ("sqrt.rn.f32 %f0, %f1;", |a, _, _| a.sqrt()),
        ("rcp.rn.f32 %f0, %f1;", |a, _, _| 1.0 / a),
        ("max.NaN.f32 %f0, %f1, %f2;", |a, b, _| if a.is_nan() || b.is_nan() { f32::NAN } else { greater(a, b) }),
        ("max.f32 %f0, %f1, %f2;", greater3),
        ("min.f32 %f0, %f1, %f2;", |a, b, _| -greater(-a, -b)),
    ];
    for (body, expected) in cases {
        let of = |bits: u64| f32::from_bits(bits as u32);
        compare(body, SINGLE, |a, b, c| single(expected(of(a), of(b), of(c))));
    }
    compare("neg.f32 %f0, %f1;", SINGLE, |a, _, _| (a ^ 0x8000_0000) & 0xffff_ffff);
    compare("abs.f32 %f0, %f1;", SINGLE, |a, _, _| a & 0x7fff_ffff);
}

fn greater3(a: f32, b: f32, _: f32) -> f32 {
    greater(a, b)
}

/// The greater of two numbers; a NaN is not a number, and -0 is less than +0.
fn greater(a: f32, b: f32) -> f32 {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if a == b => f32::from_bits(a.to_bits() & b.to_bits()),
        _ if a > b => a,
        _ => b,
    }
}

#[test]
fn the_greater_of_two_zeros_is_positive() {
    assert_eq!(greater(0.0, -0.0).to_bits(), 0);
    assert_eq!(greater(-0.0, 0.0).to_bits(), 0);
}

#[test]
fn double_precision() {
    let cases: &[(&str, OfDouble)] = &[
        ("add.rn.f64 %g0, %g1, %g2;", |a, b, _| a + b),
        ("mul.f64 %g0, %g1, %g2;", |a, b, _| a * b),
        ("fma.rn.f64 %g0, %g1, %g2, %g3;", f64::mul_add),
        ("div.rn.f64 %g0, %g1, %g2;", |a, b, _| a / b),
        ("sqrt.rn.f64 %g0, %g1;", |a, _, _| a.sqrt()),
    ];
    for (body, expected) in cases {
        compare(body, DOUBLE, |a, b, c| double(expected(f64::from_bits(a), f64::from_bits(b), f64::from_bits(c))));
    }
}

/// The result of a direction is on its side of the exact one, and its neighbour on the other: checked in double
/// precision, in which a product of two numbers of single precision is exact.
#[test]
fn directions_enclose_products() {
    for (body, is_up) in [("mul.rm.f32 %f0, %f1, %f2;", false), ("mul.rp.f32 %f0, %f1, %f2;", true)] {
        compare(body, SINGLE, |a, b, _| {
            let (a, b) = (f32::from_bits(a as u32), f32::from_bits(b as u32));
            let exact = f64::from(a) * f64::from(b);
            let near = exact as f32;
            if near.is_nan() || f64::from(near) == exact {
                return single(near);
            }
            let is_above = f64::from(near) > exact;
            single(match (is_up, is_above) {
                (true, true) | (false, false) => near,
                (true, false) => near.next_up(),
                (false, true) => near.next_down(),
            })
        });
    }
    compare("mul.rz.f32 %f0, %f1, %f2;", SINGLE, |a, b, _| {
        let (a, b) = (f32::from_bits(a as u32), f32::from_bits(b as u32));
        let exact = f64::from(a) * f64::from(b);
        let near = exact as f32;
        let is_away = f64::from(near).abs() > exact.abs();
        single(if near.is_nan() || !is_away || exact.is_infinite() { near } else { f32::from_bits(near.to_bits() - 1) })
    });
}

#[test]
fn flushed_and_saturated() {
    let flushed = |bits: u64| {
        let bits = bits as u32;
        f32::from_bits(if bits & 0x7f80_0000 == 0 { bits & 0x8000_0000 } else { bits })
    };
    compare("add.ftz.f32 %f0, %f1, %f2;", SINGLE, |a, b, _| {
        let sum = flushed(a) + flushed(b);
        single(if sum.is_nan() { sum } else { flushed(u64::from(sum.to_bits())) })
    });
    compare("add.sat.f32 %f0, %f1, %f2;", SINGLE, |a, b, _| {
        let sum = f32::from_bits(a as u32) + f32::from_bits(b as u32);
        single(if sum > 0.0 { sum.min(1.0) } else { 0.0 })
    });
}

/// A sum or product of two halves is exact in double precision, and so is rounded once.
#[test]
fn halves() {
    let half = |bits: u64| halves_of(bits as u16);
    compare("add.f16 %h0, %h1, %h2;", HALF, |a, b, _| to_half(half(a) + half(b)));
    compare("mul.f16 %h0, %h1, %h2;", HALF, |a, b, _| to_half(half(a) * half(b)));
    let brain = |bits: u64| f64::from(f32::from_bits((bits as u32) << 16));
    compare("mul.bf16 %h0, %h1, %h2;", HALF, |a, b, _| to_brain(brain(a) * brain(b)));
    // A product of brain floats that is a tie, and a sum that only the third operand decides.
    let inputs = [[0x3f81, 0x3f81, 0x0080], [0x3f81, 0x3f81, 0x8080], [0x3f81, 0x3f81, 0]];
    let results = crate::tests::interpreter::machine::evaluate("fma.rn.bf16 %h0, %h1, %h2, %h3;", HALF, &inputs);
    // (1 + 2^-7)^2 = 1 + 2^-6 + 2^-14 is not a tie; all round down.
    assert_eq!(results, [0x3f82, 0x3f82, 0x3f82]);
    // 1.5 x (1 + 2^-7) = 1.5 + 1.5 x 2^-7 is a tie between 0x3fc1 and 0x3fc2.
    let inputs = [[0x3fc0, 0x3f81, 0x0080], [0x3fc0, 0x3f81, 0x8080], [0x3fc0, 0x3f81, 0]];
    let results = crate::tests::interpreter::machine::evaluate("fma.rn.bf16 %h0, %h1, %h2, %h3;", HALF, &inputs);
    assert_eq!(results, [0x3fc2, 0x3fc1, 0x3fc2]);
}

/// The value of half precision.
pub fn halves_of(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let size = match exponent {
        0 => fraction * f64::powi(2.0, -24),
        31 if fraction > 0.0 => return f64::NAN,
        31 => f64::INFINITY,
        _ => (1024.0 + fraction) * f64::powi(2.0, exponent - 25),
    };
    if bits >> 15 == 1 { -size } else { size }
}

/// Half precision by search: the nearest of all halves, even among two.
pub fn to_half(value: f64) -> u64 {
    if value.is_nan() {
        return 0x7fff;
    }
    let size = value.abs();
    let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
    // The greatest half that is not more.
    let below = (0..0x7c00u16).collect::<Vec<_>>().partition_point(|bits| halves_of(*bits) <= size) as u16 - 1;
    if size.is_infinite() || size >= 65520.0 {
        return sign | 0x7c00;
    }
    let (low, high) = (halves_of(below), if below == 0x7bff { 65536.0 } else { halves_of(below + 1) });
    let middle = (low + high) / 2.0;
    let is_up = size > middle || size == middle && below & 1 == 1;
    sign | u64::from(below + u16::from(is_up))
}

/// Brain float, from a number of double precision that has at most 16 bits.
fn to_brain(value: f64) -> u64 {
    if value.is_nan() {
        return 0x7fff;
    }
    // 16 bits are exact in single precision unless they are subnormal there, where the places to cut are the same.
    let bits = (value as f32).to_bits();
    let is_exact = f64::from(value as f32) == value;
    let (kept, rest) = (bits >> 16, bits & 0xffff);
    let is_up = rest > 0x8000 || rest == 0x8000 && (kept & 1 == 1 || !is_exact);
    u64::from(kept + u32::from(is_up))
}
