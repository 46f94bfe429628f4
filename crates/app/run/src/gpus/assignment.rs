//! The GPUs of the ranks of a run, and their libraries, in words.

use config::{DeviceChoice, GpuCollectives, GpuGraphs, ProductAlgorithms, Products, RunConfig, kernel_contest};
use mesh::{Mesh, Rank};
use nvidia::{Search, cublaslt, cudnn};
use train::{AttentionUse, BlocksBy, GpuError, gpus_of};

use crate::gpus::devices::{attention, blocks_by, has_gpus, nccl, places};

/// The hosts of a run with their ranks; all on one without a list.
fn hosts_of(mesh: &Mesh, hosts: Option<&[(String, Vec<Rank>)]>) -> Vec<(String, Vec<Rank>)> {
    hosts.map_or_else(|| vec![("this host".into(), mesh.ranks().collect())], <[_]>::to_vec)
}

/// How many GPUs a host has: as the run says, or as this machine has.
fn gpus_of_host(config: &RunConfig) -> Result<usize, GpuError> {
    match config.run.gpus {
        Some(gpus) => Ok(gpus),
        None => gpus_of(config.run.device, None, &places()).map(|gpus| gpus.len()),
    }
}

/// The GPUs of each host with their ranks; nothing for other devices.
pub fn assignment(config: &RunConfig, mesh: &Mesh, hosts: Option<&[(String, Vec<Rank>)]>) -> String {
    if !has_gpus(config) {
        return String::new();
    }
    let gpus = match gpus_of_host(config) {
        Ok(gpus) => gpus,
        Err(error) => return format!("GPUs    rank n of a host has GPU n modulo the host's GPUs; here: {error}\n\n"),
    };
    let mut text = format!("GPUs    {gpus} of each host; rank n of a host has GPU n modulo {gpus}\n");
    for (host, ranks) in hosts_of(mesh, hosts) {
        for gpu in 0..gpus.min(ranks.len()) {
            let own: Vec<String> = ranks.iter().skip(gpu).step_by(gpus).map(|rank| rank.0.to_string()).collect();
            text +=
                &format!("  {host}  GPU {gpu}: {} {}\n", if own.len() == 1 { "rank" } else { "ranks" }, own.join(", "));
        }
    }
    format!("{text}{}{}{}{}\n", joined(config), multiplied(config), attended(config), launched(config))
}

/// How groups of ranks on GPUs are joined.
fn joined(config: &RunConfig) -> String {
    let by_host = "groups on one GPU in its memory, all others by way of the host\n";
    match (config.run.device, config.run.gpu_collectives) {
        (DeviceChoice::Cpu, _) => String::new(),
        (DeviceChoice::Cuda, GpuCollectives::Host) => format!("joined  {by_host}"),
        (DeviceChoice::Cuda, GpuCollectives::Auto) => {
            let here = match nccl() {
                Ok(library) => format!("NCCL {} here", library.version()),
                Err(reason) => format!("here: {reason}"),
            };
            format!(
                "joined  by NCCL, where each rank has a process and a GPU of its own and all hosts have the library ({here}); else\n        \
                 {by_host}"
            )
        }
        (DeviceChoice::Cuda, GpuCollectives::Nccl) => {
            "joined  by NCCL: each rank must have a process and a GPU of its own, and all hosts the library\n".into()
        }
    }
}

/// How kernels are launched.
fn launched(config: &RunConfig) -> &'static str {
    match config.run.gpu_graphs {
        GpuGraphs::Auto => "graphs  of the kernels that a rank launches again and again, where the driver has graphs\n",
        GpuGraphs::Off => "graphs  off: kernels are launched one by one\n",
    }
}

/// The library that multiplies products; nothing where they are pleach's own.
fn multiplied(config: &RunConfig) -> String {
    match (config.train.precision.products(), config.run.device) {
        (Products::Blocks16, _) if blocks_by(config) == BlocksBy::KernelsOrLibrary => {
            "products in blocks of 16 by the fastest of pleach's kernels and of the library's algorithms with their bits, \
             compared and timed by `train`\n"
                .into()
        }
        (Products::Blocks16 | Products::Blocks8, _) if kernel_contest(config).tiles.is_some() => {
            "products in blocks by the fastest of pleach's kernels for each, timed by `train` where there are several\n".into()
        }
        (Products::Chained | Products::Pairs | Products::Blocks16 | Products::Blocks8, _)
        | (Products::Device, DeviceChoice::Cpu) => String::new(),
        (Products::Device, DeviceChoice::Cuda) => {
            let here = match cublaslt::Library::open(&Search::with(places().libraries)) {
                Ok(library) => format!("cuBLASLt {} here", library.version()),
                Err(reason) => format!("here: {reason}"),
            };
            format!("products by cuBLASLt, {} ({here})\n", algorithm_of_each(config))
        }
    }
}

/// Which of the algorithms of a library computes a product.
fn algorithm_of_each(config: &RunConfig) -> &'static str {
    match config.run.product_algorithms {
        ProductAlgorithms::First => "the first algorithm that it proposes for each",
        ProductAlgorithms::Timed | ProductAlgorithms::Equal => {
            "the fastest of the algorithms that it proposes for each, timed by `train`"
        }
    }
}

/// The library that computes attention; nothing where products are pleach's own.
fn attended(config: &RunConfig) -> String {
    let by_library = match (config.train.precision.products(), attention(config), config.run.device) {
        (Products::Chained | Products::Pairs | Products::Blocks16 | Products::Blocks8, _, _)
        | (Products::Device, _, DeviceChoice::Cpu) => return String::new(),
        (Products::Device, AttentionUse::Kernels, _) => return "attention by pleach's kernels\n".into(),
        (Products::Device, AttentionUse::LibraryIfFound, DeviceChoice::Cuda) => {
            match cudnn::Library::open(&Search::with(places().libraries)) {
                Ok(library) => format!("cuDNN {} here", library.version()),
                Err(reason) => return format!("attention by pleach's kernels (here: {reason})\n"),
            }
        }
    };
    format!("attention by {by_library}, where it has no windows, no ALiBi and no dropout\n")
}

/// The GPU of a rank, in a line; nothing for other devices.
pub fn place(config: &RunConfig, mesh: &Mesh, hosts: Option<&[(String, Vec<Rank>)]>, rank: Rank) -> String {
    if !has_gpus(config) {
        return String::new();
    }
    let hosts = hosts_of(mesh, hosts);
    let local = hosts.iter().find_map(|(_, ranks)| ranks.iter().position(|other| *other == rank)).unwrap_or_default();
    match gpus_of_host(config) {
        Ok(gpus) => format!("  has GPU {} of its host\n", local % gpus.max(1)),
        Err(_) => format!("  has GPU {local} modulo the GPUs of its host\n"),
    }
}
