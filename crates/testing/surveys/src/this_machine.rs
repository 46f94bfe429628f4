//! Twelve layouts of a small model on this machine: predicted, and run.

mod child;
mod stained;

use std::sync::Mutex;
use std::time::Duration;

use cluster::Cluster;
use config::{Overlap, RunConfig};
use cpu::gemm::PackingBuffers;
use mesh::{Axis, Rank};
use plan::PreparedStep;
use program::{Extent, RankPlan, plan_memory};
use sync::lock;
use testkit::layout::engine;
use testkit::text::{Labels, ProofText};
use train::{Observer, Ports, Setup, SetupError, StepReport, StopRequest, TrainError, run};

use crate::resident::{peak_bytes, resident_bytes, restart_peak};
use stained::{LINE_BYTES, Stained};

pub use child::{answer, run_in_child};

/// Settings of all runs, over the defaults of a run file.
pub const SMALL_MODEL: [&str; 9] = [
    "model.num_layers=2",
    "model.hidden=256",
    "model.num_heads=4",
    "model.context=128",
    "model.vocabulary=1024",
    "model.dropout=0.0",
    "train.sequence_length=128",
    "train.global_batch=8",
    "train.steps=8",
];

/// Names with the keys of `[parallelism]` that they set; two ranks at most, one for each of two cores.
pub const LAYOUTS: [Layout; 12] = [
    ("one rank", &["dp=1", "tp=1", "pp=1", "zero=0", "microbatch_size=4"]),
    ("one rank, small microbatches", &["dp=1", "tp=1", "pp=1", "zero=0", "microbatch_size=1"]),
    ("one rank, full recomputation", &["dp=1", "tp=1", "pp=1", "zero=0", "microbatch_size=4", "recompute=full"]),
    ("dp 2", &["dp=2", "tp=1", "pp=1", "zero=0", "microbatch_size=2"]),
    ("dp 2, ZeRO 1", &["dp=2", "tp=1", "pp=1", "zero=1", "microbatch_size=2"]),
    ("dp 2, ZeRO 2", &["dp=2", "tp=1", "pp=1", "zero=2", "microbatch_size=2"]),
    ("dp 2, ZeRO 3", &["dp=2", "tp=1", "pp=1", "zero=3", "microbatch_size=2"]),
    ("tp 2", &["dp=1", "tp=2", "pp=1", "zero=0", "microbatch_size=2"]),
    ("tp 2, sequence parallel", &["dp=1", "tp=2", "pp=1", "zero=0", "microbatch_size=2", "sequence_parallel=true"]),
    ("pp 2, 1F1B", &["dp=1", "tp=1", "pp=2", "zero=0", "microbatch_size=2"]),
    ("pp 2, GPipe", &["dp=1", "tp=1", "pp=2", "zero=0", "microbatch_size=2", "schedule=gpipe"]),
    ("pp 2, ZB-H1", &["dp=1", "tp=1", "pp=2", "zero=0", "microbatch_size=2", "schedule=zb-h1"]),
];

/// Steps that bring the machine to its speed; the others are measured.
const WARM_UP: usize = 3;

/// A layout: its name, and the keys of `[parallelism]` that it sets.
pub type Layout = (&'static str, &'static [&'static str]);

/// Predictions for a layout.
#[derive(Clone, Debug, PartialEq)]
pub struct Predicted {
    /// Seconds of a step.
    pub step_s: f64,
    /// The arena of each rank.
    pub arenas: Vec<PlannedArena>,
}

/// Arenas and packing buffers are on pages of this size where the system has them.
const HUGE_PAGE_BYTES: usize = 2 << 20;

impl Predicted {
    /// Bytes by which the process grows: for each rank its arena and the buffers into which it packs operands of
    /// products, in huge pages.
    pub fn resident_bytes(&self) -> usize {
        let pages = |bytes: usize| bytes.next_multiple_of(HUGE_PAGE_BYTES);
        self.arenas.iter().map(|arena| pages(arena.size_bytes) + pages(PackingBuffers::BYTES)).sum()
    }
}

/// The arena of one rank, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedArena {
    pub size_bytes: usize,
    /// Lines in which some value has its place at some time; the others are gaps between values.
    pub used_bytes: usize,
}

impl PlannedArena {
    /// Result of `plan`.
    pub fn of(plan: &RankPlan) -> PlannedArena {
        let values = plan.lives().iter().map(|life| life.extent).chain(plan.state().iter().map(|(_, extent)| *extent));
        let mut places: Vec<Extent> = values.chain([plan.scratch()]).collect();
        places.sort_unstable_by_key(|place| place.offset_bytes);
        let (mut used_bytes, mut end) = (0, 0);
        for Extent { offset_bytes, len_bytes } in places {
            let place_end = offset_bytes + len_bytes.next_multiple_of(LINE_BYTES);
            used_bytes += place_end.saturating_sub(end.max(offset_bytes));
            end = end.max(place_end);
        }
        PlannedArena { size_bytes: plan.host_bytes() + plan.arena_bytes(), used_bytes }
    }
}

/// Measurements of a layout.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Seconds of a step, the median of five.
    pub step_s: f64,
    /// Bytes that each rank wrote in its arena and past its end, in whole lines.
    pub written_bytes: Vec<usize>,
    /// Bytes of the process that were resident before the ranks began, where the system says it.
    pub before_bytes: Option<usize>,
    /// The most that were resident while they ran.
    pub peak_bytes: Option<usize>,
}

