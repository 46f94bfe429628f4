//! Algorithms of the library of products, and tiles of pleach's kernels, that were chosen for the GPU models of a run.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cuda::{
    BlocksProduct, ChosenAlgorithms, ChosenTiles, EqualChoice, KernelProduct, StreamProduct, TileChoice, TimedTiles,
};
use device::DeviceError;
use gpu_rank::{named, on_gpu};

use crate::engine::gpus::{GpuError, Gpus};

/// The choice for the products of ranks on GPUs of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProductChoice {
    /// Algorithms of the library; of other products the first ones that it proposes.
    pub algorithms: Arc<ChosenAlgorithms>,
    /// Tiles of pleach's kernels; of other products the ones that are estimated to be the fastest.
    pub tiles: Arc<ChosenTiles>,
}

/// Those of each GPU model, by its name.
pub type ModelChoices = BTreeMap<String, ProductChoice>;

/// Those that ranks take.
pub(crate) type GivenChoices = OnceLock<ModelChoices>;

impl Gpus {
    /// Ranks that are opened from here on take these choices. The first call counts.
    pub fn give_choices(&self, choices: ModelChoices) {
        self.choices.get_or_init(|| choices);
    }

    /// The choices for a rank on the GPU of this index.
    pub(crate) fn choice(&self, index: usize) -> ProductChoice {
        let of_model = self.choices.get().and_then(|all| all.get(&self.facts()[index].name));
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

    /// Chooses tiles for those of `products` that pleach's kernels compute in blocks of 16 on the GPU of this index,
    /// before it has ranks: see [`cuda::choose_tiles`].
    ///
    /// # Errors
    /// The driver's and the compiler's.
    pub fn choose_tiles(
        &self,
        index: usize,
        products: &[KernelProduct],
        limits: (TimedTiles, Duration),
    ) -> Result<TileChoice, DeviceError> {
        let (gpu, facts) = (self.context(index)?, &self.facts()[index]);
        let code = self.code(facts.capability)?.operations;
        cuda::choose_tiles(&gpu, &code, products, limits).map_err(|error| on_gpu(facts, error))
    }

    /// Chooses among pleach's kernels and equal algorithms for `products` in blocks of 16 on the GPU of this index,
    /// before it has ranks: see [`cuda::choose_equal_algorithms`].
    ///
    /// # Errors
    /// The driver's, the compiler's and the library's.
    pub fn choose_equal_algorithms(
        &self,
        index: usize,
        products: &[BlocksProduct],
        (known, tiles): (&ChosenAlgorithms, &ChosenTiles),
        limit: Duration,
    ) -> Result<EqualChoice, DeviceError> {
        let (gpu, facts) = (self.context(index)?, &self.facts()[index]);
        let (code, library) = (self.code(facts.capability)?.operations, self.product_library(index, &gpu)?);
        cuda::choose_equal_algorithms(&gpu, (&code, &*library), products, (known, tiles), limit)
            .map_err(|error| on_gpu(facts, error))
    }
}
