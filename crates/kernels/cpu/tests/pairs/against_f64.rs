//! Products of bf16x3, of bf16 in AMX's order and chained products, compared with exact ones on sums that are hard to
//! compute.
//!
//! The exact sums are computed in double precision, whose own error is at most K 2^-53 of the sum of sizes: 2^-41 for
//! the longest K, where the smallest bound is 2^-23.

use cpu::gemm::{Orientation, PackingBuffers, Write};
use cpu::instruction_set::InstructionSet;
use device::Bf16;

use crate::pairs::case::{Case, Drawn, Random};
use crate::pairs::oracle::Exact;

/// Rows and columns.
const SIDES: (usize, usize) = (13, 18);

/// One step, the edges of a block of 32 and of a run of 512, and many.
const STEPS: [usize; 5] = [1, 2, 33, 512, 4096];

/// The terms of a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sums {
    /// Of one sign, as are the terms of each number: whatever is left out or rounded adds up.
    OneSign,
    /// Each step of the second half takes away what one of the first half adds, but for a last place.
    Cancelling,
    /// Products from 2^-60 to 2^60, of either sign.
    WideExponents,
    /// Operands around 2^-126 times operands around 1.
    TinyOperands,
    /// Operands around 2^-63: products around 2^-126.
    TinyProducts,
    /// Operands from 2^127 on, half of which bf16 rounds to infinity, of one sign. The sum of sizes is 0.97 x 2^128
    /// at most.
    NearOverflow,
}

impl Sums {
    const ALL: [Sums; 6] = [
        Sums::OneSign,
        Sums::Cancelling,
        Sums::WideExponents,
        Sums::TinyOperands,
        Sums::TinyProducts,
        Sums::NearOverflow,
    ];

    /// The operands of a step: for a row of A and for a column of B.
    fn draw(self, k: usize, random: &mut Random) -> [f32; 2] {
        match self {
            // Low halves whose second and third term are positive and as large as they can be.
            Sums::OneSign => [0, 0].map(|_| f32::from_bits(0x3f80_0000 | (random.below(8) as u32) << 16 | 0x7f3f)),
            Sums::Cancelling => [0, 0].map(|_| random.single(-3..4)),
            Sums::WideExponents => [0, 0].map(|_| random.single(-30..30)),
            Sums::TinyOperands => [random.single(-130..-120), random.single(-3..4)],
            Sums::TinyProducts => [0, 0].map(|_| random.single(-66..-60)),
            Sums::NearOverflow => {
                let least = [0x7f00_0000, 0x7f7f_8000][random.below(2)];
                let size = least + random.below((0x7f80_0000 - least) as usize) as u32;
                let unit = (random.below(1 << 23) as f64 + 1.0) / f64::from(1 << 23);
                [f32::from_bits(size), (0.97 * (0.5 + 0.5 * unit) / k as f64) as f32]
            }
        }
    }
}

impl Random {
    /// Any 24 bits with an exponent in a range, of either sign; subnormal below 2^-126.
    fn single(&mut self, exponents: std::ops::Range<i32>) -> f32 {
        let fraction = 1.0 + self.below(1 << 23) as f64 / f64::from(1 << 23);
        let exponent = exponents.start + self.below((exponents.end - exponents.start) as usize) as i32;
        let sign = if self.below(2) == 0 { 1.0 } else { -1.0 };
        (sign * fraction * 2.0f64.powi(exponent)) as f32
    }
}

/// A and B with adjacent steps.
fn operands(sums: Sums, k: usize, random: &mut Random) -> [Vec<f32>; 2] {
    let (rows, columns) = SIDES;
    let mut lanes = [rows, columns].into_iter().enumerate().map(|(side, lanes)| -> Vec<f32> {
        let mut operand: Vec<f32> = (0..lanes * k).map(|_| sums.draw(k, random)[side]).collect();
        if sums == Sums::Cancelling {
            for lane in operand.chunks_mut(k) {
                let (front, back) = lane.split_at_mut(k.div_ceil(2));
                for (back, front) in back.iter_mut().zip(front) {
                    *back = if side == 0 { *front } else { -f32::from_bits(front.to_bits() ^ 1) };
                }
            }
        }
        operand
    });
    [0, 1].map(|_| lanes.next().unwrap_or_default())
}

