//! How contributions of sequences to a gradient become a sum: in single precision, or exactly.

use std::ops::Range;

use config::GradientSums;
use device::{DeviceError, Op, Rounding, Tensor, Write};

use crate::Context;

/// The unit of an exact sum, for the gradient of the mean loss: 2^-50 (`docs/numerics.md`, "Exact sums").
const EXACT_UNIT: f32 = 1.0 / (1u64 << 50) as f32;

/// The terms of one element are together less than this many units, so a gradient is less than 2048. A tied table has
/// two uses and twice the range, which leaves 64 bits another factor of two for rounding.
const EXACT_RANGE: f32 = (1u64 << 61) as f32;

/// The type of accumulators of gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Accumulation {
    /// Numbers in single precision, to which an operation adds all rows of a microbatch in its own order.
    Single,
    /// Whole numbers, to which each term is added once it is rounded.
    Exact {
        /// The unit.
        unit: f32,
        /// Tokens of a step.
        tokens: usize,
    },
}

impl Accumulation {
    /// Sums of a step of `tokens` tokens, whose gradients are those of the mean loss times `loss_scale`, a power of
    /// two.
    pub fn new(sums: GradientSums, tokens: usize, loss_scale: f32) -> Accumulation {
        match sums {
            GradientSums::Single => Accumulation::Single,
            GradientSums::Exact => Accumulation::Exact { unit: EXACT_UNIT * loss_scale, tokens },
        }
    }
}

/// How the rows from which a gradient is computed make its terms, which must not depend on how many sequences a
/// microbatch has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contributions {
    /// Rows that this rank has.
    rows: usize,
    /// Rows of one term, a divisor.
    of_one: usize,
    /// Terms of one element that the same rows make, over all ranks.
    per_row: usize,
}

impl Contributions {
    /// All rows of the microbatch: each sequence makes a term, or the tokens of each that a rank has.
    pub(crate) fn of_sequences(context: &Context) -> Contributions {
        Contributions { rows: context.shape.tokens(), of_one: context.shape.tokens_of_sequence(), per_row: 1 }
    }

    /// This rank's rows of the residual stream. Where the group shards them, each piece of a sequence makes a term
    /// that is on one rank whatever the size of a microbatch.
    pub(crate) fn of_residual(context: &Context) -> Contributions {
        let of_one = context.sequence_parallel.undivided_tokens(context.shape.tokens_of_sequence(), context.tp.size());
        Contributions { rows: context.residual_rows().len(), of_one, per_row: 1 }
    }

    /// The same, where each of `number` heads or ranks makes a term.
    pub(crate) fn of_each(self, number: usize) -> Contributions {
        Contributions { per_row: number, ..self }
    }

    fn ranges(self) -> impl Iterator<Item = Range<usize>> {
        (0..self.rows).step_by(self.of_one).map(move |first| first..first + self.of_one)
    }

    /// The magnitude from which on a term is refused, in units: those of a step of `tokens` tokens divide the range by
    /// their rows.
    fn limit(self, tokens: usize) -> f32 {
        EXACT_RANGE * (self.of_one as f32 / tokens as f32) / self.per_row as f32
    }
}

/// Accumulators = or += a gradient. `compute` writes that of a range of rows into tensors of their shapes: as its last
/// argument says, it assigns or adds to them.
///
/// # Errors
/// The errors of `compute` and the device.
pub(crate) fn sum_contributions<const N: usize>(
    context: &Context,
    contributions: Contributions,
    accumulators: [Tensor; N],
    write: Write,
    compute: impl Fn(Range<usize>, [Tensor; N], Write) -> Result<(), DeviceError>,
) -> Result<(), DeviceError> {
    let ranges: Vec<Range<usize>> = match context.accumulation {
        Accumulation::Single => std::iter::once(0..contributions.rows).collect(),
        Accumulation::Exact { .. } => contributions.ranges().collect(),
    };
    let mut write = write;
    for rows in ranges {
        add_term(context, contributions, accumulators, write, |term, write| compute(rows, term, write))?;
        write = Write::Accumulate;
    }
    Ok(())
}

/// Accumulators = or += one term of `contributions`, which `compute` writes or adds as in [`sum_contributions`].
///
/// # Errors
/// The errors of `compute` and the device.
pub(crate) fn add_term<const N: usize>(
    context: &Context,
    contributions: Contributions,
    accumulators: [Tensor; N],
    write: Write,
    compute: impl FnOnce([Tensor; N], Write) -> Result<(), DeviceError>,
) -> Result<(), DeviceError> {
    let rounding = match context.accumulation {
        Accumulation::Single => return compute(accumulators, write),
        Accumulation::Exact { unit, tokens } => Rounding { unit, limit: unit * contributions.limit(tokens) },
    };
    context.scratch.scoped(|| {
        let term = accumulators.map(|sum| context.scratch.floats(sum.rows, sum.cols));
        compute(term, Write::Assign)?;
        term.into_iter().zip(accumulators).try_for_each(|(x, into)| {
            let refusals = context.constants.norm_sums;
            context.submit(Op::AddRounded { x, rounding, into, write, refusals })
        })
    })
}

/// Zeros an accumulator that operations can only add to, where a step's first microbatch assigns.
pub(crate) fn clear(context: &Context, accumulator: Tensor, write: Write) -> Result<(), DeviceError> {
    match write {
        Write::Assign => context.submit(Op::Fill { out: accumulator, value: 0.0 }),
        Write::Accumulate => Ok(()),
    }
}
