//! Where the gradients of one head's keys and values of one sequence are summed.

use super::AttentionShape;
use super::backward::Backward;
use super::widened::Operand;
use crate::copy::Copy;
use crate::fill::fill;
use crate::instruction_set::InstructionSet;
use crate::lanes;
use crate::view::MatMut;

/// The longest sequence whose gradients are summed where they are stored. Rows of a head are a token apart, so they
/// fill few sets of the L2 cache: of 1,024 tokens of 2,304 numbers, keys, values and both gradients would need 32 lines
/// of each of these sets, which have 16.
pub(super) const SHORT: usize = 512;

/// Which of the two.
#[derive(Clone, Copy)]
pub(super) enum Sum {
    Keys,
    Values,
}

/// Sums of a key head, in the rows of its gradients where these are of `f32` and [`SHORT`], otherwise next to them
/// until all terms are in.
pub(super) struct KeySums {
    shape: AttentionShape,
    /// Per sequence.
    keys: usize,
    sequence: usize,
    kv_head: usize,
    /// Rows that have been made zero: each just before its first term, so that it is in cache for it.
    cleared: usize,
}

impl KeySums {
    /// Before any term.
    pub fn new(shape: AttentionShape, keys: usize, (sequence, kv_head): (usize, usize)) -> Self {
        Self { shape, keys, sequence, kv_head, cleared: 0 }
    }

    /// The sums of the rows up to `until`, zero if they have no terms yet.
    pub fn clear<E: Operand>(&mut self, until: usize, tensors: &mut Backward<'_, E>) {
        if until > self.cleared {
            let count = until - self.cleared;
            for sum in [Sum::Keys, Sum::Values] {
                fill(self.rows(sum, tensors).block(self.cleared, count, 0, self.shape.head_dim), 0.0);
            }
            self.cleared = until;
        }
    }

    /// All rows `[keys, head_dim]`.
    pub fn rows<'a, E: Operand>(&self, sum: Sum, tensors: &'a mut Backward<'_, E>) -> MatMut<'a> {
        let (keys, head_dim) = (self.keys, self.shape.head_dim);
        let (gradient, first) = match sum {
            Sum::Keys => (&mut tensors.dk, 0),
            Sum::Values => (&mut tensors.dv, keys),
        };
        self.own_rows(gradient).unwrap_or_else(|_| tensors.key_sums.block(first, keys, 0, head_dim))
    }

    /// Stores the sums after the last term.
    pub fn finish<E: Operand>(mut self, tensors: &mut Backward<'_, E>, instruction_set: InstructionSet) {
        let (keys, head_dim) = (self.keys, self.shape.head_dim);
        self.clear(keys, tensors);
        for (gradient, first) in [(&mut tensors.dk, 0), (&mut tensors.dv, keys)] {
            if let Err(to) = self.own_rows(gradient) {
                let from = tensors.key_sums.as_ref().block(first, keys, 0, head_dim);
                lanes::run(instruction_set, Copy { from, to });
            }
        }
    }

    /// The rows of a gradient, if they are those of its sums, and as an error if they are not.
    fn own_rows<'a, E: Operand>(&self, gradient: &'a mut MatMut<'_, E>) -> Result<MatMut<'a>, MatMut<'a, E>> {
        let (keys, head_dim) = (self.keys, self.shape.head_dim);
        let stored = gradient.block(self.sequence * keys, keys, self.kv_head * head_dim, head_dim);
        if keys > SHORT { Err(stored) } else { E::for_sums(stored) }
    }
}
