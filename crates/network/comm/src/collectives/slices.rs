//! A buffer seen as one slice per member of a group.

use mesh::even_split;
use std::ops::Range;

/// The slices of the other members, apart from that of this one: the one kind can be lent while
/// the other is written. Slices are as even as possible, the longer ones first.
pub(super) struct OtherSlices<'a, T> {
    before: &'a mut [T],
    after: &'a mut [T],
    /// The part of the whole buffer between the two.
    own: Range<usize>,
    members: usize,
}

/// Cuts `buffer` for `members`: the slice of the member at `position`, and all others.
pub(super) fn cut<T>(buffer: &mut [T], members: usize, position: usize) -> (&mut [T], OtherSlices<'_, T>) {
    let own = even_split(buffer.len(), members, position);
    let (head, after) = buffer.split_at_mut(own.end);
    let (before, mine) = head.split_at_mut(own.start);
    let others = OtherSlices { before, after, own, members };
    (mine, others)
}

impl<T> OtherSlices<'_, T> {
    fn range(&self, member: usize) -> Range<usize> {
        let len = self.before.len() + self.own.len() + self.after.len();
        even_split(len, self.members, member)
    }

    /// The slice of another member.
    pub(super) fn get(&self, member: usize) -> &[T] {
        let range = self.range(member);
        if range.end <= self.own.start {
            &self.before[range]
        } else {
            &self.after[range.start - self.own.end..range.end - self.own.end]
        }
    }
}

/// The place in the group of the member at `index` of the others of `position`.
pub(super) fn member_of_other(index: usize, position: usize) -> usize {
    index + usize::from(index >= position)
}
