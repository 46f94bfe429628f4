//! Conversions between types, of every narrow number and of what is between them.

use cpu::copy::Copy;
use cpu::instruction_set::InstructionSet;
use cpu::lanes::{Stored, run};
use cpu::view::{MatMut, MatRef};
use device::{Bf16, F16};

/// As bits; NaNs of any payload are one.
fn bits(value: f32) -> u32 {
    if value.is_nan() { 0x7fc0_0000 } else { value.to_bits() }
}

/// `from` as the conversion of one number and as the kernels of every instruction set say.
fn assert_same_on_all_sets<F: Stored, T: Stored>(from: &[F]) {
    for set in InstructionSet::available() {
        let mut to = vec![T::zeroed(); from.len()];
        let (from_view, to_view) = (MatRef::dense(from, 1, from.len()), MatMut::dense(&mut to, 1, from.len()));
        run(set, Copy { from: from_view, to: to_view });
        for (from, to) in from.iter().zip(&to) {
            let expected = T::narrow(from.widen()).widen();
            assert_eq!(bits(to.widen()), bits(expected), "{from:?} on {set:?}: {to:?}, not {expected}");
        }
    }
}

#[test]
fn every_narrow_number_is_widened_on_every_set() {
    let all = || 0..=u16::MAX;
    assert_same_on_all_sets::<F16, f32>(&all().map(F16).collect::<Vec<_>>());
    assert_same_on_all_sets::<Bf16, f32>(&all().map(Bf16).collect::<Vec<_>>());
    assert_same_on_all_sets::<Bf16, F16>(&all().map(Bf16).collect::<Vec<_>>());
}

/// Every narrow number, the middle between it and the next, and the singles on both sides of each.
#[test]
fn what_lies_between_narrow_numbers_is_rounded_alike_on_every_set() {
    fn around<E: Stored>(of: impl Fn(u16) -> E) -> Vec<f32> {
        let middle = |bits: u16| of(bits).widen() / 2.0 + of(bits.wrapping_add(1)).widen() / 2.0;
        let marks = (0..=u16::MAX).flat_map(|bits| [of(bits).widen(), middle(bits)]);
        marks.flat_map(|mark| [mark.next_down(), mark, mark.next_up()]).collect()
    }
    assert_same_on_all_sets::<f32, F16>(&around(F16));
    assert_same_on_all_sets::<f32, Bf16>(&around(Bf16));
    let specials = [f32::NAN, -f32::NAN, f32::INFINITY, f32::MAX, f32::MIN_POSITIVE, 1e-45, -0.0, 65520.0, 65519.0];
    assert_same_on_all_sets::<f32, F16>(&specials);
    assert_same_on_all_sets::<f32, Bf16>(&specials);
}
