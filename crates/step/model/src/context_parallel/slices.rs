//! The rows of a microbatch on one rank, and the places in sequences that they have.

use std::ops::Range;

use device::{DeviceError, Op, Tensor};

use crate::context::{Context, MicrobatchShape};

/// Consecutive tokens of one sequence, and their consecutive rows.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenRun {
    /// Rows of the microbatch on the rank that has them.
    pub rows: Range<usize>,
    /// Which sequence of the microbatch.
    pub sequence: usize,
    pub places: Range<usize>,
}

impl TokenRun {
    /// The part of the run in `held` rows.
    pub fn within(&self, held: &Range<usize>) -> Option<TokenRun> {
        let rows = self.rows.start.max(held.start)..self.rows.end.min(held.end);
        let first = self.places.start + rows.start.saturating_sub(self.rows.start);
        let places = first..first + rows.len();
        (!rows.is_empty()).then_some(TokenRun { rows, places, ..*self })
    }

    /// Rows of the run among those of all ranks, sequence after sequence.
    pub fn rows_of_all(&self, sequence_length: usize) -> Range<usize> {
        let first = self.sequence * sequence_length;
        first + self.places.start..first + self.places.end
    }
}

impl MicrobatchShape {
    /// The tokens of the rank at `position` of those that share sequences, in the order of its rows.
    pub fn runs(self, position: usize) -> impl Iterator<Item = TokenRun> + use<> {
        let chunks = (0..self.sequences).flat_map(move |sequence| {
            self.slices.chunks(self.sequence_length, position).map(move |places| (sequence, places))
        });
        chunks.scan(0, |row, (sequence, places)| {
            let rows = *row..*row + places.len();
            *row = rows.end;
            Some(TokenRun { rows, sequence, places })
        })
    }
}

/// Copies `parts[cp T, C]`, the rows of one rank below those of the one before, to `all[B S, C]` in the order of
/// places.
pub(crate) fn in_order(context: &Context, parts: Tensor, all: Tensor) -> Result<(), DeviceError> {
    each_run(context, |of_part, of_all| {
        context.submit(Op::Copy { from: parts.rows_of(of_part), to: all.rows_of(of_all) })
    })
}

/// Copies `all[B S, C]` to `parts[cp T, C]`: the reverse of [`in_order`].
pub(crate) fn by_rank(context: &Context, all: Tensor, parts: Tensor) -> Result<(), DeviceError> {
    each_run(context, |of_part, of_all| {
        context.submit(Op::Copy { from: all.rows_of(of_all), to: parts.rows_of(of_part) })
    })
}

fn each_run(
    context: &Context,
    mut copy: impl FnMut(Range<usize>, Range<usize>) -> Result<(), DeviceError>,
) -> Result<(), DeviceError> {
    let (shape, tokens) = (context.shape, context.shape.tokens());
    for position in 0..shape.slices.ranks {
        for run in shape.runs(position) {
            let first = position * tokens;
            copy(first + run.rows.start..first + run.rows.end, run.rows_of_all(shape.sequence_length))?;
        }
    }
    Ok(())
}
