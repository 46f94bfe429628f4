//! Whether the planned memory fits, and which one change would make it fit.

use config::figures::{apart, bytes, grouped};
use config::{
    Degrees, FullRecompute, Gathering, GradientReduction, Parallelism, Problem, Recompute, Reshard, RunConfig,
    SavedInputs, ScheduleKind, ScheduleSpec, SequenceParallel, ZeroStage,
};
use program::RankPlan;
use train::Setup;

use crate::memory::machine::{LimitSource, MemoryLimit};

/// The memory that the arenas must fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryBudget {
    /// Each rank has this many bytes: `run.rank_memory_bytes`.
    PerRank(u64),
    /// Each rank has an accelerator with this many bytes.
    PerAccelerator(u64),
    /// All ranks share this.
    Together(MemoryLimit),
    /// Nobody says.
    Unknown,
}

impl MemoryBudget {
    /// The limit of the run, or the memory of the machine.
    pub fn new(config: &RunConfig, limit: Option<MemoryLimit>) -> MemoryBudget {
        let accelerator_bytes = limit.filter(|limit| limit.source == LimitSource::Accelerator).map(|limit| limit.bytes);
        match (config.run.rank_memory_bytes, limit) {
            (Some(bytes), _) if accelerator_bytes.is_none_or(|there| bytes <= there) => MemoryBudget::PerRank(bytes),
            (_, Some(MemoryLimit { bytes, source: LimitSource::Accelerator })) => MemoryBudget::PerAccelerator(bytes),
            (Some(bytes), _) => MemoryBudget::PerRank(bytes),
            (None, Some(limit)) => MemoryBudget::Together(limit),
            (None, None) => MemoryBudget::Unknown,
        }
    }
}

/// The planned arenas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// Ranks of one stage: replicas times tensor-parallel ranks.
    pub ranks_per_stage: usize,
    /// Bytes of one rank's arena, by stage.
    pub stage_bytes: Vec<u64>,
    /// Bytes of one rank in memory of the host, by stage.
    pub host_stage_bytes: Vec<u64>,
    /// The content of that memory, in words.
    pub on_host: &'static str,
}

impl Need {
    /// The arenas of `setup`.
    pub fn new(setup: &Setup) -> Need {
        Need {
            ranks_per_stage: setup.mesh.ranks_per_stage(),
            stage_bytes: (0..setup.parallelism.degrees.pp)
                .map(|stage| largest_plan(setup, stage).arena_bytes() as u64)
                .collect(),
            host_stage_bytes: (0..setup.parallelism.degrees.pp)
                .map(|stage| setup.plan(stage).host_bytes() as u64)
                .collect(),
            on_host: setup.train.offload.content(),
        }
    }

    /// Bytes of all ranks in memory of their hosts, without arenas.
    pub fn host_together_bytes(&self) -> u64 {
        self.host_stage_bytes.iter().sum::<u64>().saturating_mul(self.ranks_per_stage as u64)
    }

    /// The memory of hosts in a sentence; `None` where a run uses none.
    pub fn on_hosts(&self) -> Option<String> {
        let most = self.host_stage_bytes.iter().copied().max().filter(|most| *most > 0)?;
        Some(format!(
            "{} of {} of a rank at most in memory of its host, {} in all",
            bytes(most),
            self.on_host,
            bytes(self.host_together_bytes())
        ))
    }

    /// Bytes of the arenas of all ranks.
    pub fn together_bytes(&self) -> u64 {
        let of_one_each: u64 = self.stage_bytes.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes));
        of_one_each.saturating_mul(self.ranks_per_stage as u64)
    }

    /// The stage whose ranks need most, and their bytes.
    fn largest(&self) -> (usize, u64) {
        let stages = self.stage_bytes.iter().copied().enumerate();
        stages.max_by_key(|(stage, bytes)| (*bytes, usize::MAX - stage)).unwrap_or_default()
    }

    /// The bytes that are compared with `budget`, and the limit; `None` if it is unknown.
    fn against(&self, budget: MemoryBudget) -> Option<(u64, u64)> {
        match budget {
            MemoryBudget::PerRank(there) | MemoryBudget::PerAccelerator(there) => Some((self.largest().1, there)),
            MemoryBudget::Together(limit) => {
                Some((self.together_bytes().saturating_add(self.host_together_bytes()), limit.bytes))
            }
            MemoryBudget::Unknown => None,
        }
    }

    fn fits(&self, budget: MemoryBudget) -> bool {
        self.against(budget).is_none_or(|(needed, there)| needed <= there)
    }
}

