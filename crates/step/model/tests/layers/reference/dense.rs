//! Products, sums, copies and tables.

use device::{Op, Orientation, Tensor, Write};

use super::Memory;

pub fn run(memory: &mut Memory, op: &Op) {
    match *op {
        Op::MatMul { orientation, a, b, bias, out, write } => {
            let products = multiply(memory, orientation, a, b);
            assert_eq!(products.len(), out.len(), "{op:?}");
            for (index, product) in products.into_iter().enumerate() {
                let (row, col) = (index / out.cols, index % out.cols);
                let biased = product + bias.map_or(0.0, |bias| memory.get(bias, 0, col));
                put(memory, out, (row, col), biased, write);
            }
        }
        Op::ColumnSum { x, out } => {
            for row in 0..x.rows {
                for col in 0..x.cols {
                    let value = memory.get(x, row, col);
                    memory.add(out, 0, col, value);
                }
            }
        }
        Op::Accumulate { x, into } => {
            let sum: Vec<f64> = memory.values(x).iter().zip(memory.values(into)).map(|(x, into)| x + into).collect();
            memory.assign(into, &sum);
        }
        Op::Fill { out, value } => memory.assign(out, &vec![f64::from(value); out.len()]),
        Op::Copy { from, to } => {
            let values = memory.values(from);
            memory.assign(to, &values);
        }
        Op::EmbeddingLookup { tokens, table, first_row, out, write } => {
            for row in 0..out.rows {
                let local = local_row(memory, tokens, row, first_row, table);
                for col in 0..out.cols {
                    let value = local.map_or(0.0, |local| memory.get(table, local, col));
                    put(memory, out, (row, col), value, write);
                }
            }
        }
        Op::EmbeddingBackward { tokens, dy, scale, first_row, untrained, dtable } => {
            for row in 0..dy.rows {
                if untrained.is_some_and(|token| memory.integer(tokens, 0, row) == token as i64) {
                    continue;
                }
                let Some(local) = local_row(memory, tokens, row, first_row, dtable) else { continue };
                for col in 0..dy.cols {
                    let value = f64::from(scale) * memory.get(dy, row, col);
                    memory.add(dtable, local, col, value);
                }
            }
        }
        other => unreachable!("{other:?}"),
    }
}

pub fn put(memory: &mut Memory, out: Tensor, (row, col): (usize, usize), value: f64, write: Write) {
    match write {
        Write::Assign => memory.set(out, row, col, value),
        Write::Accumulate => memory.add(out, row, col, value),
    }
}

fn multiply(memory: &Memory, orientation: Orientation, a: Tensor, b: Tensor) -> Vec<f64> {
    let (rows, depth, cols) = match orientation {
        Orientation::Nt => (a.rows, a.cols, b.rows),
        Orientation::Nn => (a.rows, a.cols, b.cols),
        Orientation::Tn => (a.cols, a.rows, b.cols),
    };
    let (left, right) = (memory.values(a), memory.values(b));
    let mut out = vec![0.0; rows * cols];
    for row in 0..rows {
        for col in 0..cols {
            for k in 0..depth {
                out[row * cols + col] += match orientation {
                    Orientation::Nt => left[row * a.cols + k] * right[col * b.cols + k],
                    Orientation::Nn => left[row * a.cols + k] * right[k * b.cols + col],
                    Orientation::Tn => left[k * a.cols + row] * right[k * b.cols + col],
                };
            }
        }
    }
    out
}

fn local_row(memory: &Memory, tokens: Tensor, row: usize, first_row: usize, table: Tensor) -> Option<usize> {
    let token = usize::try_from(memory.integer(tokens, 0, row)).unwrap();
    token.checked_sub(first_row).filter(|local| *local < table.rows)
}
