//! Layouts whose ranks share sequences (context parallelism), each against one rank.

use std::fmt;

use config::{
    ChunkOrder, ContextKind, ContextParallel, Degrees, FullRecompute, Gathering, GradientReduction, GradientSums,
    ModelSpec, Overlap, Parallelism, Precision, Products, Recompute, Reshard, RunConfig, SavedInputs, ScheduleKind,
    SequenceParallel, TokenizerSpec, TrainSpec, ZeroStage, check,
};
use prove::{Distance, EqualityClass, MAX_RANKS, Outcome, Promise, outcome_of};
use testkit::layout::Layout;
use testkit::models::{Style, plain_layout, proof_model, proof_text, proof_training};

use crate::arena_use::MeasuringEngine;

/// Tokens of a sequence: several tiles of attention's keys, and a multiple of twice most degrees.
const LENGTH: usize = 96;
/// The ways to keys and values of other ranks.
pub const KINDS: [ContextKind; 3] = ContextKind::ALL;
/// Steps of a run.
const STEPS: u32 = 2;

/// A layout, and what is learned.
#[derive(Clone, Debug)]
pub struct SharedCase {
    /// The model's style.
    pub style: Style,
    /// The numbers that are stored and sent.
    pub precision: Precision,
    /// The numbers in which gradients are summed.
    pub sums: GradientSums,
    /// The layout.
    pub parallelism: Parallelism,
}

impl SharedCase {
    /// Every legal (dp, cp, tp, pp) with cp above 1 and at most [`MAX_RANKS`] ranks, with each kind, in balanced
    /// chunks where they divide a sequence and in contiguous ones. Style, precision, sums, ZeRO, schedule,
    /// recomputation, sequence parallelism and overlap change from one to the next.
    pub fn all() -> Vec<SharedCase> {
        let counts = || 1..=MAX_RANKS;
        let degrees = counts().flat_map(|dp| {
            counts().flat_map(move |cp| counts().flat_map(move |tp| counts().map(move |pp| Degrees { dp, cp, tp, pp })))
        });
        let degrees = degrees.filter(|degrees| degrees.cp > 1 && degrees.world_size() <= MAX_RANKS);
        let contexts = KINDS.into_iter().flat_map(|kind| {
            [ChunkOrder::Balanced, ChunkOrder::Contiguous].map(|chunks| ContextParallel { kind, chunks })
        });
        let contexts: Vec<ContextParallel> = contexts.collect();
        let both = degrees.flat_map(|degrees| contexts.iter().map(move |context| (degrees, *context)));
        let cases = both.enumerate().map(|(index, (degrees, context))| SharedCase::new(index, degrees, context));
        cases.filter(SharedCase::is_legal).collect()
    }

    fn new(index: usize, degrees: Degrees, context: ContextParallel) -> SharedCase {
        let of_microbatch = GradientReduction::Microbatch;
        let gathering = Gathering { prefetch: 1, reshard: Reshard::AfterUse };
        let zeros = [
            ZeroStage::Off,
            ZeroStage::One,
            ZeroStage::Two { reduce: of_microbatch },
            ZeroStage::Three { reduce: GradientReduction::Step, gathering },
            ZeroStage::Three { reduce: of_microbatch, gathering },
        ];
        let schedules = [ScheduleKind::OneForwardOneBackward, ScheduleKind::ZeroBubbleH1, ScheduleKind::GPipe];
        let sequence_parallel = [SequenceParallel::Off, SequenceParallel::On][index / 2 % 2];
        let inputs = match sequence_parallel {
            SequenceParallel::Off => SavedInputs::Whole,
            SequenceParallel::On => SavedInputs::Sharded,
        };
        let full = Recompute::Full(FullRecompute { every: 1, inputs });
        let parallelism = Parallelism {
            degrees,
            context,
            sequence_parallel,
            zero: zeros[index % zeros.len()],
            schedule: schedules[index % schedules.len()].into(),
            recompute: [Recompute::None, Recompute::Selective, full][index / 3 % 3],
            microbatch_size: 1 + index / 5 % 2,
            overlap: [None, Some(Overlap::On)][index / 11 % 2],
            ..plain_layout(degrees.dp, degrees.tp, degrees.pp, 1)
        };
        let chained = Products::Chained;
        let (precision, sums) = [
            (Precision::Fp32(chained), GradientSums::Single),
            (Precision::Bf16(chained), GradientSums::Single),
            (Precision::Fp32(chained), GradientSums::Exact),
        ][index / 7 % 3];
        SharedCase { style: [Style::Gpt2, Style::Llama][index / 4 % 2], precision, sums, parallelism }
    }

