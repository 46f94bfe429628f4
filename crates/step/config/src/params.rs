//! The one list of parameters: [`params`] declares each once; everything else follows from it.

use mesh::{Axis, AxisSet, AxisSizes, Coord, Region};

use crate::expert_params::{around_experts, stacks};
use crate::fnv::Fnv1a;
use crate::lora::{LinearLayer, LoraSpec};
use crate::model::{Biases, Blocks, ModelSpec, NormKind, Position, TopQuery};
use crate::parallelism::{Parallelism, SequenceParallel};
use crate::unit::Unit;

/// How a parameter is split between the ranks of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharding {
    /// Every rank holds all of it.
    Replicated,
    /// Split evenly along the first dim or the last.
    Split {
        /// 0 for column-parallel matrices `W[F/tp, D]` and their biases, 1 for row-parallel ones `W[D, F/tp]`.
        dim: usize,
        /// The axes along which ranks hold different slices.
        axes: AxisSet,
    },
    /// Rows of the vocabulary, padded at the end so that every rank holds equally many.
    VocabularyRows {
        /// The axes along which ranks hold different rows.
        axes: AxisSet,
    },
}

impl Sharding {
    /// Outputs of a column-parallel map `W[F/tp, D]`, and its bias.
    pub const COLUMNS: Sharding = Sharding::Split { dim: 0, axes: AxisSet::of(Axis::Tp) };
    /// Inputs of a row-parallel map `W[D, F/tp]`.
    pub const ROWS: Sharding = Sharding::Split { dim: 1, axes: AxisSet::of(Axis::Tp) };
    /// Whole experts of a stack `[E/(tp ep), ..]`: those of a tensor-parallel rank, which ranks along ep divide.
    pub const EXPERTS: Sharding = Sharding::Split { dim: 0, axes: AxisSet::of(Axis::Ep).with(Axis::Tp) };
    /// Rows of a token table `[V/tp, D]`.
    pub const VOCABULARY: Sharding = Sharding::VocabularyRows { axes: AxisSet::of(Axis::Tp) };

    /// The same on a mesh of `sizes`: along ep only where ranks divide experts. A run without such ranks has no set
    /// with their axis.
    pub fn on(self, sizes: AxisSizes) -> Sharding {
        let named = |axes: AxisSet| if sizes.ep == 1 { axes.without(Axis::Ep) } else { axes };
        match self {
            Sharding::Replicated => Sharding::Replicated,
            Sharding::Split { dim, axes } => Sharding::Split { dim, axes: named(axes) },
            Sharding::VocabularyRows { axes } => Sharding::VocabularyRows { axes: named(axes) },
        }
    }

    /// The axes along which ranks hold different elements.
    pub const fn axes(self) -> AxisSet {
        match self {
            Sharding::Replicated => AxisSet::NONE,
            Sharding::Split { axes, .. } | Sharding::VocabularyRows { axes } => axes,
        }
    }

    /// Which of the slices the rank at `coord` holds. A tensor-parallel rank has neighbouring slices, whatever other
    /// axes divide them further: it sums over the same experts for every ep.
    pub fn slice_of(self, coord: &Coord) -> usize {
        let tensor = AxisSet::of(Axis::Tp);
        let (within, beyond) = (self.axes().difference(tensor), self.axes().intersection(tensor));
        coord.position(beyond) * coord.sizes().size(within) + coord.position(within)
    }
}

/// The value that a parameter is applied to. Where that value varies and the parameter does not, the
/// gradient is summed ([`gradient_axes`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppliedTo {
    /// The residual stream: equal on all tensor-parallel ranks, unless sequence parallelism gives each other tokens.
    Residual,
    /// Attention heads: different on each tensor-parallel rank.
    Heads,
    /// Columns of the feed-forward block, or its experts: different on each tensor-parallel rank.
    Hidden,
    /// Rows of the vocabulary: different on each tensor-parallel rank.
    Vocabulary,
    /// The choice of experts, which has no gradient: equal on all ranks.
    Choice,
}

