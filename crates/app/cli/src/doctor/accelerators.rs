//! GPUs, and what connects ranks on other systems: found by their files.

use std::path::{Path, PathBuf};

use launcher::Environment;
use mpi::loader;
use mpi::loader::names_in;
use serde::Serialize;

use super::libraries::{library, program};

/// NVIDIA's accelerators as the driver shows them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Gpus {
    /// Device files: `/dev/nvidia0` and so on.
    pub devices: Vec<String>,
    /// Their name, if the driver has one.
    pub models: Vec<String>,
    /// Version of the driver in the kernel.
    pub driver: Option<String>,
    /// The driver's library.
    pub libcuda: Option<PathBuf>,
}

impl Gpus {
    /// As the files below `root` tell.
    pub fn below(root: &Path, environment: Environment<'_>) -> Gpus {
        let is_gpu = |name: &String| {
            name.strip_prefix("nvidia").is_some_and(|number| !number.is_empty() && number.parse::<u32>().is_ok())
        };
        let devices = names_in(&root.join("dev")).into_iter().filter(is_gpu).map(|name| format!("/dev/{name}"));
        let folder = root.join("proc/driver/nvidia");
        let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        let gpus = folder.join("gpus");
        let models = names_in(&gpus).into_iter().filter_map(|name| {
            let information = read(gpus.join(name).join("information"));
            let line = information.lines().find_map(|line| line.strip_prefix("Model:"))?;
            Some(line.trim().to_string())
        });
        Gpus {
            devices: devices.collect(),
            models: models.collect(),
            driver: driver_version(&read(folder.join("version"))),
            libcuda: library(root, &loader::folders(root, environment), "libcuda.so"),
        }
    }
}

/// The version within `NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 ...`.
fn driver_version(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    let is_version = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    line.split_whitespace().find(is_version).map(str::to_string)
}

/// Libraries and programs that connect processes elsewhere.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Libraries {
    /// NVIDIA's collectives.
    pub nccl: Option<PathBuf>,
    /// The library of MPI.
    pub libmpi: Option<PathBuf>,
    /// The program that starts MPI's processes.
    pub mpirun: Option<PathBuf>,
}

impl Libraries {
    /// As the files below `root` and the search paths of `environment` tell.
    pub fn below(root: &Path, environment: Environment<'_>) -> Libraries {
        let folders = loader::folders(root, environment);
        Libraries {
            nccl: library(root, &folders, "libnccl.so"),
            libmpi: library(root, &folders, "libmpi.so"),
            mpirun: program(root, environment, "mpirun").or_else(|| program(root, environment, "mpiexec")),
        }
    }
}
