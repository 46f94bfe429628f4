//! Products of matrices in blocks of 16 on compute capability 9.0: kernels/mat_mul_wgmma.cu, in which two warpgroups
//! share each tile, and kernels/mat_mul_wgmma_turns.cu, in which they take tiles in turns. All have the same bits.

use config::Products;
use device::{Dtype, Orientation, Tensor};
use gpu::{DevicePointer, LaunchShape, TensorElement, TensorPromotion, TensorSwizzle, TensorTiles};

use super::mat_mul::Product;
use super::mat_mul_blocks::Narrow;
use super::parameters::Tile;
use super::{Launch, Parameters, Place, Site};

/// Rows of a tile.
pub(super) const ROWS: usize = 128;
/// Steps of a stage, which are lanes of a box in rows of lanes, too: 128 bytes.
const STEPS: usize = 64;
/// Threads of a block.
const THREADS: u32 = 384;
/// Stages, memory through which outputs pass, barriers, and room to begin at a multiple of 1024.
const SHARED_BYTES: u32 = (192 + 32 + 1 + 1) << 10;
/// Boxes and rows of boxes begin at multiples of these.
pub(super) const ALIGNMENT: usize = 16;

/// Nanoseconds on an H200, of what `cargo bench -p cuda --bench products` measured: they decide which tile is the
/// fastest, and change no bit.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// Of a stage, where one multiprocessor works, and where all do: they share the second level of caches, and power.
    alone: usize,
    together: usize,
    /// From the last product of a tile to the first one of the next.
    end: usize,
}

/// Where sums of pieces are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pieces {
    InRegisters,
    /// Large tiles have no registers for two sums. The output must hold sums as they are.
    ThroughOutput,
}

impl Tile {
    /// In the order in which equals are taken.
    pub const ALL: [Tile; 8] = [
        Tile::Of256,
        Tile::Of192,
        Tile::Of160,
        Tile::Of128,
        Tile::Of64,
        Tile::InTurnsOf128,
        Tile::Fused,
        Tile::ByWarps,
    ];

    /// The tiles that have a kernel by warpgroups for products of this orientation, with K steps and this type of the
    /// output.
    pub fn candidates(orientation: Orientation, k: usize, out: Dtype) -> impl Iterator<Item = Tile> {
        let has_rounded_pieces = has_pieces(orientation, k) && out != Dtype::F32;
        let fits = move |tile: &Tile| !has_rounded_pieces || tile.pieces() == Pieces::InRegisters;
        Tile::ALL.into_iter().filter(fits).filter(move |tile| tile.kernel(orientation).is_some())
    }

    fn cols(self) -> usize {
        match self {
            Tile::Of256 => 256,
            Tile::Of192 => 192,
            Tile::Of160 => 160,
            Tile::Of128 | Tile::InTurnsOf128 | Tile::Fused | Tile::ByWarps => 128,
            Tile::Of64 => 64,
        }
    }

    fn pieces(self) -> Pieces {
        match self {
            Tile::Of256 | Tile::Of192 | Tile::InTurnsOf128 | Tile::Fused => Pieces::ThroughOutput,
            Tile::Of160 | Tile::Of128 | Tile::Of64 | Tile::ByWarps => Pieces::InRegisters,
        }
    }

    /// Whether its kernels have run on a GPU.
    pub fn has_run(self) -> bool {
        match self {
            Tile::Of256 | Tile::Of192 | Tile::Of160 | Tile::Of128 | Tile::Of64 | Tile::ByWarps => true,
            Tile::InTurnsOf128 | Tile::Fused => false,
        }
    }

    /// None of kernels that were not measured.
    fn cost(self) -> Option<Cost> {
        match self {
            Tile::Of256 => Some(Cost { alone: 600, together: 780, end: 3000 }),
            Tile::Of192 => Some(Cost { alone: 440, together: 600, end: 2600 }),
            Tile::Of160 => Some(Cost { alone: 370, together: 500, end: 2600 }),
            Tile::Of128 => Some(Cost { alone: 290, together: 400, end: 2000 }),
            Tile::Of64 => Some(Cost { alone: 200, together: 330, end: 1200 }),
            Tile::InTurnsOf128 | Tile::Fused | Tile::ByWarps => None,
        }
    }

    /// Nanoseconds of a product, about.
    fn time(self, [m, n, k]: [usize; 3], multiprocessors: usize) -> Option<usize> {
        let Cost { alone, together, end } = self.cost()?;
        let tiles = m.div_ceil(ROWS) * n.div_ceil(self.cols());
        let stages = k.div_ceil(STEPS);
        let turn = |blocks: usize| stages * (alone + (together - alone) * blocks / multiprocessors) + end;
        let rest = tiles % multiprocessors;
        Some(tiles / multiprocessors * turn(multiprocessors) + if rest > 0 { turn(rest) } else { 0 })
    }

