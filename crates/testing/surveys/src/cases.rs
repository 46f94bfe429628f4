//! Cases of the promise of equality: every layout of at most 16 ranks, in every family of runs.

use std::fmt;

use config::{
    ContextParallel, Degrees, FullRecompute, Gathering, GradientReduction, GradientSums, ModelSpec, Parallelism,
    Precision, Problem, Products, Recompute, Reshard, RunConfig, SavedInputs, ScheduleKind, SequenceParallel, Tied,
    TokenizerSpec, TrainSpec, ZeroStage, check,
};
use prove::{EqualityClass, MAX_RANKS, gradient_order};
use testkit::layout::Layout;
use testkit::models::{Style, proof_model, proof_training};

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

/// All degrees with at most [`MAX_RANKS`] ranks, in ascending order: 110.
pub fn all_degrees() -> Vec<Degrees> {
    let counts = || 1..=MAX_RANKS;
    let of_replicas = |dp| counts().flat_map(move |tp| counts().map(move |pp| Degrees { dp, cp: 1, tp, pp }));
    counts().flat_map(of_replicas).filter(|degrees| degrees.world_size() <= MAX_RANKS).collect()
}

/// The values that are sharded over data parallelism, and the number of shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Form {
    /// The sharded values.
    pub zero: ZeroStage,
    /// Among whom.
    pub shard_groups: ShardGroups,
}

/// Which replicas are a sharding group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShardGroups {
    /// All replicas are one.
    One,
    /// As few groups as there can be, but several: of `dp` over its smallest prime factor.
    Several,
}

impl Form {
    /// Nothing is sharded.
    pub const WHOLE: Form = Form { zero: ZeroStage::Off, shard_groups: ShardGroups::One };

    /// Every stage, both times of reduction, parameters gathered at once and ahead, freed and kept, in one group and in
    /// several.
    pub fn all() -> Vec<Form> {
        let one = |zero| Form { zero, shard_groups: ShardGroups::One };
        let several = |zero| Form { zero, shard_groups: ShardGroups::Several };
        let three = |reduce, prefetch, reshard| ZeroStage::Three { reduce, gathering: Gathering { prefetch, reshard } };
        let (step, microbatch) = (GradientReduction::Step, GradientReduction::Microbatch);
        vec![
            one(ZeroStage::One),
            one(three(step, 1, Reshard::AfterUse)),
            one(ZeroStage::Two { reduce: microbatch }),
            several(ZeroStage::One),
            one(ZeroStage::Off),
            one(ZeroStage::Two { reduce: step }),
            one(three(microbatch, 0, Reshard::AfterUse)),
            several(three(step, 2, Reshard::AfterBackward)),
        ]
    }

    /// Replicas of a sharding group of `dp` replicas, if they are not all.
    pub fn shard_group(&self, dp: usize) -> Option<usize> {
        match self.shard_groups {
            ShardGroups::One => None,
            ShardGroups::Several => mesh::divisors(dp).into_iter().rev().find(|divisor| *divisor < dp),
        }
    }

    /// The plainest form that sums gradients in the same order, over the same numbers of replicas and of ranks that
    /// share sequences.
    pub fn reference(&self, degrees: Degrees) -> Form {
        let plain = testkit::models::plain_layout(degrees.dp, 1, 1, 1);
        let layout = |form: &Form| Parallelism {
            degrees: Degrees { cp: degrees.cp, ..plain.degrees },
            zero: form.zero,
            shard_group: form.shard_group(degrees.dp),
            ..plain.clone()
        };
        let own = gradient_order(&layout(self));
        let plain = Form { zero: ZeroStage::Two { reduce: self.zero.reduction() }, shard_groups: self.shard_groups };
        let grouped = Form { zero: ZeroStage::One, shard_groups: self.shard_groups };
        let has_own_order = |form: &Form| gradient_order(&layout(form)) == own;
        [Form::WHOLE, grouped, plain].into_iter().find(has_own_order).unwrap_or(*self)
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.zero {
            ZeroStage::Off => f.write_str("ZeRO off")?,
            ZeroStage::One => f.write_str("ZeRO-1")?,
            ZeroStage::Two { .. } => f.write_str("ZeRO-2")?,
            ZeroStage::Three { gathering: Gathering { prefetch, reshard }, .. } => {
                write!(f, "ZeRO-3 ahead {prefetch}")?;
                match reshard {
                    Reshard::AfterUse => {}
                    Reshard::AfterBackward => f.write_str(" kept")?,
                }
            }
        }
        match self.zero.reduction() {
            GradientReduction::Step => {}
            GradientReduction::Microbatch => f.write_str(" per microbatch")?,
        }
        match self.shard_groups {
            ShardGroups::One => Ok(()),
            ShardGroups::Several => f.write_str(" in groups"),
        }
    }
}

