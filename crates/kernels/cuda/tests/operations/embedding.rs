use device::{Op, Write};

use crate::operations::bench::{Bench, assert_same};
use crate::operations::case::{Case, STORED, Values};

/// Ids of which some are on other ranks, some do not exist, and most are few.
fn ids(case: &mut Case, count: usize, first_row: usize, rows: usize) -> Vec<i32> {
    let mut id = |_| match case.words.below(8) {
        0 => -100,
        1 => case.words.below(2 * rows + first_row) as i32,
        2 | 3 => (first_row + case.words.below(rows)) as i32,
        _ => (first_row + case.words.below(rows.min(3))) as i32,
    };
    (0..count).map(&mut id).collect()
}

#[needs::cuda]
#[test]
fn embeddings_and_their_gradients_have_the_bits_of_the_cpu() {
    assert_same(&["embedding"], embeddings);
}

pub fn embeddings(bench: &Bench) {
    let shapes = [
        ([1, 1, 1], [0, 0]),
        ([17, 5, 40], [0, 8]),
        ([256, 20, 3], [2, 1]),
        ([257, 3, 300], [1, 0]),
        ([700, 50, 33], [0, 3]),
        ([60, 9, 40], [3, 0]),
        ([60, 9, 44], [4, 4]),
    ];
    let typed = STORED.into_iter().flat_map(|stored| shapes.map(|shape| (stored, shape)));
    for (index, (stored, ([tokens, rows, cols], gaps))) in typed.enumerate() {
        for (first_row, values) in [(0, Values::Plain), (11, Values::Wild)] {
            let mut case = Case::new(index as u64).storing(stored);
            let list = ids(&mut case, tokens, first_row, rows);
            let tokens = case.ints(&list);
            let table = case.stored(rows, cols, gaps[0], values);
            let out = case.stored(list.len(), cols, gaps[1], values);
            for write in [Write::Assign, Write::Accumulate] {
                bench.compare(&case, &Op::EmbeddingLookup { tokens, table, first_row, out, write });
            }
            let dtable = case.reals(rows, cols, index % 2, values);
            for (scale, untrained) in [(1.0, None), (0.37, Some(first_row))] {
                let dy = out;
                bench.compare(&case, &Op::EmbeddingBackward { tokens, dy, scale, first_row, untrained, dtable });
            }
        }
    }
}
