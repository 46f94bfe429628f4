//! Which boxes of the parameters ranks fill and store, and which shards their groups hand them.

use std::collections::{BTreeMap, BTreeSet};

use config::{Kept, Sharding, StateKind, Unit, UnitLayout};
use mesh::{AxisSet, OwnedBox, Rank, TilingFault, tiling_fault};
use rayon::prelude::*;

use super::{PeerGroup, Rule, Seen, Violation, World};
use crate::setup::Setup;
use crate::storage::pieces::{Copies, pieces};

/// Violations that are reported.
const REPORTED: usize = 8;

/// Shards that do not fit their groups; parameters that are not filled once in every model replica, or not stored once.
pub(super) fn violations(setup: &Setup, world: &World, seen: &[Seen]) -> Vec<Violation> {
    let mut found = positions(setup, world, seen);
    let mut holders: BTreeMap<Unit, Holders> = BTreeMap::new();
    for (rank, own) in seen.iter().enumerate() {
        own.held.iter().for_each(|unit| holders.entry(*unit).or_default().held.push(rank));
        own.stored.iter().for_each(|unit| holders.entry(*unit).or_default().stored.push(rank));
    }
    let units: Vec<(&Unit, &Holders)> = holders.iter().collect();
    let check = Check { setup, world, seen };
    let of_units = units.par_iter().with_max_len(1).flat_map_iter(|(unit, holders)| {
        let layout = &setup.layouts[unit];
        check.stored(layout, &holders.stored).into_iter().chain(check.filled(layout, &holders.held))
    });
    found.extend(of_units.collect::<Vec<String>>());
    found.into_iter().take(REPORTED).map(|message| Violation::new(Rule::Shards, message)).collect()
}

/// Ranks with the parameters of one unit.
#[derive(Default)]
struct Holders {
    held: Vec<usize>,
    stored: Vec<usize>,
}

/// The axes along which ranks hold different parts of a unit in addition to those of tensor parallelism.
fn split(layout: &UnitLayout, tensor: AxisSet) -> AxisSet {
    let axes = layout.segments.iter().map(|segment| segment.param.sharding.axes());
    axes.fold(AxisSet::NONE, AxisSet::union).difference(tensor)
}

/// The shards of a rank must follow from its positions in its groups.
fn positions(setup: &Setup, world: &World, seen: &[Seen]) -> Vec<String> {
    let mut found = vec![];
    let is_sharded = setup.parallelism.zero.keeps(StateKind::Optimizer) == Kept::Shard;
    let tensor = setup.parallelism.tensor_axes();
    let mut splits: BTreeSet<AxisSet> = setup.layouts.values().map(|layout| split(layout, tensor)).collect();
    splits.remove(&AxisSet::NONE);
    splits.insert(tensor);
    for (rank, own) in seen.iter().enumerate() {
        for axes in &splits {
            let which = PeerGroup::Along(*axes);
            let (size, position) = (world.members(rank, which).len(), world.position(rank, which));
            let (own_size, own_position) = own.position.model.share(*axes);
            if (own_size, own_position) != (size, position) {
                found.push(format!(
                    "rank {rank} must hold shard {position} of {size} of split parameters, as its {which}; got shard {} \
                     of {}",
                    own_position, own_size
                ));
            }
        }
        let handed = |layout: &UnitLayout| {
            let shards = PeerGroup::Along(layout.axes().shards);
            (world.members(rank, shards).len(), world.position(rank, shards))
        };
        let wrong = own.held.iter().find(|unit| {
            let layout = &setup.layouts[unit];
            let (parts, handed) = handed(layout);
            is_sharded
                && !(layout.num_shards.is_multiple_of(parts)
                    && own.position.shards.shard(layout) == layout.part(parts, handed))
        });
        if let Some(unit) = wrong {
            let (parts, handed) = handed(&setup.layouts[unit]);
            let got = own.position.shards.shard(&setup.layouts[unit]);
            found.push(format!(
                "rank {rank} must keep part {handed} of {parts} of {unit}, which its sharding group hands it; got elements {} \
                 to {}",
                got.start, got.end
            ));
        }
    }
    found
}

struct Check<'a> {
    setup: &'a Setup,
    world: &'a World,
    seen: &'a [Seen],
}