/// The plan that decides the size of a rank's arena: usually that of training, for it keeps activations.
pub fn largest_plan(setup: &Setup, stage: usize) -> &RankPlan {
    let plans = setup.programs.programs().iter().map(|verified| &verified.plan().ranks[stage]);
    plans
        .reduce(|largest, plan| if plan.arena_bytes() > largest.arena_bytes() { plan } else { largest })
        .unwrap_or(setup.plan(stage))
}

/// The memory error of `setup`, the plan of `config`, with changes that fix it.
pub fn problem(config: &RunConfig, setup: &Setup, budget: MemoryBudget) -> Option<Problem> {
    let need = Need::new(setup);
    let (needed, _) = need.against(budget).filter(|_| !need.fits(budget))?;
    let remedy = remedy(config, budget, needed);
    match budget {
        MemoryBudget::PerRank(there) => {
            let (stage, largest) = need.largest();
            let rule = format!(
                "is less than the {} bytes of a rank of stage {stage} ({})",
                grouped(largest),
                parts(setup, stage)
            );
            Some(Problem::of_value("run.rank_memory_bytes", there, rule, remedy))
        }
        MemoryBudget::PerAccelerator(there) => {
            let (stage, largest) = need.largest();
            let [needs, has] = apart(largest, there);
            let rule = format!(
                "does not fit: a rank of stage {stage} needs {needs} ({}), {} has {has}",
                parts(setup, stage),
                LimitSource::Accelerator
            );
            Some(Problem::of_key("memory", rule, remedy))
        }
        MemoryBudget::Together(limit) => {
            let (stage, _) = need.largest();
            let [needs, has] = apart(needed, limit.bytes);
            let rule = format!(
                "does not fit: all ranks ({}) need {needs} together, {} has {has} (a rank of stage {stage}: {})",
                config.run.ranks,
                limit.source,
                parts(setup, stage)
            );
            Some(Problem::of_key("memory", rule, remedy))
        }
        MemoryBudget::Unknown => None,
    }
}

/// Bytes of a rank by category, largest first.
fn parts(setup: &Setup, stage: usize) -> String {
    let mut categories = largest_plan(setup, stage).categories();
    categories.retain(|(_, bytes)| *bytes > 0);
    categories.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let parts: Vec<String> =
        categories.iter().map(|(category, size)| format!("{category} {}", bytes(*size as u64))).collect();
    parts.join(", ")
}

/// A change of one key, with those of other keys that it needs.
struct Change {
    key: &'static str,
    value: String,
    with: Vec<(&'static str, String)>,
    config: RunConfig,
}

impl Change {
    /// `parallelism.tp = 8 with parallelism.dp = 1 and run.ranks = 8`.
    fn text(&self) -> String {
        let Change { key, value, with, .. } = self;
        let with = if with.is_empty() { String::new() } else { format!(" with {}", written(with)) };
        format!("{key} = {value}{with}")
    }

