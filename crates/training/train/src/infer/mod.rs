//! Forward passes outside training: evaluation, logits and generation.

pub mod evaluate;
pub mod forward;
pub mod generate;
pub(crate) mod logits;
pub mod sampling;
