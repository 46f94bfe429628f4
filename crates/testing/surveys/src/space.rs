//! The one space of layouts that the surveys draw from: the factors of a run with their values, and the run of a point.

mod form;
mod schedule;
mod sharing;
mod task;

use std::fmt;

use config::{
    ContextParallel, Degrees, Format, FullRecompute, GradientSums, ModelSpec, Overlap, Parallelism, Problem, Products,
    Recompute, RunConfig, SavedInputs, SequenceParallel, TokenizerSpec, TrainSpec, check, context_kind_name,
};
use prove::{EqualityClass, Outcome};
use testkit::layout::Layout;
use testkit::models::proof_text;
use testkit::numbers::{Numbers, SEQUENCE_LENGTH};

pub use form::{Form, ShardGroups, three};
pub use schedule::Schedule;
pub use sharing::{RECOMPUTES, Sharing, full, recompute_name};
pub use task::{Shape, Task};

/// One value of each factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The model and the sizes of its training.
    pub task: Task,
    /// Sequences of a microbatch.
    pub microbatch_size: usize,
    /// Tokens of a sequence.
    pub sequence_length: usize,
    /// How parameters and activations are stored, gradients summed and products added up.
    pub numbers: Numbers,
    /// How many ranks do what.
    pub degrees: Degrees,
    /// How ranks that share sequences reach the keys and values of each other.
    pub context: ContextParallel,
    /// Whether ranks that shard matrices shard tokens, too. Unlike other factors, it changes sums.
    pub sequence_parallel: SequenceParallel,
    /// The values that are sharded over data parallelism.
    pub form: Form,
    /// The order of passes.
    pub schedule: Schedule,
    /// The recomputed layers.
    pub recompute: Recompute,
    /// Layers of each stage, where they are not spread evenly.
    pub stage_layers: Option<&'static [usize]>,
    /// Whether communication overlaps with layers.
    pub overlap: Option<Overlap>,
}

impl Point {
    /// One rank in the plain manner: nothing sharded, nothing recomputed, all forwards first, in single precision.
    pub fn plain(task: Task, microbatch_size: usize) -> Point {
        Point {
            task,
            microbatch_size,
            sequence_length: task.sequence_length(),
            numbers: Numbers::ALL[0],
            degrees: Degrees::ONE,
            context: ContextParallel::DEFAULT,
            sequence_parallel: SequenceParallel::Off,
            form: Form::WHOLE,
            schedule: Schedule::GPIPE,
            recompute: Recompute::None,
            stage_layers: None,
            overlap: None,
        }
    }

    /// The same with gradients summed in these numbers.
    #[must_use]
    pub fn with_sums(self, sums: GradientSums) -> Point {
        Point { numbers: Numbers { sums, ..self.numbers }, ..self }
    }

    /// The same with terms of products added in this order.
    #[must_use]
    pub fn with_products(self, products: Products) -> Point {
        Point { numbers: Numbers { products, ..self.numbers }, ..self }
    }

    /// The same for `steps` steps of `global_batch` sequences, where its task is [`Task::Proof`].
    #[must_use]
    pub fn shortened(self, steps: u32, global_batch: usize) -> Point {
        let task = match self.task {
            Task::Proof { style, num_kv_heads, tied, .. } => {
                Task::Proof { style, num_kv_heads, tied, steps, global_batch }
            }
            Task::Small(_) | Task::Long { .. } => self.task,
        };
        Point { task, ..self }
    }

    /// The same with inputs of recomputed layers sharded where sequence parallelism does it anyway, and whole where
    /// ranks cannot shard the tokens.
    #[must_use]
    pub fn with_possible_inputs(self) -> Point {
        let Recompute::Full(full) = self.recompute else { return self };
        let shares_tokens = (self.microbatch_size * self.sequence_length).is_multiple_of(self.degrees.tp);
        let inputs = match self.sequence_parallel {
            SequenceParallel::On => SavedInputs::Sharded,
            SequenceParallel::Off if shares_tokens => full.inputs,
            SequenceParallel::Off => SavedInputs::Whole,
        };
        Point { recompute: Recompute::Full(FullRecompute { inputs, ..full }), ..self }
    }

    /// The values that tensor-parallel ranks shard.
    pub fn sharing(&self) -> Sharing {
        match (self.degrees.tp, self.sequence_parallel) {
            (1, _) => Sharing::Nothing,
            (_, SequenceParallel::Off) => Sharing::Matrices,
            (_, SequenceParallel::On) => Sharing::Tokens,
        }
    }

    /// The runs that one rank is the oracle of differ only in how they are spread over ranks: as the task with the
    /// size of microbatches.
    pub fn family(&self) -> String {
        format!("{} microbatch {}", self.task, self.microbatch_size)
    }

    /// Whether both are of one family.
    pub fn is_of(&self, family: &Point) -> bool {
        (self.task, self.microbatch_size) == (family.task, family.microbatch_size)
    }

    /// Factors with their values as text: form, schedule, sharing, recomputation, numbers, shape and sequences.
    pub fn values(&self) -> [String; 7] {
        let shape = match self.task {
            Task::Small(shape) => shape.to_string(),
            Task::Proof { .. } | Task::Long { .. } => self.task.to_string(),
        };
        [
            self.form.to_string(),
            self.schedule.to_string(),
            self.sharing().to_string(),
            recompute_name(self.recompute),
            self.numbers.to_string(),
            shape,
            self.sequences(),
        ]
    }

