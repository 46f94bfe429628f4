//! Rules of learning-rate schedules, averages and stores.

use crate::tests::check::expect;

#[test]
fn schedules_have_room_and_keys_of_their_own() {
    expect(&[
        (
            &["train.schedule=wsd", "train.steps=100", "train.warmup_steps=20", "train.decay_length=90"],
            "train.decay_length = 90 is a decay of 90 steps; train.steps = 100 and train.warmup_steps = 20 leave 80; use at most 80",
        ),
        (
            &["train.schedule=wsd", "train.steps=100", "train.warmup_steps=20", "train.decay_length=0.81"],
            "train.decay_length = 0.81 is a decay of 81 steps; train.steps = 100 and train.warmup_steps = 20 leave 80; use at most 80",
        ),
        (
            &["train.schedule=wsd", "train.steps=100", "train.warmup_steps=100"],
            "train.decay_length = 0.2 is a decay of 20 steps; train.steps = 100 and train.warmup_steps = 100 \
             leave 0; use a shorter warm-up",
        ),
        (
            &["train.schedule=wsd", "train.decay_length=1.0"],
            "train.decay_length = 1.0 is not a number of steps, or a share of all steps such as 0.2",
        ),
        (
            &["train.schedule=cosine-restarts", "train.restart_growth=0"],
            "train.restart_growth = 0 must be positive; use at least 1",
        ),
    ]);
}

#[test]
fn averages_decay() {
    expect(&[(
        &["train.ema_decay=1"],
        "train.ema_decay = 1.0 must be the decay of a running mean; use 0 or more and less than 1",
    )]);
}

#[test]
fn muon_has_keys_of_its_own() {
    expect(&[(
        &["train.optimizer=muon", "train.precision=bf16", "train.products=blocks16"],
        "train.optimizer = \"muon\" must have train.products = \"chained\" or \"pairs\"; got \"blocks16\"; \
             use train.products = \"chained\"",
    )]);
}
