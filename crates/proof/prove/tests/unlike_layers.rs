//! Models whose layers see different tokens, or have norms elsewhere than before their blocks: layouts that keep the
//! order of sums change no bit, and others stay within their bounds.

#![allow(clippy::unwrap_used, reason = "a test ends where something fails")]

use config::{
    Activation, Blocks, ChunkOrder, ContextKind, ContextParallel, Degrees, Gathering, GradientReduction,
    LocalAttention, ModelSpec, Norm, NormKind, Pairing, Parallelism, Position, QkNorm, Reach, Recompute, Reshard,
    RotaryScaling, ScheduleKind, SequenceParallel, TrainSpec, Unit, ZeroStage,
};
use program::Purpose;
use prove::{Distance, EqualityClass, Outcome, Promise, Promised, is_noise};
use testkit::layout::Layout;
use testkit::models::{Style, plain_layout, proof_model, proof_text, proof_training};

const NUM_LAYERS: usize = 4;

/// Four layers of the proof model, with heads of eight dims, all of them rotated where any is.
fn small(style: Style) -> ModelSpec {
    let proof = proof_model(style, 12, style == Style::Gpt2);
    let position = match proof.position {
        Position::Rotary { base, pairing, scaling, .. } => Position::Rotary { base, rotary_dims: 8, pairing, scaling },
        Position::Learned { .. } | Position::Alibi => proof.position,
    };
    ModelSpec { num_layers: NUM_LAYERS, head_dim: 8, position, ..proof }
}

fn windows(style: Style, pattern: &[Reach], rotary_base: Option<f32>) -> ModelSpec {
    let local = LocalAttention { window: 3, pattern: pattern.to_vec(), rotary_base };
    ModelSpec { local_attention: Some(local), ..small(style) }
}

fn yarn() -> Position {
    let scaling =
        RotaryScaling::Yarn { factor: 4.0, low_turns: 0.1, high_turns: 1.0, original_context: 16, magnitude: 1.2 };
    Position::Rotary { base: 100.0, rotary_dims: 8, pairing: Pairing::Half, scaling }
}

fn gemma() -> ModelSpec {
    ModelSpec {
        norm: Norm { kind: NormKind::RmsPlusOne, epsilon: 1e-5 },
        activation: Activation::GeGluTanh,
        blocks: Blocks::Sandwich,
        qk_norm: QkNorm::Heads,
        embedding_scale: Some(48f32.sqrt()),
        query_scalar: Some(12.0),
        ..windows(Style::Llama, &[Reach::Local, Reach::Global], Some(100.0))
    }
}

/// The models, by name.
fn models() -> Vec<(&'static str, ModelSpec)> {
    let (local, global) = (Reach::Local, Reach::Global);
    let olmo = ModelSpec { blocks: Blocks::PostNorm, qk_norm: QkNorm::Whole, ..small(Style::Llama) };
    vec![
        ("windows in all layers", windows(Style::Gpt2, &[local], None)),
        ("windows in three of four layers", windows(Style::Llama, &[local, local, local, global], Some(100.0))),
        ("norms after blocks and over all heads", olmo),
        (
            "norms before and after blocks, of heads",
            ModelSpec {
                blocks: Blocks::Sandwich,
                qk_norm: QkNorm::Heads,
                ..windows(Style::Llama, &[local, global], None)
            },
        ),
        ("Gemma", gemma()),
        ("soft caps", ModelSpec { attention_soft_cap: Some(2.0), logit_soft_cap: Some(3.0), ..gemma() }),
        ("divided logits", ModelSpec { logit_divisor: Some(6.0), ..small(Style::Llama) }),
        ("scaled rotation of pairs by number", ModelSpec { position: yarn(), ..small(Style::Llama) }),
    ]
}

fn layout(model: &ModelSpec, parallelism: Parallelism) -> Layout {
    let train = TrainSpec { steps: 3, global_batch: 8, warmup_steps: 1, ..proof_training() };
    Layout { model: model.clone(), parallelism, train }
}

fn outcome(layout: &Layout) -> Outcome {
    layout.outcome(&proof_text()).unwrap_or_else(|error| panic!("{:?}: {error}", layout.parallelism))
}

fn shared(kind: ContextKind, (dp, cp, tp, pp): (usize, usize, usize, usize)) -> Parallelism {
    let plain = plain_layout(dp, tp, pp, 2);
    let chunks = match kind {
        ContextKind::Gather => ChunkOrder::Balanced,
        // Dropout draws four keys of a block at once.
        ContextKind::Heads | ContextKind::Ring => ChunkOrder::Contiguous,
    };
    Parallelism { degrees: Degrees { cp, ..plain.degrees }, context: ContextParallel { kind, chunks }, ..plain }
}

