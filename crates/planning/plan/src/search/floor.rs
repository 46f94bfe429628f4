//! Lower bounds of a layout's time and memory, in closed form. `docs/planner.md` proves both.

use std::collections::BTreeMap;

use cluster::{Software, Updates};
use config::{
    Degrees, Kept, LayerRecompute, Masters, MemoryKind, Optimizer, Parallelism, PerClass, RunConfig, ScheduleKind,
    ScheduleSpec, Stage, StateKind, TrainSpec, Unit, UnitLayout, params, unique_parameters,
};
use mesh::AxisSet;
use program::{Cell, CellKind, Schedule, StageCosts, StageSplit, split_stages};

use super::recordings::{Key, Recording, Recordings};

/// Least costs of layouts; what several have in common is found once.
#[derive(Debug)]
pub struct Floors<'a> {
    recordings: &'a Recordings<'a>,
    splits: BTreeMap<(Key, usize), Option<StageSplit>>,
    /// By schedule, ranks and microbatches: passes that each rank holds at once.
    held: BTreeMap<(ScheduleKind, usize, usize), Vec<usize>>,
    /// By tp and ep: elements of each unit on one rank, and the axes over which they are sharded.
    elements: BTreeMap<(usize, usize), PerClass<(usize, AxisSet)>>,
}

/// Lower bounds of a layout.
#[derive(Clone, Debug, PartialEq)]
pub struct Floor {
    /// The stages whose slowest is fastest.
    pub split: StageSplit,
    /// No step is shorter.
    pub least_ns: u64,
    /// The largest rank has no less.
    pub memory_bytes: f64,
    /// Which rank that is, as far as is known.
    pub largest: usize,
}

impl Floor {
    /// The layout whose floor it is, with its stages written out.
    pub(super) fn laid_out(&self, parallelism: Parallelism) -> Parallelism {
        Parallelism { stage_layers: Some(self.split.layers_per_stage().to_vec()), ..parallelism }
    }
}

impl<'a> Floors<'a> {
    /// For layouts that were recorded.
    pub fn new(recordings: &'a Recordings<'a>) -> Floors<'a> {
        let (splits, held, elements) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Floors { recordings, splits, held, elements }
    }

    /// The floor of a layout; nothing where its layers make no stages.
    pub fn of(&mut self, parallelism: &Parallelism) -> Option<Floor> {
        let passes = self.recordings.of(parallelism);
        let config = self.recordings.config();
        let stages_per_rank = parallelism.schedule.stages_per_rank().unwrap_or(1);
        let num_stages = parallelism.degrees.pp * stages_per_rank;
        let split = self.splits.entry((Key::of(parallelism), num_stages)).or_insert_with(|| {
            let work = passes.ns.map(|_, ns| ns.iter().sum());
            split_stages(config.model.num_layers, num_stages, &work).ok()
        });
        let split = split.clone()?;
        // Neither replicas nor stages change a rank's elements of a unit.
        let Degrees { dp: _, cp: _, tp, pp } = parallelism.degrees;
        let elements = self.elements.entry((tp, parallelism.ep)).or_insert_with(|| {
            let (model, classes) = (&config.model, config.model.classes());
            let layout = |unit| UnitLayout::new(params(model, unit), parallelism.axis_sizes(), 1);
            let layouts = PerClass::new(&classes, |class| layout(classes.first(class)));
            layouts.map(|_, layout| (layout.len, layout.axes().shards))
        });
        let kind = kind(parallelism);
        // A rank reaches its largest memory long before this many microbatches have passed.
        let few = parallelism.num_microbatches(config.train.global_batch).min(FEW_PER_RANK * pp);
        let held = self.held.entry((kind, pp, few)).or_insert_with(|| passes_held(kind, pp, few));
        let shape = Shape { config, parallelism, passes, split: &split, held, trainer: self.recordings.software() };
        let least_ns = shape.least_ns();
        let (largest, memory_bytes) = shape.memory_bytes(elements);
        Some(Floor { least_ns, memory_bytes, largest, split })
    }
}

/// Microbatches per pipeline rank after which a schedule only repeats itself.
pub(super) const FEW_PER_RANK: usize = 4;

fn kind(parallelism: &Parallelism) -> ScheduleKind {
    match &parallelism.schedule {
        ScheduleSpec::Generated(kind) => *kind,
        ScheduleSpec::Given(_) => ScheduleKind::OneForwardOneBackward,
    }
}

/// Passes of microbatches through its stages that each rank has run forward and not yet backward, at most: counted in
/// the schedule. The cost of passes moves only backward passes of the weights, which are not counted.
fn passes_held(kind: ScheduleKind, pp: usize, num_microbatches: usize) -> Vec<usize> {
    let schedule = Schedule::generate(kind, pp, num_microbatches, &StageCosts::EVEN);
    let most = |cells: &Vec<Cell>| {
        let (mut held, mut most) = (0usize, 0);
        for cell in cells {
            match cell.kind {
                CellKind::F => held += 1,
                CellKind::B | CellKind::I => held -= 1,
                CellKind::W => {}
            }
            most = most.max(held);
        }
        most
    };
    schedule.ranks.iter().map(most).collect()
}

