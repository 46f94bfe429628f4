use std::fmt::Debug;

use config::IGNORED_LABEL;
use cpu::column_sum::ColumnSum;
use cpu::fixed_point::to_f64;
use cpu::instruction_set::InstructionSet;
use cpu::lanes::run;
use cpu::loss_sum::loss_sum;
use cpu::rounded_sum::{AddRounded, RoundedToSingle};
use cpu::squared_sum::SquaredSum;
use cpu::view::MatRef;
use device::{COUNT_WORD, NOT_FINITE_WORD, Rounding, SUM_WORDS, Write};

use crate::kernels::support::*;

#[test]
fn columns_are_summed_in_groups_of_rows() {
    for (rows, cols, gap) in [(1, 1, 0), (31, 16, 0), (32, 100, 3), (33, 64, 0), (200, 7, 1)] {
        let x = random("x", rows * (cols + gap), 1.0);
        let before = random("before", cols, 1.0);
        let out = same_on_all_sets(|set| {
            let mut out = before.clone();
            run(set, ColumnSum { x: MatRef::new(&x, rows, cols, cols + gap), out: &mut out });
            out
        });
        let mut expected = before;
        for group in x.chunks(32 * (cols + gap)) {
            for (col, expected) in expected.iter_mut().enumerate() {
                *expected += group.chunks(cols + gap).fold(0.0, |sum, row| sum + row[col]);
            }
        }
        assert_eq!(out, expected);
    }
}

/// The result of `kernel`, which is the same on every instruction set.
fn equal_on_all_sets<T: PartialEq + Debug>(kernel: impl Fn(InstructionSet) -> T) -> T {
    let expected = kernel(InstructionSet::Scalar);
    for set in InstructionSet::available() {
        assert_eq!(kernel(set), expected, "{set:?}");
    }
    expected
}

fn squares(x: &[f32], first_element: usize) -> [i64; SUM_WORDS] {
    equal_on_all_sets(|set| {
        let mut sums = [0; SUM_WORDS];
        run(set, SquaredSum { x, first_element, loss_scale: 1.0, sums: &mut sums });
        sums
    })
}

#[test]
fn squares_are_summed_exactly_enough() {
    for (len, first) in [(0, 0), (1, 0), (5, 4095), (4096, 0), (10_001, 123), (10_001, 4000)] {
        let x = random("x", len, 1e-2);
        let plain: f64 = double(&x).iter().map(|x| x * x).sum();
        let sum = to_f64(&squares(&x, first));
        assert!((sum - plain).abs() <= 1e-13 * plain, "{len} elements from {first}: {sum:e}, plainly {plain:e}");
    }
}

#[test]
fn slices_that_end_on_blocks_add_up_to_the_whole() {
    let x = random("x", 5 * 4096 + 77, 3.0);
    let whole = squares(&x, 0);
    for cut in [4096, 3 * 4096] {
        let (left, right) = x.split_at(cut);
        let (left, right) = (squares(left, 0), squares(right, cut));
        assert_eq!(std::array::from_fn(|word| left[word] + right[word]), whole);
    }
}

#[test]
fn a_gradient_that_is_no_number_is_counted() {
    let mut x = random("x", 3 * 4096, 1.0);
    x[5000] = f32::NAN;
    x[9000] = f32::INFINITY;
    assert_eq!(squares(&x, 0)[NOT_FINITE_WORD], 2);
}

#[test]
fn losses_are_summed_per_sequence() {
    let loss = random("loss", 60, 4.0);
    let mut labels = vec![1; 60];
    for ignored in [0, 7, 20, 59] {
        labels[ignored] = IGNORED_LABEL;
    }
    let mut whole = [0; SUM_WORDS];
    loss_sum(&loss, &labels, 6, &mut whole);
    assert_eq!(whole[COUNT_WORD], 56);
    let plain: f64 = (0..60).filter(|&i| labels[i] != IGNORED_LABEL).map(|i| f64::from(loss[i])).sum();
    assert!((to_f64(&whole) - plain).abs() < 1e-12);
    // Any grouping of whole sequences gives the same words.
    let mut parts = [0; SUM_WORDS];
    loss_sum(&loss[40..], &labels[40..], 2, &mut parts);
    loss_sum(&loss[..10], &labels[..10], 1, &mut parts);
    loss_sum(&loss[10..40], &labels[10..40], 3, &mut parts);
    assert_eq!(parts, whole);
}

