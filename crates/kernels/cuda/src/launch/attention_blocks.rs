//! Attention with products in blocks: kernels/attention_blocks*.cu.

use device::{AttentionGradients, AttentionOperands, AttentionShape, DeviceError, Dtype};
use gpu::{Capability, LaunchShape};

use super::attention::Pass;
use super::{ByType, Launch, Parameters, Place, require};

/// Bytes of a number.
const NARROW_BYTES: usize = 2;
/// Bytes that are copied at once.
const VECTOR_BYTES: usize = 16;
/// Where rows begin that warpgroups multiply.
const PANEL_ALIGNMENT: usize = 1024;
/// Most blocks of a launch along y.
const MAX_BLOCKS: usize = 65_535;
/// Threads of a block that sums `dout . out`, one for each query of a head.
const THREADS_OF_DELTA: usize = 256;

/// A kernel for heads of at most N channels. Its block has four or eight warps of sixteen rows each: queries, or
/// keys where sums run over queries.
#[derive(Clone, Copy, Debug)]
struct Kernel {
    entries: ByType,
    channels: usize,
    warps: usize,
    /// Rows of shared memory.
    staged: usize,
    /// The same where the code is by warpgroups, which compute capability 9.0 has; 0 if it is not.
    staged_by_warpgroups: usize,
}

impl Kernel {
    fn rows(self) -> usize {
        16 * self.warps
    }

    fn shared_bytes(self, capability: Capability) -> u32 {
        let row_bytes = self.channels * NARROW_BYTES;
        // A vector separates rows.
        let usual = self.staged * (row_bytes + VECTOR_BYTES);
        let by_warpgroups = self.staged_by_warpgroups * row_bytes + PANEL_ALIGNMENT;
        match (capability.major, capability.minor) {
            (9, 0) if self.staged_by_warpgroups > 0 => by_warpgroups as u32,
            _ => usual as u32,
        }
    }
}

/// The kernels of one purpose: for heads of up to 64 channels, of up to 128, and of more, which have a block for each
/// 128 of their channels.
#[derive(Clone, Copy, Debug)]
struct Kernels {
    /// Of attention without soft caps, biases and dropout.
    plain: [Kernel; 2],
    any: [Kernel; 2],
    wide: Kernel,
}

impl Kernels {
    /// The kernel, and the ranges of channels that a head has.
    fn of(self, o: &AttentionOperands) -> (Kernel, usize) {
        let head_dim = o.shape.head_dim;
        let is_plain = o.soft_cap.is_none() && o.alibi.is_none() && o.dropout.is_none();
        let narrow = if is_plain { self.plain } else { self.any };
        match head_dim {
            ..=64 => (narrow[0], 1),
            65..=128 => (narrow[1], 1),
            129.. => (self.wide, head_dim.div_ceil(self.wide.channels)),
        }
    }
}

/// `kernel!("name", channels, warps, rows of shared memory, the same by warpgroups)`
macro_rules! kernel {
    ($name:literal, $channels:literal, $warps:literal, $staged:literal) => {
        kernel!($name, $channels, $warps, $staged, 0)
    };
    ($name:literal, $channels:literal, $warps:literal, $staged:literal, $by_warpgroups:literal) => {
        Kernel {
            entries: ["", concat!($name, "_bf16"), concat!($name, "_f16")],
            channels: $channels,
            warps: $warps,
            staged: $staged,
            staged_by_warpgroups: $by_warpgroups,
        }
    };
}

/// Keys and values of a tile; by warpgroups queries, and keys and values of two tiles; a chunk of keys or values and of
/// queries.
const FORWARD: Kernels = Kernels {
    plain: [kernel!("attention_blocks_64", 64, 4, 256, 576), kernel!("attention_blocks_128", 128, 8, 256, 640)],
    any: [kernel!("attention_blocks_any_64", 64, 4, 256), kernel!("attention_blocks_any_128", 128, 8, 256)],
    wide: kernel!("attention_blocks_wide", 128, 4, 192),
};
/// Keys and values of two tiles of 64; chunks of keys, values, queries and output gradients.
const QUERIES: Kernels = Kernels {
    plain: [
        kernel!("attention_blocks_queries_64", 64, 4, 256, 384),
        kernel!("attention_blocks_queries_128", 128, 8, 256, 512),
    ],
    any: [
        kernel!("attention_blocks_queries_any_64", 64, 4, 256),
        kernel!("attention_blocks_queries_any_128", 128, 8, 256),
    ],
    wide: kernel!("attention_blocks_queries_wide", 128, 4, 256),
};
/// Keys and values of a tile of 64, queries and output gradients of two blocks of 32, or of one.
const KEYS: Kernels = Kernels {
    plain: [
        kernel!("attention_blocks_keys_64", 64, 4, 256, 384),
        kernel!("attention_blocks_keys_128", 128, 4, 256, 384),
    ],
    any: [kernel!("attention_blocks_keys_any_64", 64, 4, 256), kernel!("attention_blocks_keys_any_128", 128, 4, 256)],
    wide: kernel!("attention_blocks_keys_wide", 128, 4, 192),
};
const DELTA: ByType = ["", "attention_blocks_delta_bf16", "attention_blocks_delta_f16"];

