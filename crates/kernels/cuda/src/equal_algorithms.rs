//! Chooses among pleach's kernels and those algorithms of a library whose results have the same bits on random numbers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::Products;
use device::{DeviceError, Op, Stream};
use gpu::{
    DevicePointer, DriverError, DriverErrorKind, EventHandle, Gpu, MatrixPlaces, MatrixProduct, PinnedHandle,
    ProductAlgorithm, ProductLibrary, StreamHandle,
};

use crate::chosen_algorithms::{ChosenAlgorithms, StreamProduct};
use crate::chosen_tiles::{ChosenTiles, KernelProduct};
use crate::code::CompiledSource;
use crate::device::CudaDevice;
use crate::failure::accelerator_error;
use crate::library_products::{WORKSPACE_BYTES, proposed};
use crate::owned::{Owned, allocate, allocate_pinned, create_event};
use crate::product_draws::{Draw, Filled};
use crate::tile_timing::is_timed;
use crate::timing_memory::{MARGIN_BYTES, offsets};

/// Times that each candidate is measured, in turns with the others: the least counts.
const ROUNDS: usize = 5;

/// Products of a measurement, one after the other.
const REPETITIONS: usize = 4;

/// The library is taken where it needs less than this share of the time of pleach's kernels.
const LESS: f32 = 0.98;

/// Bytes of results that are compared at a time.
const CHUNK_BYTES: usize = 4 << 20;

/// A product of a run, as pleach's kernels and as a library take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlocksProduct {
    pub of_kernels: KernelProduct,
    pub of_library: StreamProduct,
}

impl BlocksProduct {
    /// The product of an operation on a stream; `None` for operations that libraries do not have.
    pub fn of(op: &Op, stream: Stream) -> Option<BlocksProduct> {
        let of_library = StreamProduct::of(&op.unfused().next()?, stream)?;
        Some(BlocksProduct { of_kernels: KernelProduct::of(op)?, of_library })
    }
}

/// The algorithms of products in blocks after they were chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EqualChoice {
    /// For every product one, or [`ChosenAlgorithms::KERNELS`].
    pub algorithms: ChosenAlgorithms,
    /// Products whose results were compared.
    pub compared: usize,
    /// Of these, those for which an algorithm had the bits of pleach's kernels.
    pub equal: usize,
    /// Of these, those for which an equal algorithm is the fastest.
    pub by_library: usize,
    /// Algorithms that were known and that the library does not propose.
    pub not_proposed: usize,
}

/// Chooses for each of `products` in blocks of 16 the one that is `known`, or else the fastest of pleach's kernels, by
/// `tiles`, and of those algorithms whose results had the same bits in every [`Draw`]. Pleach's kernels compute
/// products that do not fit in the free memory, and those that would be begun after `limit`, the smallest ones.
///
/// # Errors
/// The driver's and the library's, but for a lack of memory.
pub fn choose_equal_algorithms(
    gpu: &Arc<dyn Gpu>,
    (code, library): (&[CompiledSource], &dyn ProductLibrary),
    products: &[BlocksProduct],
    (known, tiles): (&ChosenAlgorithms, &ChosenTiles),
    limit: Duration,
) -> Result<EqualChoice, DeviceError> {
    let failed = |cause: DriverError| accelerator_error(format!("compare products by {}", library.name()), cause);
    let (mut chosen, mut choice, mut to_compare) = (vec![], EqualChoice::default(), vec![]);
    for (product, ops) in grouped(products) {
        let proposed = proposed(library, &product).map_err(failed)?;
        match known.of(&product) {
            Some(ChosenAlgorithms::KERNELS) => chosen.push((product, ChosenAlgorithms::KERNELS)),
            Some(words) if proposed.iter().any(|algorithm| algorithm.words == words) => chosen.push((product, words)),
            other => {
                choice.not_proposed += usize::from(other.is_some());
                to_compare.push((product, ops, proposed));
            }
        }
    }
    let needs: Vec<usize> = to_compare.iter().map(|(product, ops, _)| Results::of(&product.product, ops).end).collect();
    let comparison = Comparison::new(gpu, (code, library), &needs)?;
    let begin = Instant::now();
    for ((product, ops, proposed), need) in to_compare.iter().zip(needs) {
        let mut words = ChosenAlgorithms::KERNELS;
        if let Some(comparison) = comparison.as_ref().filter(|comparison| need <= comparison.bytes)
            && begin.elapsed() < limit
        {
            let equal = comparison.equal(&product.product, ops, proposed)?;
            choice.compared += 1;
            choice.equal += usize::from(!equal.is_empty());
            if let Some(fastest) = comparison.fastest(product, ops, &equal, tiles)? {
                choice.by_library += 1;
                words = fastest.words;
            }
        }
        chosen.push((*product, words));
    }
    choice.algorithms = chosen.into_iter().collect();
    Ok(choice)
}

