//! Widths of models at which the bounds hold (`docs/numerics.md`, "Widths").

use config::{Activation, ModelSpec, QkNorm, SWIGLU_LIMIT};

use crate::initial::Initial;

/// The least `model.hidden`: narrower streams do not average rounding out.
pub const LEAST_HIDDEN: usize = 32;
/// The least dims of a head, for the same reason.
pub const LEAST_HEAD_DIM: usize = 4;
/// The least dims of a head with a norm: the mean square error of fewer has no value that short heads do not decide.
pub const LEAST_NORMED_HEAD_DIM: usize = 8;

/// The largest root mean square of the inputs of an activation with a limit, as a share of the limit: of normal numbers
/// one in 500 million is beyond six deviations.
const MOST_OF_LIMIT: f64 = 1.0 / 6.0;

/// Why values after the norms of `model`'s heads have no bound where sums are split differently; `None` where they
/// have.
pub fn without_bounds(model: &ModelSpec) -> Option<String> {
    let short = (model.qk_norm == QkNorm::Heads && model.head_dim < LEAST_NORMED_HEAD_DIM).then(|| {
        format!(
            "norms of heads (model.qk_norm) have a bound from model.head_dim = {LEAST_NORMED_HEAD_DIM} on; got {}",
            model.head_dim
        )
    });
    short.or_else(|| clamped(model))
}

/// Why inputs of activations of initial weights may be on both sides of a limit; `None` where they are not.
fn clamped(model: &ModelSpec) -> Option<String> {
    let has_limit = match model.activation {
        Activation::SwiGluClamped => true,
        Activation::GeluTanh | Activation::GeluErf | Activation::GeluSigmoid | Activation::Relu => false,
        Activation::SwiGlu | Activation::GeGlu | Activation::GeGluTanh => false,
    };
    let layers = if has_limit { Initial::of(model, model.context).layers } else { Default::default() };
    let largest = layers.iter().map(|layer| layer.input.sqrt()).fold(0.0, f64::max);
    let most = MOST_OF_LIMIT * f64::from(SWIGLU_LIMIT);
    (largest > most).then(|| {
        format!(
            "inputs of model.activation = \"swiglu_clamped\" have a root mean square of {largest:.2} and a limit of \
             {SWIGLU_LIMIT}, at which the slope jumps; they have a bound up to {most:.2}, with a smaller model.init_std"
        )
    })
}

/// Why two runs of `model` may be farther apart than a bound without a fault; `None` where a fault is the only reason.
pub fn narrow(model: &ModelSpec) -> Option<String> {
    let narrower = [("hidden", model.hidden, LEAST_HIDDEN), ("head_dim", model.head_dim, LEAST_HEAD_DIM)];
    narrower.into_iter().find(|(_, width, least)| width < least).map(|(key, width, least)| {
        format!("bounds are derived from model.{key} = {least} on; {width} may exceed them without a fault")
    })
}

#[cfg(test)]
mod tests {
    use testkit::models::{Style, proof_model};

    use super::*;

    #[test]
    fn narrow_models_and_short_heads_are_named() {
        let proof = proof_model(Style::Gpt2, 12, true);
        assert_eq!((narrow(&proof), without_bounds(&proof)), (None, None));
        let of = |hidden, head_dim| ModelSpec { hidden, head_dim, qk_norm: config::QkNorm::Heads, ..proof.clone() };
        let said = "bounds are derived from model.hidden = 32 on; 16 may exceed them without a fault";
        assert_eq!((narrow(&of(16, 8)).as_deref(), without_bounds(&of(16, 8))), (Some(said), None));
        let said = "bounds are derived from model.head_dim = 4 on; 2 may exceed them without a fault";
        assert_eq!(narrow(&of(32, 2)).as_deref(), Some(said));
        let said = "norms of heads (model.qk_norm) have a bound from model.head_dim = 8 on; got 4";
        assert_eq!(without_bounds(&of(32, 4)).as_deref(), Some(said));
    }

    /// Inputs have the deviation of a weight times the root of the width: 0.2 x 5.7 and 0.25 x 5.7.
    #[test]
    fn inputs_near_the_limit_of_an_activation_are_named() {
        let proof = proof_model(Style::Gpt2, 12, true);
        let of = |activation, init_std| {
            let model = ModelSpec { activation, init_std, hidden: 32, ..proof.clone() };
            without_bounds(&model)
        };
        let clamped = Activation::SwiGluClamped;
        assert_eq!([of(clamped, 0.2), of(Activation::SwiGlu, 0.25)], [None, None]);
        let said = of(clamped, 0.25).expect("a reason");
        assert!(said.contains("root mean square of 1.41 and a limit of 7") && said.contains("up to 1.17"), "{said}");
    }
}
