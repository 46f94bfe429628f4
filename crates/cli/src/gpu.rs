//! The GPUs of a run on this host: where their libraries are, which rank has which, and whether their memory suffices.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use config::figures::{bytes, counted};
use config::{
    AttentionChoice, DeviceChoice, GpuCollectives, GpuGraphs, Precision, Problem, ProductAlgorithms, ProductKernels,
    Products, RunConfig, RunSpec, Visible,
};
use device::{DeviceError, Numerics};
use mesh::{Axis, Mesh, Rank};
use nvidia::{Search, cublaslt, cudnn, nccl};
use train::{
    AttentionUse, BlocksBy, GpuError, GpuMemory, GpuPlaces, Gpus, GraphNotice, GraphUse, ModelChoices, RunDevice,
    Setup, TimedTiles, check_numerics, gpus_of,
};

use crate::failure::Failure;
use crate::memory::machine::{LimitSource, MemoryLimit, process_limit};
use crate::memory::need::{self, MemoryBudget};
use crate::messages::stderr::tell;
use crate::screen::gpu_peak;

/// Names a folder, or several like `PATH`, with NVIDIA's libraries.
pub const LIBRARIES: &str = "PLEACH_CUDA";

/// In place of the folder of a user's caches where it is missing: nothing is below it, and code is kept in memory.
const NO_FOLDER: &str = "/dev/null";

/// An archive of compiled kernels, where the program was built with one (`tools/release.sh`); otherwise empty.
pub const CARRIED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kernels"));

/// Opens what `config` computes on. GPUs themselves are opened when the first rank asks.
///
/// # Errors
/// A driver, a GPU, a compiler or a library of products that is missing or too old.
pub fn run_device(config: &RunConfig) -> Result<RunDevice, Failure> {
    let RunSpec { device, gpus, gpu_graphs, .. } = &config.run;
    let opened = RunDevice::open_with_attention(*device, *gpus, graphs(*gpu_graphs), attention(config), &places());
    let device = opened.map_err(|error| Failure::Input(error.to_string()))?;
    match &device {
        RunDevice::Cpu => {}
        RunDevice::Gpus(gpus) => {
            if has_equal_algorithms(config) {
                gpus.multiply_blocks_by(BlocksBy::KernelsOrLibrary);
            }
            let found = gpus.check_products(config.train.precision.products());
            found.map_err(|error| Failure::Input(error.to_string()))?;
        }
    }
    Ok(device)
}

/// As [`run_device`], with what was chosen before for products.
///
/// # Errors
/// As [`run_device`].
pub fn run_device_with(config: &RunConfig, choices: ModelChoices) -> Result<RunDevice, Failure> {
    let device = run_device(config)?;
    match &device {
        RunDevice::Cpu => {}
        RunDevice::Gpus(gpus) => gpus.give_choices(choices),
    }
    Ok(device)
}

/// Whose kernels compute attention: libraries know no documents, no blanks and no turns of a conversation.
pub fn attention(config: &RunConfig) -> AttentionUse {
    let sees_past = config.data.visible == Visible::Past && config.data.chat.is_none() && config.data.blanks.is_none();
    match config.run.attention_library {
        AttentionChoice::Auto if sees_past => AttentionUse::LibraryIfFound,
        AttentionChoice::Auto | AttentionChoice::Off => AttentionUse::Kernels,
    }
}

/// How ranks launch kernels. A driver without graphs is reported once.
fn graphs(graphs: GpuGraphs) -> GraphUse {
    match graphs {
        GpuGraphs::Off => GraphUse::Off,
        GpuGraphs::Auto => GraphUse::Auto(Arc::new(GraphNotice::new(|line| tell(&format!("{line}\n"))))),
    }
}

