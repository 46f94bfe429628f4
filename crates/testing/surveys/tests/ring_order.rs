//! Blocks of keys and values that travel while attention is computed: the streams of a rank touch no byte at the same
//! time, each wait between them is needed, and the bits are those of shifts in line, of ranks without overlap.

#![allow(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::sync::Mutex;

use config::{
    ChunkOrder, ContextKind, ContextParallel, Degrees, Gathering, GradientReduction, ModelSpec, Parallelism, Reshard,
    TrainSpec, ZeroStage,
};
use device::Stream;
use prove::outcome_of;
use surveys::interleavings::overlapped;
use testkit::layout::Layout;
use testkit::models::{Style, plain_layout, proof_model, proof_text, proof_training};
use testkit::stream_log::StreamLog;
use testkit::wrapped_engine::WrappedEngine;

/// Two sequences of 48 tokens for each of two microbatches of a replica.
fn layout(degrees: Degrees, chunks: ChunkOrder, zero: ZeroStage) -> Layout {
    let context = ContextParallel { kind: ContextKind::Ring, chunks };
    let Degrees { dp, tp, pp, .. } = degrees;
    let parallelism = Parallelism { degrees, context, zero, microbatch_size: 2, ..plain_layout(dp, tp, pp, 1) };
    let proof = proof_training();
    let train = TrainSpec { steps: 1, warmup_steps: 0, global_batch: 4 * dp, sequence_length: 48, ..proof };
    Layout {
        model: ModelSpec { context: 48, num_layers: 2, ..proof_model(Style::Llama, 4, false) },
        parallelism,
        train,
    }
}

fn layouts() -> Vec<Layout> {
    let degrees = |dp, cp, tp, pp| Degrees { dp, cp, tp, pp };
    let gathering = Gathering { prefetch: 1, reshard: Reshard::AfterUse };
    let gathered = ZeroStage::Three { reduce: GradientReduction::Step, gathering };
    vec![
        layout(degrees(1, 2, 1, 1), ChunkOrder::Balanced, ZeroStage::Off),
        layout(degrees(1, 3, 1, 1), ChunkOrder::Balanced, ZeroStage::One),
        layout(degrees(1, 4, 1, 1), ChunkOrder::Contiguous, ZeroStage::Off),
        layout(degrees(2, 2, 2, 2), ChunkOrder::Balanced, gathered),
    ]
}

/// Each layout with the logs of its ranks.
fn logged(layout: &Layout) -> Vec<StreamLog> {
    let logs = Mutex::new(vec![]);
    let overlapped = overlapped(layout);
    let setup = overlapped.setup().unwrap();
    let wrap = |_, rank| {
        let log = StreamLog::default();
        logs.lock().unwrap().push(log.clone());
        log.of(rank)
    };
    let engine = WrappedEngine::new(&setup, &wrap);
    outcome_of(&setup, &engine, &proof_text()).unwrap();
    drop(engine);
    logs.into_inner().unwrap()
}

#[test]
fn no_byte_is_touched_by_two_streams_at_once_and_each_wait_is_needed() {
    for layout in layouts() {
        for log in logged(&layout) {
            let name = layout.parallelism.degrees.to_string();
            let replay = log.replay(Stream::Shift, None);
            assert_eq!(replay.conflicts, Vec::<String>::new(), "{name}");
            let cp = layout.parallelism.degrees.cp;
            // Per layer and microbatch: cp - 1 blocks in each pass, and cp times the sums of gradients.
            let passes = log.accesses_of(Stream::Shift) / (3 * cp - 2);
            assert!(passes > 0 && log.accesses_of(Stream::Shift) == passes * (3 * cp - 2), "{name}");
            // A wait on each side of each shift, but for blocks that follow sums of gradients in the backward pass.
            assert_eq!(replay.waits.len(), passes * (2 * (3 * cp - 2) - (cp - 2)), "{name}");
            for wait in replay.waits.iter().take(2 * (3 * cp - 2)).chain(replay.waits.iter().rev().take(4)) {
                let found = log.replay(Stream::Shift, Some(*wait)).conflicts;
                assert!(
                    found.iter().any(|conflict| conflict.contains("shift of bytes")),
                    "{name}, wait {wait}: {found:?}"
                );
            }
        }
    }
}

#[test]
fn shifts_during_attention_have_the_bits_of_shifts_in_line() {
    for layout in layouts() {
        let [in_line, during] =
            [layout.clone(), overlapped(&layout)].map(|layout| layout.outcome(&proof_text()).unwrap());
        assert_eq!((&in_line.losses, &in_line.gradients), (&during.losses, &during.gradients));
        assert_eq!((&in_line.norms, &in_line.weights), (&during.norms, &during.weights));
    }
}
