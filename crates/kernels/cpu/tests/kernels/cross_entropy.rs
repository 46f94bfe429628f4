use config::IGNORED_LABEL;
use cpu::cross_entropy::{CrossEntropy, Logits, RowMax, SumExp, ZLosses};
use cpu::instruction_set::InstructionSet;
use cpu::lanes::{Stored, run};
use cpu::view::{MatMut, MatRef};
use device::{Bf16, F16};

use crate::kernels::support::*;

const PADDING: usize = 3;

/// Loss and gradient of one row over its real columns.
fn reference(logits: &[f64], label: i32) -> (f64, Vec<f64>) {
    if label == IGNORED_LABEL {
        return (0.0, vec![0.0; logits.len()]);
    }
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|l| (l - max).exp()).sum();
    let onehot = |i: usize| if i == label as usize { 1.0 } else { 0.0 };
    let gradient = logits.iter().enumerate().map(|(i, l)| (l - max).exp() / sum - onehot(i)).collect();
    (sum.ln() - (logits[label as usize] - max), gradient)
}

#[test]
fn reference_gradient_agrees_with_differences() {
    let logits = double(&random("logits", 9, 3.0));
    assert_gradient("logits", |logits| reference(logits, 4).0, &logits, &reference(&logits, 4).1);
}

/// Runs the three steps on `ranks` shards of the vocabulary; returns losses and the gradients of the real columns.
/// Padding starts as NaN, so that a result that reads it shows.
fn on_ranks(
    set: InstructionSet,
    logits: &[f32],
    vocabulary: usize,
    labels: &[i32],
    ranks: usize,
    scale: f32,
) -> Vec<f32> {
    let rows = labels.len();
    let width = vocabulary.div_ceil(ranks) + PADDING;
    let real = |rank: usize| {
        let first = (rank * (width - PADDING)).min(vocabulary);
        first..(first + width - PADDING).min(vocabulary)
    };
    let mut shards: Vec<Vec<f32>> = (0..ranks)
        .map(|rank| {
            let mut shard = vec![f32::NAN; rows * width];
            for (row, shard) in shard.chunks_mut(width).enumerate() {
                let columns = real(rank);
                shard[..columns.len()].copy_from_slice(&logits[row * vocabulary..][columns]);
            }
            shard
        })
        .collect();
    let mut max = vec![f32::NEG_INFINITY; rows];
    for (rank, shard) in shards.iter().enumerate() {
        let mut out = vec![0.0; rows];
        let logits = MatRef::dense(shard, rows, width);
        run(set, RowMax { logits, valid_columns: real(rank).len(), out: &mut out });
        max.iter_mut().zip(out).for_each(|(max, out)| *max = max.max(out));
    }
    let mut total = vec![0.0; 2 * rows];
    for (rank, shard) in shards.iter().enumerate() {
        let mut sums = vec![0.0; 2 * rows];
        let (logits, columns) = (MatRef::dense(shard, rows, width), real(rank));
        let (valid_columns, first_column) = (columns.len(), columns.start);
        run(set, SumExp { logits, valid_columns, max: &max, labels, first_column, sums: &mut sums });
        total.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum);
    }
    let mut result = Vec::new();
    let mut gradient = vec![0.0; rows * vocabulary];
    for (rank, shard) in shards.iter_mut().enumerate() {
        let columns = real(rank);
        let mut loss = vec![0.0; rows];
        let arguments: CrossEntropy<'_> = CrossEntropy {
            logits: Logits::Replaced { logits: MatMut::dense(shard, rows, width), scale },
            valid_columns: columns.len(),
            max: &max,
            sums: &total,
            labels,
            first_column: columns.start,
            loss: &mut loss,
            z_loss: None,
        };
        run(set, arguments);
        for (row, shard) in shard.chunks(width).enumerate() {
            assert!(shard[columns.len()..].iter().all(|&value| value == 0.0), "padding has no gradient");
            gradient[row * vocabulary..][columns.clone()].copy_from_slice(&shard[..columns.len()]);
        }
        assert!(result.is_empty() || result == loss, "every rank has the same loss");
        result = loss;
    }
    result.extend(gradient);
    result
}

