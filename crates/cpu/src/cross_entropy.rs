//! Cross-entropy on logits that are sharded over the vocabulary, in three steps with a reduction after the first two.
//!
//! A rank holds `logits[R, V/tp]`, the columns of global tokens from `first_column` on; the first `valid_columns` are
//! real, the rest is padding with probability 0 and gradient 0. [`RowMax`] is reduced by maximum over the ranks,
//! [`SumExp`] by sum, then [`CrossEntropy`] gives every rank the loss and its part of the gradient. Logits are
//! never gathered (Shoeybi et al. 2019, arXiv 1909.08053, section 3).
//!
//! A label of [`IGNORED_LABEL`] makes loss and gradient of its row zero.

use config::IGNORED_LABEL;

use crate::lanes::{Kernel, Lanes, for_each_block, row_sum};
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

/// `loss[R] = log(sum) - (target logit - max)`, assigned, 0 where the label is ignored; and the gradient over the
/// logits if it is asked for. The gradient is that of `loss` and of the z-loss, where there is one.
pub struct CrossEntropy<'a> {
    /// `[R, V/tp]`; with `gradient_scale` it becomes `(softmax - onehot) * gradient_scale`, and 0 in rows of ignored
    /// labels and in padded columns.
    pub logits: MatMut<'a>,
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
    /// Factor of the gradient; `None` leaves the logits as they are.
    pub gradient_scale: Option<f32>,
    /// `[R]`
    pub loss: &'a mut [f32],
    /// The z-loss of the rows.
    pub z_loss: Option<ZLosses<'a>>,
}

/// `losses[R] = coefficient * (max + log(sum))^2`, assigned, 0 where the label is ignored.
pub struct ZLosses<'a> {
    /// Factor of the squares.
    pub coefficient: f32,
    /// `[R]`
    pub losses: &'a mut [f32],
}

impl Kernel for CrossEntropy<'_> {
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
            let Some(scale) = self.gradient_scale else { continue };
            let logits = self.logits.row_mut(row);
            if label == IGNORED_LABEL {
                logits.fill(0.0);
                continue;
            }
            let (valid, padding) = logits.split_at_mut(self.valid_columns);
            softmax::<L>(valid, self.max[row], (f64::from(scale) * raised / sum) as f32);
            if let Some(column) = local_column(label, self.first_column, self.valid_columns) {
                valid[column] -= scale;
            }
            padding.fill(0.0);
        }
    }
}

/// `logits = exp(logits - max) * factor`
#[inline(always)]
fn softmax<L: Lanes>(logits: &mut [f32], max: f32, factor: f32) {
    for_each_block(
        logits.len(),
        #[inline(always)]
        |block| {
            let power = exp(block.load::<L>(logits) - L::splat(max));
            block.store(logits, power * L::splat(factor));
        },
    );
}