/// Choices that change no bit, but for forms that sum gradients in another order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// The values that are sharded over data parallelism.
    pub form: Form,
    /// The order of microbatches.
    pub schedule: ScheduleKind,
    /// Activations kept or recomputed.
    pub recompute: Recompute,
}

impl Manner {
    /// The plainest: nothing sharded, nothing recomputed, all forwards first.
    pub const PLAIN: Manner = Manner { form: Form::WHOLE, schedule: ScheduleKind::GPipe, recompute: Recompute::None };

    /// Every second layer is recomputed, from an input that tensor-parallel ranks shard.
    const SOME_SHARDED: Recompute = Recompute::Full(FullRecompute { every: 2, inputs: SavedInputs::Sharded });

    /// Every schedule that is generated, interleaved with two stages per rank.
    pub const SCHEDULES: [ScheduleKind; 8] = [
        ScheduleKind::OneForwardOneBackward,
        ScheduleKind::GPipe,
        ScheduleKind::Interleaved { stages_per_rank: 2 },
        ScheduleKind::ZeroBubbleH1,
        ScheduleKind::ZeroBubbleH2,
        ScheduleKind::ZeroBubbleV,
        ScheduleKind::ZeroBubbleAuto { memory_percent: 100 },
        ScheduleKind::ZeroBubbleAuto { memory_percent: 200 },
    ];

    /// Schedules with every form of recomputation: all thirty-two pairs; any eight in a row have every schedule.
    pub fn passes() -> Vec<(ScheduleKind, Recompute)> {
        let recomputes = [Recompute::None, Recompute::FULL, Recompute::Selective, Manner::SOME_SHARDED];
        let round = |turn: usize| {
            let schedules = Manner::SCHEDULES.into_iter().enumerate();
            schedules.map(move |(index, schedule)| (schedule, recomputes[(turn + index) % recomputes.len()]))
        };
        (0..recomputes.len()).flat_map(round).collect()
    }

    /// Whether the schedule has its stages and its groups of microbatches; if nothing else is wrong, the case is then
    /// legal.
    fn suits(&self, family: &Family, Degrees { dp, pp, .. }: Degrees) -> bool {
        let num_microbatches = proof_training().global_batch / (dp * family.microbatch_size);
        pp * self.schedule.stages_per_rank() <= family.model().num_layers + 2
            && num_microbatches.is_multiple_of(self.schedule.microbatch_group(pp))
    }
}

impl fmt::Display for Manner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.form, schedule_name(self.schedule), recompute_name(self.recompute))
    }
}

/// The schedule as its authors write it.
pub fn schedule_name(schedule: ScheduleKind) -> String {
    match schedule {
        ScheduleKind::GPipe => "GPipe".to_string(),
        ScheduleKind::OneForwardOneBackward => "1F1B".to_string(),
        ScheduleKind::Interleaved { stages_per_rank } => format!("interleaved x{stages_per_rank}"),
        ScheduleKind::ZeroBubbleH1 => "ZB-H1".to_string(),
        ScheduleKind::ZeroBubbleH2 => "ZB-H2".to_string(),
        ScheduleKind::ZeroBubbleV => "ZB-V".to_string(),
        ScheduleKind::ZeroBubbleAuto { memory_percent } => format!("ZB-auto {memory_percent} %"),
    }
}

/// The recomputed layers and their saved inputs.
pub fn recompute_name(recompute: Recompute) -> String {
    match recompute {
        Recompute::None => "kept".to_string(),
        Recompute::Selective => "core recomputed".to_string(),
        Recompute::FULL => "recomputed".to_string(),
        Recompute::Full(FullRecompute { every, inputs: SavedInputs::Whole }) => format!("every {every} recomputed"),
        Recompute::Full(FullRecompute { every, inputs: SavedInputs::Sharded }) => {
            format!("every {every} recomputed from shards")
        }
    }
}

