//! Times the kernels that compute the same product with other tiles, before a run: on memory of its own, which is
//! released afterwards. All of them have the same bits.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{DeviceError, Op, Stream};
use gpu::{DriverError, EventHandle, Gpu};

use crate::chosen_algorithms::ANY_ARENA;
use crate::chosen_tiles::{ChosenTiles, KernelProduct};
use crate::code::CompiledSource;
use crate::device::{CudaDevice, blocks_of};
use crate::failure::accelerator_error;
use crate::launch::{Code, ProductTile, Site, tiles_by_estimate};
use crate::owned::{Owned, create_event};
use crate::timing_memory::{MARGIN_BYTES, fill_with_random};

/// Times that each tile is measured, in turns with the others: the least counts, because other work only adds.
const ROUNDS: usize = 4;

/// Products of a measurement that are shorter than [`SHORT_MS`], one after the other.
const REPETITIONS: usize = 4;
const SHORT_MS: f32 = 0.25;

/// A tile that took more than this many times the least at first takes part in no further round.
const MOST_RATIO: f32 = 1.5;

/// Another tile is taken in place of the estimated one where it needs less than this share of its time: smaller
/// differences are those of two measurements.
const LESS: f32 = 0.98;

/// Whether kernels of this source are timed.
pub(crate) fn is_timed(source: &str) -> bool {
    source.starts_with("mat_mul_wgmma") || source.starts_with("mat_mul_blocks") || source == "activation"
}

/// The tiles of products after they were chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TileChoice {
    pub tiles: ChosenTiles,
    /// Products whose tiles were timed.
    pub timed: usize,
    /// Of these, those whose fastest tile is not the one that is estimated to be.
    pub other_than_estimated: usize,
    /// Products with several tiles that were not timed, for lack of memory or of time.
    pub left: usize,
}

/// A product with several tiles, the estimated one first.
struct Candidate {
    product: KernelProduct,
    op: Op,
    end_bytes: usize,
    tiles: Vec<ProductTile>,
}

/// Which tiles are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimedTiles {
    /// Those that have run on a GPU.
    HaveRun,
    /// Also those that have run on GPUs in software only.
    All,
}

impl TimedTiles {
    fn include(self, tile: ProductTile) -> bool {
        match self {
            TimedTiles::HaveRun => tile.has_run(),
            TimedTiles::All => true,
        }
    }
}

/// Chooses a tile for each of `products` in blocks that has several of `which` on `gpu`: the fastest one. The
/// largest products are timed first. None is begun after `limit`; these, and those that do not fit in the free memory,
/// keep the estimated tile.
///
/// # Errors
/// The driver's, but for a lack of memory.
pub fn choose_tiles(
    gpu: &Arc<dyn Gpu>,
    code: &[CompiledSource],
    products: &[KernelProduct],
    (which, limit): (TimedTiles, Duration),
) -> Result<TileChoice, DeviceError> {
    let candidates = candidates(&**gpu, code, products, which);
    let mut choice = TileChoice { left: candidates.len(), ..TileChoice::default() };
    let Some(timer) = TileTimer::new(gpu, code, &candidates)? else { return Ok(choice) };
    let (begin, mut chosen) = (Instant::now(), vec![]);
    for candidate in candidates.iter().filter(|candidate| candidate.end_bytes <= timer.bytes) {
        if begin.elapsed() >= limit {
            break;
        }
        let fastest = timer.fastest(candidate)?;
        choice.timed += 1;
        choice.other_than_estimated += usize::from(fastest != candidate.tiles[0]);
        chosen.push((candidate.product, fastest));
    }
    choice.left -= choice.timed;
    choice.tiles = chosen.into_iter().collect();
    Ok(choice)
}

/// The products with several tiles, each once, the largest first.
fn candidates(gpu: &dyn Gpu, code: &[CompiledSource], products: &[KernelProduct], which: TimedTiles) -> Vec<Candidate> {
    let facts = gpu.facts();
    let site = Site {
        arena: ANY_ARENA,
        arena_bytes: usize::MAX,
        multiprocessors: facts.multiprocessors,
        capability: facts.capability,
        products: blocks_of(facts.capability),
        code: Code::of(code),
        tile: None,
    };
    let mut products = products.to_vec();
    let terms = |product: &KernelProduct| product.product.sizes.iter().map(|size| *size as u128).product::<u128>();
    let words = |KernelProduct { product, .. }: &KernelProduct| (product.sizes, product.strides, product.alignments);
    products.sort_by_key(|product| (Reverse(terms(product)), words(product)));
    products.dedup();
    let candidate = |product: KernelProduct| {
        let (op, end_bytes) = product.op()?;
        let mut tiles = tiles_by_estimate(&op, &site);
        tiles.retain(|tile| which.include(*tile));
        (tiles.len() > 1).then_some(Candidate { product, op, end_bytes, tiles })
    };
    products.into_iter().filter_map(candidate).collect()
}