/// The operations of each product of the library, the largest product first.
fn grouped(products: &[BlocksProduct]) -> Vec<(StreamProduct, Vec<KernelProduct>)> {
    let mut groups: BTreeMap<_, Vec<(StreamProduct, Vec<KernelProduct>)>> = BTreeMap::new();
    for BlocksProduct { of_kernels, of_library } in products {
        let MatrixProduct { sizes, strides, alignments, .. } = of_library.product;
        let terms = sizes.iter().map(|size| u128::from(*size)).product::<u128>();
        let key = (std::cmp::Reverse(terms), sizes, strides, alignments, of_library.workspace_bytes);
        let group = groups.entry(key).or_default();
        match group.iter_mut().find(|(product, _)| product == of_library) {
            Some((_, ops)) => ops.push(*of_kernels),
            None => group.push((*of_library, vec![*of_kernels])),
        }
    }
    groups.into_values().flatten().collect()
}

/// Where results are: that of pleach's kernels, the numbers before it, and that of the library; and the first byte
/// after them and the matrices of all operations of the product.
#[derive(Clone, Copy, Debug)]
struct Results {
    own: usize,
    before: usize,
    other: usize,
    bytes: usize,
    end: usize,
}

impl Results {
    fn of(product: &MatrixProduct, ops: &[KernelProduct]) -> Results {
        let ends = ops.iter().filter_map(KernelProduct::op).map(|(_, end)| end);
        let ([.., own, _], end) = offsets(product);
        let bytes = result_bytes(product);
        let largest = MatrixProduct::MAX_ALIGNMENT as usize;
        let after = |end: usize| end.next_multiple_of(largest) + own % largest;
        let before = after(ends.fold(end, usize::max));
        let other = after(before + bytes);
        Results { own, before, other, bytes, end: other + bytes }
    }
}

/// From the first element of the result to its last one.
fn result_bytes(product: &MatrixProduct) -> usize {
    let [m, n, _] = product.sizes;
    (m.saturating_sub(1) * product.strides[2] + n) as usize * product.result.bytes()
}

/// A device without a run, with memory for comparisons.
struct Comparison<'a> {
    gpu: &'a Arc<dyn Gpu>,
    library: &'a dyn ProductLibrary,
    device: CudaDevice,
    bytes: usize,
    workspace: Owned<DevicePointer>,
    pinned: Owned<PinnedHandle>,
    events: [Owned<EventHandle>; 2],
}

