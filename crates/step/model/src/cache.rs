//! Keys and values of the tokens before, so that a text is continued without computing it again.

use config::ModelSpec;
use device::{DeviceError, Dtype, Frame, Op, Tensor};

use crate::context::{Context, MicrobatchShape};

/// The cache of one unit for the key and value heads of this rank: of each sequence the first `capacity` tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeyValueCache {
    /// `[B * capacity, K d]`: as the softmax reads them, normed and rotated.
    keys: Tensor,
    /// `[B * capacity, K d]`.
    values: Tensor,
    capacity: usize,
    first: usize,
}

impl KeyValueCache {
    /// Lays out the cache of `sequences` sequences at the start of `frame`; the tokens of the next microbatch are those
    /// from place `first` of each sequence on.
    pub fn lay_out(frame: &Frame, model: &ModelSpec, tp: usize, cache_size: CacheSize, first: usize) -> KeyValueCache {
        let (rows, cols) = (cache_size.sequences * cache_size.capacity, model.num_kv_heads / tp * model.head_dim);
        KeyValueCache {
            keys: frame.tensor(rows, cols, cache_size.stored),
            values: frame.tensor(rows, cols, cache_size.stored),
            capacity: cache_size.capacity,
            first,
        }
    }

    /// Bytes that [`KeyValueCache::place`] takes.
    pub fn size_bytes(model: &ModelSpec, tp: usize, cache_size: CacheSize) -> usize {
        let frame = Frame::measuring();
        KeyValueCache::lay_out(&frame, model, tp, cache_size, 0);
        frame.peak_bytes()
    }

    /// All keys.
    pub(crate) fn keys(&self) -> Tensor {
        self.keys
    }

    /// All values.
    pub(crate) fn values(&self) -> Tensor {
        self.values
    }

    /// Adds the microbatch's keys and values `[T, K d]`.
    pub(crate) fn append(&self, context: &Context, k: Tensor, v: Tensor) -> Result<(), DeviceError> {
        let MicrobatchShape { sequences, sequence_length, slices: _ } = context.shape;
        for sequence in 0..sequences {
            let rows = sequence * sequence_length..(sequence + 1) * sequence_length;
            let start = sequence * self.capacity + self.first;
            for (from, cache) in [(k, self.keys), (v, self.values)] {
                let to = cache.rows_of(start..start + sequence_length);
                context.submit(Op::Copy { from: from.rows_of(rows.clone()), to })?;
            }
        }
        Ok(())
    }
}

/// Sizes of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSize {
    /// Sequences `B`.
    pub sequences: usize,
    /// Tokens of each that there is room for.
    pub capacity: usize,
    /// The type in which keys and values are stored.
    pub stored: Dtype,
}
