//! Layer norm and RMS norm over rows of `C` elements.
//!
//! `y = (x - mean) * rstd * weight + bias` with `rstd = 1 / sqrt(var + epsilon)` and the biased variance (layer), or
//! `y = x * rstd * weight` with `rstd = 1 / sqrt(mean(x^2) + epsilon)` (RMS; mean is 0 in all formulas).
//! Gemma's RMS norm has `1 + weight`, rounded, in place of the weight.
//! Ba, Kiros, Hinton 2016, arXiv 1607.06450; Zhang, Sennrich 2019, arXiv 1910.07467.
//!
//! The width `C` is the length of `weight`. A matrix `[T, H*C]` has `H` rows of the norm in each of its rows: that is
//! how queries and keys are normed per head. `stats[T*H, 2]` holds `(mean, rstd)` of each.
//!
//! Order of sums: within a row [`row_sum`]; over rows see [`NormBackwardWeight`].

use std::marker::PhantomData;
use std::ops::Range;

use config::{Norm, NormKind};
use device::Write;

use crate::column_sum::groups;
use crate::lanes::{Block, Kernel, Lanes, OnTile, Stored, for_each_block, for_each_tile, row_sum};
use crate::view::{MatMut, MatRef};

/// `y[T, H*C]` and `stats[T*H, 2]`, both assigned.
pub struct NormForward<'a, E = f32> {
    pub norm: Norm,
    /// Input `[T, H*C]`.
    pub x: MatRef<'a, E>,
    /// `[C]`
    pub weight: &'a [E],
    /// `[C]`
    pub bias: Option<&'a [E]>,
    /// Output `[T, H*C]`.
    pub y: MatMut<'a, E>,
    /// `[T*H, 2]`: mean and reciprocal standard deviation.
    pub stats: &'a mut [f32],
}

/// How many rows of the norm are in one row of the matrix.
fn heads(cols: usize, width: usize) -> usize {
    assert!(width > 0 && cols.is_multiple_of(width), "rows of {cols} elements are not heads of {width}");
    cols / width
}

impl<E: Stored> Kernel for NormForward<'_, E> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let width = self.weight.len();
        let heads = heads(self.x.cols(), width);
        assert_eq!(self.stats.len(), self.x.rows() * heads * 2, "mean and rstd of each row");
        let mut stats = self.stats.chunks_exact_mut(2);
        for row in 0..self.x.rows() {
            let y = self.y.row_mut(row);
            let pairs = self.x.row(row).chunks_exact(width).zip(y.chunks_exact_mut(width));
            for ((x, y), stats) in pairs.zip(&mut stats) {
                let (mean, rstd) = statistics::<L>(self.norm, x);
                stats.copy_from_slice(&[mean, rstd]);
                apply::<L, E>(self.norm.kind, (x, mean, rstd), self.weight, self.bias, y);
            }
        }
    }
}

/// Mean and reciprocal standard deviation of a row; two passes, so that the variance does not cancel.
#[inline(always)]
fn statistics<L: Lanes>(norm: Norm, x: &[impl Stored]) -> (f32, f32) {
    let count = x.len() as f64;
    let mean = match norm.kind {
        NormKind::Rms | NormKind::RmsPlusOne => 0.0,
        NormKind::Layer => {
            let sum = row_sum(
                x.len(),
                #[inline(always)]
                |block| block.load::<L>(x),
            );
            (sum / count) as f32
        }
    };
    let squares = row_sum(
        x.len(),
        #[inline(always)]
        |block| {
            let centred = block.load::<L>(x) - L::splat(mean);
            centred * centred
        },
    );
    (mean, (1.0 / (squares / count + f64::from(norm.epsilon)).sqrt()) as f32)
}

/// The factor of normed values.
#[inline(always)]
fn factor<L: Lanes>(kind: NormKind, weight: L) -> L {
    match kind {
        NormKind::Layer | NormKind::Rms => weight,
        NormKind::RmsPlusOne => weight + L::splat(1.0),
    }
}

#[inline(always)]
fn apply<L: Lanes, E: Stored>(
    kind: NormKind,
    (x, mean, rstd): (&[E], f32, f32),
    weight: &[E],
    bias: Option<&[E]>,
    y: &mut [E],
) {
    for_each_block(
        x.len(),
        #[inline(always)]
        |block| {
            let normed = (block.load::<L>(x) - L::splat(mean)) * L::splat(rstd);
            let weight = factor::<L>(kind, block.load(weight));
            let result = match bias {
                Some(bias) => normed.mul_add(weight, block.load(bias)),
                None => normed * weight,
            };
            block.store(y, result);
        },
    );
}

/// `dx[T, H*C]`, assigned or accumulated: with `g = dy * weight` and `xhat = (x - mean) * rstd`,
/// `dx = rstd * (g - mean(g) - xhat * mean(g * xhat))` (layer; without `mean(g)` for RMS).
pub struct NormBackwardInput<'a, E = f32> {
    pub norm: Norm,
    /// Input of the forward pass `[T, H*C]`.
    pub x: MatRef<'a, E>,
    /// `[C]`
    pub weight: &'a [E],
    /// `[T*H, 2]`, from the forward pass.
    pub stats: &'a [f32],
    /// Gradient of the output `[T, H*C]`.
    pub dy: MatRef<'a, E>,
    /// Gradient of the input `[T, H*C]`.
    pub dx: MatMut<'a, E>,
    /// Whether `dx` is assigned or added to.
    pub write: Write,
}

