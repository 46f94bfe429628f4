//! Corrections of routers and loads of the step before are state of a run: a resumed one has the bits of one that was
//! not stopped, also where the layout is another.

use checkpoint::{Manifest, TensorRecord};
use config::{Balance, ExpertsSpec, LoadSet, ModelSpec, Parallelism, RouterBias, RouterScores, RouterWeights, Routing};
use config::{TrainSpec, ZeroStage};
use prove::{Distance, Outcome};
use testkit::layout::Layout;
use testkit::models::{Style, plain_layout, proof_model, proof_text, proof_training};
use testkit::resumed::{LayoutPart, newest, outcome_of_parts};

use crate::resume::rig::Folder;

fn layout(parallelism: Parallelism, balance: Balance) -> Layout {
    let (scores, weights) = (RouterScores::Sigmoid, RouterWeights::Normalised);
    let experts = ExpertsSpec {
        number: 8,
        per_token: 2,
        hidden: 32,
        shared: None,
        first_layer: 1,
        layer_interval: 1,
        routing: Routing { scores, weights, scale: 1.0, groups: None },
        balance,
    };
    let model = ModelSpec { num_layers: 4, experts: Some(experts), ..proof_model(Style::Llama, 12, false) };
    let train = TrainSpec { steps: 4, global_batch: 8, warmup_steps: 1, ema_decay: Some(0.9), ..proof_training() };
    Layout { model, parallelism, train }
}

fn balance() -> Balance {
    let bias = Some(RouterBias { rate: 0.01 });
    Balance { loss: Some(0.2), over: LoadSet::Step, bias, ..Balance::NONE }
}

/// `before` until two steps are done, then `after`; the names of the tensors that were saved there.
fn in_two(before: &Layout, after: &Layout) -> (Result<Outcome, String>, Vec<String>) {
    let folder = Folder::new();
    let first = LayoutPart { layout: before.clone(), until: 2 };
    let first = outcome_of_parts(&[first], &proof_text(), &folder.0).expect("the first part");
    let manifest: Manifest = newest(&folder.0).expect("a checkpoint").manifest().clone();
    let saved = |(name, record): (&String, &TensorRecord)| format!("{name}{:?}", record.shape);
    let names = manifest.tensors.iter().map(saved).filter(|name| name.contains("router")).collect();
    let second = LayoutPart { layout: after.clone(), until: after.train.steps };
    let second = outcome_of_parts(&[second], &proof_text(), &folder.0);
    (second.map(|second| first.followed_by(second)).map_err(|error| error.to_string()), names)
}

#[test]
fn a_resumed_run_continues_with_its_corrections_and_loads() {
    let zero = Parallelism { zero: ZeroStage::One, ..plain_layout(2, 1, 1, 2) };
    for [before, after] in [
        [plain_layout(1, 1, 1, 2), plain_layout(1, 1, 2, 2)],
        [plain_layout(1, 1, 2, 1), plain_layout(1, 1, 1, 1)],
        [zero.clone(), plain_layout(2, 1, 2, 2)],
        [plain_layout(2, 2, 1, 2), Parallelism { zero: ZeroStage::One, ..plain_layout(2, 2, 1, 2) }],
    ] {
        let [before, after] = [before, after].map(|parallelism| layout(parallelism, balance()));
        let undisturbed = before.outcome(&proof_text()).expect("a run");
        let (resumed, saved) = in_two(&before, &after);
        let resumed = resumed.expect("a resumed run");
        let layouts = (&before.parallelism, &after.parallelism);
        assert!(Distance::between(&undisturbed, &resumed, |_| false).same_bits, "{layouts:?}");
        let of_routers: Vec<&str> =
            saved.iter().map(String::as_str).filter(|name| !name.contains("router.weight")).collect();
        let expected = [
            "layers.1.router.correction[8]",
            "layers.2.router.correction[8]",
            "layers.3.router.correction[8]",
            "load.layers.1.router[8]",
            "load.layers.2.router[8]",
            "load.layers.3.router[8]",
        ];
        assert_eq!(of_routers, expected, "neither moments nor averages");
        let correction = &resumed.weights["layers.2.router.correction"];
        assert!(correction.iter().any(|value| value.abs() > 0.015), "corrections of both parts add up: {correction:?}");
    }
}

/// A run may begin to correct and leave out a loss; it may not lose a correction.
#[test]
fn a_run_may_begin_to_correct_but_may_not_lose_a_correction() {
    let plain = plain_layout(1, 1, 1, 2);
    let [without, with] = [Balance::NONE, balance()].map(|balance| layout(plain.clone(), balance));
    let (begun, saved) = in_two(&without, &with);
    assert!(saved.iter().all(|name| name.contains("router.weight")), "{saved:?}");
    let correction = &begun.expect("a run that begins to correct").weights["layers.1.router.correction"];
    assert!(correction.iter().all(|value| value.abs() <= 0.0201), "two steps: {correction:?}");
    let no_loss = layout(plain, Balance { loss: None, over: LoadSet::Sequence, ..balance() });
    assert!(in_two(&with, &no_loss).0.is_ok(), "loads that nobody reads are left where they are");
    let (lost, _) = in_two(&with, &without);
    let message = lost.err().unwrap_or_default();
    assert!(message.contains("a tensor layers.1.router.correction, which the model has not"), "{message}");
}
