//! Commands that read the weights of a run: `eval`, `generate` and `forward`.

pub mod eval;
pub mod forward;
pub mod generate;
