//! The order in which a run's steps compute: stages, schedule, linked programs.

use config::{
    Degrees, FullRecompute, ModelSpec, Parallelism, PerClass, Recompute, ScheduleKind, ScheduleSpec, Stage, TrainSpec,
    Unit, UnitClass,
};
use program::{
    CellCosts, CellTimes, CompileInput, Demands, Footprint, Footprints, PassKind, PassTimes, Program, Purpose,
    Schedule, Sizes, StageCosts, StageSplit, State, StepGraph, UnitTimes, Updates, Verified, compile, compile_rank,
    forward_only, link, split_stages, verify,
};
use record::{RecordCase, UnitRecords};

use crate::setup::{SetupError, Workload, shape};

/// The part that all programs of a run share.
#[derive(Clone, Debug)]
pub struct StepOrder<'a> {
    model: &'a ModelSpec,
    parallelism: &'a Parallelism,
    train: &'a TrainSpec,
    /// The order of compute cells of a training step of a full batch.
    pub schedule: Schedule,
    /// Layers of each stage.
    pub stages: StageSplit,
    /// See [`crate::Setup::times`].
    pub times: UnitTimes,
    costs: StageCosts,
    /// Of a training step.
    footprints: Footprints,
}

impl<'a> StepOrder<'a> {
    /// Records what passes cost, orders them and splits the layers.
    ///
    /// # Errors
    /// No such schedule, or layers that do not make stages.
    pub fn new(
        model: &'a ModelSpec,
        parallelism: &'a Parallelism,
        train: &'a TrainSpec,
    ) -> Result<StepOrder<'a>, SetupError> {
        StepOrder::recorded(&UnitRecords::new(StepOrder::case(model, parallelism, train))?, parallelism, train)
    }

    /// The case that is recorded for a training step. Layouts with the same case can share its records.
    pub fn case<'m>(model: &'m ModelSpec, parallelism: &Parallelism, train: &TrainSpec) -> RecordCase<'m> {
        training(parallelism, train, 1).record_case(model, parallelism, train)
    }

    /// Returns the same as [`StepOrder::new`], where [`StepOrder::case`] was recorded before.
    ///
    /// # Errors
    /// As there.
    pub fn recorded(
        records: &UnitRecords<'a>,
        parallelism: &'a Parallelism,
        train: &'a TrainSpec,
    ) -> Result<StepOrder<'a>, SetupError> {
        StepOrder::updating(records, parallelism, train, Updates::AfterNorm)
    }

    /// The same for a trainer whose ranks may update before the norm is known, which pleach's own do not.
    ///
    /// # Errors
    /// As there.
    pub fn updating(
        records: &UnitRecords<'a>,
        parallelism: &'a Parallelism,
        train: &'a TrainSpec,
        updates: Updates,
    ) -> Result<StepOrder<'a>, SetupError> {
        let (model, recompute) = (records.case().model, parallelism.recompute);
        let times = unit_times(records);
        let on_average = shared_out(&times, recompute);
        let footprints = records.footprints();
        let split = |num_stages: usize| match &parallelism.stage_layers {
            Some(layers) => StageSplit::given(layers, model.num_layers, num_stages),
            None => split_stages(model.num_layers, num_stages, &on_average.map(|_, times| times.sum())),
        };
        let work = Work { footprints: &footprints, recompute, times: &on_average };
        let costs = match &parallelism.schedule {
            ScheduleSpec::Generated(ScheduleKind::ZeroBubbleAuto { .. }) => {
                work.stage_costs(model.num_layers, &split(parallelism.degrees.pp)?)
            }
            ScheduleSpec::Generated(_) | ScheduleSpec::Given(_) => StageCosts::from(work.mean_costs(model.num_layers)),
        };
        let costs = StageCosts { updates, ..costs };
        let num_microbatches = parallelism.num_microbatches(train.global_batch);
        let schedule = Schedule::new(&parallelism.schedule, parallelism.degrees.pp, num_microbatches, &costs)?;
        let stages = split(schedule.num_stages())?;
        Ok(StepOrder { model, parallelism, train, schedule, stages, times, costs, footprints })
    }

    /// The model.
    pub fn model(&self) -> &'a ModelSpec {
        self.model
    }

    /// A training step of a full batch, linked, with the sizes of its values: what a simulation needs. Its memory is
    /// not planned.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn training_step(&self) -> Result<(StepGraph, Sizes), SetupError> {
        let workload = Workload::train(self.parallelism, self.train, self.train.global_batch)?;
        self.linked(State::Training, &workload, &self.schedule)
    }

    /// Compiles, links, verifies and plans one workload.
    pub(crate) fn verified(&self, state: State, workload: &Workload) -> Result<Verified, SetupError> {
        let schedule = self.schedule_of(workload)?;
        let (graph, sizes) = self.linked(state, workload, &schedule)?;
        // A schedule that was written down may leave the order, and with it the class of runs that have the same bits.
        let demands = Demands {
            capacity_bytes: None,
            order: schedule.contribution_order(),
            overlap: self.parallelism.overlap_or_off(),
        };
        verify(graph, &sizes, demands).map_err(SetupError::Refused)
    }

    fn schedule_of(&self, workload: &Workload) -> Result<Schedule, SetupError> {
        match workload.purpose {
            Purpose::Train => {
                let Parallelism { schedule, degrees: Degrees { pp, .. }, .. } = self.parallelism;
                Ok(Schedule::new(schedule, *pp, workload.num_microbatches, &self.costs)?)
            }
            Purpose::Evaluate | Purpose::Generate => {
                Ok(forward_only(&self.schedule.stage_map, self.parallelism.degrees.pp, workload.num_microbatches))
            }
        }
    }

    /// The compiler of `workload` for single ranks.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub(crate) fn compiler(&self, state: State, workload: &Workload) -> Result<RankCompiler<'_, 'a>, SetupError> {
        let (schedule, footprints) = (self.schedule_of(workload)?, self.footprints_of(workload)?);
        Ok(RankCompiler { order: self, workload: *workload, schedule, sizes: self.sizes(state, footprints) })
    }

    /// The program of one pipeline rank in a training step of a full batch, with the sizes of its values.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn rank_program(&self, rank: usize) -> Result<(Program, Sizes), SetupError> {
        let workload = Workload::train(self.parallelism, self.train, self.train.global_batch)?;
        let program = compile_rank(&self.input(&workload, &self.schedule), rank)?;
        Ok((program, self.sizes(State::Training, self.footprints.clone())))
    }

    fn linked(&self, state: State, workload: &Workload, schedule: &Schedule) -> Result<(StepGraph, Sizes), SetupError> {
        let footprints = self.footprints_of(workload)?;
        let graph = link(compile(&self.input(workload, schedule))?).map_err(SetupError::Refused)?;
        Ok((graph, self.sizes(state, footprints)))
    }

    fn footprints_of(&self, workload: &Workload) -> Result<Footprints, SetupError> {
        match workload.purpose {
            Purpose::Train => Ok(self.footprints.clone()),
            Purpose::Evaluate | Purpose::Generate => {
                Ok(record::footprints(&workload.record_case(self.model, self.parallelism, self.train))?)
            }
        }
    }

    fn input<'s>(&'s self, workload: &Workload, schedule: &'s Schedule) -> CompileInput<'s> {
        let StepOrder { model, parallelism, train, ref stages, .. } = *self;
        CompileInput {
            model,
            parallelism,
            stages,
            schedule,
            masters: train.precision.masters(),
            averages: train.averages(),
            sums: train.sums,
            offload: train.offload,
            purpose: workload.purpose,
            num_microbatches: workload.num_microbatches,
        }
    }

    fn sizes(&self, state: State, footprints: Footprints) -> Sizes {
        let StepOrder { model, parallelism, train, .. } = *self;
        let sizes = Sizes::new(model, parallelism, footprints, train.precision.stored(), train.sums, state);
        sizes.updated_by(model, parallelism, train.optimizer)
    }
}

