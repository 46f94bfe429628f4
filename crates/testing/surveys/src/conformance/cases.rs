//! The cases: models that together submit every operation, and whole runs of several ranks on one GPU.

use config::{
    Activation, Balance, Blocks, ExpertGroups, ExpertsSpec, Format, GradientReduction, GradientSums, LocalAttention,
    ModelSpec, Muon, MuonScale, Optimizer, Overlap, Pairing, Parallelism, Position, Products, Reach, Reshard,
    RotaryScaling, RouterScores, RouterWeights, Routing, SharedExpert, SharedGate, Tied, TopQuery, TrainSpec,
    ZeroStage,
};
use testkit::layout::Layout;
use testkit::models::plain_layout;
use testkit::numbers::{Numbers, model, training};

use crate::space::three;

/// The values that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// Everything that each operation writes, on one rank.
    Operations,
    /// Losses, norms, first gradients and last weights.
    Outcome,
    /// Products of random matrices, of factors of every kind: the blocks of a tensor core.
    Blocks,
}

/// How long a case takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Size {
    /// Seconds, also on a GPU in software.
    Small,
    /// Tensors of many blocks.
    Large,
}

/// One comparison.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name, which no other has.
    pub name: String,
    pub size: Size,
    /// The values that are compared.
    pub compared: Compared,
    /// The run.
    pub layout: Layout,
}

const SINGLE: Numbers = Numbers::new(Format::Fp32, GradientSums::Single, Products::Chained);
const EXACT: Numbers = Numbers::new(Format::Fp32, GradientSums::Exact, Products::Chained);

const BLOCKS: Numbers = Numbers::new(Format::Bf16, GradientSums::Single, Products::Blocks16);

/// Numbers of 16 bits, by name.
const NARROW: &[(&str, Numbers)] = &[
    ("bf16", Numbers::new(Format::Bf16, GradientSums::Single, Products::Chained)),
    ("fp16", Numbers::new(Format::Fp16, GradientSums::Single, Products::Chained)),
    ("bf16 and blocks", BLOCKS),
    ("fp16 and blocks", Numbers::new(Format::Fp16, GradientSums::Single, Products::Blocks16)),
];