#[test]
fn losses_and_gradients_are_within_their_bounds() {
    for (vocabulary, scale) in [(1, 1.0), (16, 4.0), (100, 20.0), (2500, 8.0)] {
        let labels: Vec<i32> = [0, 1, IGNORED_LABEL, 15, 99, 2499, 50].map(|l: i32| l.min(vocabulary - 1)).to_vec();
        let (rows, vocabulary) = (labels.len(), vocabulary as usize);
        let logits = random("logits", rows * vocabulary, scale);
        let gradient_scale = 0.125;
        for ranks in [1, 2, 3] {
            let result = same_on_all_sets(|set| on_ranks(set, &logits, vocabulary, &labels, ranks, gradient_scale));
            let (loss, gradient) = result.split_at(rows);
            for (row, &label) in labels.iter().enumerate() {
                let logits = double(&logits[row * vocabulary..(row + 1) * vocabulary]);
                let (exact_loss, exact) = reference(&logits, label);
                // A term of the sum: the difference of two logits is off by one rounding of at most twice the scale,
                // which the exponential turns into as many of its own; the exponential adds 2, the sum at most 68 and
                // one for every further rank.
                let sum_roundings = 2.0 * f64::from(scale) + 70.0 + ranks as f64;
                let loss_bound = (sum_roundings + 2.0 * f64::from(scale) + exact_loss) * ROUNDING;
                assert_within("loss", &loss[row..=row], &[exact_loss], |_| loss_bound);
                let exact: Vec<f64> = exact.iter().map(|g| g * f64::from(gradient_scale)).collect();
                let actual = &gradient[row * vocabulary..(row + 1) * vocabulary];
                assert_within("gradient", actual, &exact, |i| {
                    let onehot = if i as i32 == label { f64::from(gradient_scale) } else { 0.0 };
                    let roundings = sum_roundings + 2.0 * f64::from(scale) + 5.0;
                    roundings * ROUNDING * (exact[i] + onehot).abs() + ROUNDING * exact[i].abs() + 1e-37
                });
            }
        }
    }
}

/// A gradient with a place of its own is that of the logits' place, rounded once, and leaves the logits.
fn assert_rounded_once<E: Stored + PartialEq + std::fmt::Debug>() {
    let (rows, columns, scale) = (4, 43, 0.37);
    let before = random("logits", rows * columns, 5.0);
    let (max, sums) = ([4.0, 3.0, 5.0, 4.5], [9.0, -1.0, 7.0, 0.0, 11.0, -2.5, 8.0, -0.5]);
    for set in InstructionSet::available() {
        let (mut replaced, mut gradient) = (before.clone(), vec![E::narrow(f32::NAN); rows * columns]);
        let mut losses = [[0.0; 4]; 2];
        let [first, second] = &mut losses;
        let of = |logits, loss| -> CrossEntropy<'_> {
            CrossEntropy {
                logits,
                valid_columns: columns - PADDING,
                max: &max,
                sums: &sums,
                labels: &[0, IGNORED_LABEL, 17, 39],
                first_column: 0,
                loss,
                z_loss: None,
            }
        };
        run(set, of(Logits::Replaced { logits: MatMut::dense(&mut replaced, rows, columns), scale }, first));
        let logits = MatRef::dense(&before, rows, columns);
        let read = Logits::Read { logits, scale, gradient: MatMut::dense(&mut gradient, rows, columns) };
        run(set, of(Logits::Kept { rows }, second).over(read));
        assert_eq!(losses[0], losses[1]);
        assert_eq!(gradient, replaced.iter().map(|value| E::narrow(*value)).collect::<Vec<E>>(), "{set:?}");
    }
}

#[test]
fn gradients_with_a_place_of_their_own_are_rounded_once() {
    assert_rounded_once::<f32>();
    assert_rounded_once::<Bf16>();
    assert_rounded_once::<F16>();
}

