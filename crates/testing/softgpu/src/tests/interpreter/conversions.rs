//! Conversions against Rust's `as`, and against neighbours where Rust has none.

use crate::tests::interpreter::machine::{DOUBLE, HALF, SINGLE, WIDE, WORD, compare};
use crate::tests::interpreter::numbers::{halves_of, to_half};

fn single(value: f32) -> u64 {
    if value.is_nan() { 0x7fff_ffff } else { u64::from(value.to_bits()) }
}

fn float(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

#[test]
fn whole_numbers_of_other_widths() {
    compare("cvt.s64.s32 %d0, %r1;", WIDE, |a, _, _| i64::from(a as i32) as u64);
    compare("cvt.u64.u16 %d0, %h1;", WIDE, |a, _, _| a & 0xffff);
    compare("cvt.s32.s8 %r0, %r1;", WORD, |a, _, _| u64::from(i32::from(a as i8) as u32));
    compare("cvt.sat.u8.s32 %r0, %r1;", WORD, |a, _, _| (a as i32).clamp(0, 255) as u64);
    compare("cvt.sat.s16.s64 %r0, %d1;", WORD, |a, _, _| u64::from((a as i64).clamp(-32768, 32767) as i32 as u32));
}

#[test]
fn whole_numbers_to_floating_point_and_back() {
    compare("cvt.rn.f32.s32 %f0, %r1;", SINGLE, |a, _, _| single(a as i32 as f32));
    compare("cvt.rn.f32.u64 %f0, %d1;", SINGLE, |a, _, _| single(a as f32));
    compare("cvt.rn.f64.s64 %g0, %d1;", DOUBLE, |a, _, _| (a as i64 as f64).to_bits());
    compare("cvt.rz.f32.u32 %f0, %r1;", SINGLE, |a, _, _| {
        let near = a as u32 as f32;
        single(if f64::from(near) > f64::from(a as u32) { near.next_down() } else { near })
    });
    compare("cvt.rzi.s32.f32 %r0, %f1;", WORD, |a, _, _| u64::from(float(a) as i32 as u32));
    compare("cvt.rzi.u32.f32 %r0, %f1;", WORD, |a, _, _| u64::from(float(a) as u32));
    compare("cvt.rni.s32.f32 %r0, %f1;", WORD, |a, _, _| u64::from(float(a).round_ties_even() as i32 as u32));
    compare("cvt.rmi.s32.f32 %r0, %f1;", WORD, |a, _, _| u64::from(float(a).floor() as i32 as u32));
    compare("cvt.rzi.s64.f64 %d0, %g1;", WIDE, |a, _, _| {
        // A NaN of double precision becomes the least number.
        let value = f64::from_bits(a);
        if value.is_nan() { 1 << 63 } else { value as i64 as u64 }
    });
}

#[test]
fn floating_point_to_whole_numbers_of_the_same_format() {
    compare("cvt.rni.f32.f32 %f0, %f1;", SINGLE, |a, _, _| single(float(a).round_ties_even()));
    compare("cvt.rmi.f32.f32 %f0, %f1;", SINGLE, |a, _, _| single(float(a).floor()));
    compare("cvt.rpi.f32.f32 %f0, %f1;", SINGLE, |a, _, _| single(float(a).ceil()));
    compare("cvt.rzi.f64.f64 %g0, %g1;", DOUBLE, |a, _, _| {
        let value = f64::from_bits(a).trunc();
        if value.is_nan() { 0xfff8_0000_0000_0000 } else { value.to_bits() }
    });
}

#[test]
fn floating_point_of_other_formats() {
    compare("cvt.rn.f32.f64 %f0, %g1;", SINGLE, |a, _, _| single(f64::from_bits(a) as f32));
    compare("cvt.f64.f32 %g0, %f1;", DOUBLE, |a, _, _| {
        let value = f64::from(float(a));
        if value.is_nan() { 0xfff8_0000_0000_0000 } else { value.to_bits() }
    });
    compare("cvt.f32.f16 %f0, %h1;", SINGLE, |a, _, _| single(halves_of(a as u16) as f32));
    compare("cvt.f32.bf16 %f0, %h1;", SINGLE, |a, _, _| single(f32::from_bits((a as u32) << 16)));
    compare("cvt.rn.f16.f32 %h0, %f1;", HALF, |a, _, _| to_half(f64::from(float(a))));
    compare("cvt.rn.bf16.f32 %h0, %f1;", HALF, |a, _, _| brain(a as u32));
    compare("cvt.rn.bf16x2.f32 %r0, %f1, %f2;", WORD, |a, b, _| brain(a as u32) << 16 | brain(b as u32));
    compare("cvt.rn.relu.bf16.f32 %h0, %f1;", HALF, |a, _, _| {
        if float(a).is_sign_negative() && !float(a).is_nan() { 0 } else { brain(a as u32) }
    });
    compare(
        "cvt.rz.bf16.f32 %h0, %f1;",
        HALF,
        |a, _, _| {
            if float(a).is_nan() { 0x7fff } else { (a as u32 >> 16).into() }
        },
    );
    compare("cvt.sat.f32.f32 %f0, %f1;", SINGLE, |a, _, _| {
        let value = float(a);
        single(if value > 0.0 { value.min(1.0) } else { 0.0 })
    });
}

/// The nearest brain float, even among two: the two candidates are the cut-off number and the next one.
fn brain(bits: u32) -> u64 {
    let value = f32::from_bits(bits);
    if value.is_nan() {
        return 0x7fff;
    }
    let kept = bits >> 16;
    let rest = bits & 0xffff;
    let is_up = rest > 0x8000 || rest == 0x8000 && kept & 1 == 1;
    u64::from(kept + u32::from(is_up))
}