impl<E: Stored> Kernel for NormBackwardInput<'_, E> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let width = self.weight.len();
        let heads = heads(self.x.cols(), width);
        assert_eq!(self.stats.len(), self.x.rows() * heads * 2, "mean and rstd of each row");
        let mut stats = self.stats.chunks_exact(2);
        for row in 0..self.x.rows() {
            let (x, dy, dx) = (self.x.row(row), self.dy.row(row), self.dx.row_mut(row));
            let inputs = x.chunks_exact(width).zip(dy.chunks_exact(width));
            for (((x, dy), dx), stats) in inputs.zip(dx.chunks_exact_mut(width)).zip(&mut stats) {
                let (kind, weight) = (self.norm.kind, self.weight);
                let row = BackwardRow { kind, x, weight, mean: stats[0], rstd: stats[1], dy };
                row.run::<L>(dx, self.write);
            }
        }
    }
}

/// One row of the backward pass.
#[derive(Clone, Copy)]
struct BackwardRow<'a, E> {
    kind: NormKind,
    x: &'a [E],
    weight: &'a [E],
    mean: f32,
    rstd: f32,
    dy: &'a [E],
}

impl<E: Stored> BackwardRow<'_, E> {
    /// `xhat` and `g` of the module's formula.
    #[inline(always)]
    fn load<L: Lanes>(self, block: Block) -> (L, L) {
        let normed = (block.load::<L>(self.x) - L::splat(self.mean)) * L::splat(self.rstd);
        (normed, block.load::<L>(self.dy) * factor::<L>(self.kind, block.load(self.weight)))
    }

    #[inline(always)]
    fn run<L: Lanes>(self, dx: &mut [E], write: Write) {
        let width = self.x.len();
        let count = width as f64;
        let along = row_sum(
            width,
            #[inline(always)]
            |block| {
                let (normed, weighted) = self.load::<L>(block);
                normed * weighted
            },
        );
        let level = match self.kind {
            NormKind::Rms | NormKind::RmsPlusOne => 0.0,
            NormKind::Layer => row_sum(
                width,
                #[inline(always)]
                |block| self.load::<L>(block).1,
            ),
        };
        let (along, level) = (L::splat((along / count) as f32), L::splat((level / count) as f32));
        for_each_block(
            width,
            #[inline(always)]
            |block| {
                let (normed, weighted) = self.load::<L>(block);
                let gradient = (-normed).mul_add(along, weighted - level) * L::splat(self.rstd);
                let gradient = match write {
                    Write::Assign => gradient,
                    Write::Accumulate => block.load::<L>(dx) + gradient,
                };
                block.store(dx, gradient);
            },
        );
    }
}

/// `dweight[C] += sum(dy * xhat)` and `dbias[C] += sum(dy)` over the `T*H` rows.
///
/// Order: rows are cut into groups of [`crate::column_sum::GROUP_ROWS`] matrix rows; a group's sum starts from zero and
/// goes over its rows in ascending order (heads of a row in order); groups are added to the output in ascending order.
pub struct NormBackwardWeight<'a, E = f32> {
    /// Input of the forward pass `[T, H*C]`.
    pub x: MatRef<'a, E>,
    /// `[T*H, 2]`, from the forward pass.
    pub stats: &'a [f32],
    /// Gradient of the output `[T, H*C]`.
    pub dy: MatRef<'a, E>,
    /// `[C]`, accumulated.
    pub dweight: &'a mut [f32],
    /// `[C]`, accumulated.
    pub dbias: Option<&'a mut [f32]>,
}

impl<E: Stored> Kernel for NormBackwardWeight<'_, E> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let width = self.dweight.len();
        let heads = heads(self.x.cols(), width);
        assert_eq!(self.stats.len(), self.x.rows() * heads * 2, "mean and rstd of each row");
        for rows in groups(self.x.rows()) {
            for_each_tile(width, &mut WeightGroup { rows, heads, tensors: &mut self, lanes: PhantomData::<L> });
        }
    }
}

/// Consecutive rows whose sum starts from zero.
struct WeightGroup<'a, 'b, L, E> {
    rows: Range<usize>,
    heads: usize,
    tensors: &'b mut NormBackwardWeight<'a, E>,
    lanes: PhantomData<L>,
}

impl<L: Lanes, E: Stored> OnTile for WeightGroup<'_, '_, L, E> {
    #[inline(always)]
    fn visit<const N: usize>(&mut self, blocks: [Block; N]) {
        let tensors = &mut *self.tensors;
        let width = tensors.dweight.len();
        let (mut weight_sums, mut bias_sums) = ([L::zero(); N], [L::zero(); N]);
        for row in self.rows.clone() {
            let rows = tensors.x.row(row).chunks_exact(width).zip(tensors.dy.row(row).chunks_exact(width));
            let stats = tensors.stats[2 * row * self.heads..].chunks_exact(2);
            for ((x, dy), stats) in rows.zip(stats) {
                let (mean, rstd) = (L::splat(stats[0]), L::splat(stats[1]));
                for (block, (weight_sum, bias_sum)) in blocks.iter().zip(weight_sums.iter_mut().zip(&mut bias_sums)) {
                    let dy = block.load::<L>(dy);
                    *weight_sum = ((block.load::<L>(x) - mean) * rstd).mul_add(dy, *weight_sum);
                    *bias_sum = *bias_sum + dy;
                }
            }
        }
        for (block, sum) in blocks.iter().zip(weight_sums) {
            block.store(tensors.dweight, block.load::<L>(tensors.dweight) + sum);
        }
        if let Some(dbias) = &mut tensors.dbias {
            for (block, sum) in blocks.iter().zip(bias_sums) {
                block.store(dbias, block.load::<L>(dbias) + sum);
            }
        }
    }
}
