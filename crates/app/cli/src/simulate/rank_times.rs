//! The processes of a trace: ranks, by number and by their place in the mesh, whether their step was simulated or
//! measured.

use std::collections::BTreeSet;

use mesh::{Axis, AxisSet, Mesh, Rank};
use program::StepTimes;
use run::failure::Failure;
use sim::RankTimes;

use crate::arguments::traced_ranks::TracedRanks;

/// Number of ranks that are traced by default: as many as a window shows.
const MOST: usize = 64;

/// All ranks of a mesh if they are few, otherwise one pipeline.
pub fn usual(mesh: &Mesh) -> TracedRanks {
    if mesh.world_size() <= MOST { TracedRanks::All } else { TracedRanks::Pipeline }
}

/// The numbers of these ranks, ascending.
///
/// # Errors
/// A number that no rank has.
fn numbers(ranks: &TracedRanks, mesh: &Mesh) -> Result<Vec<usize>, Failure> {
    let is_first = |rank: &Rank, set: AxisSet| mesh.coord(*rank).position(set) == 0;
    let of_first = |set: AxisSet| mesh.ranks().filter(|rank| is_first(rank, set)).map(|rank| rank.0).collect();
    match ranks {
        TracedRanks::All => Ok(of_first(AxisSet::NONE)),
        TracedRanks::Replica => Ok(of_first(AxisSet::DATA.with(Axis::Ep))),
        TracedRanks::Pipeline => Ok(of_first(AxisSet::of(Axis::Pp).complement())),
        TracedRanks::Numbers(ranges) => {
            let last = mesh.world_size() - 1;
            match ranges.iter().map(|range| *range.end()).find(|number| *number > last) {
                None => Ok(ranges.iter().cloned().flatten().collect::<BTreeSet<_>>().into_iter().collect()),
                Some(number) => {
                    Err(Failure::Input(format!("--ranks {number} is not a rank of the run; use 0 to {last}")))
                }
            }
        }
    }
}

/// These ranks of a simulated step.
///
/// # Errors
/// A number that no rank has.
pub fn simulated(mesh: &Mesh, ranks: &TracedRanks, times: &StepTimes) -> Result<Vec<RankTimes>, Failure> {
    let of =
        |number: usize| RankTimes::of_rank(mesh, number, times.ranks[mesh.coord(Rank(number)).along(Axis::Pp)].clone());
    Ok(numbers(ranks, mesh)?.into_iter().map(of).collect())
}

#[cfg(test)]
mod tests {
    use mesh::AxisSizes;

    use super::*;

    #[test]
    fn ranks_are_chosen_by_place_or_number() {
        let mesh = Mesh::new(AxisSizes::dp_tp_pp(2, 2, 3)).expect("a mesh");
        let of = |text: &str| numbers(&text.parse::<TracedRanks>().expect("a choice"), &mesh);
        let chosen = |text: &str| of(text).expect("ranks");
        assert_eq!(chosen("all"), (0..12).collect::<Vec<_>>());
        assert_eq!(chosen("replica"), [0, 1, 4, 5, 8, 9]);
        assert_eq!(chosen("pipeline"), [0, 4, 8]);
        assert_eq!(chosen("8, 1-3,2"), [1, 2, 3, 8]);
        assert!("some".parse::<TracedRanks>().is_err() && "3-1".parse::<TracedRanks>().is_err());
        let refused = of("0-12").expect_err("there are 12").to_string();
        assert_eq!(refused, "--ranks 12 is not a rank of the run; use 0 to 11");
    }
}
