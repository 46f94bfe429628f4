//! Bytes per second of the kernels that are bound by memory: what they must read and write, once, over the time they
//! take.
//!
//! `cargo bench -p cpu --bench elementwise` prints one line per kernel and a column per instruction set of this
//! machine, with the share of the rate at which a core copies memory that no cache holds. Matrices here fit the last
//! cache of many machines, so shares may exceed 100 %.

use std::time::{Duration, Instant};

use config::{Activation, Norm, NormKind, Pairing, RotaryScaling};
use cpu::activation::{ActivationBackward, ActivationForward};
use cpu::adamw::AdamW;
use cpu::column_sum::ColumnSum;
use cpu::cross_entropy::{CrossEntropy, Logits, RowMax, SumExp};
use cpu::dropout::{DropoutAdd, Source};
use cpu::initialize::InitializeNormal;
use cpu::instruction_set::InstructionSet;
use cpu::lanes::run;
use cpu::norm::{NormBackwardInput, NormBackwardWeight, NormForward};
use cpu::peak::copy_bytes_per_second;
use cpu::rotary::{Rotary, RotaryTable};
use cpu::squared_sum::SquaredSum;
use cpu::view::{MatMut, MatRef};
use device::{AdamWUpdate, Direction, DropoutKey, SUM_WORDS, Write};

const ROWS: usize = 2048;
const COLS: usize = 1024;
/// One matrix of the benchmark.
const MATRIX_BYTES: f64 = (ROWS * COLS * 4) as f64;
const NORM: Norm = Norm { kind: NormKind::Layer, epsilon: 1e-5 };

/// The best of several runs, because the machine is shared.
fn best_time(mut kernel: impl FnMut()) -> Duration {
    let start = Instant::now();
    let mut best = Duration::MAX;
    let mut runs = 0;
    while runs < 3 || start.elapsed() < Duration::from_millis(150) {
        let start = Instant::now();
        kernel();
        best = best.min(start.elapsed());
        runs += 1;
    }
    best
}

/// Bytes per second that one core copies, read and written.
#[derive(Clone, Copy)]
struct Copied(f64);

/// Prints the rates of a kernel that moves `matrices` times the matrix.
fn report(copied: Copied, name: &str, matrices: f64, mut kernel: impl FnMut(InstructionSet)) {
    print!("{name:28}");
    for set in InstructionSet::available() {
        let rate = matrices * MATRIX_BYTES / best_time(|| kernel(set)).as_secs_f64();
        print!(" {:>8.2} ({:3.0} %)", rate / 1e9, 100.0 * rate / copied.0);
    }
    println!(" GB/s");
}

fn matrix(seed: u32) -> Vec<f32> {
    let word = |i: usize| philox::philox4x32_10([i as u32, 0, 0, 0], [seed, 0])[0];
    (0..ROWS * COLS).map(|i| philox::half_open_f32(word(i)) * 4.0 - 2.0).collect()
}

fn dense(data: &[f32]) -> MatRef<'_> {
    MatRef::dense(data, ROWS, COLS)
}

fn dense_mut(data: &mut [f32]) -> MatMut<'_> {
    MatMut::dense(data, ROWS, COLS)
}

fn norms(copied: Copied) {
    let (x, dy, weight) = (matrix(1), matrix(2), matrix(3)[..COLS].to_vec());
    let (mut y, mut stats) = (matrix(4), vec![0.0; 2 * ROWS]);
    let (mut dweight, mut dbias) = (vec![0.0; COLS], vec![0.0; COLS]);
    report(copied, "norm", 2.0, |set| {
        let (x, bias) = (dense(&x), Some(&weight[..]));
        run(set, NormForward { norm: NORM, x, weight: &weight, bias, y: dense_mut(&mut y), stats: &mut stats });
    });
    report(copied, "norm backward input", 3.0, |set| {
        let (x, dy, dx, write) = (dense(&x), dense(&dy), dense_mut(&mut y), Write::Assign);
        run(set, NormBackwardInput { norm: NORM, x, weight: &weight, stats: &stats, dy, dx, write });
    });
    report(copied, "norm backward weight", 2.0, |set| {
        let (x, dy, dbias) = (dense(&x), dense(&dy), Some(&mut dbias[..]));
        run(set, NormBackwardWeight { x, stats: &stats, dy, dweight: &mut dweight, dbias });
    });
    report(copied, "column sum", 1.0, |set| run(set, ColumnSum { x: dense(&dy), out: &mut dbias }));
}

fn activations(copied: Copied) {
    let (x, dy) = (matrix(1), matrix(2));
    let (mut dx, mut y) = (matrix(3), matrix(4));
    for activation in [Activation::GeluTanh, Activation::GeluErf, Activation::Relu] {
        report(copied, &format!("{activation:?}"), 2.0, |set| {
            run(set, ActivationForward { activation, x: dense(&x), y: dense_mut(&mut y) });
        });
        report(copied, &format!("{activation:?} backward"), 4.0, |set| {
            let (dx, y) = (dense_mut(&mut dx), dense_mut(&mut y));
            run(set, ActivationBackward { activation, x: dense(&x), dy: dense(&dy), dx, y });
        });
    }
    report(copied, "SwiGlu backward", 3.0, |set| {
        let (x, dx) = (dense(&x), dense_mut(&mut dx));
        let dy = MatRef::dense(&dy[..ROWS * COLS / 2], ROWS, COLS / 2);
        let y = MatMut::dense(&mut y[..ROWS * COLS / 2], ROWS, COLS / 2);
        run(set, ActivationBackward { activation: Activation::SwiGlu, x, dy, dx, y });
    });
}

