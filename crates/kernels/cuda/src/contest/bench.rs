//! Memory of measurements apart from the memory of a run, and the times of candidates in turns.

use std::sync::Arc;

use device::{DeviceError, Op, Stream};
use gpu::{
    DevicePointer, DriverError, DriverErrorKind, EventHandle, Gpu, MatrixPlaces, MatrixProduct, ProductAlgorithm,
    ProductLibrary, StreamHandle,
};

use super::draws::fill_to_time;
use super::{Candidate, ProductContest};
use crate::code::CompiledSource;
use crate::device::{CudaDevice, blocks_of};
use crate::failure::accelerator_error;
use crate::library_products::WORKSPACE_BYTES;
use crate::owned::{Owned, allocate, create_event};
use crate::run_product::offsets;

/// Memory of the GPU that is left free.
const MARGIN_BYTES: u64 = 256 << 20;

/// Times that each candidate is measured, in turns with the others: the least counts, because other work only adds.
const ROUNDS: usize = 4;

/// Repetitions of a measurement that is shorter than [`SHORT_MS`], one after the other.
const REPETITIONS: usize = 4;
const SHORT_MS: f32 = 0.25;

/// A candidate that took more than this many times the least at first takes part in no further round.
const MOST_RATIO: f32 = 1.5;

/// A device without a run, a library with its workspace, and events for measurements.
pub(super) struct Bench<'a> {
    pub gpu: &'a Arc<dyn Gpu>,
    // Dropped before the workspace, once its work has ended.
    pub device: CudaDevice,
    pub bytes: usize,
    library: Option<(&'a dyn ProductLibrary, Owned<DevicePointer>)>,
    events: [Owned<EventHandle>; 2],
}

