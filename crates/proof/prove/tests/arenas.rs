//! Arenas are little larger than what lives in them at once.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use config::{
    DataSpec, Files, FullRecompute, ModelSpec, Parallelism, Recompute, RunConfig, SavedInputs, ScheduleKind,
    ScheduleSpec, SequenceParallel,
};
use testkit::models::{Style, plain_layout, proof_model, proof_training};
use testkit::run_files::run_files;
use train::Setup;

/// Gaps between values that live together may take this share of what is alive.
const LARGEST_RATIO: f64 = 1.02;

/// The same where a rank runs several stages in turns or the two parts of a backward apart: values of several sizes
/// then live and die in an order of their own each, and placing them leaves larger gaps.
const LARGEST_RATIO_IN_TURNS: f64 = 1.04;

fn allowed(schedule: &ScheduleSpec) -> f64 {
    match schedule {
        ScheduleSpec::Generated(ScheduleKind::GPipe | ScheduleKind::OneForwardOneBackward) => LARGEST_RATIO,
        ScheduleSpec::Generated(
            ScheduleKind::Interleaved { .. }
            | ScheduleKind::ZeroBubbleH1
            | ScheduleKind::ZeroBubbleH2
            | ScheduleKind::ZeroBubbleV
            | ScheduleKind::ZeroBubbleAuto { .. },
        )
        | ScheduleSpec::Given(_) => LARGEST_RATIO_IN_TURNS,
    }
}

/// The largest ratio of a rank's arena to its largest live sum.
fn ratio(setup: &Setup) -> f64 {
    let stages = 0..setup.parallelism.degrees.pp;
    let ratios = stages.map(|stage| setup.plan(stage)).map(|plan| {
        assert!(plan.arena_bytes() >= plan.largest_live_bytes());
        plan.arena_bytes() as f64 / plan.largest_live_bytes() as f64
    });
    ratios.fold(1.0, f64::max)
}

/// Files as the examples name them: from the repository's root.
struct Root;

impl Files for Root {
    fn vocabulary(&self, _: &DataSpec) -> Result<usize, String> {
        Err("no example needs it".into())
    }

    fn text(&self, path: &Path) -> Result<String, String> {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."));
        std::fs::read_to_string(root.join(path)).map_err(|error| error.to_string())
    }
}

#[test]
fn arenas_of_run_files_are_full() {
    let mut worst = (0.0, String::new());
    for (name, text) in run_files() {
        let (config, _) = RunConfig::load_with("example", &text, &[], &Root).unwrap();
        let allowed = allowed(&config.parallelism.schedule);
        let ratio = ratio(&Setup::new(config.model, config.parallelism, config.train).unwrap());
        assert!(ratio <= allowed, "{name}: {ratio}");
        if ratio > worst.0 {
            worst = (ratio, name);
        }
    }
    println!("largest ratio {} in {}", worst.0, worst.1);
}

/// Ways in which tensor-parallel ranks shard what they keep.
fn manners() -> [(SequenceParallel, Recompute); 6] {
    let full = |every, inputs| Recompute::Full(FullRecompute { every, inputs });
    [
        (SequenceParallel::Off, Recompute::None),
        (SequenceParallel::Off, Recompute::Selective),
        (SequenceParallel::Off, Recompute::FULL),
        (SequenceParallel::Off, full(1, SavedInputs::Sharded)),
        (SequenceParallel::Off, full(2, SavedInputs::Sharded)),
        (SequenceParallel::On, Recompute::None),
    ]
}

/// A model that is wide enough for the multiples of [`device::ALIGN_BYTES`] at which values begin: in the proofs' own,
/// rounding alone makes gaps.
fn wide(style: Style) -> ModelSpec {
    let narrow = proof_model(style, 4, style == Style::Gpt2);
    let [hidden, head_dim, ffn_hidden] = [narrow.hidden, narrow.head_dim, narrow.ffn_hidden].map(|size| 4 * size);
    ModelSpec { hidden, head_dim, ffn_hidden, ..narrow }
}

#[test]
fn arenas_of_many_layouts_are_full() {
    let mut worst = (0.0, String::new());
    for style in [Style::Gpt2, Style::Llama] {
        for pp in [1, 2, 3, 4, 5, 7, 8, 12, 16] {
            for (microbatch_size, tp) in [(1, 1), (2, 2), (4, 4)] {
                for schedule in [ScheduleKind::GPipe, ScheduleKind::OneForwardOneBackward] {
                    for (sequence_parallel, recompute) in manners() {
                        let plain = plain_layout(1, tp, pp, microbatch_size);
                        let layout = Parallelism { schedule: schedule.into(), sequence_parallel, recompute, ..plain };
                        let setup = Setup::new(wide(style), layout.clone(), proof_training()).unwrap();
                        let ratio = ratio(&setup);
                        if ratio > worst.0 {
                            worst = (ratio, format!("{style:?} {layout:?}"));
                        }
                    }
                }
            }
        }
    }
    println!("largest ratio {} in {}", worst.0, worst.1);
    assert!(worst.0 <= LARGEST_RATIO, "{worst:?}");
}
