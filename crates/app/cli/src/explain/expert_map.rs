//! Which ranks hold which experts.

use std::ops::Range;

use config::{ExpertsSpec, Sharding, Unit};
use mesh::{Axis, AxisSet, Coord, Rank};
use train::Setup;

/// The experts of a run and their ranks. Every rank of a pipeline stage has the layers of that stage.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpertMap {
    pub experts: ExpertsSpec,
    /// One row for each rank that divides experts, in order.
    pub rows: Vec<ExpertRow>,
    /// The layers with experts of each pipeline rank, in order.
    pub layers: Vec<Vec<u32>>,
    /// The groups of ranks that sum the gradients of the same experts; none where no rank has a peer.
    pub sums: Vec<Vec<Rank>>,
}

/// Experts that the same ranks hold.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpertRow {
    /// Their numbers.
    pub held: Range<usize>,
    /// The ranks of each pipeline rank, in order.
    pub ranks: Vec<Vec<Rank>>,
}

impl ExpertMap {
    /// The map of `setup`; `None` for a model without experts.
    pub fn of(setup: &Setup) -> Option<ExpertMap> {
        let experts = setup.model.experts?;
        let (mesh, degrees) = (&setup.mesh, setup.parallelism.degrees);
        let split = Sharding::EXPERTS;
        let places = mesh.size(split.axes());
        let own = experts.number / places;
        let is_at =
            |coord: Coord, place: usize, pp: usize| split.slice_of(&coord) == place && coord.along(Axis::Pp) == pp;
        let of_place = |place: usize, pp: usize| mesh.ranks().filter(move |rank| is_at(mesh.coord(*rank), place, pp));
        let row = |place: usize| ExpertRow {
            held: place * own..(place + 1) * own,
            ranks: (0..degrees.pp).map(|pp| of_place(place, pp).collect()).collect(),
        };
        let layers_of = |pp: usize| -> Vec<u32> {
            let layer = |unit: Unit| match unit {
                Unit::Layer(layer) => setup.model.experts_of(unit).map(|_| layer),
                Unit::Table | Unit::Embedding | Unit::Head | Unit::Adapters(_) | Unit::Experts(_) => None,
            };
            setup.program(pp).view.computing_units().filter_map(layer).collect()
        };
        let axes = setup.layouts.iter().find(|(unit, _)| matches!(unit, Unit::Experts(_)));
        let axes = axes.map_or(AxisSet::NONE, |(_, layout)| layout.axes().data);
        let groups = mesh.groups(axes).into_iter().filter(|members| members.len() > 1);
        Some(ExpertMap {
            experts,
            rows: (0..places).map(row).collect(),
            layers: (0..degrees.pp).map(layers_of).collect(),
            sums: groups.collect(),
        })
    }

    /// The experts that `rank` holds, with the layers that they are in; `None` where its stage has none.
    pub fn of_rank(&self, rank: Rank) -> Option<(Range<usize>, &[u32])> {
        let has = |row: &ExpertRow| row.ranks.iter().position(|ranks| ranks.contains(&rank));
        let (row, stage) = self.rows.iter().find_map(|row| Some((row, has(row)?)))?;
        let layers = &self.layers[stage];
        (!layers.is_empty()).then(|| (row.held.clone(), layers.as_slice()))
    }
}

/// Numbers `first` to `last` of a range that is not empty.
pub fn numbers(range: &Range<usize>) -> String {
    if range.len() == 1 { range.start.to_string() } else { format!("{} to {}", range.start, range.end - 1) }
}

/// Layers by number: a range where they follow each other, their distance where it is one.
pub fn layers(list: &[u32]) -> String {
    match list {
        [] => "no layer".into(),
        [one] => format!("layer {one}"),
        [first, second, ..] => {
            let (step, last) = (second - first, list[list.len() - 1]);
            let is_even = list.windows(2).all(|pair| pair[1] - pair[0] == step);
            match (is_even, step) {
                (true, 1) => format!("layers {first} to {last}"),
                (true, _) if list.len() > 2 => format!("every {} layer of {first} to {last}", ordinal(step)),
                (true | false, _) => {
                    format!("layers {}", list.iter().map(u32::to_string).collect::<Vec<_>>().join(", "))
                }
            }
        }
    }
}

fn ordinal(number: u32) -> String {
    match number {
        2 => "2nd".into(),
        3 => "3rd".into(),
        _ => format!("{number}th"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_named_by_their_range() {
        let named = [&[][..], &[4], &[1, 2, 3], &[1, 3, 5], &[1, 3], &[0, 1, 3]].map(layers);
        let expected =
            ["no layer", "layer 4", "layers 1 to 3", "every 2nd layer of 1 to 5", "layers 1, 3", "layers 0, 1, 3"];
        assert_eq!(named, expected);
        assert_eq!([numbers(&(0..4)), numbers(&(3..4))], ["0 to 3", "3"]);
    }
}