/// The suffix of a name that says in which order products add their terms; empty for the default.
pub fn products_suffix(products: Products) -> &'static str {
    match products {
        Products::Chained => "",
        Products::Pairs => ", products in AMX order",
        Products::Blocks16 => ", products in blocks of 16",
        Products::Blocks8 => ", products in blocks of 8",
        Products::Device => ", products of the device",
    }
}

/// One layout of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The task, with the size of microbatches.
    pub family: Family,
    /// How many ranks do what.
    pub degrees: Degrees,
    /// Whether ranks that shard matrices shard tokens, too. Unlike a manner, it changes sums.
    pub sequence_parallel: SequenceParallel,
    pub manner: Manner,
    /// How gradients are summed.
    pub sums: GradientSums,
    /// In which order matrix products add their terms.
    pub products: Products,
}

impl Case {
    /// Every degree in every family, legal or not: 1,760. Manners take turns, so that each degree meets each form in
    /// two families and each schedule that suits it.
    pub fn all() -> Vec<Case> {
        let (forms, passes, degrees) = (Form::all(), Manner::passes(), all_degrees());
        let mut cases = Vec::new();
        for (turn, family) in Family::all().into_iter().enumerate() {
            for (index, degrees) in degrees.iter().enumerate() {
                let form = forms[(turn + index) % forms.len()];
                // Another shift in every round of forms, so that no form is tied to one schedule.
                let shift = index / forms.len() + 3 * (turn / forms.len());
                let start = (turn + index + shift) % passes.len();
                let turns = passes.iter().cycle().skip(start).take(passes.len());
                let mut manners = turns.map(|&(schedule, recompute)| Manner { form, schedule, recompute });
                let suiting = manners.find(|manner| manner.suits(&family, *degrees));
                let manner = suiting.unwrap_or(Manner { form, ..Manner::PLAIN });
                cases.push(Case { degrees: *degrees, manner, ..Case::oracle(family) });
            }
        }
        cases
    }

    /// The cases of [`Case::all`] with more than one rank per matrix, with sequence parallelism.
    pub fn all_sequence_parallel() -> Vec<Case> {
        let of_several = Case::all().into_iter().filter(|case| case.degrees.tp > 1);
        of_several.map(|case| Case { sequence_parallel: SequenceParallel::On, ..case }).collect()
    }

    /// The cases of [`Case::all`] in two families of microbatches of two sequences, between which style, heads and
    /// tying differ, with exact sums.
    pub fn all_exact() -> Vec<Case> {
        let gpt2 = Family { style: Style::Gpt2, num_kv_heads: 12, tied: Tied::Yes, microbatch_size: 2 };
        let llama = Family { style: Style::Llama, num_kv_heads: 4, tied: Tied::No, microbatch_size: 2 };
        let of_two = Case::all().into_iter().filter(|case| [gpt2, llama].contains(&case.family));
        of_two.map(|case| Case { sums: GradientSums::Exact, ..case }).collect()
    }

    /// The cases of [`Case::all`] in two families that differ in every trait, with products in AMX order. A processor
    /// without AMX computes those of single precision an order of magnitude slower than chained ones, so that all
    /// families take hours.
    pub fn all_in_pairs() -> Vec<Case> {
        let gpt2 = Family { style: Style::Gpt2, num_kv_heads: 4, tied: Tied::Yes, microbatch_size: 2 };
        let llama = Family { style: Style::Llama, num_kv_heads: 12, tied: Tied::No, microbatch_size: 1 };
        let of_two = Case::all().into_iter().filter(|case| [gpt2, llama].contains(&case.family));
        of_two.map(|case| Case { products: Products::Pairs, ..case }).collect()
    }

    /// The case whose bits every case of the same `dp`, `tp` and sequence parallelism has that sums gradients in the
    /// same order: one stage, in the plainest such manner. Where sums are exact, their order does not matter: one
    /// replica in microbatches of one sequence.
    pub fn reference(&self) -> Case {
        let plain = Case { degrees: Degrees { pp: 1, ..self.degrees }, manner: Manner::PLAIN, ..*self };
        match self.sums {
            GradientSums::Single => {
                let form = self.manner.form.reference(self.degrees);
                Case { manner: Manner { form, ..Manner::PLAIN }, ..plain }
            }
            GradientSums::Exact => Case {
                degrees: Degrees { dp: 1, ..plain.degrees },
                family: Family { microbatch_size: 1, ..self.family },
                ..plain
            },
        }
    }

