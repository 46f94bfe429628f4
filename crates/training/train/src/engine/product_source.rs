//! Where the library of products of a run's GPUs comes from.

use std::sync::{Arc, OnceLock};

use device::DeviceError;
use gpu::{DeviceFacts, Gpu, ProductLibrary};
use gpu_rank::named;
use nvidia::{LibraryError, Search, cublaslt};
use thiserror::Error;

/// Why there is no library of products. Nothing has been started.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoProductLibrary {
    /// cuBLASLt is missing or too old.
    #[error(
        "train.products = \"device\" needs cuBLASLt: {0} in PLEACH_CUDA; or write train.products = \"blocks16\" (\"blocks8\" on GPUs before compute \
         capability 9.0)"
    )]
    Library(#[from] LibraryError),
    /// GPUs that were opened without one.
    #[error("train.products = \"device\" needs a library of products, and these GPUs were opened without one")]
    None,
}

/// cuBLASLt, once it has been looked for.
type Opened = OnceLock<Result<Arc<cublaslt::Library>, LibraryError>>;

/// Opens a library for the open GPU of a number.
pub type OpenProducts = Box<dyn Fn(usize) -> Option<Box<dyn ProductLibrary>> + Send + Sync>;

/// See the top of the file.
pub enum ProductSource {
    /// GPUs without a library.
    None,
    /// cuBLASLt, which is opened when a run needs it.
    Nvidia {
        search: Search,
        /// Filled by the first question.
        opened: Opened,
    },
    /// A library of the caller's driver.
    Given { name: &'static str, open: OpenProducts },
}

impl ProductSource {
    /// cuBLASLt in these places.
    pub fn nvidia(search: Search) -> ProductSource {
        ProductSource::Nvidia { search, opened: Opened::new() }
    }

    /// Looks for the library, and returns its name and version.
    ///
    /// # Errors
    /// See [`NoProductLibrary`].
    pub fn find(&self) -> Result<String, NoProductLibrary> {
        match self {
            ProductSource::None => Err(NoProductLibrary::None),
            ProductSource::Nvidia { search, opened } => {
                let library = cublaslt(search, opened)?;
                Ok(format!("cuBLASLt {}", library.version()))
            }
            ProductSource::Given { name, .. } => Ok((*name).into()),
        }
    }

    /// The library for a rank on an open GPU.
    pub(crate) fn open(&self, facts: &DeviceFacts, gpu: &Arc<dyn Gpu>) -> Result<Box<dyn ProductLibrary>, DeviceError> {
        let failed = |cause: Box<dyn std::error::Error + Send + Sync>| DeviceError::Accelerator {
            what: format!("open a library of products for {}", named(facts)),
            cause,
        };
        match self {
            ProductSource::None => Err(failed(NoProductLibrary::None.into())),
            ProductSource::Nvidia { search, opened } => {
                let library = cublaslt(search, opened).map_err(|error| failed(error.into()))?;
                let handle = cublaslt::Handle::open(library, Arc::clone(gpu)).map_err(|error| failed(error.into()))?;
                Ok(Box::new(handle))
            }
            ProductSource::Given { open, .. } => {
                open(facts.ordinal).ok_or_else(|| failed("this driver has not opened it".into()))
            }
        }
    }
}

fn cublaslt(search: &Search, opened: &Opened) -> Result<Arc<cublaslt::Library>, NoProductLibrary> {
    let library = opened.get_or_init(|| cublaslt::Library::open(search).map(Arc::new));
    library.clone().map_err(NoProductLibrary::Library)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_named_with_its_wheel() {
        let source = ProductSource::nvidia(Search::only(["/no/such/folder".into()]));
        let expected = "train.products = \"device\" needs cuBLASLt: cuBLASLt is missing: libcublasLt.so.13 is not in /no/such/folder; \
                        install a CUDA toolkit, or `pip install nvidia-cublas`, and give its folder in PLEACH_CUDA; or \
                        write train.products = \"blocks16\" (\"blocks8\" on GPUs before compute capability 9.0)";
        assert_eq!(source.find().expect_err("no library").to_string(), expected);
        assert_eq!(ProductSource::None.find(), Err(NoProductLibrary::None));
    }
}
