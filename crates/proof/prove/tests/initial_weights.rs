//! A run may start from weights that it is given: any layout from what any other delivered.

use config::{Gathering, GradientReduction, Reshard, ZeroStage};
use prove::{Outcome, ProofError, outcome_from};
use testkit::initial_weights::initial_weights;
use testkit::layout::{Layout, engine};
use testkit::models::{Style, plain_layout, proof_model, proof_training};
use testkit::text::{Labels, ProofText};
use train::TensorMap;

const TEXT: ProofText = ProofText { vocabulary: 61, seed: 5, labels: Labels::Every };

/// Without dropout the seed decides nothing but initial weights.
fn layout(style: Style, (dp, tp, pp): (usize, usize, usize), seed: u64, steps: u32) -> Layout {
    let mut model = proof_model(style, 4, style == Style::Gpt2);
    (model.num_layers, model.dropout, model.attention_dropout) = (4, 0.0, 0.0);
    let mut train = proof_training();
    (train.seed, train.steps, train.global_batch) = (seed, steps, 8);
    let mut parallelism = plain_layout(dp, tp, pp, 2);
    if dp > 1 {
        // Pieces of parameters that end anywhere in a row are given and drawn as well.
        let gathering = Gathering { prefetch: 1, reshard: Reshard::AfterUse };
        parallelism.zero = ZeroStage::Three { reduce: GradientReduction::Step, gathering };
    }
    Layout { model, parallelism, train }
}

fn run(layout: &Layout, initial: Option<&TensorMap>) -> Result<Outcome, ProofError> {
    let setup = layout.setup()?;
    outcome_from(&setup, &*engine(&setup, 1), &TEXT, initial.map(|map| map as _))
}

/// The weights of `layout` before its first step.
fn drawn(layout: &Layout) -> TensorMap {
    initial_weights(layout, |_, _| {}).expect("a run without steps")
}

#[test]
fn given_weights_are_those_that_the_seed_would_have_drawn() {
    for style in [Style::Gpt2, Style::Llama] {
        // 61 tokens on two ranks: the last row is padding.
        for degrees in [(1, 1, 1), (1, 2, 1), (2, 2, 2), (4, 1, 1)] {
            let expected = run(&layout(style, degrees, 1, 3), None).expect("a run");
            let start = drawn(&layout(style, (1, 1, 1), 1, 0));
            let actual = run(&layout(style, degrees, 2, 3), Some(&start)).expect("a run");
            assert_eq!(actual, expected, "{style:?} {degrees:?}");
            let other_seed = run(&layout(style, degrees, 2, 3), None).expect("a run");
            assert_ne!(other_seed.losses, expected.losses);
        }
    }
}

#[test]
fn weights_of_another_model_are_refused_by_name() {
    let plain = layout(Style::Llama, (1, 2, 2), 1, 1);
    let refusal = |initial: &TensorMap| run(&plain, Some(initial)).expect_err("refused").to_string();

    let other = drawn(&layout(Style::Gpt2, (1, 1, 1), 1, 0));
    let text = refusal(&other);
    assert!(text.contains("failed before the first step: the source has no tensor "), "{text}");

    let mut longer = drawn(&plain);
    longer.insert("layers.3.ffn.up.weight", &[97, 48], vec![0.0; 97 * 48]);
    let text = refusal(&longer);
    assert!(
        text.contains("tensor layers.3.ffn.up.weight is [97, 48] in the source and [96, 48] in the model"),
        "{text}"
    );
}
