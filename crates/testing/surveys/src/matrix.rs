//! Combinations: every ZeRO form with every schedule, with every way to shard matrices, recomputation and numbers.
//!
//! Degrees, and whether the token table is tied, are drawn per cell. The model is as small as can be, so that thousands
//! of cells are few minutes.

pub mod covering;
pub mod proof;
mod shared;

use std::fmt;

use config::{
    Activation, Blocks, Degrees, FullRecompute, Gathering, GivenSchedule, GradientReduction, GradientSums, ModelSpec,
    Pairing, Parallelism, Position, Problem, Recompute, Reshard, RotaryScaling, RunConfig, SavedInputs, ScheduleKind,
    ScheduleSpec, SequenceParallel, Tied, TokenizerSpec, TopQuery, ZeroStage, check,
};
use philox::philox4x32_10;
use prove::MAX_RANKS;
use testkit::layout::Layout;
use testkit::numbers::{GLOBAL_BATCH, Numbers, model, training};

use crate::cases::{Form, Manner, ShardGroups, recompute_name, schedule_name};

pub use shared::Sequences;

/// Another seed draws other degrees.
const SEED: u32 = 11;

/// Stages of each rank where the schedule is read from a file.
const GIVEN_STAGES: usize = 2;

/// Where the order of passes comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Generated(ScheduleKind),
    /// It is read from a file: two neighbouring stages on each rank, as no generated schedule has them, all forwards
    /// first, gradients of weights last.
    Given,
}

impl Order {
    /// All generated schedules, and a file.
    pub fn all() -> Vec<Order> {
        Manner::SCHEDULES.into_iter().map(Order::Generated).chain([Order::Given]).collect()
    }

    /// As a run file resolves it for `pp` ranks.
    fn spec(self, pp: usize, num_microbatches: usize) -> ScheduleSpec {
        match self {
            Order::Generated(kind) => kind.into(),
            Order::Given => {
                let lines: Vec<String> = (0..pp).map(|rank| given_line(rank, num_microbatches)).collect();
                ScheduleSpec::Given(GivenSchedule { path: "schedule.txt".into(), text: lines.join("\n") })
            }
        }
    }
}

/// The cells of one rank: stages ascend in the forward pass and descend in the backward pass.
fn given_line(rank: usize, num_microbatches: usize) -> String {
    let stages = rank * GIVEN_STAGES..(rank + 1) * GIVEN_STAGES;
    let pass = |stage: usize, kind: char| (0..num_microbatches).map(move |number| format!("{stage}{kind}{number}"));
    let forwards = stages.clone().flat_map(|stage| pass(stage, 'F'));
    let inputs = stages.clone().rev().flat_map(|stage| pass(stage, 'I'));
    let weights = stages.rev().flat_map(|stage| pass(stage, 'W'));
    forwards.chain(inputs).chain(weights).collect::<Vec<_>>().join(" ")
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Order::Generated(kind) => f.write_str(&schedule_name(*kind)),
            Order::Given => f.write_str("a given file"),
        }
    }
}

/// The values that tensor-parallel ranks shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sharing {
    /// Nothing: each is alone.
    Nothing,
    Matrices,
    /// Matrices, and between them tokens.
    Tokens,
}

impl Sharing {
    /// All.
    pub const ALL: [Sharing; 3] = [Sharing::Nothing, Sharing::Matrices, Sharing::Tokens];

    fn tp(self) -> usize {
        match self {
            Sharing::Nothing => 1,
            Sharing::Matrices | Sharing::Tokens => 2,
        }
    }

    fn sequence_parallel(self) -> SequenceParallel {
        match self {
            Sharing::Nothing | Sharing::Matrices => SequenceParallel::Off,
            Sharing::Tokens => SequenceParallel::On,
        }
    }

    /// The forms of recomputation: a rank that is alone cannot shard inputs, and ranks that shard tokens have no whole
    /// inputs.
    pub fn recomputes(self) -> Vec<Recompute> {
        let full = |every, inputs| Recompute::Full(FullRecompute { every, inputs });
        let (whole, sharded) = (SavedInputs::Whole, SavedInputs::Sharded);
        let mut recomputes = vec![Recompute::None, Recompute::Selective];
        recomputes.extend(match self {
            Sharing::Nothing => vec![full(1, whole), full(2, whole)],
            Sharing::Matrices => vec![full(1, whole), full(2, whole), full(1, sharded)],
            Sharing::Tokens => vec![full(1, sharded), full(2, sharded)],
        });
        recomputes
    }
}

