//! Where a run begins: with drawn weights, with given ones, or where another run stood.

use checkpoint::{Checkpoint, StatePart};
use mesh::Region;
use spec::ParamSpec;

use crate::source::{SourceError, TensorSource};

/// What a rank's tensors hold before the first step.
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

/// One tensor of each parameter, from a checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct PartSource<'a> {
    /// The checkpoint.
    pub checkpoint: &'a Checkpoint,
    /// Which tensor.
    pub part: StatePart,
}

impl TensorSource for PartSource<'_> {
    fn get(&self, param: &ParamSpec, region: &Region, values: &mut [f32]) -> Result<(), SourceError> {
        let name = self.part.tensor(&param.name);
        match self.checkpoint.shape(&name) {
            None => Err(SourceError::Missing { name }),
            Some(found) if found != param.shape => {
                Err(SourceError::Shape { name, found: found.to_vec(), expected: param.shape.clone() })
            }
            Some(_) => {
                let read = self.checkpoint.get(&name, region, values);
                read.map_err(|error| SourceError::Read { name, cause: error.to_string() })
            }
        }
    }
}
