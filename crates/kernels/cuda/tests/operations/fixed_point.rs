use device::{Dtype, Op, SUM_WORDS, Tensor};

use crate::operations::bench::{Bench, assert_same};
use crate::operations::case::{Case, Values};

/// The words of a sum that other blocks and ranks have added to.
fn sum(case: &mut Case) -> Tensor {
    let sum = case.place(1, SUM_WORDS, 0, Dtype::I64);
    for word in 0..SUM_WORDS {
        let value = case.words.next() as i64 >> 20;
        case.put(sum, 0, word, &value.to_le_bytes());
    }
    sum
}

/// Of all magnitudes whose squares have limbs, of both signs, zeros too.
fn put_magnitudes(case: &mut Case, tensor: Tensor) {
    for col in 0..tensor.cols {
        let exponent = case.words.below(120) as i32 - 80;
        let value = (case.words.real(Values::Plain) * 2f32.powi(exponent)) * f32::from(case.words.below(20) != 0);
        case.put(tensor, 0, col, &value.to_le_bytes());
    }
}

pub fn squares(bench: &Bench) {
    let cases =
        [(0, 0), (1, 0), (15, 4095), (17, 4090), (4096, 0), (4097, 1), (9000, 123), (70_000, 4095), (70_000, 0)];
    for (index, (len, offset)) in cases.into_iter().enumerate() {
        let mut case = Case::new(index as u64);
        let x = case.vector(len, Values::Plain);
        put_magnitudes(&mut case, x);
        let sums = sum(&mut case);
        let loss_scale = [1.0, 1024.0, 0.125][index % 3];
        bench.compare(&case, &Op::SquaredSum { x, first_element: 5 * 4096 + offset, loss_scale, sums });
    }
}

#[needs::cuda]
#[test]
fn sums_of_squares_have_the_words_of_the_cpu() {
    assert_same(&["fixed_point"], squares);
}

/// From 2^160 on a sum is too large.
pub fn limits(bench: &Bench) {
    for value in [2f32.powi(80), 2f32.powi(80).next_down(), 2f32.powi(-40), 2f32.powi(-41)] {
        let mut case = Case::new(0);
        let x = case.vector(1, Values::Plain);
        case.put(x, 0, 0, &value.to_le_bytes());
        let sums = sum(&mut case);
        bench.compare(&case, &Op::SquaredSum { x, first_element: 0, loss_scale: 1.0, sums });
    }
}

pub fn any_squares(bench: &Bench) {
    for len in [1, 100, 50_000] {
        let mut case = Case::new(len as u64);
        let x = case.vector(len, Values::Wild);
        let sums = sum(&mut case);
        bench.compare(&case, &Op::SquaredSum { x, first_element: 77, loss_scale: 1.0, sums });
    }
}

#[needs::cuda]
#[test]
fn sums_of_any_squares_have_the_words_of_the_cpu() {
    assert_same(&["fixed_point"], any_squares);
    assert_same(&["fixed_point"], limits);
}

pub fn losses(bench: &Bench) {
    for (index, (sequences, length)) in [(1, 0), (1, 1), (3, 40), (2, 256), (5, 257), (1, 1000)].into_iter().enumerate()
    {
        for values in [Values::Plain, Values::Wild] {
            let mut case = Case::new(index as u64);
            let loss = case.vector(sequences * length, values);
            let labels: Vec<i32> = (0..sequences * length).map(|_| [-100, 0, 5][case.words.below(3)]).collect();
            let labels = case.ints(&labels);
            let sums = sum(&mut case);
            bench.compare(&case, &Op::LossSum { loss, labels, sequences, sums });
            if values == Values::Plain {
                put_magnitudes(&mut case, loss);
                bench.compare(&case, &Op::LossSum { loss, labels, sequences, sums });
            }
        }
    }
}

#[needs::cuda]
#[test]
fn sums_of_losses_have_the_words_of_the_cpu() {
    assert_same(&["fixed_point"], losses);
}

/// The words of sums in all their ranges.
fn put_words(case: &mut Case, sum: Tensor, kind: u64) {
    for word in 0..SUM_WORDS {
        let random = case.words.next() as i64;
        let value = match (kind, SUM_WORDS - word) {
            // Not finite or valid labels.
            (0, 2) => 1,
            (_, 2) => 0,
            (1, 1) => 0,
            (2, 1) => -3,
            (_, 1) => random.rem_euclid(5000) + 1,
            // The last limb has the sign.
            (3, 3) => -(random.rem_euclid(1000)) - 1,
            (_, 3) => random.rem_euclid(1 << 20),
            (4, _) => 0,
            (5, _) => random,
            _ => random >> 16,
        };
        case.put(sum, 0, word, &value.to_le_bytes());
    }
}

pub fn coefficients(bench: &Bench) {
    let clips = [None, Some(1.0), Some(1e-3), Some(1e30)];
    for seed in 0..48 {
        let mut case = Case::new(seed);
        let [norm_sums, loss_sums] = [sum(&mut case), sum(&mut case)];
        put_words(&mut case, norm_sums, seed % 7);
        put_words(&mut case, loss_sums, seed / 7);
        let out = case.vector(4, Values::Plain);
        let (nominal_tokens, loss_scale) = (1234.0, [1.0, 65_536.0][seed as usize % 2]);
        let clip_norm = clips[seed as usize % clips.len()];
        bench.compare(&case, &Op::ClipCoefficient { norm_sums, loss_sums, nominal_tokens, loss_scale, clip_norm, out });
    }
}

#[needs::cuda]
#[test]
fn coefficients_have_the_bits_of_the_cpu() {
    assert_same(&["fixed_point"], coefficients);
}

#[needs::cuda]
#[test]
fn sums_of_other_sizes_are_refused() {
    let bench = Bench::of(&["fixed_point"]);
    let mut case = Case::new(0);
    let x = case.vector(3, Values::Plain);
    let few = case.place(1, SUM_WORDS - 1, 0, Dtype::I64);
    let op = Op::SquaredSum { x, first_element: 0, loss_scale: 1.0, sums: few };
    assert_eq!(bench.refusal(&case, &op), "sum: I64[1, 9] @128 is not the 10 words of a sum");
    let (sums, labels) = (sum(&mut case), case.ints(&[0, 0, 0]));
    let op = Op::LossSum { loss: x, labels, sequences: 2, sums };
    assert_eq!(bench.failure(&case, &op), "loss_sum: 3 tokens in 2 sequences");
}
