//! Sums in the order of a tree: each run of neighbours adds up its members' slices, then the owner of a slice adds the
//! sums of the runs.
//!
//! In a run every member adds the slices of some owners: those at its own place in their runs. Its sum goes to the
//! owner, so one partial sum per run crosses between runs where every member's slice crosses in rank order. A partial
//! sum takes the place of the slice that it is a sum of, which nobody else reads; so the elements must be as wide as
//! the sums.

use super::Call;
use super::over_hosts::split;
use super::reduction::{Reduction, fold_in_rank_order};
use crate::error::CommError;
use crate::operation::Operation;
use crate::transport::Message;
use bytemuck::Pod;
use device::SumTree;
use mesh::Rank;
use std::mem::take;
use std::num::NonZeroUsize;
use std::ops::Range;

/// The runs of a group, and who adds which slices in each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runs {
    pub(super) members: usize,
    pub(super) run: NonZeroUsize,
}

impl Runs {
    /// The runs of `tree` in a group of `members`, if its sums are not in rank order.
    pub(super) fn of(tree: SumTree, members: usize) -> Option<Runs> {
        tree.run_in(members).map(|run| Runs { members, run })
    }

    /// The positions of each run.
    pub(super) fn each(self) -> impl Iterator<Item = Range<usize>> {
        SumTree::of_runs(self.run).runs(self.members)
    }

    /// The run of `position`.
    pub(super) fn of_member(self, position: usize) -> Range<usize> {
        let first = position - position % self.run;
        first..self.members.min(first + self.run.get())
    }

    /// The member of `run` that adds up the slices of `owner` there: at the owner's place, counted round in a shorter
    /// run.
    pub(super) fn reducer(self, owner: usize, run: &Range<usize>) -> usize {
        run.start + owner % self.run % run.len()
    }
}

/// Reduces as [`reduce_slices`](super::reduce_scatter::reduce_slices) does, in the order of `runs`. The slices of other
/// members are unspecified afterwards.
pub(super) fn reduce_in_runs<R>(
    call: &Call,
    operation: Operation,
    data: &mut [R::Element],
    runs: Runs,
) -> Result<(), CommError>
where
    R: Reduction<Partial = <R as Reduction>::Element>,
{
    let position = call.group.position();
    let longest_bytes = data.len().div_ceil(runs.members) * size_of::<R::Element>();
    let run = runs.of_member(position);
    let place = position - run.start;
    let mates = run.clone().filter(|&mate| mate != position);
    let mates: Vec<Rank> = mates.map(|mate| call.group.members()[mate]).collect();
    let (mut column, mut lent) = (vec![], vec![]);
    for (owner, slice) in split(data, runs.members).into_iter().enumerate() {
        match runs.reducer(owner, &run) {
            reducer if reducer == position => column.push((owner, slice)),
            reducer => lent.push((reducer, &*slice)),
        }
    }
    let mut messages = lent.iter().map(|(to, slice)| message(call, operation, *to, slice));
    call.exchange(longest_bytes, &mut messages, &mut || {
        for (_, slice) in &mut column {
            call.receive(&mates, operation, size_of_val(*slice), &mut |offset, chunks| {
                fold_in_rank_order::<R>(slice, place, mates.len(), offset, chunks);
            })?;
        }
        let (mut own, partials): (Vec<_>, Vec<_>) =
            take(&mut column).into_iter().partition(|(owner, _)| *owner == position);
        let partials: Vec<(usize, &[R::Element])> =
            partials.into_iter().map(|(owner, slice)| (owner, &*slice)).collect();
        let mut messages = partials.iter().map(|(to, slice)| message(call, operation, *to, slice));
        call.exchange(longest_bytes, &mut messages, &mut || {
            own.iter_mut().try_for_each(|(_, own)| add_partials::<R>(call, operation, own, runs))
        })
    })
}

/// Adds the sums of the other runs to `own`, which holds that of this member's run, in the order of the runs.
fn add_partials<R: Reduction>(
    call: &Call,
    operation: Operation,
    own: &mut [R::Element],
    runs: Runs,
) -> Result<(), CommError> {
    let (position, ranks) = (call.group.position(), call.group.members());
    let others = runs.each().filter(|run| !run.contains(&position));
    let from: Vec<Rank> = others.map(|run| ranks[runs.reducer(position, &run)]).collect();
    call.receive(&from, operation, size_of_val(own), &mut |offset, chunks| {
        fold_in_rank_order::<R>(own, position / runs.run, from.len(), offset, chunks);
    })
}

/// A slice on its way to the member at `to`.
fn message<'a, T: Pod>(call: &Call<'a>, operation: Operation, to: usize, slice: &'a [T]) -> Message<'a> {
    call.message(&call.group.members()[to..=to], operation, bytemuck::cast_slice(slice))
}
