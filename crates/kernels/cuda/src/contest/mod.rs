//! Chooses among the kernels and algorithms that may compute each product of a run, before it starts: on memory of its
//! own, which is released afterwards, so no value of the run changes.

mod bench;
mod draws;
mod equality;

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::{TimedAlgorithms, TimedTiles};
use device::{DeviceError, Op};
use gpu::{Gpu, MatrixProduct, ProductAlgorithm, ProductLibrary};

use crate::code::CompiledSource;
use crate::device::blocks_of;
use crate::failure::accelerator_error;
use crate::launch::{Code, ProductTile, Site, tiles_by_estimate};
use crate::library_products::proposed;
use crate::run_product::{
    BY_KERNELS, ChosenAlgorithms, ChosenTiles, KernelProduct, RunProduct, StreamProduct, any_site,
};
use bench::Bench;
use equality::{Comparison, Results};

/// A candidate takes the place of the first one, which has the same bits, where it needs less than this share of its
/// time: smaller differences are those of two measurements.
const LESS: f32 = 0.98;

/// Where candidates come from.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// Pleach's kernels with other tiles, the estimated one first.
    Tiles(TimedTiles),
    /// A library, in the order of its proposals; for equal algorithms after pleach's kernels with chosen tiles. Known
    /// algorithms that it proposes are taken as they are.
    Library {
        library: &'a dyn ProductLibrary,
        algorithms: TimedAlgorithms,
        known: &'a ChosenAlgorithms,
        tiles: &'a ChosenTiles,
    },
}

/// The tiles or algorithms of products after they were chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    pub tiles: ChosenTiles,
    /// With equal algorithms one for every product, or [`BY_KERNELS`].
    pub algorithms: ChosenAlgorithms,
    /// Products whose candidates were compared and timed.
    pub timed: usize,
    /// Of these, those for which several candidates had the bits that they must have.
    pub equal: usize,
    /// Of these, those whose fastest candidate is not the first one.
    pub other_than_first: usize,
    /// Products with several candidates that were not timed, for lack of memory or of time.
    pub left: usize,
    /// Algorithms that were known and that the library does not propose.
    pub not_proposed: usize,
}

impl Choice {
    fn take(&mut self, product: &RunProduct, candidate: &Candidate) {
        match candidate {
            Candidate::Tile(tile) => {
                self.tiles.insert(product.of_kernels, *tile);
            }
            Candidate::Kernels | Candidate::Algorithm(_) => {
                self.algorithms.insert(product.of_library, candidate.words());
            }
        }
    }
}

/// One of the ways to compute a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Candidate {
    /// Pleach's kernels with this tile.
    Tile(ProductTile),
    /// Pleach's kernels with the tiles that were chosen.
    Kernels,
    Algorithm(ProductAlgorithm),
}

impl Candidate {
    fn words(&self) -> [u64; 8] {
        match self {
            Candidate::Tile(_) | Candidate::Kernels => BY_KERNELS,
            Candidate::Algorithm(algorithm) => algorithm.words,
        }
    }
}

/// A product with the candidates that are timed against each other.
struct ProductContest {
    product: RunProduct,
    /// Its operations, each with the tile that was chosen before.
    ops: Vec<(Op, Option<ProductTile>)>,
    /// The first byte after the matrices of every operation.
    matrices_bytes: usize,
    candidates: Vec<Candidate>,
}

