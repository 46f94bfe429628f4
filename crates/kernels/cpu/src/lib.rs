//! The CPU as a device: one file per kernel, its contract at the top, results independent of instruction set and row
//! count.

mod aligned;
#[cfg(target_arch = "x86_64")]
mod amx_tiles;
mod execute;
mod execute_balance;
mod execute_experts;
mod expert_parts;
mod parts;
mod pool;
mod share;
mod task;
mod worker;

pub mod accumulate;
pub mod activation;
pub mod adamw;
pub mod affinity;
pub mod arena_reader;
pub mod attention;
pub mod clip_coefficient;
pub mod column_sum;
pub mod copy;
pub mod cross_entropy;
pub mod device;
pub mod dropout;
pub mod embedding;
pub mod experts;
pub mod fill;
pub mod fixed_point;
pub mod gemm;
pub mod initialize;
pub mod instruction_set;
pub mod lanes;
pub mod loss_sum;
pub mod math;
pub mod meter;
pub mod norm;
pub mod peak;
pub mod rotary;
pub mod rounded_sum;
pub mod scaled_sum;
pub mod soft_cap;
pub mod squared_sum;
pub mod time_slice;
pub mod view;

pub use crate::arena_reader::ArenaReader;
pub use crate::device::{CpuDevice, accepts};
