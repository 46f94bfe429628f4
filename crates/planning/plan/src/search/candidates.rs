//! The layouts that are tried: every combination of degrees, ranks that divide experts, ways to share sequences, forms
//! of ZeRO, schedules, microbatch sizes, recomputation and sequence parallelism.

use std::collections::{BTreeMap, BTreeSet};

use cluster::{OfferedAxis, OfferedSchedule, Software};
use config::{
    ContextKind, ContextParallel, Degrees, FullRecompute, Gathering, GradientReduction, Parallelism, Problem,
    Recompute, Reshard, RunConfig, SavedInputs, ScheduleKind, ScheduleSpec, SequenceParallel, ZeroStage, check,
    context_kind_name,
};

/// Stages per rank of interleaved schedules that are tried in any case; more are where they divide the layers, or the
/// layers with embedding and head.
const STAGES_PER_RANK: [usize; 5] = [2, 3, 4, 5, 6];
/// Most stages per rank that are tried unless they are asked for.
const MOST_STAGES_PER_RANK: usize = 32;
/// The largest microbatch that is tried.
const LARGEST_MICROBATCH: usize = 32;

/// Combinations, sorted out by the rules of a run.
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    /// Those that a run may have.
    pub legal: Vec<Parallelism>,
    /// Those that it may not.
    pub refusals: Refusals,
}

/// Combinations that a run may not have, by the key of the first rule that each breaks.
#[derive(Clone, Debug, Default)]
pub struct Refusals {
    /// How many of each, and what the rule says of the first of them.
    pub by_key: BTreeMap<String, (usize, Problem)>,
}

impl Refusals {
    /// How many there are.
    pub fn number(&self) -> usize {
        self.by_key.values().map(|(number, _)| number).sum()
    }

    fn add(&mut self, problem: &Problem, number: usize) {
        if number > 0 {
            self.by_key.entry(problem.key.clone()).or_insert_with(|| (0, problem.clone())).0 += number;
        }
    }
}

/// The keys by which a layout can be fixed, with their values as run files write them.
pub fn keys(parallelism: &Parallelism) -> BTreeMap<String, String> {
    let schedule = match &parallelism.schedule {
        ScheduleSpec::Generated(kind) => kind.name().to_string(),
        ScheduleSpec::Given(given) => given.path.display().to_string(),
    };
    let recompute = match parallelism.recompute {
        Recompute::None => "none",
        Recompute::Selective => "selective",
        Recompute::Full(_) => "full",
    };
    let zero = match parallelism.zero {
        ZeroStage::Off => "0",
        ZeroStage::One => "1",
        ZeroStage::Two { .. } => "2",
        ZeroStage::Three { .. } => "3",
    };
    let reduce = match parallelism.zero.reduction() {
        GradientReduction::Step => "step",
        GradientReduction::Microbatch => "microbatch",
    };
    let sequence_parallel = parallelism.sequence_parallel == SequenceParallel::On;
    let degrees = parallelism.degrees.named().map(|(key, degree)| (key, degree.to_string()));
    let entries = [
        ("ep", parallelism.ep.to_string()),
        ("cp_kind", context_kind_name(parallelism.context.kind).to_string()),
        ("zero", zero.to_string()),
        ("reduce", reduce.to_string()),
        ("schedule", schedule),
        ("stages_per_rank", parallelism.schedule.stages_per_rank().unwrap_or(1).to_string()),
        ("microbatch_size", parallelism.microbatch_size.to_string()),
        ("recompute", recompute.to_string()),
        ("sequence_parallel", sequence_parallel.to_string()),
    ];
    degrees.into_iter().chain(entries).map(|(key, value)| (key.to_string(), value)).collect()
}

