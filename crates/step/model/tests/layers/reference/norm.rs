//! Norms over rows.

use config::{Norm, NormKind};
use device::{Op, Tensor};

use super::Memory;
use super::dense::put;

pub fn run(memory: &mut Memory, op: &Op) {
    match *op {
        Op::Norm { norm, x, weight, bias, y, stats } => {
            for row in 0..x.rows {
                let values = memory.values(x.rows_of(row..row + 1));
                let count = values.len() as f64;
                let mean = match norm.kind {
                    NormKind::Layer => values.iter().sum::<f64>() / count,
                    NormKind::Rms | NormKind::RmsPlusOne => 0.0,
                };
                let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
                let reciprocal = 1.0 / (variance + f64::from(norm.epsilon)).sqrt();
                memory.assign(stats.rows_of(row..row + 1), &[mean, reciprocal]);
                for (col, value) in values.iter().enumerate() {
                    let shift = bias.map_or(0.0, |bias| memory.get(bias, 0, col));
                    let scaled = (value - mean) * reciprocal * factor(norm, memory.get(weight, 0, col)) + shift;
                    memory.set(y, row, col, scaled);
                }
            }
        }
        Op::NormBackwardInput { tensors: t, write } => {
            for row in 0..t.x.rows {
                let normed = normed_row(memory, t.x, t.stats, row);
                let scaled: Vec<f64> = (0..t.x.cols)
                    .map(|col| memory.get(t.dy, row, col) * factor(t.norm, memory.get(t.weight, 0, col)))
                    .collect();
                let count = t.x.cols as f64;
                let mean = match t.norm.kind {
                    NormKind::Layer => scaled.iter().sum::<f64>() / count,
                    NormKind::Rms | NormKind::RmsPlusOne => 0.0,
                };
                let along = scaled.iter().zip(&normed).map(|(dy, x)| dy * x).sum::<f64>() / count;
                let reciprocal = memory.get(t.stats, row, 1);
                for col in 0..t.x.cols {
                    let value = (scaled[col] - mean - normed[col] * along) * reciprocal;
                    put(memory, t.dx, (row, col), value, write);
                }
            }
        }
        Op::NormBackwardWeight { norm: _, x, stats, dy, dweight, dbias } => {
            for row in 0..x.rows {
                let normed = normed_row(memory, x, stats, row);
                for (col, x) in normed.iter().enumerate() {
                    let dy = memory.get(dy, row, col);
                    memory.add(dweight, 0, col, dy * x);
                    if let Some(dbias) = dbias {
                        memory.add(dbias, 0, col, dy);
                    }
                }
            }
        }
        other => unreachable!("{other:?}"),
    }
}

/// The factor of normed values.
fn factor(norm: Norm, weight: f64) -> f64 {
    match norm.kind {
        NormKind::Layer | NormKind::Rms => weight,
        NormKind::RmsPlusOne => 1.0 + weight,
    }
}

fn normed_row(memory: &Memory, x: Tensor, stats: Tensor, row: usize) -> Vec<f64> {
    let (mean, reciprocal) = (memory.get(stats, row, 0), memory.get(stats, row, 1));
    (0..x.cols).map(|col| (memory.get(x, row, col) - mean) * reciprocal).collect()
}
