use cpu::dropout::{DropoutAdd, DropoutBackward, Source};
use cpu::instruction_set::InstructionSet;
use cpu::lanes::run;
use cpu::view::{MatMut, MatRef};
use device::DropoutKey;

use crate::kernels::support::*;

fn key(probability: f32) -> DropoutKey {
    DropoutKey { seed: 0x1234_5678_9abc, step: 7, site: 3, first_token: 1000, first_channel: 0, probability }
}

/// Whether an element is kept, from the contract, one word at a time.
fn is_kept(key: &DropoutKey, row: usize, column: usize) -> bool {
    let channel = key.first_channel + column as u32;
    let token = key.first_token as u32 + row as u32;
    let words = philox::philox4x32_10([channel / 4, token, key.step, key.site], philox::key_of_seed(key.seed));
    f64::from(words[channel as usize % 4]) >= f64::from(key.probability) * 2f64.powi(32)
}

#[test]
fn values_follow_the_contract() {
    for (rows, cols, first_channel) in [(1, 1, 0), (5, 130, 0), (3, 64, 64), (4, 77, 5), (2, 61, 3)] {
        let key = DropoutKey { first_channel, ..key(0.1) };
        let (x, residual) = (random("x", rows * cols, 1.0), random("residual", rows * cols, 1.0));
        let bias = random("bias", cols, 1.0);
        let scale = 1.0 / (1.0 - 0.1f32);
        for dropout in [None, Some(key)] {
            let out = same_on_all_sets(|set| {
                let mut out = vec![0.0; rows * cols];
                let arguments = DropoutAdd {
                    x: Source::Apart(MatRef::dense(&x, rows, cols)),
                    bias: Some(&bias),
                    residual: Some(Source::Apart(MatRef::dense(&residual, rows, cols))),
                    residual_scale: 1.0,
                    dropout,
                    out: MatMut::dense(&mut out, rows, cols),
                };
                run(set, arguments);
                out
            });
            for i in 0..rows * cols {
                let (row, col) = (i / cols, i % cols);
                let factor = match &dropout {
                    None => 1.0,
                    Some(key) if is_kept(key, row, col) => scale,
                    Some(_) => 0.0,
                };
                // Each of the three operations rounds once, so the same operations give the same bits.
                assert_eq!(out[i], residual[i] + (x[i] + bias[col]) * factor, "row {row}, column {col}");
            }
        }
    }
}

#[test]
fn operands_may_lie_in_the_output() {
    let (rows, cols) = (3, 50);
    let (x, residual) = (random("x", rows * cols, 1.0), random("residual", rows * cols, 1.0));
    let set = InstructionSet::detect();
    let apart = |data| Source::Apart(MatRef::dense(data, rows, cols));
    let add = |x, residual, out: &mut Vec<f32>| {
        let out = MatMut::dense(out, rows, cols);
        run(set, DropoutAdd { x, bias: None, residual, residual_scale: 1.0, dropout: Some(key(0.3)), out });
    };
    let mut expected = vec![0.0; rows * cols];
    add(apart(&x), Some(apart(&residual)), &mut expected);
    let mut out = x.clone();
    add(Source::Out, Some(apart(&residual)), &mut out);
    assert_eq!(out, expected);
    let mut out = residual.clone();
    add(apart(&x), Some(Source::Out), &mut out);
    assert_eq!(out, expected);

    let mut dx = vec![0.0; rows * cols];
    let out = MatMut::dense(&mut dx, rows, cols);
    run(set, DropoutBackward { dy: apart(&x), dropout: key(0.3), dx: out });
    let mut forward = vec![0.0; rows * cols];
    add(apart(&x), None, &mut forward);
    assert_eq!(dx, forward, "without bias and residual dropout is its own gradient");
    let mut in_place = x.clone();
    let out = MatMut::dense(&mut in_place, rows, cols);
    run(set, DropoutBackward { dy: Source::Out, dropout: key(0.3), dx: out });
    assert_eq!(in_place, dx);
}

/// A mask cut along tokens and channels is the same mask.
#[test]
fn shards_have_the_mask_of_the_whole() {
    let (rows, cols) = (12, 96);
    let ones = vec![1.0; rows * cols];
    let set = InstructionSet::detect();
    let mask = |key: DropoutKey, rows: usize, cols: usize| {
        let mut dx = vec![0.0; rows * cols];
        let out = MatMut::dense(&mut dx, rows, cols);
        run(set, DropoutBackward { dy: Source::Apart(MatRef::dense(&ones, rows, cols)), dropout: key, dx: out });
        dx
    };
    let whole = mask(key(0.5), rows, cols);
    for (first_row, part_rows) in [(0, 4), (4, 8)] {
        for (first_col, part_cols) in [(0, 24), (24, 40), (64, 32), (7, 70)] {
            let first_token = key(0.5).first_token + first_row as u64;
            let part_key = DropoutKey { first_token, first_channel: first_col as u32, ..key(0.5) };
            let part = mask(part_key, part_rows, part_cols);
            for (row, values) in part.chunks(part_cols).enumerate() {
                let start = (first_row + row) * cols + first_col;
                assert_eq!(values, &whole[start..start + part_cols]);
            }
        }
    }
}

#[test]
fn the_share_of_dropped_elements_is_the_probability() {
    for probability in [0.0, 0.1, 0.5, 0.9] {
        let mut dx = vec![1.0; 400 * 400];
        let out = MatMut::dense(&mut dx, 400, 400);
        run(InstructionSet::detect(), DropoutBackward { dy: Source::Out, dropout: key(probability), dx: out });
        let dropped = dx.iter().filter(|&&value| value == 0.0).count() as f64;
        let expected = f64::from(probability) * 160_000.0;
        // Five standard deviations of the binomial distribution.
        let deviation = (expected * (1.0 - f64::from(probability))).sqrt();
        assert!((dropped - expected).abs() <= 5.0 * deviation, "{dropped} of 160000 at {probability}");
    }
}
