//! Small models and runs for tests.

use crate::{
    CompileInput, Footprint, Footprints, PeerGroups, Program, Purpose, Schedule, Sizes, StageCosts, State, StateBytes,
    StepGraph, compile, link, split_stages,
};
use config::{
    Activation, Biases, Blocks, Degrees, Format, FullRecompute, Gathering, GradientReduction, GradientSums, Masters,
    ModelSpec, Norm, NormKind, Offload, Parallelism, PerClass, Position, Recompute, Reshard, SavedInputs, ScheduleKind,
    SequenceParallel, TopQuery, Unit, UnitClass, UnitClasses, UnitLayout, ZeroStage,
};

/// Every second layer.
pub const SOME: Recompute = Recompute::Full(FullRecompute { every: 2, inputs: SavedInputs::Whole });

/// Every form of recomputation.
pub const RECOMPUTES: [Recompute; 5] = [
    Recompute::None,
    Recompute::Selective,
    Recompute::FULL,
    SOME,
    Recompute::Full(FullRecompute { every: 1, inputs: SavedInputs::Sharded }),
];

/// Every schedule that is generated, interleaved with several numbers of stages and the automatic one with several
/// limits.
pub const KINDS: [ScheduleKind; 10] = [
    ScheduleKind::GPipe,
    ScheduleKind::OneForwardOneBackward,
    ScheduleKind::Interleaved { stages_per_rank: 1 },
    ScheduleKind::Interleaved { stages_per_rank: 2 },
    ScheduleKind::Interleaved { stages_per_rank: 3 },
    ScheduleKind::ZeroBubbleH1,
    ScheduleKind::ZeroBubbleH2,
    ScheduleKind::ZeroBubbleV,
    ScheduleKind::ZeroBubbleAuto { memory_percent: 100 },
    ScheduleKind::ZeroBubbleAuto { memory_percent: 200 },
];

/// Every choice of what is in memory of the host.
pub const OFFLOADS: [Offload; 4] = [Offload::None, Offload::Optimizer, Offload::Activations, Offload::All];

pub fn work() -> PerClass<u64> {
    per_class(0, 1, 10, 8)
}

/// One value for each unit of a model of equal layers.
pub fn per_class<T: Copy>(table: T, embedding: T, layer: T, head: T) -> PerClass<T> {
    PerClass::new(&UnitClasses::default(), |class| match class {
        UnitClass::Table | UnitClass::Adapters(_) | UnitClass::Experts(_) => table,
        UnitClass::Embedding => embedding,
        UnitClass::Layer(_) => layer,
        UnitClass::Head => head,
    })
}

/// Parameters sharded, gathered one use ahead and freed after each use, gradients summed once a step.
pub const ZERO_3: ZeroStage = ZeroStage::Three {
    reduce: GradientReduction::Step,
    gathering: Gathering { prefetch: 1, reshard: Reshard::AfterUse },
};

/// Every form of ZeRO: what is sharded, when gradients are summed, how far ahead parameters are gathered and how long
/// kept.
pub fn zero_forms() -> Vec<ZeroStage> {
    let mut forms = vec![ZeroStage::Off, ZeroStage::One];
    for reduce in [GradientReduction::Step, GradientReduction::Microbatch] {
        forms.push(ZeroStage::Two { reduce });
        for reshard in [Reshard::AfterUse, Reshard::AfterBackward] {
            let three = |prefetch| ZeroStage::Three { reduce, gathering: Gathering { prefetch, reshard } };
            forms.extend([0, 1, 2, 5].map(three));
        }
    }
    forms
}

/// The inputs that a test varies; the rest follows.
#[derive(Clone, Debug)]
pub struct Setup {
    pub num_layers: usize,
    pub tied: bool,
    pub learned_positions: bool,
    pub top_query: TopQuery,
    pub pp: usize,
    pub num_microbatches: usize,
    pub kind: ScheduleKind,
    pub zero: ZeroStage,
    pub recompute: Recompute,
    pub purpose: Purpose,
    pub stage_layers: Option<Vec<usize>>,
    pub offload: Offload,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            num_layers: 4,
            tied: true,
            learned_positions: true,
            top_query: TopQuery::Off,
            pp: 2,
            num_microbatches: 4,
            kind: ScheduleKind::OneForwardOneBackward,
            zero: ZeroStage::One,
            recompute: Recompute::None,
            purpose: Purpose::Train,
            stage_layers: None,
            offload: Offload::None,
        }
    }
}