    /// One rank in the plain manner, which sums gradients and the terms of products as this case does: its oracle.
    pub fn of_one_rank(&self) -> Case {
        Case { sums: self.sums, products: self.products, ..Case::oracle(self.reference().family) }
    }

    /// The promise of the case to [`Case::of_one_rank`].
    pub fn class(&self) -> EqualityClass {
        EqualityClass::of(&self.of_one_rank().parallelism(), &self.parallelism()).in_sums([self.sums; 2])
    }

    /// One rank in the plain manner.
    pub fn oracle(family: Family) -> Case {
        Case {
            family,
            degrees: Degrees::ONE,
            sequence_parallel: SequenceParallel::Off,
            manner: Manner::PLAIN,
            sums: GradientSums::Single,
            products: Products::Chained,
        }
    }

    /// The layout in the words of a run file.
    pub fn parallelism(&self) -> Parallelism {
        let (Manner { form, schedule, .. }, recompute) = (self.manner, self.recompute());
        let (microbatch_size, sequence_parallel) = (self.family.microbatch_size, self.sequence_parallel);
        Parallelism {
            degrees: self.degrees,
            context: ContextParallel::DEFAULT,
            sequence_parallel,
            zero: form.zero,
            shard_group: form.shard_group(self.degrees.dp),
            sum_tree: 1,
            schedule: schedule.into(),
            microbatch_size,
            recompute,
            stage_layers: None,
            overlap: None,
        }
    }

    /// The manner's, with inputs sharded where sequence parallelism does it anyway, and whole where ranks cannot shard
    /// the tokens.
    fn recompute(&self) -> Recompute {
        let Recompute::Full(full) = self.manner.recompute else { return self.manner.recompute };
        let inputs = match self.sequence_parallel {
            SequenceParallel::On => SavedInputs::Sharded,
            SequenceParallel::Off if self.shares_tokens() => full.inputs,
            SequenceParallel::Off => SavedInputs::Whole,
        };
        Recompute::Full(FullRecompute { inputs, ..full })
    }

    /// Whether the tokens of a microbatch can be sharded over tensor parallelism.
    fn shares_tokens(&self) -> bool {
        (self.family.microbatch_size * proof_training().sequence_length).is_multiple_of(self.degrees.tp)
    }

    /// The layout that runs.
    pub fn layout(&self) -> Layout {
        let precision = Precision::Fp32(self.products);
        let train = TrainSpec { sums: self.sums, precision, ..proof_training() };
        Layout { model: self.family.model(), parallelism: self.parallelism(), train }
    }

    /// The case as a run file would resolve it.
    pub fn config(&self) -> RunConfig {
        let Layout { model, parallelism, train } = self.layout();
        let mut config = RunConfig { model, parallelism, train, ..RunConfig::quick_start() };
        config.data.tokenizer = TokenizerSpec::Bytes;
        config.run.ranks = self.degrees.world_size();
        config
    }

    /// The rules that the product says the case breaks; none for a legal case.
    pub fn refusals(&self) -> Vec<Problem> {
        check(&self.config()).err().unwrap_or_default()
    }

