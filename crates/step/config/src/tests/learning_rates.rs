//! Schedules of the learning rate, step by step: those of PyTorch and transformers as
//! `tools/reference/learning_rates.py` lists them, and the words that `check` prints.
//!
//! Both sides compute in double precision; ours is rounded to single precision once, by at most u = 2^-24 of the rate.
//! The last bits of double precision, of which a cosine near the minimum loses a few, are within another 1e-12 of the
//! peak.

use config::{RunConfig, TrainSpec};

const LISTED: &str = include_str!("learning_rates.txt");

fn run(keys: &str) -> TrainSpec {
    let overrides: Vec<String> = keys.split(' ').map(|key| format!("train.{key}")).collect();
    RunConfig::load("", "", &overrides).expect("legal").train
}

#[test]
fn rates_are_those_of_pytorch_and_transformers() {
    let lines: Vec<&str> = LISTED.lines().collect();
    let (cases, rest) = lines.as_chunks::<2>();
    assert_eq!((cases.len(), rest.len()), (8, 0));
    for [keys, listed] in cases {
        let train = run(keys);
        let listed: Vec<f64> = listed.split(' ').map(|rate| rate.parse().expect("a number")).collect();
        assert_eq!(listed.len() as u32, train.steps - train.warmup_steps, "{keys}");
        for (step, expected) in (train.warmup_steps..).zip(listed) {
            let ours = f64::from(train.learning_rate_at(step));
            let bound = expected * f64::powi(2.0, -24) + 1e-12 * f64::from(train.learning_rate);
            assert!((ours - expected).abs() <= bound, "{keys}: step {step} has {ours}, not {expected}");
        }
    }
}

/// A schedule that is off by one step, or has another shape, is found.
#[test]
fn other_schedules_are_told_apart() {
    let far = |keys: &str, other: &str| {
        let (one, other) = (run(keys), run(other));
        let steps = one.warmup_steps..one.steps;
        steps.filter(|step| one.learning_rate_at(*step) != other.learning_rate_at(*step)).count()
    };
    let wsd = "schedule=wsd steps=40 warmup_steps=5";
    assert_eq!(far(&format!("{wsd} decay_length=12"), &format!("{wsd} decay_length=0.3")), 0);
    assert_eq!(far(&format!("{wsd} decay_length=12"), &format!("{wsd} decay_length=11")), 11);
    assert_eq!(far(&format!("{wsd} decay_length=12"), &format!("{wsd} decay_length=12 decay_shape=1-sqrt")), 11);
}

#[test]
fn phases_in_words() {
    let described = [
        "steps=240",
        "schedule=linear warmup_steps=0",
        "schedule=constant steps=1",
        "schedule=wsd decay_shape=1-sqrt warmup_steps=20",
        "schedule=wsd steps=100 warmup_steps=10 decay_length=90",
        "schedule=cosine-restarts steps=400 restart_steps=50 restart_growth=2 warmup_steps=20",
        "schedule=cosine-restarts steps=400 restart_steps=50 warmup_steps=20",
        "schedule=cosine-restarts steps=2147483647 restart_steps=1 warmup_steps=20",
    ]
    .map(|keys| format!("{keys}: {}\n", run(keys).learning_rate_phases()))
    .concat();
    assert_eq!(
        described,
        "\
steps=240: linear to 0.001 in 60 steps, cosine to 0.0001 in 180 steps
schedule=linear warmup_steps=0: linear to 0.0001 in 240 steps
schedule=constant steps=1: 0.001 for 1 step
schedule=wsd decay_shape=1-sqrt warmup_steps=20: linear to 0.001 in 20 steps, 0.001 for 172 steps, 1-sqrt to 0.0001 in 48 steps
schedule=wsd steps=100 warmup_steps=10 decay_length=90: linear to 0.001 in 10 steps, linear to 0.0001 in 90 steps
schedule=cosine-restarts steps=400 restart_steps=50 restart_growth=2 warmup_steps=20: linear to 0.001 in 20 steps, \
cosine to 0.0001 in 50 steps, cosine to 0.0001 in 100 steps, cosine to 0.0001 in 200 steps, \
cosine toward 0.0001 in 30 of 400 steps
schedule=cosine-restarts steps=400 restart_steps=50 warmup_steps=20: linear to 0.001 in 20 steps, cosine to 0.0001 in 50 steps, \
cosine to 0.0001 in 50 steps, cosine to 0.0001 in 50 steps, 4 more, cosine toward 0.0001 in 30 of 50 steps
schedule=cosine-restarts steps=2147483647 restart_steps=1 warmup_steps=20: linear to 0.001 in 20 steps, cosine to 0.0001 in 1 step, \
cosine to 0.0001 in 1 step, cosine to 0.0001 in 1 step, 2147483623 more, cosine to 0.0001 in 1 step
"
    );
}
