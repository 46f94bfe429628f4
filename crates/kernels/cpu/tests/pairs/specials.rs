//! Infinite operands, NaN, zeros and subnormal ones: which results are infinite, NaN or finite.

use cpu::gemm::{Orientation, PackingBuffers, Write};
use cpu::instruction_set::InstructionSet;

use crate::pairs::case::{Case, Random};
use crate::pairs::oracle::Exact;

/// Rows, columns and steps of K.
const SIZES: (usize, usize, usize) = (5, 18, 33);

const INFINITY: f32 = f32::INFINITY;

/// 2^-127
const SUBNORMAL: f32 = f32::from_bits(0x0040_0000);

/// 2^128 - 2^119: bf16 rounds it to infinity.
const LARGE: f32 = f32::from_bits(0x7f7f_8000);

/// Pairs that meet in a step; numbers whose second and third terms are zero, of their sign and of the other.
const MEETINGS: [(f32, f32); 19] = [
    (INFINITY, 1.0),
    (INFINITY, -2.5),
    (f32::NEG_INFINITY, 1.003_906_3),
    (INFINITY, 1.003_921_5),
    (INFINITY, -0.996_078_5),
    (INFINITY, f32::MIN_POSITIVE),
    (INFINITY, f32::MAX),
    (INFINITY, LARGE),
    (INFINITY, 0.0),
    (INFINITY, SUBNORMAL),
    (INFINITY, INFINITY),
    (INFINITY, f32::NEG_INFINITY),
    (f32::NEG_INFINITY, f32::NEG_INFINITY),
    (f32::NAN, 1.0),
    (f32::NAN, 0.0),
    (f32::NAN, INFINITY),
    (f32::MAX, 1.0),
    (LARGE, -1.0),
    (f32::MAX, 0.0),
];

/// The kind of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Finite,
    Positive,
    Negative,
    NotANumber,
}

impl Kind {
    /// Of a result of single precision, also where it was computed in double precision.
    fn of(value: f64) -> Kind {
        match value as f32 {
            value if value.is_nan() => Kind::NotANumber,
            INFINITY => Kind::Positive,
            f32::NEG_INFINITY => Kind::Negative,
            _ => Kind::Finite,
        }
    }
}

/// A product whose other operands are around 1, or zero where that is asked for.
fn case(meeting: (f32, f32), step: usize, others: Others, random: &mut Random) -> Case<f32> {
    let (m, n, k) = SIZES;
    let mut near_one = |_| (random.next() as f64 / f64::from(1u32 << 30) - 1.0) as f32;
    let a: Vec<f32> = (0..m * k).map(&mut near_one).collect();
    let b: Vec<f32> = (0..n * k).map(&mut near_one).collect();
    let [mut a, mut b] = match others {
        Others::NearOne => [a, b],
        Others::Zero => [vec![0.0; m * k], vec![0.0; n * k]],
    };
    (a[2 * k + step], b[7 * k + step]) = meeting;
    Case { orientation: Orientation::Nt, m, n, k, gap: 0, a, b, c: vec![0.0; m * n], bias: None, write: Write::Assign }
}

#[derive(Clone, Copy, Debug)]
enum Others {
    NearOne,
    Zero,
}

/// The same product with zeros in place of subnormal operands.
fn flushed(case: &Case<f32>) -> Case<f32> {
    let flush =
        |numbers: &[f32]| numbers.iter().map(|number| if number.is_subnormal() { 0.0 } else { *number }).collect();
    let (a, b, c) = (flush(&case.a), flush(&case.b), case.c.clone());
    let Case { orientation, m, n, k, gap, write, .. } = *case;
    Case { orientation, m, n, k, gap, a, b, c, bias: None, write }
}

/// Holds results to kinds, and finite ones to a bound.
fn assert_results(name: &str, c: &[f32], exact_of: &Case<f32>, bound: impl Fn(&Exact) -> f64) {
    for (place, value) in c.iter().enumerate() {
        let exact = exact_of.exact(place / exact_of.n, place % exact_of.n);
        let (actual, expected) = (Kind::of(f64::from(*value)), Kind::of(exact.value));
        assert_eq!(actual, expected, "{name}: {value:e} at {place}");
        if expected == Kind::Finite {
            let error = (f64::from(*value) - exact.value).abs();
            assert!(error <= bound(&exact), "{name}: {value:e} at {place} is off by {error:e}");
        }
    }
}

/// In terms as in chained products, but for subnormal operands, which count as zeros.
#[test]
fn infinities_stay_infinite_and_nan_stays_nan() {
    let (random, packing) = (&mut Random(41), &mut PackingBuffers::new());
    let swapped = MEETINGS.map(|(a, b)| (b, a));
    for meeting in MEETINGS.into_iter().chain(swapped) {
        for (step, others) in [(0, Others::NearOne), (31, Others::NearOne), (32, Others::NearOne), (9, Others::Zero)] {
            let case = case(meeting, step, others, random);
            for set in InstructionSet::available() {
                let name = format!("{set:?}, {meeting:?} in step {step}, others {others:?}");
                let (in_terms, chained) = (case.run_in_terms(set, packing), case.run_chained(set, packing));
                assert_results(&format!("in terms, {name}"), &in_terms, &flushed(&case), |e| case.bound_in_terms(e));
                assert_results(&format!("chained, {name}"), &chained, &case, |e| case.bound_chained(e));
            }
        }
    }
}

/// The two infinities in one sum.
#[test]
fn infinities_of_both_signs_are_nan() {
    let (random, packing) = (&mut Random(42), &mut PackingBuffers::new());
    for (one, other) in [(0, 1), (3, 32), (31, 2)] {
        let mut case = case((INFINITY, 1.5), one, Others::NearOne, random);
        let k = case.k;
        (case.a[2 * k + other], case.b[7 * k + other]) = (INFINITY, -0.3);
        for set in InstructionSet::available() {
            let place = 2 * case.n + 7;
            for (name, c) in
                [("in terms", case.run_in_terms(set, packing)), ("chained", case.run_chained(set, packing))]
            {
                assert!(c[place].is_nan(), "{name}, {set:?}: {:e}", c[place]);
            }
        }
    }
}

/// A term may overflow with the other sign than the number, so that the sum is NaN; it is never finite.
#[test]
fn what_overflows_is_not_finite() {
    let (random, packing) = (&mut Random(43), &mut PackingBuffers::new());
    let tie = 2.0f32.powi(100) * (1.0 + 2.0f32.powi(-8));
    for meeting in [(f32::MAX, -2.0), (LARGE, f32::MAX), (tie, tie), (-tie, tie)] {
        for step in [0, 31, 32] {
            let case = case(meeting, step, Others::NearOne, random);
            let place = 2 * case.n + 7;
            for set in InstructionSet::available() {
                let (in_terms, chained) = (case.run_in_terms(set, packing), case.run_chained(set, packing));
                assert!(!in_terms[place].is_finite(), "in terms, {set:?}, {meeting:?}: {:e}", in_terms[place]);
                assert!(chained[place].is_infinite(), "chained, {set:?}, {meeting:?}: {:e}", chained[place]);
            }
        }
    }
}
