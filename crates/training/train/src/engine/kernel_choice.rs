//! Kernels and algorithms that are chosen for the products of a run, on the GPU models that it has.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use config::{TimedAlgorithms, TimedTiles};
use cuda::{Choice, ChosenAlgorithms, ChosenTiles, RunProduct, Source};
use device::DeviceError;
use gpu_rank::on_gpu;

use crate::engine::gpu_error::GpuError;
use crate::engine::gpus::Gpus;

/// The choice for the products of ranks on GPUs of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProductChoice {
    /// Algorithms of the library; of other products the first ones that it proposes.
    pub algorithms: Arc<ChosenAlgorithms>,
    /// Tiles of pleach's kernels; of other products the ones that are estimated to be the fastest.
    pub tiles: Arc<ChosenTiles>,
}

/// The choices of each GPU model, by its name.
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

    /// Chooses tiles of pleach's kernels for `products` on the GPU of this index, before it has ranks: see
    /// [`cuda::choose`]. None is timed after `limit`.
    ///
    /// # Errors
    /// The driver's and the compiler's.
    pub fn choose_tiles(
        &self,
        index: usize,
        products: &[RunProduct],
        (which, limit): (TimedTiles, Duration),
    ) -> Result<Choice, DeviceError> {
        let (gpu, facts) = (self.context(index)?, &self.facts()[index]);
        let code = self.code(facts.capability)?.operations;
        cuda::choose(&gpu, &code, products, (Source::Tiles(which), limit)).map_err(|error| on_gpu(facts, error))
    }

    /// Chooses algorithms of the library for `products` on the GPU of this index, before it has ranks: those that are
    /// `known`, or else the fastest ones, and equal ones against pleach's kernels with these tiles. None is timed after
    /// `limit`.
    ///
    /// # Errors
    /// The driver's, the compiler's and the library's.
    pub fn choose_algorithms(
        &self,
        index: usize,
        products: &[RunProduct],
        (algorithms, limit): (TimedAlgorithms, Duration),
        (known, tiles): (&ChosenAlgorithms, &ChosenTiles),
    ) -> Result<Choice, DeviceError> {
        let (gpu, facts) = (self.context(index)?, &self.facts()[index]);
        let code = match algorithms {
            TimedAlgorithms::Proposed => vec![],
            TimedAlgorithms::Equal => self.code(facts.capability)?.operations,
        };
        let library = &*self.product_library(index, &gpu)?;
        let source = Source::Library { library, algorithms, known, tiles };
        cuda::choose(&gpu, &code, products, (source, limit)).map_err(|error| on_gpu(facts, error))
    }
}
