//! What the promise of equality is tried on: every layout of at most 16 ranks, in every family of runs.

use std::fmt;

use spec::unit::Tied;
use spec::{
    CheckpointInputs, Checkpoints, ModelSpec, Parallelism, Problem, Recompute, RunConfig, ScheduleKind,
    SequenceParallel, ZeroStage, check,
};

use crate::models::{Style, proof_model, proof_training};
use crate::runner::Layout;

/// Ranks of the largest layout.
pub const MAX_RANKS: usize = 16;

/// Runs that one rank is the oracle of: they differ only in how they are spread over ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Family {
    /// GPT-2 or Llama.
    pub style: Style,
    /// Key and value heads.
    pub num_kv_heads: usize,
    /// Whether the head reads the token table.
    pub tied: Tied,
    /// Sequences per microbatch.
    pub microbatch_size: usize,
}

impl Family {
    /// All sixteen.
    pub fn all() -> Vec<Family> {
        let mut families = Vec::new();
        for style in [Style::Gpt2, Style::Llama] {
            for num_kv_heads in [12, 4] {
                for tied in [Tied::Yes, Tied::No] {
                    for microbatch_size in [1, 2] {
                        families.push(Family { style, num_kv_heads, tied, microbatch_size });
                    }
                }
            }
        }
        families
    }

    /// Its model.
    pub fn model(&self) -> ModelSpec {
        proof_model(self.style, self.num_kv_heads, self.tied == Tied::Yes)
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Family { style, num_kv_heads, tied, microbatch_size } = self;
        let tied = match tied {
            Tied::Yes => "tied",
            Tied::No => "untied",
        };
        write!(f, "{style} kv {num_kv_heads} {tied} microbatch {microbatch_size}")
    }
}

/// Degrees of parallelism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Degrees {
    /// Data parallelism.
    pub dp: usize,
    /// Tensor parallelism.
    pub tp: usize,
    /// Pipeline parallelism.
    pub pp: usize,
}

impl Degrees {
    /// One rank.
    pub const ONE: Degrees = Degrees { dp: 1, tp: 1, pp: 1 };

    /// All with at most [`MAX_RANKS`] ranks, in ascending order: 110.
    pub fn all() -> Vec<Degrees> {
        let mut all = Vec::new();
        for dp in 1..=MAX_RANKS {
            for tp in 1..=MAX_RANKS / dp {
                for pp in 1..=MAX_RANKS / (dp * tp) {
                    all.push(Degrees { dp, tp, pp });
                }
            }
        }
        all
    }

    /// The number of ranks.
    pub fn world_size(&self) -> usize {
        self.dp * self.tp * self.pp
    }
}

impl fmt::Display for Degrees {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dp {} tp {} pp {}", self.dp, self.tp, self.pp)
    }
}

/// What may change without changing a bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// Sharded optimizer states or not.
    pub zero: ZeroStage,
    /// The order of microbatches.
    pub schedule: ScheduleKind,
    /// Activations kept or computed again.
    pub recompute: Recompute,
}

impl Manner {
    /// The plainest: nothing sharded, nothing recomputed, all forwards first.
    pub const PLAIN: Manner =
        Manner { zero: ZeroStage::Off, schedule: ScheduleKind::GPipe, recompute: Recompute::None };

    /// Every second layer is computed again, from an input that tensor-parallel ranks share out.
    const SOME_SHARDED: Recompute = Recompute::Full(Checkpoints { every: 2, inputs: CheckpointInputs::Sharded });

    /// All sixteen.
    pub fn all() -> Vec<Manner> {
        let mut all = Vec::new();
        for zero in [ZeroStage::One, ZeroStage::Off] {
            for schedule in [ScheduleKind::OneForwardOneBackward, ScheduleKind::GPipe] {
                for recompute in [Recompute::None, Recompute::FULL, Recompute::Selective, Manner::SOME_SHARDED] {
                    all.push(Manner { zero, schedule, recompute });
                }
            }
        }
        all
    }
}

impl fmt::Display for Manner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let zero = match self.zero {
            ZeroStage::Off => "ZeRO off",
            ZeroStage::One => "ZeRO-1",
        };
        let schedule = match self.schedule {
            ScheduleKind::GPipe => "GPipe",
            ScheduleKind::OneForwardOneBackward => "1F1B",
        };
        write!(f, "{zero} {schedule} ")?;
        match self.recompute {
            Recompute::None => f.write_str("kept"),
            Recompute::Selective => f.write_str("core recomputed"),
            Recompute::FULL => f.write_str("recomputed"),
            Recompute::Full(Checkpoints { every, inputs: CheckpointInputs::Whole }) => {
                write!(f, "every {every} recomputed")
            }
            Recompute::Full(Checkpoints { every, inputs: CheckpointInputs::Sharded }) => {
                write!(f, "every {every} recomputed from shards")
            }
        }
    }
}

/// One layout of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// What is learned, in microbatches of what size.
    pub family: Family,
    /// How many ranks do what.
    pub degrees: Degrees,
    /// Whether ranks that share matrices share out tokens, too. Unlike a manner, it changes sums.
    pub sequence_parallel: SequenceParallel,
    /// In which manner.
    pub manner: Manner,
}

impl Case {
    /// Every degree in every family, legal or not: 1,760. Manners take turns, so that each degree meets each manner in one family.
    pub fn all() -> Vec<Case> {
        let (manners, degrees) = (Manner::all(), Degrees::all());
        let mut cases = Vec::new();
        for (turn, family) in Family::all().into_iter().enumerate() {
            for (index, degrees) in degrees.iter().enumerate() {
                let manner = manners[(turn + index) % manners.len()];
                cases.push(Case { family, degrees: *degrees, sequence_parallel: SequenceParallel::Off, manner });
            }
        }
        cases
    }

