//! From an operation to the launches of its kernels: the one match over `Op` of this device.

mod activation;
mod adamw;
mod attention;
mod attention_blocks;
mod attention_library;
mod balance;
mod column_sum;
mod cross_entropy;
mod dropout;
mod element_wise;
mod embedding;
mod estimate;
mod experts;
mod fixed_point;
mod fused;
mod initialize;
mod join_attention;
mod mat_mul;
mod mat_mul_blocks;
mod mat_mul_blocks_activation;
mod mat_mul_library;
mod mat_mul_wgmma;
mod mat_mul_wgmma_activation;
mod norm;
mod parameters;
mod product_activation;
mod rotary;
mod rounded_sum;
mod soft_cap;
mod stored;

use config::Products;
use device::{DeviceError, Op};
use gpu::{Arguments, LaunchShape, TensorTiles};
use mat_mul::Product;

pub(crate) use attention_library::{LibraryAttention, library_attention};
pub(crate) use estimate::tiles_by_estimate;
pub(crate) use mat_mul_library::library_product;
pub use parameters::Tile as ProductTile;
pub(crate) use parameters::{Code, Parameters, Place, Site};
pub(crate) use stored::{ByType, Stored, by_type};

/// One launch of a kernel.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// The kernel, as `crate::kernels` lists it.
    pub entry: &'static str,
    /// Blocks and threads. They change no bit.
    pub shape: LaunchShape,
    /// Tensor maps that are its first arguments.
    pub maps: Vec<TensorTiles>,
    /// The arguments of the kernel after them.
    pub arguments: Arguments,
    /// A bit for each of these arguments that changes from step to step.
    pub changing: u64,
}

impl Launch {
    /// The kernel `entry` with these blocks, threads and parameters.
    pub fn new(entry: &'static str, shape: LaunchShape, parameters: Parameters) -> Launch {
        let (arguments, changing) = parameters.into_arguments();
        Launch { entry, shape, maps: vec![], arguments, changing }
    }

    /// The same launch with these tensor maps.
    pub fn with_maps(self, maps: Vec<TensorTiles>) -> Launch {
        Launch { maps, ..self }
    }
}

/// The launches of an operation, in order; none where there is nothing to compute. Every tensor is checked first.
///
/// # Errors
/// [`DeviceError::Shape`] and [`DeviceError::OutsideArena`].
pub(crate) fn launches(op: &Op, site: &Site) -> Result<Vec<Launch>, DeviceError> {
    match *op {
        Op::MatMul { orientation, a, b, bias, out, write } => {
            mat_mul::mat_mul(site, Product { orientation, a, b, bias, out, write })
        }
        Op::ColumnSum { x, out } => column_sum::column_sum(site, x, out),
        Op::Norm { norm, x, weight, bias, y, stats } => norm::forward(site, norm, x, (weight, bias), y, stats),
        Op::NormBackwardInput { tensors, write } => norm::backward_input(site, tensors, write),
        Op::NormBackwardWeight { norm: _, x, stats, dy, dweight, dbias } => {
            norm::backward_weight(site, x, stats, dy, (dweight, dbias))
        }
        Op::RotaryTable { cos, sin, base, scaling } => rotary::table(site, cos, sin, base, scaling),
        Op::Rotary { x, head_dim, positions, cos, sin, pairing, direction } => {
            rotary::turn(site, (x, head_dim), positions, (cos, sin), pairing, direction)
        }
        Op::Attention { operands } => attention::forward(site, &operands),
        Op::AttentionBackward { operands, gradients } => attention::backward(site, &operands, &gradients),
        Op::JoinAttention { part, part_log_sum_exp, out, log_sum_exp, head_dim, write } => {
            join_attention::join(site, [part, part_log_sum_exp], [out, log_sum_exp], head_dim, write)
        }
        Op::Activation { activation, x, y } => activation::forward(site, activation, x, y),
        Op::ActivationBackward { activation, x, dy, dx, y } => activation::backward(site, activation, x, dy, (dx, y)),
        Op::MatMulActivation { .. } | Op::MatMulActivationBackward { .. } => fused::launches_of_fused(site, op),
        Op::DropoutAdd { x, bias, residual, residual_scale, dropout, out } => {
            dropout::add(site, (x, bias), (residual, residual_scale), dropout, out)
        }
        Op::DropoutBackward { dy, dropout, dx } => dropout::backward(site, dy, dropout, dx),
        Op::EmbeddingLookup { tokens, table, first_row, out, write } => {
            embedding::lookup(site, tokens, (table, first_row), out, write)
        }
        Op::EmbeddingBackward { tokens, dy, scale, first_row, untrained, dtable } => {
            embedding::backward(site, tokens, (dy, scale), first_row, untrained, dtable)
        }
        Op::RowMax { logits, valid_columns, out } => cross_entropy::row_max(site, logits, valid_columns, out),
        Op::SumExp { .. } => cross_entropy::sum_exp(site, op),
        Op::CrossEntropy { .. } => cross_entropy::cross_entropy(site, op),
        Op::AddRounded { x, rounding, into, write, refusals } => {
            rounded_sum::add(site, x, rounding, into, write, refusals)
        }
        Op::RoundedToSingle { sums, unit } => rounded_sum::to_single(site, sums, unit),
        Op::Accumulate { x, into } => element_wise::accumulate(site, x, into),
        Op::SoftCap { x, cap } => soft_cap::forward(site, x, cap),
        Op::SoftCapBackward { y, cap, gradient } => soft_cap::backward(site, y, cap, gradient),
        Op::ScaledSum { x, factor, into, keep } => element_wise::scaled_sum(site, (x, factor), (into, keep)),
        Op::Fill { out, value } => element_wise::fill(site, out, value),
        Op::Copy { from, to } => element_wise::copy(site, from, to),
        Op::InitializeNormal { .. } => initialize::normal(site, op),
        Op::SquaredSum { x, first_element, loss_scale, sums } => {
            fixed_point::squared_sum(site, x, first_element, loss_scale, sums)
        }
        Op::LossSum { loss, labels, sequences, sums } => fixed_point::loss_sum(site, loss, labels, sequences, sums),
        Op::ClipCoefficient { .. } => fixed_point::clip_coefficient(site, op),
        Op::AdamW { .. } => adamw::adamw(site, op),
        Op::Experts(ref op) => experts::experts(site, op),
        Op::Balance(ref op) => balance::balance(site, op),
    }
}

