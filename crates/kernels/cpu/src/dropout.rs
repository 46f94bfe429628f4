//! Dropout with bias and residual in one pass; masks are functions of global indices.
//!
//! Channel `c` of token `t` is dropped or kept by word `c % 4` of the Philox block with the seed as key and the counter
//! `[c / 4, t, step, site]`, where `t = first_token + row` and `c = first_channel + column` are global (`t` modulo
//! 2^32). It is kept when the word is at least `probability * 2^32`, and then multiplied by `1 / (1 - probability)`.
//! So the mask does not depend on the layout, on the microbatch or on whether it is recomputed.

use std::ops::Range;

use device::DropoutKey;

use crate::lanes::{Block, Kernel, LANES, Lanes, Stored, for_each_block};
use crate::view::{MatMut, MatRef};

/// Where an operand of an operation is that may work in place: a matrix, or one row of it.
#[derive(Clone, Copy, Debug)]
pub enum Source<T> {
    /// In the output, which overwrites it.
    Out,
    /// Elsewhere.
    Apart(T),
}

impl<'a, E: Stored> Source<MatRef<'a, E>> {
    fn row(self, row: usize) -> Source<&'a [E]> {
        match self {
            Source::Out => Source::Out,
            Source::Apart(matrix) => Source::Apart(matrix.row(row)),
        }
    }
}

impl<E: Stored> Source<&[E]> {
    #[inline(always)]
    fn columns(self, columns: &Range<usize>) -> Self {
        match self {
            Source::Out => Source::Out,
            Source::Apart(row) => Source::Apart(&row[columns.clone()]),
        }
    }

    #[inline(always)]
    fn load<L: Lanes>(self, block: Block, out: &[E]) -> L {
        match self {
            Source::Out => block.load(out),
            Source::Apart(row) => block.load(row),
        }
    }
}

/// `out[T,C] = residual_scale * residual[T,C] + dropout(x[T,C] + bias[C])`, assigned; the last two operations round
/// once. `x` or `residual` (not both) may be in `out`.
pub struct DropoutAdd<'a, E = f32> {
    /// The input of dropout, `[T,C]`.
    pub x: Source<MatRef<'a, E>>,
    /// `[C]`, added before.
    pub bias: Option<&'a [E]>,
    /// `[T,C]`, added after.
    pub residual: Option<Source<MatRef<'a, E>>>,
    /// The factor of the residual.
    pub residual_scale: f32,
    /// The mask; without it everything is kept as it is.
    pub dropout: Option<DropoutKey>,
    /// `[T,C]`
    pub out: MatMut<'a, E>,
}

/// `dx[T,C] = mask * dy[T,C] / (1 - probability)`, assigned. `dy` may be in `dx`.
pub struct DropoutBackward<'a, E = f32> {
    /// `[T,C]`
    pub dy: Source<MatRef<'a, E>>,
    /// The mask of the forward pass.
    pub dropout: DropoutKey,
    /// `[T,C]`
    pub dx: MatMut<'a, E>,
}

/// Channels of one call of the wide generator.
const WINDOW: usize = 4 * LANES;

/// The factors, 0 or `1 / (1 - probability)`, of the 64 channels from `first_channel` (a multiple of 4) of `token`.
#[inline(always)]
fn window_factors(key: &DropoutKey, token: u32, first_channel: u32) -> [f32; WINDOW] {
    let counters = [
        std::array::from_fn(|lane| first_channel / 4 + lane as u32),
        [token; LANES],
        [key.step; LANES],
        [key.site; LANES],
    ];
    let words = philox::philox4x32_10_x16(counters, philox::key_of_seed(key.seed));
    let threshold = philox::probability_threshold(key.probability);
    let kept = 1.0 / (1.0 - key.probability);
    let mut factors = [0.0; WINDOW];
    for lane in 0..LANES {
        for word in 0..4 {
            factors[4 * lane + word] = if words[word][lane] >= threshold { kept } else { 0.0 };
        }
    }
    factors
}

/// Calls `body(columns, factors)` for consecutive parts of row `row` of `columns` columns.
#[inline(always)]
fn for_each_window(key: &DropoutKey, row: usize, columns: usize, mut body: impl FnMut(Range<usize>, &[f32])) {
    let token = (key.first_token + row as u64) as u32;
    let mut column = 0;
    while column < columns {
        let channel = key.first_channel + column as u32;
        // Only the first window of a shard can start inside a block of four channels.
        let skipped = (channel % 4) as usize;
        let count = (WINDOW - skipped).min(columns - column);
        let factors = window_factors(key, token, channel - skipped as u32);
        body(column..column + count, &factors[skipped..skipped + count]);
        column += count;
    }
}

/// The operands of one row, or of some of its columns.
#[derive(Clone, Copy)]
struct Operands<'a, E> {
    x: Source<&'a [E]>,
    bias: Option<&'a [E]>,
    residual: Option<Source<&'a [E]>>,
    residual_scale: f32,
}

impl<E: Stored> Operands<'_, E> {
    #[inline(always)]
    fn columns(self, columns: &Range<usize>) -> Self {
        Self {
            x: self.x.columns(columns),
            bias: self.bias.map(|bias| &bias[columns.clone()]),
            residual: self.residual.map(|residual| residual.columns(columns)),
            ..self
        }
    }

    /// `out = residual_scale * residual + (x + bias) * factors`
    #[inline(always)]
    fn combine<L: Lanes>(self, factors: Option<&[f32]>, out: &mut [E]) {
        for_each_block(
            out.len(),
            #[inline(always)]
            |block| {
                let mut value: L = self.x.load(block, out);
                if let Some(bias) = self.bias {
                    value = value + block.load(bias);
                }
                if let Some(factors) = factors {
                    value = value * block.load(factors);
                }
                if let Some(residual) = self.residual {
                    value = residual.load::<L>(block, out).mul_add(L::splat(self.residual_scale), value);
                }
                block.store(out, value);
            },
        );
    }

    /// The whole row, with the factors of its mask.
    #[inline(always)]
    fn combine_masked<L: Lanes>(self, key: &DropoutKey, row: usize, out: &mut [E]) {
        for_each_window(
            key,
            row,
            out.len(),
            #[inline(always)]
            |columns, factors| self.columns(&columns).combine::<L>(Some(factors), &mut out[columns]),
        );
    }
}

impl<E: Stored> Kernel for DropoutAdd<'_, E> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        for row in 0..self.out.rows() {
            let operands = Operands {
                x: self.x.row(row),
                bias: self.bias,
                residual: self.residual.map(|residual| residual.row(row)),
                residual_scale: self.residual_scale,
            };
            let out = self.out.row_mut(row);
            match &self.dropout {
                None => operands.combine::<L>(None, out),
                Some(key) => operands.combine_masked::<L>(key, row, out),
            }
        }
    }
}

impl<E: Stored> Kernel for DropoutBackward<'_, E> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        for row in 0..self.dx.rows() {
            let operands = Operands { x: self.dy.row(row), bias: None, residual: None, residual_scale: 1.0 };
            operands.combine_masked::<L>(&self.dropout, row, self.dx.row_mut(row));
        }
    }
}
