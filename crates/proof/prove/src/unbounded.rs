//! Runs whose losses and weights have no bound; derived in `docs/numerics.md`.

use config::{Blocks, ModelSpec, Optimizer, TopQuery, TrainSpec};

/// Steps over which the bounds of losses and weights are derived and measured.
pub const BOUNDED_STEPS: u32 = 20;
/// The largest product of the sum of all rates and the root of the width over which they are. Maps whose elements move
/// by R change an input of mean square 1 by R sqrt(D): beyond a half the model is no longer the one whose roundings are
/// counted.
const BOUNDED_MOVE: f64 = 0.5;
/// The largest sum of all rates over the initial standard deviation. A map whose elements have moved by twice their
/// initial size is another one, too, and of several such layers each multiplies what the one before it makes of a
/// difference.
const BOUNDED_GROWTH: f64 = 2.0;
/// The largest distance of a weight over the initial standard deviation, times the root of the number of blocks. From
/// there on the differences of all blocks together change the model, and gradients differ by more than roundings.
const BOUNDED_SPREAD: f64 = 0.5;

/// Why losses and weights of two runs have no bound after `steps` steps, at whose end weights are `apart` at most;
/// `None` where they have.
pub fn left_out(model: &ModelSpec, train: &TrainSpec, steps: u32, apart: f64) -> Option<String> {
    let rates = sum_of_rates(train, steps);
    let of_inputs = BOUNDED_MOVE / (model.hidden.max(1) as f64).sqrt();
    let limit = of_inputs.min(bounded_growth(model) * f64::from(model.init_std));
    if let Optimizer::Muon(_) = train.optimizer {
        let gradients = "gradients of the first step have bounds";
        Some(format!("updates of train.optimizer = \"muon\" amplify differences of small singular values; {gradients}"))
    } else if model.blocks == Blocks::PostNorm && steps > 1 {
        let gradients = "the loss and the gradients of the first step have bounds; prove one step";
        Some(format!(
            "the first norm of model.blocks = \"postnorm\" makes small sums whole, and updates with them; {gradients}"
        ))
    } else if has_gradients_of_rounding(model) && steps > 1 {
        let gradients = "the loss and the gradients of the first step have bounds; prove one step";
        Some(format!(
            "the elements of embeddings that model.dropout drops between model.embedding_norm and the first norm of \
             model.blocks = \"deepnorm\" have gradients of rounding alone, and updates with them; {gradients}"
        ))
    } else if steps > BOUNDED_STEPS {
        Some(format!("{steps} steps are more than the {BOUNDED_STEPS} over which losses and weights have a bound"))
    } else if rates > limit {
        Some(format!(
            "the learning rates of these steps add up to {rates:.2e}, and losses and weights have a bound up to {limit:.2e} \
             with model.hidden = {}, model.num_layers = {} and model.init_std = {}; prove fewer steps, or use a lower \
             train.learning_rate",
            model.hidden, model.num_layers, model.init_std
        ))
    } else if steps > 1 {
        beyond_spread(model, apart)
    } else {
        None
    }
}

/// That weights are too far apart for all blocks together.
fn beyond_spread(model: &ModelSpec, apart: f64) -> Option<String> {
    let (blocks, init_std) = (blocks(model), f64::from(model.init_std));
    let limit = BOUNDED_SPREAD * init_std / (blocks as f64).sqrt();
    (apart > limit).then(|| {
        format!(
            "weights may be {apart:.2e} apart after these steps, and losses and weights have a bound up to {limit:.2e} with \
             {blocks} blocks and model.init_std = {}; prove fewer steps, or use a lower train.learning_rate",
            model.init_std
        )
    })
}

/// Attention and feed-forward blocks, with those of a top query's layer.
fn blocks(model: &ModelSpec) -> usize {
    2 * (model.num_layers + usize::from(model.top_query == TopQuery::On))
}

