//! Products of matrices in blocks: kernels/mat_mul_blocks.cu.

use device::{DeviceError, Dtype, Orientation, Tensor, Write};
use gpu::LaunchShape;

use super::mat_mul::Product;
use super::{Launch, Parameters, Place, Site};

/// The narrow type of a product's factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Narrow {
    Bf16,
    F16,
}

impl Narrow {
    /// The one narrow type of two factors, to which the other one is rounded.
    fn of(factors: [Tensor; 2]) -> Result<Narrow, DeviceError> {
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
enum Loading {
    Copied,
    ByElement,
    Rounded,
}

impl Loading {
    /// Bytes of a chunk that is copied at once.
    const CHUNK_BYTES: usize = 16;

    fn of(operand: Tensor, place: Place) -> Loading {
        match operand.dtype {
            Dtype::F32 => Loading::Rounded,
            Dtype::Bf16 | Dtype::F16 | Dtype::I32 | Dtype::I64 => {
                let size = operand.dtype.size_bytes();
                if place.has_rows_at_multiples(Loading::CHUNK_BYTES, size) { Loading::Copied } else { Loading::ByElement }
            }
        }
    }
}

/// A kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kernel {
    entry: &'static str,
    /// Rows and columns of the tile of a block.
    side: usize,
    threads: u32,
}

impl Kernel {
    /// Large tiles read less; small ones fill the GPU where there are few.
    fn of(orientation: Orientation, narrow: Narrow, has_many_tiles: bool) -> Kernel {
        let of_128 = |entry| Kernel { entry, side: 128, threads: 256 };
        let of_64 = |entry| Kernel { entry, side: 64, threads: 128 };
        match (orientation, narrow, has_many_tiles) {
            (Orientation::Nt, Narrow::Bf16, true) => of_128("mat_mul_blocks_nt_bf16_128"),
            (Orientation::Nt, Narrow::Bf16, false) => of_64("mat_mul_blocks_nt_bf16_64"),
            (Orientation::Nt, Narrow::F16, true) => of_128("mat_mul_blocks_nt_f16_128"),
            (Orientation::Nt, Narrow::F16, false) => of_64("mat_mul_blocks_nt_f16_64"),
            (Orientation::Nn, Narrow::Bf16, true) => of_128("mat_mul_blocks_nn_bf16_128"),
            (Orientation::Nn, Narrow::Bf16, false) => of_64("mat_mul_blocks_nn_bf16_64"),
            (Orientation::Nn, Narrow::F16, true) => of_128("mat_mul_blocks_nn_f16_128"),
            (Orientation::Nn, Narrow::F16, false) => of_64("mat_mul_blocks_nn_f16_64"),
            (Orientation::Tn, Narrow::Bf16, true) => of_128("mat_mul_blocks_tn_bf16_128"),
            (Orientation::Tn, Narrow::Bf16, false) => of_64("mat_mul_blocks_tn_bf16_64"),
            (Orientation::Tn, Narrow::F16, true) => of_128("mat_mul_blocks_tn_f16_128"),
            (Orientation::Tn, Narrow::F16, false) => of_64("mat_mul_blocks_tn_f16_64"),
        }
    }
}

/// The number of a type of real numbers: `OutputType`.
fn output_type(out: Tensor) -> Result<u32, DeviceError> {
    match out.dtype {
        Dtype::F32 => Ok(0),
        Dtype::Bf16 => Ok(1),
        Dtype::F16 => Ok(2),
        Dtype::I32 | Dtype::I64 => Err(out.not_real()),
    }
}

/// `Op::MatMul` in blocks of the GPU's tensor cores.
pub(super) fn in_blocks(site: &Site, product: Product) -> Result<Vec<Launch>, DeviceError> {
    let Product { orientation, a, b, bias, out, write } = product;
    let places = [site.real_matrix(a)?, site.real_matrix(b)?];
    let narrow = Narrow::of([a, b])?;
    let output_type = output_type(out)?;
    let bias = site.optional_dense(bias, out.dtype)?;
    let to = site.real_matrix(out)?;
    let [m, n, _] = product.sizes()?;
    if out.is_empty() {
        return Ok(vec![]);
    }
    let tiles = |side: usize| [m.div_ceil(side), n.div_ceil(side)];
    let [rows, cols] = tiles(128);
    let kernel = Kernel::of(orientation, narrow, rows * cols >= site.multiprocessors as usize);
    let parameters = Parameters::new()
        .place(places[0])
        .u32(Loading::of(a, places[0]) as u32)
        .place(places[1])
        .u32(Loading::of(b, places[1]) as u32)
        .place(bias)
        .place(to)
        .u32(output_type)
        .flag(write == Write::Accumulate);
    let [rows, cols] = tiles(kernel.side);
    let shape = LaunchShape { grid: [rows as u32, cols as u32, 1], block: [kernel.threads, 1, 1], shared_bytes: 0 };
    Ok(vec![Launch::new(kernel.entry, shape, parameters)])
}
