//! NVIDIA GPUs as a device: kernels of our own, compiled for the GPU at hand, with the bits of crate `cpu`;
//! and products and attention by libraries, where a run asks for them.
//!
//! [`kernels`] lists the sources, `launch` has one file per family of operations (operation to kernels, shapes and
//! arguments), [`code`] turns sources into code once and keeps it on the disk, and [`CudaDevice`] submits launches to
//! the streams of any [`gpu::Gpu`]. Nothing here is unsafe: addresses are numbers until the driver has them.

pub mod code;
mod contest;
mod device;
mod events;
mod failure;
mod graphs;
mod host_memory;
pub mod kernels;
mod launch;
mod library_attention;
mod library_products;
mod owned;
mod pinned;
mod rank_memory;
mod reader;
mod run_product;
mod submitter;

pub use code::CompiledSource;
pub use contest::{Choice, Source, choose};
pub use device::{CudaDevice, accepts, check_products};
pub use graphs::{GraphNotice, GraphUse};
pub use launch::ProductTile;
pub use library_products::LIBRARY_RANK_BYTES;
pub use reader::CudaReader;
pub use run_product::{BY_KERNELS, ChosenAlgorithms, ChosenTiles, KernelProduct, RunProduct, StreamProduct};
