//! Norms of queries and keys: of each head, or of all heads of a token together.
//!
//! A norm over all heads needs a token's columns of every tensor-parallel rank. They are gathered, and each rank norms
//! whole rows and keeps the columns of its own heads: `(H + K) d` numbers of each token travel once in the forward pass
//! and twice in the backward pass. Sums over a row so have the order, and the bits, of one rank.

use std::ops::Range;

use config::{Norm, NormKind, QkNorm};
use device::{AttentionShape, DeviceError, NormBackward, Op, Tensor, Write};

use crate::binding::QkNormParams;
use crate::context::Context;
use crate::gradient_sums::{Contributions, clear, sum_contributions};
use crate::saved::SavedFrames;

/// Values that the backward passes of norms of queries and keys read, besides their input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct QkNormSaved {
    /// `[T, (H + K) d]`: normed and rotated queries and keys.
    pub(crate) normed: Tensor,
    /// `[N T, 2]`: norm after norm, with one for each of `H + K` heads, or one for queries and one for keys.
    stats: Tensor,
}

impl QkNormSaved {
    /// Lays out the set; nothing for a model without such norms.
    pub(crate) fn lay_out(core: SavedFrames, context: &Context, shape: &AttentionShape) -> Option<QkNormSaved> {
        let (tokens, heads) = (context.shape.tokens(), shape.heads + shape.kv_heads);
        let norms = match context.model.qk_norm {
            QkNorm::Off => return None,
            QkNorm::Heads => heads,
            QkNorm::Whole => 2,
        };
        Some(QkNormSaved {
            normed: context.activation(core.until_input, tokens, heads * shape.head_dim),
            stats: core.until_weight.floats(norms * tokens, 2),
        })
    }
}

/// The norms of one layer's queries and keys on the heads of this rank.
pub(crate) struct QkNorms<'a> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) shape: AttentionShape,
    /// The weights, or their gradient accumulators.
    pub(crate) params: &'a QkNormParams,
}

/// Columns of this rank that one norm reads, which may be some of those that it is over.
struct Normed {
    /// Its number among the norms.
    index: usize,
    /// Columns of queries and keys.
    columns: Range<usize>,
    /// Of all its columns, those of this rank.
    own: Range<usize>,
    weight: Tensor,
}

impl Normed {
    fn of(&self, qk: Tensor) -> Tensor {
        qk.cols_of(self.columns.clone())
    }

    fn stats(&self, saved: &QkNormSaved, tokens: usize) -> Tensor {
        saved.stats.rows_of(self.index * tokens..(self.index + 1) * tokens)
    }
}

