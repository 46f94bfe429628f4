//! Ranks on GPUs that share sequences, in each of the ways to the keys and values of the others.

use config::{
    ChunkOrder, ContextKind, ContextParallel, Degrees, ModelSpec, Overlap, Parallelism, Tied, TrainSpec, ZeroStage,
};
use testkit::layout::Layout;

use crate::gpu_runs::rig::{ZERO_THREE, compare, layout};

const STEPS: u32 = 3;
/// Tokens of a sequence: masks of dropout are drawn for four keys of a chunk at once.
const LENGTH: usize = 32;

pub fn shared(tied: Tied, degrees: Degrees, kind: ContextKind, chunks: ChunkOrder, zero: ZeroStage) -> Layout {
    let Degrees { dp, tp, pp, .. } = degrees;
    let plain = layout(tied, [dp, tp, pp], zero, Overlap::On, STEPS);
    let context = ContextParallel { kind, chunks };
    Layout {
        model: ModelSpec { context: LENGTH, num_layers: 2, ..plain.model },
        parallelism: Parallelism { degrees, context, ..plain.parallelism },
        train: TrainSpec { sequence_length: LENGTH, global_batch: 4, ..plain.train },
    }
}

/// All ranks on one GPU, whose memory they exchange blocks in; and each on its own, by way of the host.
fn on_one_and_on_several(layout: &Layout) {
    compare(layout, 1);
    compare(layout, layout.parallelism.world_size());
}

pub const FOUR: Degrees = Degrees { dp: 1, cp: 2, tp: 2, pp: 1 };

#[needs::cuda]
#[test]
fn keys_that_are_gathered() {
    on_one_and_on_several(&shared(Tied::No, FOUR, ContextKind::Gather, ChunkOrder::Balanced, ZERO_THREE));
}

#[needs::cuda]
#[test]
fn heads_that_are_exchanged() {
    on_one_and_on_several(&shared(Tied::Yes, FOUR, ContextKind::Heads, ChunkOrder::Contiguous, ZeroStage::One));
}

#[needs::cuda]
#[test]
fn blocks_that_are_passed_around() {
    compare(&shared(Tied::No, FOUR, ContextKind::Ring, ChunkOrder::Balanced, ZeroStage::One), 1);
    let of_four = Degrees { cp: 4, tp: 1, ..FOUR };
    compare(&shared(Tied::Yes, of_four, ContextKind::Ring, ChunkOrder::Balanced, ZERO_THREE), 4);
}