/// Refuses operands that do not fit together.
///
/// # Errors
/// [`DeviceError::Shape`] with the text of `what`.
pub(crate) fn require(holds: bool, op: &'static str, what: impl FnOnce() -> String) -> Result<(), DeviceError> {
    if holds { Ok(()) } else { Err(DeviceError::Shape { op, what: what() }) }
}

/// Blocks of `threads` threads for `count` independent elements, at most those that fill the GPU: threads continue
/// where a grid ends.
pub(crate) fn elements_shape(site: &Site, count: usize, threads: u32) -> LaunchShape {
    let blocks = count.div_ceil(threads as usize).min(most_blocks(site)).max(1);
    LaunchShape::linear(blocks as u32, threads)
}

/// Blocks of `threads` threads, a power of two, for the independent elements of a matrix: columns along x, rows along
/// y. At most those that fill the GPU, as in [`elements_shape`]. Blocks are a warp wide, or wider where at most an
/// eighth of the threads are idle.
pub(crate) fn matrix_shape(site: &Site, rows: usize, cols: usize, threads: u32) -> LaunchShape {
    let idle = |wide: u32| cols.next_multiple_of(wide as usize) - cols;
    let mut wide = u32::try_from(cols.next_power_of_two()).unwrap_or(threads).min(threads);
    while wide > WARP && idle(wide) > cols / 8 {
        wide /= 2;
    }
    let block = [wide, threads / wide, 1];
    let grid_x = cols.div_ceil(wide as usize).clamp(1, most_blocks(site));
    let grid_y = rows.div_ceil(block[1] as usize).clamp(1, most_blocks(site).div_ceil(grid_x));
    LaunchShape { grid: [grid_x as u32, grid_y as u32, 1], block, shared_bytes: 0 }
}

/// Returns the same as [`matrix_shape`], for threads that have `count` neighbours each.
pub(crate) fn vectors_shape(site: &Site, rows: usize, cols: usize, count: usize, threads: u32) -> LaunchShape {
    matrix_shape(site, rows, cols.div_ceil(count), threads)
}

/// Threads of a warp.
const WARP: u32 = 32;

/// Blocks of up to 256 threads that fill the GPU eight times: the last ones end at about the same time.
fn most_blocks(site: &Site) -> usize {
    site.multiprocessors as usize * 64
}

/// An order of products without kernels.
pub(crate) fn other_products(op: &'static str, products: Products) -> DeviceError {
    DeviceError::Shape { op, what: format!("products in the order \"{}\" have no kernels", products.name()) }
}

/// For functions that take a whole operation, and are given another one than theirs.
pub(crate) fn other_op(op: &'static str, given: &Op) -> DeviceError {
    DeviceError::Shape { op, what: format!("{given:?} is another operation") }
}
