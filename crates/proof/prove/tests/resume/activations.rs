//! Activations in memory of the host change no bit of a run, whatever the layout.

use config::{
    ContextKind, ContextParallel, Degrees, Format, FullRecompute, GradientReduction, Offload, Overlap, Parallelism,
    Recompute, SavedInputs, ScheduleKind, SequenceParallel, Tied, TrainSpec, ZeroStage,
};
use testkit::layout::Layout;
use testkit::models::plain_layout;

use crate::resume::pairs::{THREE, zero};
use crate::resume::rig::{in_two, layout, whole};

fn offloaded(layout: &Layout, offload: Offload) -> Layout {
    Layout { train: TrainSpec { offload, ..layout.train.clone() }, ..layout.clone() }
}

/// Every ZeRO stage, way of recomputing, kind of schedule and way of sharing sequences.
fn parallelisms() -> Vec<Parallelism> {
    let two = ZeroStage::Two { reduce: GradientReduction::Step };
    let sharded = Recompute::Full(FullRecompute { every: 2, inputs: SavedInputs::Sharded });
    let mut all = vec![zero(ZeroStage::Off, 1, 1, 1)];
    for (stage, recompute) in [
        (ZeroStage::Off, Recompute::None),
        (ZeroStage::One, Recompute::Selective),
        (two, Recompute::FULL),
        (THREE, sharded),
    ] {
        all.push(Parallelism { recompute, ..zero(stage, 2, 2, 2) });
    }
    let kinds = [
        ScheduleKind::GPipe,
        ScheduleKind::Interleaved { stages_per_rank: 2 },
        ScheduleKind::ZeroBubbleH1,
        ScheduleKind::ZeroBubbleV,
        ScheduleKind::ZeroBubbleAuto { memory_percent: 200 },
    ];
    all.extend(kinds.map(|kind| Parallelism { schedule: kind.into(), ..plain_layout(1, 1, 3, 2) }));
    all.extend(ContextKind::ALL.map(|kind| {
        let degrees = Degrees { dp: 1, cp: 2, tp: 1, pp: 2 };
        let context = ContextParallel { kind, ..ContextParallel::DEFAULT };
        Parallelism { degrees, context, ..plain_layout(1, 1, 2, 2) }
    }));
    all.push(Parallelism { sequence_parallel: SequenceParallel::On, ..zero(ZeroStage::One, 1, 2, 2) });
    all
}

#[test]
fn runs_have_the_bits_of_those_without() {
    for (number, parallelism) in parallelisms().into_iter().enumerate() {
        let format = if number % 2 == 0 { Format::Fp32 } else { Format::Bf16 };
        let tied = if number % 3 == 0 { Tied::Yes } else { Tied::No };
        for (overlap, offload) in [(Overlap::Off, Offload::Activations), (Overlap::On, Offload::All)] {
            let mut layout = layout(tied, format, Parallelism { overlap: Some(overlap), ..parallelism.clone() });
            if parallelism.degrees.cp > 1 {
                // Masks of dropout are drawn for four keys of a chunk at once.
                (layout.model.context, layout.train.sequence_length, layout.train.global_batch) = (32, 32, 8);
            }
            let (with, without) = (whole(&offloaded(&layout, offload)), whole(&layout));
            assert!(with == without, "{format:?} {overlap:?} {parallelism:?}");
        }
    }
}

/// Programs of one run that need other memory of the host have one arena: those of a batch that grows, of evaluations
/// and of resumed steps.
#[test]
fn batches_that_grow_and_resumed_runs_have_the_bits_of_those_without() {
    let mut plain = layout(Tied::Yes, Format::Bf16, zero(ZeroStage::One, 2, 1, 2));
    let batch = plain.train.global_batch;
    plain.train.batch_ramp = Some(config::BatchRamp {
        start: batch / 2,
        increment: batch / 4,
        sequences: (batch + batch / 2) as u64,
        grows: config::BatchGrowth::Microbatches,
    });
    let expected = whole(&plain);
    let with = offloaded(&plain, Offload::Activations);
    assert!(whole(&with) == expected, "a batch that grows");
    for (before, after) in [(&with, &plain), (&plain, &with)] {
        assert!(in_two(before, after, 2) == expected, "{:?} to {:?}", before.train.offload, after.train.offload);
    }
}