impl fmt::Display for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sharing::Nothing => "tp 1",
            Sharing::Matrices => "tp 2",
            Sharing::Tokens => "tp 2 + sp",
        })
    }
}

/// Every stage, once without and once with sharding groups where they change something, gradients summed once a step
/// and per microbatch.
pub fn forms() -> Vec<Form> {
    let one = |zero| Form { zero, shard_groups: ShardGroups::One };
    let several = |zero| Form { zero, shard_groups: ShardGroups::Several };
    let three = |reduce, reshard| ZeroStage::Three { reduce, gathering: Gathering { prefetch: 1, reshard } };
    let (step, microbatch) = (GradientReduction::Step, GradientReduction::Microbatch);
    vec![
        one(ZeroStage::Off),
        one(ZeroStage::One),
        one(ZeroStage::Two { reduce: step }),
        one(ZeroStage::Two { reduce: microbatch }),
        one(three(step, Reshard::AfterUse)),
        one(three(step, Reshard::AfterBackward)),
        several(ZeroStage::One),
        several(three(microbatch, Reshard::AfterUse)),
    ]
}

/// One combination.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// The values that are sharded over data parallelism.
    pub form: Form,
    /// The order of passes.
    pub order: Order,
    /// The values that tensor-parallel ranks shard.
    pub sharing: Sharing,
    /// The recomputed layers.
    pub recompute: Recompute,
    /// How parameters and activations are stored, gradients summed and products added up.
    pub numbers: Numbers,
    /// The task: in the product drawn of two.
    pub shape: Shape,
    /// How many ranks do what; drawn.
    pub degrees: Degrees,
    /// Sequences of a microbatch.
    pub microbatch_size: usize,
    /// How ranks share sequences: in the product not at all.
    pub sequences: Sequences,
}

impl Cell {
    /// The whole product. Cells that differ only in their sums or in the order of their products are drawn alike.
    pub fn all() -> Vec<Cell> {
        let (plain, others): (Vec<_>, Vec<_>) =
            Numbers::ALL.into_iter().partition(|numbers| *numbers == numbers.plain());
        let mut cells = Vec::new();
        for form in forms() {
            for order in Order::all() {
                for sharing in Sharing::ALL {
                    for recompute in sharing.recomputes() {
                        for &numbers in &plain {
                            let [first, second, ..] = philox4x32_10([cells.len() as u32, 0, 0, 0], [SEED, 0]);
                            let shape = if first.is_multiple_of(2) { Shape::Gpt2 } else { Shape::Llama };
                            let candidates = degrees(form, order, sharing);
                            let degrees = candidates[second as usize % candidates.len()];
                            cells.push(Cell {
                                form,
                                order,
                                sharing,
                                recompute,
                                numbers,
                                shape,
                                degrees,
                                microbatch_size: 1,
                                sequences: Sequences::WHOLE,
                            });
                        }
                    }
                }
            }
        }
        for numbers in others {
            let alike = |cell: &&Cell| cell.numbers == numbers.plain();
            let drawn: Vec<Cell> = cells.iter().filter(alike).map(|cell| Cell { numbers, ..*cell }).collect();
            cells.extend(drawn);
        }
        cells
    }

    /// Cells of the shapes that the product leaves out: each shape in every order with every sharing, the rest drawn
    /// from the product.
    pub fn of_other_shapes() -> Vec<Cell> {
        let (all, mut cells) = (Cell::all(), Vec::new());
        for shape in [Shape::GptNeoX, Shape::CodeGeeX] {
            for order in Order::all() {
                for sharing in Sharing::ALL {
                    let alike: Vec<&Cell> =
                        all.iter().filter(|cell| cell.order == order && cell.sharing == sharing).collect();
                    let [random, ..] = philox4x32_10([cells.len() as u32, 1, 0, 0], [SEED, 0]);
                    cells.push(Cell { shape, ..*alike[random as usize % alike.len()] });
                }
            }
        }
        cells
    }

