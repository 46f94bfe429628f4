//! Ranks on GPUs: their code, collectives and failures.

mod amd;
mod collectives;
mod compile;
mod failures;
