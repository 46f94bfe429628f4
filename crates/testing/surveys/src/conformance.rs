//! Comparison of a GPU with the CPU where there is no compiler and no network: expected hashes are computed before, on
//! CPUs, and go with the compiled kernels and this program into one folder.

pub mod blocks;
pub mod cases;
pub mod check;
pub mod expected;
pub mod hashed_device;