impl<'a> Comparison<'a> {
    /// With memory for all products that fit on the GPU; `None` where none does.
    fn new(
        gpu: &'a Arc<dyn Gpu>,
        (code, library): (&[CompiledSource], &'a dyn ProductLibrary),
        needs: &[usize],
    ) -> Result<Option<Comparison<'a>>, DeviceError> {
        let failed = |cause: DriverError| accelerator_error("compare products".into(), cause);
        let free = gpu.free_memory().map_err(failed)?.free_bytes;
        let most = usize::try_from(free.saturating_sub(MARGIN_BYTES + WORKSPACE_BYTES as u64)).unwrap_or(usize::MAX);
        let Some(bytes) = needs.iter().copied().filter(|need| *need <= most).max() else { return Ok(None) };
        let code: Vec<CompiledSource> = code.iter().filter(|code| is_timed(code.source.name)).cloned().collect();
        let device = match CudaDevice::open(Arc::clone(gpu), &code, bytes) {
            Ok(device) => device.with_products(Products::Blocks16),
            Err(DeviceError::OutOfMemory { .. } | DeviceError::OutOfHostMemory { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let workspace = allocate(gpu, WORKSPACE_BYTES).map_err(failed)?;
        let pinned = allocate_pinned(gpu, 2 * CHUNK_BYTES).map_err(failed)?;
        let events = [create_event(gpu).map_err(failed)?, create_event(gpu).map_err(failed)?];
        Ok(Some(Comparison { gpu, library, device, bytes, workspace, pinned, events }))
    }

    fn stream(&self) -> StreamHandle {
        self.device.stream(Stream::Compute)
    }

    fn at(&self, offset: usize) -> DevicePointer {
        self.device.arena().offset(offset)
    }

    /// The algorithms whose results have the bits of pleach's kernels in every draw.
    fn equal(
        &self,
        product: &MatrixProduct,
        ops: &[KernelProduct],
        all: &[ProductAlgorithm],
    ) -> Result<Vec<ProductAlgorithm>, DeviceError> {
        let Some((op, _)) = KernelProduct::alone(*product).op() else { return Ok(vec![]) };
        let failed = |cause: DriverError| accelerator_error(format!("compare {product:?}"), cause);
        let results = Results::of(product, ops);
        let (mut equal, mut draws) = (all.to_vec(), Draw::ALL.into_iter());
        while let (false, Some(draw)) = (equal.is_empty(), draws.next()) {
            self.fill(draw, product).map_err(failed)?;
            let [own, before] = [results.own, results.before].map(|offset| self.at(offset));
            self.gpu.copy(self.stream(), before, own, results.bytes).map_err(failed)?;
            self.device.submit_with_tile(&op, None)?;
            let mut still = vec![];
            for algorithm in equal {
                if self.has_equal_bits(product, &algorithm, results).map_err(failed)? {
                    still.push(algorithm);
                }
            }
            equal = still;
        }
        Ok(equal)
    }

    /// Fills all matrices of a product.
    fn fill(&self, draw: Draw, product: &MatrixProduct) -> Result<(), DriverError> {
        let (places, end) = offsets(product);
        let ends = [places[1], places[2], places[3], end];
        let elements = [product.factors, product.factors, product.result, product.result];
        let all = [Filled::A, Filled::B, Filled::D, Filled::Bias];
        for (filled, ((place, end), element)) in all.into_iter().zip(places.into_iter().zip(ends).zip(elements)) {
            // A matrix that begins after a multiple of an alignment ends before the next one begins.
            let bytes = end.saturating_sub(place) / element.bytes() * element.bytes();
            draw.fill(self.gpu, self.stream(), (self.at(place), bytes), (filled, element))?;
        }
        Ok(())
    }

    /// Whether an algorithm has the result that pleach's kernel has left; not where the library refuses it.
    fn has_equal_bits(
        &self,
        product: &MatrixProduct,
        algorithm: &ProductAlgorithm,
        results: Results,
    ) -> Result<bool, DriverError> {
        let [own, before, other] = [results.own, results.before, results.other].map(|offset| self.at(offset));
        self.gpu.copy(self.stream(), other, before, results.bytes)?;
        if !self.multiplied(product, algorithm, other)? {
            return Ok(false);
        }
        let mut chunks = [vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]];
        for first in (0..results.bytes).step_by(CHUNK_BYTES) {
            let bytes = CHUNK_BYTES.min(results.bytes - first);
            let pinned = self.pinned.handle();
            for (index, from) in [own, other].into_iter().enumerate() {
                self.gpu.download(self.stream(), pinned, index * CHUNK_BYTES, from.offset(first), bytes)?;
            }
            self.gpu.synchronize(self.stream())?;
            for (index, chunk) in chunks.iter_mut().enumerate() {
                self.gpu.read_pinned(pinned, index * CHUNK_BYTES, &mut chunk[..bytes])?;
            }
            if chunks[0][..bytes] != chunks[1][..bytes] {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Multiplies by an algorithm to `d`; false where the library refuses it.
    fn multiplied(
        &self,
        product: &MatrixProduct,
        algorithm: &ProductAlgorithm,
        d: DevicePointer,
    ) -> Result<bool, DriverError> {
        let [a, b, _, bias] = offsets(product).0.map(|offset| self.at(offset));
        let places = MatrixPlaces { a, b, d, bias };
        match self.library.multiply(self.stream(), product, algorithm, places, self.workspace.handle()) {
            Ok(()) => Ok(true),
            Err(DriverError { kind: DriverErrorKind::Other(_), .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The fastest of the algorithms, if it is faster than pleach's kernels in all operations of the product together.
    fn fastest(
        &self,
        product: &StreamProduct,
        ops: &[KernelProduct],
        equal: &[ProductAlgorithm],
        tiles: &ChosenTiles,
    ) -> Result<Option<ProductAlgorithm>, DeviceError> {
        let (mut kernels, mut least) = (f32::INFINITY, vec![f32::INFINITY; equal.len()]);
        if equal.is_empty() {
            return Ok(None);
        }
        // The first round loads code.
        for round in 0..=ROUNDS {
            let ms = self.measured_ms(ops, None, tiles)?;
            kernels = if round == 0 { kernels } else { kernels.min(ms) };
            for (algorithm, least) in equal.iter().zip(&mut least) {
                let ms = self.measured_ms(ops, Some((product, algorithm)), tiles)?;
                *least = if round == 0 { *least } else { least.min(ms) };
            }
        }
        let fastest = equal.iter().zip(least).min_by(|(_, one), (_, other)| one.total_cmp(other));
        Ok(fastest.filter(|(_, ms)| *ms < LESS * kernels).map(|(algorithm, _)| *algorithm))
    }

    /// Milliseconds of all operations some times, by pleach's kernels or with their product by an algorithm.
    fn measured_ms(
        &self,
        ops: &[KernelProduct],
        by: Option<(&StreamProduct, &ProductAlgorithm)>,
        tiles: &ChosenTiles,
    ) -> Result<f32, DeviceError> {
        let failed = |cause: DriverError| accelerator_error("time products".into(), cause);
        let (stream, [from, to]) = (self.stream(), self.events.each_ref().map(Owned::handle));
        self.gpu.record(from, stream).map_err(failed)?;
        for kernel_product in ops.iter().cycle().take(REPETITIONS * ops.len()) {
            let Some((op, _)) = kernel_product.op() else { continue };
            match by {
                None => self.device.submit_with_tile(&op, tiles.of(kernel_product))?,
                Some((product, algorithm)) => {
                    let d = self.at(offsets(&product.product).0[2]);
                    self.multiplied(&product.product, algorithm, d).map_err(failed)?;
                    op.unfused().skip(1).try_for_each(|op| self.device.submit_with_tile(&op, None))?;
                }
            }
        }
        self.gpu.record(to, stream).map_err(failed)?;
        self.gpu.synchronize(stream).map_err(failed)?;
        self.gpu.elapsed_ms(from, to).map_err(failed)
    }
}

impl Drop for Comparison<'_> {
    fn drop(&mut self) {
        // Memory is released after the work that uses it. An error of the GPU is reported by its next call.
        let _ = self.gpu.synchronize(self.stream());
    }
}