/// The values of `key` that some layout of `software` on `accelerators` has, as run files write them; nothing for other
/// keys than those of [`keys`].
pub fn values(config: &RunConfig, software: Option<&Software>, accelerators: usize, key: &str) -> Option<Vec<String>> {
    let numbers = |values: Vec<usize>| values.iter().map(usize::to_string).collect::<Vec<_>>();
    let degrees = Degrees { dp: 2, cp: 1, tp: 2, pp: 2 };
    let one = Shape { degrees, ep: 1, context: ContextParallel::DEFAULT }.plain(
        ScheduleKind::OneForwardOneBackward,
        SequenceParallel::On,
        1,
    );
    let has_axis = |axis| software.is_none_or(|software| software.offers.has_axis(axis));
    let degrees_along = |axis| if has_axis(axis) { mesh::divisors(accelerators) } else { vec![1] };
    let of_variants = || {
        let offered = variants(&one).filter(|variant| key != "zero" || is_offered(variant, software));
        let mut values: Vec<String> = offered.filter_map(|variant| keys(&variant).remove(key)).collect();
        values.sort();
        values.dedup();
        values
    };
    match key {
        "dp" => Some(numbers(mesh::divisors(accelerators))),
        "cp" => Some(numbers(degrees_along(OfferedAxis::Context))),
        "tp" => Some(numbers(degrees_along(OfferedAxis::Tensor))),
        "pp" => Some(numbers(degrees_along(OfferedAxis::Pipeline))),
        "ep" => Some(numbers(expert_ranks(config, software, &Degrees { dp: accelerators, ..Degrees::ONE }))),
        "cp_kind" => Some(ContextKind::ALL.map(|kind| context_kind_name(kind).to_string()).to_vec()),
        "zero" | "reduce" | "recompute" => Some(of_variants()),
        "schedule" => {
            let tried = schedules(2, &BTreeSet::from(STAGES_PER_RANK)).into_iter();
            let offered = tried.filter(|kind| has_schedule(software, *kind));
            let mut names: Vec<String> = offered.map(|kind| kind.name().to_string()).collect();
            names.dedup();
            Some(names)
        }
        "stages_per_rank" => Some(numbers((1..=config.model.num_layers.max(2)).collect())),
        "microbatch_size" => {
            let divisors = mesh::divisors(config.train.global_batch.max(1));
            Some(numbers(divisors.into_iter().filter(|size| *size <= LARGEST_MICROBATCH).collect()))
        }
        "sequence_parallel" if has_axis(OfferedAxis::Sequence) => Some(vec!["false".to_string(), "true".to_string()]),
        "sequence_parallel" => Some(vec!["false".to_string()]),
        _ => None,
    }
}

impl Candidates {
    /// All combinations on this many accelerators that agree with `fixed` and that `software` has, where that is
    /// another trainer.
    pub fn new(
        config: &RunConfig,
        software: Option<&Software>,
        accelerators: usize,
        fixed: &BTreeMap<String, String>,
    ) -> Candidates {
        let mut choice = Choice { config, software, fixed, found: Candidates::default() };
        for tp in choice.degrees("tp", OfferedAxis::Tensor, accelerators) {
            for pp in choice.degrees("pp", OfferedAxis::Pipeline, accelerators / tp) {
                for cp in choice.context_degrees(accelerators / tp / pp) {
                    let degrees = Degrees { dp: accelerators / tp / pp / cp, cp, tp, pp };
                    if !choice.agrees_with("dp", &degrees.dp.to_string()) {
                        continue;
                    }
                    for context in contexts(config, cp) {
                        for ep in expert_ranks(config, software, &degrees) {
                            choice.add_shape(Shape { degrees, ep, context });
                        }
                    }
                }
            }
        }
        choice.found
    }
}

/// The choice of combinations.
struct Choice<'a> {
    config: &'a RunConfig,
    software: Option<&'a Software>,
    fixed: &'a BTreeMap<String, String>,
    found: Candidates,
}

