//! The norm of models with experts is that of all gradients, on one rank and on many.

use config::{GradientReduction, Parallelism, ZeroStage};
use testkit::models::plain_layout;

use crate::experts::rig::{layout, models, outcome, three, training};

/// Squares of a block of 4,096 elements are added in single precision by 16 lanes, of which each has 256, and the lanes
/// by a tree: at most 260 roundings of 2^-24 of the sum, and of the norm half as much. Gradients are rounded once more
/// where they are delivered.
const BOUND: f64 = 131.0 / (1 << 24) as f64;

#[test]
fn the_norm_is_that_of_the_gradients_of_all_experts() {
    for (name, model) in models() {
        for parallelism in [
            plain_layout(1, 1, 1, 2),
            plain_layout(2, 2, 1, 2),
            Parallelism { zero: ZeroStage::One, ..plain_layout(2, 1, 2, 2) },
            Parallelism { zero: three(GradientReduction::Step), ..plain_layout(2, 2, 1, 2) },
        ] {
            let outcome = outcome(&layout(&model, parallelism.clone(), training()));
            let squares = |(_, gradient): (&String, &Vec<f32>)| -> f64 {
                gradient.iter().map(|value| f64::from(*value).powi(2)).sum()
            };
            let all = outcome.gradients.iter().map(squares).sum::<f64>().sqrt();
            let experts = outcome.gradients.iter().filter(|(name, _)| name.contains(".experts."));
            let of_experts = experts.map(squares).sum::<f64>().sqrt();
            assert!(of_experts > 0.01 * all, "{name}: experts have {of_experts} of {all}");
            let norm = outcome.norms[0];
            assert!((norm / all - 1.0).abs() <= BOUND, "{name}, {parallelism:?}: {norm} instead of {all}");
        }
    }
}
