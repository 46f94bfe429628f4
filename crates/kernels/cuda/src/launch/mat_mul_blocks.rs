//! Products of matrices in blocks: kernels/mat_mul_blocks.cu.

use device::{DeviceError, Dtype, Orientation, Tensor, Write};
use gpu::LaunchShape;

use super::mat_mul::Product;
use super::mat_mul_wgmma::{Factor, by_warpgroups};
use super::{Code, Launch, Parameters, Place, Site, Stored};

/// The narrow type of a product's factors: `FactorType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Narrow {
    Bf16,
    F16,
}

impl Narrow {
    /// The one narrow type of two factors, to which the other one is rounded.
    pub fn of(factors: [Tensor; 2]) -> Result<Narrow, DeviceError> {
        match factors.map(|factor| factor.dtype) {
            [Dtype::Bf16, Dtype::Bf16 | Dtype::F32] | [Dtype::F32, Dtype::Bf16] => Ok(Narrow::Bf16),
            [Dtype::F16, Dtype::F16 | Dtype::F32] | [Dtype::F32, Dtype::F16] => Ok(Narrow::F16),
            [Dtype::F32, Dtype::F32]
            | [Dtype::Bf16, Dtype::F16]
            | [Dtype::F16, Dtype::Bf16]
            | [Dtype::I32 | Dtype::I64, _]
            | [_, Dtype::I32 | Dtype::I64] => {
                let what = format!("{factors:?} must have one narrow type to be multiplied in blocks");
                Err(DeviceError::Shape { op: "matrix", what })
            }
        }
    }
}

/// How a kernel loads an operand: `Loading`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Loading {
    Copied,
    ByElement,
    Rounded,
}

impl Loading {
    /// Bytes of a chunk that is copied at once.
    const CHUNK_BYTES: usize = 16;

    /// The loading of an operand at this place.
    pub fn of(operand: Tensor, place: Place) -> Loading {
        match operand.dtype {
            Dtype::F32 => Loading::Rounded,
            Dtype::Bf16 | Dtype::F16 | Dtype::I32 | Dtype::I64 => {
                let size = operand.dtype.size_bytes();
                if place.has_rows_at_multiples(Loading::CHUNK_BYTES, size) {
                    Loading::Copied
                } else {
                    Loading::ByElement
                }
            }
        }
    }
}

/// A square tile of the output, which a block computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tile {
    Of128,
    Of64,
}

impl Tile {
    /// Large tiles read less; small ones fill the GPU where there are few.
    pub fn of(site: &Site, rows: usize, cols: usize) -> Tile {
        let [rows, cols] = Tile::Of128.grid(rows, cols);
        if rows * cols >= site.multiprocessors as usize { Tile::Of128 } else { Tile::Of64 }
    }

    fn grid(self, rows: usize, cols: usize) -> [usize; 2] {
        let side = match self {
            Tile::Of128 => 128,
            Tile::Of64 => 64,
        };
        [rows.div_ceil(side), cols.div_ceil(side)]
    }

    /// A block for each tile of an output.
    pub fn shape(self, rows: usize, cols: usize) -> LaunchShape {
        let threads = match self {
            Tile::Of128 => 256,
            Tile::Of64 => 128,
        };
        let [rows, cols] = self.grid(rows, cols);
        LaunchShape { grid: [rows as u32, cols as u32, 1], block: [threads, 1, 1], shared_bytes: 0 }
    }

    fn kernel(self, orientation: Orientation, narrow: Narrow) -> &'static str {
        match (orientation, narrow, self) {
            (Orientation::Nt, Narrow::Bf16, Tile::Of128) => "mat_mul_blocks_nt_bf16_128",
            (Orientation::Nt, Narrow::Bf16, Tile::Of64) => "mat_mul_blocks_nt_bf16_64",
            (Orientation::Nt, Narrow::F16, Tile::Of128) => "mat_mul_blocks_nt_f16_128",
            (Orientation::Nt, Narrow::F16, Tile::Of64) => "mat_mul_blocks_nt_f16_64",
            (Orientation::Nn, Narrow::Bf16, Tile::Of128) => "mat_mul_blocks_nn_bf16_128",
            (Orientation::Nn, Narrow::Bf16, Tile::Of64) => "mat_mul_blocks_nn_bf16_64",
            (Orientation::Nn, Narrow::F16, Tile::Of128) => "mat_mul_blocks_nn_f16_128",
            (Orientation::Nn, Narrow::F16, Tile::Of64) => "mat_mul_blocks_nn_f16_64",
            (Orientation::Tn, Narrow::Bf16, Tile::Of128) => "mat_mul_blocks_tn_bf16_128",
            (Orientation::Tn, Narrow::Bf16, Tile::Of64) => "mat_mul_blocks_tn_bf16_64",
            (Orientation::Tn, Narrow::F16, Tile::Of128) => "mat_mul_blocks_tn_f16_128",
            (Orientation::Tn, Narrow::F16, Tile::Of64) => "mat_mul_blocks_tn_f16_64",
        }
    }
}

/// `Op::MatMul` in blocks of the GPU's tensor cores.
pub(super) fn in_blocks(site: &Site, product: Product) -> Result<Vec<Launch>, DeviceError> {
    let Product { orientation, a, b, bias, out, write } = product;
    let [_, _, type_of_out] = [Stored::of(a)?, Stored::of(b)?, Stored::of(out)?];
    let places = [site.matrix(a, a.dtype)?, site.matrix(b, b.dtype)?];
    let narrow = Narrow::of([a, b])?;
    let (bias, to) = (site.optional_dense(bias, out.dtype)?, site.matrix(out, out.dtype)?);
    let [m, n, k] = product.sizes()?;
    if out.is_empty() {
        return Ok(vec![]);
    }
    if site.code == Code::Of90 {
        let factors = [Factor { tensor: a, place: places[0] }, Factor { tensor: b, place: places[1] }];
        let accumulated = write == Write::Accumulate;
        let finish = |parameters: Parameters| {
            let parameters = parameters.place(bias).place(to).u32(k as u32);
            parameters.u32(narrow as u32).u32(type_of_out.number).flag(accumulated)
        };
        if let Some(launch) = by_warpgroups(site, &product, [m, n, k], narrow, factors, finish) {
            return Ok(vec![launch]);
        }
    }
    let tile = Tile::of(site, m, n);
    let parameters = Parameters::new()
        .place(places[0])
        .u32(Loading::of(a, places[0]) as u32)
        .place(places[1])
        .u32(Loading::of(b, places[1]) as u32)
        .place(bias)
        .place(to)
        .u32(type_of_out.number)
        .flag(write == Write::Accumulate);
    Ok(vec![Launch::new(tile.kernel(orientation, narrow), tile.shape(m, n), parameters)])
}
