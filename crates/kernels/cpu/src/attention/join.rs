//! Attention on two sets of keys, from attention on each of them.

use device::Write;

use crate::lanes::{Kernel, LANES, Lanes, Stored, for_each_block};
use crate::math;
use crate::view::{MatMut, MatRef};

/// With `m` the larger log-sum-exp of the two, and `w = exp(log_sum_exp - m)` of each, an output becomes
/// `out (w / sum) + part (w_part / sum)`, of which the last product is fused with the addition, and the log-sum-exp
/// `m + log(sum)`, where `sum = w + w_part`. A set of keys of which the query sees none weighs nothing.
#[derive(Debug)]
pub struct JoinAttention<'a, E = f32> {
    /// Outputs of the other set `[T, H head_dim]`.
    pub part: MatRef<'a, E>,
    /// Its log-sum-exps `[T, H]`.
    pub part_log_sum_exp: MatRef<'a>,
    /// Outputs `[T, H head_dim]`.
    pub out: MatMut<'a>,
    /// Log-sum-exps `[T, H]`.
    pub log_sum_exp: MatMut<'a>,
    /// Width of a head.
    pub head_dim: usize,
    /// Whether the other set is all there is.
    pub write: Write,
}

impl<E: Stored> Kernel for JoinAttention<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let (rows, heads) = (self.log_sum_exp.rows(), self.log_sum_exp.cols());
        assert_eq!(
            (self.part_log_sum_exp.rows(), self.part_log_sum_exp.cols()),
            (rows, heads),
            "log-sum-exps of one shape"
        );
        assert_eq!((self.part.rows(), self.part.cols()), (rows, heads * self.head_dim), "rows of all heads");
        assert_eq!((self.out.rows(), self.out.cols()), (rows, heads * self.head_dim), "rows of all heads");
        for row in 0..rows {
            for first in (0..heads).step_by(LANES) {
                let heads = first..heads.min(first + LANES);
                let [own, part] = self.weights::<L>(row, heads.clone());
                for (lane, head) in heads.enumerate() {
                    let columns = head * self.head_dim..(head + 1) * self.head_dim;
                    let (from, to) = (&self.part.row(row)[columns.clone()], &mut self.out.row_mut(row)[columns]);
                    let (own, part) = (L::splat(own[lane]), L::splat(part[lane]));
                    match self.write {
                        Write::Assign => for_each_block(
                            from.len(),
                            #[inline(always)]
                            |block| block.store(to, block.load::<L>(from)),
                        ),
                        Write::Accumulate => for_each_block(
                            from.len(),
                            #[inline(always)]
                            |block| {
                                let sum = block.load::<L>(from).mul_add(part, block.load::<L>(to) * own);
                                block.store(to, sum);
                            },
                        ),
                    }
                }
            }
        }
    }
}

impl<E: Stored> JoinAttention<'_, E> {
    /// The factors of the outputs of some heads, own and of the other set; their log-sum-exps are written.
    #[inline(always)]
    fn weights<L: Lanes>(&mut self, row: usize, heads: std::ops::Range<usize>) -> [[f32; LANES]; 2] {
        let (mut own, mut part) = ([f32::NEG_INFINITY; LANES], [f32::NEG_INFINITY; LANES]);
        part[..heads.len()].copy_from_slice(&self.part_log_sum_exp.row(row)[heads.clone()]);
        let to = &mut self.log_sum_exp.row_mut(row)[heads.clone()];
        match self.write {
            Write::Assign => {
                to.copy_from_slice(&part[..heads.len()]);
                return [[0.0; LANES], [1.0; LANES]];
            }
            Write::Accumulate => own[..heads.len()].copy_from_slice(to),
        }
        let (a, b) = (L::load(&own), L::load(&part));
        let max = a.max(b);
        // Where both have seen nothing, minus infinity minus itself is not a number.
        let max = L::select(max.less(L::splat(f32::MIN)), L::zero(), max);
        let [a, b] = [a, b].map(|log_sum_exp| math::exp(log_sum_exp - max));
        let sum = a + b;
        let is_seen = L::zero().less(sum);
        let [a, b] = [a, b].map(|weight| L::select(is_seen, weight / sum, L::zero()));
        let mut joined = [0.0; LANES];
        (max + math::log(sum)).store(&mut joined);
        to.copy_from_slice(&joined[..heads.len()]);
        a.store(&mut own);
        b.store(&mut part);
        [own, part]
    }
}
