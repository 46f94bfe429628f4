//! Products of a rank by a library: an algorithm for each product, and the memory that algorithms use.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use device::Stream;
use gpu::{
    DevicePointer, DriverError, DriverErrorKind, Gpu, MatrixPlaces, MatrixProduct, ProductAlgorithm, ProductLibrary,
    ProductLimits, StreamHandle, SumForm,
};
use sync::lock;

use crate::owned::{Owned, allocate};
use crate::run_product::{BY_KERNELS, ChosenAlgorithms, StreamProduct};

/// Bytes of the workspace of a rank: those that NVIDIA recommends for Hopper.
pub(crate) const WORKSPACE_BYTES: usize = 32 << 20;

/// Proposals that the library makes for a product. Some may sum in ways that are excluded.
const CANDIDATES: usize = 8;

/// Memory of a GPU that a rank takes for products by a library: its workspace, and an estimate of the library's
/// kernels.
pub const LIBRARY_RANK_BYTES: u64 = WORKSPACE_BYTES as u64 + (96 << 20);

/// Bytes of workspace that work of a stream has.
pub(crate) fn workspace_bytes(stream: Stream) -> usize {
    match stream {
        Stream::Compute => WORKSPACE_BYTES,
        Stream::Reduce | Stream::Transfer | Stream::Io | Stream::Shift | Stream::Fetch | Stream::Offload => 0,
    }
}

/// Algorithms that the library proposes for a product: the same ones at every call, the first one by its estimate
/// first.
pub(crate) fn proposed(
    library: &dyn ProductLibrary,
    product: &StreamProduct,
) -> Result<Vec<ProductAlgorithm>, DriverError> {
    let StreamProduct { product, workspace_bytes } = *product;
    library.algorithms(&product, ProductLimits { workspace_bytes, sums: SumForm::Split, most: CANDIDATES })
}

/// The kernels or the library that compute products without a chosen algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Others {
    /// The first algorithm that the library proposes.
    ByFirst,
    /// Pleach's kernels.
    ByKernels,
}

/// Products by a library. The algorithm of a product is the one that was chosen for it, or else the first one that the
/// library proposes. The library proposes the same ones at every call, so a run and its continuation take the same.
pub(crate) struct LibraryProducts {
    library: Box<dyn ProductLibrary>,
    others: Others,
    /// Of the compute stream. Work of other streams has none.
    workspace: Owned<DevicePointer>,
    chosen: Arc<ChosenAlgorithms>,
    /// Those that were needed so far; `None` where the library has no algorithm.
    known: Mutex<HashMap<StreamProduct, Option<ProductAlgorithm>>>,
}

impl LibraryProducts {
    /// Allocates the workspace.
    pub(crate) fn new(
        library: Box<dyn ProductLibrary>,
        (chosen, others): (Arc<ChosenAlgorithms>, Others),
        gpu: &Arc<dyn Gpu>,
    ) -> Result<LibraryProducts, DriverError> {
        let workspace = allocate(gpu, WORKSPACE_BYTES)?;
        Ok(LibraryProducts { library, others, workspace, chosen, known: Mutex::default() })
    }

    /// Its name and version.
    pub(crate) fn name(&self) -> String {
        self.library.name()
    }

    /// The algorithm of a product on a stream; `None` where the library does not have the product.
    ///
    /// # Errors
    /// The library's; a chosen algorithm that the library does not propose.
    pub(crate) fn algorithm(
        &self,
        stream: Stream,
        product: &MatrixProduct,
    ) -> Result<Option<ProductAlgorithm>, DriverError> {
        let key = StreamProduct { product: *product, workspace_bytes: workspace_bytes(stream) };
        if let Some(known) = lock(&self.known).get(&key) {
            return Ok(*known);
        }
        let proposed = proposed(&*self.library, &key)?;
        let found = match self.chosen.get(&key) {
            None => match self.others {
                Others::ByFirst => proposed.first().copied(),
                Others::ByKernels => None,
            },
            Some(&BY_KERNELS) => None,
            Some(words) => {
                let chosen = proposed.iter().find(|algorithm| algorithm.words == *words);
                Some(*chosen.ok_or_else(|| not_proposed(&key, proposed.len()))?)
            }
        };
        lock(&self.known).insert(key, found);
        Ok(found)
    }

    /// Multiplies as work of `stream`.
    pub(crate) fn multiply(
        &self,
        stream: StreamHandle,
        product: &MatrixProduct,
        algorithm: &ProductAlgorithm,
        places: MatrixPlaces,
    ) -> Result<(), DriverError> {
        self.library.multiply(stream, product, algorithm, places, self.workspace.handle())
    }
}

/// Ranks of a GPU model take the choice that one of them made, and this one's library differs.
fn not_proposed(product: &StreamProduct, proposed: usize) -> DriverError {
    let text =
        format!("the algorithm that was chosen for {product} is not among the {proposed} that are proposed here");
    DriverError { call: "choose an algorithm", kind: DriverErrorKind::InvalidArgument, text }
}
