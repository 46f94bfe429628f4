//! How an operation is cut into parts that threads run at once.
//!
//! A part is an operation itself, on some rows, columns, elements or heads of the whole one's tensors. Parts write
//! disjoint places, and what an element's value is computed from, and in which order, is the same in a part as in the
//! whole: the bits do not depend on the cut.

use std::ops::Range;

use config::SHARD_BLOCK;
use device::{
    Alibi, AttentionGradients, AttentionOperands, AttentionShape, DropoutKey, ExpertOp, LogitGradient, NormBackward,
    Op, Orientation, RowStatistics, Tensor, ZLoss,
};

use crate::share::Share;
use crate::{expert_parts, gemm};

/// Less work than this is done before another thread has taken its part: multiply-adds, and bytes moved.
const FEW_MULTIPLY_ADDS: u64 = 1 << 18;
const FEW_BYTES: u64 = 1 << 16;
/// A thread's share of less work than this is not cut once more.
const FEW_BYTES_OF_A_PART: u64 = 1 << 18;
const MOST_PARTS_PER_THREAD: u64 = 4;

/// Columns that a cut keeps together: a multiple of every tile's width and of a cache line.
const COLUMNS: usize = 64;
/// Elements that a cut keeps together: a cache line.
const ELEMENTS: usize = 16;

/// Whether `op` is worth a hand-off to other threads.
pub(crate) fn pays(op: &Op) -> bool {
    let cost = op.cost();
    cost.multiply_adds >= FEW_MULTIPLY_ADDS || cost.moved_bytes >= FEW_BYTES
}

/// Into how many parts `op` is cut for `threads` threads.
pub(crate) fn number(op: &Op, threads: usize) -> usize {
    match op {
        // A key head with its queries is not cut.
        Op::Attention { operands } | Op::AttentionBackward { operands, .. } => {
            operands.shape.sequences * operands.shape.kv_heads
        }
        // The operand that is not cut is packed for each part.
        Op::MatMul { .. } => threads,
        // Columns are read in strips: the wider, the better.
        Op::ColumnSum { .. } | Op::NormBackwardWeight { .. } | Op::EmbeddingBackward { .. } => threads,
        Op::RoundedToSingle { .. } | Op::LossSum { .. } | Op::ClipCoefficient { .. } | Op::RotaryTable { .. } => 1,
        // The operations that it stands for are cut, each by itself.
        Op::MatMulActivation { .. } | Op::MatMulActivationBackward { .. } => 1,
        // Counts meet in one place, and a token's losses are little next to its experts.
        Op::Balance(_) => 1,
        // Every thread has a share of each group.
        Op::Experts(ExpertOp::MatMul { .. }) => threads,
        Op::Experts(ExpertOp::GroupRows { .. }) => 1,
        Op::Experts(_)
        | Op::Norm { .. }
        | Op::NormBackwardInput { .. }
        | Op::Rotary { .. }
        | Op::JoinAttention { .. }
        | Op::Activation { .. }
        | Op::ActivationBackward { .. }
        | Op::DropoutAdd { .. }
        | Op::DropoutBackward { .. }
        | Op::EmbeddingLookup { .. }
        | Op::SoftCap { .. }
        | Op::SoftCapBackward { .. }
        | Op::RowMax { .. }
        | Op::SumExp { .. }
        | Op::CrossEntropy { .. }
        | Op::AddRounded { .. }
        | Op::Accumulate { .. }
        | Op::ScaledSum { .. }
        | Op::Fill { .. }
        | Op::Copy { .. }
        | Op::InitializeNormal { .. }
        | Op::SquaredSum { .. }
        | Op::AdamW { .. } => {
            // So that a thread that is slowed down leaves some to others.
            let parts = op.cost().moved_bytes / threads as u64 / FEW_BYTES_OF_A_PART;
            threads * parts.clamp(1, MOST_PARTS_PER_THREAD) as usize
        }
    }
}

