//! Attention: a block of threads per block of queries or tile of keys, head, range of channels and sequence.

use std::f32::consts::LOG2_E;

use config::{MAX_DROPOUT_HEADS, MAX_DROPOUT_KEYS, MAX_HEAD_DIM, Products};
use device::{AttentionGradients, AttentionOperands, AttentionShape, DeviceError, Dtype, Tensor};
use gpu::LaunchShape;

use super::{ByType, Launch, Parameters, Site, Stored, attention_blocks, by_type, other_products, require, soft_cap};

/// Queries of a block, as `kernels/attention.cuh` says.
const QUERIES: usize = 32;
/// Keys of a tile.
const KEYS: usize = 64;
/// The mask that keeps everything: a threshold of 0, and a factor of 1.
const NO_DROPOUT: [u32; 8] = [0, 0, 0, 0, 0, 0, 0, 1f32.to_bits()];
/// Keys for which a mask of dropout is drawn at once.
const KEYS_OF_MASK: usize = 4;
/// Most blocks of a launch along y and z.
const MAX_BLOCKS: usize = 65_535;

/// The factors of scores with products in blocks: one that rounds by itself, and one that makes powers of two of
/// scores. Scores without biases and soft caps need the second alone.
fn factors_in_blocks(o: &AttentionOperands) -> [f32; 2] {
    let (scale, is_changed) = (o.scale, o.alibi.is_some() || o.soft_cap.is_some());
    if !is_changed && scale > 0.0 { [1.0, scale * LOG2_E] } else { [scale, LOG2_E] }
}

/// `Op::Attention`
pub(super) fn forward(site: &Site, o: &AttentionOperands) -> Result<Vec<Launch>, DeviceError> {
    let pass = Pass::new("attention", site, o)?;
    if pass.tokens == 0 {
        return Ok(vec![]);
    }
    if pass.is_in_blocks()? {
        return attention_blocks::forward(&pass);
    }
    let (entry, ranges) = pass.kernel([by_type!("attention_64"), by_type!("attention_128")]);
    let parameters =
        pass.inputs()?.place(site.matrix(o.out, pass.stored.dtype)?).place(site.matrix(o.log_sum_exp, Dtype::F32)?);
    let shape = pass.shape(o.shape.sequence_length.div_ceil(QUERIES), o.shape.heads * ranges, 128)?;
    Ok(vec![Launch::new(entry, shape, parameters)])
}

/// `Op::AttentionBackward`. The gradients are summed in registers, so `key_sums` is not written.
pub(super) fn backward(site: &Site, o: &AttentionOperands, g: &AttentionGradients) -> Result<Vec<Launch>, DeviceError> {
    let pass = Pass::new("attention_backward", site, o)?;
    let AttentionShape { sequence_length: length, heads, kv_heads, .. } = o.shape;
    pass.check_gradients(g)?;
    if pass.tokens == 0 {
        return Ok(vec![]);
    }
    if pass.is_in_blocks()? {
        return attention_blocks::backward(&pass, g);
    }
    let inputs = || -> Result<Parameters, DeviceError> {
        Ok(pass
            .inputs()?
            .place(site.matrix(o.out, pass.stored.dtype)?)
            .place(site.matrix(o.log_sum_exp, Dtype::F32)?)
            .place(site.matrix(g.dout, pass.stored.dtype)?))
    };
    let (entry, ranges) =
        pass.kernel([by_type!("attention_backward_queries_64"), by_type!("attention_backward_queries_128")]);
    let shape = pass.shape(length.div_ceil(QUERIES), heads * ranges, 128)?;
    let of_queries = Launch::new(entry, shape, inputs()?.place(site.matrix(g.dq, pass.stored.dtype)?));
    let (entry, ranges) =
        pass.kernel([by_type!("attention_backward_keys_64"), by_type!("attention_backward_keys_128")]);
    let shape = pass.shape(pass.keys.div_ceil(KEYS), kv_heads * ranges, 256)?;
    let of_keys = inputs()?.place(site.matrix(g.dk, pass.stored.dtype)?).place(site.matrix(g.dv, pass.stored.dtype)?);
    Ok(vec![of_queries, Launch::new(entry, shape, of_keys)])
}

/// Values that both passes have in common.
pub(super) struct Pass<'a> {
    pub op: &'static str,
    pub site: &'a Site,
    pub operands: &'a AttentionOperands,
    /// The type of queries, keys, values, outputs and their gradients.
    pub stored: Stored,
    pub tokens: usize,
    /// Per sequence.
    pub keys: usize,
}

