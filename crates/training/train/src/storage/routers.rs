//! The tensors of routers that a run keeps between steps: corrections, which are weights of the model, and loads of the
//! step before. All ranks have all of them.

use config::{ModelSpec, ParamSpec, UnitLayout, router_corrections, router_loads};
use device::{Device, DeviceError, Tensor};
use mesh::Region;
use model::Constants;

use crate::setup::source::{SourceError, TensorSource};
use crate::storage::fetch::FetchError;
use crate::storage::sink::TensorSink;
use crate::worker::Worker;
use crate::worker::position::RankPosition;

/// A tensor and its place.
pub(crate) type Kept = (ParamSpec, Tensor);

/// The corrections, where the model has any.
pub(crate) fn corrections(model: &ModelSpec, constants: &Constants) -> Vec<Kept> {
    let places = constants.routers.and_then(|routers| routers.corrections);
    in_rows(router_corrections(model), places)
}

/// The loads of the step before, where a loss is of them.
pub(crate) fn loads(model: &ModelSpec, constants: &Constants) -> Vec<Kept> {
    let places = constants.routers.and_then(|routers| routers.loads);
    in_rows(router_loads(model), places)
}

fn in_rows(params: impl Iterator<Item = ParamSpec>, places: Option<Tensor>) -> Vec<Kept> {
    let Some(places) = places else { return vec![] };
    params.enumerate().map(|(row, param)| (param, places.rows_of(row..row + 1))).collect()
}

/// Whether the rank at `rank` stores `param`, a router's tensor of the unit with `layout`: of all ranks of its stage
/// the one with the first elements of the unit, of copies the first.
pub(crate) fn stores(rank: &RankPosition, layout: &UnitLayout, param: &ParamSpec) -> bool {
    let owned = rank.shards.owned(layout);
    owned.start == 0 && !owned.is_empty() && rank.model.is_first_copy(param, layout.axes())
}

/// Fills the tensors from `source`: zeros for those that it does not have, as at the start of a run.
///
/// # Errors
/// See [`FetchError`].
pub(crate) fn fetch(device: &dyn Device, kept: &[Kept], source: &dyn TensorSource) -> Result<(), FetchError> {
    for (param, place) in kept {
        let mut values = vec![0.0; place.len()];
        match source.get(param, &Region::whole(&param.shape), &mut values) {
            Ok(()) => device::write_floats(device, *place, &values)?,
            Err(SourceError::Missing { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The corrections that this rank answers for.
///
/// # Errors
/// The device's.
pub(crate) fn deliver(worker: &Worker<'_>, sink: &dyn TensorSink) -> Result<(), DeviceError> {
    let Worker { position, state, ports } = worker;
    for (param, place) in corrections(&position.setup.model, &state.constants) {
        let layout = state.units.get(&param.unit).map(|unit| &unit.layout);
        if layout.is_some_and(|layout| stores(&position.rank, layout, &param)) {
            let values = device::read_floats(&*ports.device, place)?;
            sink.put(&param, &Region::whole(&param.shape), &values);
        }
    }
    Ok(())
}