impl QkNorms<'_> {
    /// `saved` assigned: the normed queries and keys of `qk[T, (H + K) d]` and their statistics.
    pub(crate) fn forward(&self, qk: Tensor, saved: &QkNormSaved) -> Result<(), DeviceError> {
        let (context, norm, tokens) = (self.context, self.norm(), self.context.shape.tokens());
        context.scratch.scoped(|| {
            let gathered = self.gathered([qk.cols_of(0..self.width())])?;
            for part in self.parts() {
                let (y, stats, weight) = (part.of(saved.normed), part.stats(saved, tokens), part.weight);
                match &gathered {
                    None => context.submit(Op::Norm { norm, x: part.of(qk), weight, bias: None, y, stats })?,
                    Some(gathered) => context.scratch.scoped(|| {
                        let x = self.whole(gathered, 0, &part)?;
                        let whole = context.activation(context.scratch, tokens, x.cols);
                        context.submit(Op::Norm { norm, x, weight, bias: None, y: whole, stats })?;
                        context.submit(Op::Copy { from: whole.cols_of(part.own.clone()), to: y })
                    })?,
                }
            }
            Ok(())
        })
    }

    /// `dx[T, (H + K) d]` assigned: the gradient of the norms' input `qk` from that of their outputs.
    pub(crate) fn backward_input(
        &self,
        qk: Tensor,
        saved: &QkNormSaved,
        dy: Tensor,
        dx: Tensor,
    ) -> Result<(), DeviceError> {
        let (context, tokens) = (self.context, self.context.shape.tokens());
        let submit = |part: &Normed, [x, dy, dx]: [Tensor; 3]| {
            let (norm, weight, stats) = (self.norm(), part.weight, part.stats(saved, tokens));
            let tensors = NormBackward { norm, x, weight, stats, dy, dx };
            context.submit(Op::NormBackwardInput { tensors, write: Write::Assign })
        };
        context.scratch.scoped(|| {
            let gathered = self.gathered([qk.cols_of(0..self.width()), dy.cols_of(0..self.width())])?;
            for part in self.parts() {
                let to = part.of(dx);
                match &gathered {
                    None => submit(&part, [part.of(qk), part.of(dy), to])?,
                    Some(gathered) => context.scratch.scoped(|| {
                        let (x, dy) = (self.whole(gathered, 0, &part)?, self.whole(gathered, 1, &part)?);
                        let whole = context.activation(context.scratch, tokens, x.cols);
                        submit(&part, [x, dy, whole])?;
                        context.submit(Op::Copy { from: whole.cols_of(part.own.clone()), to })
                    })?,
                }
            }
            Ok(())
        })
    }

    /// With weights as accumulators: = or += their gradients, summed over this rank's heads; the sum over tensor
    /// parallelism is the reduction's, as the parameters declare.
    pub(crate) fn backward_weight(
        &self,
        qk: Tensor,
        saved: &QkNormSaved,
        dy: Tensor,
        write: Write,
    ) -> Result<(), DeviceError> {
        let (context, norm, tokens) = (self.context, self.norm(), self.context.shape.tokens());
        if !context.trains_all() {
            return Ok(());
        }
        clear(context, self.params.query, write)?;
        clear(context, self.params.key, write)?;
        let contributions = Contributions::of_sequences(context);
        let contributions = match context.model.qk_norm {
            QkNorm::Off | QkNorm::Heads => contributions.of_each(context.model.num_heads),
            QkNorm::Whole => contributions,
        };
        for part in self.parts() {
            let (x, stats, dy) = (part.of(qk), part.stats(saved, tokens), part.of(dy));
            let weight = part.weight.elements(part.own.clone());
            sum_contributions(context, contributions, [weight], Write::Accumulate, |rows, [dweight], write| {
                clear(context, dweight, write)?;
                let (x, stats, dy) = (x.rows_of(rows.clone()), stats.rows_of(rows.clone()), dy.rows_of(rows));
                context.submit(Op::NormBackwardWeight { norm, x, stats, dy, dweight, dbias: None })
            })?;
        }
        Ok(())
    }

    fn norm(&self) -> Norm {
        let Norm { kind, epsilon } = self.context.model.norm;
        let kind = match kind {
            NormKind::Layer | NormKind::Rms => NormKind::Rms,
            NormKind::RmsPlusOne => NormKind::RmsPlusOne,
        };
        Norm { kind, epsilon }
    }

    /// Columns of queries and keys.
    fn width(&self) -> usize {
        (self.shape.heads + self.shape.kv_heads) * self.shape.head_dim
    }

    /// The norms: of query heads, then of key heads.
    fn parts(&self) -> Vec<Normed> {
        let AttentionShape { heads, kv_heads, head_dim, .. } = self.shape;
        let QkNormParams { query, key } = *self.params;
        match self.context.model.qk_norm {
            QkNorm::Off => vec![],
            // Every head has the width of the weight, so one operation norms one head: its columns of all tokens.
            QkNorm::Heads => {
                let part = |index: usize| Normed {
                    index,
                    columns: index * head_dim..(index + 1) * head_dim,
                    own: 0..head_dim,
                    weight: if index < heads { query } else { key },
                };
                (0..heads + kv_heads).map(part).collect()
            }
            QkNorm::Whole => {
                let (query_width, key_width) = (heads * head_dim, kv_heads * head_dim);
                let own = |width: usize| {
                    let first = self.context.tp.position() * width;
                    first..first + width
                };
                let columns = query_width..query_width + key_width;
                vec![
                    Normed { index: 0, columns: 0..query_width, own: own(query_width), weight: query },
                    Normed { index: 1, columns, own: own(key_width), weight: key },
                ]
            }
        }
    }

    /// The columns of `tensors` side by side, `[tp T, ..]`, rank below rank, in scratch; `None` where each norm's
    /// columns are on one rank.
    fn gathered<const N: usize>(&self, tensors: [Tensor; N]) -> Result<Option<Tensor>, DeviceError> {
        let (context, ranks, tokens) = (self.context, self.context.tp.size(), self.context.shape.tokens());
        if context.model.qk_norm != QkNorm::Whole || ranks == 1 {
            return Ok(None);
        }
        let (width, position) = (self.width(), context.tp.position());
        let all = context.activation(context.scratch, ranks * tokens, N * width);
        let own = all.rows_of(position * tokens..(position + 1) * tokens);
        for (index, from) in tensors.into_iter().enumerate() {
            context.submit(Op::Copy { from, to: own.cols_of(index * width..(index + 1) * width) })?;
        }
        context.tp.all_gather(context.stream, all)?;
        Ok(Some(all))
    }

    /// All columns that the norm of `part` is over, of the tensor number `index` of those that were gathered, in
    /// scratch.
    fn whole(&self, gathered: &Tensor, index: usize, part: &Normed) -> Result<Tensor, DeviceError> {
        let (context, ranks, tokens) = (self.context, self.context.tp.size(), self.context.shape.tokens());
        let (own, first) = (part.columns.len(), index * self.width() + part.columns.start);
        let whole = context.activation(context.scratch, tokens, ranks * own);
        for rank in 0..ranks {
            let from = gathered.rows_of(rank * tokens..(rank + 1) * tokens).cols_of(first..first + own);
            context.submit(Op::Copy { from, to: whole.cols_of(rank * own..(rank + 1) * own) })?;
        }
        Ok(whole)
    }
}
