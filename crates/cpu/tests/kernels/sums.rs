use cpu::column_sum::ColumnSum;
use cpu::fixed_point::to_f64;
use cpu::instruction_set::InstructionSet;
use cpu::lanes::run;
use cpu::loss_sum::loss_sum;
use cpu::squared_sum::SquaredSum;
use cpu::view::MatRef;
use device::{COUNT_WORD, IGNORED_LABEL, NOT_FINITE_WORD, SUM_WORDS};

use crate::support::*;

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

fn squares(x: &[f32], first_element: usize) -> [i64; SUM_WORDS] {
    let on = |set| {
        let mut sums = [0; SUM_WORDS];
        run(set, SquaredSum { x, first_element, loss_scale: 1.0, sums: &mut sums });
        sums
    };
    let expected = on(InstructionSet::Scalar);
    for set in InstructionSet::available() {
        assert_eq!(on(set), expected, "{set:?}");
    }
    expected
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
