//! How two elements become one, and folding the messages of peers in rank order.

use crate::transport::Chunks;
use bytemuck::{Pod, Zeroable};
use std::ops::Range;

/// Elements of a block: its partial sums stay in the first-level cache.
const BLOCK: usize = 1024;

/// An operation that combines the elements of all members.
///
/// Members are combined in rank order from the left. `combine(a, b)` must give the same bits as
/// `combine(b, a)`; it need not be associative.
pub trait Reduction {
    /// What the buffers hold.
    type Element: Pod;

    /// The combination of two elements.
    fn combine(a: Self::Element, b: Self::Element) -> Self::Element;
}

/// The sum of `f32` values, rounded after every addition.
pub struct Sum;

impl Reduction for Sum {
    type Element = f32;

    fn combine(a: f32, b: f32) -> f32 {
        a + b
    }
}

/// The largest `f32` value; not-a-number when any is, so that one rank's overflow reaches all.
pub struct Max;

impl Reduction for Max {
    type Element = f32;

    fn combine(a: f32, b: f32) -> f32 {
        // The bits of the result must not depend on the order of the two: one not-a-number for
        // all, and the positive zero of two zeros.
        if a.is_nan() || b.is_nan() {
            f32::NAN
        } else if a == b {
            f32::from_bits(a.to_bits() & b.to_bits())
        } else if a > b {
            a
        } else {
            b
        }
    }
}

/// The sum of `i64` values modulo 2^64. It associates: any order and any layout give the same bits.
pub struct WrappingSum;

impl Reduction for WrappingSum {
    type Element = i64;

    fn combine(a: i64, b: i64) -> i64 {
        a.wrapping_add(b)
    }
}

/// Combines `own`, the part of this member, with the same part of all other members.
///
/// `chunks` are those of the `others` other members in rank order; `offset_bytes` is the place in
/// `own` where they begin. Works in place through a small block on the stack.
pub(super) fn fold_in_rank_order<R: Reduction>(
    own: &mut [R::Element],
    position: usize,
    others: usize,
    offset_bytes: usize,
    chunks: &dyn Chunks,
) {
    let width = size_of::<R::Element>();
    let len = chunks.chunk(0).len() / width;
    let first = offset_bytes / width;
    let own = &mut own[first..first + len];
    for (index, own) in own.chunks_mut(BLOCK).enumerate() {
        let start = index * BLOCK * width;
        let bytes = start..start + size_of_val(own);
        let part = |other: usize| &chunks.chunk(other)[bytes.clone()];
        // The members before this one come first. One of them commutes with `own`; the sum of
        // more is formed beside it.
        if position == 1 {
            combine_into::<R>(own, part(0));
        } else if position > 1 {
            combine_before::<R>(own, 0..position, &part);
        }
        for other in position..others {
            combine_into::<R>(own, part(other));
        }
    }
}

/// `own` becomes `((p0 + p1) + ...) + own`.
fn combine_before<'a, R: Reduction>(own: &mut [R::Element], members: Range<usize>, part: &dyn Fn(usize) -> &'a [u8]) {
    let mut block = [R::Element::zeroed(); BLOCK];
    let block = &mut block[..own.len()];
    bytemuck::cast_slice_mut::<R::Element, u8>(block).copy_from_slice(part(members.start));
    for member in members.skip(1) {
        combine_into::<R>(block, part(member));
    }
    for (own, &before) in own.iter_mut().zip(block.iter()) {
        *own = R::combine(before, *own);
    }
}

/// `into` becomes `into + bytes`, whose alignment does not matter.
fn combine_into<R: Reduction>(into: &mut [R::Element], bytes: &[u8]) {
    let elements = bytes.chunks_exact(size_of::<R::Element>());
    for (into, element) in into.iter_mut().zip(elements) {
        *into = R::combine(*into, bytemuck::pod_read_unaligned(element));
    }
}