fn dropout_and_rotary(copied: Copied) {
    let (x, residual, bias) = (matrix(1), matrix(2), matrix(3)[..COLS].to_vec());
    let mut out = matrix(4);
    let key = DropoutKey { seed: 1, step: 2, site: 3, first_token: 4, first_channel: 0, probability: 0.1 };
    for dropout in [None, Some(key)] {
        report(copied, if dropout.is_some() { "dropout add" } else { "bias and residual add" }, 3.0, |set| {
            let (x, residual) = (Source::Apart(dense(&x)), Some(Source::Apart(dense(&residual))));
            run(
                set,
                DropoutAdd { x, bias: Some(&bias), residual, residual_scale: 1.0, dropout, out: dense_mut(&mut out) },
            );
        });
    }
    let positions: Vec<i32> = (0..ROWS as i32).collect();
    let (mut cos, mut sin) = (vec![0.0; ROWS * 32], vec![0.0; ROWS * 32]);
    report(copied, "rotary table", 64.0 / COLS as f64, |set| {
        let (cos, sin) = (MatMut::dense(&mut cos, ROWS, 32), MatMut::dense(&mut sin, ROWS, 32));
        run(set, RotaryTable { cos, sin, base: 10_000.0, scaling: RotaryScaling::Off });
    });
    for pairing in [Pairing::Half, Pairing::Interleaved] {
        report(copied, &format!("rotary {pairing:?}"), 2.0, |set| {
            let (cos, sin) = (MatRef::dense(&cos, ROWS, 32), MatRef::dense(&sin, ROWS, 32));
            let (x, direction) = (dense_mut(&mut out), Direction::Forward);
            run(set, Rotary { x, head_dim: 64, positions: &positions, cos, sin, pairing, direction });
        });
    }
}

fn losses(copied: Copied) {
    let mut logits = matrix(1);
    let (mut max, mut sums, mut loss) = (vec![0.0; ROWS], vec![0.0; 2 * ROWS], vec![0.0; ROWS]);
    let (labels, valid_columns, first_column) = (vec![5; ROWS], COLS, 0);
    report(copied, "row max", 1.0, |set| run(set, RowMax { logits: dense(&logits), valid_columns, out: &mut max }));
    report(copied, "sum exp", 1.0, |set| {
        let (logits, labels, sums) = (dense(&logits), &labels, &mut sums);
        run(set, SumExp { logits, valid_columns, max: &max, labels, first_column, sums });
    });
    report(copied, "cross entropy", 2.0, |set| {
        let logits = Logits::Replaced { logits: dense_mut(&mut logits), scale: 1.0 };
        let (max, sums, labels, loss) = (&max[..], &sums[..], &labels[..], &mut loss[..]);
        let z_loss = None;
        let losses: CrossEntropy<'_> =
            CrossEntropy { logits, valid_columns, max, sums, labels, first_column, loss, z_loss };
        run(set, losses);
    });
}

fn optimizer(copied: Copied) {
    let (mut param, grad, mut first, mut second) = (matrix(1), matrix(2), matrix(3), matrix(4));
    let (mut sums, coefficient) = ([0; SUM_WORDS], 0.5);
    let update =
        AdamWUpdate { learning_rate: 1e-3, weight_decay: 0.1, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, update: 9 };
    second.iter_mut().for_each(|value| *value = value.abs());
    report(copied, "adamw", 7.0, |set| {
        let (param, grad) = (&mut param[..], &grad[..]);
        let (first_moment, second_moment) = (&mut first[..], &mut second[..]);
        run(set, AdamW { param, copy: None::<&mut [f32]>, grad, first_moment, second_moment, coefficient, update });
    });
    report(copied, "squared sum", 1.0, |set| {
        run(set, SquaredSum { x: &grad, first_element: 0, loss_scale: 1.0, sums: &mut sums })
    });
    report(copied, "initialize normal", 1.0, |set| {
        let (out, global_cols) = (dense_mut(&mut param), COLS);
        run(set, InitializeNormal { out, seed: 1, parameter: 2, std: 0.02, first_row: 0, first_col: 0, global_cols });
    });
}

fn main() {
    let copied = Copied(copy_bytes_per_second(1));
    println!("one core copies {:.1} GB/s, read and written", copied.0 / 1e9);
    println!("{:28} {:?}", format!("[{ROWS}, {COLS}]"), InstructionSet::available());
    norms(copied);
    activations(copied);
    dropout_and_rotary(copied);
    losses(copied);
    optimizer(copied);
}