/// All GPUs of this machine, which have these products.
///
/// # Errors
/// As [`run_device`]; no GPU.
pub fn all_gpus(products: Option<Products>) -> Result<Arc<Gpus>, Failure> {
    let opened = RunDevice::open(DeviceChoice::Cuda, None, GraphUse::Off, &places());
    let checked = opened.and_then(|device| match (&device, products) {
        (RunDevice::Gpus(gpus), Some(products)) => gpus.check_products(products).map(|()| device),
        (RunDevice::Gpus(_), None) | (RunDevice::Cpu, _) => Ok(device),
    });
    match checked {
        Ok(RunDevice::Gpus(gpus)) => Ok(gpus),
        Ok(RunDevice::Cpu) => Err(Failure::Input("this machine has no GPU; use --device cpu".into())),
        Err(error) => Err(Failure::Input(in_options(&error))),
    }
}

/// Keys of run files in messages about GPUs, and the same as options of `cluster measure`.
const KEYS_AS_OPTIONS: [(&str, &str); 6] = [
    (
        "write train.products = \"blocks16\" (\"blocks8\" on GPUs before compute capability 9.0)",
        "use --products blocks",
    ),
    ("train.products = \"device\"", "--products device"),
    ("use run.gpus to leave it out, or write run.device = \"cpu\"", "use --device cpu"),
    ("write run.device = \"cpu\" or \"soft-gpu\"", "use --device cpu"),
    ("write run.device = \"cpu\"", "use --device cpu"),
    ("run.device = \"cuda\"", "--device cuda"),
];

/// A message for a command that has no run file.
fn in_options(error: &GpuError) -> String {
    KEYS_AS_OPTIONS.iter().fold(error.to_string(), |message, (keys, option)| message.replace(keys, option))
}

/// The folders that the value of [`LIBRARIES`] names, without empty names, which would mean the current folder.
pub fn library_folders(value: Option<OsString>) -> Vec<PathBuf> {
    let named = |folder: &PathBuf| !folder.as_os_str().is_empty();
    value.map_or(vec![], |paths| std::env::split_paths(&paths).filter(named).collect())
}

/// Where libraries are, and where compiled kernels are kept.
fn places() -> GpuPlaces {
    let libraries = library_folders(std::env::var_os(LIBRARIES));
    let folder = |name: &str| std::env::var_os(name).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let cache = folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|home| home.join(".cache")));
    // Others may write folders of temporary files, and code that is kept runs as this user.
    let code = cache.unwrap_or_else(|| NO_FOLDER.into()).join("pleach").join("kernels");
    GpuPlaces { libraries, code, carried: CARRIED }
}

/// Whether the device of `config` has its numerics.
pub fn problem(config: &RunConfig) -> Option<Problem> {
    let numerics = Numerics::of(config.train.precision, config.train.sums);
    check_numerics(config.run.device, numerics).err().map(refusal)
}

/// Numerics that a device refuses, at their key.
pub fn refusal(error: DeviceError) -> Problem {
    let DeviceError::Refused { choice, device, remedy } = error else {
        return Problem::of_key("run.device", error.to_string(), "");
    };
    let rule = format!("must be supported by the device; {device} refuses it");
    match choice.split_once(" = ") {
        Some((key, value)) => Problem::of_value(key, value, rule, remedy),
        None => Problem::of_key(&choice, rule, remedy),
    }
}

/// Checks that the GPUs of this host have the memory for `host`, the ranks there, in `processes` processes, and that
/// the host has it for state that they keep there.
///
/// # Errors
/// A GPU or a host that is too small, a GPU that cannot be opened.
pub fn check_memory(device: &RunDevice, setup: &Setup, host: &[Rank], processes: usize) -> Result<(), Failure> {
    match device {
        RunDevice::Cpu => Ok(()),
        RunDevice::Gpus(gpus) => {
            let checked = gpus.check_memory(&arena_bytes(setup, host), processes, products_of(setup));
            checked.map_err(|error| Failure::Input(error.to_string()))?;
            check_host_memory(setup, host, process_limit())
        }
    }
}