/// A device without a run, and events for measurements.
struct TileTimer<'a> {
    gpu: &'a dyn Gpu,
    device: CudaDevice,
    bytes: usize,
    events: [Owned<EventHandle>; 2],
}

impl<'a> TileTimer<'a> {
    /// With memory for all products that fit on the GPU; `None` where none does.
    fn new(
        gpu: &'a Arc<dyn Gpu>,
        code: &[CompiledSource],
        candidates: &[Candidate],
    ) -> Result<Option<TileTimer<'a>>, DeviceError> {
        let failed = |cause: DriverError| accelerator_error("time products".into(), cause);
        let free = gpu.free_memory().map_err(failed)?.free_bytes;
        let most = usize::try_from(free.saturating_sub(MARGIN_BYTES)).unwrap_or(usize::MAX);
        let needs = candidates.iter().map(|candidate| candidate.end_bytes);
        let Some(bytes) = needs.filter(|need| *need <= most).max() else { return Ok(None) };
        let code: Vec<CompiledSource> = code.iter().filter(|code| is_timed(code.source.name)).cloned().collect();
        let device = match CudaDevice::open(Arc::clone(gpu), &code, bytes) {
            Ok(device) => device.with_products(blocks_of(gpu.facts().capability)),
            // Another process took the memory.
            Err(DeviceError::OutOfMemory { .. } | DeviceError::OutOfHostMemory { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        fill_with_random(gpu, device.stream(Stream::Compute), device.arena(), bytes).map_err(failed)?;
        let events = [create_event(gpu).map_err(failed)?, create_event(gpu).map_err(failed)?];
        Ok(Some(TileTimer { gpu: &**gpu, device, bytes, events }))
    }

    /// The fastest tile.
    fn fastest(&self, candidate: &Candidate) -> Result<ProductTile, DeviceError> {
        let Candidate { op, tiles, .. } = candidate;
        // The first launch of a kernel loads its code.
        for tile in tiles {
            self.measured_ms(op, *tile, 1)?;
        }
        let first = tiles.iter().map(|tile| Ok((*tile, self.measured_ms(op, *tile, 1)?)));
        let first = first.collect::<Result<Vec<(ProductTile, f32)>, DeviceError>>()?;
        let least = first.iter().map(|(_, ms)| *ms).fold(f32::INFINITY, f32::min);
        let repetitions = if least < SHORT_MS { REPETITIONS } else { 1 };
        let is_near = |(_, ms): &(ProductTile, f32)| *ms <= MOST_RATIO * least;
        let mut near: Vec<(ProductTile, f32)> =
            first.into_iter().filter(is_near).map(|(tile, _)| (tile, f32::INFINITY)).collect();
        for _ in 0..ROUNDS {
            for (tile, least) in &mut near {
                *least = least.min(self.measured_ms(op, *tile, repetitions)?);
            }
        }
        // The first of equal ones.
        let Some((fastest, ms)) = near.iter().copied().min_by(|(_, one), (_, other)| one.total_cmp(other)) else {
            return Ok(tiles[0]);
        };
        let estimated = near.iter().find(|(tile, _)| *tile == tiles[0]);
        Ok(if estimated.is_some_and(|(_, estimated)| ms >= LESS * estimated) { tiles[0] } else { fastest })
    }

    /// Milliseconds of some products with a tile.
    fn measured_ms(&self, op: &Op, tile: ProductTile, repetitions: usize) -> Result<f32, DeviceError> {
        let failed = |cause: DriverError| accelerator_error(format!("time {op:?} with {tile:?}"), cause);
        let (stream, [from, to]) = (self.device.stream(Stream::Compute), self.events.each_ref().map(Owned::handle));
        self.gpu.record(from, stream).map_err(failed)?;
        for _ in 0..repetitions {
            self.device.submit_with_tile(op, Some(tile))?;
        }
        self.gpu.record(to, stream).map_err(failed)?;
        self.gpu.synchronize(stream).map_err(failed)?;
        self.gpu.elapsed_ms(from, to).map_err(failed)
    }
}
