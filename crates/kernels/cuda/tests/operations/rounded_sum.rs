use device::{Dtype, Op, Rounding, SUM_WORDS, Write};

use crate::operations::bench::{Bench, assert_same};
use crate::operations::case::{Case, Values};

pub fn additions(bench: &Bench) {
    let roundings = [
        Rounding { unit: 2f32.powi(-30), limit: 2f32.powi(20) },
        Rounding { unit: 1.0, limit: 8.0 },
        Rounding { unit: 2f32.powi(-40), limit: 2f32.powi(22) },
    ];
    for (index, len) in [0, 1, 255, 256, 257, 2000].into_iter().enumerate() {
        for (values, rounding) in [Values::Plain, Values::Wild].into_iter().flat_map(|v| roundings.map(|r| (v, r))) {
            for write in [Write::Assign, Write::Accumulate] {
                let mut case = Case::new(index as u64);
                let x = case.vector(len, values);
                let into = case.place(1, len, 0, Dtype::I64);
                let refusals = case.place(1, SUM_WORDS, 0, Dtype::I64);
                bench.compare(&case, &Op::AddRounded { x, rounding, into, write, refusals });
            }
        }
    }
}

#[needs::cuda]
#[test]
fn rounded_sums_and_their_refusals_have_the_bits_of_the_cpu() {
    assert_same(&["rounded_sum"], additions);
}

/// A number at the limit is refused.
pub fn limits(bench: &Bench) {
    let mut case = Case::new(0);
    let x = case.vector(4, Values::Plain);
    for (col, value) in [8.0f32, -8.0, 8f32.next_down(), (-8f32).next_up()].into_iter().enumerate() {
        case.put(x, 0, col, &value.to_le_bytes());
    }
    let [into, refusals] = [4, SUM_WORDS].map(|len| case.place(1, len, 0, Dtype::I64));
    let rounding = Rounding { unit: 0.5, limit: 8.0 };
    bench.compare(&case, &Op::AddRounded { x, rounding, into, write: Write::Assign, refusals });
}

#[needs::cuda]
#[test]
fn numbers_at_the_limit_are_refused_as_on_the_cpu() {
    assert_same(&["rounded_sum"], limits);
}

/// Halves, and numbers next to them.
pub fn ties(bench: &Bench) {
    let mut case = Case::new(0);
    let x = case.vector(120, Values::Plain);
    for col in 0..x.cols {
        let tie = (col as f32 / 3.0).floor() - 20.5;
        let value = [tie.next_down(), tie, tie.next_up()][col % 3] * 0.25;
        case.put(x, 0, col, &value.to_le_bytes());
    }
    let into = case.place(1, x.cols, 0, Dtype::I64);
    let refusals = case.place(1, SUM_WORDS, 0, Dtype::I64);
    let rounding = Rounding { unit: 0.25, limit: 1e6 };
    bench.compare(&case, &Op::AddRounded { x, rounding, into, write: Write::Assign, refusals });
}

#[needs::cuda]
#[test]
fn ties_go_to_the_even_number() {
    assert_same(&["rounded_sum"], ties);
}

pub fn singles(bench: &Bench) {
    for (index, len) in [0, 1, 2, 3, 255, 256, 257, 4095, 4096, 4097, 8193, 8200, 20_001].into_iter().enumerate() {
        let mut case = Case::new(index as u64);
        let sums = case.place(1, len, 0, Dtype::I64);
        for col in 0..len {
            let value = case.words.next() as i64 >> case.words.below(64);
            case.put(sums, 0, col, &value.to_le_bytes());
        }
        bench.compare(&case, &Op::RoundedToSingle { sums, unit: [1.0, 2f32.powi(-30)][index % 2] });
    }
}

#[needs::cuda]
#[test]
fn whole_numbers_become_single_in_their_place_as_on_the_cpu() {
    assert_same(&["rounded_sum"], singles);
}

#[needs::cuda]
#[test]
fn sums_that_do_not_fit_are_refused() {
    let bench = Bench::of(&["rounded_sum"]);
    let mut case = Case::new(0);
    let x = case.vector(3, Values::Plain);
    let [into, refusals] = [2, SUM_WORDS].map(|len| case.place(1, len, 0, Dtype::I64));
    let rounding = Rounding { unit: 1.0, limit: 1.0 };
    let op = Op::AddRounded { x, rounding, into, write: Write::Assign, refusals };
    assert_eq!(bench.failure(&case, &op), "add_rounded: F32[1, 3] @0 and I64[1, 2] @128 are not of one length");
    let op = Op::AddRounded { x, rounding, into: refusals.elements(0..3), write: Write::Assign, refusals: into };
    assert_eq!(bench.failure(&case, &op), "sum: I64[1, 2] @128 is not the 10 words of a sum");
}
