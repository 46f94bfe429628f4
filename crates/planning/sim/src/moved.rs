//! Data that instructions move between ranks: bytes, group and algorithm.

use std::collections::BTreeMap;

use cluster::Software;
use comm::{CollectiveCall, Operation};
use config::{ModelSpec, Parallelism, StateKind, Unit, UnitLayout};
use device::SumTree;
use mesh::{Axis, AxisSet, Mesh, Rank};
use program::{Family, GradientAxes, GroupCall, Instr, Partner, Pass, PeerGroup, RankView, UnitCalls};

use crate::algorithm::Algorithms;
use crate::group_calls::reductions;
use crate::group_shape::GroupShape;
use crate::recorded::RecordedUnits;

/// Ranks of a group that are named one by one.
const NAMED: usize = 8;

/// Data that one instruction of one rank moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Bytes of the arguments, all slices together.
    pub bytes: usize,
    /// The axes of the group and its ranks; of several groups, one after the other.
    pub group: String,
    /// The collectives and their algorithms.
    pub algorithm: String,
}

/// A layout with the sizes of what its ranks move.
#[derive(Clone, Debug)]
pub struct Movements<'a> {
    /// The layout.
    pub parallelism: &'a Parallelism,
    /// Flat buffers of all units.
    pub layouts: BTreeMap<Unit, UnitLayout>,
    /// The ranks.
    pub mesh: Mesh,
    /// Bytes of an element of a gradient while it is summed.
    pub gradient_bytes: f64,
    /// Bytes of an element of the parameters.
    pub stored_bytes: usize,
    /// Bytes of the residual stream between two units, of one microbatch on one rank.
    pub output_bytes: usize,
    /// Words that a step sums besides the squares of gradients ([`device::step_sum_words`]).
    pub sum_words: usize,
    /// The collectives of passes, where they were recorded.
    pub units: Option<&'a RecordedUnits>,
    /// The trainer whose reductions these are.
    pub software: Option<&'a Software>,
    /// The library.
    pub algorithms: Algorithms<'a>,
}

/// One collective of a rank.
struct Call {
    axes: AxisSet,
    members: Vec<Rank>,
    operation: Operation,
    tree: SumTree,
    bytes: usize,
}