/// Chooses for each of `products` the fastest candidate of `source` on `gpu`. Algorithms that must be equal take part
/// where their results have the bits of pleach's kernels on random numbers. The largest products come first, and none
/// is begun after `limit`: these, and those that do not fit in the free memory, get nothing, or [`BY_KERNELS`] where
/// algorithms must be equal.
///
/// # Errors
/// The driver's and the library's, but for a lack of memory.
pub fn choose(
    gpu: &Arc<dyn Gpu>,
    code: &[CompiledSource],
    products: &[RunProduct],
    (source, limit): (Source<'_>, Duration),
) -> Result<Choice, DeviceError> {
    let mut choice = Choice::default();
    let contests = contests(&**gpu, code, products, (source, &mut choice))?;
    choice.left = contests.len();
    let (library, algorithms) = match source {
        Source::Tiles(_) => (None, None),
        Source::Library { library, algorithms, .. } => (Some(library), Some(algorithms)),
    };
    let is_compared = algorithms == Some(TimedAlgorithms::Equal);
    let need = |contest: &ProductContest| if is_compared { Results::of(contest).end } else { contest.matrices_bytes };
    let needs = contests.iter().map(need);
    let Some(bench) = Bench::new(gpu, (code, library), needs)? else { return Ok(choice) };
    let comparison = if is_compared { Some(Comparison::new(&bench)?) } else { None };
    // Proposed algorithms replace no kernel of pleach's, so the smallest difference counts.
    let share = if algorithms == Some(TimedAlgorithms::Proposed) { 1.0 } else { LESS };
    let begin = Instant::now();
    for mut contest in contests.into_iter().filter(|contest| need(contest) <= bench.bytes) {
        if begin.elapsed() >= limit {
            break;
        }
        if let Some(comparison) = &comparison {
            comparison.retain_equal(&mut contest)?;
        }
        choice.left -= 1;
        let Some(fastest) = bench.fastest(&contest, share)? else { continue };
        choice.timed += 1;
        choice.equal += usize::from(contest.candidates.len() > 1);
        choice.other_than_first += usize::from(fastest != 0);
        choice.take(&contest.product, &contest.candidates[fastest]);
    }
    Ok(choice)
}

/// The products with several candidates. Those whose algorithm is known, or the only one, are chosen.
fn contests(
    gpu: &dyn Gpu,
    code: &[CompiledSource],
    products: &[RunProduct],
    (source, choice): (Source<'_>, &mut Choice),
) -> Result<Vec<ProductContest>, DeviceError> {
    let facts = gpu.facts();
    let (capability, multiprocessors) = (facts.capability, facts.multiprocessors);
    let site =
        Site { capability, multiprocessors, products: blocks_of(capability), code: Code::of(code), ..any_site() };
    let mut contests = vec![];
    for mut contest in grouped(products, source) {
        match source {
            Source::Tiles(which) => {
                let tiles = tiles_by_estimate(&contest.ops[0].0, &site).into_iter().filter(|tile| match which {
                    TimedTiles::HaveRun => tile.has_run(),
                    TimedTiles::All => true,
                });
                contest.candidates.extend(tiles.map(Candidate::Tile));
                if contest.candidates.len() > 1 {
                    contests.push(contest);
                }
            }
            Source::Library { library, algorithms, known, .. } => {
                let product = &contest.product.of_library;
                let what = || format!("ask {} for algorithms of {product}", library.name());
                let proposed = proposed(library, product).map_err(|cause| accelerator_error(what(), cause))?;
                let kernels = (algorithms == TimedAlgorithms::Equal).then_some(Candidate::Kernels);
                contest.candidates =
                    kernels.into_iter().chain(proposed.into_iter().map(Candidate::Algorithm)).collect();
                let known = known.get(product);
                let is_known = |candidate: &&Candidate| known == Some(&candidate.words());
                match (contest.candidates.iter().find(is_known), contest.candidates.as_slice()) {
                    (Some(known), _) => choice.take(&contest.product, known),
                    (None, candidates) => {
                        choice.not_proposed += usize::from(known.is_some());
                        if let [only @ Candidate::Algorithm(_)] | [only @ Candidate::Kernels, ..] = candidates {
                            choice.take(&contest.product, only);
                        }
                        if candidates.len() > 1 {
                            contests.push(contest);
                        }
                    }
                }
            }
        }
    }
    Ok(contests)
}

/// The products that the candidates of `source` compute, each once, the largest first, without the candidates.
fn grouped(products: &[RunProduct], source: Source<'_>) -> Vec<ProductContest> {
    let mut products = products.to_vec();
    products.sort_by_key(|RunProduct { of_library, .. }| {
        let MatrixProduct { sizes, strides, alignments, .. } = of_library.product;
        let terms = sizes.iter().map(|size| u128::from(*size)).product::<u128>();
        (Reverse(terms), sizes, strides, alignments, of_library.workspace_bytes)
    });
    let mut contests: Vec<ProductContest> = vec![];
    for RunProduct { of_kernels, of_library } in products {
        let alone = KernelProduct::alone(of_library.product);
        let (product, op, tile) = match source {
            // Tiles are the same on all streams.
            Source::Tiles(_) => {
                let of_library = StreamProduct { workspace_bytes: 0, ..of_library };
                (RunProduct { of_kernels, of_library }, of_kernels.op(), None)
            }
            Source::Library { algorithms: TimedAlgorithms::Proposed, .. } => {
                (RunProduct { of_kernels: alone, of_library }, alone.op(), None)
            }
            // Pleach's kernels may compute what follows with the product, so it is part of all times.
            Source::Library { algorithms: TimedAlgorithms::Equal, tiles, .. } => {
                let tile = tiles.get(&of_kernels).copied();
                (RunProduct { of_kernels: alone, of_library }, of_kernels.op(), tile)
            }
        };
        let Some((op, matrices_bytes)) = op else { continue };
        match contests.iter_mut().find(|contest| contest.product == product) {
            None => {
                contests.push(ProductContest { product, ops: vec![(op, tile)], matrices_bytes, candidates: vec![] })
            }
            Some(contest) if contest.ops.contains(&(op, tile)) => {}
            Some(contest) => {
                contest.ops.push((op, tile));
                contest.matrices_bytes = contest.matrices_bytes.max(matrices_bytes);
            }
        }
    }
    contests
}