    /// The asked one where it has a kernel, or else the one with which a GPU is done first.
    pub(super) fn of(
        product: &Product,
        sizes: [usize; 3],
        multiprocessors: usize,
        asked: Option<Tile>,
    ) -> Option<Tile> {
        let candidates = || Tile::candidates(product.orientation, sizes[2], product.out.dtype);
        let timed = |tile: Tile| Some((tile, tile.time(sizes, multiprocessors)?));
        let fastest = || Some(candidates().filter_map(timed).min_by_key(|(_, time)| *time)?.0);
        asked.filter(|asked| candidates().any(|tile| tile == *asked)).or_else(fastest)
    }

    /// The kernel of this tile, where there is one.
    fn kernel(self, orientation: Orientation) -> Option<&'static str> {
        match (orientation, self) {
            (Orientation::Nt, Tile::Of256) => Some("mat_mul_wgmma_nt_256"),
            (Orientation::Nt, Tile::Of192) => Some("mat_mul_wgmma_nt_192"),
            (Orientation::Nt, Tile::Of128) => Some("mat_mul_wgmma_nt_128"),
            (Orientation::Nt, Tile::Of64) => Some("mat_mul_wgmma_nt_64"),
            (Orientation::Nn, Tile::Of256) => Some("mat_mul_wgmma_nn_256"),
            (Orientation::Nn, Tile::Of192) => Some("mat_mul_wgmma_nn_192"),
            (Orientation::Nn, Tile::Of128) => Some("mat_mul_wgmma_nn_128"),
            (Orientation::Nn, Tile::Of64) => Some("mat_mul_wgmma_nn_64"),
            (Orientation::Tn, Tile::Of256) => Some("mat_mul_wgmma_tn_256"),
            (Orientation::Tn, Tile::Of192) => Some("mat_mul_wgmma_tn_192"),
            (Orientation::Tn, Tile::Of160) => Some("mat_mul_wgmma_tn_160"),
            (Orientation::Tn, Tile::Of128) => Some("mat_mul_wgmma_tn_128"),
            (Orientation::Tn, Tile::Of64) => Some("mat_mul_wgmma_tn_64"),
            (Orientation::Nt, Tile::InTurnsOf128) => Some("mat_mul_wgmma_turns_nt_128"),
            (Orientation::Nn, Tile::InTurnsOf128) => Some("mat_mul_wgmma_turns_nn_128"),
            (Orientation::Tn, Tile::InTurnsOf128) => Some("mat_mul_wgmma_turns_tn_128"),
            (Orientation::Nt | Orientation::Nn, Tile::Of160) => None,
            (Orientation::Nt | Orientation::Nn | Orientation::Tn, Tile::Fused | Tile::ByWarps) => None,
        }
    }
}

/// Whether sums are cut into pieces.
fn has_pieces(orientation: Orientation, k: usize) -> bool {
    match orientation {
        Orientation::Tn => k > Products::PIECE,
        Orientation::Nt | Orientation::Nn => false,
    }
}

/// A factor with its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Factor {
    pub tensor: Tensor,
    pub place: Place,
}

impl Factor {
    /// Whether boxes of it can be copied.
    pub fn has_boxes(&self) -> bool {
        let size = self.tensor.dtype.size_bytes();
        self.tensor.dtype != Dtype::F32 && !self.tensor.is_empty() && self.place.has_rows_at_multiples(ALIGNMENT, size)
    }

    /// Boxes of `lanes` lanes and the steps of a stage where steps are along rows, or else of 64 lanes and as many
    /// steps.
    pub fn boxes(&self, site: &Site, narrow: Narrow, lanes: usize, along: Along) -> TensorTiles {
        let Tensor { offset_bytes, rows, cols, row_stride, dtype } = self.tensor;
        let rows_of_box = match along {
            Along::Steps => lanes,
            Along::Lanes => STEPS,
        };
        let stride_bytes = (row_stride.max(cols) * dtype.size_bytes()).next_multiple_of(ALIGNMENT);
        let address: DevicePointer = site.arena.offset(offset_bytes);
        TensorTiles {
            element: match narrow {
                Narrow::Bf16 => TensorElement::Bf16,
                Narrow::F16 => TensorElement::F16,
            },
            address,
            dims: vec![cols as u64, rows as u64],
            strides_bytes: vec![stride_bytes as u64],
            box_dims: vec![STEPS as u32, rows_of_box as u32],
            swizzle: TensorSwizzle::Bytes128,
            promotion: TensorPromotion::Bytes256,
        }
    }
}

/// The elements that are next to each other in a factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Along {
    Steps,
    Lanes,
}

/// Of both factors.
pub(super) fn along(orientation: Orientation) -> [Along; 2] {
    match orientation {
        Orientation::Nt => [Along::Steps, Along::Steps],
        Orientation::Nn => [Along::Steps, Along::Lanes],
        Orientation::Tn => [Along::Lanes, Along::Lanes],
    }
}