impl<'a> Pass<'a> {
    /// Refuses sizes that contradict each other or exceed what the kernels can say.
    pub fn new(op: &'static str, site: &'a Site, o: &'a AttentionOperands) -> Result<Pass<'a>, DeviceError> {
        let AttentionShape { sequences, sequence_length: length, heads, kv_heads, head_dim } = o.shape;
        let tokens = sequences * length;
        let keys = o.k.rows / sequences.max(1);
        let pass = Pass { op, site, operands: o, stored: Stored::of(o.q)?, tokens, keys };
        let first_key = o.places.map_or(0, |places| places.first_key);
        let end = first_key + keys;
        require(kv_heads > 0 && heads.is_multiple_of(kv_heads), op, || {
            format!("{kv_heads} kv heads do not divide {heads} heads")
        })?;
        require((1..=MAX_HEAD_DIM).contains(&head_dim), op, || {
            format!("heads of {head_dim} channels; use at most {MAX_HEAD_DIM}")
        })?;
        require(keys >= length, op, || format!("{keys} keys per sequence for {length} queries"))?;
        require(end < 1 << 24, op, || format!("positions of {end} keys are not exact in f32"))?;
        pass.is("q", o.q, tokens, heads)?;
        pass.is("k", o.k, sequences * keys, kv_heads)?;
        pass.is("v", o.v, sequences * keys, kv_heads)?;
        pass.is("out", o.out, tokens, heads)?;
        require((o.log_sum_exp.rows, o.log_sum_exp.cols) == (tokens, heads), op, || {
            format!("log_sum_exp {:?} is not [{tokens}, {heads}]", o.log_sum_exp)
        })?;
        require(o.visible.len() == 2 * tokens, op, || format!("{:?} is not {tokens} intervals", o.visible))?;
        if let Some(dropout) = &o.dropout {
            let heads = dropout.first_channel as usize + heads;
            require(end <= MAX_DROPOUT_KEYS, op, || format!("dropout does not tell {end} keys apart"))?;
            require(first_key.is_multiple_of(KEYS_OF_MASK), op, || {
                format!("dropout draws {KEYS_OF_MASK} keys at once, not from {first_key} on")
            })?;
            require(heads <= MAX_DROPOUT_HEADS, op, || format!("dropout does not tell {heads} heads apart"))?;
        }
        Ok(pass)
    }

    /// Whether products are in blocks: those of narrow tensors in such a run.
    fn is_in_blocks(&self) -> Result<bool, DeviceError> {
        match self.site.products {
            Products::Chained => Ok(false),
            Products::Blocks16 | Products::Blocks8 | Products::Device => Ok(self.stored.dtype != Dtype::F32),
            Products::Pairs => Err(other_products(self.op, self.site.products)),
        }
    }

    /// Refuses gradients of other sizes than their operands.
    pub fn check_gradients(&self, g: &AttentionGradients) -> Result<(), DeviceError> {
        let AttentionShape { sequences, heads, kv_heads, .. } = self.operands.shape;
        for (name, tensor) in [("dout", g.dout), ("dq", g.dq)] {
            self.is(name, tensor, self.tokens, heads)?;
        }
        for (name, tensor) in [("dk", g.dk), ("dv", g.dv)] {
            self.is(name, tensor, sequences * self.keys, kv_heads)?;
        }
        Ok(())
    }

    /// Refuses a tensor that is not `[rows, heads * head_dim]`.
    fn is(&self, name: &str, tensor: Tensor, rows: usize, heads: usize) -> Result<(), DeviceError> {
        let cols = heads * self.operands.shape.head_dim;
        require((tensor.rows, tensor.cols) == (rows, cols), self.op, || {
            format!("{name} {tensor:?} is not [{rows}, {cols}]")
        })
    }

    /// The kernel for heads of up to 64 channels or the one for ranges of 128, and the number of ranges of a head.
    fn kernel(&self, kernels: [ByType; 2]) -> (&'static str, usize) {
        let head_dim = self.operands.shape.head_dim;
        let (kernels, ranges) = if head_dim <= 64 { (kernels[0], 1) } else { (kernels[1], head_dim.div_ceil(128)) };
        (self.stored.kernel(kernels), ranges)
    }

    /// The first arguments of all kernels: `Sizes`, the intervals, the mask, queries, keys and values.
    pub fn inputs(&self) -> Result<Parameters, DeviceError> {
        let (site, o, stored) = (self.site, self.operands, self.stored);
        let AttentionShape { sequence_length, heads, kv_heads, head_dim, .. } = o.shape;
        let (first_head, alibi_heads) = o.alibi.map_or((0, 0), |alibi| (alibi.first_head, alibi.num_heads));
        let sizes = [sequence_length, self.keys, heads, kv_heads, head_dim].map(|size| size as u32);
        let places = [o.places.map_or(0, |places| places.first_key) as u32, u32::from(o.places.is_some())];
        let scalars = [o.scale.to_bits(), first_head as u32, alibi_heads as u32];
        let factors = factors_in_blocks(o).map(f32::to_bits);
        let sizes = [&sizes[..], &scalars, &places, &soft_cap::words(o.soft_cap), &factors].concat();
        let parameters = Parameters::new().words(&sizes).place(site.dense(o.visible, Dtype::I32)?);
        let masked = match o.dropout {
            Some(key) => parameters.dropout(key),
            None => parameters.words(&NO_DROPOUT),
        };
        Ok(masked
            .place(site.matrix(o.q, stored.dtype)?)
            .place(site.matrix(o.k, stored.dtype)?)
            .place(site.matrix(o.v, stored.dtype)?))
    }

    fn shape(&self, x: usize, y: usize, threads: u32) -> Result<LaunchShape, DeviceError> {
        let z = self.operands.shape.sequences;
        require(y <= MAX_BLOCKS && z <= MAX_BLOCKS, self.op, || {
            format!("{y} heads (or ranges of them) and {z} sequences; a GPU launches {MAX_BLOCKS} of each at most")
        })?;
        Ok(LaunchShape { grid: [x as u32, y as u32, z as u32], block: [threads, 1, 1], shared_bytes: 0 })
    }
}