/// The part of `op` for one of [`number`] shares; `None` where nothing is left for it.
pub(crate) fn part(op: &Op, share: Share) -> Option<Op> {
    Some(match *op {
        Op::MatMul { .. } => return product(op, share),
        Op::Attention { operands } => {
            let head = KeyHead::new(operands.shape, share);
            Op::Attention { operands: head.operands(operands) }
        }
        Op::AttentionBackward { operands, gradients } => {
            let head = KeyHead::new(operands.shape, share);
            Op::AttentionBackward { operands: head.operands(operands), gradients: head.gradients(gradients) }
        }
        Op::ColumnSum { x, out } => {
            let columns = share.of(x.cols, COLUMNS)?;
            Op::ColumnSum { x: x.cols_of(columns.clone()), out: out.elements(columns) }
        }
        Op::Norm { norm, x, weight, bias, y, stats } => {
            let rows = share.of(x.rows, 1)?;
            let stats = statistics(stats, x, &rows);
            Op::Norm { norm, x: x.rows_of(rows.clone()), weight, bias, y: y.rows_of(rows), stats }
        }
        Op::NormBackwardInput { tensors: NormBackward { norm, x, weight, stats, dy, dx }, write } => {
            let rows = share.of(x.rows, 1)?;
            let stats = statistics(stats, x, &rows);
            let (x, dy, dx) = (x.rows_of(rows.clone()), dy.rows_of(rows.clone()), dx.rows_of(rows));
            Op::NormBackwardInput { tensors: NormBackward { norm, x, weight, stats, dy, dx }, write }
        }
        // Where a row holds several heads, their sums meet in one column.
        Op::NormBackwardWeight { x, dweight, .. } if x.cols != dweight.len() => return share.whole(op),
        Op::NormBackwardWeight { norm, x, stats, dy, dweight, dbias } => {
            let columns = share.of(x.cols, COLUMNS)?;
            let (x, dy) = (x.cols_of(columns.clone()), dy.cols_of(columns.clone()));
            let dbias = dbias.map(|dbias| dbias.elements(columns.clone()));
            Op::NormBackwardWeight { norm, x, stats, dy, dweight: dweight.elements(columns), dbias }
        }
        Op::Rotary { x, head_dim, positions, cos, sin, pairing, direction } => {
            let rows = share.of(x.rows, 1)?;
            let (x, positions) = (x.rows_of(rows.clone()), positions.elements(rows));
            Op::Rotary { x, head_dim, positions, cos, sin, pairing, direction }
        }
        Op::JoinAttention { part, part_log_sum_exp, out, log_sum_exp, head_dim, write } => {
            let rows = share.of(out.rows, 1)?;
            let [part, part_log_sum_exp, out, log_sum_exp] =
                [part, part_log_sum_exp, out, log_sum_exp].map(|tensor| tensor.rows_of(rows.clone()));
            Op::JoinAttention { part, part_log_sum_exp, out, log_sum_exp, head_dim, write }
        }
        Op::Activation { activation, x, y } => {
            let rows = share.of(x.rows, 1)?;
            Op::Activation { activation, x: x.rows_of(rows.clone()), y: y.rows_of(rows) }
        }
        Op::ActivationBackward { activation, x, dy, dx, y } => {
            let rows = share.of(x.rows, 1)?;
            let [x, dy, dx, y] = [x, dy, dx, y].map(|tensor| tensor.rows_of(rows.clone()));
            Op::ActivationBackward { activation, x, dy, dx, y }
        }
        Op::DropoutAdd { x, bias, residual, residual_scale, dropout, out } => {
            let rows = share.of(out.rows, 1)?;
            let residual = residual.map(|residual| residual.rows_of(rows.clone()));
            let dropout = dropout.map(|key| moved(key, rows.start));
            let x = x.rows_of(rows.clone());
            Op::DropoutAdd { x, bias, residual, residual_scale, dropout, out: out.rows_of(rows) }
        }
        Op::DropoutBackward { dy, dropout, dx } => {
            let rows = share.of(dx.rows, 1)?;
            let dropout = moved(dropout, rows.start);
            Op::DropoutBackward { dy: dy.rows_of(rows.clone()), dropout, dx: dx.rows_of(rows) }
        }
        Op::EmbeddingLookup { tokens, table, first_row, out, write } => {
            let rows = share.of(out.rows, 1)?;
            let (tokens, out) = (tokens.elements(rows.clone()), out.rows_of(rows));
            Op::EmbeddingLookup { tokens, table, first_row, out, write }
        }
        Op::EmbeddingBackward { tokens, dy, scale, first_row, untrained, dtable } => {
            let columns = share.of(dy.cols, COLUMNS)?;
            let (dy, dtable) = (dy.cols_of(columns.clone()), dtable.cols_of(columns));
            Op::EmbeddingBackward { tokens, dy, scale, first_row, untrained, dtable }
        }
        Op::RowMax { logits, valid_columns, out } => {
            let rows = share.of(logits.rows, 1)?;
            Op::RowMax { logits: logits.rows_of(rows.clone()), valid_columns, out: out.elements(rows) }
        }
        Op::SumExp { logits, valid_columns, max, labels, first_row, sums } => {
            let rows = share.of(logits.rows, 1)?;
            let [max, labels] = [max, labels].map(|tensor| tensor.elements(rows.clone()));
            let (logits, sums) = (logits.rows_of(rows.clone()), sums.rows_of(rows));
            Op::SumExp { logits, valid_columns, max, labels, first_row, sums }
        }
        Op::CrossEntropy { logits, .. } => losses_of(op, share.of(logits.rows, 1)?),
        Op::AddRounded { x, rounding, into, write, refusals } => {
            let [x, into] = cells([x, into], share)?;
            Op::AddRounded { x, rounding, into, write, refusals }
        }
        Op::Accumulate { x, into } => {
            let [x, into] = cells([x, into], share)?;
            Op::Accumulate { x, into }
        }
        Op::ScaledSum { x, factor, into, keep } => {
            let [x, into] = cells([x, into], share)?;
            Op::ScaledSum { x, factor, into, keep }
        }
        Op::SoftCap { x, cap } => {
            let [x] = cells([x], share)?;
            Op::SoftCap { x, cap }
        }
        Op::SoftCapBackward { y, cap, gradient } => {
            let [y, gradient] = cells([y, gradient], share)?;
            Op::SoftCapBackward { y, cap, gradient }
        }
        Op::Fill { out, value } => {
            let [out] = cells([out], share)?;
            Op::Fill { out, value }
        }
        Op::Copy { from, to } => {
            let [from, to] = cells([from, to], share)?;
            Op::Copy { from, to }
        }
        Op::InitializeNormal { out, seed, parameter, std, first_row, first_col, global_cols } => {
            let rows = share.of(out.rows, 1)?;
            let (first_row, out) = (first_row + rows.start, out.rows_of(rows));
            Op::InitializeNormal { out, seed, parameter, std, first_row, first_col, global_cols }
        }
        Op::SquaredSum { x, first_element, loss_scale, sums } => {
            // Blocks, which are rounded one by one, are counted from the start of the flat buffer.
            let before = first_element % SHARD_BLOCK;
            let blocks = share.of(before + x.len(), SHARD_BLOCK)?;
            let elements = blocks.start.max(before) - before..blocks.end - before;
            let first_element = first_element + elements.start;
            Op::SquaredSum { x: x.elements(elements), first_element, loss_scale, sums }
        }
        Op::AdamW { param, copy, grad, first_moment, second_moment, coefficient, update } => {
            let elements = share.of(param.len(), ELEMENTS)?;
            let part = |tensor: Tensor| tensor.elements(elements.clone());
            let [param, grad, first_moment, second_moment] = [param, grad, first_moment, second_moment].map(part);
            Op::AdamW { param, copy: copy.map(part), grad, first_moment, second_moment, coefficient, update }
        }
        Op::Experts(op) => Op::Experts(expert_parts::part(&op, share)?),
        // Sums shrink towards the first; words of one sum; a table that is filled once.
        Op::RoundedToSingle { .. } | Op::LossSum { .. } | Op::ClipCoefficient { .. } | Op::RotaryTable { .. } => {
            return share.whole(op);
        }
        Op::MatMulActivation { .. } | Op::MatMulActivationBackward { .. } | Op::Balance(_) => return share.whole(op),
    })
}

