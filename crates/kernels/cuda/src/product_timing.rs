//! Times the algorithms that a library proposes for products, before a run: on memory of its own, which is released
//! afterwards, so no value of the run changes.

use std::sync::Arc;

use gpu::{
    DevicePointer, DriverError, DriverErrorKind, EventHandle, Gpu, MatrixPlaces, MatrixProduct, ProductAlgorithm,
    ProductLibrary, StreamHandle,
};

use crate::chosen_algorithms::{ChosenAlgorithms, StreamProduct};
use crate::library_products::{WORKSPACE_BYTES, proposed};
use crate::owned::{Owned, allocate, create_event, create_stream};
use crate::timing_memory::{MARGIN_BYTES, fill_with_random, offsets};

/// Times that each algorithm is measured, in turns with the others: the least counts, because other work only adds.
const ROUNDS: usize = 5;

/// Products of a measurement, one after the other.
const REPETITIONS: usize = 4;

/// The algorithms of products after they were chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    pub algorithms: ChosenAlgorithms,
    /// Products whose algorithms were timed.
    pub timed: usize,
    /// Of these, those whose fastest algorithm is not the first one that is proposed.
    pub other_than_first: usize,
    /// Algorithms that were known and that the library does not propose.
    pub not_proposed: usize,
}

/// Chooses an algorithm for each of `products`: the one that is `known`, or else the fastest one on `gpu`. A product
/// that does not fit in the free memory, or that the library does not have, gets none.
///
/// # Errors
/// The driver's and the library's.
pub fn choose_algorithms(
    gpu: &Arc<dyn Gpu>,
    library: &dyn ProductLibrary,
    products: &[StreamProduct],
    known: &ChosenAlgorithms,
) -> Result<Choice, DriverError> {
    let (mut chosen, mut to_time, mut choice) = (vec![], vec![], Choice::default());
    for product in products {
        let proposed = proposed(library, product)?;
        let known = known.of(product);
        let is_proposed = |words: &[u64; 8]| proposed.iter().any(|algorithm| algorithm.words == *words);
        match (known, proposed.as_slice()) {
            (Some(words), _) if is_proposed(&words) => chosen.push((*product, words)),
            (known, algorithms) => {
                choice.not_proposed += usize::from(known.is_some());
                match algorithms {
                    [] => {}
                    [only] => chosen.push((*product, only.words)),
                    [_, _, ..] => to_time.push((*product, proposed)),
                }
            }
        }
    }
    if let Some(timer) = ProductTimer::new(gpu, library, &to_time)? {
        for (product, proposed) in &to_time {
            if let Some(fastest) = timer.fastest(product, proposed)? {
                choice.timed += 1;
                choice.other_than_first += usize::from(fastest != 0);
                chosen.push((*product, proposed[fastest].words));
            }
        }
    }
    choice.algorithms = chosen.into_iter().collect();
    Ok(choice)
}

/// Memory, a stream and events for measurements.
struct ProductTimer<'a> {
    gpu: &'a dyn Gpu,
    library: &'a dyn ProductLibrary,
    workspace: Owned<DevicePointer>,
    matrices: Owned<DevicePointer>,
    bytes: usize,
    // Destroyed after the memory that its work uses.
    stream: Owned<StreamHandle>,
    events: [Owned<EventHandle>; 2],
}

impl<'a> ProductTimer<'a> {
    /// With memory for all products that fit on the GPU; `None` where none does.
    fn new(
        gpu: &'a Arc<dyn Gpu>,
        library: &'a dyn ProductLibrary,
        products: &[(StreamProduct, Vec<ProductAlgorithm>)],
    ) -> Result<Option<ProductTimer<'a>>, DriverError> {
        let free = gpu.free_memory()?.free_bytes;
        let most = usize::try_from(free.saturating_sub(MARGIN_BYTES + WORKSPACE_BYTES as u64)).unwrap_or(usize::MAX);
        let needs = products.iter().map(|(product, _)| offsets(&product.product).1);
        let Some(bytes) = needs.filter(|need| *need <= most).max() else { return Ok(None) };
        let timer = ProductTimer {
            gpu: &**gpu,
            library,
            workspace: allocate(gpu, WORKSPACE_BYTES)?,
            matrices: allocate(gpu, bytes)?,
            bytes,
            stream: create_stream(gpu)?,
            events: [create_event(gpu)?, create_event(gpu)?],
        };
        fill_with_random(gpu, timer.stream.handle(), timer.matrices.handle(), bytes)?;
        Ok(Some(timer))
    }

    /// The index of the fastest algorithm; `None` where the product does not fit, or no algorithm runs.
    fn fastest(&self, product: &StreamProduct, proposed: &[ProductAlgorithm]) -> Result<Option<usize>, DriverError> {
        let (offsets, bytes) = offsets(&product.product);
        if bytes > self.bytes {
            return Ok(None);
        }
        let [a, b, d, bias] = offsets.map(|offset| self.matrices.handle().offset(offset));
        let places = MatrixPlaces { a, b, d, bias };
        let mut least = vec![None; proposed.len()];
        // The first round loads the library's code.
        for round in 0..=ROUNDS {
            for (algorithm, least) in proposed.iter().zip(&mut least) {
                let Some(ms) = self.measured_ms(&product.product, algorithm, places)? else { continue };
                if round > 0 {
                    *least = Some(least.map_or(ms, |least: f32| least.min(ms)));
                }
            }
        }
        let measured = least.iter().enumerate().filter_map(|(index, ms)| ms.map(|ms| (index, ms)));
        // The first of equal ones.
        Ok(measured.min_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(index, _)| index))
    }

    /// Milliseconds of some products by an algorithm; `None` where the library refuses it.
    fn measured_ms(
        &self,
        product: &MatrixProduct,
        algorithm: &ProductAlgorithm,
        places: MatrixPlaces,
    ) -> Result<Option<f32>, DriverError> {
        let (stream, [from, to]) = (self.stream.handle(), self.events.each_ref().map(Owned::handle));
        self.gpu.record(from, stream)?;
        for _ in 0..REPETITIONS {
            match self.library.multiply(stream, product, algorithm, places, self.workspace.handle()) {
                Ok(()) => {}
                Err(DriverError { kind: DriverErrorKind::Other(_), .. }) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        self.gpu.record(to, stream)?;
        self.gpu.synchronize(stream)?;
        self.gpu.elapsed_ms(from, to).map(Some)
    }
}

impl Drop for ProductTimer<'_> {
    fn drop(&mut self) {
        // Memory is released after the work that uses it. An error of the GPU is reported by its next call.
        let _ = self.gpu.synchronize(self.stream.handle());
    }
}
