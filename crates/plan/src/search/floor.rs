//! What a layout takes at least: of time and of memory. `docs/planner.md` proves both.

use std::collections::BTreeMap;

use cluster::{Cluster, Software};
use device::Write;
use model::{MicrobatchShape, RecordCase, TensorParallel, footprints};
use program::{Cell, CellCosts, CellKind, Footprints, PassKind, Purpose, Schedule, StageSplit, UnitWork, split_stages};
use sim::{RecordedUnits, StepCosts, StepShape};
use spec::unit::UnitKind;
use spec::{
    Kept, LayerRecompute, Masters, Parallelism, Recompute, RunConfig, ScheduleKind, ScheduleSpec, SequenceParallel,
    StateKind, Unit, UnitLayout, ZeroStage, params,
};
use train::SetupError;

/// What passes cost and keep depends on these alone.
type Key = (usize, usize, SequenceParallel, u8);

/// Least costs of layouts, each recorded once.
pub struct Bounds<'a> {
    config: &'a RunConfig,
    cluster: &'a Cluster,
    software: Option<&'a Software>,
    passes: BTreeMap<Key, Passes>,
    splits: BTreeMap<(Key, usize), Option<StageSplit>>,
    /// By schedule: passes that each rank holds at once.
    held: BTreeMap<(usize, usize, String), Vec<usize>>,
    /// By tp: elements of table, embedding, one layer and head on one rank.
    elements: BTreeMap<usize, [f64; 4]>,
}

/// What a layout takes at least.
#[derive(Clone, Debug, PartialEq)]
pub struct Floor {
    /// The stages whose slowest is fastest.
    pub split: StageSplit,
    /// No step is shorter.
    pub least_ns: u64,
    /// The hungriest rank has no less.
    pub memory_bytes: f64,
}

/// Costs of the passes of one microbatch on one rank.
#[derive(Clone, Debug)]
struct Passes {
    /// Embedding, layer, head: forward, recompute, backward of input and of weights.
    ns: [[u64; 4]; 3],
    footprints: Footprints,
    kept: Recompute,
}

