//! The library, opened, and a handle for one GPU.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use gpu::{
    DevicePointer, DriverError, DriverErrorKind, Gpu, MatrixPlaces, MatrixProduct, ProductAlgorithm, ProductLibrary,
    ProductLimits, ResultForm, StreamHandle,
};
use sync::lock;

use super::functions::{Candidate, Functions, REDUCTION, RawAlgorithm, RawHandle, SPLITS};
use super::product::{Described, Preferred, allows};
use crate::library::{LibraryError, Opened, Wanted};
use crate::search::Search;

/// The library.
pub(crate) const CUBLASLT: Wanted = Wanted {
    title: "cuBLASLt",
    files: &["libcublasLt.so.13", "libcublasLt.so.12"],
    needs: "12.8 or later",
    remedy: "install a CUDA toolkit, or `pip install nvidia-cublas`, and give its folder",
};

/// The oldest version, whose declarations are those of 13.0.
const OLDEST: usize = 120_800;

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {text}")]
pub struct ProductError {
    /// The function.
    pub call: &'static str,
    /// The library's number for the reason.
    pub status: u32,
    /// The library's name and text for the reason.
    pub text: String,
}

impl From<ProductError> for DriverError {
    fn from(ProductError { call, status, text }: ProductError) -> DriverError {
        DriverError { call, kind: DriverErrorKind::Other(status), text }
    }
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
    /// A library that is missing, too old, or without a function of the table.
    pub fn open(search: &Search) -> Result<Library, LibraryError> {
        let opened = Opened::find(CUBLASLT, search)?;
        let functions = Functions::bind(|name| opened.symbol(name.symbol))?;
        let library = Library { functions, path: opened.path().to_path_buf() };
        match library.functions.versions() {
            (version, _) if version < OLDEST => Err(opened.too_old(library.version())),
            _ => Ok(library),
        }
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

    /// Opens and closes a handle for the GPU of the calling thread.
    ///
    /// # Errors
    /// No GPU, or one that the library cannot use.
    pub fn check_context(&self) -> Result<(), ProductError> {
        self.functions.open_handle().map(|handle| self.functions.close_handle(handle))
    }
}

/// The library for one GPU.
pub struct Handle {
    library: Arc<Library>,
    gpu: Arc<dyn Gpu>,
    /// One call at a time.
    raw: Mutex<RawHandle>,
}

impl Handle {
    /// Opens the library for `gpu`.
    ///
    /// # Errors
    /// A GPU that the library cannot use.
    pub fn open(library: Arc<Library>, gpu: Arc<dyn Gpu>) -> Result<Handle, DriverError> {
        gpu.enter()?;
        let raw = Mutex::new(library.functions.open_handle()?);
        Ok(Handle { library, gpu, raw })
    }

    /// The algorithm of a candidate, where it sums as the search has asked.
    fn algorithm(
        &self,
        candidate: &Candidate,
        limits: ProductLimits,
    ) -> Result<Option<ProductAlgorithm>, ProductError> {
        let functions = &self.library.functions;
        let (words, workspace_bytes) = (candidate.algorithm.data, candidate.workspace);
        let splits = functions.part(&candidate.algorithm, SPLITS)?;
        let reduction = functions.part(&candidate.algorithm, REDUCTION)?;
        let fits = workspace_bytes <= limits.workspace_bytes && allows(limits.sums, reduction);
        Ok(fits.then_some(ProductAlgorithm { words, workspace_bytes, splits }))
    }
}

impl ProductLibrary for Handle {
    fn name(&self) -> String {
        format!("{} {}", CUBLASLT.title, self.library.version())
    }

    fn algorithms(&self, product: &MatrixProduct, limits: ProductLimits) -> Result<Vec<ProductAlgorithm>, DriverError> {
        self.gpu.enter()?;
        let functions = &self.library.functions;
        // An address with the alignment of the bias.
        let bias = DevicePointer(product.alignments[3].into());
        let described = Described::of(functions, product, bias)?;
        let preferred = Preferred::of(functions, product, limits)?;
        let (layouts, raw) = (described.layouts(), lock(&self.raw));
        let found = functions.search(*raw, described.description, layouts, preferred.preference, limits.most)?;
        let algorithms = found.iter().filter_map(|candidate| self.algorithm(candidate, limits).transpose());
        Ok(algorithms.collect::<Result<_, ProductError>>()?)
    }

    fn multiply(
        &self,
        stream: StreamHandle,
        product: &MatrixProduct,
        algorithm: &ProductAlgorithm,
        places: MatrixPlaces,
        workspace: DevicePointer,
    ) -> Result<(), DriverError> {
        self.gpu.enter()?;
        let functions = &self.library.functions;
        let described = Described::of(functions, product, places.bias)?;
        let [b_layout, a_layout, d_layout] = described.layouts();
        let matrices = [(places.b, b_layout), (places.a, a_layout), (places.d, d_layout)];
        let kept = match product.write {
            ResultForm::Assigned => 0.0,
            ResultForm::Accumulated => 1.0,
        };
        let raw_algorithm = RawAlgorithm { data: algorithm.words };
        let (workspace, raw) = ((workspace, algorithm.workspace_bytes), lock(&self.raw));
        functions.submit((*raw, described.description), matrices, kept, &raw_algorithm, workspace, stream)?;
        Ok(())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // A GPU that is lost has no handle any more.
        if self.gpu.enter().is_ok() {
            self.library.functions.close_handle(*lock(&self.raw));
        }
    }
}