    fn is_legal(&self) -> bool {
        let Layout { model, parallelism, train } = self.layout();
        let mut config = RunConfig { model, parallelism, train, ..RunConfig::quick_start() };
        config.data.tokenizer = TokenizerSpec::Bytes;
        config.run.ranks = self.parallelism.world_size();
        check(&config).is_ok()
    }

    fn model(&self) -> ModelSpec {
        let Parallelism { degrees, context, .. } = &self.parallelism;
        // Groups of queries, but as many keys as there are queries where ranks could not split the heads otherwise.
        let kv_heads = match context.kind {
            ContextKind::Heads if degrees.cp.is_multiple_of(3) => 12,
            ContextKind::Gather | ContextKind::Heads | ContextKind::Ring => 4,
        };
        ModelSpec { context: LENGTH, num_layers: 2, ..proof_model(self.style, kv_heads, self.style == Style::Gpt2) }
    }

    fn layout(&self) -> Layout {
        // Enough microbatches of any replica that every schedule has its groups.
        let global_batch = self.parallelism.degrees.dp * 2 * 2;
        let SharedCase { precision, sums, .. } = *self;
        let train = TrainSpec {
            steps: STEPS,
            warmup_steps: 1,
            global_batch,
            sequence_length: LENGTH,
            precision,
            sums,
            ..proof_training()
        };
        Layout { model: self.model(), parallelism: self.parallelism.clone(), train }
    }

    /// One rank that learns the same.
    fn of_one_rank(&self) -> Layout {
        Layout { parallelism: plain_layout(1, 1, 1, 1), ..self.layout() }
    }

    /// The faults of the case: values beyond the bounds of other sums; where neither tensor parallelism nor blocks of
    /// keys split a sum, a first loss with other bits than one rank's; ranks that use another arena than is planned, to
    /// the byte.
    ///
    /// # Errors
    /// A run that fails.
    pub fn faults(&self) -> Result<Vec<String>, String> {
        let (one, layout) = (self.of_one_rank(), self.layout());
        let oracle = one.outcome(&proof_text()).map_err(|error| error.to_string())?;
        let setup = layout.setup().map_err(|error| error.to_string())?;
        let engine = MeasuringEngine::new(&setup);
        let outcome = outcome_of(&setup, &engine, &proof_text()).map_err(|error| error.to_string())?;
        let class = EqualityClass::of(&one.parallelism, &layout.parallelism);
        let distance = Distance::between(&oracle, &outcome, |name| {
            layout.model.has_idle_key_biases() && name.ends_with("key.bias")
        });
        let promise = Promise::of(class, &layout.model, &layout.train, STEPS);
        let mut faults = promise.faults([&oracle, &outcome], &distance);
        faults.extend(engine.faults(&setup));
        let [first, own] =
            [&oracle, &outcome].map(|outcome: &Outcome| outcome.losses.first().map(|loss| loss.to_bits()));
        let is_split = self.parallelism.degrees.tp > 1 || self.parallelism.context.kind == ContextKind::Ring;
        if !is_split && first != own {
            faults.push("the first loss has other bits than that of one rank".into());
        }
        Ok(faults)
    }
}

impl fmt::Display for SharedCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parallelism {
            degrees,
            context,
            zero,
            schedule,
            recompute,
            sequence_parallel,
            microbatch_size,
            overlap,
            ..
        } = &self.parallelism;
        write!(
            f,
            "{:?} in {:?}, {:?} sums, {degrees}, {:?} in {:?} chunks, {zero:?}, {schedule:?}, {recompute:?}, sequence parallel {sequence_parallel:?}, \
             microbatches of {microbatch_size}, overlap {overlap:?}",
            self.style, self.precision, self.sums, context.kind, context.chunks
        )
    }
}
