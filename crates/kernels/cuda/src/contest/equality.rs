//! Algorithms of a library whose results have the bits of pleach's kernels on random numbers.

use device::DeviceError;
use gpu::{DriverError, MatrixProduct, PinnedHandle, ProductAlgorithm};

use super::bench::Bench;
use super::draws::{Draw, Filled};
use super::{Candidate, ProductContest};
use crate::failure::accelerator_error;
use crate::owned::{Owned, allocate_pinned};
use crate::run_product::{KernelProduct, offsets};

/// Bytes of results that are compared at a time.
const CHUNK_BYTES: usize = 4 << 20;

/// Where results are: that of pleach's kernels, the numbers before it, and that of the library; and the first byte
/// after them and the matrices of all operations of the product.
#[derive(Clone, Copy, Debug)]
pub(super) struct Results {
    own: usize,
    before: usize,
    other: usize,
    bytes: usize,
    pub end: usize,
}

impl Results {
    /// The places of a product's results, after its matrices.
    pub fn of(contest: &ProductContest) -> Results {
        let product = &contest.product.of_library.product;
        let ([.., own, _], _) = offsets(product);
        let bytes = result_bytes(product);
        let largest = MatrixProduct::MAX_ALIGNMENT as usize;
        let after = |end: usize| end.next_multiple_of(largest) + own % largest;
        let before = after(contest.matrices_bytes);
        let other = after(before + bytes);
        Results { own, before, other, bytes, end: other + bytes }
    }
}

/// From the first element of the result to its last one.
fn result_bytes(product: &MatrixProduct) -> usize {
    let [m, n, _] = product.sizes;
    (m.saturating_sub(1) * product.strides[2] + n) as usize * product.result.bytes()
}

/// Pinned memory for the results of a bench.
pub(super) struct Comparison<'a> {
    bench: &'a Bench<'a>,
    pinned: Owned<PinnedHandle>,
}

impl<'a> Comparison<'a> {
    /// Allocates it.
    ///
    /// # Errors
    /// No memory.
    pub fn new(bench: &'a Bench<'a>) -> Result<Comparison<'a>, DeviceError> {
        let pinned = allocate_pinned(bench.gpu, 2 * CHUNK_BYTES);
        let pinned = pinned.map_err(|cause| accelerator_error("compare products".into(), cause))?;
        Ok(Comparison { bench, pinned })
    }

    /// Keeps pleach's kernels, and the algorithms whose results have their bits in every draw.
    pub fn retain_equal(&self, contest: &mut ProductContest) -> Result<(), DeviceError> {
        let (bench, results, product) = (self.bench, Results::of(contest), contest.product.of_library.product);
        let Some((op, _)) = KernelProduct::alone(product).op() else { return Ok(()) };
        let failed = |cause: DriverError| accelerator_error(format!("compare {product:?}"), cause);
        let mut draws = Draw::ALL.into_iter();
        while let (true, Some(draw)) = (contest.candidates.len() > 1, draws.next()) {
            self.fill(draw, &product).map_err(failed)?;
            let [own, before] = [results.own, results.before].map(|offset| bench.at(offset));
            bench.gpu.copy(bench.stream(), before, own, results.bytes).map_err(failed)?;
            bench.device.submit_with_tile(&op, None)?;
            let mut still = vec![];
            for candidate in contest.candidates.drain(..) {
                let is_equal = match &candidate {
                    Candidate::Tile(_) | Candidate::Kernels => true,
                    Candidate::Algorithm(one) => self.has_equal_bits(&product, one, results).map_err(failed)?,
                };
                still.extend(is_equal.then_some(candidate));
            }
            contest.candidates = still;
        }
        Ok(())
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
            draw.fill(self.bench.gpu, self.bench.stream(), (self.bench.at(place), bytes), (filled, element))?;
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
        let [own, before, other] = [results.own, results.before, results.other].map(|offset| self.bench.at(offset));
        self.bench.gpu.copy(self.bench.stream(), other, before, results.bytes)?;
        if !self.bench.multiplied(product, algorithm, other)? {
            return Ok(false);
        }
        let mut chunks = [vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]];
        for first in (0..results.bytes).step_by(CHUNK_BYTES) {
            let bytes = CHUNK_BYTES.min(results.bytes - first);
            let pinned = self.pinned.handle();
            for (index, from) in [own, other].into_iter().enumerate() {
                self.bench.gpu.download(self.bench.stream(), pinned, index * CHUNK_BYTES, from.offset(first), bytes)?;
            }
            self.bench.gpu.synchronize(self.bench.stream())?;
            for (index, chunk) in chunks.iter_mut().enumerate() {
                self.bench.gpu.read_pinned(pinned, index * CHUNK_BYTES, &mut chunk[..bytes])?;
            }
            if chunks[0][..bytes] != chunks[1][..bytes] {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