/// Checks that this host has the memory for what `host`, the ranks there, offload.
fn check_host_memory(setup: &Setup, host: &[Rank], limit: Option<MemoryLimit>) -> Result<(), Failure> {
    let of_rank = |rank: &Rank| setup.plan(setup.mesh.coord(*rank).along(Axis::Pp)).host_bytes() as u64;
    let needed: u64 = host.iter().map(of_rank).sum();
    let Some(limit) = limit.filter(|limit| needed > limit.bytes) else { return Ok(()) };
    let offload = setup.train.offload;
    Err(Failure::Input(format!(
        "train.offload = \"{}\" does not fit: {} need {} of pinned memory on this host, {} has {}; {}",
        offload.name(),
        counted(host.len() as u64, "rank"),
        bytes(needed),
        limit.source,
        bytes(limit.bytes),
        offload.remedy()
    )))
}

/// Checks that the GPU of a process with one rank has the memory for it and for NCCL. Other ranks of `host` have GPUs
/// of their own.
///
/// # Errors
/// As [`check_memory`].
pub fn check_own_memory(device: &RunDevice, setup: &Setup, host: &[Rank], own: &[Rank]) -> Result<(), Failure> {
    let RunDevice::Gpus(gpus) = device else { return Ok(()) };
    for (local, rank) in host.iter().enumerate().filter(|(_, rank)| own.contains(rank)) {
        let bytes = arena_bytes(setup, &[*rank]).into_iter().sum();
        gpus.check_memory_of_one(local, bytes, products_of(setup))
            .map_err(|error| Failure::Input(error.to_string()))?;
    }
    check_host_memory(setup, host, process_limit())
}

/// NVIDIA's collectives, as a run opens them, or why there are none.
///
/// # Errors
/// A library that is missing or too old.
pub fn nccl() -> Result<Arc<nccl::Library>, String> {
    let library = nccl::Library::open(&Search::with(places().libraries));
    library.map(Arc::new).map_err(|error| error.to_string())
}

/// GPUs that this process sees.
pub fn visible(device: &RunDevice) -> usize {
    match device {
        RunDevice::Cpu => 0,
        RunDevice::Gpus(gpus) => gpus.facts().len(),
    }
}

/// The identifiers of the GPUs of `own`, some of the ranks of `host`.
pub fn identifiers(device: &RunDevice, host: &[Rank], own: &[Rank]) -> Vec<[u8; 16]> {
    let RunDevice::Gpus(gpus) = device else { return vec![] };
    let locals = host.iter().enumerate().filter(|(_, rank)| own.contains(rank)).map(|(local, _)| local);
    locals.map(|local| gpus.facts()[gpus.of_rank(local)].uuid).collect()
}

/// A line for each GPU of this host with the ranks and the memory of `host`; nothing for other devices.
///
/// # Errors
/// A GPU that cannot be opened.
pub fn memory_lines(device: &RunDevice, setup: &Setup, host: &[Rank]) -> Result<String, Failure> {
    let RunDevice::Gpus(gpus) = device else { return Ok(String::new()) };
    let memory = gpus.memory(&arena_bytes(setup, host), 1, products_of(setup));
    let memory = memory.map_err(|error| Failure::Input(error.to_string()))?;
    Ok(lines_of(&memory))
}

/// A line for each GPU.
pub fn lines_of(memory: &[GpuMemory]) -> String {
    memory.iter().map(|gpu| format!("device  {gpu}\n")).collect()
}

/// The GPUs of this machine for a run whose ranks are all on it, once their memory suffices; none for other devices.
///
/// # Errors
/// A device that this machine does not have, or that is too small.
pub fn checked(config: &RunConfig, setup: &Setup) -> Result<Vec<GpuMemory>, Failure> {
    if !has_gpus(config) {
        return Ok(vec![]);
    }
    let (device, host) = (run_device(config)?, setup.mesh.ranks().collect::<Vec<_>>());
    let RunDevice::Gpus(gpus) = &device else { return Ok(vec![]) };
    let memory = gpus.memory(&arena_bytes(setup, &host), 1, products_of(setup));
    let memory = memory.map_err(|error| Failure::Input(error.to_string()))?;
    match memory.iter().find(|gpu| gpu.needed_bytes() > gpu.free_bytes) {
        None => Ok(memory),
        Some(small) => {
            let layout = need::problem(config, setup, MemoryBudget::Together(shared_by_ranks(&memory)));
            let layout = layout.map_or(String::new(), |problem| format!("; with these, {}", problem.remedy));
            Err(Failure::Input(format!("{small} does not fit; use more GPUs{layout}")))
        }
    }
}

