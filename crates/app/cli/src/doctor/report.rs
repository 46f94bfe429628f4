//! The machine in words, and as JSON.

use std::path::PathBuf;

use config::figures::{bytes, counted};
use serde::Serialize;
use train::processor::InstructionSet;

use super::accelerators::{Gpus, Libraries};
use super::cores::Cores;
use super::launcher::Started;
use super::machine::{Machine, Measured, Memory, name};
use super::mpi_library::{Answers, MpiLibrary};
use super::nvidia_libraries::{CarriedKernels, ListedGpu, NvidiaLibraries, Opened};

/// Hardware and libraries: found, used and missing.
pub fn text(machine: &Machine, measured: &Measured, mpi: &MpiLibrary, nvidia: &NvidiaLibraries) -> String {
    format!(
        "pleach {} on {} {}\n\nfound\n{}\nused\n{}\nmissing\n{}",
        env!("CARGO_PKG_VERSION"),
        machine.system,
        machine.architecture,
        rows(&here(machine, measured, mpi, nvidia)),
        rows(&used(machine, nvidia)),
        rows(&missing(machine, mpi, nvidia)),
    )
}

type Row = (&'static str, String);

fn rows(rows: &[Row]) -> String {
    rows.iter().map(|(subject, what)| format!("  {subject:<10} {what}\n")).collect()
}

fn here(machine: &Machine, measured: &Measured, mpi: &MpiLibrary, nvidia: &NvidiaLibraries) -> Vec<Row> {
    let Measured { peak_flops, copy_bytes_per_second } = *measured;
    let speed = format!(
        "{:.0} GFLOP/s in fused multiply-adds, {:.1} GB/s read and written in copies; on {} at once",
        peak_flops / 1e9,
        copy_bytes_per_second / 1e9,
        counted(machine.cores.usable as u64, "core")
    );
    let before = vec![
        ("cores", cores(&machine.cores)),
        ("speed", speed),
        ("vectors", vectors(machine)),
        ("memory", memory(&machine.memory)),
        ("GPUs", gpus(&machine.gpus)),
    ];
    let after = vec![
        ("NVRTC", opened(&nvidia.nvrtc)),
        ("cuBLASLt", opened(&nvidia.cublaslt)),
        ("cuDNN", opened(&nvidia.cudnn)),
        ("NCCL", opened(&nvidia.nccl)),
        ("MPI", mpi_text(&machine.libraries, mpi)),
        ("launcher", machine.launcher.to_string()),
    ];
    before.into_iter().chain(driver(machine, nvidia)).chain(carried(&nvidia.kernels)).chain(after).collect()
}

/// The kernels that the program carries, if it does.
fn carried(kernels: &CarriedKernels) -> Option<Row> {
    let text = match kernels {
        CarriedKernels::None => return None,
        CarriedKernels::Of { targets, compiler } => {
            format!("in this program, by NVRTC {compiler}: {}", targets.join(", "))
        }
        CarriedKernels::Refused(problem) => problem.clone(),
    };
    Some(("GPU code", text))
}

/// The driver and a row for each GPU; nothing on a machine that has neither.
fn driver(machine: &Machine, nvidia: &NvidiaLibraries) -> Vec<Row> {
    let (path, version) = match &nvidia.driver {
        Opened::Found { path, version } => (path, version),
        Opened::Missing { .. } if machine.gpus.devices.is_empty() => return vec![],
        Opened::Missing { problem, .. } => return vec![("driver", problem.clone())],
    };
    let at = format!("{version} at {}", path.display());
    let listed = match &nvidia.gpus {
        Ok(gpus) => gpus.as_slice(),
        Err(problem) => return vec![("driver", format!("{at}; {problem}"))],
    };
    let gpu = |(ordinal, gpu): (usize, &ListedGpu)| {
        let ListedGpu { name, capability, memory_bytes, multiprocessors } = gpu;
        let memory = bytes(*memory_bytes);
        ("", format!("GPU {ordinal}: {name}, {capability}, {memory}, {multiprocessors} multiprocessors"))
    };
    let count = counted(listed.len() as u64, "GPU");
    std::iter::once(("driver", format!("{at}; it lists {count}"))).chain(listed.iter().enumerate().map(gpu)).collect()
}

fn opened(library: &Opened) -> String {
    match library {
        Opened::Found { path, version } => format!("{version} at {}", path.display()),
        Opened::Missing { problem, .. } => problem.clone(),
    }
}

fn cores(cores: &Cores) -> String {
    let mut text = cores.usable.to_string();
    let (allowed, built_in) = (cores.allowed.unwrap_or(cores.usable), cores.built_in.unwrap_or(cores.usable));
    if cores.usable < allowed.min(built_in) {
        text += &format!(" of {built_in}: the quota of the process's control group leaves no more");
    } else if cores.usable < built_in {
        text += &format!(" of {built_in}: the process's affinity allows no more");
    }
    match &cores.processor {
        Some(processor) => format!("{text} ({processor})"),
        None => text,
    }
}

fn vectors(machine: &Machine) -> String {
    let sets = machine.instruction_sets.iter().filter(|set| **set != InstructionSet::Scalar);
    let names: Vec<&str> = sets.map(|set| name(*set)).collect();
    if names.is_empty() { "none for which there are kernels".into() } else { names.join(", ") }
}

fn memory(memory: &Memory) -> String {
    match (memory.machine_bytes, memory.control_group_bytes) {
        (Some(all), Some(left)) => {
            format!("{}, of which the process's control group leaves {}", bytes(all), bytes(left))
        }
        (Some(all), None) => bytes(all),
        (None, _) => "unknown: the system does not say".into(),
    }
}

fn gpus(gpus: &Gpus) -> String {
    let library = match &gpus.libcuda {
        Some(path) => format!("libcuda at {}", path.display()),
        None => "no libcuda on the loader's path".into(),
    };
    if gpus.devices.is_empty() {
        return format!("none: no /dev/nvidia*; {library}");
    }
    let mut models = gpus.models.clone();
    models.dedup();
    let models = if models.is_empty() { String::new() } else { format!(" ({})", models.join(", ")) };
    let driver = gpus.driver.as_ref().map_or(String::new(), |version| format!(", driver {version}"));
    format!("{}{models}{driver}; {library}", gpus.devices.len())
}

fn place(name: &str, path: Option<&PathBuf>) -> String {
    path.map_or(format!("no {name} on the loader's path"), |path| path.display().to_string())
}

fn mpi_text(libraries: &Libraries, mpi: &MpiLibrary) -> String {
    let program = libraries.mpirun.as_ref().map_or("no mpirun".into(), |path| path.display().to_string());
    match mpi {
        MpiLibrary::Missing { .. } => format!("{program}; {}", place("libmpi", libraries.libmpi.as_ref())),
        MpiLibrary::Found { path, reason, version, abi, answers } => {
            let answers = match answers {
                Ok(Answers { thread_level, processes }) => {
                    format!("thread level {thread_level}, a world of {}", counted(*processes as u64, "process"))
                }
                Err(problem) => problem.clone(),
            };
            format!("{program}; {version} at {} ({reason}), {abi}, {answers}", path.display())
        }
    }
}

fn used(machine: &Machine, nvidia: &NvidiaLibraries) -> Vec<Row> {
    let all = machine.cores.usable;
    let ranks = match &machine.launcher {
        Started::By(launch) if launch.processes > 1 => {
            format!("every rank is a thread of one of {} processes, and more than {all} of this host", launch.processes)
        }
        Started::Alone | Started::By(_) | Started::Unclear(_) => {
            format!("every rank is a thread of one process, and more than {all}")
        }
    };
    let cores = format!("{all}; {ranks} take turns");
    let kernels = format!("{}; kernels of all sets give the same bits", kernels(machine));
    let memory = match machine.memory.usable_bytes() {
        Some(all) => format!("at most {} for all ranks together; `pleach check` compares a run with it", bytes(all)),
        None => "run.rank_memory_bytes, if it is given; there is no other limit".into(),
    };
    let before = vec![("cores", cores), ("kernels", kernels), ("memory", memory)];
    before.into_iter().chain(joined(nvidia)).collect()
}

/// How ranks on the GPUs of this machine are joined; nothing where the driver lists none.
fn joined(nvidia: &NvidiaLibraries) -> Option<Row> {
    let has_gpus = nvidia.gpus.as_ref().is_ok_and(|gpus| !gpus.is_empty());
    let text = match &nvidia.nccl {
        Opened::Found { version, .. } => format!(
            "ranks with a process and a GPU each are joined by NCCL {version}, others in one GPU's memory or by way of the host"
        ),
        Opened::Missing { .. } => "ranks are joined in one GPU's memory or by way of the host".into(),
    };
    has_gpus.then_some(("GPUs", text))
}

/// The sets whose kernels are run, and which choice of a run file takes them where it is not the default.
fn kernels(machine: &Machine) -> String {
    match machine.instruction_sets.first() {
        None => "portable".into(),
        Some(InstructionSet::Amx) => {
            format!("{}, and AMX with train.products = \"pairs\"", name(InstructionSet::Avx512))
        }
        Some(set @ (InstructionSet::Avx512 | InstructionSet::Avx2 | InstructionSet::Scalar)) => name(*set).into(),
    }
}

/// Features that are missing or not used, with their benefit.
fn missing(machine: &Machine, mpi: &MpiLibrary, nvidia: &NvidiaLibraries) -> Vec<Row> {
    let vectors = match machine.instruction_sets.first() {
        Some(InstructionSet::Amx) => None,
        Some(InstructionSet::Avx512) => Some("AMX, whose tiles make products = \"pairs\" several times faster"),
        Some(InstructionSet::Avx2) => Some("AVX-512, whose kernels are twice as wide"),
        Some(InstructionSet::Scalar) | None => Some("AVX2 or AVX-512, whose kernels are several times faster"),
    };
    let gpus = machine.gpus.devices.is_empty().then(|| ("GPUs", "a GPU, for run.device = \"cuda\"".to_string()));
    let vectors = vectors.map(|vectors| ("vectors", vectors.to_string()));
    let mpi = match mpi {
        MpiLibrary::Missing { problem } => Some(("MPI", problem.clone())),
        MpiLibrary::Found { answers: Err(_), .. } => Some(("MPI", "a library that initialises".into())),
        MpiLibrary::Found { answers: Ok(_), .. } => None,
    };
    let libraries =
        [("NVRTC", &nvidia.nvrtc), ("cuBLASLt", &nvidia.cublaslt), ("cuDNN", &nvidia.cudnn), ("NCCL", &nvidia.nccl)];
    // Without a GPU, nothing is expected of a driver.
    let driver = (!machine.gpus.devices.is_empty()).then_some(("driver", &nvidia.driver));
    let is_needed = |subject| subject != "NVRTC" || !matches!(nvidia.kernels, CarriedKernels::Of { .. });
    let libraries = driver.into_iter().chain(libraries).filter(|(subject, _)| is_needed(*subject));
    let libraries = libraries.filter_map(|(subject, library)| match library {
        Opened::Found { .. } => None,
        Opened::Missing { remedy, .. } => Some((subject, remedy.clone())),
    });
    vectors.into_iter().chain(gpus).chain(libraries).chain(mpi).collect()
}

#[derive(Serialize)]
struct Record<'a> {
    version: &'static str,
    #[serde(flatten)]
    machine: &'a Machine,
    measured: &'a Measured,
    mpi: &'a MpiLibrary,
    nvidia: &'a NvidiaLibraries,
    uses: Uses,
}

#[derive(Serialize)]
struct Uses {
    cores: usize,
    kernels: String,
    memory_bytes: Option<u64>,
}

/// The same as one object on one line.
///
/// # Errors
/// Numbers that JSON does not have.
pub fn json(
    machine: &Machine,
    measured: &Measured,
    mpi: &MpiLibrary,
    nvidia: &NvidiaLibraries,
) -> serde_json::Result<String> {
    let uses =
        Uses { cores: machine.cores.usable, kernels: kernels(machine), memory_bytes: machine.memory.usable_bytes() };
    let record = Record { version: env!("CARGO_PKG_VERSION"), machine, measured, mpi, nvidia, uses };
    Ok(serde_json::to_string(&record)? + "\n")
}
