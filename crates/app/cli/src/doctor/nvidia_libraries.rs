//! NVIDIA's libraries as a run would open them, and the GPUs that the driver lists.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use gpu::Driver;
use launcher::{Environment, variable};
use nvidia::nvrtc::Compiler;
use nvidia::{LibraryError, Search, cublaslt, cudnn, driver, nccl};
use run::gpus::devices::{CARRIED, library_folders};
use serde::Serialize;
use train::ArchivedKernels;

/// A library, or the reason why it was not opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Opened {
    /// One that a run would open.
    Found {
        /// Where it is.
        path: PathBuf,
        /// Its version, by itself.
        version: String,
    },
    Missing {
        /// The reason.
        problem: String,
        /// Where it comes from.
        remedy: String,
    },
}

/// A GPU as the driver describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListedGpu {
    /// Marketing name.
    pub name: String,
    /// Compute capability: `sm_90`.
    pub capability: String,
    pub memory_bytes: u64,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
}

/// Compiled kernels that this program carries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CarriedKernels {
    /// None.
    None,
    /// The kernels of an archive.
    Of {
        /// The oldest GPU of each target, such as sm_80.
        targets: Vec<String>,
        /// The version of the compiler that made them.
        compiler: String,
    },
    /// An archive that the program refuses.
    Refused(String),
}

impl CarriedKernels {
    /// The kernels of an archive; an empty one where a build has no kernels.
    pub fn of(archive: &[u8]) -> CarriedKernels {
        if archive.is_empty() {
            return CarriedKernels::None;
        }
        match ArchivedKernels::read(archive) {
            Ok(kernels) => CarriedKernels::Of {
                targets: kernels.targets().into_iter().map(|(target, _)| target.replace("compute", "sm")).collect(),
                compiler: kernels.compiler(),
            },
            Err(error) => CarriedKernels::Refused(error.to_string()),
        }
    }
}

/// All of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NvidiaLibraries {
    pub driver: Opened,
    /// GPUs by ordinal, or why the driver does not list them.
    pub gpus: Result<Vec<ListedGpu>, String>,
    /// The compiler of kernels.
    pub nvrtc: Opened,
    /// Kernels for a machine without a compiler.
    pub kernels: CarriedKernels,
    /// Products of matrices.
    pub cublaslt: Opened,
    /// Attention.
    pub cudnn: Opened,
    /// Collectives.
    pub nccl: Opened,
}

impl NvidiaLibraries {
    /// Those that a run of this process would open: of the folders in `PLEACH_CUDA` first, of the loader's folders
    /// afterwards.
    pub fn of_process(environment: Environment<'_>) -> NvidiaLibraries {
        NvidiaLibraries::of(&search(environment))
    }

    /// The libraries that a search finds.
    pub fn of(search: &Search) -> NvidiaLibraries {
        let library = driver::Library::open(search);
        let gpus = match &library {
            Ok(library) => gpus(library),
            Err(_) => Ok(vec![]),
        };
        NvidiaLibraries {
            driver: opened(library.map(|library| (library.path().into(), format!("CUDA {}", library.cuda())))),
            gpus,
            nvrtc: opened(Compiler::open(search).map(|compiler| {
                let (major, minor) = compiler.version();
                (compiler.path().into(), format!("{major}.{minor}"))
            })),
            kernels: CarriedKernels::of(CARRIED),
            cublaslt: opened(cublaslt::Library::open(search).map(|library| (library.path().into(), library.version()))),
            cudnn: opened(cudnn::Library::open(search).map(|library| (library.path().into(), library.version()))),
            nccl: opened(nccl::Library::open(search).map(|library| (library.path().into(), library.version()))),
        }
    }
}

/// Where a run looks for NVIDIA's libraries.
pub fn search(environment: Environment<'_>) -> Search {
    let given = library_folders(environment(variable::CUDA).map(OsString::from));
    Search::with(given.into_iter().chain(mpi::loader::folders(Path::new("/"), environment)))
}

fn gpus(library: &driver::Library) -> Result<Vec<ListedGpu>, String> {
    let facts = library.devices().map_err(|error| error.to_string())?;
    let listed = facts.into_iter().map(|facts| ListedGpu {
        name: facts.name,
        capability: facts.capability.to_string(),
        memory_bytes: facts.memory_bytes,
        multiprocessors: facts.multiprocessors,
    });
    Ok(listed.collect())
}

fn opened(library: Result<(PathBuf, String), LibraryError>) -> Opened {
    match library {
        Ok((path, version)) => Opened::Found { path, version },
        Err(error) => {
            let remedy = error.remedy().replace("give its folder", &format!("give its folder in {}", variable::CUDA));
            // The list of folders is long, and the same for every library.
            let problem = match &error {
                LibraryError::Missing { file, .. } => format!("no {file} on the loader's path"),
                LibraryError::Open { .. } | LibraryError::Symbol { .. } | LibraryError::Version { .. } => {
                    error.to_string()
                }
            };
            Opened::Missing { problem, remedy }
        }
    }
}