impl<'a> Bench<'a> {
    /// With memory for all of the `needs`, in bytes, that fit on the GPU; `None` where none does.
    pub fn new(
        gpu: &'a Arc<dyn Gpu>,
        (code, library): (&[CompiledSource], Option<&'a dyn ProductLibrary>),
        needs: impl Iterator<Item = usize>,
    ) -> Result<Option<Bench<'a>>, DeviceError> {
        let failed = |cause: DriverError| accelerator_error("time products".into(), cause);
        let reserved = MARGIN_BYTES + library.map_or(0, |_| WORKSPACE_BYTES as u64);
        let free = gpu.free_memory().map_err(failed)?.free_bytes;
        let most = usize::try_from(free.saturating_sub(reserved)).unwrap_or(usize::MAX);
        let Some(bytes) = needs.filter(|need| *need <= most).max() else { return Ok(None) };
        let of_products = |code: &&CompiledSource| is_of_products(code.source.name);
        let code: Vec<CompiledSource> = code.iter().filter(of_products).cloned().collect();
        let device = match CudaDevice::open(Arc::clone(gpu), &code, bytes) {
            Ok(device) => device.with_products(blocks_of(gpu.facts().capability)),
            // Another process took the memory.
            Err(DeviceError::OutOfMemory { .. } | DeviceError::OutOfHostMemory { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let with_workspace = |library| Ok((library, allocate(gpu, WORKSPACE_BYTES)?));
        let library = library.map(with_workspace).transpose().map_err(failed)?;
        let events = [create_event(gpu).map_err(failed)?, create_event(gpu).map_err(failed)?];
        fill_to_time(gpu, device.stream(Stream::Compute), (device.arena(), bytes)).map_err(failed)?;
        Ok(Some(Bench { gpu, device, bytes, library, events }))
    }

    /// The stream of all work.
    pub fn stream(&self) -> StreamHandle {
        self.device.stream(Stream::Compute)
    }

    /// The address of this offset in the memory of measurements.
    pub fn at(&self, offset: usize) -> DevicePointer {
        self.device.arena().offset(offset)
    }

    /// Multiplies by an algorithm to `d`; false where the library refuses it.
    pub fn multiplied(
        &self,
        product: &MatrixProduct,
        algorithm: &ProductAlgorithm,
        d: DevicePointer,
    ) -> Result<bool, DriverError> {
        let Some((library, workspace)) = &self.library else { return Ok(false) };
        let [a, b, _, bias] = offsets(product).0.map(|offset| self.at(offset));
        match library.multiply(self.stream(), product, algorithm, MatrixPlaces { a, b, d, bias }, workspace.handle()) {
            Ok(()) => Ok(true),
            Err(DriverError { kind: DriverErrorKind::Other(_), .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The index of the fastest candidate: the first one, unless another needs less than `share` of its time. `None`
    /// where the library refuses all.
    pub fn fastest(&self, contest: &ProductContest, share: f32) -> Result<Option<usize>, DeviceError> {
        let candidates = &contest.candidates;
        if candidates.len() == 1 {
            return Ok(Some(0));
        }
        // The first launch of a kernel loads its code.
        for candidate in candidates {
            self.measured_ms(contest, candidate, 1)?;
        }
        let mut times = vec![];
        for (index, candidate) in candidates.iter().enumerate() {
            times.extend(self.measured_ms(contest, candidate, 1)?.map(|ms| (index, ms)));
        }
        let least = times.iter().map(|(_, ms)| *ms).fold(f32::INFINITY, f32::min);
        let repetitions = if least < SHORT_MS { REPETITIONS } else { 1 };
        times.retain(|(_, ms)| *ms <= MOST_RATIO * least);
        times.iter_mut().for_each(|(_, ms)| *ms = f32::INFINITY);
        for _ in 0..ROUNDS {
            for (index, least) in &mut times {
                let ms = self.measured_ms(contest, &candidates[*index], repetitions)?;
                *least = least.min(ms.unwrap_or(f32::INFINITY));
            }
        }
        // The earlier one of two that need the same time.
        let fastest = times.iter().copied().min_by(|(_, one), (_, other)| one.total_cmp(other));
        let first = times.first().filter(|(index, _)| *index == 0);
        Ok(fastest.map(|(index, ms)| if first.is_some_and(|(_, first)| ms >= share * first) { 0 } else { index }))
    }

    /// Milliseconds of the operations some times by a candidate; `None` where the library refuses it.
    fn measured_ms(
        &self,
        contest: &ProductContest,
        candidate: &Candidate,
        repetitions: usize,
    ) -> Result<Option<f32>, DeviceError> {
        let what = || format!("time {} by {candidate:?}", contest.product.of_library);
        let failed = |cause: DriverError| accelerator_error(what(), cause);
        let (stream, [from, to]) = (self.stream(), self.events.each_ref().map(Owned::handle));
        self.gpu.record(from, stream).map_err(failed)?;
        for (op, chosen) in contest.ops.iter().cycle().take(repetitions * contest.ops.len()) {
            match candidate {
                Candidate::Tile(tile) => self.device.submit_with_tile(op, Some(*tile))?,
                Candidate::Kernels => self.device.submit_with_tile(op, *chosen)?,
                Candidate::Algorithm(algorithm) => {
                    let product = &contest.product.of_library.product;
                    if !self.multiplied(product, algorithm, self.at(offsets(product).0[2])).map_err(failed)? {
                        return Ok(None);
                    }
                    op.unfused().skip(1).try_for_each(|op: Op| self.device.submit_with_tile(&op, None))?;
                }
            }
        }
        self.gpu.record(to, stream).map_err(failed)?;
        self.gpu.synchronize(stream).map_err(failed)?;
        self.gpu.elapsed_ms(from, to).map(Some).map_err(failed)
    }
}

/// Whether kernels of this source are candidates, or follow them.
fn is_of_products(source: &str) -> bool {
    source.starts_with("mat_mul_wgmma") || source.starts_with("mat_mul_blocks") || source == "activation"
}
