//! Rows sorted by expert, from tokens and back.

use device::{Dtype, ExpertOp, Tensor, Write};

use super::chosen::{Chosen, Spread};
use crate::operations::bench::{ARENA_BYTES, Bench, assert_same};
use crate::operations::case::{Case, Values};

/// Tokens, experts, experts of a token, and the first and number of this rank's.
const SIZES: [[usize; 5]; 7] = [
    [1, 1, 1, 0, 1],
    [5, 8, 2, 0, 8],
    [37, 8, 3, 4, 4],
    [300, 12, 2, 3, 5],
    [130, 40, 4, 0, 40],
    [64, 4, 4, 1, 2],
    [257, 6, 1, 5, 1],
];

const SPREADS: [Spread; 3] = [Spread::Even, Spread::Uneven, Spread::All(0)];

/// Every size with every spread.
fn cases() -> impl Iterator<Item = (usize, [usize; 5], Spread)> {
    SIZES.into_iter().flat_map(|sizes| SPREADS.map(|spread| (sizes, spread))).enumerate().map(|(i, (s, k))| (i, s, k))
}

fn chosen(case: &mut Case, [tokens, experts, per_token, first, own]: [usize; 5], spread: Spread) -> Chosen {
    Chosen::new(&mut case.words, spread, [tokens, experts, per_token], first..first + own)
}

#[needs::cuda]
#[test]
fn rows_of_any_choice_have_the_places_of_the_cpu() {
    assert_same(&["expert_rows"], groups);
}

pub fn groups(bench: &Bench) {
    for (index, sizes, spread) in cases() {
        let mut case = Case::new(index as u64);
        let mut chosen = chosen(&mut case, sizes, spread);
        if index % 4 == 3 {
            // Of a slot without an expert.
            let slot = case.words.below(chosen.choice.len());
            chosen.choice[slot] = [-1, i32::MIN, i32::MAX][index / 4 % 3];
        }
        let choice = case.ints(&chosen.choice);
        let choice = Tensor { rows: chosen.tokens, cols: chosen.per_token, row_stride: chosen.per_token, ..choice };
        for ranks in [1, 2, 4, 5].into_iter().filter(|ranks| sizes[4].is_multiple_of(*ranks)) {
            let rows = chosen.places_of_ranks(&mut case, ranks);
            bench.compare(&case, &ExpertOp::GroupRows { choice, first_expert: sizes[3], rows }.into());
        }
    }
}

/// Two tensors of the operation at the end of memory, in turns.
#[needs::cuda]
#[test]
fn rows_at_the_end_of_memory_are_used_to_their_end() {
    assert_same(&["expert_rows"], ends);
}

pub fn ends(bench: &Bench) {
    for last in 0..6 {
        for sizes in [[5, 8, 2, 0, 8], [37, 8, 3, 4, 4]] {
            let mut case = Case::with_last(1, last, ARENA_BYTES);
            let chosen = chosen(&mut case, sizes, Spread::Even);
            let rows = chosen.placed(&mut case);
            let choice = case.place(chosen.tokens, chosen.per_token, 0, Dtype::I32);
            for (slot, expert) in chosen.choice.iter().enumerate() {
                case.put(choice, slot / chosen.per_token, slot % chosen.per_token, &expert.to_le_bytes());
            }
            bench.compare(&case, &ExpertOp::GroupRows { choice, first_expert: sizes[3], rows }.into());
            let from = case.stored(chosen.tokens, 24, 0, Values::Plain);
            let to = case.stored(chosen.room(), 24, 0, Values::Plain);
            bench.compare(&case, &ExpertOp::GatherRows { from, rows, to }.into());
            let (y, weights, out) = (to, None, from);
            bench.compare(&case, &ExpertOp::CombineRows { y, weights, rows, out, write: Write::Assign }.into());
        }
    }
}

#[needs::cuda]
#[test]
fn rows_that_are_gathered_and_combined_have_the_bits_of_the_cpu() {
    assert_same(&["expert_rows"], moved);
}

pub fn moved(bench: &Bench) {
    for (index, sizes, spread) in cases() {
        for stored in bench.types_of(index as u64) {
            let mut case = Case::new(index as u64).storing(stored);
            let chosen = chosen(&mut case, sizes, spread);
            // Rows without gaps, rows that are not aligned, and rows of several blocks of threads.
            let (cols, gaps) = [(24, [0, 8]), (33, [1, 2]), (7, [1, 9]), (280, [0, 0])][index % 4];
            let rows = chosen.placed(&mut case);
            let from = case.stored(chosen.tokens, cols, gaps[0], Values::Wild);
            let to = case.stored(chosen.room(), cols, gaps[1], Values::Wild);
            bench.compare(&case, &ExpertOp::GatherRows { from, rows, to }.into());
            chosen.poison(&mut case, to);
            let weights = case.reals(chosen.tokens, chosen.per_token, index % 3, Values::Wild);
            let (y, out) = (to, from);
            for (weights, write) in [(Some(weights), Write::Assign), (None, Write::Accumulate)] {
                bench.compare(&case, &ExpertOp::CombineRows { y, weights, rows, out, write }.into());
            }
        }
    }
}

/// The CPU asserts it.
#[needs::cuda]
#[test]
fn more_rows_than_room_stop_the_kernel() {
    let bench = Bench::of(&["expert_rows"]);
    let mut case = Case::new(0);
    let mut chosen = chosen(&mut case, [5, 8, 2, 0, 8], Spread::Even);
    let rows = chosen.places(&mut case);
    // Two slots of each token are of experts, and five rows have room.
    chosen.per_token = 1;
    let slots = Tensor { cols: chosen.room(), row_stride: chosen.room(), ..rows.slots };
    let choice = case.ints(&chosen.choice);
    let choice = Tensor { rows: 5, cols: 2, row_stride: 2, ..choice };
    let rows = device::ExpertRows { slots, ..rows };
    let failure = bench.failure(&case, &ExpertOp::GroupRows { choice, first_expert: 0, rows }.into());
    assert!(failure.contains("a fault in a kernel") && failure.contains("group_rows of I32[5, 2]"), "{failure}");
}