/// The losses of some rows.
pub(crate) fn losses_of(op: &Op, rows: Range<usize>) -> Op {
    let Op::CrossEntropy { logits, valid_columns, statistics, labels, first_row, gradient, loss, z_loss } = *op else {
        return *op;
    };
    let statistics = statistics.map(|RowStatistics { max, sums }| RowStatistics {
        max: max.elements(rows.clone()),
        sums: sums.rows_of(rows.clone()),
    });
    let gradient = gradient.map(|g| LogitGradient { into: g.into.rows_of(rows.clone()), ..g });
    let z_loss = z_loss.map(|z_loss| ZLoss { losses: z_loss.losses.elements(rows.clone()), ..z_loss });
    let [labels, loss] = [labels, loss].map(|tensor| tensor.elements(rows.clone()));
    let logits = logits.rows_of(rows);
    Op::CrossEntropy { logits, valid_columns, statistics, labels, first_row, gradient, loss, z_loss }
}

/// Rows or columns of a product, whichever are more: the operand that they do not cut is packed by every thread.
pub(crate) fn product(op: &Op, share: Share) -> Option<Op> {
    let Op::MatMul { orientation, a, b, bias, out, write } = *op else { return share.whole(op) };
    let (m, n, _) = gemm::sizes(orientation, [a, b].map(|operand| (operand.rows, operand.cols)));
    // A share of what does not fit together may fit.
    gemm::assert_fits((out.rows, out.cols), bias.map(|bias| bias.len()), (m, n));
    if out.rows >= out.cols {
        let rows = share.of(out.rows, 1)?;
        let a = match orientation {
            Orientation::Nt | Orientation::Nn => a.rows_of(rows.clone()),
            Orientation::Tn => a.cols_of(rows.clone()),
        };
        return Some(Op::MatMul { orientation, a, b, bias, out: out.rows_of(rows), write });
    }
    let columns = share.of(out.cols, COLUMNS)?;
    let b = match orientation {
        Orientation::Nt => b.rows_of(columns.clone()),
        Orientation::Nn | Orientation::Tn => b.cols_of(columns.clone()),
    };
    let bias = bias.map(|bias| bias.elements(columns.clone()));
    Some(Op::MatMul { orientation, a, b, bias, out: out.cols_of(columns), write })
}