    /// The cases of [`Case::all`] with more than one rank per matrix, with sequence parallelism.
    pub fn all_sequence_parallel() -> Vec<Case> {
        let of_several = Case::all().into_iter().filter(|case| case.degrees.tp > 1);
        of_several.map(|case| Case { sequence_parallel: SequenceParallel::On, ..case }).collect()
    }

    /// What every case of the same `dp`, `tp` and sequence parallelism has the bits of: one stage, in the plain manner.
    pub fn reference(&self) -> Case {
        Case { degrees: Degrees { pp: 1, ..self.degrees }, manner: Manner::PLAIN, ..*self }
    }

    /// One rank in the plain manner.
    pub fn oracle(family: Family) -> Case {
        let sequence_parallel = SequenceParallel::Off;
        Case { family, degrees: Degrees::ONE, sequence_parallel, manner: Manner::PLAIN }
    }

    /// The layout in the words of a run file.
    pub fn parallelism(&self) -> Parallelism {
        let Degrees { dp, tp, pp } = self.degrees;
        let (Manner { zero, schedule, .. }, recompute) = (self.manner, self.recompute());
        let (microbatch_size, sequence_parallel) = (self.family.microbatch_size, self.sequence_parallel);
        Parallelism { dp, tp, pp, sequence_parallel, zero, schedule, microbatch_size, recompute, stage_layers: None }
    }

    /// The manner's, with inputs sharded where sequence parallelism does it anyway, and whole where ranks cannot share the tokens out.
    fn recompute(&self) -> Recompute {
        let Recompute::Full(checkpoints) = self.manner.recompute else { return self.manner.recompute };
        let inputs = match self.sequence_parallel {
            SequenceParallel::On => CheckpointInputs::Sharded,
            SequenceParallel::Off if self.shares_tokens() => checkpoints.inputs,
            SequenceParallel::Off => CheckpointInputs::Whole,
        };
        Recompute::Full(Checkpoints { inputs, ..checkpoints })
    }

    /// Whether the tokens of a microbatch can be shared out over tensor parallelism.
    fn shares_tokens(&self) -> bool {
        (self.family.microbatch_size * proof_training().sequence_length).is_multiple_of(self.degrees.tp)
    }

    /// What runs.
    pub fn layout(&self) -> Layout {
        Layout { model: self.family.model(), parallelism: self.parallelism(), train: proof_training() }
    }

    /// The case as a run file would resolve it.
    pub fn config(&self) -> RunConfig {
        let mut config = RunConfig::quick_start();
        config.model = self.family.model();
        config.parallelism = self.parallelism();
        config.train = proof_training();
        config.run.ranks = self.degrees.world_size();
        config
    }

    /// The rules that the product says the case breaks; none for a legal case.
    pub fn refusals(&self) -> Vec<Problem> {
        check(&self.config()).err().unwrap_or_default()
    }

    /// Whether the case should be legal, by arithmetic of its own: what is split is divided, and the microbatches make the batch.
    pub fn divides(&self) -> bool {
        let (model, train, Degrees { dp, tp, pp }) = (self.family.model(), proof_training(), self.degrees);
        let heads = [model.num_heads, model.num_kv_heads, model.ffn_hidden].iter().all(|count| count % tp == 0);
        let shared_out = match self.sequence_parallel {
            SequenceParallel::Off => true,
            SequenceParallel::On => self.shares_tokens(),
        };
        heads && shared_out && train.global_batch % (dp * self.family.microbatch_size) == 0 && pp <= model.num_layers
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tokens = match self.sequence_parallel {
            SequenceParallel::Off => "",
            SequenceParallel::On => ", sequence parallel",
        };
        write!(f, "{}, {}{tokens}, {}", self.family, self.degrees, self.manner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_case_is_refused_exactly_if_something_does_not_divide() {
        let cases = Case::all();
        assert_eq!(cases.len(), 16 * 110);
        for case in cases.iter().chain(&Case::all_sequence_parallel()) {
            let refusals = case.refusals();
            assert_eq!(refusals.is_empty(), case.divides(), "{case}: {refusals:?}");
            let named = ["parallelism.tp", "train.global_batch", "parallelism.pp"];
            assert!(refusals.iter().all(|problem| named.contains(&problem.key.as_str())), "{case}: {refusals:?}");
        }
        for family in Family::all() {
            let legal = cases.iter().filter(|case| case.family == family && case.divides()).count();
            let expected = match (family.num_kv_heads, family.microbatch_size) {
                (12, 1) => 78,
                (12, _) => 77,
                (_, 1) => 65,
                (_, _) => 64,
            };
            assert_eq!(legal, expected, "legal cases of {family}");
        }
    }

    #[test]
    fn every_degree_meets_every_manner() {
        let cases = Case::all();
        for degrees in Degrees::all() {
            let manners = cases.iter().filter(|case| case.degrees == degrees).map(|case| case.manner.to_string());
            assert_eq!(manners.collect::<BTreeSet<_>>().len(), Manner::all().len(), "{degrees}");
        }
    }

    #[test]
    fn more_tensor_parallelism_than_key_value_heads_is_refused_by_name() {
        let family = Family { style: Style::Llama, num_kv_heads: 4, tied: Tied::No, microbatch_size: 1 };
        let case = Case { degrees: Degrees { dp: 1, tp: 12, pp: 1 }, ..Case::oracle(family) };
        let said: Vec<String> = case.refusals().iter().map(ToString::to_string).collect();
        let expected = "parallelism.tp = 12 is more than model.num_kv_heads = 4, and a key and value head is not split; \
                        1, 2 or 4 would do";
        assert_eq!(said, [expected]);
    }
}
