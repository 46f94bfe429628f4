//! The layouts that are tried: every combination of degrees, ways to share sequences, forms of ZeRO, schedules,
//! microbatch sizes, recomputation and sequence parallelism.

use std::collections::BTreeMap;

use config::{
    ContextKind, ContextParallel, Degrees, FullRecompute, Gathering, GradientReduction, Parallelism, Problem,
    Recompute, Reshard, RunConfig, SavedInputs, ScheduleKind, ScheduleSpec, SequenceParallel, ZeroStage, check,
    context_kind_name, schedule_name,
};

/// Stages per rank of interleaved schedules that are tried.
const STAGES_PER_RANK: [usize; 5] = [2, 3, 4, 5, 6];
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
        ScheduleSpec::Generated(kind) => schedule_name(*kind).to_string(),
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

/// The values of `key` that some layout on `accelerators` has, as run files write them; nothing for other keys than those of [`keys`].
pub fn values(config: &RunConfig, accelerators: usize, key: &str) -> Option<Vec<String>> {
    let numbers = |values: Vec<usize>| values.iter().map(usize::to_string).collect::<Vec<_>>();
    let degrees = Degrees { dp: 2, cp: 1, tp: 2, pp: 2 };
    let one = Shape { degrees, context: ContextParallel::DEFAULT }.plain(
        ScheduleKind::OneForwardOneBackward,
        SequenceParallel::On,
        1,
    );
    let of_variants = || {
        let mut values: Vec<String> = variants(&one).filter_map(|variant| keys(&variant).remove(key)).collect();
        values.sort();
        values.dedup();
        values
    };
    match key {
        "dp" | "cp" | "tp" | "pp" => Some(numbers(mesh::divisors(accelerators))),
        "cp_kind" => Some(ContextKind::ALL.map(|kind| context_kind_name(kind).to_string()).to_vec()),
        "zero" | "reduce" | "recompute" => Some(of_variants()),
        "schedule" => {
            let mut names: Vec<String> = schedules(2).into_iter().map(|kind| schedule_name(kind).to_string()).collect();
            names.dedup();
            Some(names)
        }
        "stages_per_rank" => Some(numbers(std::iter::once(1).chain(STAGES_PER_RANK).collect())),
        "microbatch_size" => {
            let divisors = mesh::divisors(config.train.global_batch.max(1));
            Some(numbers(divisors.into_iter().filter(|size| *size <= LARGEST_MICROBATCH).collect()))
        }
        "sequence_parallel" => Some(vec!["false".to_string(), "true".to_string()]),
        _ => None,
    }
}

impl Candidates {
    /// All combinations on so many accelerators that agree with `fixed`.
    pub fn new(config: &RunConfig, accelerators: usize, fixed: &BTreeMap<String, String>) -> Candidates {
        let mut candidates = Candidates::default();
        for tp in mesh::divisors(accelerators) {
            for pp in mesh::divisors(accelerators / tp) {
                for cp in context_degrees(config, accelerators / tp / pp, fixed) {
                    let degrees = Degrees { dp: accelerators / tp / pp / cp, cp, tp, pp };
                    for context in contexts(config, cp) {
                        candidates.add_shape(config, fixed, Shape { degrees, context });
                    }
                }
            }
        }
        candidates
    }

    fn add_shape(&mut self, config: &RunConfig, fixed: &BTreeMap<String, String>, shape: Shape) {
        let degrees = shape.degrees;
        let refused = shape.refused(config);
        for schedule in schedules(degrees.pp) {
            for sequence_parallel in sequence_parallel(degrees.tp) {
                for microbatch_size in shape.microbatch_sizes(config) {
                    let one = shape.plain(schedule, sequence_parallel, microbatch_size);
                    self.add(config, fixed, &one, refused.as_ref());
                }
            }
        }
    }

    /// All variants of `one` that agree with `fixed`. No rule asks for a form of ZeRO or of recomputation together with degrees, so one stands
    /// for all.
    fn add(
        &mut self,
        config: &RunConfig,
        fixed: &BTreeMap<String, String>,
        one: &Parallelism,
        refused: Option<&Problem>,
    ) {
        // No candidate chooses these: they are as they are given.
        let Parallelism { overlap, sum_tree, .. } = config.parallelism;
        let one = &Parallelism { overlap, sum_tree, ..one.clone() };
        let agreeing = variants(one).filter(|variant| agrees(variant, fixed));
        match refused.cloned().or_else(|| broken_rule(config, one)) {
            None => self.legal.extend(agreeing),
            Some(problem) => self.refusals.add(&problem, agreeing.count()),
        }
    }
}

/// A layout's degrees and how ranks share sequences, before the rest of it is chosen.
#[derive(Clone, Copy)]
struct Shape {
    degrees: Degrees,
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

    /// The rule that refuses the degrees whatever else is chosen, so that no combination is asked about one by one: it refuses 1F1B, which asks
    /// for least, with the smallest and with the largest microbatch. A rule that is about a microbatch's size refuses on one side of some size.
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

/// How many ranks may share a sequence: divisors of the ranks that a model replica of one sequence leaves.
fn context_degrees(config: &RunConfig, ranks: usize, fixed: &BTreeMap<String, String>) -> Vec<usize> {
    let is_given = fixed.contains_key("cp");
    let enough = |cp: &usize| *cp == 1 || is_given || config.train.sequence_length / cp >= LEAST_TOKENS;
    mesh::divisors(ranks).into_iter().filter(enough).collect()
}

/// The ways in which ranks share sequences. The run's own choice of chunks is kept for its own kind.
fn contexts(config: &RunConfig, cp: usize) -> Vec<ContextParallel> {
    let own = config.parallelism.context;
    if cp == 1 {
        return vec![own];
    }
    let of = |kind| if kind == own.kind { own } else { ContextParallel::of(kind, &config.data) };
    ContextKind::ALL.map(of).to_vec()
}

/// A pipeline of one rank has one order of passes that is worth trying; the automatic schedule is a search of its own and is left out.
fn schedules(pp: usize) -> Vec<ScheduleKind> {
    if pp == 1 {
        return vec![ScheduleKind::OneForwardOneBackward];
    }
    let plain = [
        ScheduleKind::OneForwardOneBackward,
        ScheduleKind::ZeroBubbleH1,
        ScheduleKind::ZeroBubbleH2,
        ScheduleKind::ZeroBubbleV,
    ];
    let interleaved = STAGES_PER_RANK.map(|stages_per_rank| ScheduleKind::Interleaved { stages_per_rank });
    plain.into_iter().chain(interleaved).collect()
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