/// The statistics of rows of `x`, of which each may be several rows of the norm.
fn statistics(stats: Tensor, x: Tensor, rows: &Range<usize>) -> Tensor {
    let heads = stats.rows / x.rows;
    stats.rows_of(rows.start * heads..rows.end * heads)
}

/// The mask of rows from `rows` on.
fn moved(key: DropoutKey, rows: usize) -> DropoutKey {
    DropoutKey { first_token: key.first_token + rows as u64, ..key }
}

/// Elements of tensors of one shape that are all dense, otherwise rows.
fn cells<const N: usize>(tensors: [Tensor; N], share: Share) -> Option<[Tensor; N]> {
    let Tensor { rows, cols, .. } = tensors[0];
    if tensors.iter().all(Tensor::is_dense) {
        let elements = share.of(rows * cols, ELEMENTS)?;
        return Some(tensors.map(|tensor| tensor.elements(elements.clone())));
    }
    let rows = share.of(rows, 1)?;
    Some(tensors.map(|tensor| tensor.rows_of(rows.clone())))
}

/// A key head of one sequence, with the queries that share it.
struct KeyHead {
    whole: AttentionShape,
    sequence: usize,
    kv_head: usize,
}

impl KeyHead {
    fn new(whole: AttentionShape, share: Share) -> KeyHead {
        KeyHead { whole, sequence: share.index / whole.kv_heads, kv_head: share.index % whole.kv_heads }
    }

