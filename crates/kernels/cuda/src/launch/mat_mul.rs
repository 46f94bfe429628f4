//! Products of matrices: kernels/mat_mul.cu.

use config::Products;
use device::{DeviceError, Orientation, Tensor, Write};
use gpu::LaunchShape;

use super::mat_mul_blocks::in_blocks;
use super::{Launch, Parameters, Site, Stored, other_products, require};

/// A product of two matrices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Product {
    pub orientation: Orientation,
    pub a: Tensor,
    pub b: Tensor,
    pub bias: Option<Tensor>,
    pub out: Tensor,
    pub write: Write,
}

impl Product {
    /// Rows and columns of the result, and steps of each sum.
    ///
    /// # Errors
    /// [`DeviceError::Shape`] where the tensors do not fit together.
    pub fn sizes(&self) -> Result<[usize; 3], DeviceError> {
        let Product { orientation, a, b, bias, out, write: _ } = *self;
        let (m, n, k, k_of_b) = match orientation {
            Orientation::Nt => (a.rows, b.rows, a.cols, b.cols),
            Orientation::Nn => (a.rows, b.cols, a.cols, b.rows),
            Orientation::Tn => (a.cols, b.cols, a.rows, b.rows),
        };
        let refuse = |holds: bool, what: &dyn Fn() -> String| require(holds, "mat_mul", what);
        refuse(k == k_of_b, &|| format!("{orientation:?} of {a:?} and {b:?}: K is {k} in a and {k_of_b} in b"))?;
        refuse((out.rows, out.cols) == (m, n), &|| format!("{out:?} is not the [{m}, {n}] of {a:?} and {b:?}"))?;
        refuse(bias.is_none_or(|bias| bias.len() == n), &|| format!("{bias:?} is not a bias of {n} columns"))?;
        Ok([m, n, k])
    }
}

/// `Op::MatMul`
pub(super) fn mat_mul(site: &Site, product: Product) -> Result<Vec<Launch>, DeviceError> {
    match site.products {
        Products::Chained => in_chains(site, product),
        // Of the device: those that its library does not have.
        Products::Blocks16 | Products::Blocks8 | Products::Device => in_blocks(site, product),
        Products::Pairs => Err(other_products("mat_mul", site.products)),
    }
}

/// Threads of a block.
const THREADS: u32 = 256;

/// The kernels of an orientation, which differ in the side of the tile that a block computes.
struct Tiles {
    of_128: &'static str,
    of_64: &'static str,
}

fn in_chains(site: &Site, product: Product) -> Result<Vec<Launch>, DeviceError> {
    let Product { orientation, a, b, bias, out, write } = product;
    let types = [Stored::of(a)?, Stored::of(b)?, Stored::of(out)?];
    let parameters = Parameters::new()
        .words(&types.map(|stored| stored.number))
        .place(site.matrix(a, a.dtype)?)
        .place(site.matrix(b, b.dtype)?)
        .place(site.optional_dense(bias, out.dtype)?)
        .place(site.matrix(out, out.dtype)?)
        .flag(write == Write::Accumulate);
    let [m, n, _] = product.sizes()?;
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