impl Movements<'_> {
    /// The flat buffers of the units of `model`.
    pub fn layouts(model: &ModelSpec, parallelism: &Parallelism) -> BTreeMap<Unit, UnitLayout> {
        let units = Unit::holding(model.num_layers);
        units.map(|unit| (unit, UnitLayout::of(model, unit, parallelism))).collect()
    }

    /// The pipeline rank whose program `rank` runs.
    pub fn stage(&self, rank: Rank) -> usize {
        self.mesh.coord(rank).along(Axis::Pp)
    }

    /// The data that `instr` moves on `rank` with the program at `view`; `None` where no other rank takes part.
    pub fn of(&self, rank: Rank, view: &RankView, instr: Instr) -> Option<Moved> {
        let calls = match instr.family() {
            Family::Pass(pass) => self.of_pass(rank, pass),
            Family::Transfer { .. } => match instr.partner(view) {
                Partner::To(pp) | Partner::From(pp) => vec![self.message(rank, pp)],
                Partner::None | Partner::Peers(_) | Partner::Ends { .. } | Partner::World => vec![],
            },
            Family::Gather { unit } => {
                let calls = self.of_unit(unit)?.gather();
                vec![self.group_call(rank, &calls, self.stored_bytes as f64)]
            }
            Family::Reduce { unit, axes, .. } => self.reduction(rank, unit, &axes)?,
            Family::SumTied => match instr.partner(view) {
                Partner::Ends { .. } => {
                    vec![self.group_call(rank, &self.of_unit(Unit::Table)?.tied(), self.gradient_bytes)]
                }
                Partner::None | Partner::To(_) | Partner::From(_) | Partner::Peers(_) | Partner::World => vec![],
            },
            Family::GradNorm => {
                GroupCall::norm(self.sum_words).iter().map(|call| self.group_call(rank, call, 8.0)).collect()
            }
            Family::Load { .. } | Family::Update { .. } | Family::CopyState { .. } => vec![],
            Family::CopyActs { .. } | Family::Bookkeeping { .. } => vec![],
        };
        self.summary(calls)
    }

    fn summary(&self, calls: Vec<Call>) -> Option<Moved> {
        let calls: Vec<Call> = calls.into_iter().filter(|call| call.members.len() > 1 && call.bytes > 0).collect();
        if calls.is_empty() {
            return None;
        }
        let groups = counted(calls.iter().map(|call| self.group_text(call)));
        let algorithms =
            calls.iter().map(|call| self.algorithms.name(self.shape(call), call.operation, call.tree, call.bytes));
        let groups: Vec<String> = groups.into_iter().map(|(group, _)| group).collect();
        let algorithms: Vec<String> =
            counted(algorithms).into_iter().map(|(name, calls)| times(calls, &name)).collect();
        let bytes = calls.iter().map(|call| call.bytes).sum();
        Some(Moved { bytes, group: groups.join("; "), algorithm: algorithms.join("; ") })
    }

    fn of_pass(&self, rank: Rank, pass: Pass) -> Vec<Call> {
        let Some(units) = self.units else { return vec![] };
        let collectives = &units.units.of(pass.unit).of(pass.kind).collectives;
        let call = |CollectiveCall { axes, operation, bytes }: &CollectiveCall| Call {
            axes: *axes,
            members: self.mesh.group(rank, *axes).members().to_vec(),
            operation: *operation,
            tree: SumTree::RANK_ORDER,
            bytes: *bytes,
        };
        collectives.iter().map(call).collect()
    }

    fn message(&self, rank: Rank, pp: usize) -> Call {
        let mesh = &self.mesh;
        let peer = mesh.rank(mesh.with(mesh.coord(rank), Axis::Pp, pp));
        let mut members = vec![rank, peer];
        members.sort_unstable();
        let axes = AxisSet::of(Axis::Pp);
        Call { axes, members, operation: Operation::PointToPoint, tree: SumTree::RANK_ORDER, bytes: self.output_bytes }
    }

    fn of_unit(&self, unit: Unit) -> Option<UnitCalls<'_>> {
        let (parallelism, layout) = (self.parallelism, self.layouts.get(&unit)?);
        let updated = layout.kept(parallelism.zero, StateKind::Optimizer, self.mesh.origin());
        Some(UnitCalls { parallelism, layout, updated })
    }

    fn reduction(&self, rank: Rank, unit: Unit, axes: &GradientAxes) -> Option<Vec<Call>> {
        let (of_data, of_parameters) = reductions(&self.of_unit(unit)?, axes, self.software);
        let calls = of_parameters.iter().chain(&of_data);
        Some(calls.map(|call| self.group_call(rank, call, self.gradient_bytes)).collect())
    }

    fn group_call(&self, rank: Rank, call: &GroupCall, bytes_per_element: f64) -> Call {
        let (axes, members) = match call.group {
            PeerGroup::Along(axes) => (axes, self.mesh.group(rank, axes).members().to_vec()),
            PeerGroup::Ends => {
                let axes = AxisSet::of(Axis::Pp);
                let ends = self.mesh.group(rank, axes).ends();
                (axes, ends.map_or(vec![], |ends| ends.members().to_vec()))
            }
        };
        let (operation, tree) = call.collective.operation();
        let bytes = (call.elements.len() as f64 * bytes_per_element).round() as usize;
        Call { axes, members, operation, tree, bytes }
    }

    fn shape(&self, call: &Call) -> GroupShape {
        let (order, node) = self.algorithms.nodes();
        GroupShape::of_members(&self.mesh, &call.members, order, node)
    }

    /// `dp of 4: ranks 0, 2, 4, 6`.
    fn group_text(&self, call: &Call) -> String {
        let axes = AxisSet::NAMED.into_iter().filter(|(_, axis)| self.mesh.size(call.axes.intersection(*axis)) > 1);
        let axes: Vec<&str> = axes.map(|(name, _)| name).collect();
        format!("{} of {}: ranks {}", axes.join(" x "), call.members.len(), numbers(&call.members))
    }
}

/// Different texts with their numbers, in the order in which they come first.
fn counted(texts: impl Iterator<Item = String>) -> Vec<(String, usize)> {
    let mut counted: Vec<(String, usize)> = vec![];
    for text in texts {
        match counted.iter_mut().find(|(own, _)| *own == text) {
            Some((_, count)) => *count += 1,
            None => counted.push((text, 1)),
        }
    }
    counted
}

fn times(calls: usize, name: &str) -> String {
    if calls == 1 { name.into() } else { format!("{calls} times {name}") }
}

/// `0, 2, 4`; of many ranks the first and the last, with their distance where it is the same for all.
fn numbers(members: &[Rank]) -> String {
    let all: Vec<String> = members.iter().map(|rank| rank.0.to_string()).collect();
    match members {
        [first, second, .., last] if members.len() > NAMED => {
            let distance = second.0 - first.0;
            match members.windows(2).all(|pair| pair[1].0 - pair[0].0 == distance) {
                true if distance == 1 => format!("{} to {}", first.0, last.0),
                true => format!("{} to {}, every {distance}th", first.0, last.0),
                false => format!("{}, ... {}", all[..NAMED - 1].join(", "), last.0),
            }
        }
        _ => all.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_groups_are_short() {
        let of = |ranks: &[usize]| numbers(&ranks.iter().copied().map(Rank).collect::<Vec<_>>());
        assert_eq!(of(&[0, 4]), "0, 4");
        assert_eq!(of(&(0..12).collect::<Vec<_>>()), "0 to 11");
        assert_eq!(of(&(0..12).map(|rank| 3 + 4 * rank).collect::<Vec<_>>()), "3 to 47, every 4th");
        assert_eq!(of(&[0, 1, 2, 3, 8, 9, 10, 11, 16, 17]), "0, 1, 2, 3, 8, 9, 10, ... 17");
    }

    #[test]
    fn equal_texts_are_counted() {
        let of = counted(["a", "b", "a"].into_iter().map(String::from));
        assert_eq!(of, [("a".to_string(), 2), ("b".to_string(), 1)]);
        assert_eq!((times(1, "ring"), times(2, "ring")), ("ring".into(), "2 times ring".into()));
    }
}