/// Boxes by parameter of a layout.
struct Boxes<'a> {
    layout: &'a UnitLayout,
    of_parameters: Vec<Vec<OwnedBox>>,
}

impl<'a> Boxes<'a> {
    fn new(layout: &'a UnitLayout) -> Boxes<'a> {
        Boxes { layout, of_parameters: vec![vec![]; layout.segments.len()] }
    }

    fn add(&mut self, owner: usize, list: Vec<crate::storage::pieces::Piece<'a>>) {
        let mut index = 0;
        for piece in list {
            // Pieces come in the order of segments.
            while !std::ptr::eq(&raw const self.layout.segments[index].param, piece.param) {
                index += 1;
            }
            self.of_parameters[index].push(OwnedBox { owner, region: piece.region });
        }
    }

    /// The first fault of each parameter that `is_meant`; `verb` says what happens to an element.
    fn faults(&self, verb: &str, is_meant: impl Fn(Sharding) -> bool) -> Vec<String> {
        let parameters = self.layout.segments.iter().zip(&self.of_parameters);
        let meant = parameters.filter(|(segment, _)| is_meant(segment.param.sharding));
        let faults = meant.filter_map(|(segment, boxes)| {
            let (name, fault) = (&segment.param.name, tiling_fault(&segment.param.shape, boxes)?);
            Some(match fault {
                TilingFault::Outside { owner } => format!("rank {owner} has a box of {name} that reaches beyond it"),
                TilingFault::Twice { element: (row, col), owners: [first, second] } => {
                    format!("element ({row}, {col}) of {name} is {verb} by rank {first} and by rank {second}")
                }
                TilingFault::Missing { element: (row, col) } => {
                    format!("element ({row}, {col}) of {name} is {verb} by no rank")
                }
            })
        });
        faults.collect()
    }
}

impl Check<'_> {
    /// Over all `ranks`, each element once.
    fn stored(&self, layout: &UnitLayout, ranks: &[usize]) -> Vec<String> {
        let mut boxes = Boxes::new(layout);
        for rank in ranks {
            let position = &self.seen[*rank].position;
            boxes.add(*rank, pieces(layout, position.shards.owned(layout), position.model, Copies::First));
        }
        boxes.faults("stored", |_| true)
    }

    /// In each model replica, or sharding group of them where parameters are sharded: split parameters once, replicated
    /// ones once on every rank that holds a part of the others.
    fn filled(&self, layout: &UnitLayout, ranks: &[usize]) -> Vec<String> {
        let splits: BTreeSet<AxisSet> = layout.segments.iter().map(|segment| segment.param.sharding.axes()).collect();
        splits.into_iter().flat_map(|axes| self.filled_over(axes, layout, ranks)).collect()
    }

    /// The same of the parameters that are split over `axes`.
    fn filled_over(&self, axes: AxisSet, layout: &UnitLayout, ranks: &[usize]) -> Vec<String> {
        let is_sharded = self.setup.parallelism.zero.keeps(StateKind::Parameters) == Kept::Shard;
        let tensor = self.setup.parallelism.tensor_axes();
        let groups = [axes.intersection(tensor), axes.difference(tensor)].into_iter().filter(|axes| !axes.is_empty());
        let (shards, groups) =
            (PeerGroup::Along(layout.axes().shards), groups.map(PeerGroup::Along).collect::<Vec<PeerGroup>>());
        let is_first = |rank: &&usize| {
            groups.iter().all(|which| self.world.position(**rank, *which) == 0)
                && !(is_sharded && self.world.position(**rank, shards) != 0)
        };
        let mut found = vec![];
        for first in ranks.iter().filter(is_first) {
            let parts = groups.iter().fold(vec![Rank(*first)], |parts, which| {
                parts.iter().flat_map(|part| self.world.members(part.0, *which).to_vec()).collect()
            });
            let mut all = Boxes::new(layout);
            for part in &parts {
                let members = match is_sharded {
                    true => self.world.members(part.0, shards),
                    false => std::slice::from_ref(part),
                };
                for rank in members {
                    let position = &self.seen[rank.0].position;
                    let kept = position.shards.kept(layout, StateKind::Parameters);
                    all.add(rank.0, pieces(layout, kept, position.model, Copies::Every));
                }
            }
            found.extend(all.faults("filled", |sharding| sharding.axes() == axes));
        }
        found
    }
}
