//! NVIDIA GPUs as a device: kernels of our own, compiled for the GPU at hand, with the bits of crate `cpu`;
//! and products and attention by libraries, where a run asks for them.
//!
//! [`kernels`] lists the sources, `launch` has one file per family of operations (operation to kernels, shapes and
//! arguments), [`code`] turns sources into code once and keeps it on the disk, and [`CudaDevice`] submits launches to
//! the streams of any [`gpu::Gpu`]. Nothing here is unsafe: addresses are numbers until the driver has them.

mod chosen_algorithms;
mod chosen_tiles;
pub mod code;
mod device;
mod equal_algorithms;
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
mod product_draws;
mod product_timing;
mod rank_memory;
mod reader;
mod submitter;
mod tile_timing;
mod timing_memory;

pub use chosen_algorithms::{ChosenAlgorithms, StreamProduct};
pub use chosen_tiles::{ChosenTiles, KernelProduct};
pub use code::CompiledSource;
pub use device::{CudaDevice, accepts, check_products};
pub use equal_algorithms::{BlocksProduct, EqualChoice, choose_equal_algorithms};
pub use graphs::{GraphNotice, GraphUse};
pub use launch::{ProductTile, product_tiles};
pub use library_products::LIBRARY_RANK_BYTES;
pub use product_timing::{Choice, choose_algorithms};
pub use reader::CudaReader;
pub use tile_timing::{TileChoice, TimedTiles, choose_tiles};