/// Distribution of initial values; element values are functions of (seed, name, global element).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Normal with mean 0.
    Normal {
        /// Standard deviation.
        std: f32,
    },
    /// All 0.
    Zeros,
    /// All 1.
    Ones,
    /// Uniform between `-bound` and `bound`.
    Uniform {
        /// The largest value.
        bound: f32,
    },
}

/// One declaration per parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamSpec {
    /// Global name, unique in the model.
    pub name: String,
    /// Global shape, without padding: one dim or more.
    pub shape: Vec<usize>,
    /// How ranks split it.
    pub sharding: Sharding,
    /// The unit that holds it.
    pub unit: Unit,
    /// See [`AppliedTo`].
    pub applied_to: AppliedTo,
    /// Initial values.
    pub init: Init,
    /// Whether weight decay applies (matrices yes, norms and biases no).
    pub decay: bool,
}

impl ParamSpec {
    /// Elements of the whole parameter.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether the parameter has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Identity for random numbers: FNV-1a of the name, so that it depends on no order and no layout.
    pub fn id(&self) -> u64 {
        let mut hash = Fnv1a::default();
        hash.add(&self.name);
        hash.hash()
    }

    /// Local dims on a rank of a mesh of `sizes`. Padding rows are included.
    ///
    /// # Panics
    /// A split along a dim in the middle, of which a rank's rows are not neighbours.
    pub fn local_dims(&self, sizes: AxisSizes) -> Vec<usize> {
        let mut dims = self.shape.clone();
        match self.sharding {
            Sharding::Replicated => {}
            Sharding::Split { dim, axes } => {
                assert!(
                    dim == 0 || dim + 1 == dims.len(),
                    "{} must be split along its first dim or its last",
                    self.name
                );
                dims[dim] /= sizes.size(axes);
            }
            Sharding::VocabularyRows { axes } => dims[0] = dims[0].div_ceil(sizes.size(axes)),
        }
        dims
    }

    /// The part of the rank at `coord`. Padding rows, which are after the rows of the parameter, are included.
    ///
    /// # Panics
    /// The panics of [`ParamSpec::local_dims`].
    pub fn local_box(&self, coord: &Coord) -> Region {
        let mut part = Region::whole(&self.local_dims(coord.sizes()));
        match self.sharding {
            Sharding::Replicated => {}
            Sharding::Split { dim, .. } => part.start[dim] = self.sharding.slice_of(coord) * part.extent[dim],
            Sharding::VocabularyRows { .. } => part.start[0] = self.sharding.slice_of(coord) * part.extent[0],
        }
        part
    }

    /// Local `(rows, cols)`, as [`ParamSpec::matrix_shape`]. Padding rows are included.
    ///
    /// # Panics
    /// The panics of [`ParamSpec::local_dims`].
    pub fn local_shape(&self, sizes: AxisSizes) -> (usize, usize) {
        let dims = self.local_dims(sizes);
        let (_, rows, cols) = Region::whole(&dims).in_matrix(&dims);
        (rows, cols)
    }

    /// Global `(rows, cols)`: all dims but the last number rows; vectors are one row.
    pub fn matrix_shape(&self) -> (usize, usize) {
        self.local_shape(AxisSizes::ONE)
    }

    /// Global `(row, col)` of the first local element on the rank at `coord`.
    ///
    /// # Panics
    /// The panics of [`ParamSpec::local_dims`].
    pub fn local_start(&self, coord: &Coord) -> (usize, usize) {
        self.local_box(coord).in_matrix(&self.shape).0
    }
}

/// The axes over which a parameter's gradient is summed: those on which the value that it is applied to varies
/// and the parameter itself does not. Tokens always vary over [`UnitAxes::tokens`].
pub fn gradient_axes(param: &ParamSpec, parallelism: &Parallelism) -> AxisSet {
    let tensor = parallelism.tensor_axes();
    let value_varies = match param.applied_to {
        AppliedTo::Residual => match parallelism.sequence_parallel {
            SequenceParallel::Off => AxisSet::NONE,
            SequenceParallel::On => tensor,
        },
        AppliedTo::Heads | AppliedTo::Hidden | AppliedTo::Vocabulary => tensor,
        AppliedTo::Choice => return AxisSet::NONE,
    };
    value_varies.union(parallelism.token_axes()).difference(param.sharding.axes())
}

