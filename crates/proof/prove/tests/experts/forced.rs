//! Routers whose weights decide: all tokens to the same experts, none to others, and logits that all tie.

use config::{Biases, ModelSpec, NormKind, Parallelism, ParamSpec, Recompute, SequenceParallel, TrainSpec};
use prove::{Outcome, outcome_from};
use testkit::initial_weights::initial_weights;
use testkit::layout::{Layout, engine};
use testkit::models::{plain_layout, proof_text};
use testkit::text::{Labels, ProofText};
use train::TensorMap;

use crate::experts::rig::{broken, layout, model, three, training};

const EXPERTS: usize = 8;
const PER_TOKEN: usize = 2;

/// Norms with biases, so that a channel of a router's input can be the same for all tokens.
fn biased() -> ModelSpec {
    let plain = model(|_| {});
    let norm = config::Norm { kind: NormKind::Layer, ..plain.norm };
    ModelSpec { norm, biases: Biases::Attention, ..plain }
}

/// Weights are not decayed, so that what is not trained stays as it is.
fn train(steps: u32) -> TrainSpec {
    TrainSpec { steps, weight_decay: 0.0, ..training() }
}

fn layouts() -> [Parallelism; 8] {
    let plain = plain_layout;
    [
        plain(1, 1, 2, 2),
        Parallelism { recompute: Recompute::FULL, ..plain(2, 1, 2, 1) },
        Parallelism { zero: three(config::GradientReduction::Step), ..plain(2, 1, 1, 2) },
        plain(1, 2, 1, 2),
        plain(1, 4, 2, 2),
        Parallelism { sequence_parallel: SequenceParallel::On, ..plain(2, 2, 1, 2) },
        // Ranks whose experts have no rows.
        Parallelism { ep: 4, ..plain(4, 1, 1, 2) },
        Parallelism { ep: 8, zero: three(config::GradientReduction::Step), ..plain(8, 1, 1, 1) },
    ]
}

/// Channel 0 of a router's input is 8, and all routers like the experts `chosen` alone: their logits are 16 above
/// others, where the other channels make differences of 1.
fn forced_to(chosen: [usize; PER_TOKEN]) -> impl Fn(&ParamSpec, &mut [f32]) {
    move |param, values| {
        if param.name.ends_with("ffn_norm.bias") {
            values[0] = 8.0;
        } else if param.name.ends_with("router.weight") {
            for (expert, row) in values.chunks_mut(param.shape[1]).enumerate() {
                row[0] = if chosen.contains(&expert) { 1.0 } else { -1.0 };
            }
        }
    }
}

/// All logits are 0.
fn all_tied(param: &ParamSpec, values: &mut [f32]) {
    if param.name.ends_with("router.weight") {
        values.fill(0.0);
    }
}

fn run(layout: &Layout, initial: &TensorMap, text: &ProofText) -> Outcome {
    let setup = layout.setup().unwrap();
    outcome_from(&setup, &*engine(&setup, 1), text, Some(initial))
        .unwrap_or_else(|error| panic!("{:?}: {error}", layout.parallelism))
}

/// Runs one rank and all layouts from `initial`, which keep their promise, and returns the outcome of one rank.
fn all_alike(model: &ModelSpec, train: &TrainSpec, initial: &TensorMap, text: &ProofText) -> Outcome {
    let whole = |microbatch_size| layout(model, plain_layout(1, 1, 1, microbatch_size), train.clone());
    for parallelism in layouts() {
        let one = whole(parallelism.microbatch_size);
        let many = layout(model, parallelism.clone(), train.clone());
        let outcomes = [run(&one, initial, text), run(&many, initial, text)];
        let none: [&str; 0] = [];
        assert_eq!(broken([&one, &many], [&outcomes[0], &outcomes[1]]).1, none, "{parallelism:?}");
    }
    run(&whole(1), initial, text)
}

/// The experts whose first gradients are not zero, of each stack of the model.
fn learning(outcome: &Outcome) -> Vec<Vec<usize>> {
    let stacks = outcome.gradients.iter().filter(|(name, _)| name.contains(".experts."));
    let of_stack = |values: &Vec<f32>| {
        let experts = values.chunks(values.len() / EXPERTS).enumerate();
        experts.filter(|(_, values)| values.iter().any(|value| *value != 0.0)).map(|(expert, _)| expert).collect()
    };
    stacks.map(|(_, values)| of_stack(values)).collect()
}

#[test]
fn experts_without_tokens_have_gradients_of_zero_and_stay_as_they_are() {
    let (model, train) = (biased(), train(3));
    for chosen in [[0, 1], [1, 6], [6, 7]] {
        let one = layout(&model, plain_layout(1, 1, 1, 1), train.clone());
        let initial = initial_weights(&one, forced_to(chosen)).unwrap();
        let outcome = all_alike(&model, &train, &initial, &proof_text());
        assert_eq!(learning(&outcome), vec![chosen.to_vec(); 2 * model.num_layers], "{chosen:?}");
        for (name, values) in outcome.weights.iter().filter(|(name, _)| name.contains(".experts.")) {
            let before = initial.read(name, |tensor| tensor.expect("given").values.clone());
            let of_expert = values.len() / EXPERTS;
            for (expert, (before, after)) in before.chunks(of_expert).zip(values.chunks(of_expert)).enumerate() {
                assert_eq!(before == after, !chosen.contains(&expert), "expert {expert} of {name}");
            }
        }
        // Weights are normalised over the chosen, so a router learns about these alone.
        for (name, values) in outcome.gradients.iter().filter(|(name, _)| name.ends_with("router.weight")) {
            let rows = values.chunks(model.hidden).map(|row| row.iter().any(|value| *value != 0.0));
            assert!(rows.enumerate().all(|(expert, learns)| learns == chosen.contains(&expert)), "{name}");
        }
    }
}

/// Of equal logits the lower experts are chosen, by every layout: sums that are split differently change no product
/// with zeros.
#[test]
fn logits_that_all_tie_choose_the_lowest_experts_in_every_layout() {
    let (model, train) = (model(|_| {}), train(1));
    let one = layout(&model, plain_layout(1, 1, 1, 1), train.clone());
    let initial = initial_weights(&one, all_tied).unwrap();
    let outcome = all_alike(&model, &train, &initial, &proof_text());
    assert_eq!(learning(&outcome), vec![vec![0, 1]; 2 * model.num_layers]);
}

/// A text of one token: all rows of a sequence's place are equal, so all tokens crowd into few experts.
#[test]
fn equal_tokens_crowd_into_few_experts() {
    let plain = ModelSpec { dropout: 0.0, attention_dropout: 0.0, ..model(|_| {}) };
    let (train, text) = (train(2), ProofText { vocabulary: 1, seed: 3, labels: Labels::Every });
    let one = layout(&plain, plain_layout(1, 1, 1, 1), train.clone());
    let initial = initial_weights(&one, |_, _| {}).unwrap();
    let outcome = all_alike(&plain, &train, &initial, &text);
    let learning = learning(&outcome);
    assert!(learning.iter().all(|experts| experts.len() == PER_TOKEN), "{learning:?}");
}
