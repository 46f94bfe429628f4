//! Cross-entropy on logits that are sharded over the vocabulary, in three steps with a reduction after the first two.
//!
//! A rank holds `logits[R, V/tp]`, the columns of global tokens from `first_column` on; the first `valid_columns` are
//! real, the rest is padding with probability 0 and gradient 0. [`RowMax`] is reduced by maximum over the ranks,
//! [`SumExp`] by sum, then [`CrossEntropy`] gives every rank the loss and its part of the gradient. Logits are
//! never gathered (Shoeybi et al. 2019, arXiv 1909.08053, section 3).
//!
//! A label of [`IGNORED_LABEL`] makes loss and gradient of its row zero.

use config::IGNORED_LABEL;

use crate::lanes::{Kernel, Lanes, Stored, for_each_block, row_sum};
use crate::math::{exp, log_f64};
use crate::view::{MatMut, MatRef};

/// `out[R] = max over the first valid_columns of logits[R, V/tp]`, assigned; minus infinity without valid columns.
pub struct RowMax<'a> {
    /// `[R, V/tp]`
    pub logits: MatRef<'a>,
    /// Columns that are not padding.
    pub valid_columns: usize,
    /// `[R]`
    pub out: &'a mut [f32],
}

impl Kernel for RowMax<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(self) {
        assert_eq!(self.logits.rows(), self.out.len(), "one maximum per row");
        for (row, out) in self.out.iter_mut().enumerate() {
            let logits = &self.logits.row(row)[..self.valid_columns];
            let mut max = L::splat(f32::NEG_INFINITY);
            for_each_block(
                logits.len(),
                #[inline(always)]
                |block| max = max.max(block.load_or(logits, f32::NEG_INFINITY)),
            );
            *out = max.reduce_max();
        }
    }
}

/// Where a label is among the valid columns of this rank, if it is.
fn local_column(label: i32, first_column: usize, valid_columns: usize) -> Option<usize> {
    usize::try_from(label).ok()?.checked_sub(first_column).filter(|&column| column < valid_columns)
}

/// `sums[R,2]`, assigned: the sum of `exp(logit - max)` over the valid columns (by [`row_sum`]), and `logit - max` of
/// the label, or 0 when the label is ignored or on another rank.
pub struct SumExp<'a> {
    /// `[R, V/tp]`
    pub logits: MatRef<'a>,
    /// Columns that are not padding.
    pub valid_columns: usize,
    /// `[R]`, over all ranks.
    pub max: &'a [f32],
    /// `[R]`
    pub labels: &'a [i32],
    /// Global token of column 0.
    pub first_column: usize,
    /// `[R, 2]`
    pub sums: &'a mut [f32],
}

impl Kernel for SumExp<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let rows = self.logits.rows();
        assert_eq!((self.max.len(), self.labels.len(), self.sums.len()), (rows, rows, 2 * rows), "sizes of rows");
        for (row, sums) in self.sums.chunks_exact_mut(2).enumerate() {
            let logits = &self.logits.row(row)[..self.valid_columns];
            let max = self.max[row];
            let sum = row_sum(
                logits.len(),
                #[inline(always)]
                |block| exp(block.load::<L>(logits) - L::splat(max)),
            );
            let target = local_column(self.labels[row], self.first_column, self.valid_columns);
            sums[0] = sum as f32;
            sums[1] = target.map_or(0.0, |column| logits[column] - max);
        }
    }
}

/// Logits `[R, V/tp]`, and the place of the gradient over them: `(softmax - onehot) * scale`, assigned, and 0 in rows
/// of ignored labels and in padded columns.
pub enum Logits<'a, E = f32> {
    /// There is no gradient.
    Kept {
        /// Their number of rows.
        rows: usize,
    },
    /// The gradient replaces them.
    Replaced {
        /// Read, then written.
        logits: MatMut<'a>,
        /// Factor of the gradient.
        scale: f32,
    },
    /// The gradient has a place of its own; a number that it cannot hold is rounded once.
    Read {
        /// Read.
        logits: MatRef<'a>,
        /// Factor of the gradient.
        scale: f32,
        /// `[R, V/tp]`
        gradient: MatMut<'a, E>,
    },
}

impl<E: Stored> Logits<'_, E> {
    fn rows(&self) -> usize {
        match self {
            Logits::Kept { rows } => *rows,
            Logits::Replaced { logits, .. } => logits.rows(),
            Logits::Read { logits, gradient, .. } => {
                assert_eq!(
                    (logits.rows(), logits.cols()),
                    (gradient.rows(), gradient.cols()),
                    "a gradient of the shape of logits"
                );
                logits.rows()
            }
        }
    }
}