impl<'a> Bounds<'a> {
    /// For layouts of one run on one cluster.
    pub fn new(config: &'a RunConfig, cluster: &'a Cluster, software: Option<&'a Software>) -> Bounds<'a> {
        let (passes, splits, held, elements) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Bounds { config, cluster, software, passes, splits, held, elements }
    }

    /// The floor of a layout; nothing where its layers make no stages.
    ///
    /// # Errors
    /// A unit that cannot be recorded.
    pub fn of(&mut self, parallelism: &Parallelism) -> Result<Option<Floor>, SetupError> {
        let key = key(parallelism);
        if !self.passes.contains_key(&key) {
            let passes = self.record(parallelism)?;
            self.passes.insert(key, passes);
        }
        let passes = &self.passes[&key];
        let stages_per_rank = parallelism.schedule.stages_per_rank().unwrap_or(1);
        let num_stages = parallelism.pp * stages_per_rank;
        let num_layers = self.config.model.num_layers;
        let split = self.splits.entry((key, num_stages)).or_insert_with(|| {
            let sum = |unit: usize| passes.ns[unit].iter().sum();
            let work = UnitWork { embedding: sum(0), layer: sum(1), head: sum(2) };
            split_stages(num_layers, num_stages, work).ok()
        });
        let Some(split) = split.clone() else { return Ok(None) };
        let elements = *self.elements.entry(parallelism.tp).or_insert_with(|| {
            let units = [Unit::Table, Unit::Embedding, Unit::Layer(0), Unit::Head];
            units.map(|unit| UnitLayout::new(params(&self.config.model, unit), parallelism.tp, 1).len as f64)
        });
        let kind = kind(parallelism);
        let pp = parallelism.pp;
        // What a rank holds at most, it holds long before so many microbatches have passed.
        let few = parallelism.num_microbatches(self.config.train.global_batch).min(FEW_PER_RANK * pp);
        let held = self.held.entry((pp, few, format!("{kind:?}"))).or_insert_with(|| passes_held(kind, pp, few));
        let shape = Shape { config: self.config, parallelism, passes, split: &split, held };
        let (least_ns, memory_bytes) = (shape.least_ns(), shape.memory_bytes(elements));
        Ok(Some(Floor { least_ns, memory_bytes, split }))
    }

    fn record(&self, parallelism: &Parallelism) -> Result<Passes, SetupError> {
        let (model, precision) = (&self.config.model, self.config.train.precision);
        let kept = parallelism.recompute_to_do();
        let case = RecordCase {
            model,
            tp: TensorParallel { size: parallelism.tp, position: 0 },
            shape: MicrobatchShape {
                sequences: parallelism.microbatch_size,
                sequence_length: self.config.train.sequence_length,
            },
            stored: precision.stored().into(),
            sums: self.config.train.sums,
            sequence_parallel: parallelism.sequence_parallel,
            recompute: kept.of_layer(0),
            purpose: Purpose::Train,
            write: Write::Accumulate,
        };
        let (units, footprints) = (RecordedUnits::new(&case, self.software)?, footprints(&case)?);
        // Passes do not depend on how the ranks beside the tensor-parallel group are used.
        let alone = Parallelism {
            dp: 1,
            pp: 1,
            zero: ZeroStage::Off,
            schedule: ScheduleKind::OneForwardOneBackward.into(),
            stage_layers: None,
            ..parallelism.clone()
        };
        let output_bytes = footprints.layer.output_bytes;
        let shape = StepShape { model, parallelism: &alone, precision, output_bytes };
        let costs = StepCosts::new(self.cluster, self.software, &shape, &units)?;
        let passes = [PassKind::Forward, PassKind::Recompute, PassKind::BackwardInput, PassKind::BackwardWeight];
        let ns = [UnitKind::Embedding, UnitKind::Layer, UnitKind::Head]
            .map(|unit| passes.map(|pass| costs.pass(unit, pass).whole_ns));
        Ok(Passes { ns, footprints, kept })
    }
}

fn key(parallelism: &Parallelism) -> Key {
    let recompute = match parallelism.recompute {
        Recompute::None => 0,
        Recompute::Selective => 1,
        Recompute::Full(_) => 2,
    };
    (parallelism.tp, parallelism.microbatch_size, parallelism.sequence_parallel, recompute)
}

/// Microbatches per pipeline rank after which a schedule only repeats itself.
const FEW_PER_RANK: usize = 4;

fn kind(parallelism: &Parallelism) -> ScheduleKind {
    match &parallelism.schedule {
        ScheduleSpec::Generated(kind) => *kind,
        ScheduleSpec::Given(_) => ScheduleKind::OneForwardOneBackward,
    }
}

/// Passes of microbatches through its stages that each rank has run forward and not yet backward, at most: counted in the schedule. What passes cost
/// moves nothing but backward passes of the weights, which are not counted.
fn passes_held(kind: ScheduleKind, pp: usize, num_microbatches: usize) -> Vec<usize> {
    let schedule = Schedule::generate(kind, pp, num_microbatches, &CellCosts::EVEN);
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
    passes: &'a Passes,
    split: &'a StageSplit,
    held: &'a [usize],
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
        let layers = self.split.layers_per_stage()[stage] as u64;
        let first = if stage == 0 { self.passes.ns[0][pass] } else { 0 };
        let last = if stage + 1 == self.split.num_stages() { self.passes.ns[2][pass] } else { 0 };
        first + layers * self.passes.ns[1][pass] + last
    }

