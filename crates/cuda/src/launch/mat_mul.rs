//! Products of matrices: kernels/mat_mul.cu.

use device::{DeviceError, Orientation, Tensor, Write};
use gpu::LaunchShape;

use super::{Launch, Parameters, Site, Stored, require};

/// Threads of a block.
const THREADS: u32 = 256;

/// The kernels of an orientation, which differ in the side of the tile that a block computes.
struct Tiles {
    of_128: &'static str,
    of_64: &'static str,
}

/// `Op::MatMul`
pub(super) fn mat_mul(
    site: &Site,
    orientation: Orientation,
    [a, b]: [Tensor; 2],
    bias: Option<Tensor>,
    out: Tensor,
    write: Write,
) -> Result<Vec<Launch>, DeviceError> {
    let (m, n, k, k_of_b) = match orientation {
        Orientation::Nt => (a.rows, b.rows, a.cols, b.cols),
        Orientation::Nn => (a.rows, b.cols, a.cols, b.rows),
        Orientation::Tn => (a.cols, b.cols, a.rows, b.rows),
    };
    let types = [Stored::of(a)?, Stored::of(b)?, Stored::of(out)?];
    let parameters = Parameters::new()
        .words(&types.map(|stored| stored.number))
        .place(site.matrix(a, a.dtype)?)
        .place(site.matrix(b, b.dtype)?)
        .place(site.optional_dense(bias, out.dtype)?)
        .place(site.matrix(out, out.dtype)?)
        .flag(write == Write::Accumulate);
    require(k == k_of_b, "mat_mul", || format!("{orientation:?} of {a:?} and {b:?}: K is {k} in a and {k_of_b} in b"))?;
    require((out.rows, out.cols) == (m, n), "mat_mul", || format!("{out:?} is not the [{m}, {n}] of {a:?} and {b:?}"))?;
    require(bias.is_none_or(|bias| bias.len() == n), "mat_mul", || format!("{bias:?} is not a bias of {n} columns"))?;
    if out.is_empty() {
        return Ok(vec![]);
    }
    let tiles = match orientation {
        Orientation::Nt => Tiles { of_128: "mat_mul_nt_128", of_64: "mat_mul_nt_64" },
        Orientation::Nn => Tiles { of_128: "mat_mul_nn_128", of_64: "mat_mul_nn_64" },
        Orientation::Tn => Tiles { of_128: "mat_mul_tn_128", of_64: "mat_mul_tn_64" },
    };
    let blocks = |side: usize| [m.div_ceil(side), n.div_ceil(side)];
    // Large tiles read less; small ones fill the GPU where there are few.
    let large = blocks(128);
    let (entry, [rows, cols]) = match large[0] * large[1] >= site.multiprocessors as usize {
        true => (tiles.of_128, large),
        false => (tiles.of_64, blocks(64)),
    };
    let shape = LaunchShape { grid: [rows as u32, cols as u32, 1], block: [THREADS, 1, 1], shared_bytes: 0 };
    Ok(vec![Launch::new(entry, shape, parameters)])
}
