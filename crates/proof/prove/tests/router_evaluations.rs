//! Evaluations of models with experts: they choose by the corrections, as training does, and compute every choice, as
//! training without a capacity does.

#![allow(clippy::unwrap_used, reason = "a test ends where something fails")]

use config::{Balance, ModelSpec, Parallelism, RouterBias, RouterScores, TrainSpec, router_corrections};
use prove::outcome_from;
use testkit::initial_weights::initial_weights;
use testkit::layout::{Layout, engine};
use testkit::models::plain_layout;
use testkit::text::{Labels, ProofText};
use train::{Evaluation, Setup, TensorMap, run_evaluation};

use crate::experts::rig;

/// One step on all sequences that are evaluated.
const SEQUENCES: u64 = 8;
const TEXT: ProofText = ProofText { vocabulary: 61, seed: 1, labels: Labels::Ragged };

/// A model without dropout, so that the first loss of training is that of an evaluation.
fn layout(balance: Balance, parallelism: Parallelism) -> Layout {
    let of_sigmoids = rig::model(|experts| {
        experts.routing.scores = RouterScores::Sigmoid;
        experts.balance = balance;
    });
    let model = ModelSpec { dropout: 0.0, attention_dropout: 0.0, ..of_sigmoids };
    Layout { model, parallelism, train: TrainSpec { steps: 1, global_batch: SEQUENCES as usize, ..rig::training() } }
}

/// The first weights of `layout`; corrections of all layers are those of `of_expert`, where the model has any.
fn weights(layout: &Layout, of_expert: impl Fn(usize) -> f32) -> TensorMap {
    let mut weights = initial_weights(layout, |_, _| {}).unwrap();
    for param in router_corrections(&layout.model) {
        weights.insert(&param.name, &param.shape, (0..param.shape[0]).map(&of_expert).collect());
    }
    weights
}

/// The first loss of training, and that of an evaluation.
fn losses(layout: &Layout, weights: &TensorMap) -> [f64; 2] {
    let Layout { model, parallelism, train } = layout.clone();
    let setup = layout.setup().unwrap();
    let trained = outcome_from(&setup, &*engine(&setup, 1), &TEXT, Some(weights)).unwrap().losses[0];
    let setup = Setup::evaluation(model, parallelism, train, SEQUENCES).unwrap();
    let evaluation = Evaluation { tokens: &TEXT, sequences: SEQUENCES, every: 0 };
    let evaluated = run_evaluation(&setup, &*engine(&setup, 1), evaluation, Some(weights)).unwrap();
    [trained, evaluated.loss]
}

/// Corrections of -8 leave the other experts, whatever their scores.
#[test]
fn evaluations_choose_by_corrections_as_training_does() {
    let balance = Balance { bias: Some(RouterBias { rate: 0.0 }), ..Balance::NONE };
    for parallelism in [plain_layout(1, 1, 1, 2), plain_layout(2, 1, 2, 2), plain_layout(1, 2, 1, 2)] {
        let layout = layout(balance, parallelism.clone());
        let of = |correction: f32| {
            let weights = weights(&layout, |expert| if expert < 4 { correction } else { 0.0 });
            let [trained, evaluated] = losses(&layout, &weights);
            assert_eq!(trained, evaluated, "{parallelism:?}, corrections of {correction}");
            evaluated
        };
        assert_ne!(of(0.0), of(-8.0), "{parallelism:?}");
    }
}

#[test]
fn evaluations_compute_choices_beyond_a_capacity() {
    let of = |capacity| {
        let layout = layout(Balance { capacity, ..Balance::NONE }, plain_layout(2, 1, 1, 2));
        losses(&layout, &weights(&layout, |_| 0.0))
    };
    let ([trained, evaluated], [limited, evaluated_limited]) = (of(None), of(Some(0.5)));
    assert_eq!([trained, evaluated_limited], [evaluated; 2]);
    assert_ne!(limited, trained, "training drops choices");
}
