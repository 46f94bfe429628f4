//! Products of a rank by a library: an algorithm for each product, and the memory that algorithms use.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use device::Stream;
use gpu::{
    DevicePointer, DriverError, Gpu, MatrixPlaces, MatrixProduct, ProductAlgorithm, ProductLibrary, ProductLimits,
    StreamHandle, SumForm,
};
use sync::lock;

use crate::owned::{Owned, allocate};

/// Bytes of the workspace of a rank: those that NVIDIA recommends for Hopper.
const WORKSPACE_BYTES: usize = 32 << 20;

/// Proposals that the library makes for a product. Some may sum in ways that are excluded; the first of the others is
/// taken.
const CANDIDATES: usize = 8;

/// Memory of a GPU that a rank takes for products by a library: its workspace, and an estimate of the library's
/// kernels.
pub const LIBRARY_RANK_BYTES: u64 = WORKSPACE_BYTES as u64 + (96 << 20);

/// Products by a library. An algorithm is the first one that the library proposes for a product, with the limits of
/// its stream: the library proposes the same ones at every call, so a run and its continuation take the same.
pub(crate) struct LibraryProducts {
    library: Box<dyn ProductLibrary>,
    /// Of the compute stream. Work of other streams has none.
    workspace: Owned<DevicePointer>,
    /// By product and bytes of workspace; `None` where the library has no algorithm.
    chosen: Mutex<HashMap<(MatrixProduct, usize), Option<ProductAlgorithm>>>,
}

impl LibraryProducts {
    /// Allocates the workspace.
    pub(crate) fn new(library: Box<dyn ProductLibrary>, gpu: &Arc<dyn Gpu>) -> Result<LibraryProducts, DriverError> {
        let workspace = allocate(gpu, WORKSPACE_BYTES)?;
        Ok(LibraryProducts { library, workspace, chosen: Mutex::default() })
    }

    /// Its name and version.
    pub(crate) fn name(&self) -> String {
        self.library.name()
    }

    /// The algorithm of a product on a stream; `None` where the library does not have the product.
    pub(crate) fn algorithm(
        &self,
        stream: Stream,
        product: &MatrixProduct,
    ) -> Result<Option<ProductAlgorithm>, DriverError> {
        let workspace_bytes = match stream {
            Stream::Compute => WORKSPACE_BYTES,
            Stream::Reduce | Stream::Transfer | Stream::Io | Stream::Shift | Stream::Fetch | Stream::Offload => 0,
        };
        let key = (*product, workspace_bytes);
        if let Some(known) = lock(&self.chosen).get(&key) {
            return Ok(*known);
        }
        let limits = ProductLimits { workspace_bytes, sums: SumForm::Split, most: CANDIDATES };
        let found = self.library.algorithms(product, limits)?.first().copied();
        lock(&self.chosen).insert(key, found);
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