impl Choice<'_> {
    fn agrees_with(&self, key: &str, value: &str) -> bool {
        self.fixed.get(key).is_none_or(|fixed| fixed == value)
    }

    /// Degrees along an axis that divide `ranks`.
    fn degrees(&self, key: &str, axis: OfferedAxis, ranks: usize) -> Vec<usize> {
        let has_axis = self.software.is_none_or(|software| software.offers.has_axis(axis));
        let may = |degree: &usize| (*degree == 1 || has_axis) && self.agrees_with(key, &degree.to_string());
        mesh::divisors(ranks).into_iter().filter(may).collect()
    }

    /// How many ranks may share a sequence: divisors of the ranks that a model replica of one sequence leaves.
    fn context_degrees(&self, ranks: usize) -> Vec<usize> {
        let is_given = self.fixed.contains_key("cp");
        let enough = |cp: &usize| *cp == 1 || is_given || self.config.train.sequence_length / cp >= LEAST_TOKENS;
        self.degrees("cp", OfferedAxis::Context, ranks).into_iter().filter(enough).collect()
    }

    /// Numbers of stages of each rank of `pp`.
    fn stages_per_rank(&self, pp: usize) -> BTreeSet<usize> {
        let layers = self.config.model.num_layers;
        let is_even = |stages: &usize| [layers, layers + 2].iter().any(|units| units.is_multiple_of(stages * pp));
        let more = (7..=(layers / pp).min(MOST_STAGES_PER_RANK)).filter(is_even);
        let asked = self.fixed.get("stages_per_rank").and_then(|text| text.parse().ok()).filter(|asked| *asked > 1);
        STAGES_PER_RANK.into_iter().chain(more).chain(asked).collect()
    }

    fn add_shape(&mut self, shape: Shape) {
        let degrees = shape.degrees;
        if !self.agrees_with("ep", &shape.ep.to_string()) {
            return;
        }
        let mut refused = None;
        let is_meant = |kind: &ScheduleKind| self.agrees_with("schedule", kind.name());
        let tried = schedules(degrees.pp, &self.stages_per_rank(degrees.pp));
        let meant: Vec<ScheduleKind> = tried.into_iter().filter(is_meant).collect();
        for schedule in meant {
            for sequence_parallel in sequence_parallel(degrees.tp) {
                for microbatch_size in shape.microbatch_sizes(self.config) {
                    if self.agrees_with("microbatch_size", &microbatch_size.to_string()) {
                        let one = shape.plain(schedule, sequence_parallel, microbatch_size);
                        self.add(shape, &one, &mut refused);
                    }
                }
            }
        }
    }

    /// All variants of `one` that are meant. No rule asks for a form of ZeRO or of recomputation together with
    /// degrees, so one stands for all. `refused` is the rule that refuses the shape whatever else is chosen, once it
    /// has been asked for.
    fn add(&mut self, shape: Shape, one: &Parallelism, refused: &mut Option<Option<Problem>>) {
        // No candidate chooses these: they are as they are given.
        let Parallelism { overlap, sum_tree, .. } = self.config.parallelism;
        let one = &Parallelism { overlap, sum_tree, ..one.clone() };
        let is_meant = |variant: &Parallelism| agrees(variant, self.fixed) && is_offered(variant, self.software);
        let meant: Vec<Parallelism> = variants(one).filter(is_meant).collect();
        if meant.is_empty() {
            return;
        }
        let refused = refused.get_or_insert_with(|| shape.refused(self.config)).clone();
        match refused.or_else(|| broken_rule(self.config, one)) {
            None => self.found.legal.extend(meant),
            Some(problem) => self.found.refusals.add(&problem, meant.len()),
        }
    }
}

