//! Softmax of a tile of scores between the products, sixteen queries at a time.

use super::QUERIES;
use super::dropout::{HeadDropout, KEYS_PER_BLOCK};
use super::query_block::{KeyTile, QueryBlock};
use crate::lanes::{Kernel, LANES, Lanes, Stored, for_each_block};
use crate::math;
use crate::soft_cap::Cap;
use crate::view::{MatMut, MatRef};

/// The running softmax of a block of queries.
pub(super) struct Running {
    /// The largest score so far.
    pub max: [f32; QUERIES],
    /// The sum of `exp(score - max)` so far.
    pub sum: [f32; QUERIES],
    /// Factor of the last tile for earlier sums, as it raised the maximum.
    pub decay: [f32; QUERIES],
}

impl Running {
    /// Before any key.
    pub fn new() -> Self {
        Self { max: [f32::NEG_INFINITY; QUERIES], sum: [0.0; QUERIES], decay: [0.0; QUERIES] }
    }
}

/// Sixteen lanes of a row of [`QUERIES`].
#[inline(always)]
pub(super) fn lanes(row: &[f32; QUERIES], group: usize) -> &[f32; LANES] {
    &row.as_chunks().0[group]
}

/// Sixteen lanes of a row of [`QUERIES`], to write.
#[inline(always)]
pub(super) fn lanes_mut(row: &mut [f32; QUERIES], group: usize) -> &mut [f32; LANES] {
    &mut row.as_chunks_mut().0[group]
}

/// The keys that the tile's lanes may see, and their count.
pub(super) struct Mask<L> {
    first: L,
    last: L,
    end: L,
    all: bool,
    cap: Option<Cap<L>>,
    slope: Option<L>,
}

/// Changes of scores before the softmax.
#[derive(Clone, Copy)]
pub(super) struct Changes {
    pub soft_cap: Option<f32>,
    /// Of ALiBi's bias.
    pub slope: Option<f32>,
}

impl Changes {
    /// Whether they change any.
    pub fn are_some(self) -> bool {
        self.soft_cap.is_some() || self.slope.is_some()
    }
}

impl<L: Lanes> Mask<L> {
    /// The mask of `group` of the queries of `block`, over the keys of `tile`.
    #[inline(always)]
    pub fn new(block: &QueryBlock, tile: &KeyTile, group: usize, changes: Changes) -> Self {
        let [first, last, end] = [&block.first, &block.last, &block.end].map(|row| L::load(lanes(row, group)));
        Self {
            first,
            last,
            end,
            all: block.sees_all(tile),
            cap: changes.soft_cap.map(Cap::new),
            slope: changes.slope.map(L::splat),
        }
    }

    /// `score` below its cap.
    #[inline(always)]
    pub fn capped(&self, score: L) -> L {
        self.cap.map_or(score, |cap| cap.capped(score))
    }

    /// The gradient of a score from that of the `capped` one.
    #[inline(always)]
    pub fn before_cap(&self, gradient: L, capped: L) -> L {
        self.cap.map_or(gradient, |cap| gradient * cap.slope(capped))
    }

    /// `score` of `key` with ALiBi's bias, which is 0 at the last key that the query sees.
    #[inline(always)]
    pub fn biased(&self, key: usize, score: L) -> L {
        match self.slope {
            None => score,
            Some(slope) => (L::splat((key + 1) as f32) - self.end).mul_add(slope, score),
        }
    }

    /// `value` where the query sees `key`, else `hidden`.
    #[inline(always)]
    pub fn apply(&self, key: usize, value: L, hidden: f32) -> L {
        if self.all {
            return value;
        }
        let (key, hidden) = (L::splat(key as f32), L::splat(hidden));
        L::select(key.less(self.first), hidden, L::select(key.less(self.last), value, hidden))
    }
}

/// How products enter the softmax, and where what it computes goes.
pub(super) trait Results {
    /// Scores from products with `scale` times the queries, or with the queries as they are.
    fn score<L: Lanes>(product: L, scale: f32) -> L;
    /// Stores sixteen lanes of the tile's row `row`, which took the place of `in_place`.
    fn store<L: Lanes>(&mut self, row: usize, group: usize, in_place: &mut [f32; LANES], value: L);
}

/// In place, as products of `f32` read it.
pub(super) struct InPlace;

impl Results for InPlace {
    #[inline(always)]
    fn score<L: Lanes>(product: L, _: f32) -> L {
        product
    }

