//! Operations of mixtures of experts.
//!
//! Letters: `T` tokens of a microbatch, `E` experts, of which each token chooses `k`, one per slot; `G` experts of this
//! rank, each a group of rows; `R` rows, at least as many as tokens can choose experts of this rank.
//!
//! Choice and order are data: no operation needs the host to know how many rows an expert has. Bits of a row depend on
//! that row alone.

use config::{Activation, Routing};

use crate::op::{Family, Orientation, Write, out_if_accumulated};
use crate::operands::Operands;
use crate::{Op, Tensor};

/// One operation of a mixture of experts, see [`Op`]. Stored: tensors whose type is not said, but for `weights` and
/// `dweights`, which are F32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ExpertOp {
    /// `choice[T,k]` I32, the experts with the best choice scores, lower ones first among equals, in ascending order;
    /// and `weights[T,k]` of these. From `logits[T,E]` F32; `correction[1,E]` F32 is added to the choice scores alone.
    /// The choice score of an expert is its score plus its correction; without a correction, its logit, which has the
    /// order of the scores (but for groups with sigmoid scores, which are compared by sums).
    Route { logits: Tensor, correction: Option<Tensor>, routing: Routing, choice: Tensor, weights: Tensor },
    /// `dlogits[T,E]` F32 from `dweights[T,k]`: through the weights alone, for the choice has no gradient.
    RouteBackward { logits: Tensor, routing: Routing, choice: Tensor, dweights: Tensor, dlogits: Tensor },
    /// All tensors of `rows`, for experts `first_expert..first_expert + G`. Of `choice[T,k]`, experts of a token are in
    /// ascending order; numbers of none of these experts, also negative ones, have no row.
    GroupRows { choice: Tensor, first_expert: usize, rows: ExpertRows },
    /// `to[R,D]`: each row becomes that of its token in `from[T,D]`.
    GatherRows { from: Tensor, rows: ExpertRows, to: Tensor },
    /// Products of each group with its own matrix, see [`Orientation`]; the bits of [`Op::MatMul`] on the group.
    /// `Nt`: `out[R,N] = a[R,K] b[G N,K]^T`. `Nn`: `out[R,N] = a[R,K] b[G K,N]`. `Tn`: `out[G N,K] = a[R,N]^T b[R,K]`,
    /// the sum over the rows of a group; without rows it is zero. With `tokens`, other rows do not exist. Stored: `a`;
    /// `b`; `out`. Each of the three may have a type of its own.
    MatMul {
        orientation: Orientation,
        a: Tensor,
        b: Tensor,
        out: Tensor,
        rows: ExpertRows,
        tokens: Option<TokenRange>,
        write: Write,
    },
    /// `out[T,D]` = or += `sum over slots with a row of (weight *) y[R,D]`, in ascending order of slots, each step one
    /// fused multiply-add.
    CombineRows { y: Tensor, weights: Option<Tensor>, rows: ExpertRows, out: Tensor, write: Write },
    /// [`Op::Activation`] of each row of `x[R,F]` or `x[R,2F]`: `y[R,F]`.
    Activation { activation: Activation, x: Tensor, y: Tensor, rows: ExpertRows },
    /// Backward pass of an activation, a product with `W` and [`ExpertOp::CombineRows`] with `weights[T,k]`. From
    /// `dy[R,F] = dout W`, not yet multiplied by the weight `w` of the row: `dx` of the shape of `x` is that of
    /// [`Op::ActivationBackward`] for `w dy`; `y = w activation(x)`, the other factor in the gradient of `W`; and
    /// `dweights[T,k] = <dy, activation(x)>`, 0 for slots without a row.
    ActivationBackward {
        activation: Activation,
        x: Tensor,
        dy: Tensor,
        weights: Tensor,
        dx: Tensor,
        y: Tensor,
        dweights: Tensor,
        rows: ExpertRows,
    },
}

/// A row for each of a rank's experts that a token chose, sorted by expert, then by token. The number of rows is in
/// memory: operations neither read nor write rows after the last.
///
/// Where the experts are those of `r` ranks, equally many of each, the rows of a rank begin at a multiple of `R / r`:
/// they are a slice of `R / r` rows, of which the last may be unused. Such rows are gathered and combined, not
/// multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertRows {
    /// `[T,k]` I32: the row of each slot, -1 where the expert is another one.
    pub places: Tensor,
    /// `[1,R]` I32: the slot of each row, `token * k + slot`; -1 after the last, of each rank.
    pub slots: Tensor,
    /// `[r,G/r+1]` I32, of one rank `[1,G+1]`: the first row of each expert within its rank's slice, then the number of
    /// rows.
    pub offsets: Tensor,
    /// The number of rows where routing is balanced: the one that costs count.
    pub expected: usize,
}

