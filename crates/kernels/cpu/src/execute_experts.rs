//! From an operation of experts to its kernel.

use std::ops::Range;

use device::{Bf16, DeviceError, Dtype, ExpertOp, ExpertRows, F16, Op, Orientation, Tensor, TokenRange};

use crate::execute::stored;
use crate::experts::{
    CombineRows, ExpertActivationBackward, GroupRows, Route, RouteBackward, expert_activation, gather_rows, group_rows,
};
use crate::parts;
use crate::share::Share;
use crate::worker::Worker;

/// Products of groups: the fields of [`ExpertOp::MatMul`].
#[derive(Clone, Copy)]
struct Groups {
    orientation: Orientation,
    a: Tensor,
    b: Tensor,
    out: Tensor,
    rows: ExpertRows,
    tokens: Option<TokenRange>,
    write: device::Write,
}

impl Worker {
    /// Runs `op` to its end.
    pub(crate) fn execute_experts(&self, op: &ExpertOp) -> Result<(), DeviceError> {
        match *op {
            ExpertOp::Route { logits, correction, routing, choice, weights } => {
                let correction = correction.map(|correction| self.reals(correction)).transpose()?;
                let (logits, weights) = (self.matrix(logits)?, self.matrix_mut(weights)?);
                self.run(Route { logits, correction, routing, choice: self.ints_mut(choice)?, weights });
            }
            ExpertOp::RouteBackward { logits, routing, choice, dweights, dlogits } => {
                let (logits, dweights) = (self.matrix(logits)?, self.matrix(dweights)?);
                let (choice, dlogits) = (self.ints(choice)?, self.matrix_mut(dlogits)?);
                self.run(RouteBackward { logits, routing, choice, dweights, dlogits });
            }
            ExpertOp::GroupRows { choice, first_expert, rows } => {
                let (choice, places) = (self.ints(choice)?, self.ints_mut(rows.places)?);
                let (slots, offsets) = (self.ints_mut(rows.slots)?, self.ints_mut(rows.offsets)?);
                group_rows(GroupRows { choice, first_expert, places, slots, offsets, ranks: rows.offsets.rows });
            }
            ExpertOp::GatherRows { from, rows, to } => stored!(E of from => {
                gather_rows(self.matrix::<E>(from)?, self.ints(rows.places)?, self.matrix_mut(to)?);
            }),
            ExpertOp::MatMul { .. } => self.execute_groups(op, Share { index: 0, number: 1 })?,
            ExpertOp::CombineRows { y, weights, rows, out, write } => stored!(E of y => {
                let weights = weights.map(|weights| self.matrix(weights)).transpose()?;
                let (y, places, out) = (self.matrix::<E>(y)?, self.ints(rows.places)?, self.matrix_mut(out)?);
                self.run(CombineRows { y, weights, places, out, write });
            }),
            ExpertOp::Activation { activation, x, y, rows } => stored!(E of x => {
                let (x, y, places) = (self.matrix::<E>(x)?, self.matrix_mut(y)?, self.ints(rows.places)?);
                expert_activation(activation, x, y, places, self.instruction_set);
            }),
            ExpertOp::ActivationBackward { activation, x, dy, weights, dx, y, dweights, rows } => stored!(E of x => {
                let (x, dy, weights) = (self.matrix::<E>(x)?, self.matrix(dy)?, self.matrix(weights)?);
                let (dx, y, dweights) = (self.matrix_mut(dx)?, self.matrix_mut(y)?, self.matrix_mut(dweights)?);
                let places = self.ints(rows.places)?;
                self.run(ExpertActivationBackward { activation, x, dy, weights, dx, y, dweights, places });
            }),
        }
        Ok(())
    }

    /// Multiplies a share of every group of [`ExpertOp::MatMul`], as threads share a product: along its longer side.
    /// Shares of neighbouring groups differ, for one that is small has fewer of them than there are threads.
    pub(crate) fn execute_groups(&self, op: &ExpertOp, share: Share) -> Result<(), DeviceError> {
        let ExpertOp::MatMul { orientation, a, b, out, rows, tokens, write } = *op else { return Ok(()) };
        let groups = Groups { orientation, a, b, out, rows, tokens, write };
        for group in 0..rows.groups() {
            let share = Share { index: (share.index + group) % share.number, ..share };
            if let Some(part) = parts::product(&groups.product(group, self.rows_of(&groups, group)?), share) {
                self.execute(&part)?;
            }
        }
        Ok(())
    }

    /// The rows of a group that take part.
    fn rows_of(&self, groups: &Groups, group: usize) -> Result<Range<usize>, DeviceError> {
        let (offsets, per_token) = (self.ints(groups.rows.offsets)?, groups.rows.places.cols);
        let all = offsets[group] as usize..offsets[group + 1] as usize;
        let Some(TokenRange { start, end }) = groups.tokens else { return Ok(all) };
        let slots = &self.ints(groups.rows.slots)?[all.clone()];
        let before = |token: usize| all.start + slots.partition_point(|slot| (*slot as usize) < token * per_token);
        Ok(before(start)..before(end))
    }
}

impl Groups {
    /// The product of a group's `rows` with its matrix.
    fn product(&self, group: usize, rows: Range<usize>) -> Op {
        let count = self.rows.groups();
        let own = |tensor: Tensor| {
            let size = tensor.rows / count;
            tensor.rows_of(group * size..(group + 1) * size)
        };
        let a = self.a.rows_of(rows.clone());
        let (b, out) = match self.orientation {
            Orientation::Nt | Orientation::Nn => (own(self.b), self.out.rows_of(rows)),
            Orientation::Tn => (self.b.rows_of(rows), own(self.out)),
        };
        Op::MatMul { orientation: self.orientation, a, b, bias: None, out, write: self.write }
    }
}