const UNIT: f32 = 1.0 / (1u64 << 50) as f32;

/// `into` after `x` is added to it or assigned, and how many elements were refused.
fn added(x: &[f32], limit: f32, write: Write, into: &[i64]) -> (Vec<i64>, i64) {
    let rounding = Rounding { unit: UNIT, limit };
    equal_on_all_sets(|set| {
        let mut into = into.to_vec();
        let refused = run(set, AddRounded { x, rounding, into: &mut into, write });
        (into, refused)
    })
}

fn single(sums: &[i64]) -> Vec<f32> {
    let numbers = equal_on_all_sets(|set| {
        let mut sums = sums.to_vec();
        run(set, RoundedToSingle { sums: &mut sums, unit: UNIT });
        sums
    });
    bytemuck::cast_slice(&numbers)[..sums.len()].to_vec()
}

#[test]
fn terms_are_rounded_once_to_the_nearest_even_unit() {
    let halves = [0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49, -0.51, 0.0, -0.0].map(|units| units * UNIT);
    assert_eq!(added(&halves, 1.0, Write::Assign, &[77; 10]), (vec![0, 2, 2, 0, -2, -2, 0, -1, 0, 0], 0));
    for len in [0, 1, 7, 16, 1000] {
        let (x, before) = (random("x", len, 3.0), (0..len as i64).map(|sum| sum << 40).collect::<Vec<_>>());
        let expected = |start: &dyn Fn(usize) -> i64| {
            let whole = |x: f32| (f64::from(x) * 2f64.powi(50)).round_ties_even() as i64;
            (x.iter().enumerate().map(|(index, x)| start(index) + whole(*x)).collect(), 0)
        };
        assert_eq!(added(&x, 2048.0, Write::Assign, &before), expected(&|_| 0));
        assert_eq!(added(&x, 2048.0, Write::Accumulate, &before), expected(&|index| before[index]));
    }
}

#[test]
fn terms_beyond_the_limit_are_counted_and_left_out() {
    let x = [1.0, f32::NAN, f32::INFINITY, -f32::INFINITY, 2.0, -2.0, f32::MAX, -1.999, 2048.0, f32::MIN_POSITIVE];
    let one = 1i64 << 50;
    let kept = (f64::from(-1.999f32) * 2f64.powi(50)) as i64;
    let (sums, refused) = added(&x, 2.0, Write::Accumulate, &[1; 10]);
    assert_eq!(sums, [one + 1, 1, 1, 1, 1, 1, 1, kept + 1, 1, 1]);
    assert_eq!(refused, 7);
}

#[test]
fn sums_become_the_nearest_single_numbers_in_their_own_place() {
    for len in [0, 1, 2, 7, 1000] {
        let x = random("x", len, 3.0);
        let (sums, _) = added(&x, 2048.0, Write::Assign, &vec![0; len]);
        // A single number of more than 2^-26 is a whole number of units.
        let expected: Vec<f32> = x.iter().map(|x| if x.abs() > 2f32.powi(-26) { *x } else { 0.0 }).collect();
        let found: Vec<f32> = single(&sums).iter().map(|x| if x.abs() > 2f32.powi(-26) { *x } else { 0.0 }).collect();
        assert_eq!(found, expected);
    }
    let large = (1i64 << 62) + (1 << 38);
    assert_eq!(single(&[large, large + 1, -large]), [4096.0, 4096.0005, -4096.0]);
    assert_eq!(single(&[i64::MAX, 1, 0]), [8192.0, UNIT, 0.0]);
}