/// A change of the small model, by name.
type Change = (&'static str, Tied, fn(&mut ModelSpec));

/// Changes of the small models, each with operations that the others do not have.
const CHANGES: &[Change] = &[
    ("gpt", Tied::Yes, |_| {}),
    ("llama", Tied::No, |_| {}),
    ("alibi", Tied::Yes, |model| model.position = Position::Alibi),
    ("gelu-erf", Tied::Yes, |model| model.activation = Activation::GeluErf),
    ("gelu-sigmoid", Tied::Yes, |model| model.activation = Activation::GeluSigmoid),
    ("relu", Tied::Yes, |model| model.activation = Activation::Relu),
    ("geglu", Tied::No, |model| model.activation = Activation::GeGlu),
    ("geglu-tanh", Tied::No, |model| model.activation = Activation::GeGluTanh),
    ("rms-plus-one", Tied::No, |model| model.norm.kind = config::NormKind::RmsPlusOne),
    ("parallel-blocks", Tied::No, |model| model.blocks = Blocks::Parallel),
    ("embedding-norm", Tied::Yes, |model| model.embedding_norm = true),
    ("top-query", Tied::Yes, |model| model.top_query = TopQuery::On),
    ("qk-norm", Tied::No, |model| model.qk_norm = config::QkNorm::Heads),
    ("whole-qk-norm", Tied::No, |model| model.qk_norm = config::QkNorm::Whole),
    ("post-norm", Tied::No, |model| model.blocks = Blocks::PostNorm),
    ("sandwich", Tied::No, |model| {
        model.blocks = Blocks::Sandwich;
        model.embedding_scale = Some(5.75);
    }),
    ("z-loss", Tied::No, |model| model.z_loss = Some(1e-4)),
    ("soft-caps", Tied::No, soft_caps),
    ("windows", Tied::No, |model| {
        let pattern = vec![Reach::Local, Reach::Global];
        model.local_attention = Some(LocalAttention { window: 2, pattern, rotary_base: Some(100.0) });
    }),
    ("interleaved-rotary", Tied::No, |model| {
        model.position = Position::Rotary {
            base: 10_000.0,
            rotary_dims: 8,
            pairing: Pairing::Interleaved,
            scaling: RotaryScaling::Off,
        };
    }),
    ("experts", Tied::No, experts),
];

/// Eight experts in groups, of which a token uses three, and a gated one of all tokens.
fn experts(model: &mut ModelSpec) {
    let groups = Some(ExpertGroups { number: 4, kept: 2 });
    model.experts = Some(ExpertsSpec {
        number: 8,
        per_token: 3,
        hidden: 24,
        shared: Some(SharedExpert { hidden: 16, gate: SharedGate::Learned }),
        first_layer: 1,
        layer_interval: 1,
        routing: Routing { scores: RouterScores::Sigmoid, weights: RouterWeights::Normalised, scale: 2.5, groups },
        balance: Balance::NONE,
    });
}

/// Caps that some scores and logits come near.
fn soft_caps(model: &mut ModelSpec) {
    (model.attention_soft_cap, model.logit_soft_cap) = (Some(2.0), Some(3.0));
}

/// All cases, the quick ones first.
pub fn all() -> Vec<Case> {
    let changed = |(name, tied, change): &Change| {
        let mut model = model(*tied);
        change(&mut model);
        operations(name, model, SINGLE)
    };
    let mut cases: Vec<Case> = CHANGES.iter().map(changed).collect();
    cases.push(operations("exact-sums", model(Tied::No), EXACT));
    let mut muon = operations("muon", model(Tied::No), SINGLE);
    muon.layout.train.optimizer = Optimizer::Muon(Muon { momentum: 0.95, scale: MuonScale::AdamW });
    cases.push(muon);
    cases.extend([("bf16", Format::Bf16), ("fp16", Format::Fp16)].map(blocks));
    cases.extend(NARROW.iter().flat_map(narrow));
    // Attention with soft caps has kernels of its own in blocks.
    let mut capped = model(Tied::No);
    soft_caps(&mut capped);
    cases.push(operations("soft-caps in bf16 and blocks", capped, BLOCKS));
    // So have products of groups of rows.
    let mut with_experts = model(Tied::No);
    experts(&mut with_experts);
    cases.push(operations("experts in bf16 and blocks", with_experts, BLOCKS));
    cases.extend(outcomes());
    for (numbers, form) in [(SINGLE, ""), (BLOCKS, " in bf16 and blocks")] {
        cases.push(large(&format!("wide-heads-of-64{form}"), numbers, 256, 4, 256));
        cases.push(large(&format!("wide-heads-of-128{form}"), numbers, 512, 4, 512));
    }
    cases.extend(long());
    cases
}

/// Two steps of one rank, whose operations are compared.
fn operations(name: &str, model: ModelSpec, numbers: Numbers) -> Case {
    let train = TrainSpec { steps: 2, ..training(numbers) };
    let layout = Layout { model, parallelism: plain_layout(1, 1, 1, 2), train };
    Case { name: format!("operations {name}"), size: Size::Small, compared: Compared::Operations, layout }
}

/// `steps` of eight ranks, whose outcomes are compared.
fn run(name: &str, tied: Tied, steps: u32, numbers: Numbers, (zero, overlap): (ZeroStage, Option<Overlap>)) -> Case {
    let parallelism = Parallelism { zero, overlap, ..plain_layout(2, 2, 2, 2) };
    let layout = Layout { model: model(tied), parallelism, train: TrainSpec { steps, ..training(numbers) } };
    Case { name: format!("run {name}"), size: Size::Small, compared: Compared::Outcome, layout }
}

/// Long runs in bf16 and blocks: 200 steps of eight ranks, and 20 of GPT-2 with 124 million parameters.
fn long() -> [Case; 2] {
    let small = run("of 200 steps", Tied::Yes, 200, BLOCKS, (ZeroStage::One, None));
    let gpt2 = ModelSpec {
        num_layers: 12,
        hidden: 768,
        num_heads: 12,
        num_kv_heads: 12,
        head_dim: 64,
        ffn_hidden: 3072,
        vocabulary: 50304,
        context: 1024,
        init_std: 0.02,
        ..model(Tied::Yes)
    };
    let train = TrainSpec { steps: 20, global_batch: 2, sequence_length: 64, learning_rate: 3e-4, ..training(BLOCKS) };
    let gpt2 = Case {
        name: "run of 20 steps of GPT-2 124M".into(),
        layout: Layout { model: gpt2, parallelism: plain_layout(1, 1, 1, 2), train },
        ..small.clone()
    };
    [small, gpt2].map(|case| Case { size: Size::Large, ..case })
}

/// Blocks of products of a format; of the layout, its numbers alone count.
fn blocks((name, format): (&str, Format)) -> Case {
    let train = training(Numbers::new(format, GradientSums::Single, Products::Blocks16));
    let layout = Layout { model: model(Tied::Yes), parallelism: plain_layout(1, 1, 1, 2), train };
    Case { name: format!("blocks of {name}"), size: Size::Large, compared: Compared::Blocks, layout }
}

/// Operations of a GPT and of a Llama in bf16 or fp16, and a run of the GPT.
fn narrow((name, numbers): &(&str, Numbers)) -> [Case; 3] {
    [
        operations(&format!("gpt in {name}"), model(Tied::Yes), *numbers),
        operations(&format!("llama in {name}"), model(Tied::No), *numbers),
        run(&format!("gpt zero 1 in {name}"), Tied::Yes, 20, *numbers, (ZeroStage::One, None)),
    ]
}

/// Eight ranks for twenty steps, with both kinds of sharding; each twice, for what differs between two runs is a race.
fn outcomes() -> Vec<Case> {
    let gathered = three(GradientReduction::Microbatch, 1, Reshard::AfterUse);
    let runs = [
        ("gpt zero 1 with overlap", Tied::Yes, ZeroStage::One, Overlap::On),
        ("llama zero 3 with overlap", Tied::No, gathered, Overlap::On),
        ("llama zero 1 without overlap", Tied::No, ZeroStage::One, Overlap::Off),
    ];
    let twice = runs.into_iter().flat_map(|(name, tied, zero, overlap)| {
        [1, 2].map(|time| run(&format!("{name}, time {time}"), tied, 20, SINGLE, (zero, Some(overlap))))
    });
    twice.collect()
}

/// A model whose operations take many blocks.
fn large(name: &str, numbers: Numbers, hidden: usize, num_heads: usize, sequence_length: usize) -> Case {
    let model = ModelSpec {
        num_layers: 1,
        hidden,
        num_heads,
        num_kv_heads: num_heads / 2,
        head_dim: hidden / num_heads,
        ffn_hidden: 2 * hidden,
        vocabulary: 2048,
        context: sequence_length,
        position: Position::Rotary {
            base: 10_000.0,
            rotary_dims: hidden / num_heads,
            pairing: Pairing::Half,
            scaling: RotaryScaling::Off,
        },
        ..model(Tied::No)
    };
    let train = TrainSpec { steps: 1, global_batch: 2, sequence_length, ..training(numbers) };
    let case = operations(name, model, numbers);
    Case { size: Size::Large, layout: Layout { train, ..case.layout }, ..case }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::conformance::expected::operations;
    use testkit::layout::engine;

    #[test]
    fn names_differ_and_every_operation_is_submitted() {
        let cases = all();
        let names: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names.len(), cases.len());
        let of_operations =
            cases.iter().filter(|case| (case.compared, case.size) == (Compared::Operations, Size::Small));
        let submitted: BTreeSet<String> = of_operations
            .flat_map(|case| operations(&case.layout, |setup| engine(setup, 1)).expect("a run"))
            .map(|(name, _)| name)
            .collect();
        let expected = [
            "accumulate",
            "activation",
            "adamw",
            "add_rounded",
            "attention",
            "attention_backward",
            "clip_coefficient",
            "column_sum",
            "combine_rows",
            "copy",
            "count_choices",
            "cross_entropy",
            "dropout_add",
            "dropout_backward",
            "embedding_backward",
            "embedding_lookup",
            "expert_activation",
            "expert_activation_backward",
            "expert_mat_mul",
            "fill",
            "gather_rows",
            "group_rows",
            "initialize_normal",
            "loss_sum",
            "mat_mul",
            "mat_mul_activation",
            "mat_mul_activation_backward",
            "norm",
            "norm_backward_input",
            "norm_backward_weight",
            "rotary",
            "rotary_table",
            "rounded_to_single",
            "route",
            "route_backward",
            "router_losses",
            "scaled_sum",
            "soft_cap",
            "soft_cap_backward",
            "squared_sum",
        ];
        assert_eq!(submitted.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    }
}