    /// The factors with their values as text: form, order, sharing, recomputation, numbers, shape and sequences.
    pub fn values(&self) -> [String; 7] {
        [
            self.form.to_string(),
            self.order.to_string(),
            self.sharing.to_string(),
            recompute_name(self.recompute),
            self.numbers.to_string(),
            self.shape.to_string(),
            self.sequences.to_string(),
        ]
    }

    /// One stage in the plainest manner whose bits the cell has: that sums in the same order, or, where sums are exact,
    /// on one replica in larger microbatches.
    pub fn reference(&self) -> Cell {
        let plain = Cell {
            order: Order::Generated(ScheduleKind::GPipe),
            recompute: Recompute::None,
            degrees: Degrees { pp: 1, ..self.degrees },
            ..*self
        };
        match self.numbers.sums {
            GradientSums::Single => Cell { form: self.form.reference(self.degrees), ..plain },
            GradientSums::Exact => {
                let degrees = Degrees { dp: 1, ..plain.degrees };
                Cell { form: Form::WHOLE, degrees, microbatch_size: LARGER_MICROBATCH, ..plain }
            }
        }
    }

    /// One rank in the plain manner, in the same numbers, with sequences of the same length.
    pub fn oracle(&self) -> Cell {
        let sequences = Sequences { kind: None, ..self.sequences };
        Cell { form: Form::WHOLE, sharing: Sharing::Nothing, degrees: Degrees::ONE, sequences, ..self.reference() }
    }

    /// The layout that runs.
    pub fn layout(&self) -> Layout {
        let Degrees { dp, pp, .. } = self.degrees;
        let train = self.sequences.of(training(self.numbers));
        let parallelism = Parallelism {
            degrees: self.degrees,
            context: self.sequences.context(),
            sequence_parallel: self.sharing.sequence_parallel(),
            zero: self.form.zero,
            shard_group: self.form.shard_group(dp),
            sum_tree: 1,
            schedule: self.order.spec(pp, train.global_batch / (dp * self.microbatch_size)),
            microbatch_size: self.microbatch_size,
            recompute: self.recompute,
            stage_layers: None,
            overlap: None,
        };
        let model = ModelSpec { context: self.sequences.length.max(self.shape.model().context), ..self.shape.model() };
        Layout { model, parallelism, train }
    }

    /// The rules that the product says the cell breaks; none for a legal one.
    pub fn refusals(&self) -> Vec<Problem> {
        let Layout { model, parallelism, train } = self.layout();
        let mut config = RunConfig { model, parallelism, train, ..RunConfig::quick_start() };
        config.data.tokenizer = TokenizerSpec::Bytes;
        config.run.ranks = self.degrees.world_size();
        check(&config).err().unwrap_or_default()
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.values().join(", "), self.degrees.joined(" "))?;
        match self.microbatch_size {
            1 => Ok(()),
            size => write!(f, ", microbatches of {size}"),
        }
    }
}

/// Degrees that suit: several sharding groups of several replicas, microbatches in whole groups, at most [`MAX_RANKS`]
/// ranks.
fn degrees(form: Form, order: Order, sharing: Sharing) -> Vec<Degrees> {
    let replicas: &[usize] = match form.shard_groups {
        ShardGroups::One => &[2, 3],
        ShardGroups::Several => &[4],
    };
    degrees_among(replicas, 1, order, sharing)
}

/// The degrees of at most [`MAX_RANKS`] ranks with one of these numbers of replicas, whose microbatches are in whole
/// groups.
fn degrees_among(replicas: &[usize], cp: usize, order: Order, sharing: Sharing) -> Vec<Degrees> {
    let mut all = Vec::new();
    for &dp in replicas {
        for pp in 2..=4 {
            let degrees = Degrees { dp, cp, tp: sharing.tp(), pp };
            let group = match order {
                Order::Generated(kind) => kind.microbatch_group(pp),
                Order::Given => 1,
            };
            let num_microbatches = GLOBAL_BATCH / dp;
            if degrees.world_size() <= MAX_RANKS && num_microbatches.is_multiple_of(group) {
                all.push(degrees);
            }
        }
    }
    all
}

