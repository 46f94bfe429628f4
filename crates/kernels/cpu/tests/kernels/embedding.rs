use cpu::accumulate::Accumulate;
use cpu::embedding::{EmbeddingBackward, EmbeddingLookup};
use cpu::lanes::run;
use cpu::view::{MatMut, MatRef};
use cpu::{copy::Copy, fill::fill};
use device::Write;

use crate::kernels::support::*;

const TOKENS: [i32; 9] = [3, 0, 9, 3, 7, 11, 3, 9, 10];

#[test]
fn the_sum_over_ranks_is_the_embedding() {
    for width in [1, 16, 37] {
        let table = random("table", 12 * width, 1.0);
        let mut sum = vec![0.0; TOKENS.len() * width];
        for (rank, first_row) in [0, 4, 8].into_iter().enumerate() {
            let part = MatRef::dense(&table[first_row * width..(first_row + 4) * width], 4, width);
            let write = if rank == 0 { Write::Assign } else { Write::Accumulate };
            sum = same_on_all_sets(|set| {
                let mut out = if rank == 0 { vec![f32::NAN; sum.len()] } else { sum.clone() };
                let rows = MatMut::dense(&mut out, TOKENS.len(), width);
                run(set, EmbeddingLookup { tokens: &TOKENS, table: part, first_row, out: rows, write });
                out
            });
        }
        for (row, &token) in sum.chunks(width).zip(&TOKENS) {
            assert_eq!(row, &table[token as usize * width..][..width]);
        }
    }
}

#[test]
fn gradients_are_added_in_the_order_of_tokens() {
    for (width, scale, untrained) in [(1, 1.0f32, None), (16, 0.1, Some(8)), (37, 1.0, Some(200)), (37, 0.1, None)] {
        let dy = random("dy", TOKENS.len() * width, 1.0);
        let before = random("before", 4 * width, 1.0);
        let first_row = 7;
        let dtable = same_on_all_sets(|set| {
            let mut dtable = before.clone();
            let dy = MatRef::dense(&dy, TOKENS.len(), width);
            let rows = MatMut::dense(&mut dtable, 4, width);
            run(set, EmbeddingBackward { tokens: &TOKENS, dy, scale, first_row, untrained, dtable: rows });
            dtable
        });
        let mut expected = before;
        for (row, &token) in TOKENS.iter().enumerate() {
            if (7..11).contains(&token) && Some(token as usize) != untrained {
                for col in 0..width {
                    let sum = &mut expected[(token as usize - first_row) * width + col];
                    *sum = dy[row * width + col].mul_add(scale, *sum);
                }
            }
        }
        assert_eq!(dtable, expected);
    }
}

#[test]
fn matrices_are_filled_copied_and_added() {
    let mut wide = vec![1.0; 3 * 20];
    fill(MatMut::new(&mut wide, 3, 17, 20), 2.0);
    let row: Vec<f32> = std::iter::repeat_n(2.0, 17).chain([1.0; 3]).collect();
    assert_eq!(wide, row.repeat(3));
    let mut dense = vec![0.0; 3 * 17];
    let (from, to) = (MatRef::new(&wide, 3, 17, 20), MatMut::dense(&mut dense, 3, 17));
    run(cpu::instruction_set::InstructionSet::detect(), Copy { from, to });
    assert_eq!(dense, [2.0; 51]);
    let sum = same_on_all_sets(|set| {
        let mut into = wide.clone();
        run(set, Accumulate { x: MatRef::dense(&dense, 3, 17), into: MatMut::new(&mut into, 3, 17, 20) });
        into
    });
    let row: Vec<f32> = std::iter::repeat_n(4.0, 17).chain([1.0; 3]).collect();
    assert_eq!(sum, row.repeat(3));
}