/// Whether a trainer has a layout; pleach has all of them.
fn is_offered(parallelism: &Parallelism, software: Option<&Software>) -> bool {
    let Some(software) = software else { return true };
    let zero = match parallelism.zero {
        ZeroStage::Off => 0,
        ZeroStage::One => 1,
        ZeroStage::Two { .. } => 2,
        ZeroStage::Three { .. } => 3,
    };
    let has_replicas = parallelism.degrees.dp * parallelism.degrees.cp > 1;
    let sequence_parallel = parallelism.sequence_parallel == SequenceParallel::On;
    let has_schedule = match &parallelism.schedule {
        ScheduleSpec::Generated(kind) => parallelism.degrees.pp == 1 || has_schedule(Some(software), *kind),
        ScheduleSpec::Given(_) => true,
    };
    has_schedule
        && (!has_replicas || software.offers.zero_stages.contains(&zero))
        && (!sequence_parallel || software.offers.has_axis(OfferedAxis::Sequence))
}

/// Whether `software` has the schedule `kind`; pleach has all of them.
pub fn has_schedule(software: Option<&Software>, kind: ScheduleKind) -> bool {
    let offered = match kind {
        ScheduleKind::GPipe => OfferedSchedule::GPipe,
        ScheduleKind::OneForwardOneBackward => OfferedSchedule::OneForwardOneBackward,
        ScheduleKind::Interleaved { .. } => OfferedSchedule::Interleaved,
        ScheduleKind::ZeroBubbleH1 => OfferedSchedule::ZeroBubbleH1,
        ScheduleKind::ZeroBubbleH2 => OfferedSchedule::ZeroBubbleH2,
        ScheduleKind::ZeroBubbleV => OfferedSchedule::ZeroBubbleV,
        ScheduleKind::ZeroBubbleAuto { .. } => OfferedSchedule::ZeroBubbleAuto,
    };
    software.is_none_or(|software| software.offers.schedules.contains(&offered))
}

/// How many replicas may divide the experts that a tensor-parallel rank has: 1 without experts, and for other trainers,
/// none of which is described with its way of dividing experts.
fn expert_ranks(config: &RunConfig, software: Option<&Software>, degrees: &Degrees) -> Vec<usize> {
    match (&config.model.experts, software) {
        (Some(experts), None) => {
            mesh::divisors(mesh::greatest_common_divisor(degrees.dp, (experts.number / degrees.tp).max(1)))
        }
        (Some(_) | None, _) => vec![1],
    }
}

/// A layout's degrees and how ranks share sequences and experts, before the rest of it is chosen.
#[derive(Clone, Copy)]
struct Shape {
    degrees: Degrees,
    ep: usize,
    context: ContextParallel,
}

impl Shape {
    /// Without ZeRO and recomputation.
    fn plain(self, schedule: ScheduleKind, sequence_parallel: SequenceParallel, microbatch_size: usize) -> Parallelism {
        Parallelism {
            degrees: self.degrees,
            context: self.context,
            sequence_parallel,
            zero: ZeroStage::Off,
            shard_group: None,
            ep: self.ep,
            sum_tree: 1,
            schedule: schedule.into(),
            microbatch_size,
            recompute: Recompute::None,
            stage_layers: None,
            overlap: None,
        }
    }

    /// Those that divide a replica's share of the batch, ascending.
    fn microbatch_sizes(self, config: &RunConfig) -> Vec<usize> {
        let per_replica = config.train.global_batch / self.degrees.dp;
        mesh::divisors(per_replica.max(1)).into_iter().filter(|size| *size <= LARGEST_MICROBATCH).collect()
    }

    /// The rule that refuses the degrees whatever else is chosen, so that no combination is asked about one by one: it
    /// refuses 1F1B, which asks for least, with the smallest and with the largest microbatch. A rule that is about a
    /// microbatch's size refuses on one side of some size.
    fn refused(self, config: &RunConfig) -> Option<Problem> {
        let sizes = self.microbatch_sizes(config);
        let broken = |size: &usize| {
            let schedule = ScheduleKind::OneForwardOneBackward;
            broken_rule(config, &self.plain(schedule, SequenceParallel::Off, *size))
        };
        let smallest = sizes.first().and_then(broken)?;
        let largest = sizes.last().and_then(broken)?;
        (smallest.key == largest.key).then_some(smallest)
    }
}