/// Memory of all arenas of a run: each has as much as a rank on the GPU that has the least for each of its ranks.
fn shared_by_ranks(memory: &[GpuMemory]) -> MemoryLimit {
    let ranks: usize = memory.iter().map(|gpu| gpu.ranks).sum();
    let of_rank = |gpu: &GpuMemory| gpu.free_bytes.saturating_sub(gpu.margin_bytes) / gpu.ranks.max(1) as u64;
    let least = memory.iter().map(of_rank).min().unwrap_or(0);
    MemoryLimit { bytes: least.saturating_mul(ranks as u64), source: LimitSource::Accelerator }
}

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
        (DeviceChoice::SoftGpu, _) | (DeviceChoice::Cuda, GpuCollectives::Host) => format!("joined  {by_host}"),
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

/// By which library products are multiplied; nothing where they are pleach's own.
fn multiplied(config: &RunConfig) -> String {
    match (config.train.precision.products(), config.run.device) {
        (Products::Blocks16, DeviceChoice::Cuda | DeviceChoice::SoftGpu) if has_equal_algorithms(config) => {
            "products in blocks of 16 by the fastest of pleach's kernels and of the library's algorithms with their bits, \
             compared and timed by `train`\n"
                .into()
        }
        (Products::Blocks16 | Products::Blocks8, _) if timed_tiles(config).is_some() => {
            "products in blocks by the fastest of pleach's kernels for each, timed by `train` where there are several\n".into()
        }
        (Products::Chained | Products::Pairs | Products::Blocks16 | Products::Blocks8, _)
        | (Products::Device, DeviceChoice::Cpu) => String::new(),
        (Products::Device, DeviceChoice::SoftGpu) => {
            format!("products by the library of the soft GPU, {}\n", algorithm_of_each(config))
        }
        (Products::Device, DeviceChoice::Cuda) => {
            let here = match cublaslt::Library::open(&Search::with(places().libraries)) {
                Ok(library) => format!("cuBLASLt {} here", library.version()),
                Err(reason) => format!("here: {reason}"),
            };
            format!("products by cuBLASLt, {} ({here})\n", algorithm_of_each(config))
        }
    }
}

/// Whether algorithms of a library may compute products in blocks.
pub fn has_equal_algorithms(config: &RunConfig) -> bool {
    match config.run.product_algorithms {
        ProductAlgorithms::Equal => has_gpus(config),
        ProductAlgorithms::First | ProductAlgorithms::Timed => false,
    }
}