    /// The stages of a pipeline rank, ascending.
    fn stages_of(&self, rank: usize) -> Vec<usize> {
        let pp = self.parallelism.pp;
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

    fn num_microbatches(&self) -> u64 {
        self.parallelism.num_microbatches(self.config.train.global_batch) as u64
    }

    /// The longest of: what comes to a rank before it can begin, what it computes, and what others compute after it.
    fn least_ns(&self) -> u64 {
        let (mut before, mut after, mut least) = (0, 0, 0);
        for rank in 0..self.parallelism.pp {
            let stages = self.stages_of(rank);
            let sum = |pass: usize| stages.iter().map(|stage| self.stage_ns(*stage, pass)).sum::<u64>();
            let of_inputs = sum(FORWARD) + sum(RECOMPUTE) + sum(BACKWARD_INPUT);
            let all = self.num_microbatches() * (of_inputs + sum(BACKWARD_WEIGHT));
            let ordered = match self.backward() {
                Backward::Full => all + after,
                Backward::Split => all.max(self.num_microbatches() * of_inputs + after),
            };
            least = least.max(before + ordered);
            before += self.stage_ns(rank, FORWARD);
            after += self.stage_ns(rank, BACKWARD_INPUT);
            if self.backward() == Backward::Full {
                // What the stage computes again first, it may compute before the gradient comes.
                let again = self.stage_ns(rank, RECOMPUTE);
                after += self.stage_ns(rank, BACKWARD_WEIGHT) + again.saturating_sub(self.passes.ns[1][RECOMPUTE]);
            }
        }
        least
    }

    /// State, and what the passes keep that are held at once; of the hungriest rank.
    fn memory_bytes(&self, [table, embedding, layer, head]: [f64; 4]) -> f64 {
        let footprint = &self.passes.footprints.layer;
        let saved = footprint.saved_until_input_bytes + footprint.saved_until_weight_bytes;
        let kept_bytes = match self.passes.kept.of_layer(0) {
            // Its input is kept as well, as the output of the layer before.
            LayerRecompute::Nothing | LayerRecompute::Core => saved + footprint.output_bytes,
            LayerRecompute::Everything(_) if footprint.checkpoint_bytes > 0 => footprint.checkpoint_bytes,
            LayerRecompute::Everything(_) => footprint.output_bytes,
        } as f64;
        let last_stage = self.split.num_stages() - 1;
        let of_rank = |rank: usize| {
            let stages = self.stages_of(rank);
            let layers: usize = stages.iter().map(|stage| self.split.layers_per_stage()[*stage]).sum();
            let least = stages.iter().map(|stage| self.split.layers_per_stage()[*stage]).min().unwrap_or(0);
            let first = if stages.contains(&0) { table + embedding } else { 0.0 };
            let is_last = stages.contains(&last_stage);
            let tied = if is_last && self.config.model.tied_embeddings && !stages.contains(&0) { table } else { 0.0 };
            let last = if is_last { head + tied } else { 0.0 };
            let elements = layers as f64 * layer + first + last;
            let activations = (self.held[rank] * least) as f64 * kept_bytes;
            // A shard of the gradients lives from the first reduction on, when activations may be gone.
            let reduced = elements * self.reduced_bytes();
            elements * self.state_bytes() + activations.max(reduced)
        };
        (0..self.parallelism.pp).map(of_rank).fold(0.0, f64::max)
    }

    fn share(&self, state: StateKind) -> f64 {
        match self.parallelism.zero.keeps(state) {
            Kept::Whole => 1.0,
            Kept::Shard => 1.0 / self.parallelism.shard_group() as f64,
        }
    }

    /// Bytes of one parameter that live throughout the step.
    fn state_bytes(&self) -> f64 {
        let precision = self.config.train.precision;
        let moments = match precision.masters() {
            Masters::Parameters => 8.0,
            Masters::Apart => 12.0,
        };
        let gradients = match self.parallelism.zero.keeps(StateKind::Gradients) {
            Kept::Whole => 4.0,
            Kept::Shard => 0.0,
        };
        precision.stored().size_bytes() as f64 * self.share(StateKind::Parameters)
            + gradients
            + moments * self.share(StateKind::Optimizer)
    }

    /// Bytes of one parameter's gradient where ranks keep shards of the sum.
    fn reduced_bytes(&self) -> f64 {
        match self.parallelism.zero.keeps(StateKind::Gradients) {
            Kept::Whole => 0.0,
            Kept::Shard => 4.0 * self.share(StateKind::Gradients),
        }
    }
}
