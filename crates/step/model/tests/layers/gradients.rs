//! Gradients of every parameter against central differences of the objective.

use config::{LayerRecompute, ModelSpec, SavedInputs, Unit};
use model::{MicrobatchShape, TensorParallel};

use crate::cases::{self, SHAPE};
use crate::reference::{Exchange, ReferenceDevice, uniform};
use crate::rig::{Labels, Manner, Rank, Running};

const ONE_RANK: TensorParallel = TensorParallel { size: 1, position: 0 };

/// Step of the difference. The truncation error is of order `STEP^2` = 1e-10, the rounding error of the objective
/// divided by the step of order 1e-16 * 10 / 1e-5 = 1e-10.
const STEP: f64 = 1e-5;

/// Ten times the sum of both errors, relative to gradients of order 1; the third derivatives of deep compositions are
/// larger.
const TOLERANCE: f64 = 1e-7;

fn run<R>(model: &ModelSpec, shape: MicrobatchShape, manner: Manner, body: impl FnOnce(&Running) -> R) -> R {
    let rank = Rank::new(model, ONE_RANK, shape, manner);
    let device = ReferenceDevice::new(rank.arena_bytes);
    rank.initialize(&device);
    Running::scope(&rank, &device, &Exchange::new(1), body)
}

/// Each parameter is moved along a random direction; the slope is compared with the gradient's component along it.
fn check(name: &str, model: &ModelSpec, shape: MicrobatchShape) {
    run(model, shape, Manner::PLAIN, |running| {
        let loss = running.step();
        assert!((running.objective() - loss).abs() < 1e-12, "{name}: evaluation gives the loss of training");
        for (unit, param, range) in running.rank.declared() {
            let gradient = running.gradient(unit, range.clone());
            let direction: Vec<f64> =
                (0..range.len()).map(|index| uniform(&[11, param.id(), index as u64]) - 0.5).collect();
            let expected = slope(running, unit, range, &direction);
            let actual: f64 = gradient.iter().zip(&direction).map(|(gradient, along)| gradient * along).sum();
            let error = (actual - expected).abs();
            assert!(error < TOLERANCE * expected.abs().max(1.0), "{name}, {}: {actual} against {expected}", param.name);
            // A shift of all keys by one vector shifts all scores of a query alike, unless rotation
            // or a soft cap tells keys apart.
            let is_zero = param.name.ends_with("key.bias")
                && model.qk_norm == config::QkNorm::Off
                && model.attention_soft_cap.is_none()
                && running.tracer_has_no_rotary();
            let largest = gradient.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
            assert!((largest < 1e-12) == is_zero, "{name}, {}: largest gradient {largest}", param.name);
        }
    });
}

impl Running<'_> {
    fn tracer_has_no_rotary(&self) -> bool {
        !self.tracer.lines.borrow().iter().any(|line| line.starts_with("rotary("))
    }
}

fn slope(running: &Running, unit: Unit, range: std::ops::Range<usize>, direction: &[f64]) -> f64 {
    let tensor = running.rank.params[&unit].elements(range);
    let values = running.device.values(tensor);
    let objective_at = |distance: f64| {
        let moved: Vec<f64> = values.iter().zip(direction).map(|(value, along)| value + distance * along).collect();
        running.device.assign(tensor, &moved);
        running.objective()
    };
    let difference = objective_at(STEP) - objective_at(-STEP);
    running.device.assign(tensor, &values);
    difference / (2.0 * STEP)
}

#[test]
fn gradients_are_those_of_the_objective() {
    for (name, model) in cases::all() {
        check(name, &model, SHAPE);
    }
}

#[test]
fn gradients_cross_chunks_of_the_head() {
    let model = ModelSpec { num_layers: 1, context: 200, num_heads: 1, num_kv_heads: 1, ..cases::gpt2() };
    check("a chunk ends within the second sequence", &model, MicrobatchShape::whole(2, 133));
}

#[test]
fn recomputation_leaves_the_same_bits() {
    for (name, model) in cases::all() {
        let gradients = |recompute| {
            run(&model, SHAPE, Manner::recomputing(recompute), |running| {
                let loss = running.step();
                let declared = running.rank.declared();
                (loss, declared.map(|(unit, _, range)| running.gradient(unit, range)).collect::<Vec<_>>())
            })
        };
        let kept = gradients(LayerRecompute::Nothing);
        for recompute in [
            LayerRecompute::Core,
            LayerRecompute::Everything(SavedInputs::Whole),
            LayerRecompute::Everything(SavedInputs::Sharded),
        ] {
            assert_eq!(kept, gradients(recompute), "{name}, {recompute:?}");
        }
    }
}

#[test]
fn without_valid_labels_nothing_has_a_gradient() {
    let model = cases::llama();
    run(&model, SHAPE, Manner::PLAIN, |running| {
        let running = Running { labels: Labels::Ignored, ..*running };
        assert_eq!(running.step(), 0.0);
        for (unit, param, range) in running.rank.declared() {
            assert!(running.gradient(unit, range).iter().all(|value| *value == 0.0), "{}", param.name);
        }
    });
}
