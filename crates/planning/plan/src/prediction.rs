//! The time and memory of one step of a run on a cluster.

use cluster::{Cluster, Software};
use config::{ModelSpec, Parallelism, TrainSpec, Unit, UnitClass};
use device::{Dtype, step_sum_words};
use mesh::PlacementOrder;
use program::{PassKind, Sizes, StepGraph, StepTimes};
use record::UnitRecords;
use sim::{
    Algorithms, MemoryOverTime, Movements, ProductFormat, RankMemory, RecordedUnits, Spent, StepCosts, StepShape,
    peak_flops_per_ns, updates,
};
use train::{SetupError, StepOrder};

/// A step of a full batch that can be timed on any profile: linked, and its units recorded.
#[derive(Clone, Debug)]
pub struct PreparedStep {
    model: ModelSpec,
    parallelism: Parallelism,
    placement: PlacementOrder,
    train: TrainSpec,
    software: Option<Software>,
    /// Its linked programs.
    pub graph: StepGraph,
    /// Bytes of its values.
    pub sizes: Sizes,
    units: RecordedUnits,
}

/// A step in time.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// When each instruction runs, in nanoseconds.
    pub times: StepTimes,
    /// The costs of instructions.
    pub costs: StepCosts,
    /// Where the busiest rank's time goes.
    pub spent: Spent,
}

impl Prediction {
    /// The step in nanoseconds, from the end of one like it.
    pub fn step_ns(&self) -> u64 {
        self.times.period()
    }
}

