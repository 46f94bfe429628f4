//! Cells whose sequences two ranks share, in each of the ways to the keys and values of the other.

use std::fmt;

use config::{ContextKind, ContextParallel, DataSpec, RunConfig, TrainSpec, context_kind_name};
use philox::philox4x32_10;
use testkit::numbers::{Numbers, SEQUENCE_LENGTH};

use super::{Cell, Order, SEED, Shape, Sharing, degrees_among, forms};
use crate::cases::ShardGroups;

/// The sequences of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequences {
    /// How the ranks that share one reach the keys and values of the others; `None` where each rank has whole ones.
    pub kind: Option<ContextKind>,
    /// Tokens of each.
    pub length: usize,
}

/// Ranks that share a sequence.
const CP: usize = 2;

/// Tokens of a sequence that ranks share: each chunk has as many as masks of dropout are drawn for at once.
const SHARED_LENGTH: usize = 2 * CP * 4;

impl Sequences {
    /// Those of cells whose ranks share none.
    pub const WHOLE: Sequences = Sequences { kind: None, length: SEQUENCE_LENGTH };

    /// The run with sequences of this length.
    pub(super) fn of(self, train: TrainSpec) -> TrainSpec {
        TrainSpec { sequence_length: self.length, ..train }
    }

    pub(super) fn context(self) -> ContextParallel {
        let data: DataSpec = RunConfig::quick_start().data;
        self.kind.map_or(ContextParallel::DEFAULT, |kind| ContextParallel::of(kind, &data))
    }
}

impl fmt::Display for Sequences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            None => f.write_str("whole sequences")?,
            Some(kind) => write!(f, "cp {CP} by {}", context_kind_name(kind))?,
        }
        match self.length {
            SEQUENCE_LENGTH => Ok(()),
            length => write!(f, " of {length} tokens"),
        }
    }
}

impl Cell {
    /// Every ZeRO form in every order with every sharing and every kind of context parallelism; degrees, recomputation,
    /// numbers and shape are drawn.
    pub fn of_shared_sequences() -> Vec<Cell> {
        let mut cells = Vec::new();
        for form in forms() {
            for order in Order::all() {
                for sharing in Sharing::ALL {
                    for kind in ContextKind::ALL {
                        let [of_degrees, of_recompute, of_numbers, of_shape] =
                            philox4x32_10([cells.len() as u32, 2, 0, 0], [SEED, 0]).map(|random| random as usize);
                        // Groups of one replica are shared by the ranks of its sequences.
                        let replicas: &[usize] = match form.shard_groups {
                            ShardGroups::One => &[1, 2, 3],
                            ShardGroups::Several => &[2, 4],
                        };
                        let degrees = degrees_among(replicas, CP, order, sharing);
                        let recomputes = sharing.recomputes();
                        cells.push(Cell {
                            form,
                            order,
                            sharing,
                            recompute: recomputes[of_recompute % recomputes.len()],
                            numbers: Numbers::ALL[of_numbers % Numbers::ALL.len()],
                            shape: if of_shape.is_multiple_of(2) { Shape::Gpt2 } else { wide(kind, sharing) },
                            degrees: degrees[of_degrees % degrees.len()],
                            microbatch_size: 1,
                            sequences: Sequences { kind: Some(kind), length: SHARED_LENGTH },
                        });
                    }
                }
            }
        }
        cells
    }
}

/// A model with fewer key than query heads, where ranks can split its heads.
fn wide(kind: ContextKind, sharing: Sharing) -> Shape {
    match kind {
        ContextKind::Gather | ContextKind::Ring => Shape::Llama,
        ContextKind::Heads if Shape::Llama.model().num_kv_heads.is_multiple_of(CP * sharing.tp()) => Shape::Llama,
        ContextKind::Heads => Shape::Gpt2,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prove::MAX_RANKS;

    use super::*;

    #[test]
    fn every_form_meets_every_order_sharing_and_kind_and_all_are_legal() {
        let cells = Cell::of_shared_sequences();
        assert_eq!(cells.len(), 8 * 9 * 3 * 3);
        let names: BTreeSet<String> = cells.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), cells.len(), "names of cells");
        for cell in &cells {
            assert_eq!(cell.refusals(), [], "{cell}");
            assert!(cell.degrees.world_size() <= MAX_RANKS && cell.degrees.cp == CP, "{cell}");
        }
        // Whatever is drawn meets every kind.
        for column in [3, 4, 5] {
            let met: BTreeSet<(String, Option<&'static str>)> = cells
                .iter()
                .map(|cell| (cell.values()[column].clone(), cell.sequences.kind.map(context_kind_name)))
                .collect();
            let values: BTreeSet<String> = cells.iter().map(|cell| cell.values()[column].clone()).collect();
            assert_eq!(met.len(), values.len() * ContextKind::ALL.len(), "{met:?}");
        }
    }
}