#[test]
fn losses_without_a_gradient_need_no_logits() {
    let mut loss = [0.0; 2];
    let arguments: CrossEntropy<'_> = CrossEntropy {
        logits: Logits::Kept { rows: 2 },
        valid_columns: 10,
        max: &[1.0, 2.0],
        sums: &[3.0, -0.5, 4.0, 0.0],
        labels: &[2, IGNORED_LABEL],
        first_column: 0,
        loss: &mut loss,
        z_loss: None,
    };
    run(InstructionSet::detect(), arguments);
    assert_eq!(loss, [(3f64.ln() + 0.5) as f32, 0.0]);
}

#[test]
fn a_logit_that_is_no_number_shows_in_the_loss() {
    for set in InstructionSet::available() {
        for (position, poison) in [(0, f32::NAN), (17, f32::NAN), (18, f32::INFINITY)] {
            let mut logits = random("logits", 19, 1.0);
            logits[position] = poison;
            let result = on_ranks(set, &logits, 19, &[3], 1, 1.0);
            assert!(result[0].is_nan(), "{set:?}: {}", result[0]);
        }
    }
}

/// The z-loss is `c L^2` with `L = max + log(sum)`, and its gradient multiplies softmax by `1 + 2 c L`. Both are
/// computed in double precision from the maximum and the sum, and rounded once; the gradient has two more roundings of
/// softmax.
#[test]
fn z_losses_and_their_gradients_are_those_of_the_sums() {
    let (rows, columns, coefficient, scale) = (5, 37, 0.01f32, 0.5f32);
    let before = random("logits", rows * columns, 6.0);
    let labels = [3, IGNORED_LABEL, 0, 36, 7];
    let max: Vec<f32> =
        before.chunks(columns).map(|row| row.iter().fold(f32::NEG_INFINITY, |a, b| a.max(*b))).collect();
    let exact: Vec<f64> = before
        .chunks(columns)
        .zip(&max)
        .map(|(row, max)| row.iter().map(|logit| (f64::from(*logit) - f64::from(*max)).exp()).sum())
        .collect();
    let sums: Vec<f32> = exact.iter().flat_map(|sum| [*sum as f32, -1.0]).collect();
    let computed = same_on_all_sets(|set| {
        let (mut logits, mut loss, mut z_losses) = (before.clone(), vec![0.0; rows], vec![0.0; rows]);
        let arguments: CrossEntropy<'_> = CrossEntropy {
            logits: Logits::Replaced { logits: MatMut::dense(&mut logits, rows, columns), scale },
            valid_columns: columns,
            max: &max,
            sums: &sums,
            labels: &labels,
            first_column: 0,
            loss: &mut loss,
            z_loss: Some(ZLosses { coefficient, losses: &mut z_losses }),
        };
        run(set, arguments);
        z_losses.extend(logits);
        z_losses
    });
    let (z_losses, gradients) = computed.split_at(rows);
    for row in 0..rows {
        let sum = f64::from(sums[2 * row]);
        let log_sum_exp = f64::from(max[row]) + sum.ln();
        let is_valid = labels[row] != IGNORED_LABEL;
        let expected = if is_valid { f64::from(coefficient) * log_sum_exp * log_sum_exp } else { 0.0 };
        assert_within("z-loss", &z_losses[row..=row], &[expected], |_| 2.0 * ROUNDING * expected);
        let raised = 1.0 + 2.0 * f64::from(coefficient) * log_sum_exp;
        let logits = &before[row * columns..(row + 1) * columns];
        let softmax: Vec<f64> = logits.iter().map(|x| (f64::from(*x) - f64::from(max[row])).exp() / sum).collect();
        let exact: Vec<f64> = (0..columns)
            .map(|column| raised * softmax[column] - f64::from(u8::from(column as i32 == labels[row])))
            .map(|gradient| if is_valid { f64::from(scale) * gradient } else { 0.0 })
            .collect();
        // The difference of logits is off by at most 12 roundings of 1, which the exponential turns into its own.
        assert_within("gradient", &gradients[row * columns..(row + 1) * columns], &exact, |column| {
            ROUNDING * (18.0 * f64::from(scale) * raised * softmax[column] + exact[column].abs() + f64::from(scale))
        });
    }
}
