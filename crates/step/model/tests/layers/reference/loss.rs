//! Cross-entropy over columns of the vocabulary.

use config::IGNORED_LABEL;
use device::{LogitGradient, Op, RowStatistics, Tensor, ZLoss};

use super::Memory;

pub fn run(memory: &mut Memory, op: &Op) {
    match *op {
        Op::SoftCap { x, cap } => {
            let cap = f64::from(cap);
            for (row, col) in (0..x.rows).flat_map(|row| (0..x.cols).map(move |col| (row, col))) {
                let capped = cap * (memory.get(x, row, col) / cap).tanh();
                memory.set(x, row, col, capped);
            }
        }
        Op::SoftCapBackward { y, cap, gradient } => {
            for (row, col) in (0..y.rows).flat_map(|row| (0..y.cols).map(move |col| (row, col))) {
                let slope = 1.0 - (memory.get(y, row, col) / f64::from(cap)).powi(2);
                memory.set(gradient, row, col, memory.get(gradient, row, col) * slope);
            }
        }
        Op::RowMax { logits, valid_columns, out } => {
            for row in 0..logits.rows {
                let max = (0..valid_columns).map(|col| memory.get(logits, row, col)).fold(f64::NEG_INFINITY, f64::max);
                memory.set(out, 0, row, max);
            }
        }
        Op::SumExp { logits, valid_columns, max, labels, first_row, sums } => {
            for row in 0..logits.rows {
                let max = memory.get(max, 0, row);
                let sum: f64 = (0..valid_columns).map(|col| (memory.get(logits, row, col) - max).exp()).sum();
                let target = target_column(memory, labels, row, first_row, valid_columns);
                let target = target.map_or(0.0, |col| memory.get(logits, row, col) - max);
                memory.assign(sums.rows_of(row..row + 1), &[sum, target]);
            }
        }
        Op::CrossEntropy { logits, valid_columns, statistics, labels, first_row, gradient, loss, z_loss } => {
            for row in 0..logits.rows {
                let is_valid = memory.integer(labels, 0, row) != i64::from(IGNORED_LABEL);
                let column = target_column(memory, labels, row, first_row, valid_columns);
                let (max, sum, target) = match statistics {
                    Some(RowStatistics { max, sums }) => {
                        (memory.get(max, 0, row), memory.get(sums, row, 0), memory.get(sums, row, 1))
                    }
                    None => {
                        let values: Vec<f64> = (0..valid_columns).map(|col| memory.get(logits, row, col)).collect();
                        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                        let sum = values.iter().map(|value| (value - max).exp()).sum::<f64>();
                        (max, sum, column.map_or(0.0, |col| values[col] - max))
                    }
                };
                memory.set(loss, 0, row, if is_valid { sum.ln() - target } else { 0.0 });
                let mut raised = 1.0;
                if let Some(ZLoss { coefficient, losses }) = z_loss {
                    let log_sum_exp = max + sum.ln();
                    let z_loss = f64::from(coefficient) * log_sum_exp.powi(2);
                    memory.set(losses, 0, row, if is_valid { z_loss } else { 0.0 });
                    raised += 2.0 * f64::from(coefficient) * log_sum_exp;
                }
                let Some(LogitGradient { scale, into }) = gradient else { continue };
                for col in 0..logits.cols {
                    let probability =
                        if col < valid_columns { (memory.get(logits, row, col) - max).exp() / sum } else { 0.0 };
                    let gradient = (probability * raised - f64::from(column == Some(col))) * f64::from(scale);
                    memory.set(into, row, col, if is_valid { gradient } else { 0.0 });
                }
            }
        }
        Op::LossSum { loss, labels, sequences, sums } => {
            assert!(loss.len().is_multiple_of(sequences));
            let (losses, labels) = (memory.values(loss), memory.values(labels));
            let valid = losses.iter().zip(&labels).filter(|(_, label)| **label != f64::from(IGNORED_LABEL));
            let valid: Vec<f64> = valid.map(|(loss, _)| *loss).collect();
            memory.add(sums, 0, 0, valid.iter().sum());
            memory.add(sums, 0, 1, valid.len() as f64);
        }
        other => unreachable!("{other:?}"),
    }
}

fn target_column(memory: &Memory, labels: Tensor, row: usize, first_row: usize, valid_columns: usize) -> Option<usize> {
    let label = usize::try_from(memory.integer(labels, 0, row)).ok()?;
    label.checked_sub(first_row).filter(|col| *col < valid_columns)
}
