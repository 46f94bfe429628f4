//! The weights that a run begins with, as tensors that another run can begin with.

use config::{ParamSpec, TrainSpec, all_params};
use prove::ProofError;
use train::TensorMap;

use crate::layout::Layout;
use crate::models::proof_text;

/// The weights that the seed of `layout` draws, each changed by `change`: `(parameter, values)`, values row-major.
///
/// # Errors
/// A layout that does not run.
pub fn initial_weights(layout: &Layout, change: impl Fn(&ParamSpec, &mut [f32])) -> Result<TensorMap, ProofError> {
    let train = TrainSpec { steps: 0, ..layout.train.clone() };
    let mut weights = Layout { train, ..layout.clone() }.outcome(&proof_text())?.weights;
    let mut map = TensorMap::default();
    for param in all_params(&layout.model) {
        if let Some(mut values) = weights.remove(&param.name) {
            change(&param, &mut values);
            map.insert(&param.name, &param.shape, values);
        }
    }
    Ok(map)
}