    /// Whether the case should be legal, by arithmetic of its own: what is split is divided, and the microbatches make
    /// the batch.
    pub fn divides(&self) -> bool {
        let (model, train, Degrees { dp, cp: _, tp, pp }) = (self.family.model(), proof_training(), self.degrees);
        let heads = [model.num_heads, model.num_kv_heads, model.ffn_hidden].iter().all(|count| count % tp == 0);
        let shared_out = match self.sequence_parallel {
            SequenceParallel::Off => true,
            SequenceParallel::On => self.shares_tokens(),
        };
        let batch = train.global_batch % (dp * self.family.microbatch_size) == 0;
        heads && shared_out && batch && pp <= model.num_layers + 2
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tokens = match self.sequence_parallel {
            SequenceParallel::Off => "",
            SequenceParallel::On => ", sequence parallel",
        };
        let sums = match self.sums {
            GradientSums::Single => "",
            GradientSums::Exact => ", exact sums",
        };
        let products = products_suffix(self.products);
        write!(f, "{}, {}{tokens}, {}{sums}{products}", self.family, self.degrees.joined(" "), self.manner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prove::{narrow, without_bounds};

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
    fn every_family_is_as_wide_as_the_bounds_need() {
        for model in Family::all().iter().map(Family::model) {
            assert_eq!((narrow(&model), without_bounds(&model)), (None, None));
        }
    }

    #[test]
    fn exact_cases_have_the_bits_of_one_replica() {
        let cases = Case::all_exact();
        assert_eq!(cases.iter().filter(|case| case.divides()).count(), 77 + 64);
        for case in cases {
            let reference = case.reference();
            assert_eq!((reference.degrees.dp, reference.family.microbatch_size), (1, 1), "{case}");
            let expected = if case.degrees.tp == 1 { EqualityClass::AnyOrder } else { EqualityClass::OtherSums };
            assert_eq!(case.class(), expected, "{case}");
        }
    }

    #[test]
    fn cases_in_pairs_have_every_degree_form_schedule_and_recomputation() {
        let cases = Case::all_in_pairs();
        assert_eq!(cases.iter().filter(|case| case.divides()).count(), 64 + 78);
        let met =
            |of: &dyn Fn(&Case) -> String| cases.iter().filter(|case| case.divides()).map(of).collect::<BTreeSet<_>>();
        let legal = Case::all().into_iter().filter(Case::divides);
        let degrees: BTreeSet<String> = legal.map(|case| case.degrees.to_string()).collect();
        assert_eq!(met(&|case| case.degrees.to_string()), degrees);
        assert_eq!(met(&|case| case.manner.form.to_string()).len(), Form::all().len());
        assert_eq!(met(&|case| format!("{:?}", case.manner.schedule)).len(), Manner::SCHEDULES.len());
        assert_eq!(met(&|case| format!("{:?}", case.manner.recompute)).len(), 4);
        for case in cases {
            assert_eq!(
                (case.reference().products, case.of_one_rank().products),
                (Products::Pairs, Products::Pairs),
                "{case}"
            );
        }
    }

    #[test]
    fn every_degree_meets_every_form_and_every_schedule_that_suits_it() {
        let cases = Case::all();
        for degrees in all_degrees() {
            let cases = || cases.iter().filter(|case| case.degrees == degrees);
            assert_eq!(cases().map(|case| case.manner.form).collect::<BTreeSet<_>>().len(), 8, "{degrees}");
            let met = cases().map(|case| format!("{:?}", case.manner.schedule)).collect::<BTreeSet<_>>();
            let suits = |schedule: &ScheduleKind| {
                cases().all(|case| Manner { schedule: *schedule, ..Manner::PLAIN }.suits(&case.family, degrees))
            };
            for schedule in Manner::SCHEDULES.iter().filter(|schedule| suits(schedule)) {
                assert!(met.contains(&format!("{schedule:?}")), "{degrees}: {schedule:?}");
            }
        }
        let pairs = cases.iter().map(|case| format!("{} {:?}", case.manner.form, case.manner.schedule));
        assert_eq!(pairs.collect::<BTreeSet<_>>().len(), 8 * 8);
    }

    #[test]
    fn forms_that_sum_in_another_order_have_a_reference_of_their_own() {
        let reference = |form: Form, dp| form.reference(Degrees { dp, ..Degrees::ONE }).to_string();
        let said: Vec<String> = Form::all()
            .into_iter()
            .map(|form| format!("{form}: {} | {}", reference(form, 4), reference(form, 3)))
            .collect();
        let expected = [
            "ZeRO-1: ZeRO off | ZeRO off",
            "ZeRO-3 ahead 1: ZeRO off | ZeRO off",
            "ZeRO-2 per microbatch: ZeRO-2 per microbatch | ZeRO-2 per microbatch",
            "ZeRO-1 in groups: ZeRO-1 in groups | ZeRO off",
            "ZeRO off: ZeRO off | ZeRO off",
            "ZeRO-2: ZeRO off | ZeRO off",
            "ZeRO-3 ahead 0 per microbatch: ZeRO-2 per microbatch | ZeRO-2 per microbatch",
            "ZeRO-3 ahead 2 kept in groups: ZeRO-1 in groups | ZeRO off",
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn more_tensor_parallelism_than_key_value_heads_is_refused_by_name() {
        let family = Family { style: Style::Llama, num_kv_heads: 4, tied: Tied::No, microbatch_size: 1 };
        let case = Case { degrees: Degrees { tp: 12, ..Degrees::ONE }, ..Case::oracle(family) };
        let said: Vec<String> = case.refusals().iter().map(ToString::to_string).collect();
        let expected = "parallelism.tp = 12 must be at most model.num_kv_heads = 4, since key and value heads are not split; \
                        use 1, 2 or 4";
        assert_eq!(said, [expected]);
    }
}
