//! Costs and activations of units' passes, recorded once for all layouts that have the same.

use std::collections::{BTreeMap, BTreeSet};

use cluster::{Cluster, Software};
use config::{
    Degrees, LayerRecompute, Parallelism, PerClass, RunConfig, ScheduleKind, SequenceParallel, SequenceSlices,
    TrainSpec, ZeroStage,
};
use program::Footprints;
use rayon::prelude::*;
use record::UnitRecords;
use sim::{RecordedUnits, StepCosts, StepShape, least_bytes, updates};
use train::{SetupError, StepOrder};

use super::floor::FEW_PER_RANK;
use super::pipeline::Pipeline;
use crate::PreparedStep;

/// Everything of a layout that what its passes cost and keep depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    tp: usize,
    ep: usize,
    slices: SequenceSlices,
    microbatch_size: usize,
    sequence_parallel: SequenceParallel,
    recompute: LayerRecompute,
}

impl Key {
    pub(super) fn of(parallelism: &Parallelism) -> Key {
        // Passes depend neither on replicas nor on stages.
        let Parallelism {
            degrees: Degrees { dp: _, cp: _, tp, pp: _ }, ep, microbatch_size, sequence_parallel, ..
        } = *parallelism;
        let slices = parallelism.slices();
        Key { tp, ep, slices, microbatch_size, sequence_parallel, recompute: parallelism.recompute_to_do().of_layer(0) }
    }
}

/// The passes of one microbatch on one rank.
#[derive(Debug)]
pub(super) struct Recording<'a> {
    records: UnitRecords<'a>,
    units: RecordedUnits,
    /// Nanoseconds of each unit: forward, recompute, backward of input and of weights.
    pub(super) ns: PerClass<[u64; 4]>,
    pub(super) footprints: Footprints,
}

/// The recordings of all layouts of a search. It answers questions about these alone, whatever their other keys.
#[derive(Debug)]
pub struct Recordings<'a> {
    config: &'a RunConfig,
    cluster: &'a Cluster,
    software: Option<&'a Software>,
    expert_load: f64,
    by_key: BTreeMap<Key, Recording<'a>>,
}

impl<'a> Recordings<'a> {
    /// Records what `layouts` of a run need, with the load of [`super::Question::expert_load`].
    ///
    /// # Errors
    /// A unit that cannot be recorded.
    pub fn new(
        config: &'a RunConfig,
        cluster: &'a Cluster,
        (software, expert_load): (Option<&'a Software>, f64),
        layouts: &[Parallelism],
    ) -> Result<Recordings<'a>, SetupError> {
        let mut recordings = Recordings { config, cluster, software, expert_load, by_key: BTreeMap::new() };
        recordings.record(layouts)?;
        Ok(recordings)
    }

    /// Records what further layouts need.
    ///
    /// # Errors
    /// A unit that cannot be recorded.
    pub(super) fn record(&mut self, layouts: &[Parallelism]) -> Result<(), SetupError> {
        let mut seen = BTreeSet::new();
        let is_new =
            |layout: &&Parallelism| !self.by_key.contains_key(&Key::of(layout)) && seen.insert(Key::of(layout));
        let distinct: Vec<&Parallelism> = layouts.iter().filter(is_new).collect();
        let made: Vec<_> = distinct.par_iter().with_max_len(1).map(|layout| self.recording(layout)).collect();
        for (layout, recording) in distinct.into_iter().zip(made) {
            self.by_key.insert(Key::of(layout), recording?);
        }
        Ok(())
    }