/// `loss[R] = log(sum) - (target logit - max)`, assigned, 0 where the label is ignored; and the gradient over the
/// logits if it is asked for. The gradient is that of `loss` and of the z-loss, where there is one.
pub struct CrossEntropy<'a, E = f32> {
    /// `[R, V/tp]`
    pub logits: Logits<'a, E>,
    /// Columns that are not padding.
    pub valid_columns: usize,
    /// `[R]`, over all ranks.
    pub max: &'a [f32],
    /// `[R, 2]`, summed over all ranks.
    pub sums: &'a [f32],
    /// `[R]`
    pub labels: &'a [i32],
    /// Global token of column 0.
    pub first_column: usize,
    /// `[R]`
    pub loss: &'a mut [f32],
    /// The z-loss of the rows.
    pub z_loss: Option<ZLosses<'a>>,
}

impl<'a, E> CrossEntropy<'a, E> {
    /// The same losses, with the gradient over `logits`.
    pub fn over<T>(self, logits: Logits<'a, T>) -> CrossEntropy<'a, T> {
        let CrossEntropy { logits: _, valid_columns, max, sums, labels, first_column, loss, z_loss } = self;
        CrossEntropy { logits, valid_columns, max, sums, labels, first_column, loss, z_loss }
    }
}

/// `losses[R] = coefficient * (max + log(sum))^2`, assigned, 0 where the label is ignored.
pub struct ZLosses<'a> {
    /// Factor of the squares.
    pub coefficient: f32,
    /// `[R]`
    pub losses: &'a mut [f32],
}

impl<E: Stored> Kernel for CrossEntropy<'_, E> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let rows = self.logits.rows();
        let sizes = (self.max.len(), self.sums.len(), self.labels.len(), self.loss.len());
        assert_eq!(sizes, (rows, 2 * rows, rows, rows), "sizes of rows");
        assert!(self.z_loss.as_ref().is_none_or(|z_loss| z_loss.losses.len() == rows), "sizes of rows");
        for row in 0..rows {
            let label = self.labels[row];
            let (sum, target) = (f64::from(self.sums[2 * row]), f64::from(self.sums[2 * row + 1]));
            let log_sum = log_f64(sum);
            self.loss[row] = if label == IGNORED_LABEL { 0.0 } else { (log_sum - target) as f32 };
            let mut raised = 1.0;
            if let Some(ZLosses { coefficient, losses }) = &mut self.z_loss {
                let (coefficient, log_sum_exp) = (f64::from(*coefficient), f64::from(self.max[row]) + log_sum);
                let square = coefficient * log_sum_exp * log_sum_exp;
                losses[row] = if label == IGNORED_LABEL { 0.0 } else { square as f32 };
                raised = 1.0 + 2.0 * coefficient * log_sum_exp;
            }
            let row_gradient = RowGradient {
                target: local_column(label, self.first_column, self.valid_columns),
                valid_columns: self.valid_columns,
                max: self.max[row],
                raised,
                sum,
            };
            match &mut self.logits {
                Logits::Kept { .. } => {}
                Logits::Replaced { logits, .. } if label == IGNORED_LABEL => logits.row_mut(row).fill(0.0),
                Logits::Replaced { logits, scale } => row_gradient.replace::<L>(logits.row_mut(row), *scale),
                Logits::Read { gradient, .. } if label == IGNORED_LABEL => gradient.row_mut(row).fill(E::narrow(0.0)),
                Logits::Read { logits, scale, gradient } => {
                    row_gradient.write::<L, E>(logits.row(row), *scale, gradient.row_mut(row));
                }
            }
        }
    }
}

/// Values of a row that its gradient needs besides its logits.
struct RowGradient {
    target: Option<usize>,
    valid_columns: usize,
    max: f32,
    /// Factor of softmax in the gradient of loss and z-loss.
    raised: f64,
    /// Of exponentials.
    sum: f64,
}

impl RowGradient {
    #[inline(always)]
    fn replace<L: Lanes>(&self, logits: &mut [f32], scale: f32) {
        let (valid, padding) = logits.split_at_mut(self.valid_columns);
        let factor = self.factor(scale);
        for_each_block(
            valid.len(),
            #[inline(always)]
            |block| block.store(valid, self.softmax(block.load::<L>(valid), factor)),
        );
        if let Some(column) = self.target {
            valid[column] -= scale;
        }
        padding.fill(0.0);
    }

    #[inline(always)]
    fn write<L: Lanes, E: Stored>(&self, logits: &[f32], scale: f32, gradient: &mut [E]) {
        let (valid, padding) = gradient.split_at_mut(self.valid_columns);
        let factor = self.factor(scale);
        for_each_block(
            valid.len(),
            #[inline(always)]
            |block| block.store(valid, self.softmax(block.load::<L>(logits), factor)),
        );
        if let Some(column) = self.target {
            // Rounded once, after the subtraction.
            let difference = self.softmax(L::load_partial(&logits[column..=column], 0.0), factor) - L::splat(scale);
            E::store_partial(difference, &mut valid[column..=column]);
        }
        padding.fill(E::narrow(0.0));
    }

    fn factor(&self, scale: f32) -> f32 {
        (f64::from(scale) * self.raised / self.sum) as f32
    }

    /// `exp(logits - max) * factor`
    #[inline(always)]
    fn softmax<L: Lanes>(&self, logits: L, factor: f32) -> L {
        exp(logits - L::splat(self.max)) * L::splat(factor)
    }
}