/// `Op::Attention` of narrow tensors.
pub(super) fn forward(pass: &Pass<'_>) -> Result<Vec<Launch>, DeviceError> {
    let (site, o) = (pass.site, pass.operands);
    let out = site.matrix(o.out, pass.stored.dtype)?;
    let vectors = have_vectors(pass, &[out])?;
    let parameters = pass.inputs()?.place(out).place(site.matrix(o.log_sum_exp, Dtype::F32)?).flag(vectors);
    Ok(vec![launch(pass, FORWARD, (o.shape.heads, o.shape.sequence_length), parameters)?])
}

/// `Op::AttentionBackward` of narrow tensors. Until the gradients of queries are computed, their places hold what all
/// kernels need of each query.
pub(super) fn backward(pass: &Pass<'_>, g: &AttentionGradients) -> Result<Vec<Launch>, DeviceError> {
    let (site, o, dtype) = (pass.site, pass.operands, pass.stored.dtype);
    let AttentionShape { heads, kv_heads, sequence_length, .. } = o.shape;
    let [out, dout, dq, dk, dv] = [
        site.matrix(o.out, dtype)?,
        site.matrix(g.dout, dtype)?,
        site.matrix(g.dq, dtype)?,
        site.matrix(g.dk, dtype)?,
        site.matrix(g.dv, dtype)?,
    ];
    let vectors = have_vectors(pass, &[out, dout, dq, dk, dv])?;
    let log_sum_exp = site.matrix(o.log_sum_exp, Dtype::F32)?;
    let inputs = || -> Result<Parameters, DeviceError> {
        Ok(pass.inputs()?.place(out).place(log_sum_exp).place(dout).place(dq).flag(vectors))
    };
    let blocks = (pass.tokens * heads).div_ceil(THREADS_OF_DELTA);
    let delta = LaunchShape::linear(blocks as u32, THREADS_OF_DELTA as u32);
    let of_keys = inputs()?.place(dk).place(dv);
    Ok(vec![
        Launch::new(pass.stored.kernel(DELTA), delta, inputs()?),
        launch(pass, KEYS, (kv_heads, pass.keys), of_keys)?,
        launch(pass, QUERIES, (heads, sequence_length), inputs()?)?,
    ])
}

/// A block for each range of channels of each head of each sequence, and for each block of its rows.
fn launch(
    pass: &Pass<'_>,
    kernels: Kernels,
    (heads, rows): (usize, usize),
    parameters: Parameters,
) -> Result<Launch, DeviceError> {
    let sequences = pass.operands.shape.sequences;
    let (kernel, ranges) = kernels.of(pass.operands);
    let blocks = rows.div_ceil(kernel.rows());
    require(blocks <= MAX_BLOCKS, pass.op, || {
        format!("{rows} rows are {blocks} blocks of {}; a GPU launches {MAX_BLOCKS} at most", kernel.rows())
    })?;
    let grid = [(heads * sequences * ranges) as u32, blocks as u32, 1];
    let shared_bytes = kernel.shared_bytes(pass.site.capability);
    let shape = LaunchShape { grid, block: [32 * kernel.warps as u32, 1, 1], shared_bytes };
    Ok(Launch::new(pass.stored.kernel(kernel.entries), shape, parameters))
}

/// Whether all rows of heads begin at multiples of a vector and have whole ones.
fn have_vectors(pass: &Pass<'_>, others: &[Place]) -> Result<bool, DeviceError> {
    let (site, o, dtype) = (pass.site, pass.operands, pass.stored.dtype);
    let places = [site.matrix(o.q, dtype)?, site.matrix(o.k, dtype)?, site.matrix(o.v, dtype)?];
    let mut all = places.iter().chain(others);
    let has_whole = (o.shape.head_dim * NARROW_BYTES).is_multiple_of(VECTOR_BYTES);
    Ok(has_whole && all.all(|place| place.has_rows_at_multiples(VECTOR_BYTES, NARROW_BYTES)))
}
