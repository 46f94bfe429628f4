//! The kit of tests: small models and texts, ranks whose devices, groups and disks are wrapped to inject faults, and
//! watches that look at ranks between instructions.

#![forbid(unsafe_code)]

pub mod faulty_disk;
pub mod initial_weights;
pub mod intercepted;
pub mod layout;
pub mod library;
pub mod models;
pub mod numbers;
pub mod poison;
pub mod replicas;
pub mod resumed;
pub mod run_files;
pub mod soft_gpus;
pub mod stream_log;
pub mod text;
pub mod wrapped_engine;
pub mod wrapped_gpu;