/// A block for each multiprocessor, as far as there are tiles of this many columns.
pub(super) fn in_tiles(site: &Site, [rows, cols]: [usize; 2], cols_of_tile: usize) -> LaunchShape {
    let tiles = rows.div_ceil(ROWS) * cols.div_ceil(cols_of_tile);
    let blocks = tiles.min(site.multiprocessors as usize);
    LaunchShape { grid: [blocks as u32, 1, 1], block: [THREADS, 1, 1], shared_bytes: SHARED_BYTES }
}

/// The product by warpgroups; `None` where its factors cannot be copied in boxes. `finish` appends the parameters of
/// the output, and those after them.
pub(super) fn by_warpgroups(
    site: &Site,
    product: &Product,
    sizes: [usize; 3],
    narrow: Narrow,
    factors: [Factor; 2],
    finish: impl Fn(Parameters) -> Parameters,
) -> Option<Launch> {
    let [m, n, _] = sizes;
    if !factors.iter().all(Factor::has_boxes) {
        return None;
    }
    let multiprocessors = site.multiprocessors as usize;
    let tile = Tile::of(product, sizes, multiprocessors, site.tile)?;
    let kernel = tile.kernel(product.orientation)?;
    let [of_a, of_b] = along(product.orientation);
    let maps = [factors[0].boxes(site, narrow, ROWS, of_a), factors[1].boxes(site, narrow, tile.cols(), of_b)];
    let shape = in_tiles(site, [m, n], tile.cols());
    Some(Launch::new(kernel, shape, finish(Parameters::new())).with_maps(maps.to_vec()))
}

#[cfg(test)]
mod tests {
    use device::Write;

    use super::*;

    /// The columns of the tile of a product with an output in single precision.
    fn cols(orientation: Orientation, sizes: [usize; 3], multiprocessors: usize) -> usize {
        let [m, n, k] = sizes;
        let [a, b] = match orientation {
            Orientation::Nt => [[m, k], [n, k]],
            Orientation::Nn => [[m, k], [k, n]],
            Orientation::Tn => [[k, m], [k, n]],
        };
        let factor = |[rows, cols]: [usize; 2]| Tensor::new(0, rows, cols, Dtype::Bf16);
        let (a, b, out) = (factor(a), factor(b), Tensor::new(0, m, n, Dtype::F32));
        let product = Product { orientation, a, b, bias: None, out, write: Write::Assign };
        Tile::of(&product, sizes, multiprocessors, None).expect("a tile").cols()
    }

    #[test]
    fn products_of_gpt2_have_tiles_that_fill_an_h200() {
        let products = [
            (Orientation::Nt, [16_384, 2304, 768], 256),
            (Orientation::Nt, [16_384, 768, 3072], 256),
            (Orientation::Nt, [2048, 50_304, 768], 256),
            (Orientation::Nn, [2048, 768, 50_304], 128),
            (Orientation::Tn, [50_304, 768, 2048], 256),
            (Orientation::Tn, [2304, 768, 16_384], 128),
            (Orientation::Tn, [3072, 768, 16_384], 160),
            (Orientation::Tn, [768, 3072, 16_384], 160),
            (Orientation::Tn, [768, 768, 16_384], 64),
        ];
        for (orientation, sizes, expected) in products {
            assert_eq!(cols(orientation, sizes, 132), expected, "{orientation:?} {sizes:?}");
        }
    }

    #[test]
    fn tiles_in_turns_are_candidates_that_are_taken_where_they_are_asked_for() {
        let factor = |rows| Tensor::new(0, rows, 768, Dtype::Bf16);
        let (orientation, write) = (Orientation::Nt, Write::Assign);
        let (a, b, out) = (factor(16_384), factor(2304), Tensor::new(0, 16_384, 2304, Dtype::Bf16));
        let product = Product { orientation, a, b, bias: None, out, write };
        let of = |asked| Tile::of(&product, [16_384, 2304, 768], 132, asked).expect("a tile");
        // Tiles of 160 columns have no kernel of this orientation.
        let asked = [Tile::InTurnsOf128, Tile::Of64, Tile::Of160];
        assert_eq!(asked.map(|tile| of(Some(tile))), [Tile::InTurnsOf128, Tile::Of64, Tile::Of256]);
        let of_pieces = |out| Tile::candidates(Orientation::Tn, 16_384, out).collect::<Vec<_>>();
        assert_eq!(of_pieces(Dtype::F32), Tile::ALL[..6]);
        assert_eq!(of_pieces(Dtype::Bf16), [Tile::Of160, Tile::Of128, Tile::Of64]);
    }

    /// The products that the tests of bits compute have all tiles.
    #[test]
    fn few_multiprocessors_take_every_tile() {
        let all: Vec<usize> = [64, 128, 136, 192, 256].map(|n| cols(Orientation::Tn, [16, n, 8200], 1)).into();
        assert_eq!(all, [64, 128, 160, 192, 256]);
    }
}
