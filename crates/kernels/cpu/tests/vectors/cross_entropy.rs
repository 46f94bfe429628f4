use device::{LogitGradient, Op, RowStatistics, Tensor};

use crate::vectors::file::{Case, File};
use crate::vectors::machine::*;

/// Columns after the real ones on every shard.
const PADDING: usize = 2;

/// One rank's part of the vocabulary.
struct Shard {
    first_row: usize,
    valid_columns: usize,
    logits: Tensor,
}

fn shards(machine: &Machine, case: Case, ranks: usize) -> Vec<Shard> {
    let (rows, vocabulary) = case.shape("logits", device::Dtype::F32);
    let logits = case.floats("logits");
    let width = vocabulary.div_ceil(ranks);
    let shard = |first_row: usize| {
        let valid_columns = width.min(vocabulary - first_row);
        let mut part = vec![f32::NAN; rows * (width + PADDING)];
        for (part, row) in part.chunks_mut(width + PADDING).zip(logits.chunks(vocabulary)) {
            part[..valid_columns].copy_from_slice(&row[first_row..first_row + valid_columns]);
        }
        Shard { first_row, valid_columns, logits: machine.put(rows, &part) }
    };
    (0..vocabulary).step_by(width).map(shard).collect()
}

/// Joins what each rank computes, as an all-reduce does.
fn joined(machine: &Machine, parts: &[Tensor], join: impl Fn(f32, f32) -> f32) -> Tensor {
    let mut parts = parts.iter().map(|part| machine.read(*part));
    let mut total = parts.next().expect("a rank");
    parts.for_each(|part| total.iter_mut().zip(part).for_each(|(total, value)| *total = join(*total, value)));
    machine.put(1, &total)
}

/// Losses, gradients of the real columns, and the mean loss as a step reports it.
fn results(machine: &Machine, case: Case, ranks: usize) -> Vec<Vec<f32>> {
    let (rows, vocabulary) = case.shape("logits", device::Dtype::F32);
    let labels = machine.put_ints(1, &case.ints("labels"));
    let shards = shards(machine, case, ranks);
    let each = |compute: &dyn Fn(&Shard) -> Tensor| shards.iter().map(compute).collect::<Vec<Tensor>>();
    let max = each(&|&Shard { logits, valid_columns, .. }| {
        let out = machine.empty(1, rows);
        machine.submit(Op::RowMax { logits, valid_columns, out });
        out
    });
    let max = joined(machine, &max, f32::max);
    let sums = each(&|&Shard { logits, valid_columns, first_row }| {
        let sums = machine.empty(1, 2 * rows);
        machine.submit(Op::SumExp { logits, valid_columns, max, labels, first_row, sums });
        sums
    });
    let sums = joined(machine, &sums, |a, b| a + b);
    let scale = (1.0 / valid_labels(case)) as f32;
    let losses = each(&|&Shard { logits, valid_columns, first_row }| {
        let loss = machine.empty(1, rows);
        let (z_loss, gradient) = (None, Some(LogitGradient { scale, into: logits }));
        // A rank with the whole vocabulary computes the statistics itself.
        let statistics = (ranks > 1).then_some(RowStatistics { max, sums });
        let op = Op::CrossEntropy { logits, valid_columns, statistics, labels, first_row, gradient, loss, z_loss };
        machine.submit(op);
        loss
    });
    let mut gradient = vec![0.0; rows * vocabulary];
    for shard in &shards {
        let part = machine.read(shard.logits);
        for (row, part) in part.chunks(shard.logits.cols).enumerate() {
            gradient[row * vocabulary + shard.first_row..][..shard.valid_columns]
                .copy_from_slice(&part[..shard.valid_columns]);
            assert!(part[shard.valid_columns..].iter().all(|&value| value == 0.0), "padding has no gradient");
        }
    }
    vec![machine.read(losses[0]), gradient, vec![mean_loss(machine, losses[0], labels)]]
}

fn mean_loss(machine: &Machine, loss: Tensor, labels: Tensor) -> f32 {
    let (norm_sums, loss_sums, out) = (machine.sums(), machine.sums(), machine.empty(1, 4));
    machine.submit(Op::LossSum { loss, labels, sequences: 2, sums: loss_sums });
    let (nominal_tokens, loss_scale) = (8.0, 1.0);
    machine.submit(Op::ClipCoefficient { norm_sums, loss_sums, nominal_tokens, loss_scale, clip_norm: None, out });
    machine.read(out)[2]
}

fn valid_labels(case: Case) -> f64 {
    case.ints("labels").iter().filter(|&&label| label >= 0).count() as f64
}

/// A power of the sum: the difference of two logits is off by a rounding of at most twice the largest, which is as many
/// of the power; the exponential adds 2, the sum of at most 61 at most 10 and one per further rank. The logarithm turns
/// these into absolute errors; the target's difference has one rounding, and the result one.
#[test]
fn cross_entropy_and_its_gradient() {
    let file = File::open(include_bytes!("cross_entropy.safetensors"));
    for (name, ranks) in [("small", 1), ("small", 3), ("wide", 1), ("wide", 2)] {
        let case = file.case(name);
        let actual = on_all_sets(|machine| results(machine, case, ranks));
        let logits = case.widened("logits");
        let largest = logits.iter().fold(0.0, |largest: f64, logit| largest.max(logit.abs()));
        let power = 2.0 * largest + 12.0 + ranks as f64;
        let loss = case.doubles("loss");
        let loss_bound = |at: usize| if loss[at] == 0.0 { 0.0 } else { U * (power + 2.0 * largest + loss[at]) };
        let what = format!("{name} on {ranks}");
        assert_within(&format!("{what}: loss"), &actual[0], &loss, loss_bound);
        // The probability's own power, the sum and two products; then the label's one is taken away.
        let (labels, gradient) = (case.ints("labels"), case.doubles("dlogits"));
        let vocabulary = logits.len() / labels.len();
        assert_within(&format!("{what}: gradient"), &actual[1], &gradient, |at| {
            let is_label = labels[at / vocabulary] == (at % vocabulary) as i32;
            let onehot = if is_label { 1.0 / valid_labels(case) } else { 0.0 };
            U * ((2.0 * power + 4.0) * (gradient[at] + onehot).abs() + gradient[at].abs() + onehot)
        });
        // The mean of losses as they are, rounded once.
        let mean_bound = (0..loss.len()).map(loss_bound).sum::<f64>() / valid_labels(case);
        let mean = case.doubles("mean");
        assert_within(&format!("{what}: mean"), &actual[2], &mean, |_| mean_bound + U * mean[0]);
    }
}