impl PreparedStep {
    /// Links the step and records its units; with `software`, as that trainer runs them.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn new(
        model: &ModelSpec,
        parallelism: &Parallelism,
        train: &TrainSpec,
        software: Option<&Software>,
    ) -> Result<PreparedStep, SetupError> {
        PreparedStep::of_load(model, parallelism, train, software, 1.0)
    }

    /// Returns the same as [`PreparedStep::new`], where the rank that all wait for has `expert_load` times the rows of
    /// experts that balanced routing gives.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn of_load(
        model: &ModelSpec,
        parallelism: &Parallelism,
        train: &TrainSpec,
        software: Option<&Software>,
        expert_load: f64,
    ) -> Result<PreparedStep, SetupError> {
        let records = UnitRecords::new(StepOrder::case(model, parallelism, train))?;
        let order = StepOrder::updating(&records, parallelism, train, updates(software))?;
        let units = RecordedUnits::of_load(&records, software, expert_load);
        PreparedStep::ordered(&order, parallelism, train, &units, software)
    }

    /// Returns the same as [`PreparedStep::new`], where the units were recorded and the passes ordered before.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn ordered(
        order: &StepOrder,
        parallelism: &Parallelism,
        train: &TrainSpec,
        units: &RecordedUnits,
        software: Option<&Software>,
    ) -> Result<PreparedStep, SetupError> {
        let (model, parallelism, train) = (order.model().clone(), parallelism.clone(), train.clone());
        let (graph, sizes) = order.training_step()?;
        let (placement, software) = (PlacementOrder::default(), software.cloned());
        Ok(PreparedStep { model, parallelism, placement, train, software, graph, sizes, units: units.clone() })
    }

    /// The same step of ranks that fill nodes in the order of `placement`, which a trainer with a `[software]` section
    /// does not ask.
    pub fn placed(self, placement: PlacementOrder) -> PreparedStep {
        PreparedStep { placement, ..self }
    }

    /// The step on a cluster.
    ///
    /// # Errors
    /// Degrees that make no mesh.
    pub fn on(&self, cluster: &Cluster) -> Result<Prediction, SetupError> {
        let costs = self.costs(cluster)?;
        let times = StepTimes::new(&self.graph, &costs);
        let spent = Spent::new(&self.graph, &costs, &times);
        Ok(Prediction { times, costs, spent })
    }

    /// Nanoseconds of all passes of one layer and microbatch on a cluster.
    ///
    /// # Errors
    /// Degrees that make no mesh.
    pub fn layer_ns(&self, cluster: &Cluster) -> Result<u64, SetupError> {
        Ok(self.costs(cluster)?.microbatch_ns(std::iter::once(Unit::Layer(0))))
    }

    fn costs(&self, cluster: &Cluster) -> Result<StepCosts, SetupError> {
        let shape = StepShape {
            model: &self.model,
            parallelism: &self.parallelism,
            placement: self.placement,
            precision: self.train.precision,
            sums: self.train.sums,
            averages: self.train.averages(),
            optimizer: self.train.optimizer,
            footprints: &self.sizes.footprints.units,
        };
        Ok(StepCosts::new(cluster, self.software.as_ref(), &shape, &self.units)?)
    }

    /// Floating-point operations of the model on one rank's share of a step: matrix products and causal attention of
    /// forward and backward passes; what is recomputed does not count. Averaged over ranks.
    pub fn model_flops_per_rank(&self) -> f64 {
        let passes = [PassKind::Forward, PassKind::BackwardInput, PassKind::BackwardWeight];
        let of = |unit| passes.iter().map(|pass| self.units.units.of(unit).of(*pass).flops).sum::<f64>();
        let units = Unit::computing(self.model.num_layers).map(of);
        let microbatches = self.parallelism.num_microbatches(self.train.global_batch) as f64;
        let of_replica: f64 = units.sum::<f64>() * microbatches;
        debug_assert!(of(Unit::Table) == 0.0, "a table computes nothing");
        of_replica / self.parallelism.degrees.pp as f64
    }

    /// Share of the peak of all accelerators that [`PreparedStep::model_flops_per_rank`] makes of a step of `step_ns`.
    pub fn mfu(&self, cluster: &Cluster, step_ns: u64) -> f64 {
        self.model_flops_per_rank() / (self.peak_flops_per_ns(cluster) * step_ns as f64)
    }

    /// The peak of one accelerator for the format of the run's numbers, in floating-point operations per nanosecond.
    pub fn peak_flops_per_ns(&self, cluster: &Cluster) -> f64 {
        let format = ProductFormat::of(self.train.precision.stored().size_bytes(), self.software.as_ref());
        peak_flops_per_ns(&cluster.accelerator, format)
    }

    /// The trainer, where it is not pleach.
    pub fn software(&self) -> Option<&Software> {
        self.software.as_ref()
    }

    /// Tokens of a step.
    pub fn tokens(&self) -> usize {
        self.train.global_batch * self.train.sequence_length
    }

    /// Bytes of the largest rank at its peak.
    pub fn memory_bytes(&self) -> usize {
        self.memory().iter().map(RankMemory::occupied_bytes).max().unwrap_or(0)
    }

    /// Bytes of one rank of each pipeline rank while the step runs with these times.
    pub fn memory_over_time(&self, times: &StepTimes) -> Vec<MemoryOverTime> {
        sim::memory_over_time(&self.graph, times, &self.sizes, &self.units, self.software.as_ref())
    }

    /// The library of collectives whose prices the step has on a cluster. Trainers with a `[software]` section number
    /// ranks as Megatron-LM does.
    pub fn algorithms<'a>(&self, cluster: &'a Cluster) -> Algorithms<'a> {
        Algorithms::Priced(cluster, self.software.as_ref().map_or(self.placement, |_| PlacementOrder::TpDpPp))
    }

    /// Bytes, groups and algorithms of the instructions of the step.
    ///
    /// # Errors
    /// Degrees that make no mesh.
    pub fn movements<'a>(&'a self, algorithms: Algorithms<'a>) -> Result<Movements<'a>, SetupError> {
        let software = self.software.as_ref();
        let own_bytes = || Dtype::from(self.train.sums).size_bytes() as f64;
        Ok(Movements {
            parallelism: &self.parallelism,
            layouts: Movements::layouts(&self.model, &self.parallelism),
            mesh: self.parallelism.mesh()?,
            gradient_bytes: software.map_or_else(own_bytes, |software| software.reduced_bytes),
            stored_bytes: self.train.precision.stored().size_bytes(),
            output_bytes: self.sizes.footprints.units[UnitClass::Embedding].output_bytes,
            sum_words: step_sum_words(&self.model),
            units: Some(&self.units),
            software,
            algorithms,
        })
    }

    /// Bytes of one rank of each pipeline rank at its peak.
    pub fn memory(&self) -> Vec<RankMemory> {
        sim::memory(&self.graph, &self.sizes, &self.units, self.software.as_ref())
    }
}
