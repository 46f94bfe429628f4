//! The axes of a mesh, sets of axes, and the size along each.

use std::fmt;

/// An axis of the mesh, ordered from the outermost (neighbours far apart in rank number) to the
/// innermost (neighbours have consecutive ranks).
///
/// The order is Megatron's: tensor-parallel peers talk most and sit next to each other, pipeline
/// stages talk least and sit farthest apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Axis {
    /// Pipeline stages.
    Pp,
    /// Data parallelism, the replicas of a sharding group.
    DpOuter,
    /// Data parallelism, the members of a sharding group.
    DpInner,
    /// Context parallelism: slices of the sequence.
    Cp,
    /// Expert parallelism.
    Ep,
    /// Tensor parallelism.
    Tp,
}

impl Axis {
    /// Every axis, outermost first.
    pub const ALL: [Axis; 6] = [Axis::Pp, Axis::DpOuter, Axis::DpInner, Axis::Cp, Axis::Ep, Axis::Tp];

    /// The place of this axis in [`Axis::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// The short name of this axis, as in messages: `pp`, `dp_outer`, `dp_inner`, `cp`, `ep`, `tp`.
    pub const fn name(self) -> &'static str {
        match self {
            Axis::Pp => "pp",
            Axis::DpOuter => "dp_outer",
            Axis::DpInner => "dp_inner",
            Axis::Cp => "cp",
            Axis::Ep => "ep",
            Axis::Tp => "tp",
        }
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of axes. The ranks of a group are those that differ along the axes of a set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct AxisSet(u8);

impl AxisSet {
    /// No axis: every rank is a group of its own.
    pub const NONE: AxisSet = AxisSet(0);
    /// Every axis: the whole world is one group.
    pub const ALL: AxisSet = AxisSet((1 << Axis::ALL.len()) - 1);
    /// The axes of data parallelism: the outer and the inner one.
    pub const DATA: AxisSet = AxisSet::of(Axis::DpOuter).with(Axis::DpInner);

    /// The set of one axis.
    pub const fn of(axis: Axis) -> AxisSet {
        AxisSet(1 << axis.index())
    }

    /// This set and `axis`.
    pub const fn with(self, axis: Axis) -> AxisSet {
        AxisSet(self.0 | 1 << axis.index())
    }

    /// This set but `axis`.
    pub const fn without(self, axis: Axis) -> AxisSet {
        AxisSet(self.0 & !(1 << axis.index()))
    }

    /// The axes that are in this set, in the other one, or in both.
    pub const fn union(self, other: AxisSet) -> AxisSet {
        AxisSet(self.0 | other.0)
    }

    /// The axes that are in both sets.
    pub const fn intersection(self, other: AxisSet) -> AxisSet {
        AxisSet(self.0 & other.0)
    }

    /// The axes of this set that are not in the other one.
    pub const fn difference(self, other: AxisSet) -> AxisSet {
        AxisSet(self.0 & !other.0)
    }

    /// The axes by the names that users give them, outermost first: both data axes are one.
    pub const NAMED: [(&'static str, AxisSet); 5] = [
        ("pp", AxisSet::of(Axis::Pp)),
        ("dp", AxisSet::DATA),
        ("cp", AxisSet::of(Axis::Cp)),
        ("ep", AxisSet::of(Axis::Ep)),
        ("tp", AxisSet::of(Axis::Tp)),
    ];

    /// The axes that are not in this set.
    pub const fn complement(self) -> AxisSet {
        AxisSet(!self.0 & AxisSet::ALL.0)
    }

    /// Whether `axis` is in this set.
    pub const fn contains(self, axis: Axis) -> bool {
        self.0 & (1 << axis.index()) != 0
    }

    /// Whether no axis is in this set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The axes of this set, outermost first.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = Axis> {
        Axis::ALL.into_iter().filter(move |&a| self.contains(a))
    }

    /// A number that differs between sets, below 64: a tag space per group needs one.
    pub const fn number(self) -> u8 {
        self.0
    }
}

impl From<Axis> for AxisSet {
    fn from(axis: Axis) -> AxisSet {
        AxisSet::of(axis)
    }
}

impl FromIterator<Axis> for AxisSet {
    fn from_iter<I: IntoIterator<Item = Axis>>(axes: I) -> AxisSet {
        axes.into_iter().fold(AxisSet::NONE, AxisSet::with)
    }
}

impl fmt::Display for AxisSet {
    /// `dp_outer+dp_inner`, or `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        for (i, axis) in self.iter().enumerate() {
            let separator = if i == 0 { "" } else { "+" };
            write!(f, "{separator}{axis}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for AxisSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AxisSet({self})")
    }
}

/// The number of ranks along each axis. Every field is at least 1 in a valid mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AxisSizes {
    /// Ranks along [`Axis::Pp`].
    pub pp: usize,
    /// Ranks along [`Axis::DpOuter`].
    pub dp_outer: usize,
    /// Ranks along [`Axis::DpInner`].
    pub dp_inner: usize,
    /// Ranks along [`Axis::Cp`].
    pub cp: usize,
    /// Ranks along [`Axis::Ep`].
    pub ep: usize,
    /// Ranks along [`Axis::Tp`].
    pub tp: usize,
}

impl AxisSizes {
    /// One rank along every axis; the base of struct updates.
    pub const ONE: AxisSizes = AxisSizes { pp: 1, dp_outer: 1, dp_inner: 1, cp: 1, ep: 1, tp: 1 };

    /// The sizes of plain three-dimensional parallelism. All of dp is on the inner data axis, so
    /// that state sharded over data parallelism is sharded over every replica.
    pub const fn dp_tp_pp(dp: usize, tp: usize, pp: usize) -> AxisSizes {
        AxisSizes { pp, dp_inner: dp, tp, ..AxisSizes::ONE }
    }

    /// `ranks` ranks along `axis`, and one along every other.
    pub fn only(axis: Axis, ranks: usize) -> AxisSizes {
        let along = |other| if other == axis { ranks } else { 1 };
        let [pp, dp_outer, dp_inner, cp, ep, tp] = Axis::ALL.map(along);
        AxisSizes { pp, dp_outer, dp_inner, cp, ep, tp }
    }

    /// The number of ranks in a group along `axes`: the product of their sizes.
    pub fn size(&self, axes: AxisSet) -> usize {
        axes.iter().map(|axis| self.along(axis)).product()
    }

    /// The size along `axis`.
    pub const fn along(&self, axis: Axis) -> usize {
        self.array()[axis.index()]
    }

    /// The number of ranks: the product of the sizes, or `None` where it does not fit a machine word.
    pub fn num_ranks(&self) -> Option<usize> {
        self.array().into_iter().try_fold(1usize, usize::checked_mul)
    }

    /// The sizes in the order of [`Axis::ALL`].
    pub(crate) const fn array(&self) -> [usize; 6] {
        [self.pp, self.dp_outer, self.dp_inner, self.cp, self.ep, self.tp]
    }
}
