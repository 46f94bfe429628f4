//! How long kernels take on an accelerator.

use cluster::{Accelerator, Cluster};

use crate::attention_price::{AttentionSize, attention_ns};
use crate::kernel::{Kernel, Product, ProductFormat, ROW_BYTES, VECTOR_BYTES};

/// Rows and columns of the parts of a result that multiprocessors compute, one at a time each; those of the vendors'
/// libraries.
const TILES: [(usize, usize); 5] = [(256, 128), (128, 256), (128, 128), (128, 64), (64, 64)];

/// Parts into which a sum may be cut so that every multiprocessor has work.
const SPLITS: [usize; 5] = [1, 2, 4, 8, 16];

/// A multiprocessor brings a column of both operands into its registers in the time in which it multiplies this many
/// rows and columns. Half as large a tile so has half as much to do with each number that it reads.
const FEED: f64 = 24.0;

/// Nanoseconds of one kernel, without the gap after it.
pub fn kernel_ns(cluster: &Cluster, kernel: &Kernel) -> f64 {
    match *kernel {
        Kernel::Product(product) => product_ns(cluster, &product),
        Kernel::Attention { flops, pass, tokens, tiles, heads, head_dim, kernels, format } => {
            let size = AttentionSize { flops, tokens, tiles, heads, head_dim };
            attention_ns(cluster, pass, size, kernels, format)
        }
        Kernel::Memory { bytes } => memory_ns(cluster, bytes),
    }
}

/// Nanoseconds of kernels that follow each other, and of what is `between` them on the accelerator.
pub fn busy_ns(cluster: &Cluster, kernels: &[Kernel]) -> f64 {
    let gap_ns = 1000.0 * cluster.compute.kernel_gap_us;
    kernels.iter().map(|kernel| kernel_ns(cluster, kernel) + gap_ns).sum()
}

/// Nanoseconds of moving this many bytes.
pub(crate) fn memory_ns(cluster: &Cluster, bytes: f64) -> f64 {
    bytes / (cluster.accelerator.memory_gb_per_s * cluster.compute.memory_efficiency)
}

/// Floating-point operations per nanosecond of the whole accelerator, in products of this format.
pub fn peak_flops_per_ns(accelerator: &Accelerator, format: ProductFormat) -> f64 {
    let tflops = match format {
        ProductFormat::Half => accelerator.half_tflops,
        ProductFormat::Single => accelerator.single_tflops,
        ProductFormat::Tf32 => accelerator.tf32_tflops.unwrap_or(accelerator.single_tflops),
    };
    1000.0 * tflops
}

/// The fastest way of cutting a product: whole waves of tiles over the multiprocessors, each as long as its depth and
/// the time to fill and drain it; but no faster than its operands come from memory.
fn product_ns(cluster: &Cluster, product: &Product) -> f64 {
    let sums = TILES.iter().flat_map(|tile| SPLITS.map(|split| tiled_ns(cluster, product, *tile, split)));
    let fastest = sums.fold(f64::INFINITY, f64::min);
    fastest.max(memory_ns(cluster, product.moved_bytes()))
}

fn tiled_ns(cluster: &Cluster, product: &Product, (rows, cols): (usize, usize), split: usize) -> f64 {
    let multiprocessors = cluster.accelerator.multiprocessors as usize;
    let tiles = product.batch * product.m.div_ceil(rows) * product.n.div_ceil(cols) * split;
    let waves = tiles.div_ceil(multiprocessors) as f64;
    let depth = product.k as f64 / split as f64 + cluster.compute.tile_ramp_columns;
    let side = 2.0 * (rows * cols) as f64 / (rows + cols) as f64;
    let largest = 2.0 * (256 * 128) as f64 / (256 + 128) as f64;
    let fed = side / (side + FEED) * (largest + FEED) / largest;
    let aligned = match product.row_multiple_bytes {
        ROW_BYTES => 1.0,
        VECTOR_BYTES.. => cluster.compute.unaligned_efficiency,
        // Numbers one by one.
        _ => cluster.compute.unaligned_efficiency.powi(3),
    };
    let rate = peak_flops_per_ns(&cluster.accelerator, product.format) / multiprocessors as f64
        * cluster.compute.matrix_efficiency
        * fed
        * aligned;
    // Parts of a sum are written and read in single precision.
    let joined = if split > 1 { (8 * split * product.batch * product.m * product.n) as f64 } else { 0.0 };
    waves * depth * 2.0 * (rows * cols) as f64 / rate + memory_ns(cluster, joined)
}