/// The first rule that a run with this layout breaks.
fn broken_rule(config: &RunConfig, parallelism: &Parallelism) -> Option<Problem> {
    let mut config = config.clone();
    config.run.ranks = parallelism.world_size();
    config.run.rank_memory_bytes = None;
    config.parallelism = parallelism.clone();
    check(&config).err()?.into_iter().next()
}

fn agrees(parallelism: &Parallelism, fixed: &BTreeMap<String, String>) -> bool {
    if fixed.is_empty() {
        return true;
    }
    let keys = keys(parallelism);
    fixed.iter().all(|(key, value)| keys.get(key) == Some(value))
}

/// Fewer tokens of a sequence than this are not worth a rank of their own: unless they are asked for, no candidate has
/// them.
const LEAST_TOKENS: usize = 4096;

/// The ways in which ranks share sequences. The run's own choice of chunks is kept for its own kind.
fn contexts(config: &RunConfig, cp: usize) -> Vec<ContextParallel> {
    let own = config.parallelism.context;
    if cp == 1 {
        return vec![own];
    }
    let of = |kind| if kind == own.kind { own } else { ContextParallel::of(kind, &config.data) };
    ContextKind::ALL.map(of).to_vec()
}

/// The schedules that are tried. A pipeline of one rank has one order of passes that is worth trying.
fn schedules(pp: usize, stages_per_rank: &BTreeSet<usize>) -> Vec<ScheduleKind> {
    if pp == 1 {
        return vec![ScheduleKind::OneForwardOneBackward];
    }
    let is_tried_as_is = |kind: &ScheduleKind| match kind {
        ScheduleKind::OneForwardOneBackward
        | ScheduleKind::ZeroBubbleH1
        | ScheduleKind::ZeroBubbleH2
        | ScheduleKind::ZeroBubbleV => true,
        // 1F1B waits no longer and holds less; stages are listed below; the automatic schedule is a search of its own.
        ScheduleKind::GPipe | ScheduleKind::Interleaved { .. } | ScheduleKind::ZeroBubbleAuto { .. } => false,
    };
    let plain = ScheduleKind::ALL.into_iter().filter(is_tried_as_is);
    let interleaved = stages_per_rank.iter().map(|number| ScheduleKind::Interleaved { stages_per_rank: *number });
    plain.chain(interleaved).collect()
}

fn sequence_parallel(tp: usize) -> Vec<SequenceParallel> {
    if tp == 1 { vec![SequenceParallel::Off] } else { vec![SequenceParallel::Off, SequenceParallel::On] }
}

/// Forms of ZeRO and of recomputation.
fn variants(one: &Parallelism) -> impl Iterator<Item = Parallelism> + '_ {
    let gathering = Gathering { prefetch: 1, reshard: Reshard::AfterUse };
    let (step, microbatch) = (GradientReduction::Step, GradientReduction::Microbatch);
    let zeros = match one.degrees.dp * one.degrees.cp {
        1 => vec![ZeroStage::Off],
        _ => vec![
            ZeroStage::Off,
            ZeroStage::One,
            ZeroStage::Two { reduce: step },
            ZeroStage::Two { reduce: microbatch },
            ZeroStage::Three { reduce: step, gathering },
            ZeroStage::Three { reduce: microbatch, gathering },
        ],
    };
    let inputs = match one.sequence_parallel {
        SequenceParallel::Off => SavedInputs::Whole,
        SequenceParallel::On => SavedInputs::Sharded,
    };
    let recomputes = [Recompute::None, Recompute::Selective, Recompute::Full(FullRecompute { every: 1, inputs })];
    let with = move |zero| recomputes.map(|recompute| Parallelism { zero, recompute, ..one.clone() });
    zeros.into_iter().flat_map(with)
}
