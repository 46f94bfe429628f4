//! Widths of models at which the bounds hold (`docs/numerics.md`, "Widths").

use config::{ModelSpec, QkNorm};

/// The least `model.hidden`: narrower streams do not average rounding out.
pub const LEAST_HIDDEN: usize = 32;
/// The least dims of a head, for the same reason.
pub const LEAST_HEAD_DIM: usize = 4;
/// The least dims of a head with a norm: the mean square error of fewer has no value that short heads do not decide.
pub const LEAST_NORMED_HEAD_DIM: usize = 8;

/// Why values after the norms of `model`'s heads have no bound where sums are split differently; `None` where they
/// have.
pub fn without_bounds(model: &ModelSpec) -> Option<String> {
    (model.qk_norm == QkNorm::Heads && model.head_dim < LEAST_NORMED_HEAD_DIM).then(|| {
        format!(
            "norms of heads (model.qk_norm) have a bound from model.head_dim = {LEAST_NORMED_HEAD_DIM} on; got {}",
            model.head_dim
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
}