    /// Bytes that are needed once it is made, and whether they fit; `None` where it cannot be planned.
    fn judged(self, budget: MemoryBudget) -> Option<(Change, u64, bool)> {
        let need = Need::new(&plan_of(&self.config)?);
        let (needed, there) = need.against(budget)?;
        Some((self, needed, needed <= there))
    }
}

/// The plan of `config` with as few microbatches as give the same memory. A pipeline that holds no more than it needs
/// repeats itself once it is full, so that more than twice of what it holds adds nothing; a GPipe pipeline holds all of
/// them.
fn plan_of(config: &RunConfig) -> Option<Setup> {
    let parallelism = config.parallelism_on_device();
    let RunConfig { model, mut train, .. } = config.clone();
    let all = parallelism.num_microbatches(train.global_batch);
    let num_microbatches = match &parallelism.schedule {
        // A schedule file has one number of microbatches.
        ScheduleSpec::Given(_) => all,
        ScheduleSpec::Generated(kind) => {
            let repeating = 2 * kind.held_passes(parallelism.degrees.pp, all) + 2;
            all.min(repeating.next_multiple_of(kind.microbatch_group(parallelism.degrees.pp)))
        }
    };
    // Smaller batches need less.
    train.batch_ramp = None;
    train.global_batch = num_microbatches * parallelism.degrees.dp * parallelism.microbatch_size;
    Setup::of_run(model, parallelism, train, &config.run.samples).ok()
}

/// This number of changes is tried on top of each other.
const MAX_CHANGES: usize = 4;

/// The changes of which each suffices, with what is then needed; or else several that suffice together, found by always
/// making the one that saves most.
fn remedy(config: &RunConfig, budget: MemoryBudget, mut needed: u64) -> String {
    let mut made: Vec<(&'static str, String)> = vec![];
    let ranks = config.run.ranks;
    let mut config = config.clone();
    for _ in 0..MAX_CHANGES {
        let judged = changes(&config, budget).into_iter().filter_map(|change| change.judged(budget));
        let judged: Vec<(Change, u64, bool)> = judged.filter(|(_, then, _)| *then < needed).collect();
        let enough: Vec<&(Change, u64, bool)> = judged.iter().filter(|(_, _, fits)| *fits).collect();
        // A degree with more ranks is named where it is not enough with as many.
        let suffices = |key: &str| enough.iter().any(|(of, _, _)| of.key == key && of.config.run.ranks == ranks);
        let each: Vec<String> = enough
            .iter()
            .filter(|(change, _, _)| change.config.run.ranks <= ranks || !suffices(change.key))
            .map(|(change, then, _)| format!("{} (needs {})", change.text(), bytes(*then)))
            .collect();
        if made.is_empty() && !each.is_empty() {
            return format!("use {}", alternatives(&each, "or"));
        }
        let Some((best, then, fits)) = judged.into_iter().min_by_key(|(_, then, _)| *then) else { break };
        let changed = std::iter::once((best.key, best.value)).chain(best.with);
        for (key, value) in changed {
            made.retain(|(earlier, _)| *earlier != key);
            made.push((key, value));
        }
        (config, needed) = (best.config, then);
        if fits {
            return format!("use {} together (needs {})", written(&made), bytes(needed));
        }
    }
    match made.is_empty() {
        true => "use a smaller model or shorter sequences".into(),
        false => format!("even with {} it needs {}; try a smaller model", written(&made), bytes(needed)),
    }
}

fn written(made: &[(&str, String)]) -> String {
    let made: Vec<String> = made.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    alternatives(&made, "and")
}

fn alternatives(words: &[String], last_word: &str) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} {last_word} {last}", first.join(", ")),
    }
}

/// ZeRO stages that keep less than `zero`, as they are written: those that sum gradients after each microbatch, for
/// only then no rank keeps them whole.
fn more_sharding(zero: ZeroStage) -> Vec<(String, ZeroStage)> {
    let reduce = GradientReduction::Microbatch;
    let one = ("1", ZeroStage::One);
    let two = ("2", ZeroStage::Two { reduce });
    let three = |gathering| ("3", ZeroStage::Three { reduce, gathering });
    let usual = Gathering { prefetch: 1, reshard: Reshard::AfterUse };
    let more = match zero {
        ZeroStage::Off => vec![one, two, three(usual)],
        ZeroStage::One | ZeroStage::Two { reduce: GradientReduction::Step } => vec![two, three(usual)],
        ZeroStage::Two { reduce: GradientReduction::Microbatch } => vec![three(usual)],
        ZeroStage::Three { reduce: GradientReduction::Step, gathering } => vec![three(gathering)],
        ZeroStage::Three { reduce: GradientReduction::Microbatch, .. } => vec![],
    };
    let written =
        |(number, stage): (&str, ZeroStage)| match stage.reduction() == zero.reduction() || stage == ZeroStage::One {
            true => (number.to_string(), stage),
            false => (format!("{number} with parallelism.reduce = \"microbatch\""), stage),
        };
    more.into_iter().map(written).collect()
}

