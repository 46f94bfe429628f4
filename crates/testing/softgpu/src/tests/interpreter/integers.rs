//! Integers against Rust's.

use crate::tests::interpreter::machine::{HALF, PREDICATE, WIDE, WORD, compare};

type Of16 = fn(u16, u16) -> u16;
type Of32 = fn(u32, u32, u32) -> u32;
type Of64 = fn(u64, u64, u64) -> u64;

#[test]
fn words() {
    let cases: &[(&str, Of32)] = &[
        ("add.s32 %r0, %r1, %r2;", |a, b, _| a.wrapping_add(b)),
        ("sub.s32 %r0, %r1, %r2;", |a, b, _| a.wrapping_sub(b)),
        ("add.sat.s32 %r0, %r1, %r2;", |a, b, _| (a as i32).saturating_add(b as i32) as u32),
        ("mul.lo.s32 %r0, %r1, %r2;", |a, b, _| a.wrapping_mul(b)),
        ("mul.hi.u32 %r0, %r1, %r2;", |a, b, _| ((u64::from(a) * u64::from(b)) >> 32) as u32),
        ("mul.hi.s32 %r0, %r1, %r2;", |a, b, _| ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32),
        ("mad.lo.s32 %r0, %r1, %r2, %r3;", |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        ("mad.hi.u32 %r0, %r1, %r2, %r3;", |a, b, c| (((u64::from(a) * u64::from(b)) >> 32) as u32).wrapping_add(c)),
        ("min.s32 %r0, %r1, %r2;", |a, b, _| (a as i32).min(b as i32) as u32),
        ("max.u32 %r0, %r1, %r2;", |a, b, _| a.max(b)),
        ("abs.s32 %r0, %r1;", |a, _, _| (a as i32).wrapping_abs() as u32),
        ("neg.s32 %r0, %r1;", |a, _, _| a.wrapping_neg()),
        ("sad.s32 %r0, %r1, %r2, %r3;", |a, b, c| (a as i32).abs_diff(b as i32).wrapping_add(c)),
        ("and.b32 %r0, %r1, 0xff00ff;", |a, _, _| a & 0xff_00ff),
        ("xor.b32 %r0, %r1, %r2;", |a, b, _| a ^ b),
        ("not.b32 %r0, %r1;", |a, _, _| !a),
        ("cnot.b32 %r0, %r1;", |a, _, _| u32::from(a == 0)),
        ("shl.b32 %r0, %r1, %r2;", |a, b, _| a.checked_shl(b).unwrap_or(0)),
        ("shr.u32 %r0, %r1, %r2;", |a, b, _| a.checked_shr(b).unwrap_or(0)),
        ("shr.s32 %r0, %r1, %r2;", |a, b, _| (a as i32 >> b.min(31)) as u32),
        ("shf.l.wrap.b32 %r0, %r1, %r2, %r3;", |a, b, c| {
            (((u64::from(b) << 32 | u64::from(a)) << (c & 31)) >> 32) as u32
        }),
        ("shf.r.clamp.b32 %r0, %r1, %r2, %r3;", |a, b, c| ((u64::from(b) << 32 | u64::from(a)) >> c.min(32)) as u32),
        ("lop3.b32 %r0, %r1, %r2, %r3, 0x96;", |a, b, c| a ^ b ^ c),
        ("lop3.b32 %r0, %r1, %r2, %r3, 0xca;", |a, b, c| a & b | !a & c),
        ("clz.b32 %r0, %r1;", |a, _, _| a.leading_zeros()),
        ("popc.b32 %r0, %r1;", |a, _, _| a.count_ones()),
        ("brev.b32 %r0, %r1;", |a, _, _| a.reverse_bits()),
        ("bfind.u32 %r0, %r1;", |a, _, _| a.checked_ilog2().unwrap_or(u32::MAX)),
        ("selp.b32 %r0, %r1, %r2, %p0;", |_, b, _| b),
        ("setp.lt.s32 %p0, %r1, %r2;\nselp.b32 %r0, %r1, %r2, %p0;", |a, b, _| (a as i32).min(b as i32) as u32),
        ("slct.u32.s32 %r0, %r1, %r2, %r3;", |a, b, c| if c as i32 >= 0 { a } else { b }),
        // Selector digits 0, 5, 10 (the sign of byte 2) and 15 (the sign of byte 7).
        ("prmt.b32 %r0, %r1, %r2, 0xfa50;", |a, b, _| {
            let bytes = [a.to_le_bytes(), b.to_le_bytes()].concat();
            let sign = |byte: u8| if byte >> 7 == 1 { 0xff } else { 0 };
            u32::from_le_bytes([bytes[0], bytes[5], sign(bytes[2]), sign(bytes[7])])
        }),
        ("and.b32 %r4, %r2, 31;\nand.b32 %r5, %r3, 31;\nbfe.u32 %r0, %r1, %r4, %r5;", |a, b, c| {
            a >> (b & 31) & ((1 << (c & 31)) - 1)
        }),
        ("bfe.s32 %r0, %r1, 5, 9;", |a, _, _| ((a << 18) as i32 >> 23) as u32),
        ("bfi.b32 %r0, %r1, %r2, 7, 12;", |a, b, _| b & !(0xfff << 7) | (a & 0xfff) << 7),
    ];
    for (body, expected) in cases {
        compare(body, WORD, |a, b, c| u64::from(expected(a as u32, b as u32, c as u32)));
    }
}

#[test]
fn quotients_where_they_are_defined() {
    let cases: &[(&str, Of32)] = &[
        ("max.u32 %r2, %r2, 1;\ndiv.u32 %r0, %r1, %r2;", |a, b, _| a / b.max(1)),
        ("max.u32 %r2, %r2, 1;\nrem.u32 %r0, %r1, %r2;", |a, b, _| a % b.max(1)),
        ("max.s32 %r2, %r2, 1;\ndiv.s32 %r0, %r1, %r2;", |a, b, _| (a as i32 / (b as i32).max(1)) as u32),
        ("max.s32 %r2, %r2, 1;\nrem.s32 %r0, %r1, %r2;", |a, b, _| (a as i32 % (b as i32).max(1)) as u32),
    ];
    for (body, expected) in cases {
        compare(body, WORD, |a, b, c| u64::from(expected(a as u32, b as u32, c as u32)));
    }
}

#[test]
fn words_of_64_bits() {
    let cases: &[(&str, Of64)] = &[
        ("add.s64 %d0, %d1, %d2;", |a, b, _| a.wrapping_add(b)),
        ("mul.lo.s64 %d0, %d1, %d2;", |a, b, _| a.wrapping_mul(b)),
        ("mul.hi.u64 %d0, %d1, %d2;", |a, b, _| ((u128::from(a) * u128::from(b)) >> 64) as u64),
        ("mul.hi.s64 %d0, %d1, %d2;", |a, b, _| ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64),
        ("mad.lo.s64 %d0, %d1, %d2, %d3;", |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        ("mul.wide.u32 %d0, %r1, %r2;", |a, b, _| u64::from(a as u32) * u64::from(b as u32)),
        ("mul.wide.s32 %d0, %r1, %r2;", |a, b, _| (i64::from(a as i32) * i64::from(b as i32)) as u64),
        ("mad.wide.s32 %d0, %r1, %r2, %d3;", |a, b, c| {
            (i64::from(a as i32) * i64::from(b as i32)).wrapping_add(c as i64) as u64
        }),
        ("shl.b64 %d0, %d1, %r2;", |a, b, _| a.checked_shl(b as u32).unwrap_or(0)),
        ("shr.s64 %d0, %d1, %r2;", |a, b, _| (a as i64 >> (b as u32).min(63)) as u64),
        ("min.s64 %d0, %d1, %d2;", |a, b, _| (a as i64).min(b as i64) as u64),
        ("max.u64 %d2, %d2, 1;\nrem.u64 %d0, %d1, %d2;", |a, b, _| a % b.max(1)),
        ("popc.b64 %r0, %d1;\ncvt.u64.u32 %d0, %r0;", |a, _, _| u64::from(a.count_ones())),
        ("clz.b64 %r0, %d1;\ncvt.u64.u32 %d0, %r0;", |a, _, _| u64::from(a.leading_zeros())),
        ("mov.b64 {%r4, %r5}, %d1;\nmov.b64 %d0, {%r5, %r4};", |a, _, _| a.rotate_left(32)),
        ("mov.b32 {%h4, %h5}, %r1;\nmov.b32 %r0, {%h5, %h4};\ncvt.u64.u32 %d0, %r0;", |a, _, _| {
            u64::from((a as u32).rotate_left(16))
        }),
    ];
    for (body, expected) in cases {
        compare(body, WIDE, expected);
    }
}

#[test]
fn words_of_16_bits() {
    let cases: &[(&str, Of16)] = &[
        ("add.s16 %h0, %h1, %h2;", |a, b| a.wrapping_add(b)),
        ("mul.lo.s16 %h0, %h1, %h2;", |a, b| a.wrapping_mul(b)),
        ("mul.hi.u16 %h0, %h1, %h2;", |a, b| ((u32::from(a) * u32::from(b)) >> 16) as u16),
        ("min.s16 %h0, %h1, %h2;", |a, b| (a as i16).min(b as i16) as u16),
        ("max.u16 %h0, %h1, %h2;", |a, b| a.max(b)),
        ("shr.s16 %h0, %h1, 3;", |a, _| (a as i16 >> 3) as u16),
        ("shl.b16 %h0, %h1, %r2;", |a, _| a),
        ("neg.s16 %h0, %h1;", |a, _| a.wrapping_neg()),
    ];
    for (body, expected) in cases.iter().filter(|(body, _)| !body.contains("shl")) {
        compare(body, HALF, |a, b, _| u64::from(expected(a as u16, b as u16)));
    }
    compare("shl.b16 %h0, %h1, %r2;", HALF, |a, b, _| u64::from((a as u16).checked_shl(b as u32).unwrap_or(0)));
}

#[test]
fn comparisons() {
    let cases: &[(&str, Of64)] = &[
        ("setp.lt.u32 %p0, %r1, %r2;", |a, b, _| u64::from((a as u32) < b as u32)),
        ("setp.ge.s32 %p0, %r1, %r2;", |a, b, _| u64::from(a as i32 >= b as i32)),
        ("setp.ne.s16 %p0, %h1, %h2;", |a, b, _| u64::from(a as u16 != b as u16)),
        ("setp.gt.s16 %p0, %h1, %h2;", |a, b, _| u64::from(a as i16 > b as i16)),
        ("setp.le.s64 %p0, %d1, %d2;", |a, b, _| u64::from(a as i64 <= b as i64)),
        ("setp.eq.b64 %p0, %d1, %d2;", |a, b, _| u64::from(a == b)),
        ("setp.lt.f32 %p0, %f1, %f2;", |a, b, _| u64::from(f32::from_bits(a as u32) < f32::from_bits(b as u32))),
        ("setp.neu.f32 %p0, %f1, %f2;", |a, b, _| u64::from(f32::from_bits(a as u32) != f32::from_bits(b as u32))),
        ("setp.geu.f64 %p0, %g1, %g2;", |a, b, _| {
            let (a, b) = (f64::from_bits(a), f64::from_bits(b));
            u64::from(a >= b || a.is_nan() || b.is_nan())
        }),
        ("setp.nan.f32 %p0, %f1, %f1;", |a, _, _| u64::from(f32::from_bits(a as u32).is_nan())),
        ("setp.eq.s32 %p1, %r1, %r3;\nsetp.lt.and.u32 %p0|%p2, %r1, %r2, !%p1;", |a, b, c| {
            u64::from((a as u32) < b as u32 && a as u32 != c as u32)
        }),
        ("setp.lt.u32 %p2|%p0, %r1, %r2;", |a, b, _| u64::from(a as u32 >= b as u32)),
        ("setp.lt.u32 %p1, %r1, %r2;\nnot.pred %p0, %p1;", |a, b, _| u64::from(a as u32 >= b as u32)),
    ];
    for (body, expected) in cases {
        compare(body, PREDICATE, expected);
    }
}