/// The tiles of products that are timed before the first step, if any are. Times of a GPU in software mean nothing, so
/// they are measured only where they are asked for.
pub fn timed_tiles(config: &RunConfig) -> Option<TimedTiles> {
    match (config.run.product_kernels, config.run.device, config.train.precision.products()) {
        (ProductKernels::Auto, DeviceChoice::Cuda, Products::Blocks16) => Some(TimedTiles::HaveRun),
        (ProductKernels::Timed, DeviceChoice::Cuda | DeviceChoice::SoftGpu, Products::Blocks16 | Products::Blocks8) => {
            Some(TimedTiles::All)
        }
        (ProductKernels::Auto | ProductKernels::Estimated | ProductKernels::Timed, _, _) => None,
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

/// By which library attention is computed; nothing where products are pleach's own.
fn attended(config: &RunConfig) -> String {
    let by_library = match (config.train.precision.products(), attention(config), config.run.device) {
        (Products::Chained | Products::Pairs | Products::Blocks16 | Products::Blocks8, _, _)
        | (Products::Device, _, DeviceChoice::Cpu) => return String::new(),
        (Products::Device, AttentionUse::Kernels, _) => return "attention by pleach's kernels\n".into(),
        (Products::Device, AttentionUse::LibraryIfFound, DeviceChoice::SoftGpu) => "the library of the soft GPU".into(),
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

/// FLOP/s of the GPUs that `ranks` ranks of this host use, in products of `precision`; `None` for other devices and
/// unknown GPUs.
pub fn peak_flops(device: &RunDevice, precision: Precision, ranks: usize) -> Option<f64> {
    match device {
        RunDevice::Cpu => None,
        RunDevice::Gpus(gpus) => {
            let used = gpus.facts().len().min(ranks);
            gpu_peak::peak_flops(&gpus.facts()[..used], precision).map(|one| one * used as f64)
        }
    }
}

fn products_of(setup: &Setup) -> Products {
    setup.train.precision.products()
}

/// Memory of GPUs for the arenas of a host's ranks.
fn arena_bytes(setup: &Setup, host: &[Rank]) -> Vec<u64> {
    let of_rank = |rank: &Rank| setup.programs.arena_bytes(setup.mesh.coord(*rank).along(Axis::Pp)) as u64;
    host.iter().map(of_rank).collect()
}

/// Whether a run has GPUs.
pub fn has_gpus(config: &RunConfig) -> bool {
    match config.run.device {
        DeviceChoice::Cpu => false,
        DeviceChoice::Cuda | DeviceChoice::SoftGpu => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::verdict;
    use crate::memory::machine::LimitSource;

    #[test]
    fn a_host_without_room_for_offloaded_state_is_refused() {
        let overrides = ["train.offload=optimizer", "parallelism.zero=0"].map(String::from);
        let RunConfig { model, parallelism, train, run, .. } = RunConfig::load("", "", &overrides).expect("legal");
        let setup = verdict::plan(model, parallelism, train, &run.samples).expect("a plan");
        let ranks: Vec<Rank> = setup.mesh.ranks().collect();
        let limit = |bytes| Some(MemoryLimit { bytes, source: LimitSource::Machine });
        assert!(check_host_memory(&setup, &ranks, limit(1 << 30)).is_ok());
        let said = check_host_memory(&setup, &ranks, limit(1 << 20)).expect_err("too little").to_string();
        assert!(said.starts_with("train.offload = \"optimizer\" does not fit: 8 ranks need "), "{said}");
        assert!(said.contains("of pinned memory on this host, this machine has 1.05 MB; use fewer ranks"), "{said}");
    }

    #[test]
    fn folders_are_named_like_path_and_an_empty_name_is_none() {
        let folders = |value: &str| library_folders(Some(value.into()));
        assert_eq!(folders("/opt/cuda:/opt/nccl"), [PathBuf::from("/opt/cuda"), PathBuf::from("/opt/nccl")]);
        assert_eq!(folders(":/opt/cuda:"), [PathBuf::from("/opt/cuda")]);
        assert!(folders("").is_empty());
        assert!(library_folders(None).is_empty());
    }

    #[test]
    fn arenas_share_the_memory_of_the_gpu_that_has_the_least_for_each_rank() {
        let gpu = |ranks: usize, free_bytes| GpuMemory {
            gpu: "GPU 0".into(),
            ranks,
            arena_bytes: 0,
            margin_bytes: 10 * ranks as u64,
            free_bytes,
            total_bytes: free_bytes,
        };
        assert_eq!(shared_by_ranks(&[gpu(4, 1040)]).bytes, 4 * 250);
        assert_eq!(shared_by_ranks(&[gpu(2, 1040), gpu(1, 1040)]).bytes, 3 * 510);
        assert_eq!(shared_by_ranks(&[gpu(1, 5)]).bytes, 0);
    }

    #[test]
    fn a_command_without_a_run_file_is_told_its_own_options() {
        let old = GpuError::OldGpu { gpu: "GPU 0".into(), capability: gpu::Capability { major: 7, minor: 5 } };
        for error in [GpuError::NoDriver("none".into()), GpuError::OldDriver(12_080), GpuError::NoGpu, old] {
            let said = in_options(&error);
            assert!(!said.contains("run.") && said.contains("use --device cpu"), "{said}");
        }
        let said = "--device cuda needs a GPU, and the driver lists none; use --device cpu";
        assert_eq!(in_options(&GpuError::NoGpu), said);
    }
}