/// Tokens `start..end` of a microbatch: their rows follow each other in every group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenRange {
    /// The first.
    pub start: usize,
    /// After the last.
    pub end: usize,
}

impl ExpertRows {
    /// Experts of a rank.
    pub fn groups(&self) -> usize {
        self.offsets.cols - 1
    }

    /// The same, of which `load` times as many rows are expected; no more than there is room for ever count.
    fn of_load(self, load: f64) -> ExpertRows {
        ExpertRows { expected: (self.expected as f64 * load).ceil() as usize, ..self }
    }

    /// The expected rows of `[R,_]`.
    fn of(&self, tensor: Tensor) -> Tensor {
        tensor.rows_of(0..self.expected.min(tensor.rows))
    }

    /// The rows of some tokens, or of all.
    fn of_tokens(&self, tensor: Tensor, tokens: Option<TokenRange>) -> Tensor {
        let all = self.of(tensor);
        let share = tokens.map(|range| (all.rows * (range.end - range.start)).div_ceil(self.places.rows.max(1)));
        all.rows_of(0..share.unwrap_or(all.rows))
    }
}

impl From<ExpertOp> for Op {
    fn from(op: ExpertOp) -> Op {
        Op::Experts(op)
    }
}

impl ExpertOp {
    /// See [`Op::name`].
    pub(crate) fn name(&self) -> &'static str {
        match self {
            ExpertOp::Route { .. } => "route",
            ExpertOp::RouteBackward { .. } => "route_backward",
            ExpertOp::GroupRows { .. } => "group_rows",
            ExpertOp::GatherRows { .. } => "gather_rows",
            ExpertOp::MatMul { .. } => "expert_mat_mul",
            ExpertOp::CombineRows { .. } => "combine_rows",
            ExpertOp::Activation { .. } => "expert_activation",
            ExpertOp::ActivationBackward { .. } => "expert_activation_backward",
        }
    }

    /// See [`Op::family`].
    pub(crate) fn family(&self) -> Family {
        match self.on_expected_rows() {
            ExpertOp::MatMul { orientation, a, b, out, rows, write, tokens: _ } => {
                Family::GroupedProduct { groups: rows.groups(), orientation, a, b, out, write }
            }
            ExpertOp::Activation { y, .. } => Family::Activation { y },
            ExpertOp::ActivationBackward { dy, .. } => Family::ActivationBackward { dy },
            ExpertOp::Route { .. } | ExpertOp::RouteBackward { .. } | ExpertOp::GroupRows { .. } => Family::Memory,
            ExpertOp::GatherRows { .. } | ExpertOp::CombineRows { .. } => Family::Memory,
        }
    }

    /// The operation as costs count it on a rank with `load` times the rows of balanced routing.
    #[must_use]
    pub fn of_load(self, load: f64) -> ExpertOp {
        let mut op = self;
        match &mut op {
            ExpertOp::Route { .. } | ExpertOp::RouteBackward { .. } => {}
            ExpertOp::GroupRows { rows, .. }
            | ExpertOp::GatherRows { rows, .. }
            | ExpertOp::MatMul { rows, .. }
            | ExpertOp::CombineRows { rows, .. }
            | ExpertOp::Activation { rows, .. }
            | ExpertOp::ActivationBackward { rows, .. } => *rows = rows.of_load(load),
        }
        op
    }

    /// The operation on as many rows as balanced routing gives.
    pub(crate) fn on_expected_rows(self) -> ExpertOp {
        match self {
            ExpertOp::Route { .. } | ExpertOp::RouteBackward { .. } | ExpertOp::GroupRows { .. } => self,
            ExpertOp::GatherRows { from, rows, to } => ExpertOp::GatherRows { from, rows, to: rows.of(to) },
            ExpertOp::MatMul { orientation, a, b, out, rows, tokens, write } => {
                let of = |tensor| rows.of_tokens(tensor, tokens);
                let (b, out) = match orientation {
                    Orientation::Nt | Orientation::Nn => (b, of(out)),
                    Orientation::Tn => (of(b), out),
                };
                ExpertOp::MatMul { orientation, a: of(a), b, out, rows, tokens, write }
            }
            ExpertOp::CombineRows { y, weights, rows, out, write } => {
                ExpertOp::CombineRows { y: rows.of(y), weights, rows, out, write }
            }
            ExpertOp::Activation { activation, x, y, rows } => {
                ExpertOp::Activation { activation, x: rows.of(x), y: rows.of(y), rows }
            }
            ExpertOp::ActivationBackward { activation, x, dy, weights, dx, y, dweights, rows } => {
                let [x, dy, dx, y] = [x, dy, dx, y].map(|tensor| rows.of(tensor));
                ExpertOp::ActivationBackward { activation, x, dy, weights, dx, y, dweights, rows }
            }
        }
    }

    /// See [`Op::operands`].
    pub(crate) fn operands(&self) -> Operands {
        match *self {
            ExpertOp::Route { logits, correction, choice, weights, .. } => {
                Operands::new([Some(logits), correction], [choice, weights].map(Some))
            }
            ExpertOp::RouteBackward { logits, choice, dweights, dlogits, .. } => {
                Operands::new([logits, choice, dweights].map(Some), [Some(dlogits)])
            }
            ExpertOp::GroupRows { choice, rows, .. } => {
                Operands::new([Some(choice)], [rows.places, rows.slots, rows.offsets].map(Some))
            }
            ExpertOp::GatherRows { from, rows, to } => Operands::new([from, rows.places].map(Some), [Some(to)]),
            ExpertOp::MatMul { a, b, out, rows, tokens, write, .. } => {
                let slots = tokens.map(|_| rows.slots);
                let [a, b, offsets] = [a, b, rows.offsets].map(Some);
                Operands::new([a, b, offsets, slots, out_if_accumulated(out, write)], [Some(out)])
            }
            ExpertOp::CombineRows { y, weights, rows, out, write } => {
                Operands::new([Some(y), weights, Some(rows.places), out_if_accumulated(out, write)], [Some(out)])
            }
            ExpertOp::Activation { x, y, rows, .. } => Operands::new([x, rows.places].map(Some), [Some(y)]),
            ExpertOp::ActivationBackward { x, dy, weights, dx, y, dweights, rows, .. } => {
                Operands::new([x, dy, weights, rows.places].map(Some), [dx, y, dweights].map(Some))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cost, Dtype};

    /// 40 tokens with 2 slots, 3 of 8 experts on this rank: 30 rows are expected, 80 are possible.
    const ROWS: ExpertRows = ExpertRows {
        places: tensor(40, 2, Dtype::I32),
        slots: tensor(1, 80, Dtype::I32),
        offsets: tensor(1, 4, Dtype::I32),
        expected: 30,
    };

    const fn tensor(rows: usize, cols: usize, dtype: Dtype) -> Tensor {
        Tensor { offset_bytes: 0, rows, cols, row_stride: cols, dtype }
    }

    #[test]
    fn products_cost_the_rows_of_balanced_routing() {
        let (inputs, outputs) = (10, 7);
        for (orientation, a, b, out, moved) in [
            (Orientation::Nt, (80, inputs), (3 * outputs, inputs), (80, outputs), 30 * 10 + 21 * 10 + 30 * 7),
            (Orientation::Nn, (80, outputs), (3 * outputs, inputs), (80, inputs), 30 * 7 + 21 * 10 + 30 * 10),
            (Orientation::Tn, (80, outputs), (80, inputs), (3 * outputs, inputs), 30 * 7 + 30 * 10 + 21 * 10),
        ] {
            let [a, b, out] = [a, b, out].map(|(rows, cols)| tensor(rows, cols, Dtype::F32));
            let op = ExpertOp::MatMul { orientation, a, b, out, rows: ROWS, tokens: None, write: Write::Assign };
            let multiply_adds = 30 * inputs as u64 * outputs as u64;
            let moved_bytes = 4 * (moved + ROWS.offsets.len()) as u64;
            assert_eq!(Op::from(op).cost(), Cost { multiply_adds, moved_bytes }, "{orientation:?}");
            assert!(op.operands().writes().eq([out]), "operands are whole");
        }
    }

    #[test]
    fn rows_move_as_many_as_are_expected() {
        let (tokens, rows) = (tensor(40, 6, Dtype::Bf16), tensor(80, 6, Dtype::Bf16));
        let gather = Op::from(ExpertOp::GatherRows { from: tokens, rows: ROWS, to: rows });
        assert_eq!(gather.cost(), Cost { multiply_adds: 0, moved_bytes: 2 * (40 + 30) * 6 + 40 * 2 * 4 });
        let (y, weights, out) = (rows, None, tokens);
        let combine = Op::from(ExpertOp::CombineRows { y, weights, rows: ROWS, out, write: Write::Accumulate });
        assert_eq!(combine.cost().moved_bytes, 2 * (30 + 40 + 40) * 6 + 40 * 2 * 4);
        let activation = Activation::SwiGlu;
        let wide = tensor(80, 12, Dtype::Bf16);
        let op = Op::from(ExpertOp::Activation { activation, x: wide, y: rows, rows: ROWS });
        assert_eq!(op.family(), Family::Activation { y: rows.rows_of(0..30) });
    }
}
