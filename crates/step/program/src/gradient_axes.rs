//! The axes over which the gradients of a unit's parameters are summed: what a reduction carries, and what the executor
//! does.

use std::fmt;

use config::{Parallelism, ParamSpec};
use mesh::AxisSet;

/// A set of axes per parameter of one unit, in the order of the unit's flat buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct GradientAxes {
    axes: [AxisSet; GradientAxes::MAX_PARAMETERS],
    len: usize,
}

impl GradientAxes {
    /// The most parameters that a unit may have: instructions are plain values, so their axes have a fixed length.
    pub const MAX_PARAMETERS: usize = 32;

    /// One set per parameter.
    ///
    /// # Panics
    /// More than [`GradientAxes::MAX_PARAMETERS`].
    pub fn new(of_parameters: impl IntoIterator<Item = AxisSet>) -> GradientAxes {
        let mut list = GradientAxes { axes: [AxisSet::NONE; GradientAxes::MAX_PARAMETERS], len: 0 };
        for axes in of_parameters {
            assert!(list.len < GradientAxes::MAX_PARAMETERS, "a unit has at most 32 parameters");
            list.axes[list.len] = axes;
            list.len += 1;
        }
        list
    }

    /// The axes that follow from the declarations of a unit's parameters.
    ///
    /// # Panics
    /// The panics of [`GradientAxes::new`].
    pub fn declared<'a>(params: impl IntoIterator<Item = &'a ParamSpec>, parallelism: &Parallelism) -> GradientAxes {
        GradientAxes::new(params.into_iter().map(|param| config::gradient_axes(param, parallelism)))
    }

    /// The sets, one per parameter.
    pub fn as_slice(&self) -> &[AxisSet] {
        &self.axes[..self.len]
    }

    /// The axes over which at least one parameter is reduced.
    pub fn union(&self) -> AxisSet {
        self.as_slice().iter().copied().fold(AxisSet::NONE, AxisSet::union)
    }

    /// For each parameter, its axes beyond `data_axes`: its part of the buffer is reduced over them by itself.
    pub fn beyond(&self, data_axes: AxisSet) -> impl Iterator<Item = AxisSet> {
        self.as_slice().iter().map(move |axes| axes.difference(data_axes))
    }

    /// Whether the whole buffer is reduced over the group along `axes`.
    ///
    /// # Panics
    /// Some parameters or some of the axes are left out: a fault of the program, which the verifier excludes.
    pub fn reduces_over(&self, axes: AxisSet) -> bool {
        let [any, all] = [self.union(), self.common()].map(|set| set.intersection(axes));
        assert!(any == all && (all == axes || all.is_empty()), "one buffer is reduced over {any} and {all} of {axes}");
        !all.is_empty()
    }

    /// The axes over which every parameter is reduced; none where there are no parameters.
    pub fn common(&self) -> AxisSet {
        self.as_slice().iter().copied().reduce(AxisSet::intersection).unwrap_or(AxisSet::NONE)
    }
}

impl fmt::Debug for GradientAxes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

impl fmt::Display for GradientAxes {
    /// `over dp_outer+dp_inner`, and where parameters differ, `over dp_outer+dp_inner, 6 of 18 parameters also over
    /// tp`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let common = self.common();
        write!(f, "over {common}")?;
        for axis in self.union().intersection(common.complement()).iter() {
            let summed = self.as_slice().iter().filter(|axes| axes.contains(axis)).count();
            write!(f, ", {summed} of {} parameters also over {axis}", self.len)?;
        }
        Ok(())
    }
}
