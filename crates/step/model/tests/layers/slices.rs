//! The tokens of each rank that shares sequences.

use config::{ChunkOrder, ContextKind, SequenceSlices};
use model::{MicrobatchShape, TokenRun};

#[test]
fn rows_are_the_tokens_of_one_sequence_after_the_other() {
    let slices = SequenceSlices { ranks: 2, order: ChunkOrder::Balanced, kind: ContextKind::Gather };
    let shape = MicrobatchShape { sequences: 2, sequence_length: 8, slices };
    let run = |rows, sequence, places| TokenRun { rows, sequence, places };
    let runs: Vec<TokenRun> = shape.runs(1).collect();
    assert_eq!(runs, [run(0..2, 0, 2..4), run(2..4, 0, 4..6), run(4..6, 1, 2..4), run(6..8, 1, 4..6)]);
    assert_eq!(runs[2].rows_of_all(8), 10..12);
    assert_eq!(runs[1].within(&(3..7)), Some(run(3..4, 0, 5..6)));
    assert_eq!(runs[0].within(&(3..7)), None);
}