/// The parameters of `unit`, decayed ones first: the order of its flat buffer.
///
/// Matrices that one multiplication reads together (query, key, value; gate, up) are separate parameters side by side.
pub fn params(model: &ModelSpec, unit: Unit) -> Vec<ParamSpec> {
    let mut list = match unit {
        Unit::Table => vec![table(model)],
        Unit::Embedding => embedding(model),
        Unit::Layer(layer) => layer_params(model, unit, &format!("layers.{layer}")),
        Unit::Head => head(model),
        Unit::Adapters(layer) => model.lora.as_ref().map_or(vec![], |lora| adapters(model, lora, layer)),
        Unit::Experts(layer) => model.experts_of(unit).map_or(vec![], |spec| stacks(model, spec, layer)),
    };
    // A stable sort: within the decayed and the rest the declared order stays.
    list.sort_by_key(|param| !param.decay);
    list
}

/// The parameters of the whole model, by unit, each once.
pub fn all_params(model: &ModelSpec) -> impl Iterator<Item = ParamSpec> + '_ {
    Unit::holding(model.num_layers).flat_map(|unit| params(model, unit))
}

/// Number of parameters of the whole model, each counted once, padding not counted.
pub fn unique_parameters(model: &ModelSpec) -> u64 {
    all_params(model).map(|param| param.len() as u64).sum()
}

/// Number of parameters that a token goes through: of experts those that are chosen for it.
pub fn active_parameters(model: &ModelSpec) -> u64 {
    let [active, number] = model.experts.map_or([1, 1], |experts| [experts.per_token, experts.number]);
    let active = |param: &ParamSpec| match param.unit {
        Unit::Experts(_) => (param.len() / number.max(1) * active) as u64,
        Unit::Table | Unit::Embedding | Unit::Layer(_) | Unit::Head | Unit::Adapters(_) => param.len() as u64,
    };
    all_params(model).map(|param| active(&param)).sum()
}

/// Floating-point operations of training per token: `6 N + 12 L h s`, with all parameters N including the embeddings,
/// and the products of queries, keys and values in L attending layers of attention width h over s tokens (Chowdhery et
/// al., "PaLM", 2022, appendix B). Counted as if every token saw the whole sequence, or a whole window; operations that
/// recomputation repeats are not counted. Of parameters that are not trained there are 4 N: nothing computes their
/// gradients. Of experts, those count that are chosen for a token.
pub fn flops_per_token(model: &ModelSpec, sequence_length: usize) -> f64 {
    let layers = (0..model.num_layers as u32).map(Unit::Layer);
    let of_top_query = (model.top_query == TopQuery::On).then_some(Unit::Head);
    let seen = |unit| model.window_of(unit).map_or(sequence_length, |window| window.min(sequence_length));
    let seen: u128 = layers.chain(of_top_query).map(|unit| seen(unit) as u128).sum();
    let attention = 12 * model.query_width() as u128 * seen;
    let per_parameter = |param: &ParamSpec| {
        let of_passes = if model.trains(param.unit) { 6.0 } else { 4.0 };
        let share = match (param.unit, &model.experts) {
            (Unit::Experts(_), Some(experts)) => experts.per_token as f64 / experts.number as f64,
            (Unit::Experts(_), None) => 0.0,
            (Unit::Table | Unit::Embedding | Unit::Layer(_) | Unit::Head | Unit::Adapters(_), _) => 1.0,
        };
        of_passes * share
    };
    all_params(model).map(|param| per_parameter(&param) * param.len() as f64).sum::<f64>() + attention as f64
}

fn table(model: &ModelSpec) -> ParamSpec {
    ParamSpec {
        name: "embedding.token.weight".into(),
        shape: vec![model.vocabulary, model.hidden],
        sharding: Sharding::VOCABULARY,
        unit: Unit::Table,
        applied_to: AppliedTo::Vocabulary,
        init: Init::Normal { std: model.init_std },
        decay: true,
    }
}

/// A table with a row for each position.
fn positions(model: &ModelSpec, unit: Unit, name: &str, rows: usize, applied_to: AppliedTo) -> ParamSpec {
    ParamSpec {
        name: format!("{name}.weight"),
        shape: vec![rows, model.hidden],
        sharding: Sharding::Replicated,
        unit,
        applied_to,
        init: Init::Normal { std: model.init_std },
        decay: true,
    }
}