/// One layout with what is known of it.
struct Shape<'a> {
    config: &'a RunConfig,
    parallelism: &'a Parallelism,
    passes: &'a Recording<'a>,
    split: &'a StageSplit,
    held: &'a [usize],
    trainer: Option<&'a Software>,
}

const FORWARD: usize = 0;
const RECOMPUTE: usize = 1;
const BACKWARD_INPUT: usize = 2;
const BACKWARD_WEIGHT: usize = 3;

/// How a schedule runs backward passes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Backward {
    /// In one piece.
    Full,
    /// Of inputs and of weights apart.
    Split,
}

impl Shape<'_> {
    fn backward(&self) -> Backward {
        match kind(self.parallelism) {
            ScheduleKind::GPipe | ScheduleKind::OneForwardOneBackward | ScheduleKind::Interleaved { .. } => {
                Backward::Full
            }
            ScheduleKind::ZeroBubbleH1
            | ScheduleKind::ZeroBubbleH2
            | ScheduleKind::ZeroBubbleV
            | ScheduleKind::ZeroBubbleAuto { .. } => Backward::Split,
        }
    }

    /// Nanoseconds of one pass of a microbatch through a stage.
    fn stage_ns(&self, stage: usize, pass: usize) -> u64 {
        self.units(stage).map(|unit| self.passes.ns.of(unit)[pass]).sum()
    }

    fn units(&self, stage: usize) -> impl DoubleEndedIterator<Item = Unit> + use<> {
        self.split.units(Stage(stage as u32))
    }

    fn layers(&self, stage: usize) -> impl DoubleEndedIterator<Item = Unit> + use<> {
        self.split.layers(Stage(stage as u32)).map(Unit::Layer)
    }

    /// The stages of a pipeline rank, ascending.
    fn stages_of(&self, rank: usize) -> Vec<usize> {
        let pp = self.parallelism.degrees.pp;
        match kind(self.parallelism) {
            ScheduleKind::ZeroBubbleV => vec![rank, 2 * pp - 1 - rank],
            ScheduleKind::GPipe
            | ScheduleKind::OneForwardOneBackward
            | ScheduleKind::Interleaved { .. }
            | ScheduleKind::ZeroBubbleH1
            | ScheduleKind::ZeroBubbleH2
            | ScheduleKind::ZeroBubbleAuto { .. } => (rank..self.split.num_stages()).step_by(pp).collect(),
        }
    }

    fn updates(&self) -> Updates {
        self.trainer.map_or(Updates::AfterNorm, |trainer| trainer.updates)
    }

    fn num_microbatches(&self) -> u64 {
        self.parallelism.num_microbatches(self.config.train.global_batch) as u64
    }

    /// The longest of: what comes to a rank before it can begin, what it computes, and what others compute after it.
    fn least_ns(&self) -> u64 {
        let (mut before, mut after, mut least) = (0, 0, 0);
        for rank in 0..self.parallelism.degrees.pp {
            let stages = self.stages_of(rank);
            let sum = |pass: usize| stages.iter().map(|stage| self.stage_ns(*stage, pass)).sum::<u64>();
            let of_inputs = sum(FORWARD) + sum(RECOMPUTE) + sum(BACKWARD_INPUT);
            let all = self.num_microbatches() * (of_inputs + sum(BACKWARD_WEIGHT));
            let alone = match (self.updates(), self.backward()) {
                // Others are in another step meanwhile.
                (Updates::BeforeNorm, _) => all,
                (Updates::AfterNorm, Backward::Full) => before + all + after,
                (Updates::AfterNorm, Backward::Split) => before + all.max(self.num_microbatches() * of_inputs + after),
            };
            least = least.max(alone);
            before += self.stage_ns(rank, FORWARD);
            after += self.stage_ns(rank, BACKWARD_INPUT);
            if self.backward() == Backward::Full {
                // The first recomputation of the stage may run before the gradient comes.
                let first = self.layers(rank).next_back().map_or(0, |layer| self.passes.ns.of(layer)[RECOMPUTE]);
                after += self.stage_ns(rank, BACKWARD_WEIGHT) + self.stage_ns(rank, RECOMPUTE) - first;
            }
        }
        least
    }

    /// The largest rank; its state, and what the passes keep that it holds at once.
    fn memory_bytes(&self, elements: &PerClass<(usize, AxisSet)>) -> (usize, f64) {
        let recompute = self.parallelism.recompute_to_do().of_layer(0);
        let kept_bytes = |layer: Unit| {
            let footprint = self.passes.footprints.units.of(layer);
            let saved = footprint.saved_until_input_bytes + footprint.saved_until_weight_bytes;
            match recompute {
                // Its input is kept as well, as the output of the layer before.
                LayerRecompute::Nothing | LayerRecompute::Core => saved + footprint.output_bytes,
                LayerRecompute::Everything(_) if footprint.saved_input_bytes > 0 => footprint.saved_input_bytes,
                LayerRecompute::Everything(_) => footprint.output_bytes,
            }
        };
        let last_stage = self.split.num_stages() - 1;
        let of_rank = |rank: usize| {
            let stages = self.stages_of(rank);
            let stage_kept_bytes = |stage: &usize| self.layers(*stage).map(kept_bytes).sum::<usize>();
            let least_kept_bytes = stages.iter().map(stage_kept_bytes).min().unwrap_or(0);
            let tied = stages.contains(&last_stage) && self.config.model.tied_embeddings;
            let table = (stages.contains(&0) || tied).then_some(Unit::Table);
            let units = stages.iter().flat_map(|stage| self.units(*stage)).chain(table);
            let mut by_axes: BTreeMap<AxisSet, usize> = BTreeMap::new();
            units.map(|unit| elements.of(unit)).for_each(|(len, axes)| *by_axes.entry(*axes).or_default() += len);
            let bytes = |of_one: &dyn Fn(AxisSet) -> f64| -> f64 {
                by_axes.iter().map(|(axes, len)| *len as f64 * of_one(*axes)).sum()
            };
            // In memory of the host they are elsewhere, but those of the layer that computes.
            let activations = match self.config.train.offload.activations() {
                MemoryKind::Arena => self.held[rank] as f64 * least_kept_bytes as f64,
                MemoryKind::Host => {
                    let layers = stages.iter().flat_map(|stage| self.layers(*stage));
                    layers.map(kept_bytes).max().unwrap_or(0) as f64
                }
            };
            // A shard of the gradients lives from the first reduction on, when activations may be gone.
            let reduced = bytes(&|shards| self.reduced_bytes(shards));
            bytes(&|shards| self.state_bytes(shards)) + activations.max(reduced)
        };
        let all = (0..self.parallelism.degrees.pp).map(|rank| (rank, of_rank(rank)));
        all.max_by(|one, other| one.1.total_cmp(&other.1)).unwrap_or((0, 0.0))
    }

    fn share(&self, shards: AxisSet, state: StateKind) -> f64 {
        match self.parallelism.zero.keeps(state) {
            Kept::Whole => 1.0,
            Kept::Shard => 1.0 / self.parallelism.axis_sizes().size(shards) as f64,
        }
    }

    /// Bytes of one parameter of a unit that is sharded over `shards`, which live throughout the step.
    fn state_bytes(&self, shards: AxisSet) -> f64 {
        let precision = self.config.train.precision;
        let gradients = match self.parallelism.zero.keeps(StateKind::Gradients) {
            Kept::Whole => gradient_bytes(self.trainer),
            Kept::Shard => 0.0,
        };
        precision.stored().size_bytes() as f64 * self.share(shards, StateKind::Parameters)
            + gradients
            + moment_bytes(&self.config.train, self.trainer) * self.share(shards, StateKind::Optimizer)
    }

    /// Bytes of one parameter's gradient where ranks keep shards of the sum.
    fn reduced_bytes(&self, shards: AxisSet) -> f64 {
        match self.parallelism.zero.keeps(StateKind::Gradients) {
            Kept::Whole => 0.0,
            Kept::Shard => gradient_bytes(self.trainer) * self.share(shards, StateKind::Gradients),
        }
    }
}

/// Bytes of the moments of a parameter, and of its master where it has one apart.
fn moment_bytes(train: &TrainSpec, trainer: Option<&Software>) -> f64 {
    let moments = match train.optimizer {
        Optimizer::AdamW => 8.0,
        // Those of matrices: other parameters have more.
        Optimizer::Muon(_) => 4.0,
    };
    let own = match train.precision.masters() {
        Masters::Parameters => moments,
        Masters::Apart => 4.0 + moments,
    };
    own * trainer.map_or(1.0, |trainer| trainer.memory.optimizer_bytes / 12.0)
}

/// Bytes of a number of a sum of gradients.
fn gradient_bytes(trainer: Option<&Software>) -> f64 {
    trainer.map_or(4.0, |trainer| trainer.gradient_bytes)
}

/// Bytes of the state of a model, each parameter's once: all ranks together have no less at the end of a step, whatever
/// the layout.
pub(super) fn least_state_bytes(config: &RunConfig, trainer: Option<&Software>) -> f64 {
    let precision = config.train.precision;
    let of_one =
        precision.stored().size_bytes() as f64 + gradient_bytes(trainer) + moment_bytes(&config.train, trainer);
    unique_parameters(&config.model) as f64 * of_one
}