fn layouts() -> Vec<Parallelism> {
    let plain = plain_layout;
    let gathering = Gathering { prefetch: 1, reshard: Reshard::AfterUse };
    let zero = ZeroStage::Three { reduce: GradientReduction::Step, gathering };
    vec![
        plain(1, 1, 2, 2),
        Parallelism { schedule: ScheduleKind::ZeroBubbleH1.into(), ..plain(1, 1, 2, 1) },
        Parallelism { recompute: Recompute::FULL, zero: ZeroStage::One, ..plain(2, 1, 2, 2) },
        Parallelism { recompute: Recompute::Selective, zero, ..plain(2, 1, 1, 2) },
        plain(1, 2, 1, 2),
        Parallelism { recompute: Recompute::FULL, ..plain(1, 4, 2, 2) },
        Parallelism { recompute: Recompute::Selective, sequence_parallel: SequenceParallel::On, ..plain(1, 2, 2, 2) },
        Parallelism { sequence_parallel: SequenceParallel::On, zero, ..plain(2, 2, 1, 2) },
        shared(ContextKind::Gather, (1, 2, 1, 2)),
        shared(ContextKind::Heads, (1, 2, 2, 1)),
        shared(ContextKind::Ring, (2, 2, 1, 1)),
    ]
}

#[test]
fn layouts_keep_their_promise_to_one_rank() {
    for (name, model) in models() {
        let mut same = 0;
        for parallelism in layouts() {
            let one = layout(&model, plain_layout(1, 1, 1, parallelism.microbatch_size));
            let many = layout(&model, parallelism);
            let class = EqualityClass::of(&one.parallelism, &many.parallelism);
            let promise = Promise::of(class, &many.model, &many.train, many.train.steps);
            let outcomes = [outcome(&one), outcome(&many)];
            let distance = Distance::between(&outcomes[0], &outcomes[1], |name| is_noise(&many.model, name));
            let none: [&str; 0] = [];
            let faults = promise.faults([&outcomes[0], &outcomes[1]], &distance);
            assert_eq!(faults, none, "{name}, {:?}", many.parallelism);
            same += usize::from(class.promises() == Promised::Bits);
        }
        assert!(same >= 2, "{name}: {same} layouts promise bits");
    }
}

/// A window of a whole sequence hides nothing.
#[test]
fn windows_as_long_as_sequences_change_no_bit() {
    let one = plain_layout(1, 1, 1, 2);
    for style in [Style::Gpt2, Style::Llama] {
        let long = LocalAttention { window: 8, pattern: vec![Reach::Local], rotary_base: None };
        let [without, with] = [None, Some(long)]
            .map(|local_attention| outcome(&layout(&ModelSpec { local_attention, ..small(style) }, one.clone())));
        assert!(Distance::between(&without, &with, |_| false).same_bits, "{style}");
        let short = outcome(&layout(&windows(style, &[Reach::Local], None), one.clone()));
        assert!(!Distance::between(&without, &short, |_| false).same_bits, "{style}");
    }
}

/// Norms after blocks keep what they read, and norms over all heads two numbers for each token in place of two for each
/// head.
#[test]
fn layers_have_the_memory_of_their_norms() {
    let bytes = |model: &ModelSpec| {
        let setup = layout(model, plain_layout(1, 1, 1, 2)).setup().unwrap();
        let workload = setup.workload_of(setup.workload(Purpose::Train).unwrap());
        let footprints =
            record::footprints(&workload.record_case(&setup.model, &setup.parallelism, &setup.train)).unwrap();
        footprints.units.of(Unit::Layer(0)).saved_until_weight_bytes
    };
    let llama = ModelSpec { context: 64, ..small(Style::Llama) };
    let of = |blocks, qk_norm| bytes(&ModelSpec { blocks, qk_norm, ..llama.clone() });
    // Two sequences of 8 tokens in single precision.
    let (tokens, single) = (16, 4);
    let (residual, of_head) = (tokens * llama.hidden * single, tokens * 2 * single);
    let statistics = of_head.next_multiple_of(device::ALIGN_BYTES);
    let sequential = of(Blocks::Sequential, QkNorm::Off);
    assert_eq!(of(Blocks::Sandwich, QkNorm::Off), sequential + 2 * (residual + statistics));
    assert_eq!(of(Blocks::PostNorm, QkNorm::Off), sequential + 2 * residual);
    let of_heads = of(Blocks::Sequential, QkNorm::Heads);
    // Those of queries and keys are one value.
    let of_both = (2 * of_head).next_multiple_of(device::ALIGN_BYTES);
    assert_eq!(of(Blocks::Sequential, QkNorm::Whole), of_heads - 24 * of_head + of_both);
}