    #[inline(always)]
    fn store<L: Lanes>(&mut self, _: usize, _: usize, in_place: &mut [f32; LANES], value: L) {
        value.store(in_place);
    }
}

/// Turns a tile's scores into `exp(score - max)`, dropped ones into zero, and updates the running softmax. The sums are
/// those before dropout; the factor of kept values is left to the end.
pub(super) struct SoftmaxTile<'a, R> {
    pub block: &'a QueryBlock,
    pub tile: &'a KeyTile,
    /// `[keys, QUERIES]`
    pub scores: &'a mut [[f32; QUERIES]],
    pub running: &'a mut Running,
    pub scale: f32,
    pub changes: Changes,
    pub dropout: Option<HeadDropout>,
    pub probabilities: R,
}

impl<R: Results> Kernel for SoftmaxTile<'_, R> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let first_key = self.tile.keys.start;
        for group in 0..self.block.width() / LANES {
            let mask = Mask::<L>::new(self.block, self.tile, group, self.changes);
            let is_changed = !mask.all || self.changes.are_some();
            let old = L::load(lanes(&self.running.max, group));
            let mut max = old;
            for (row, scores) in self.scores.iter_mut().enumerate() {
                let scores = lanes_mut(scores, group);
                let key = first_key + row;
                let score = mask.capped(R::score(L::load(scores), self.scale));
                let score = mask.apply(key, mask.biased(key, score), f32::NEG_INFINITY);
                if is_changed {
                    score.store(scores);
                }
                max = max.max(score);
            }
            max.store(lanes_mut(&mut self.running.max, group));
            // A query that has seen nothing yet subtracts zero, as minus infinity minus itself is not a number.
            let max = L::select(max.less(L::splat(f32::MIN)), L::zero(), max);
            let mut sum = L::zero();
            let token = self.block.token + group * LANES;
            for (four, scores) in self.scores.chunks_mut(KEYS_PER_BLOCK).enumerate() {
                let keep = self.dropout.map(|dropout| dropout.keep(token, first_key + four * KEYS_PER_BLOCK));
                for (row, scores) in scores.iter_mut().enumerate() {
                    let scores = lanes_mut(scores, group);
                    let score = L::load(scores);
                    let score = if is_changed { score } else { R::score(score, self.scale) };
                    let mut power = math::exp(score - max);
                    sum = sum + power;
                    if let Some(keep) = &keep {
                        power = power * L::load(&keep[row]);
                    }
                    self.probabilities.store(four * KEYS_PER_BLOCK + row, group, scores, power);
                }
            }
            let decay = math::exp(old - max);
            decay.store(lanes_mut(&mut self.running.decay, group));
            let running = lanes_mut(&mut self.running.sum, group);
            L::load(running).mul_add(decay, sum).store(running);
        }
    }
}

/// Ends a running softmax: `max` becomes the log-sum-exp and `decay` the factor that makes outputs of the sums.
pub(super) struct Finish<'a> {
    pub running: &'a mut Running,
    /// Factor of kept values.
    pub keep_scale: f32,
}

impl Kernel for Finish<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        for group in 0..QUERIES / LANES {
            let sum = L::load(lanes(&self.running.sum, group));
            let factor = L::select(L::zero().less(sum), L::splat(self.keep_scale) / sum, L::zero());
            factor.store(lanes_mut(&mut self.running.decay, group));
            let max = lanes_mut(&mut self.running.max, group);
            (L::load(max) + math::log(sum)).store(max);
        }
    }
}

/// Multiplies each query's column of `[rows, QUERIES]` by its factor.
pub(super) struct ScaleQueries<'a> {
    pub rows: &'a mut [[f32; QUERIES]],
    pub factors: &'a [f32; QUERIES],
}

impl Kernel for ScaleQueries<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let factors: [L; QUERIES / LANES] = std::array::from_fn(|group| L::load(lanes(self.factors, group)));
        for row in self.rows {
            for (values, factor) in row.as_chunks_mut().0.iter_mut().zip(factors) {
                (L::load(values) * factor).store(values);
            }
        }
    }
}

/// Multiplies each query's row of `[queries, head_dim]` by its factor.
pub(super) struct ScaleRows<'a> {
    pub rows: MatMut<'a>,
    pub factors: &'a [f32; QUERIES],
}