fn embedding(model: &ModelSpec) -> Vec<ParamSpec> {
    let mut list = match model.position {
        Position::Rotary { .. } | Position::Alibi => vec![],
        Position::Learned { offset } => {
            let rows = offset + model.context;
            vec![positions(model, Unit::Embedding, "embedding.position", rows, AppliedTo::Residual)]
        }
    };
    if model.embedding_norm {
        list.extend(norm(model, Unit::Embedding, "embedding.norm"));
    }
    list
}

fn head(model: &ModelSpec) -> Vec<ParamSpec> {
    let mut list = norm(model, Unit::Head, "head.norm");
    if model.top_query == TopQuery::On {
        // Its rows go into the heads' queries and nowhere else, so each rank makes the share of its own heads.
        list.push(positions(model, Unit::Head, "top_query.position", model.context, AppliedTo::Heads));
        list.extend(layer_params(model, Unit::Head, "top_query"));
    }
    if !model.tied_embeddings {
        list.push(ParamSpec { name: "head.output.weight".into(), unit: Unit::Head, ..table(model) });
    }
    list
}

/// A norm over the residual stream: weight and, for layer norm, bias.
fn norm(model: &ModelSpec, unit: Unit, name: &str) -> Vec<ParamSpec> {
    let vector = |part: &str, init| ParamSpec {
        name: format!("{name}.{part}"),
        shape: vec![model.hidden],
        sharding: Sharding::Replicated,
        unit,
        applied_to: AppliedTo::Residual,
        init,
        decay: false,
    };
    match model.norm.kind {
        NormKind::Layer => vec![vector("weight", Init::Ones), vector("bias", Init::Zeros)],
        NormKind::Rms | NormKind::RmsPlusOne => vec![vector("weight", first_weight(model))],
    }
}

/// The gain with which a norm changes no size.
fn first_weight(model: &ModelSpec) -> Init {
    match model.norm.kind {
        NormKind::Layer | NormKind::Rms => Init::Ones,
        NormKind::RmsPlusOne => Init::Zeros,
    }
}

/// A layer of the stack, or the top query's.
fn layer_params(model: &ModelSpec, unit: Unit, prefix: &str) -> Vec<ParamSpec> {
    let norms = |block: &str| -> Vec<ParamSpec> {
        let of = |places: &[&str]| {
            places.iter().flat_map(|place| norm(model, unit, &format!("{prefix}.{block}_{place}"))).collect()
        };
        match model.blocks {
            Blocks::Sequential | Blocks::Parallel | Blocks::DeepNorm { .. } => of(&["norm"]),
            Blocks::PostNorm => of(&["output_norm"]),
            Blocks::Sandwich => of(&["norm", "output_norm"]),
        }
    };
    let mut list = norms("attention");
    list.extend(attention(model, unit, &format!("{prefix}.attention")));
    list.extend(norms("ffn"));
    match model.experts_of(unit) {
        None => list.extend(feed_forward(model, unit, &format!("{prefix}.ffn"), model.ffn_hidden_of(unit))),
        Some(experts) => list.extend(around_experts(model, experts, unit, prefix)),
    }
    list
}

/// Standard deviation of initial weights `[outputs, inputs]` of a map in a layer.
pub fn std_of_map(model: &ModelSpec, [outputs, inputs]: [usize; 2], Map { direction, gain, .. }: Map) -> f32 {
    if let Some(small) = model.xavier_gain {
        let gain = match gain {
            Gain::One => 1.0,
            Gain::Small => f64::from(small),
        };
        return (gain * (2.0 / (inputs + outputs) as f64).sqrt()) as f32;
    }
    let shrunk = || (f64::from(model.init_std) / (2.0 * model.attention_layers().max(1) as f64).sqrt()) as f32;
    match direction {
        Direction::Column => model.init_std,
        Direction::Row => model.output_init_std.unwrap_or_else(shrunk),
    }
}

/// Whether a linear layer has a bias.
#[derive(Clone, Copy, PartialEq)]
pub enum Bias {
    On,
    Off,
}

