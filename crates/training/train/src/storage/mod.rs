//! Tensors of a run on their way to and from storage: checkpoints, weights, and whatever reads or writes boxes of
//! tensors.

pub mod deliver;
pub mod fetch;
pub(crate) mod finite;
pub mod gathered;
pub mod open;
pub mod pieces;
pub(crate) mod routers;
pub mod saving;
pub mod sink;
pub mod tensor_file;