impl Setup {
    pub fn model(&self) -> ModelSpec {
        ModelSpec {
            num_layers: self.num_layers,
            hidden: 64,
            num_heads: 4,
            num_kv_heads: 4,
            head_dim: 16,
            ffn_hidden: 256,
            ffn_hidden_of_layers: None,
            experts: None,
            vocabulary: 100,
            context: 32,
            norm: Norm { kind: NormKind::Layer, epsilon: 1e-5 },
            position: match self.learned_positions {
                true => Position::Learned { offset: 0 },
                false => Position::Rotary {
                    base: 10_000.0,
                    rotary_dims: 16,
                    pairing: config::Pairing::Half,
                    scaling: config::RotaryScaling::Off,
                },
            },
            local_attention: None,
            activation: Activation::GeluTanh,
            blocks: Blocks::Sequential,
            biases: Biases::All,
            embedding_scale: None,
            query_scalar: None,
            attention_soft_cap: None,
            logit_divisor: None,
            logit_soft_cap: None,
            embedding_norm: false,
            tied_embeddings: self.tied,
            padding_token: None,
            top_query: self.top_query,
            qk_norm: config::QkNorm::Heads,
            dropout: 0.1,
            attention_dropout: 0.0,
            init_std: 0.02,
            output_init_std: None,
            xavier_gain: None,
            lora: None,
            z_loss: None,
        }
    }

    pub fn parallelism(&self) -> Parallelism {
        Parallelism {
            degrees: Degrees { dp: 2, cp: 1, tp: 2, pp: self.pp },
            context: config::ContextParallel::DEFAULT,
            sequence_parallel: SequenceParallel::Off,
            zero: self.zero,
            shard_group: None,
            ep: 1,
            sum_tree: 1,
            schedule: self.kind.into(),
            microbatch_size: 1,
            recompute: self.recompute,
            stage_layers: self.stage_layers.clone(),
            overlap: None,
        }
    }

    pub fn schedule(&self) -> Schedule {
        Schedule::generate(self.kind, self.pp, self.num_microbatches, &StageCosts::EVEN)
    }

    pub fn compile_schedule(&self, schedule: &Schedule) -> Vec<Program> {
        let num_stages = schedule.num_stages();
        let stages = match &self.stage_layers {
            Some(given) => crate::StageSplit::given(given, self.num_layers, num_stages).unwrap(),
            None => split_stages(self.num_layers, num_stages, &work()).unwrap(),
        };
        compile(&CompileInput {
            model: &self.model(),
            parallelism: &self.parallelism(),
            stages: &stages,
            schedule,
            masters: Masters::Parameters,
            averages: config::Averages::Off,
            offload: self.offload,
            sums: GradientSums::Single,
            purpose: self.purpose,
            num_microbatches: self.num_microbatches,
        })
        .unwrap()
    }

    pub fn programs(&self) -> Vec<Program> {
        self.compile_schedule(&self.schedule())
    }

    pub fn groups(&self) -> PeerGroups {
        let (model, parallelism) = (self.model(), self.parallelism());
        let units = Unit::holding(model.num_layers).map(|unit| UnitLayout::of(&model, unit, &parallelism));
        PeerGroups::of_units(parallelism.mesh().unwrap(), &parallelism, &units.collect::<Vec<_>>())
    }

    pub fn graph(&self) -> StepGraph {
        link(self.programs()).unwrap_or_else(|violations| panic!("{self:?}: {violations:#?}"))
    }

    pub fn sizes(&self) -> Sizes {
        Sizes::new(
            &self.model(),
            &self.parallelism(),
            footprints(),
            Format::Fp32,
            GradientSums::Single,
            State::Training,
        )
    }
}

/// Sizes of a few words of 64 bytes, none of them zero, for arenas that are really filled.
pub fn small_sizes(setup: &Setup) -> Sizes {
    let unit = Footprint {
        output_bytes: 150,
        saved_until_input_bytes: 64,
        saved_until_weight_bytes: 300,
        core_until_input_bytes: 64,
        core_until_weight_bytes: 100,
        saved_input_bytes: 75,
        pending_bytes: 200,
        scratch_bytes: 128,
    };
    let state = StateBytes {
        gathered: 256,
        unreduced: 256,
        params: 128,
        accumulator: 192,
        moment: 64,
        second_moment: 64,
        update_scratch: 0,
    };
    Sizes {
        footprints: Footprints {
            batch_bytes: 70,
            constant_bytes: 64,
            loss_sums_bytes: 64,
            units: per_class(Footprint::default(), unit, unit, unit),
        },
        units: per_class(state, state, state, state),
        state: setup.sizes().state,
    }
}

/// Bytes in the proportions of a real layer (`B S = 32` tokens of width 64, 4 heads, 256 hidden): what is saved is many
/// times the output, and no size is a multiple of another.
pub fn footprints() -> Footprints {
    let token = 32 * 4;
    Footprints {
        batch_bytes: 32 * 8 + 40,
        constant_bytes: 32 * 16 * 4,
        loss_sums_bytes: 2 * 48 + 16,
        units: per_class(
            Footprint::default(),
            Footprint { output_bytes: token * 64, pending_bytes: token * 64, ..Footprint::default() },
            Footprint {
                output_bytes: token * 64,
                saved_until_input_bytes: token * (3 * 64 + 64 + 6),
                saved_until_weight_bytes: token * (64 + 64 + 256 + 256),
                core_until_input_bytes: token * 8,
                core_until_weight_bytes: token * 64,
                saved_input_bytes: token * 32,
                pending_bytes: token * (3 * 64 + 256 + 64),
                scratch_bytes: token * (256 + 64),
            },
            Footprint { output_bytes: token * 100, scratch_bytes: token * (50 + 64), ..Footprint::default() },
        ),
    }
}