/// Compiles one workload for one rank at a time.
pub(crate) struct RankCompiler<'s, 'a> {
    order: &'s StepOrder<'a>,
    workload: Workload,
    schedule: Schedule,
    sizes: Sizes,
}

impl RankCompiler<'_, '_> {
    /// The program of pipeline rank `stage`, with the sizes of its values.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub(crate) fn compile(&self, stage: usize) -> Result<(Program, Sizes), SetupError> {
        Ok((compile_rank(&self.order.input(&self.workload, &self.schedule), stage)?, self.sizes.clone()))
    }
}

/// A training step of `num_microbatches` microbatches.
fn training(parallelism: &Parallelism, train: &TrainSpec, num_microbatches: usize) -> Workload {
    let shape = shape(parallelism, train, parallelism.microbatch_size);
    Workload { purpose: Purpose::Train, num_microbatches, shape }
}

/// Multiply-adds that a core does in the time in which it moves one byte: 80 G multiply-adds and 20 GB a second.
const MULTIPLY_ADDS_PER_BYTE: u64 = 4;

/// Costs of each unit's passes in a step: multiply-adds, and moved bytes as the multiply-adds that take as long.
fn unit_times(records: &UnitRecords<'_>) -> UnitTimes {
    let units = records.units().map(|_, passes| {
        let pass = |phase: PassKind| {
            let cost = passes[phase as usize].record.total();
            cost.multiply_adds + MULTIPLY_ADDS_PER_BYTE * cost.moved_bytes
        };
        PassTimes {
            forward: pass(PassKind::Forward),
            recompute: pass(PassKind::Recompute),
            backward_input: pass(PassKind::BackwardInput),
            backward_weight: pass(PassKind::BackwardWeight),
        }
    });
    UnitTimes { units, transfer: 0 }
}