    fn recording(&self, parallelism: &Parallelism) -> Result<Recording<'a>, SetupError> {
        let records = UnitRecords::new(StepOrder::case(&self.config.model, parallelism, &self.config.train))?;
        let (units, footprints) =
            (RecordedUnits::of_load(&records, self.software, self.expert_load), records.footprints());
        // Passes do not depend on how the ranks next to the groups of layers are used.
        let Degrees { dp: _, cp, tp, pp: _ } = parallelism.degrees;
        let alone = Parallelism {
            degrees: Degrees { dp: parallelism.ep, cp, tp, pp: 1 },
            zero: ZeroStage::Off,
            schedule: ScheduleKind::OneForwardOneBackward.into(),
            stage_layers: None,
            overlap: None,
            ..parallelism.clone()
        };
        let costs = self.costs_of(&alone, &units, &footprints)?;
        let ns = costs.passes().map(|_, passes| passes.map(|pass| pass.whole_ns));
        Ok(Recording { records, units, ns, footprints })
    }

    fn costs_of(
        &self,
        parallelism: &Parallelism,
        units: &RecordedUnits,
        footprints: &Footprints,
    ) -> Result<StepCosts, SetupError> {
        let (model, train) = (&self.config.model, &self.config.train);
        let shape = StepShape {
            model,
            parallelism,
            placement: self.config.run.placement,
            precision: train.precision,
            sums: train.sums,
            averages: train.averages(),
            optimizer: train.optimizer,
            footprints: &footprints.units,
        };
        Ok(StepCosts::new(self.cluster, self.software, &shape, units)?)
    }

    fn order<'s>(
        &'s self,
        recording: &'s Recording<'a>,
        parallelism: &'s Parallelism,
        train: &'s TrainSpec,
    ) -> Result<StepOrder<'s>, SetupError>
    where
        'a: 's,
    {
        StepOrder::updating(&recording.records, parallelism, train, updates(self.software))
    }

    /// The recording of the layout's passes, which is one of those of [`Recordings::new`].
    pub(super) fn of(&self, parallelism: &Parallelism) -> &Recording<'a> {
        &self.by_key[&Key::of(parallelism)]
    }

    /// Nanoseconds that no step of the layout is shorter than, cell by cell.
    ///
    /// # Errors
    /// No such schedule, or layers that do not make its stages.
    pub fn cells_ns(&self, parallelism: &Parallelism) -> Result<u64, SetupError> {
        let recording = self.of(parallelism);
        let order = self.order(recording, parallelism, &self.config.train)?;
        let costs = self.costs_of(parallelism, &recording.units, &recording.footprints)?;
        let num_microbatches = parallelism.num_microbatches(self.config.train.global_batch);
        Ok(Pipeline::new(&order, parallelism, num_microbatches, &costs).least_ns())
    }

    /// Bytes that a pipeline rank has no less than, by its program alone in a step of few microbatches.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn rank_bytes(&self, parallelism: &Parallelism, rank: usize) -> Result<usize, SetupError> {
        let train = self.few_microbatches(parallelism);
        let recording = self.of(parallelism);
        let order = self.order(recording, parallelism, &train)?;
        let (program, sizes) = order.rank_program(rank)?;
        Ok(least_bytes(&program, &sizes, &recording.units, self.software))
    }

    /// Steps of so few microbatches that they are known soon, and of so many that a rank holds as much as it ever does.
    fn few_microbatches(&self, parallelism: &Parallelism) -> TrainSpec {
        let train = &self.config.train;
        let few = FEW_PER_RANK * parallelism.degrees.pp;
        let of_few = parallelism.degrees.dp * parallelism.microbatch_size * few;
        TrainSpec { global_batch: train.global_batch.min(of_few), ..train.clone() }
    }

    /// The layout's step.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn step(&self, parallelism: &Parallelism) -> Result<PreparedStep, SetupError> {
        self.step_in(&self.config.train, parallelism)
    }

    /// A step of the layout of few microbatches, which takes as much memory.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub(super) fn few_microbatches_step(&self, parallelism: &Parallelism) -> Result<PreparedStep, SetupError> {
        self.step_in(&self.few_microbatches(parallelism), parallelism)
    }

    fn step_in(&self, train: &TrainSpec, parallelism: &Parallelism) -> Result<PreparedStep, SetupError> {
        let recording = self.of(parallelism);
        let order = self.order(recording, parallelism, train)?;
        let step = PreparedStep::ordered(&order, parallelism, train, &recording.units, self.software)?;
        Ok(step.placed(self.config.run.placement))
    }

    pub(super) fn software(&self) -> Option<&'a Software> {
        self.software
    }

    pub(super) fn config(&self) -> &'a RunConfig {
        self.config
    }
}