/// The product alone.
fn case<T: Drawn>([a, b]: [Vec<T>; 2], k: usize) -> Case<T> {
    let (m, n) = SIDES;
    Case { orientation: Orientation::Nt, m, n, k, gap: 0, a, b, c: vec![0.0; m * n], bias: None, write: Write::Assign }
}

/// The largest error of an element, in units of u times the sum of the sizes of its products, and as a share of its
/// bound.
#[derive(Clone, Copy, Debug, Default)]
struct Errors {
    in_units: f64,
    of_bound: f64,
}

fn errors<T: Drawn>(case: &Case<T>, c: &[f32], bound: impl Fn(&Exact) -> f64) -> Errors {
    let mut largest = Errors::default();
    for (place, actual) in c.iter().enumerate() {
        let exact = case.exact(place / case.n, place % case.n);
        let error = (f64::from(*actual) - exact.value).abs();
        assert!(error.is_finite(), "{actual} at {place}, where {:e} is exact", exact.value);
        largest.in_units = largest.in_units.max(error / (exact.products * f64::from(f32::EPSILON) / 2.0));
        largest.of_bound = largest.of_bound.max(error / bound(&exact));
    }
    largest
}

/// bf16x3 and chained products of the same operands, and bf16 products in AMX's order of those operands cut off to
/// bf16.
#[test]
fn hard_sums_stay_within_their_bounds() {
    let (random, packing) = (&mut Random(31), &mut PackingBuffers::new());
    let mut beyond = Vec::new();
    println!("largest error in u sum |a b| (share of its bound)");
    for sums in Sums::ALL {
        for k in STEPS {
            let singles = operands(sums, k, random);
            let narrow =
                singles.clone().map(|of| of.iter().map(|number| Bf16((number.to_bits() >> 16) as u16)).collect());
            let (single, narrow) = (case(singles, k), case::<Bf16>(narrow, k));
            for set in InstructionSet::available() {
                let in_terms =
                    errors(&single, &single.run_in_terms(set, packing), |exact| single.bound_in_terms(exact));
                let chained = errors(&single, &single.run_chained(set, packing), |exact| single.bound_chained(exact));
                let of_bf16 = errors(&narrow, &narrow.run::<f32>(set, packing), |exact| narrow.bound(exact));
                let row: Vec<String> = [("in terms", in_terms), ("chained", chained), ("bf16", of_bf16)]
                    .into_iter()
                    .map(|(name, Errors { in_units, of_bound })| format!("{name} {in_units:.2} ({of_bound:.2})"))
                    .collect();
                let row = format!("{sums:?}, K = {k}, {set:?}: {}", row.join(", "));
                println!("{row}");
                if [in_terms, chained, of_bf16].iter().any(|errors| errors.of_bound > 1.0) {
                    beyond.push(row);
                }
            }
        }
    }
    assert!(beyond.is_empty(), "beyond the bound:\n{}", beyond.join("\n"));
}

/// From 2^-103 to the largest number, a number times 1 is that number.
#[test]
fn numbers_enter_whole_from_2_to_the_minus_103_on() {
    let (random, packing) = (&mut Random(32), &mut PackingBuffers::new());
    let (m, n) = SIDES;
    for set in InstructionSet::available() {
        for _ in 0..200 {
            let mut a: Vec<f32> = (0..m).map(|_| random.single(-103..128)).collect();
            (a[0], a[1], a[2]) = (f32::MAX, f32::from_bits(0x7f7f_8000), 2.0f32.powi(-103));
            let product = case([a.clone(), vec![1.0; n]], 1).run_in_terms(set, packing);
            for (place, value) in product.iter().enumerate() {
                assert_eq!(value.to_bits(), a[place / n].to_bits(), "{set:?}: {:e}", a[place / n]);
            }
        }
        // One binade below, the third term is too small.
        let below = 2.0f32.powi(-104) * (1.0 + f32::EPSILON);
        let product = case([vec![below; m], vec![1.0; n]], 1).run_in_terms(set, packing);
        assert!(product.iter().all(|value| *value == 2.0f32.powi(-104)), "{set:?}: {:e}", product[0]);
    }
}
