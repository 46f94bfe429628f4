//! A rank, and the ranks that one collective joins.

use std::fmt;

/// The number of a worker, below the size of its world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub usize);

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.0)
    }
}

/// The ranks that differ along a set of axes, as seen by one of them.
///
/// Members are in rank order, which is the order of every sum. Only a mesh makes groups, so a group
/// has at least one member, no member twice, and a position below its size.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    members: Vec<Rank>,
    position: usize,
}

impl Group {
    pub(crate) fn new(members: Vec<Rank>, position: usize) -> Group {
        assert!(position < members.len(), "a rank is in its own group");
        Group { members, position }
    }

    /// The members in ascending rank order, this rank included.
    pub fn members(&self) -> &[Rank] {
        &self.members
    }

    /// The place of this rank among the members.
    pub fn position(&self) -> usize {
        self.position
    }

    /// The number of members, at least 1.
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// The rank whose view this is.
    pub fn rank(&self) -> Rank {
        self.members[self.position]
    }

    /// The members at the first and the last position as a group of their own (of one where they are the same), or
    /// `None` for the members between them.
    pub fn ends(&self) -> Option<Group> {
        let last = self.members.len() - 1;
        if self.position != 0 && self.position != last {
            return None;
        }
        let members = if last == 0 { vec![self.members[0]] } else { vec![self.members[0], self.members[last]] };
        Some(Group { position: usize::from(self.position != 0), members })
    }

    /// This rank alone.
    pub fn alone(&self) -> Group {
        Group { members: vec![self.rank()], position: 0 }
    }

    /// The rank at `position`, or none at or past [`Group::size`].
    pub fn member(&self, position: usize) -> Option<Rank> {
        self.members.get(position).copied()
    }
}

impl fmt::Display for Group {
    /// `ranks 0, 2, 4`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ranks ")?;
        for (i, rank) in self.members.iter().enumerate() {
            let separator = if i == 0 { "" } else { ", " };
            write!(f, "{separator}{}", rank.0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_the_first_and_the_last_member() {
        let group = |position| Group::new(vec![Rank(1), Rank(3), Rank(5)], position);
        assert_eq!(group(0).ends(), Some(Group::new(vec![Rank(1), Rank(5)], 0)));
        assert_eq!(group(1).ends(), None);
        assert_eq!(group(2).ends(), Some(Group::new(vec![Rank(1), Rank(5)], 1)));
        assert_eq!(Group::new(vec![Rank(4)], 0).ends(), Some(Group::new(vec![Rank(4)], 0)));
        assert_eq!(group(1).alone(), Group::new(vec![Rank(3)], 0));
    }
}
