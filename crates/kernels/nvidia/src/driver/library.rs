//! The library of the driver, opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpu::{Capability, DeviceFacts, Driver, DriverError, DriverErrorKind, Gpu};

use super::calls::entry::Api;
use super::functions::Entry;
use super::open_gpu::OpenGpu;
use super::status::NO_DEVICE;
use crate::library::{LibraryError, Opened, Wanted};
use crate::search::Search;

/// The library.
pub(crate) const DRIVER: Wanted = Wanted {
    title: "NVIDIA's driver",
    files: &["libcuda.so.1"],
    needs: "550 or later (CUDA 12.4)",
    remedy: "install or update the driver of the GPU; in a container, pass the GPU through to it",
};
/// The oldest version of CUDA that a driver must support, as drivers count. Code may need a later one.
pub const OLDEST_CUDA: u32 = 12_040;
/// The oldest GPU that has kernels: they use bf16 tensor cores and asynchronous copies.
pub const OLDEST_CAPABILITY: Capability = Capability { major: 8, minor: 0 };

/// The driver in this process.
pub struct Library {
    api: Arc<Api>,
    path: PathBuf,
    version: u32,
}

impl Library {
    /// Finds and opens the driver. It is started by the first question about GPUs.
    ///
    /// # Errors
    /// A library that is missing, too old, or without a function of the table.
    pub fn open(search: &Search) -> Result<Library, LibraryError> {
        let opened = Opened::find(DRIVER, search)?;
        let entry = Entry::bind(|name| opened.symbol(name.symbol))?;
        let version = entry.cuda_version().map_err(|status| opened.too_old(format!("(error {})", status.0)))?;
        if version < OLDEST_CUDA {
            return Err(opened.too_old(format!("for CUDA {}", cuda_text(version))));
        }
        let api = Arc::new(Api::bind(entry, &opened, version)?);
        Ok(Library { api, path: opened.path().to_path_buf(), version })
    }

    /// Its file, or its name where the loader has found it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The newest version of CUDA that it supports: `13.0`.
    pub fn cuda(&self) -> String {
        cuda_text(self.version)
    }
}

/// A version as the driver counts it, for readers.
fn cuda_text(version: u32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

impl Driver for Library {
    fn version(&self) -> Result<u32, DriverError> {
        Ok(self.version)
    }

    fn devices(&self) -> Result<Vec<DeviceFacts>, DriverError> {
        match self.api.init() {
            Ok(()) => {}
            Err((NO_DEVICE, _)) => return Ok(vec![]),
            Err((_, error)) => return Err(error),
        }
        (0..self.api.count()?).map(|ordinal| self.api.facts(ordinal)).collect()
    }

    fn open(&self, ordinal: usize) -> Result<Arc<dyn Gpu>, DriverError> {
        self.api.init().map_err(|(_, error)| error)?;
        let count = self.api.count()?;
        if ordinal >= count {
            let text = format!("GPU {ordinal} does not exist; this machine has {count}, counted from 0");
            return Err(DriverError { call: "cuDeviceGet", kind: DriverErrorKind::InvalidArgument, text });
        }
        let facts = self.api.facts(ordinal)?;
        let unusable =
            |text: String| DriverError { call: "cuDeviceGetAttribute", kind: DriverErrorKind::Unavailable, text };
        if facts.capability < OLDEST_CAPABILITY {
            let text = format!(
                "GPU {ordinal} ({}) is {}; pleach needs {OLDEST_CAPABILITY} or later: use an A100, RTX 30 or a later GPU",
                facts.name, facts.capability
            );
            return Err(unusable(text));
        }
        let device = self.api.device(ordinal)?;
        if !self.api.has_virtual_memory(device)? {
            let text = format!(
                "GPU {ordinal} ({}) cannot map memory at reserved addresses, which pleach needs: use a GPU without vGPU \
                 restrictions",
                facts.name
            );
            return Err(unusable(text));
        }
        Ok(Arc::new(OpenGpu::open(self.api.clone(), device, facts)?))
    }
}

impl From<LibraryError> for DriverError {
    fn from(error: LibraryError) -> DriverError {
        DriverError { call: "dlopen", kind: DriverErrorKind::Unavailable, text: error.to_string() }
    }
}
