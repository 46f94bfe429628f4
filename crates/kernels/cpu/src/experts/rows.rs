//! From tokens to rows of experts and back.

use device::{Element, Write};

use super::row_at;
use crate::lanes::{Kernel, Lanes, Stored, for_each_block};
use crate::view::{MatMut, MatRef};

/// `to[row] = from[token]` for the rows at `places[T,k]` of each token.
pub fn gather_rows<E: Element>(from: MatRef<'_, E>, places: &[i32], mut to: MatMut<'_, E>) {
    assert_eq!(from.cols(), to.cols(), "rows of one length");
    if from.rows() == 0 {
        return;
    }
    let per_token = places.len() / from.rows();
    for (token, places) in places.chunks_exact(per_token).enumerate() {
        for row in places.iter().copied().filter_map(row_at) {
            to.row_mut(row).copy_from_slice(from.row(token));
        }
    }
}

/// `out[T,D]` = or += the sum of the rows of `y[R,D]` at a token's places, each times its weight: one chain of fused
/// multiply-adds in ascending order of slots, from zero or from `out` on. Without weights they are 1.
pub struct CombineRows<'a, E = f32> {
    /// `[R,D]`
    pub y: MatRef<'a, E>,
    /// `[T,k]`
    pub weights: Option<MatRef<'a>>,
    /// `[T,k]`
    pub places: &'a [i32],
    /// `[T,D]`
    pub out: MatMut<'a, E>,
    /// Whether `out` is assigned or added to.
    pub write: Write,
}

impl<E: Stored> Kernel for CombineRows<'_, E> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let tokens = self.out.rows();
        assert_eq!(self.y.cols(), self.out.cols(), "rows of one length");
        if tokens == 0 {
            return;
        }
        let per_token = self.places.len() / tokens;
        let sizes = self.weights.map_or((tokens, per_token), |weights| (weights.rows(), weights.cols()));
        assert_eq!(sizes, (tokens, per_token), "k weights for each token");
        let mut terms: Vec<(&[E], f32)> = Vec::with_capacity(per_token);
        for (token, places) in self.places.chunks_exact(per_token).enumerate() {
            terms.clear();
            terms.extend(places.iter().enumerate().filter_map(|(slot, place)| {
                let weight = self.weights.map_or(1.0, |weights| weights.row(token)[slot]);
                Some((self.y.row(row_at(*place)?), weight))
            }));
            let out = self.out.row_mut(token);
            for_each_block(
                out.len(),
                #[inline(always)]
                |block| {
                    let mut sum = match self.write {
                        Write::Assign => L::zero(),
                        Write::Accumulate => block.load::<L>(out),
                    };
                    for (row, weight) in &terms {
                        sum = block.load::<L>(row).mul_add(L::splat(*weight), sum);
                    }
                    block.store(out, sum);
                },
            );
        }
    }
}
