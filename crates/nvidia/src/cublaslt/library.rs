//! The library, opened, and a handle for one GPU.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpu::{DevicePointer, Gpu, StreamHandle};

use super::functions::{Functions, RawAlgorithm, RawHandle};
use super::product::{Described, Product};
use crate::library::{LibraryError, Opened, Wanted};
use crate::search::Search;

/// The library.
pub(crate) const CUBLASLT: Wanted = Wanted {
    title: "cuBLASLt",
    files: &["libcublasLt.so.13"],
    needs: "13.0 or later",
    remedy: "install a CUDA toolkit, or `pip install nvidia-cublas`, and give its folder",
};

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {text}")]
pub struct ProductError {
    /// The function.
    pub call: &'static str,
    /// The library's name and text for the reason.
    pub text: String,
}

/// cuBLASLt in this process.
pub struct Library {
    pub(super) functions: Functions,
    path: PathBuf,
}

impl Library {
    /// Finds and opens cuBLASLt.
    ///
    /// # Errors
    /// A library that is missing, or without a function of the table.
    pub fn open(search: &Search) -> Result<Library, LibraryError> {
        let opened = Opened::find(CUBLASLT, search)?;
        let functions = Functions::bind(|name| opened.symbol(name.symbol))?;
        Ok(Library { functions, path: opened.path().to_path_buf() })
    }

    /// Its file, or its name where the loader has found it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its version: `13.10.0`.
    pub fn version(&self) -> String {
        let (library, _) = self.functions.versions();
        format!("{}.{}.{}", library / 10_000, library / 100 % 100, library % 100)
    }

    /// The version of CUDA that it was built with: `13.0`.
    pub fn cuda(&self) -> String {
        let (_, runtime) = self.functions.versions();
        format!("{}.{}", runtime / 1000, runtime % 1000 / 10)
    }
}

/// An algorithm for one product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Algorithm {
    pub(super) raw: RawAlgorithm,
    /// Bytes of memory that it needs besides the matrices.
    pub workspace_bytes: usize,
    /// In how many pieces it cuts each sum; 1 is an unbroken sum.
    pub splits: i32,
}

/// The library for one GPU.
pub struct Handle {
    library: Arc<Library>,
    raw: RawHandle,
}

impl Handle {
    /// Opens the library for `gpu`.
    ///
    /// # Errors
    /// A GPU that the library cannot use.
    pub fn open(library: Arc<Library>, gpu: &dyn Gpu) -> Result<Handle, ProductError> {
        // Every call of an open GPU makes its context that of the calling thread, which is the one that the library
        // takes.
        let entered = gpu.free_memory();
        entered.map_err(|error| ProductError { call: "cublasLtCreate", text: error.to_string() })?;
        Handle::of_current_context(library)
    }

    /// Opens the library for the GPU whose context is that of the calling thread.
    ///
    /// # Errors
    /// No context, or a GPU that the library cannot use.
    pub fn of_current_context(library: Arc<Library>) -> Result<Handle, ProductError> {
        let raw = library.functions.open_handle()?;
        Ok(Handle { library, raw })
    }

    /// Up to `most` algorithms with unbroken sums, the fastest by the library's estimate first.
    ///
    /// # Errors
    /// A product that the library does not accept.
    pub fn algorithms(
        &self,
        product: &Product,
        workspace_bytes: usize,
        most: usize,
    ) -> Result<Vec<Algorithm>, ProductError> {
        let functions = &self.library.functions;
        let described = Described::of(functions, product)?;
        let limits = super::product::Limits::of(functions, workspace_bytes)?;
        let found = functions.search(self.raw, described.description, described.layouts(), limits.preference, most)?;
        let algorithm = |candidate: &super::functions::Candidate| {
            let splits = functions.splits(&candidate.algorithm)?;
            Ok(Algorithm { raw: candidate.algorithm, workspace_bytes: candidate.workspace, splits })
        };
        found.iter().map(algorithm).collect()
    }

    /// Multiplies as work of `stream`: `d = a b`. `places` are those of a, b and d.
    ///
    /// # Errors
    /// A product that the algorithm does not fit.
    pub fn multiply(
        &self,
        product: &Product,
        algorithm: &Algorithm,
        [a, b, d]: [DevicePointer; 3],
        workspace: DevicePointer,
        stream: StreamHandle,
    ) -> Result<(), ProductError> {
        let functions = &self.library.functions;
        let described = Described::of(functions, product)?;
        let [a_layout, b_layout, d_layout] = described.layouts();
        let matrices = [(a, a_layout), (b, b_layout), (d, d_layout)];
        let workspace = (workspace, algorithm.workspace_bytes);
        functions.submit(self.raw, described.description, matrices, &algorithm.raw, workspace, stream)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.library.functions.close_handle(self.raw);
    }
}