/// Of the maps into heads, of the one out of them, and of those of the feed-forward block.
fn biases(model: &ModelSpec) -> [Bias; 3] {
    match model.biases {
        Biases::All => [Bias::On, Bias::On, Bias::On],
        Biases::Attention => [Bias::On, Bias::On, Bias::Off],
        Biases::QueryKeyValue => [Bias::On, Bias::Off, Bias::Off],
        Biases::FeedForward => [Bias::Off, Bias::Off, Bias::On],
        Biases::Off => [Bias::Off, Bias::Off, Bias::Off],
    }
}

/// Which gain a map's initial weights have where [`ModelSpec::xavier_gain`] is given.
#[derive(Clone, Copy)]
pub enum Gain {
    /// 1.
    One,
    /// The given one.
    Small,
}

/// The kind of a linear layer.
#[derive(Clone, Copy)]
pub struct Map {
    pub direction: Direction,
    pub inside: AppliedTo,
    pub bias: Bias,
    pub gain: Gain,
}

/// `W[outputs, inputs]` and, with a bias, `b[outputs]`.
fn linear(model: &ModelSpec, unit: Unit, name: &str, shape: [usize; 2], map: Map) -> Vec<ParamSpec> {
    let Map { direction, inside, bias, .. } = map;
    let (sharding, bias_sharding, bias_applied_to) = match direction {
        Direction::Column => (Sharding::COLUMNS, Sharding::COLUMNS, inside),
        // The bias of a row-parallel map is added once, after the partial sums are joined.
        Direction::Row => (Sharding::ROWS, Sharding::Replicated, AppliedTo::Residual),
    };
    let mut list = vec![ParamSpec {
        name: format!("{name}.weight"),
        shape: shape.to_vec(),
        sharding,
        unit,
        applied_to: inside,
        init: Init::Normal { std: std_of_map(model, shape, map) },
        decay: true,
    }];
    if bias == Bias::On {
        list.push(ParamSpec {
            name: format!("{name}.bias"),
            shape: vec![shape[0]],
            sharding: bias_sharding,
            unit,
            applied_to: bias_applied_to,
            init: Init::Zeros,
            decay: false,
        });
    }
    list
}

/// Which dim of a linear layer tensor parallelism splits.
#[derive(Clone, Copy)]
pub enum Direction {
    /// Outputs are split: `W[F/tp, D]`.
    Column,
    /// Inputs are split: `W[D, F/tp]`; outputs are partial sums.
    Row,
}

fn attention(model: &ModelSpec, unit: Unit, name: &str) -> Vec<ParamSpec> {
    let (hidden, query, key) = (model.hidden, model.query_width(), model.key_width());
    let [into_heads, out_of_heads, _] = biases(model);
    let column = |part: &str, outputs, gain| {
        let map = Map { direction: Direction::Column, inside: AppliedTo::Heads, bias: into_heads, gain };
        linear(model, unit, &format!("{name}.{part}"), [outputs, hidden], map)
    };
    let mut list = column("query", query, Gain::One);
    list.extend(column("key", key, Gain::One));
    list.extend(column("value", key, Gain::Small));
    let map = Map { direction: Direction::Row, inside: AppliedTo::Heads, bias: out_of_heads, gain: Gain::Small };
    list.extend(linear(model, unit, &format!("{name}.output"), [hidden, query], map));
    for (part, heads) in [("query_norm", model.num_heads), ("key_norm", model.num_kv_heads)] {
        // A weight that is applied to heads that differ between ranks: its gradient is summed over tp. Where each head
        // has columns of its own, ranks add zeros for those of others.
        list.extend(model.qk_norm.width(model.head_dim, heads).map(|width| ParamSpec {
            name: format!("{name}.{part}.weight"),
            shape: vec![width],
            sharding: Sharding::Replicated,
            unit,
            applied_to: AppliedTo::Heads,
            init: first_weight(model),
            decay: false,
        }));
    }
    list
}

