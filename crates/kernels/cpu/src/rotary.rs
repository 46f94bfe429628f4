//! Rotary position embedding: pairs of channels of queries and keys are turned by an angle that grows with the
//! position.
//!
//! Su et al. 2021, arXiv 2104.09864. The first `rotary_dims` channels of each head turn, the rest stay.

use config::{Pairing, RotaryScaling};
use device::Direction;

use crate::lanes::{Kernel, Lanes, Stored, for_each_block};
use crate::math::{exp_f64, log_f64, sin_cos_f64};
use crate::view::{MatMut, MatRef};

/// Fills `cos[P, R/2]` and `sin[P, R/2]` for positions `0..P`: the angle of pair `i` is `position * base^(-2i/R)`, the
/// frequency scaled, computed in f64 and rounded once at the end. Accurate for angles up to 1e6.
pub struct RotaryTable<'a> {
    /// `[P, R/2]`, assigned.
    pub cos: MatMut<'a>,
    /// `[P, R/2]`, assigned.
    pub sin: MatMut<'a>,
    /// Base of the frequencies, 10,000 in the paper.
    pub base: f32,
    /// The scaling of the frequencies.
    pub scaling: RotaryScaling,
}

impl Kernel for RotaryTable<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let pairs = self.cos.cols();
        let log_base = log_f64(f64::from(self.base));
        let scaling = self.scaling.of_pairs(self.base, pairs);
        let magnitude = f64::from(self.scaling.magnitude());
        for pair in 0..pairs {
            let frequency = scaling.scaled(pair, exp_f64(-(pair as f64) / pairs as f64 * log_base));
            for position in 0..self.cos.rows() {
                let (sin, cos) = sin_cos_f64(position as f64 * frequency);
                self.cos.row_mut(position)[pair] = (cos * magnitude) as f32;
                self.sin.row_mut(position)[pair] = (sin * magnitude) as f32;
            }
        }
    }
}

/// Turns `x[T, H*d]` in place; `Backward` turns by minus the angle, which is the transposed map.
///
/// With `R = 2 * cos.cols()` the pairs of a head are `(i, i + R/2)` or `(2i, 2i + 1)`, `i < R/2`; a pair `(a, b)`
/// becomes `(a cos - b sin, b cos + a sin)`, each one fused multiply-add on a rounded product, in `f32`.
pub struct Rotary<'a, E = f32> {
    /// `[T, H*d]`
    pub x: MatMut<'a, E>,
    /// Width `d` of a head, at least `R`.
    pub head_dim: usize,
    /// `[T]`, each below the number of rows of the tables.
    pub positions: &'a [i32],
    /// `[P, R/2]`
    pub cos: MatRef<'a>,
    /// `[P, R/2]`
    pub sin: MatRef<'a>,
    /// Which channels form a pair.
    pub pairing: Pairing,
    /// Which way.
    pub direction: Direction,
}

impl<E: Stored> Kernel for Rotary<'_, E> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let rotary_dims = 2 * self.cos.cols();
        assert!(rotary_dims <= self.head_dim, "{rotary_dims} rotary channels in heads of {}", self.head_dim);
        assert_eq!(self.positions.len(), self.x.rows(), "one position per token");
        let sign = match self.direction {
            Direction::Forward => 1.0,
            Direction::Backward => -1.0,
        };
        for (row, &position) in self.positions.iter().enumerate() {
            let (cos, sin) = (self.cos.row(position as usize), self.sin.row(position as usize));
            for head in self.x.row_mut(row).chunks_exact_mut(self.head_dim) {
                match self.pairing {
                    Pairing::Half => turn_halves::<L>(&mut head[..rotary_dims], cos, sin, sign),
                    Pairing::Interleaved => turn_neighbours(&mut head[..rotary_dims], cos, sin, sign),
                }
            }
        }
    }
}

#[inline(always)]
fn turn_halves<L: Lanes>(x: &mut [impl Stored], cos: &[f32], sin: &[f32], sign: f32) {
    let (first, second) = x.split_at_mut(cos.len());
    for_each_block(
        cos.len(),
        #[inline(always)]
        |block| {
            let (a, b) = (block.load::<L>(first), block.load::<L>(second));
            let cos = block.load::<L>(cos);
            let sin = block.load::<L>(sin) * L::splat(sign);
            block.store(first, a.mul_add(cos, -(b * sin)));
            block.store(second, b.mul_add(cos, a * sin));
        },
    );
}

/// Plain code: neighbours are in one block, and the same fused operations give the same bits.
#[inline(always)]
fn turn_neighbours<E: Stored>(x: &mut [E], cos: &[f32], sin: &[f32], sign: f32) {
    let (pairs, _) = x.as_chunks_mut::<2>();
    for ((pair, &cos), &sin) in pairs.iter_mut().zip(cos).zip(sin) {
        let [a, b] = pair.map(E::widen);
        let sin = sin * sign;
        *pair = [a.mul_add(cos, -(b * sin)), b.mul_add(cos, a * sin)].map(E::narrow);
    }
}
