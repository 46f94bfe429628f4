//! Dropout masks and initial values as functions of global indices, by a plain hash.

use device::{DropoutKey, Op};

use super::Memory;

/// Uniform in `[0, 1)` from any integers.
pub fn uniform(words: &[u64]) -> f64 {
    let mixed = words.iter().fold(0x9e37_79b9_7f4a_7c15_u64, |state, word| {
        let mut z = (state ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    });
    (mixed >> 11) as f64 / (1_u64 << 53) as f64
}

/// 0 or `1 / (1 - p)` for local `row`, `channel` and, for attention probabilities, `key`.
pub fn keep_factor(dropout: &DropoutKey, row: usize, channel: usize, key: usize) -> f64 {
    let token = dropout.first_token + row as u64;
    let channel = u64::from(dropout.first_channel) + channel as u64;
    let words = [dropout.seed, u64::from(dropout.step), u64::from(dropout.site), token, channel, key as u64];
    let probability = f64::from(dropout.probability);
    if uniform(&words) < probability { 0.0 } else { 1.0 / (1.0 - probability) }
}

pub fn run(memory: &mut Memory, op: &Op) {
    match *op {
        Op::DropoutAdd { x, bias, residual, residual_scale, dropout, out } => {
            for row in 0..x.rows {
                for col in 0..x.cols {
                    let biased = memory.get(x, row, col) + bias.map_or(0.0, |bias| memory.get(bias, 0, col));
                    let kept = biased * dropout.map_or(1.0, |dropout| keep_factor(&dropout, row, col, 0));
                    let scale = f64::from(residual_scale);
                    let sum = kept + residual.map_or(0.0, |residual| scale * memory.get(residual, row, col));
                    memory.set(out, row, col, sum);
                }
            }
        }
        Op::DropoutBackward { dy, dropout, dx } => {
            for row in 0..dy.rows {
                for col in 0..dy.cols {
                    let value = memory.get(dy, row, col) * keep_factor(&dropout, row, col, 0);
                    memory.set(dx, row, col, value);
                }
            }
        }
        Op::InitializeNormal { out, seed, parameter, std, first_row, first_col, global_cols } => {
            for row in 0..out.rows {
                for col in 0..out.cols {
                    let element = (first_row + row) * global_cols + first_col + col;
                    let draw = |part| uniform(&[seed, parameter, element as u64, part]);
                    // Box-Muller.
                    let radius = (-2.0 * (1.0 - draw(0)).ln()).sqrt();
                    let value = radius * (std::f64::consts::TAU * draw(1)).cos() * f64::from(std);
                    memory.set(out, row, col, value);
                }
            }
        }
        other => unreachable!("{other:?}"),
    }
}
