//! How two elements become one, and folding the messages of peers in rank order.

use super::runs::Runs;
use crate::transport::Chunks;
use bytemuck::{Pod, Zeroable};
use device::Element;
use std::marker::PhantomData;

/// Elements of a block: its partial sums stay in the first-level cache.
const BLOCK: usize = 1024;

/// An operation that combines the elements of all members.
///
/// Members are combined in rank order from the left, widened; the end is rounded once. `combine(a, b)` must give the
/// same bits as `combine(b, a)`; it need not be associative.
pub trait Reduction {
    /// The element of the buffers.
    type Element: Pod;

    /// The type of partial sums: wide enough that nothing is lost between two members.
    type Partial: Pod;

    /// An element before it is combined.
    fn widen(element: Self::Element) -> Self::Partial;

    /// The combination of two.
    fn combine(a: Self::Partial, b: Self::Partial) -> Self::Partial;

    /// The result as an element.
    fn round(partial: Self::Partial) -> Self::Element;
}

/// The sum of real numbers, taken in `f32` and rounded after every addition; a narrow result is rounded once more.
pub struct Sum<E = f32>(PhantomData<E>);

impl<E: Element> Reduction for Sum<E> {
    type Element = E;
    type Partial = f32;

    fn widen(element: E) -> f32 {
        element.widen()
    }

    fn combine(a: f32, b: f32) -> f32 {
        a + b
    }

    fn round(partial: f32) -> E {
        E::narrow(partial)
    }
}

/// The largest `f32` value; not-a-number when any is, so that one rank's overflow reaches all.
pub struct Max;

impl Reduction for Max {
    type Element = f32;
    type Partial = f32;

    fn widen(element: f32) -> f32 {
        element
    }

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

    fn round(partial: f32) -> f32 {
        partial
    }
}

/// The sum of `i64` values modulo 2^64. It associates: any order and any layout give the same bits.
pub struct WrappingSum;

impl Reduction for WrappingSum {
    type Element = i64;
    type Partial = i64;

    fn widen(element: i64) -> i64 {
        element
    }

    fn combine(a: i64, b: i64) -> i64 {
        a.wrapping_add(b)
    }

    fn round(partial: i64) -> i64 {
        partial
    }
}

/// Combines `own`, the part of this member, with the same part of all other members.
///
/// `chunks` are those of the `others` other members in rank order; `offset_bytes` is the place in
/// `own` where they begin. Works through a small block on the stack.
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
    let mut partial = [R::Partial::zeroed(); BLOCK];
    for (index, own) in own.chunks_mut(BLOCK).enumerate() {
        let start = index * BLOCK * width;
        let bytes = start..start + size_of_val(own);
        let part = |other: usize| &chunks.chunk(other)[bytes.clone()];
        if others == 1 {
            // Two commute: no buffer other than `own` is needed.
            combine_two::<R>(own, part(0));
            continue;
        }
        let partial = &mut partial[..own.len()];
        // The members before this one come first.
        let (before, after) = (0..position, position..others);
        start_with::<R>(partial, own, before.clone().next().map(&part));
        for other in before.skip(1) {
            add_bytes::<R>(partial, part(other));
        }
        if position > 0 {
            add_own::<R>(partial, own);
        }
        for other in after {
            add_bytes::<R>(partial, part(other));
        }
        for (own, &partial) in own.iter_mut().zip(partial.iter()) {
            *own = R::round(partial);
        }
    }
}

/// Folds as [`fold_in_rank_order`] does, in the order of `runs`.
pub(super) fn fold_in_runs<R: Reduction>(
    own: &mut [R::Element],
    position: usize,
    runs: Runs,
    offset_bytes: usize,
    chunks: &dyn Chunks,
) {
    let width = size_of::<R::Element>();
    let len = chunks.chunk(0).len() / width;
    let first = offset_bytes / width;
    let own = &mut own[first..first + len];
    let (mut sum, mut partial) = ([R::Partial::zeroed(); BLOCK], [R::Partial::zeroed(); BLOCK]);
    for (index, own) in own.chunks_mut(BLOCK).enumerate() {
        let start = index * BLOCK * width;
        let bytes = start..start + size_of_val(own);
        let part = |member: usize| match member == position {
            true => None,
            false => Some(&chunks.chunk(member - usize::from(member > position))[bytes.clone()]),
        };
        let (sum, partial) = (&mut sum[..own.len()], &mut partial[..own.len()]);
        for run in runs.each() {
            start_with::<R>(partial, own, part(run.start));
            for member in run.start + 1..run.end {
                match part(member) {
                    Some(bytes) => add_bytes::<R>(partial, bytes),
                    None => add_own::<R>(partial, own),
                }
            }
            match run.start {
                0 => sum.copy_from_slice(partial),
                _ => sum.iter_mut().zip(partial.iter()).for_each(|(sum, &partial)| *sum = R::combine(*sum, partial)),
            }
        }
        for (own, &sum) in own.iter_mut().zip(sum.iter()) {
            *own = R::round(sum);
        }
    }
}

/// The elements of a message, whose alignment does not matter.
fn elements<R: Reduction>(bytes: &[u8]) -> impl Iterator<Item = R::Partial> {
    bytes.chunks_exact(size_of::<R::Element>()).map(|element| R::widen(bytemuck::pod_read_unaligned(element)))
}

/// `own` becomes its combination with `bytes`.
fn combine_two<R: Reduction>(own: &mut [R::Element], bytes: &[u8]) {
    for (own, other) in own.iter_mut().zip(elements::<R>(bytes)) {
        *own = R::round(R::combine(R::widen(*own), other));
    }
}

/// `partial` becomes the first member's part: that of `bytes`, or without them `own`.
fn start_with<R: Reduction>(partial: &mut [R::Partial], own: &[R::Element], bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => partial.iter_mut().zip(elements::<R>(bytes)).for_each(|(partial, first)| *partial = first),
        None => partial.iter_mut().zip(own).for_each(|(partial, &own)| *partial = R::widen(own)),
    }
}

/// `partial` becomes `partial + own`.
fn add_own<R: Reduction>(partial: &mut [R::Partial], own: &[R::Element]) {
    for (partial, &own) in partial.iter_mut().zip(own) {
        *partial = R::combine(*partial, R::widen(own));
    }
}

/// `partial` becomes `partial + bytes`.
fn add_bytes<R: Reduction>(partial: &mut [R::Partial], bytes: &[u8]) {
    for (partial, other) in partial.iter_mut().zip(elements::<R>(bytes)) {
        *partial = R::combine(*partial, other);
    }
}
