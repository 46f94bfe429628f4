//! Where pieces of global tensors come from: storage, another run, a map in memory. The counterpart of
//! [`crate::storage::sink`].

use config::ParamSpec;
use mesh::Region;
use thiserror::Error;

/// Gives boxes of global tensors to all ranks. It knows no layout: each rank asks for the boxes that it holds, and
/// several ranks may ask for the same.
///
/// One source holds one tensor per parameter. Weights and each moment of the optimizer come from sources of their own,
/// as they go to sinks of their own.
pub trait TensorSource: Sync {
    /// Assigns all of `values`, row-major: box `region` of `param`.
    ///
    /// # Errors
    /// The tensor is not there, has another shape, or cannot be read.
    fn get(&self, param: &ParamSpec, region: &Region, values: &mut [f32]) -> Result<(), SourceError>;
}

/// Why a source cannot give a tensor.
#[derive(Debug, Error)]
pub enum SourceError {
    /// It does not have it.
    #[error("the source has no tensor {name}, which the model reads; is it of a model of another kind?")]
    Missing {
        /// The tensor.
        name: String,
    },
    /// It has one of that name which is another.
    #[error(
        "tensor {name} is {found:?} in the source and {expected:?} in the model; give the model the sizes of the source"
    )]
    Shape {
        /// The tensor.
        name: String,
        /// Shape in the source.
        found: Vec<usize>,
        /// Shape in the model.
        expected: Vec<usize>,
    },
    /// It has one that the model does not have.
    #[error(
        "the source has a tensor {name}, which the model has not; give the model the layers and parts of the source"
    )]
    Foreign {
        /// The tensor.
        name: String,
    },
    /// It has only a part of it.
    #[error("tensor {name} has {received} of {len} elements in the source")]
    Partial {
        /// The tensor.
        name: String,
        /// Elements that the source has.
        received: usize,
        /// Elements of the tensor.
        len: usize,
    },
    /// It has a value that is infinite or no number.
    #[error("tensor {name} has a value that is {value}, and weights must be finite; use those of an earlier step")]
    NotFinite {
        /// The tensor.
        name: String,
        /// The first such value.
        value: f32,
    },
    /// It could not be read.
    #[error("tensor {name} cannot be read: {cause}")]
    Read {
        /// The tensor.
        name: String,
        /// The storage's words.
        cause: String,
    },
}