/// The same, with each layer's share of recomputing where only some layers are recomputed.
fn shared_out(times: &UnitTimes, recompute: Recompute) -> PerClass<PassTimes> {
    let every = match recompute {
        Recompute::None | Recompute::Selective => 1,
        Recompute::Full(FullRecompute { every, .. }) => every.max(1) as u64,
    };
    times.units.map(|class, times| match class {
        UnitClass::Layer(_) => PassTimes { recompute: times.recompute / every, ..*times },
        UnitClass::Table | UnitClass::Embedding | UnitClass::Head | UnitClass::Adapters(_) | UnitClass::Experts(_) => {
            *times
        }
    })
}

/// Time and memory of the passes of all units.
struct Work<'a> {
    footprints: &'a Footprints,
    recompute: Recompute,
    times: &'a PerClass<PassTimes>,
}

/// Times of passes are counted in units of which the longest pass has about this number, so that those of long steps
/// can be added up. Only proportions count.
const LONGEST: u64 = 1 << 30;

impl Work<'_> {
    /// Of a layer, on average over all layers: stages are mostly layers.
    fn mean_costs(&self, num_layers: usize) -> CellCosts {
        let all = self.sum((0..num_layers.max(1) as u32).map(Unit::Layer));
        let mean = |sum: usize| sum / num_layers.max(1);
        let CellTimes { forward, backward_input, backward_weight, transfer } = all.times;
        CellCosts {
            times: CellTimes {
                forward: mean(forward),
                backward_input: mean(backward_input),
                backward_weight: mean(backward_weight),
                transfer,
            },
            held_until_input: mean(all.held_until_input),
            held_until_weight: mean(all.held_until_weight),
        }
    }

    /// Of each of `stages`, and of a stage with as many layers as stages have on average.
    fn stage_costs(&self, num_layers: usize, stages: &StageSplit) -> StageCosts {
        let each: Vec<CellCosts> =
            (0..stages.num_stages() as u32).map(|stage| self.sum(stages.units(Stage(stage)))).collect();
        let mean = self.mean_costs(num_layers);
        let layers = (num_layers / stages.num_stages().max(1)).max(1);
        let CellTimes { forward, backward_input, backward_weight, transfer } = mean.times;
        let usual = CellCosts {
            times: CellTimes {
                forward: layers * forward,
                backward_input: layers * backward_input,
                backward_weight: layers * backward_weight,
                transfer,
            },
            held_until_input: layers * mean.held_until_input,
            held_until_weight: layers * mean.held_until_weight,
        };
        StageCosts { usual, stages: each, updates: Updates::AfterNorm }
    }

    /// Of a cell with these units, of which layers alone hold anything for long.
    fn sum(&self, units: impl Iterator<Item = Unit>) -> CellCosts {
        let units: Vec<Unit> = units.collect();
        let longest = self.times.iter().map(|(_, times)| times.sum()).max().unwrap_or(0);
        let per_unit = 1 + longest / LONGEST;
        let time = |of: &dyn Fn(&PassTimes) -> u64| {
            units.iter().map(|unit| of(self.times.of(*unit)) / per_unit).sum::<u64>() as usize
        };
        let layers = || units.iter().filter(|unit| unit.is_repeated());
        let bytes = |of: &dyn Fn(&Footprint) -> usize| {
            layers().map(|layer| of(self.footprints.units.of(*layer))).sum::<usize>()
        };
        let saved = |layer: &Footprint| match self.recompute {
            Recompute::None | Recompute::Selective => layer.saved_until_input_bytes + layer.saved_until_weight_bytes,
            Recompute::Full(_) => 0,
        };
        CellCosts {
            times: CellTimes {
                forward: time(&|unit| unit.forward),
                backward_input: time(&|unit| unit.recompute + unit.backward_input),
                backward_weight: time(&|unit| unit.backward_weight),
                transfer: 0,
            },
            held_until_input: bytes(&|layer| layer.output_bytes + saved(layer)),
            // The gradient of the output is as large as the output.
            held_until_weight: bytes(&|layer| {
                2 * layer.output_bytes + layer.saved_until_weight_bytes + layer.pending_bytes
            }),
        }
    }
}
