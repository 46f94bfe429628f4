//! Compares a GPU with the CPU. `pack` computes what is expected and compiles the kernels, on a machine with NVRTC;
//! `check` needs the packed folder and a driver.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use device::DeviceKind;
use gpu::Driver;
use nvidia::Search;
use nvidia::driver::Library;
use nvidia::nvrtc::{Cache, Compiler};
use surveys::conformance::cases::{Size, all};
use surveys::conformance::check::{Ended, Results};
use surveys::conformance::expected::{Expected, result};
use testkit::layout::engine;
use testkit::soft_gpus::gpu_engine;
use train::{ARCHIVED_CAPABILITIES, ArchivedKernels, CodeForm, CompiledKernels, Gpus, KernelCode};

/// The exit code of a part after which another one resumes.
const UNFINISHED: u8 = 3;

/// Compare a GPU with the CPU, bit by bit
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Computes what is expected, on CPUs, and compiles the kernels.
    Pack(Pack),
    /// Compares; exit code 0 where all is equal, 1 where not, 3 where another part is to resume.
    Check(Check),
}

#[derive(Args)]
struct Pack {
    /// The folder to make.
    folder: PathBuf,
    /// The folder of NVRTC.
    #[arg(long)]
    cuda: PathBuf,
    /// Leaves out the large cases.
    #[arg(long)]
    small: bool,
}

#[derive(Args)]
struct Check {
    /// The packed folder.
    folder: PathBuf,
    /// The file of results, which later parts add to.
    #[arg(long)]
    results: PathBuf,
    /// The driver's library, where it is not the system's.
    #[arg(long)]
    driver: Option<PathBuf>,
    /// The folder of NVRTC, which compiles the kernels for this GPU, in place of the packed ones. Kernels for GPUs of
    /// one compute capability are not packed.
    #[arg(long)]
    cuda: Option<PathBuf>,
    /// Minutes after which no case is begun.
    #[arg(long, default_value_t = 7.0)]
    minutes: f64,
    /// Compares the cases whose names contain this text.
    #[arg(long)]
    only: Option<String>,
}

/// Packs or compares; the exit code.
pub fn run(arguments: &Arguments) -> ExitCode {
    let done = match &arguments.command {
        Command::Pack(arguments) => pack(arguments).map(|()| ExitCode::SUCCESS),
        Command::Check(arguments) => check(arguments),
    };
    done.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::from(2)
    })
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn pack(Pack { folder, cuda, small }: &Pack) -> Result<(), String> {
    let compiler = Compiler::open(&Search::only([cuda.clone()])).map_err(text)?;
    let kernels = ArchivedKernels::compile(&compiler, None, &ARCHIVED_CAPABILITIES).map_err(text)?;
    std::fs::create_dir_all(folder).map_err(text)?;
    std::fs::write(kernels_in(folder), kernels.to_bytes().map_err(text)?).map_err(text)?;
    let cases = all().into_iter().filter(|case| !small || case.size == Size::Small);
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let mut expected = Expected::new();
    for case in cases {
        let threads = match case.size {
            Size::Small => 1,
            Size::Large => cores / case.layout.parallelism.world_size(),
        };
        let result = result(&case, |setup| engine(setup, threads.max(1))).map_err(text)?;
        expected.insert(case.name, result);
    }
    let expected = serde_json::to_string(&expected).map_err(text)?;
    std::fs::write(expected_in(folder), expected).map_err(text)?;
    let program = std::env::current_exe().map_err(text)?;
    std::fs::copy(program, folder.join("survey")).map(|_| ()).map_err(text)
}

/// The packed kernels, or those of a compiler.
fn kernels(folder: &Path, cuda: Option<&Path>) -> Result<Box<dyn KernelCode>, String> {
    let Some(cuda) = cuda else {
        let kernels = std::fs::read(kernels_in(folder)).map_err(text)?;
        return Ok(Box::new(ArchivedKernels::read(&kernels).map_err(text)?));
    };
    let compiler = Compiler::open(&Search::only([cuda.to_path_buf()])).map_err(text)?;
    let cache = Cache::in_folder(folder.join("compiled"));
    Ok(Box::new(CompiledKernels::new(compiler, cache, CodeForm::Cubin)))
}

fn kernels_in(folder: &Path) -> PathBuf {
    folder.join("kernels")
}

fn expected_in(folder: &Path) -> PathBuf {
    folder.join("expected.json")
}

fn check(Check { folder, results: path, driver, cuda, minutes, only }: &Check) -> Result<ExitCode, String> {
    let search = driver.as_ref().map_or(Search::default(), |file| Search::only([file.clone()]));
    let driver = Library::open(&search).map_err(text)?;
    let mut results = Results::read(path)?;
    results.driver = driver.cuda();
    let devices = driver.devices().map_err(text)?;
    let gpu = devices.first().ok_or("the driver lists no GPU")?;
    results.gpu = format!("{}, {}, {} bytes", gpu.name, gpu.capability, gpu.memory_bytes);
    let kernels = kernels(folder, cuda.as_deref())?;
    let gpus = Arc::new(Gpus::new(Arc::new(driver), DeviceKind::CUDA, kernels, Some(1)).map_err(text)?);
    let expected: Expected =
        serde_json::from_str(&std::fs::read_to_string(expected_in(folder)).map_err(text)?).map_err(text)?;
    let only = only.as_deref().unwrap_or_default();
    let is_packed = |name: &String| name.contains(only) && expected.contains_key(name);
    let cases: Vec<_> = all().into_iter().filter(|case| is_packed(&case.name)).collect();
    if cases.is_empty() {
        return Err(format!("--only {only:?} must be part of the name of a packed case"));
    }
    let time = Duration::from_secs_f64(60.0 * minutes);
    let ended = results.compare(&cases, &expected, (path, time), |setup| Box::new(gpu_engine(setup, &gpus)))?;
    Ok(match ended {
        Ended::Equal => ExitCode::SUCCESS,
        Ended::Different => ExitCode::FAILURE,
        Ended::Unfinished => ExitCode::from(UNFINISHED),
    })
}