/// A run of the small model.
fn config(layout: Layout) -> Result<RunConfig, String> {
    let (name, keys) = layout;
    let own = keys.iter().map(|key| format!("parallelism.{key}"));
    let overrides: Vec<String> = SMALL_MODEL.iter().map(|key| key.to_string()).chain(own).collect();
    RunConfig::load(name, "", &overrides)
        .map_err(|problems| problems.iter().map(|problem| format!("{name}: {problem}")).collect::<Vec<_>>().join("\n"))
}

/// The step of a layout, to be timed on any profile.
///
/// # Errors
/// Keys that make no run, in words.
pub fn prepared(layout: Layout) -> Result<PreparedStep, String> {
    let RunConfig { model, parallelism, train, .. } = config(layout)?;
    PreparedStep::new(&model, &parallelism, &train, None).map_err(|error| error.to_string())
}

/// Predicts a layout on `cluster`, the profile of this machine.
///
/// # Errors
/// Keys that make no run, in words.
pub fn predict(cluster: &Cluster, layout: Layout) -> Result<Predicted, String> {
    let parallelism = config(layout)?.parallelism;
    let step = prepared(layout)?;
    let mesh = parallelism.mesh().map_err(|error| error.to_string())?;
    let plan = plan_memory(&step.graph, &step.sizes, Overlap::Off);
    let stage = |rank| mesh.coord(Rank(rank)).along(Axis::Pp);
    let arenas = (0..mesh.world_size()).map(|rank| PlannedArena::of(&plan.ranks[stage(rank)])).collect();
    let step_ns = step.on(cluster).map_err(|error| error.to_string())?.step_ns();
    Ok(Predicted { step_s: step_ns as f64 * 1e-9, arenas })
}

/// Runs a layout in this process: once for its time and its resident memory, and once more with stained arenas.
///
/// # Errors
/// Keys that make no run, in words.
pub fn run_layout(layout: Layout) -> Result<Measured, String> {
    let RunConfig { model, parallelism, train, .. } = config(layout)?;
    let tokens = ProofText { vocabulary: model.vocabulary, seed: 1, labels: Labels::Every };
    let setup = Setup::new(model, parallelism, train).map_err(|error: SetupError| error.to_string())?;
    let failed = |error: TrainError| error.to_string();
    let walls = WallTimes::default();
    restart_peak();
    let before_bytes = resident_bytes();
    run(&setup, &*engine(&setup, 1), Ports::new(&tokens, &walls)).map_err(failed)?;
    let peak_bytes = peak_bytes();
    let stained = Stained::of(setup.mesh.world_size());
    run(&setup, &stained.engine(&setup), Ports::new(&tokens, &WallTimes::default())).map_err(failed)?;
    let written_bytes = stained.written_bytes();
    Ok(Measured { step_s: walls.median_s().unwrap_or_default(), written_bytes, before_bytes, peak_bytes })
}

/// Wall times of steps.
#[derive(Default)]
struct WallTimes(Mutex<Vec<Duration>>);

impl WallTimes {
    fn median_s(&self) -> Option<f64> {
        let mut walls = lock(&self.0).split_off(WARM_UP);
        walls.sort_unstable();
        walls.get(walls.len() / 2).map(Duration::as_secs_f64)
    }
}

impl Observer for WallTimes {
    fn step(&self, report: &StepReport) -> StopRequest {
        lock(&self.0).push(report.wall);
        StopRequest::None
    }
}