/// Traits of the cells' models; their sizes are those of [`model`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    /// Layer norms, a tied table.
    Gpt2,
    /// RMS norms, rotation, gated activations, fewer key than query heads, an output matrix of its own.
    Llama,
    /// Blocks side by side, half of each head rotated, an output matrix of its own; no dropout of the blocks' sums, so
    /// that they are taken together.
    GptNeoX,
    /// A layer after the final norm whose queries come from a table.
    CodeGeeX,
}

impl Shape {
    /// Its model.
    pub fn model(self) -> ModelSpec {
        let gpt2 = model(Tied::Yes);
        match self {
            Shape::Gpt2 => gpt2,
            Shape::Llama => model(Tied::No),
            Shape::GptNeoX => {
                let (pairing, scaling) = (Pairing::Half, RotaryScaling::Off);
                let position = Position::Rotary { base: 10_000.0, rotary_dims: gpt2.head_dim / 2, pairing, scaling };
                ModelSpec { blocks: Blocks::Parallel, position, tied_embeddings: false, dropout: 0.0, ..gpt2 }
            }
            Shape::CodeGeeX => ModelSpec { top_query: TopQuery::On, activation: Activation::GeluSigmoid, ..gpt2 },
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Shape::Gpt2 => "GPT-2",
            Shape::Llama => "Llama",
            Shape::GptNeoX => "GPT-NeoX",
            Shape::CodeGeeX => "CodeGeeX",
        })
    }
}

/// Sequences of a microbatch in references of exact sums.
const LARGER_MICROBATCH: usize = 2;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prove::{narrow, without_bounds};

    use super::*;

    #[test]
    fn the_product_is_whole_and_legal() {
        let cells = Cell::all();
        assert_eq!(cells.len(), 8 * 9 * (4 + 5 + 4) * 7);
        let names: BTreeSet<String> = cells.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), cells.len(), "names of cells");
        let others = Cell::of_other_shapes();
        assert_eq!(others.len(), 2 * 9 * 3);
        for cell in cells.iter().chain(&others) {
            assert_eq!(cell.refusals(), [], "{cell}");
            assert!(cell.degrees.world_size() <= MAX_RANKS, "{cell}");
        }
    }

    #[test]
    fn every_form_meets_every_order_tied_and_untied_and_in_several_degrees() {
        let cells = Cell::all();
        for form in forms() {
            for order in Order::all() {
                let of = || cells.iter().filter(|cell| cell.form == form && cell.order == order);
                let shapes = of().map(|cell| cell.shape).collect::<BTreeSet<_>>().len();
                assert_eq!(shapes, 2, "{form} {order}");
                let drawn = of().map(|cell| cell.degrees).collect::<BTreeSet<_>>().len();
                assert!(drawn >= 3, "{form} {order}: {drawn} degrees");
            }
        }
    }

    #[test]
    fn every_shape_is_as_wide_as_the_bounds_need() {
        for shape in [Shape::Gpt2, Shape::Llama, Shape::GptNeoX, Shape::CodeGeeX] {
            let model = shape.model();
            assert_eq!((narrow(&model), without_bounds(&model)), (None, None), "{shape}");
        }
    }

    #[test]
    fn what_a_rank_cannot_share_out_is_refused() {
        let cells = Cell::all();
        let sharing = |cell: &&Cell| cell.sharing == Sharing::Tokens && cell.recompute == Recompute::None;
        let cell = cells.iter().find(sharing).copied().unwrap_or(cells[0]);
        let said: Vec<String> =
            Cell { recompute: Recompute::FULL, ..cell }.refusals().iter().map(ToString::to_string).collect();
        let expected = "parallelism.recompute_inputs = \"whole\" must be \"sharded\" with \
                        parallelism.sequence_parallel = true, where a rank has its own tokens only; use \"sharded\"";
        assert_eq!(said, [expected]);
    }

    #[test]
    fn a_given_file_puts_neighbouring_stages_on_a_rank() {
        let ScheduleSpec::Given(given) = Order::Given.spec(2, 2) else { panic!("not given") };
        assert_eq!(
            given.text,
            "0F0 0F1 1F0 1F1 1I0 1I1 0I0 0I1 1W0 1W1 0W0 0W1\n2F0 2F1 3F0 3F1 3I0 3I1 2I0 2I1 3W0 3W1 2W0 2W1"
        );
    }
}
