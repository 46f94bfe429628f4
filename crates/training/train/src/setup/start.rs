//! Where a run begins: with drawn weights, with given ones, or where another run stood.

use std::collections::BTreeSet;

use checkpoint::{Checkpoint, StatePart};
use config::{
    Averages, ModelSpec, ParamSpec, ROUTER_LOAD, TrainSpec, Unit, UnitLayout, all_params, params, router_corrections,
    router_loads,
};
use mesh::{AxisSizes, Region};

use crate::setup::source::{SourceError, TensorSource};

/// The values of a rank's tensors before the first step.
#[derive(Clone, Copy)]
pub enum Start<'a> {
    /// Weights that the seed gives; nothing is done yet.
    Seed,
    /// Given weights; nothing is done yet.
    Weights(&'a dyn TensorSource),
    /// All that a run kept between two steps.
    Checkpoint(&'a Checkpoint),
}

impl<'a> Start<'a> {
    /// With these weights, or else with those of the seed.
    pub fn with(weights: Option<&'a dyn TensorSource>) -> Start<'a> {
        weights.map_or(Start::Seed, Start::Weights)
    }

    /// The checkpoint, if there is one.
    pub fn checkpoint(self) -> Option<&'a Checkpoint> {
        match self {
            Start::Seed | Start::Weights(_) => None,
            Start::Checkpoint(checkpoint) => Some(checkpoint),
        }
    }

    /// Steps that are done.
    pub fn steps(self) -> u32 {
        self.checkpoint().map_or(0, |checkpoint| checkpoint.state().steps)
    }
}

/// Given weights, completed by the initial values of adapters that they lack, which the seed determines.
pub struct CompletedWeights<'a> {
    /// Those that are given.
    pub given: &'a dyn TensorSource,
    /// The seed of the run.
    pub seed: u64,
}

impl TensorSource for CompletedWeights<'_> {
    fn get(&self, param: &ParamSpec, region: &Region, values: &mut [f32]) -> Result<(), SourceError> {
        let found = self.given.get(param, region, values);
        let Err(SourceError::Missing { .. }) = found else { return found };
        let part = match (param.unit, region.start.as_slice(), region.extent.as_slice()) {
            (Unit::Adapters(_), [row, col], [rows, cols]) => ((*row, *col), *rows, *cols),
            (_, _, _) => return found,
        };
        match model::drawn_values(param, self.seed, part) {
            Some(drawn) => {
                values.copy_from_slice(&drawn);
                Ok(())
            }
            None => found,
        }
    }
}

/// Whether `checkpoint` has the averages of weights.
pub fn has_averages(checkpoint: &Checkpoint) -> bool {
    let prefix = StatePart::Average.tensor("");
    checkpoint.manifest().tensors.keys().any(|name| name.starts_with(&prefix))
}

/// Whether `checkpoint` is of such a model: it has the tensors of every parameter in its shape, averages of all or of
/// none, second moments of those that need one, and no others. A run that keeps averages begins them with the weights
/// of a checkpoint without.
///
/// # Errors
/// The first tensor that is missing, has another shape, or is not of the model.
pub fn check_tensors(checkpoint: &Checkpoint, model: &ModelSpec, train: &TrainSpec) -> Result<(), SourceError> {
    let averages = if has_averages(checkpoint) { Averages::Kept } else { Averages::Off };
    let mut known = BTreeSet::from_iter(names_of_routers(checkpoint, model)?);
    for param in all_params(model) {
        // Parameters that are not trained have no moments.
        let kept = StatePart::kept(averages).iter().copied();
        for part in kept.filter(|part| *part == StatePart::Weights || model.trains(param.unit)) {
            let name = part.tensor(&param.name);
            let is_needed = part != StatePart::SecondMoment || has_second_moment(model, train, &param);
            if is_needed || checkpoint.shape(&name).is_some() {
                PartSource { checkpoint, part }.check(&param)?;
            }
            known.insert(name);
        }
    }
    let foreign = checkpoint.manifest().tensors.keys().find(|name| !known.contains(*name));
    foreign.map_or(Ok(()), |name| Err(SourceError::Foreign { name: name.clone() }))
}

/// Names of a checkpoint's tensors of routers that are of `model`, whose corrections have their shapes.
///
/// # Errors
/// A correction of another shape.
fn names_of_routers(checkpoint: &Checkpoint, model: &ModelSpec) -> Result<Vec<String>, SourceError> {
    let mut known: Vec<String> =
        checkpoint.manifest().tensors.keys().filter(|name| name.starts_with(ROUTER_LOAD)).cloned().collect();
    for ParamSpec { name, shape: expected, .. } in router_corrections(model).chain(router_loads(model)) {
        match checkpoint.shape(&name) {
            Some(found) if found != expected => {
                return Err(SourceError::Shape { name, found: found.to_vec(), expected });
            }
            Some(_) | None => known.push(name),
        }
    }
    Ok(known)
}

/// Whether a run that trains has a second moment of `param`.
fn has_second_moment(model: &ModelSpec, train: &TrainSpec, param: &ParamSpec) -> bool {
    let layout = UnitLayout::new(params(model, param.unit), AxisSizes::ONE, 1);
    train.optimizer.has_second_moment(param, &layout)
}

/// One tensor of each parameter, from a checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct PartSource<'a> {
    pub checkpoint: &'a Checkpoint,
    /// Which tensor.
    pub part: StatePart,
}

impl PartSource<'_> {
    /// The name of the tensor of `param`, which is there in its shape.
    fn check(&self, param: &ParamSpec) -> Result<String, SourceError> {
        let name = self.part.tensor(&param.name);
        match self.checkpoint.shape(&name) {
            None => Err(SourceError::Missing { name }),
            Some(found) if found != param.shape => {
                Err(SourceError::Shape { name, found: found.to_vec(), expected: param.shape.clone() })
            }
            Some(_) => Ok(name),
        }
    }
}

impl TensorSource for PartSource<'_> {
    fn get(&self, param: &ParamSpec, region: &Region, values: &mut [f32]) -> Result<(), SourceError> {
        let name = self.check(param)?;
        let read = self.checkpoint.get(&name, region, values);
        read.map_err(|error| SourceError::Read { name, cause: error.to_string() })
    }
}