    fn sequences(&self) -> String {
        let sequences = match self.degrees.cp {
            1 => "whole sequences".to_string(),
            cp => format!("cp {cp} by {}", context_kind_name(self.context.kind)),
        };
        match self.sequence_length {
            SEQUENCE_LENGTH => sequences,
            length => format!("{sequences} of {length} tokens"),
        }
    }

    /// Whether the schedule has its stages and its groups of microbatches; if nothing else is wrong, the point is then
    /// legal.
    pub fn suits(&self) -> bool {
        self.schedule.suits(self.degrees.pp, self.model().num_layers, self.num_microbatches())
    }

    fn num_microbatches(&self) -> usize {
        self.training().global_batch / (self.degrees.dp * self.microbatch_size)
    }

    fn model(&self) -> ModelSpec {
        self.task.model(self.sequence_length)
    }

    fn training(&self) -> TrainSpec {
        let training = self.task.training(self.numbers, self.degrees.dp);
        TrainSpec { sequence_length: self.sequence_length, ..training }
    }

    /// The point whose bits every point of the same `dp`, `cp`, `tp` and sequence parallelism has that sums gradients
    /// in the same order: one stage, in the plainest such manner. Where sums are exact, their order does not matter:
    /// one replica in microbatches of another size.
    pub fn reference(&self) -> Point {
        let plain = Point {
            degrees: Degrees { pp: 1, ..self.degrees },
            schedule: Schedule::GPIPE,
            recompute: Recompute::None,
            ..*self
        };
        match self.numbers.sums {
            GradientSums::Single => Point { form: self.form.reference(self.degrees), ..plain },
            GradientSums::Exact => Point {
                form: Form::WHOLE,
                degrees: Degrees { dp: 1, ..plain.degrees },
                microbatch_size: self.task.reference_microbatch(),
                ..plain
            },
        }
    }

    /// One rank in the plain manner, in the same numbers, with sequences of the same length.
    pub fn oracle(&self) -> Point {
        Point {
            form: Form::WHOLE,
            degrees: Degrees::ONE,
            context: ContextParallel::DEFAULT,
            sequence_parallel: SequenceParallel::Off,
            ..self.reference()
        }
    }

    /// The promise of the point to its oracle.
    pub fn class(&self) -> EqualityClass {
        let class = EqualityClass::of(&self.oracle().layout().parallelism, &self.layout().parallelism);
        class.in_sums([self.numbers.sums; 2])
    }

    /// The run, in the words of a run file.
    pub fn layout(&self) -> Layout {
        let Degrees { dp, pp, .. } = self.degrees;
        let parallelism = Parallelism {
            degrees: self.degrees,
            context: self.context,
            sequence_parallel: self.sequence_parallel,
            zero: self.form.zero,
            shard_group: self.form.shard_group(dp),
            ep: 1,
            sum_tree: 1,
            schedule: self.schedule.spec(pp, self.num_microbatches()),
            microbatch_size: self.microbatch_size,
            recompute: self.recompute,
            stage_layers: self.stage_layers.map(<[usize]>::to_vec),
            overlap: self.overlap,
        };
        Layout { model: self.model(), parallelism, train: self.training() }
    }

    /// The rules that the product says the point breaks; none for a legal one.
    pub fn refusals(&self) -> Vec<Problem> {
        let Layout { model, parallelism, train } = self.layout();
        let mut config = RunConfig { model, parallelism, train, ..RunConfig::quick_start() };
        config.data.tokenizer = TokenizerSpec::Bytes;
        config.run.ranks = self.degrees.world_size();
        check(&config).err().unwrap_or_default()
    }

    /// Whether the product accepts it.
    pub fn is_legal(&self) -> bool {
        self.refusals().is_empty()
    }

    /// Its outcome on threads of this process.
    ///
    /// # Errors
    /// A run that fails, in words.
    pub fn outcome(&self) -> Result<Outcome, String> {
        self.layout().outcome(&proof_text()).map_err(|error| format!("{self}: {error}"))
    }
}

/// The suffix of a name that says in which order products add their terms; empty for the default.
pub fn products_suffix(products: Products) -> &'static str {
    match products {
        Products::Chained => "",
        Products::Pairs => ", products in AMX order",
        Products::Blocks16 => ", products in blocks of 16",
        Products::Blocks8 => ", products in blocks of 8",
        Products::Device => ", products of the device",
    }
}

/// A name that no other point of a survey has: factors that are rare have no word where they are as usual.
impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Point { form, schedule, degrees, .. } = self;
        let mut rare = vec![];
        if self.sequence_parallel == SequenceParallel::On {
            rare.push("sequence parallel".to_string());
        }
        if self.degrees.cp > 1 || self.sequence_length != self.task.sequence_length() {
            rare.push(self.sequences());
        }
        if self.degrees.cp > 1 {
            rare.push(format!("{:?} chunks", self.context.chunks));
        }
        write!(f, "{}, {}", self.family(), degrees.joined(" "))?;
        rare.iter().try_for_each(|word| write!(f, ", {word}"))?;
        write!(f, ", {form} {schedule} {}", recompute_name(self.recompute))?;
        if let Some(layers) = self.stage_layers {
            write!(f, ", stages of {layers:?}")?;
        }
        if self.overlap.is_some() {
            f.write_str(", overlap")?;
        }
        match self.numbers.format {
            Format::Fp32 => {}
            Format::Bf16 => f.write_str(", bf16")?,
            Format::Fp16 => f.write_str(", fp16")?,
        }
        match self.numbers.sums {
            GradientSums::Single => {}
            GradientSums::Exact => f.write_str(", exact sums")?,
        }
        f.write_str(products_suffix(self.numbers.products))
    }
}