    fn operands(&self, whole: AttentionOperands) -> AttentionOperands {
        AttentionOperands {
            shape: self.shape(),
            places: whole.places,
            q: self.queries(whole.q),
            k: self.keys(whole.k),
            v: self.keys(whole.v),
            visible: self.tokens(whole.visible),
            window: whole.window,
            scale: whole.scale,
            soft_cap: whole.soft_cap,
            alibi: self.alibi(whole.alibi),
            dropout: self.dropout(whole.dropout),
            out: self.queries(whole.out),
            log_sum_exp: self.statistics(whole.log_sum_exp),
        }
    }

    fn gradients(&self, whole: AttentionGradients) -> AttentionGradients {
        AttentionGradients {
            dout: self.queries(whole.dout),
            dq: self.queries(whole.dq),
            dk: self.keys(whole.dk),
            dv: self.keys(whole.dv),
            key_sums: self.sums(whole.key_sums),
        }
    }

    fn group(&self) -> usize {
        self.whole.heads / self.whole.kv_heads
    }

    fn shape(&self) -> AttentionShape {
        AttentionShape { sequences: 1, heads: self.group(), kv_heads: 1, ..self.whole }
    }

    /// The sequence's rows of a tensor that has equally many of each.
    fn tokens(&self, tensor: Tensor) -> Tensor {
        let rows = tensor.rows / self.whole.sequences;
        tensor.rows_of(self.sequence * rows..(self.sequence + 1) * rows)
    }

    fn columns(&self, tensor: Tensor, width: usize) -> Tensor {
        self.tokens(tensor).cols_of(self.kv_head * width..(self.kv_head + 1) * width)
    }

    fn queries(&self, tensor: Tensor) -> Tensor {
        self.columns(tensor, self.group() * self.whole.head_dim)
    }

    fn keys(&self, tensor: Tensor) -> Tensor {
        self.columns(tensor, self.whole.head_dim)
    }

    fn statistics(&self, tensor: Tensor) -> Tensor {
        self.columns(tensor, self.group())
    }

    /// The place of the head's sums among those of all.
    fn sums(&self, tensor: Tensor) -> Tensor {
        let (heads, index) =
            (self.whole.sequences * self.whole.kv_heads, self.sequence * self.whole.kv_heads + self.kv_head);
        let rows = tensor.rows / heads;
        tensor.rows_of(index * rows..(index + 1) * rows)
    }

    fn first_head(&self) -> usize {
        self.kv_head * self.group()
    }

    fn alibi(&self, alibi: Option<Alibi>) -> Option<Alibi> {
        alibi.map(|alibi| Alibi { first_head: alibi.first_head + self.first_head(), ..alibi })
    }

    fn dropout(&self, key: Option<DropoutKey>) -> Option<DropoutKey> {
        let first_head = self.first_head() as u32;
        let key = moved(key?, self.sequence * self.whole.sequence_length);
        Some(DropoutKey { first_channel: key.first_channel + first_head, ..key })
    }
}

#[cfg(test)]
mod tests {
    use device::{Dtype, Write};

    use super::*;

    #[test]
    fn a_product_is_cut_along_its_longer_side_if_that_pays() {
        let product = |rows: usize, cols: usize| {
            let [a, b, out] =
                [(rows, 64), (cols, 64), (rows, cols)].map(|(rows, cols)| Tensor::new(0, rows, cols, Dtype::F32));
            Op::MatMul { orientation: Orientation::Nt, a, b, bias: None, out, write: Write::Assign }
        };
        let sizes = |op: Op| -> Vec<(usize, usize)> {
            let parts = (0..2).filter_map(|index| part(&op, Share { index, number: number(&op, 2) }));
            parts
                .flat_map(|part| part.operands().writes().map(|out| (out.rows, out.cols)).collect::<Vec<_>>())
                .collect()
        };
        assert_eq!(sizes(product(301, 200)), [(150, 200), (151, 200)]);
        assert_eq!(sizes(product(100, 201)), [(100, 128), (100, 73)]);
        assert!(pays(&product(301, 200)) && !pays(&product(8, 8)));
    }
}
