//! Every kernel against a plain f64 reference, on every instruction set of this machine.
//!
//! The references are written from the formulas, and their gradients are themselves checked by central differences.
//! Bounds count roundings: `ROUNDING` = 2^-24 is the largest relative error of one f32 operation, and each test derives
//! how many of them can add up. All results must also have the same bits on all instruction sets.

pub mod activation;
mod adamw;
mod cross_entropy;
mod dropout;
mod embedding;
mod initialize;
mod norm;
mod rotary;
mod sums;
pub mod support;
