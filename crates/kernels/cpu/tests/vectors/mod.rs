//! Operations against what PyTorch computes for them: results and gradients in double precision, made by
//! `tools/reference/ops.py`. Operations run as a rank runs them, as values of `Op` on a device over an arena, on every
//! instruction set of this machine.
//!
//! Bounds are to first order in u = 2^-24, the largest relative error of one operation in single precision, and count
//! the operations that an element goes through.

mod activation;
mod attention;
mod cross_entropy;
mod embedding;
mod file;
mod linear;
mod machine;
mod norm;
mod optimizer;
mod rotary;