impl Kernel for ScaleRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        for (query, &factor) in self.factors.iter().enumerate().take(self.rows.rows()) {
            let (row, factor) = (self.rows.row_mut(query), L::splat(factor));
            for_each_block(
                row.len(),
                #[inline(always)]
                |block| block.store(row, block.load::<L>(row) * factor),
            );
        }
    }
}

/// Scales rows as [`ScaleRows`] does, into rows elsewhere, where a number is rounded once more if they are narrow.
pub(super) struct ScaledRows<'a, E> {
    pub from: MatRef<'a>,
    pub factors: &'a [f32; QUERIES],
    pub to: MatMut<'a, E>,
}

impl<E: Stored> Kernel for ScaledRows<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        for (query, &factor) in self.factors.iter().enumerate().take(self.from.rows()) {
            let (from, to, factor) = (self.from.row(query), self.to.row_mut(query), L::splat(factor));
            for_each_block(
                from.len(),
                #[inline(always)]
                |block| block.store(to, block.load::<L>(from) * factor),
            );
        }
    }
}

/// The dot products of the columns of two `[rows, QUERIES]`, as chains over ascending rows.
pub(super) struct DotQueries<'a> {
    pub a: &'a [[f32; QUERIES]],
    pub b: &'a [[f32; QUERIES]],
}

impl Kernel for DotQueries<'_> {
    type Output = [f32; QUERIES];

    #[inline(always)]
    fn run<L: Lanes>(self) -> [f32; QUERIES] {
        let mut dots = [0.0; QUERIES];
        for group in 0..QUERIES / LANES {
            let mut dot = L::zero();
            for (a, b) in self.a.iter().zip(self.b) {
                dot = L::load(lanes(a, group)).mul_add(L::load(lanes(b, group)), dot);
            }
            dot.store(lanes_mut(&mut dots, group));
        }
        dots
    }
}

/// Turns a tile's scores into probabilities after dropout, and its gradients of these into `scale` times the gradients
/// of the scores.
pub(super) struct SoftmaxTileBackward<'a, R> {
    pub block: &'a QueryBlock,
    pub tile: &'a KeyTile,
    /// `[keys, QUERIES]`
    pub scores: &'a mut [[f32; QUERIES]],
    /// `[keys, QUERIES]`: `dout . v` on entry.
    pub d_scores: &'a mut [[f32; QUERIES]],
    pub log_sum_exp: &'a [f32; QUERIES],
    pub delta: &'a [f32; QUERIES],
    pub scale: f32,
    pub changes: Changes,
    pub dropout: Option<HeadDropout>,
    pub probabilities: R,
    pub gradients: R,
}

impl<R: Results> Kernel for SoftmaxTileBackward<'_, R> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let first_key = self.tile.keys.start;
        let scale = L::splat(self.scale);
        for group in 0..self.block.width() / LANES {
            let mask = Mask::<L>::new(self.block, self.tile, group, self.changes);
            let log_sum_exp = L::load(lanes(self.log_sum_exp, group));
            let delta = L::load(lanes(self.delta, group));
            let token = self.block.token + group * LANES;
            let fours = self.scores.chunks_mut(KEYS_PER_BLOCK).zip(self.d_scores.chunks_mut(KEYS_PER_BLOCK));
            for (four, (scores, d_scores)) in fours.enumerate() {
                let keep =
                    self.dropout.map(|dropout| (dropout.keep(token, first_key + four * KEYS_PER_BLOCK), dropout.scale));
                for (row, (scores, d_scores)) in scores.iter_mut().zip(d_scores).enumerate() {
                    let (scores, d_scores) = (lanes_mut(scores, group), lanes_mut(d_scores, group));
                    let row_of_tile = four * KEYS_PER_BLOCK + row;
                    let key = first_key + row_of_tile;
                    let score = mask.capped(R::score(L::load(scores), self.scale));
                    let probability = math::exp(mask.biased(key, score) - log_sum_exp);
                    let probability = mask.apply(key, probability, 0.0);
                    let (mut kept, mut gradient) = (probability, L::load(d_scores));
                    if let Some((keep, keep_scale)) = &keep {
                        let factor = L::load(&keep[row]) * L::splat(*keep_scale);
                        kept = kept * factor;
                        gradient = gradient * factor;
                    }
                    let gradient = mask.before_cap(probability * (gradient - delta), score) * scale;
                    self.probabilities.store(row_of_tile, group, scores, kept);
                    self.gradients.store(row_of_tile, group, d_scores, gradient);
                }
            }
        }
    }
}