/// As equal stages as there can be, the larger ones first.
fn even_stages(num_layers: usize, stages: usize) -> Vec<usize> {
    (0..stages).map(|stage| (num_layers + stages - 1 - stage) / stages).collect()
}

/// The other keys whose values `changed` has in place of those of `own` and that a run file may have: its ranks, the
/// replicas and the layers of its stages.
fn with_it(key: &str, own: &Parallelism, changed: &RunConfig) -> Vec<(&'static str, String)> {
    let (dp, ranks) = (changed.parallelism.degrees.dp, changed.run.ranks);
    let replicas = (dp != own.degrees.dp && key != "parallelism.dp").then(|| ("parallelism.dp", dp.to_string()));
    let layers =
        changed.parallelism.stage_layers.as_ref().filter(|_| changed.parallelism.stage_layers != own.stage_layers);
    let layers = layers.map(|layers| ("parallelism.stage_layers", format!("{layers:?}")));
    let ranks = (ranks != own.world_size()).then(|| ("run.ranks", ranks.to_string()));
    replicas.into_iter().chain(layers).chain(ranks).collect()
}

/// Legal changes that may need less, the least intrusive first.
fn changes(config: &RunConfig, budget: MemoryBudget) -> Vec<Change> {
    let parallelism = &config.parallelism;
    let mut changes = vec![];
    let mut offer = |key: &'static str, value: String, change: &dyn Fn(&mut RunConfig)| {
        let mut config = config.clone();
        change(&mut config);
        config.run.ranks = config.parallelism.world_size();
        if config::check(&config).is_ok() {
            let with = with_it(key, parallelism, &config);
            changes.push(Change { key, value, with, config });
        }
    };
    if parallelism.degrees.dp > 1 {
        for (value, zero) in more_sharding(parallelism.zero) {
            offer("parallelism.zero", value, &|config| config.parallelism.zero = zero);
        }
    }
    let plain = ScheduleSpec::from(ScheduleKind::OneForwardOneBackward);
    if parallelism.schedule != plain && parallelism.degrees.pp > 1 {
        offer("parallelism.schedule", "\"1f1b\"".into(), &|config| config.parallelism.schedule = plain.clone());
    }
    if !matches!(parallelism.recompute, Recompute::Full(_)) {
        offer("parallelism.recompute", "\"full\"".into(), &|config| {
            let inputs = match config.parallelism.sequence_parallel {
                SequenceParallel::Off => SavedInputs::Whole,
                SequenceParallel::On => SavedInputs::Sharded,
            };
            config.parallelism.recompute = Recompute::Full(FullRecompute { every: 1, inputs });
        });
    }
    let size = parallelism.microbatch_size;
    let smaller = mesh::divisors(size).into_iter().rev().find(|divisor| *divisor < size);
    for size in smaller.into_iter().chain((size > 2).then_some(1)) {
        offer("parallelism.microbatch_size", size.to_string(), &|config| config.parallelism.microbatch_size = size);
    }
    match budget {
        // A larger part of the ranks for each replica, or more ranks, which bring more memory.
        MemoryBudget::PerRank(_) | MemoryBudget::PerAccelerator(_) => {
            let Degrees { dp, tp, pp, .. } = parallelism.degrees;
            let halved = dp.is_multiple_of(2).then_some(dp / 2);
            for dp in halved.into_iter().chain([dp]) {
                offer("parallelism.tp", (2 * tp).to_string(), &|config| {
                    (config.parallelism.degrees.dp, config.parallelism.degrees.tp) = (dp, 2 * tp);
                });
                offer("parallelism.pp", (2 * pp).to_string(), &|config| {
                    (config.parallelism.degrees.dp, config.parallelism.degrees.pp) = (dp, 2 * pp);
                    let stages = 2 * config.parallelism.stage_layers.as_ref().map_or(0, Vec::len);
                    let layers = &mut config.parallelism.stage_layers;
                    *layers = layers.as_ref().map(|_| even_stages(config.model.num_layers, stages));
                });
            }
        }
        // Fewer replicas hold fewer copies of the model.
        MemoryBudget::Together(_) | MemoryBudget::Unknown if parallelism.degrees.dp > 1 => {
            offer("parallelism.dp", "1".into(), &|config| config.parallelism.degrees.dp = 1);
        }
        MemoryBudget::Together(_) | MemoryBudget::Unknown => {}
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_of_few_microbatches_needs_what_the_run_needs() {
        for recompute in ["none", "full"] {
            for global_batch in [4, 64, 100, 200, 400] {
                let overrides = [
                    "model.vocabulary=4099".to_string(),
                    "train.sequence_length=16".into(),
                    format!("train.global_batch={global_batch}"),
                    "parallelism.dp=1".into(),
                    "parallelism.tp=1".into(),
                    "parallelism.pp=1".into(),
                    "parallelism.microbatch_size=1".into(),
                    format!("parallelism.recompute={recompute}"),
                ];
                let config = RunConfig::load("", "", &overrides).expect("legal");
                let RunConfig { model, parallelism, train, .. } = config.clone();
                let whole = Setup::of_run(model, parallelism, train, &config.run.samples).expect("a plan");
                let few = plan_of(&config).expect("a plan");
                assert_eq!(Need::new(&few), Need::new(&whole), "{recompute}, {global_batch}");
            }
        }
    }

    /// A change that is typed as it is written makes a legal run.
    #[test]
    fn changes_name_the_other_keys_that_they_need() {
        let overrides =
            ["parallelism.dp=2", "parallelism.tp=1", "parallelism.pp=1", "run.ranks=2", "model.num_layers=5"];
        let mut overrides = overrides.map(String::from).to_vec();
        overrides.push("parallelism.stage_layers=[5]".into());
        let config = RunConfig::load("", "", &overrides).expect("legal");
        let budget = MemoryBudget::PerAccelerator(1);
        let named: Vec<String> =
            changes(&config, budget).iter().filter(|change| !change.with.is_empty()).map(Change::text).collect();
        assert_eq!(
            named,
            [
                "parallelism.tp = 2 with parallelism.dp = 1",
                "parallelism.pp = 2 with parallelism.dp = 1 and parallelism.stage_layers = [3, 2]",
                "parallelism.tp = 2 with run.ranks = 4",
                "parallelism.pp = 2 with parallelism.stage_layers = [3, 2] and run.ranks = 4",
            ]
        );
        for change in changes(&config, budget) {
            let typed = std::iter::once((change.key, change.value)).chain(change.with);
            let typed =
                typed.filter(|(_, value)| !value.contains(" with ")).map(|(key, value)| format!("{key}={value}"));
            let all: Vec<String> = overrides.iter().cloned().chain(typed).collect();
            assert!(RunConfig::load("", "", &all).is_ok(), "{all:?}");
        }
    }

    #[test]
    fn every_stage_of_sharding_that_keeps_less_is_offered() {
        let offered = |overrides: &[&str]| -> Vec<String> {
            let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
            let config = RunConfig::load("", "", &overrides).expect("legal");
            let changes =
                changes(&config, MemoryBudget::Unknown).into_iter().filter(|change| change.key == "parallelism.zero");
            changes.map(|change| change.value).collect()
        };
        let [two, three] = ["2", "3"].map(|stage| format!("{stage} with parallelism.reduce = \"microbatch\""));
        assert_eq!(offered(&["parallelism.zero=0"]), ["1", &two, &three]);
        assert_eq!(offered(&[]), [two.clone(), three.clone()]);
        assert_eq!(offered(&["parallelism.zero=2"]), [two, three.clone()]);
        assert_eq!(offered(&["parallelism.zero=2", "parallelism.reduce=microbatch"]), ["3"]);
        assert_eq!(offered(&["parallelism.zero=3"]), [three]);
        assert_eq!(offered(&["parallelism.zero=0", "parallelism.dp=1"]), Vec::<String>::new());
    }
}
