//! The GPUs of a run on this host, and the folders of their libraries.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use config::{
    AttentionChoice, DeviceChoice, GpuGraphs, Precision, Problem, Products, RunConfig, RunSpec, TimedAlgorithms,
    Visible, kernel_contest,
};
use device::{DeviceError, Numerics};
use gpu::DeviceFacts;
use launcher::variable;
use mesh::Rank;
use nvidia::{Search, nccl};
use train::{
    AttentionUse, BlocksBy, GpuError, GpuPlaces, Gpus, GraphNotice, GraphUse, ModelChoices, RunDevice, check_numerics,
};

use crate::failure::Failure;
use crate::gpus::peak;
use crate::messages::stderr::tell;

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
            gpus.multiply_blocks_by(blocks_by(config));
            let found = gpus.check_products(config.train.precision.products());
            found.map_err(|error| Failure::Input(error.to_string()))?;
        }
    }
    Ok(device)
}

/// Returns the same as [`run_device`], with what was chosen before for products.
///
/// # Errors
/// The errors of [`run_device`].
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
/// The errors of [`run_device`]; no GPU.
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
const KEYS_AS_OPTIONS: [(&str, &str); 5] = [
    (
        "write train.products = \"blocks16\" (\"blocks8\" on GPUs before compute capability 9.0)",
        "use --products blocks",
    ),
    ("train.products = \"device\"", "--products device"),
    ("use run.gpus to leave it out, or write run.device = \"cpu\"", "use --device cpu"),
    ("write run.device = \"cpu\"", "use --device cpu"),
    ("run.device = \"cuda\"", "--device cuda"),
];

/// A message for a command that has no run file.
fn in_options(error: &GpuError) -> String {
    KEYS_AS_OPTIONS.iter().fold(error.to_string(), |message, (keys, option)| message.replace(keys, option))
}

/// The folders that the value of [`variable::CUDA`] names, without empty names, which would mean the current folder.
pub fn library_folders(value: Option<OsString>) -> Vec<PathBuf> {
    let named = |folder: &PathBuf| !folder.as_os_str().is_empty();
    value.map_or(vec![], |paths| std::env::split_paths(&paths).filter(named).collect())
}

/// Where libraries are, and where compiled kernels are kept.
pub fn places() -> GpuPlaces {
    let libraries = library_folders(std::env::var_os(variable::CUDA));
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

/// The GPUs of `own`, some of the ranks of `host`.
pub fn of_ranks<'a>(device: &'a RunDevice, host: &[Rank], own: &[Rank]) -> Vec<&'a DeviceFacts> {
    let RunDevice::Gpus(gpus) = device else { return vec![] };
    let locals = host.iter().enumerate().filter(|(_, rank)| own.contains(rank)).map(|(local, _)| local);
    locals.map(|local| &gpus.facts()[gpus.of_rank(local)]).collect()
}

/// The kernels or algorithms that may compute products in blocks of 16.
pub fn blocks_by(config: &RunConfig) -> BlocksBy {
    match kernel_contest(config).algorithms {
        Some(TimedAlgorithms::Equal) => BlocksBy::KernelsOrLibrary,
        Some(TimedAlgorithms::Proposed) | None => BlocksBy::Kernels,
    }
}

/// FLOP/s of the GPUs that `ranks` ranks of this host use, in products of `precision`; `None` for other devices and
/// unknown GPUs.
pub fn peak_flops(device: &RunDevice, precision: Precision, ranks: usize) -> Option<f64> {
    match device {
        RunDevice::Cpu => None,
        RunDevice::Gpus(gpus) => {
            let used = gpus.facts().len().min(ranks);
            peak::peak_flops(&gpus.facts()[..used], precision).map(|one| one * used as f64)
        }
    }
}

/// Whether a run has GPUs.
pub fn has_gpus(config: &RunConfig) -> bool {
    match config.run.device {
        DeviceChoice::Cpu => false,
        DeviceChoice::Cuda => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_named_like_path_and_an_empty_name_is_none() {
        let folders = |value: &str| library_folders(Some(value.into()));
        assert_eq!(folders("/opt/cuda:/opt/nccl"), [PathBuf::from("/opt/cuda"), PathBuf::from("/opt/nccl")]);
        assert_eq!(folders(":/opt/cuda:"), [PathBuf::from("/opt/cuda")]);
        assert!(folders("").is_empty());
        assert!(library_folders(None).is_empty());
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
