//! A fault of three times a bound is found, for every kind of distance, class and precision; the clean pair keeps all
//! bounds.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends where something fails")]

use config::{Activation, Biases, LossScaling, ModelSpec, Parallelism, Precision, Products, TrainSpec};
use prove::{EqualityClass, Outcome, ParameterKind, Promise};
use testkit::layout::Layout;
use testkit::models::{Style, plain_layout, proof_model, proof_text, proof_training};

/// Every kind of parameter in two layers.
fn model(activation: Activation) -> ModelSpec {
    let proof = proof_model(Style::Gpt2, 12, false);
    ModelSpec { num_layers: 2, head_dim: 8, biases: Biases::All, qk_norm: config::QkNorm::Heads, activation, ..proof }
}

fn outcomes(model: &ModelSpec, train: &TrainSpec, other: &Parallelism) -> [Outcome; 2] {
    [&plain_layout(1, 1, 1, 1), other].map(|parallelism| {
        let layout = Layout { model: model.clone(), parallelism: parallelism.clone(), train: train.clone() };
        layout.outcome(&proof_text()).unwrap_or_else(|error| panic!("{parallelism:?}: {error}"))
    })
}

/// `outcome` with the tensor `name` of the first gradient moved by a vector of this norm, of either sign.
fn moved(outcome: &Outcome, name: &str, norm: f64) -> Outcome {
    let mut moved = outcome.clone();
    let values = moved.gradients.get_mut(name).unwrap();
    let each = norm / (values.len() as f64).sqrt();
    let signs = [1.0, -1.0, -1.0, 1.0, 1.0].into_iter().cycle();
    values.iter_mut().zip(signs).for_each(|(value, sign)| *value += (sign * each) as f32);
    moved
}

/// The tensor of `kind` that is compared, and the norm of a difference of it that has a distance of 1.
fn scale(promise: &Promise, [oracle, other]: [&Outcome; 2], kind: ParameterKind) -> (String, f64) {
    let of_kind = |other: &Outcome| {
        let distances = promise.distances([oracle, other]);
        distances.gradients.into_iter().find(|(found, _)| *found == kind).unwrap().1
    };
    let name = of_kind(other).what;
    // So far that rounding does not count.
    let far = 1e3 * oracle.gradients[&name].iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
    (name.clone(), far / of_kind(&moved(other, &name, far)).distance)
}

fn check(model: &ModelSpec, train: &TrainSpec, other: &Parallelism) {
    let class = EqualityClass::of(&plain_layout(1, 1, 1, 1), other);
    let promise = Promise::of(class, model, train, train.steps);
    let bounds = promise.bounds.clone().unwrap();
    let [oracle, second] = outcomes(model, train, other);
    let exceeded = |other: &Outcome| promise.distances([&oracle, other]).exceeded();
    assert_eq!(exceeded(&second), [""; 0], "{class} {:?}", train.precision);
    for kind in ParameterKind::ALL {
        let (name, scale) = scale(&promise, [&oracle, &second], kind);
        let faulty = moved(&second, &name, 3.0 * bounds.gradient(kind) * scale);
        let found = exceeded(&faulty);
        let expected = format!("the first gradient of {name} is ");
        assert!(found.len() == 1 && found[0].starts_with(&expected), "{class} {kind}: {found:?}");
    }
    for step in 0..oracle.losses.len() {
        let bound = bounds.loss.of_step(step, oracle.norms[step], oracle.losses[step]);
        let mut faulty = second.clone();
        faulty.losses[step] *= 1.0 + 3.0 * bound;
        let expected = format!("the loss of step {} is ", step + 1);
        assert!(exceeded(&faulty).iter().any(|found| found.starts_with(&expected)), "{class}");
    }
    let mut faulty = second;
    for value in faulty.weights.values_mut().flatten() {
        *value += (3.0 * bounds.weight) as f32;
    }
    assert!(exceeded(&faulty).iter().any(|found| found.contains("root mean square")), "{class}");
}

#[test]
fn faults_of_three_times_a_bound_are_found() {
    let scaling = LossScaling { initial: 4096.0, ..LossScaling::USUAL };
    let replicas = plain_layout(2, 1, 1, 2);
    let halves = plain_layout(1, 2, 1, 1);
    for (precision, other) in [
        (Precision::Fp32(Products::Chained), &replicas),
        (Precision::Fp32(Products::Chained), &halves),
        (Precision::Bf16(Products::Chained), &halves),
        (Precision::Fp16(Products::Chained, scaling), &halves),
        (Precision::Fp16(Products::Chained, scaling), &replicas),
    ] {
        for activation in [Activation::GeluTanh, Activation::Relu] {
            let train = TrainSpec { steps: 2, global_batch: 8, warmup_steps: 1, precision, ..proof_training() };
            check(&model(activation), &train, other);
        }
    }
}
