//! Algorithms of the library of products that were chosen for the GPU models of a run.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use cuda::{ChosenAlgorithms, StreamProduct};
use device::DeviceError;
use gpu_rank::named;

use crate::engine::gpus::{GpuError, Gpus};

/// Those of each GPU model, by its name.
pub type ModelAlgorithms = BTreeMap<String, Arc<ChosenAlgorithms>>;

/// Those that ranks take; ranks of other models take the first ones that the library proposes.
pub(crate) type GivenAlgorithms = OnceLock<ModelAlgorithms>;

impl Gpus {
    /// Ranks that are opened from here on take these algorithms. The first call counts.
    pub fn give_algorithms(&self, algorithms: ModelAlgorithms) {
        self.algorithms.get_or_init(|| algorithms);
    }

    /// The algorithms of a rank on the GPU of this index.
    pub(crate) fn algorithms(&self, index: usize) -> Arc<ChosenAlgorithms> {
        let of_model = self.algorithms.get().and_then(|all| all.get(&self.facts()[index].name));
        of_model.cloned().unwrap_or_default()
    }

    /// The version of CUDA that the driver supports, and the library of products with its version.
    ///
    /// # Errors
    /// A driver or a library that does not answer.
    pub fn versions(&self) -> Result<[String; 2], GpuError> {
        let cuda = self.driver.version().map_err(|cause| GpuError::Driver { cause })?;
        Ok([format!("CUDA {}.{}", cuda / 1000, cuda % 1000 / 10), self.products.find()?])
    }

    /// The library of attention of runs with products of the device, with its version; none where kernels of pleach
    /// compute attention.
    pub fn attention_version(&self) -> Option<String> {
        self.attention.find().ok()
    }

    /// Chooses algorithms for `products` on the GPU of this index, before it has ranks: see
    /// [`cuda::choose_algorithms`].
    ///
    /// # Errors
    /// The driver's and the library's.
    pub fn choose_algorithms(
        &self,
        index: usize,
        products: &[StreamProduct],
        known: &ChosenAlgorithms,
    ) -> Result<cuda::Choice, DeviceError> {
        let gpu = self.context(index)?;
        let library = self.product_library(index, &gpu)?;
        cuda::choose_algorithms(&gpu, &*library, products, known).map_err(|cause| DeviceError::Accelerator {
            what: format!("time products by {} on {}", library.name(), named(&self.facts()[index])),
            cause: Box::new(cause),
        })
    }
}