/// The largest sum of all rates over the initial standard deviation. A norm after a block makes its sum as large as the
/// stream whatever the weights are, and with it the share by which moves of the weights change it. While the moves of
/// all blocks together are not larger than the stream, differences do not grow from step to step.
fn bounded_growth(model: &ModelSpec) -> f64 {
    match model.blocks {
        Blocks::Sandwich => 1.0 / (blocks(model) as f64).sqrt(),
        Blocks::Sequential | Blocks::Parallel | Blocks::PostNorm | Blocks::DeepNorm { .. } => BOUNDED_GROWTH,
    }
}

/// Whether the first norm of the layers reads dropped outputs of a norm, and nothing else does: that norm does not
/// depend on its input's size, so the gradient of the other norm's input is exactly 0 where an output is dropped.
fn has_gradients_of_rounding(model: &ModelSpec) -> bool {
    match model.blocks {
        Blocks::DeepNorm { .. } => model.embedding_norm && model.dropout > 0.0,
        Blocks::Sequential | Blocks::Parallel | Blocks::PostNorm | Blocks::Sandwich => false,
    }
}

/// Sum of the rates of all steps, with the largest factor of any parameter.
pub fn sum_of_rates(train: &TrainSpec, steps: u32) -> f64 {
    let factors = train.groups.iter().map(|group| f64::from(group.learning_rate_scale));
    let factor = factors.fold(1.0, f64::max);
    factor * (0..steps).map(|step| f64::from(train.learning_rate_at(step))).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use testkit::models::{Style, proof_model, proof_training};

    use super::*;

    /// 16 layers have 32 blocks: 0.02 / sqrt(32) is 0.0035. The rates of 2e-3 add up to 0.005.
    #[test]
    fn norms_after_blocks_have_bounds_of_smaller_rates() {
        let reason = |blocks, learning_rate| {
            let model = ModelSpec { blocks, init_std: 0.02, ..proof_model(Style::Gpt2, 12, true) };
            left_out(&model, &TrainSpec { learning_rate, ..proof_training() }, 4, 0.0)
        };
        assert_eq!([reason(Blocks::Sequential, 2e-3), reason(Blocks::Sandwich, 1e-3)], [None, None]);
        let said = reason(Blocks::Sandwich, 2e-3).expect("a reason");
        assert!(said.contains("add up to 5.00e-3") && said.contains("up to 3.54e-3"), "{said}");
    }

    /// Twelve blocks: 0.5 x 0.02 / sqrt(12) is 0.0029. The first step has a bound wherever weights may be.
    #[test]
    fn differences_of_all_blocks_together_have_a_limit() {
        let model = ModelSpec { num_layers: 6, init_std: 0.02, ..proof_model(Style::Gpt2, 12, true) };
        let reason = |apart, steps| left_out(&model, &proof_training(), steps, apart);
        assert_eq!([reason(0.0028, 4), reason(0.003, 1)], [None, None]);
        let said = reason(0.003, 4).expect("a reason");
        assert!(said.contains("may be 3.00e-3 apart") && said.contains("up to 2.89e-3 with 12 blocks"), "{said}");
    }

    /// Between two norms that nothing else reads, the gradient of a dropped element is exactly 0.
    #[test]
    fn dropped_elements_between_two_norms_leave_bounds_of_the_first_step() {
        let deep = ModelSpec { blocks: Blocks::DeepNorm { alpha: 2.0 }, ..proof_model(Style::Gpt2, 12, true) };
        let reason = |embedding_norm, dropout, steps| {
            let model = ModelSpec { embedding_norm, dropout, ..deep.clone() };
            left_out(&model, &proof_training(), steps, 0.0)
        };
        assert_eq!([reason(true, 0.1, 1), reason(true, 0.0, 2), reason(false, 0.1, 2)], [None, None, None]);
        assert!(reason(true, 0.1, 2).is_some_and(|said| said.contains("model.dropout")));
    }
}