/// The parameters of a dense feed-forward block of width `ffn`.
pub fn feed_forward(model: &ModelSpec, unit: Unit, name: &str, ffn: usize) -> Vec<ParamSpec> {
    let hidden = model.hidden;
    let [_, _, bias] = biases(model);
    let map = |direction| Map { direction, inside: AppliedTo::Hidden, bias, gain: Gain::Small };
    let column = |part: &str| linear(model, unit, &format!("{name}.{part}"), [ffn, hidden], map(Direction::Column));
    let mut list = if model.activation.inputs_per_output() == 2 { column("gate") } else { vec![] };
    list.extend(column("up"));
    list.extend(linear(model, unit, &format!("{name}.down"), [hidden, ffn], map(Direction::Row)));
    list
}

/// Adapters of `layer`: `A[rank, inputs]` begins as Kaiming's uniform distribution with the slope `sqrt(5)`, as in
/// PEFT, and `B[outputs, rank]` with zeros. The one that is at the side of the linear layer's split is split with it,
/// and the other is replicated: its gradient is summed over the ranks of the split.
fn adapters(model: &ModelSpec, lora: &LoraSpec, layer: u32) -> Vec<ParamSpec> {
    let unit = Unit::Layer(layer);
    let linear = |target: &LinearLayer| {
        let name = format!("layers.{layer}.{}", target.path());
        layer_params(model, unit, &format!("layers.{layer}"))
            .into_iter()
            .find(|param| param.name == format!("{name}.weight"))
    };
    let pair = |base: ParamSpec| {
        let (outputs, inputs) = base.matrix_shape();
        let [a, b] = match base.sharding {
            Sharding::Split { dim: 0, .. } | Sharding::VocabularyRows { .. } => {
                [Sharding::Replicated, Sharding::COLUMNS]
            }
            Sharding::Split { .. } => [Sharding::ROWS, Sharding::Replicated],
            Sharding::Replicated => [Sharding::Replicated; 2],
        };
        let name = base.name.trim_end_matches("weight");
        let adapter = |part: &str, shape: [usize; 2], sharding, init| ParamSpec {
            name: format!("{name}{part}"),
            shape: shape.to_vec(),
            sharding,
            unit: Unit::Adapters(layer),
            init,
            ..base.clone()
        };
        let bound = (1.0 / (inputs as f64).sqrt()) as f32;
        [
            adapter("lora_a", [lora.rank, inputs], a, Init::Uniform { bound }),
            adapter("lora_b", [outputs, lora.rank], b, Init::Zeros),
        ]
    };
    lora.targets.iter().filter_map(linear).flat_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RunConfig;

    #[test]
    fn operations_per_token_follow_the_formula() {
        let model = RunConfig::quick_start().model;
        assert_eq!(flops_per_token(&model, 128), 6.0 * 1_337_344.0 + 12.0 * 6.0 * 128.0 * 128.0);
    }

    /// GLM-130B, section 2.1: the gain (2 L)^-0.5 for the feed-forward block, values and the attention output.
    #[test]
    fn maps_begin_with_the_gain_that_is_theirs() {
        let model = ModelSpec {
            hidden: 100,
            ffn_hidden: 700,
            num_heads: 4,
            num_kv_heads: 2,
            head_dim: 50,
            ..RunConfig::quick_start().model
        };
        let model = ModelSpec { xavier_gain: Some(0.1), ..model };
        let list = params(&model, Unit::Layer(1));
        let std = |name: &str| {
            let init =
                list.iter().find(|param| param.name == format!("layers.1.{name}.weight")).map(|param| param.init);
            let Some(Init::Normal { std }) = init else { panic!("{name} begins as {init:?}") };
            std
        };
        let expected = [
            ("attention.query", 1.0, 100 + 200),
            ("attention.key", 1.0, 100 + 100),
            ("attention.value", 0.1, 100 + 100),
            ("attention.output", 0.1, 200 + 100),
            ("ffn.up", 0.1, 100 + 700),
            ("ffn.down", 0.1, 700 + 100),
        ];
        for (name, gain, ends) in expected {
            let exact = gain * (2.0 / f64::from(ends)).sqrt();
            assert!((f64::from(std(name)) / exact - 1.0).abs() < 1e-6, "{name}: {}", std(name));
        }
        assert_eq!(params(&model, Unit::Table)[0].init, Init::Normal { std: model.init_std });
    }
}
