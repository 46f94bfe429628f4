//! The output of `pleach check --json`: one object on one line.

use std::collections::BTreeMap;

use config::{Degrees, Problem, active_parameters, unique_parameters};
use run::failure::Failure;
use run::memory::machine::LimitSource;
use run::memory::need::{MemoryBudget, Need, largest_plan};
use run::verdict::Verdict;
use serde::Serialize;
use train::GpuMemory;

use crate::check::all_ranks::AllRanks;
use crate::check::memory_table::layers;
use crate::compare::comparison::{Comparison, promise};
use crate::rank_hosts::RankHosts;

#[derive(Serialize)]
struct Run {
    legal: bool,
    parameters: u64,
    /// Those that a token goes through, where there are experts.
    #[serde(skip_serializing_if = "Option::is_none")]
    active_parameters: Option<u64>,
    ranks: usize,
    dp: usize,
    cp: usize,
    tp: usize,
    pp: usize,
    /// Replicas that divide experts, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    ep: Option<usize>,
    tokens_per_step: usize,
    microbatches_per_replica: usize,
    learning_rate: String,
    memory: Memory,
    stages: Vec<StageOfRun>,
    #[serde(skip_serializing_if = "Option::is_none")]
    all_ranks: Option<AllRanks>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hosts: Vec<HostOfRun>,
    /// GPUs of this machine, where the run has any and all of its ranks are here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gpus: Vec<GpuOfRun>,
}

#[derive(Serialize)]
struct HostOfRun {
    name: String,
    processes: Vec<Vec<usize>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arena_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connection_bytes: Option<u64>,
    /// Bytes of checkpoints in the memory of the host, where there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint_bytes: Option<u64>,
}

#[derive(Serialize)]
struct GpuOfRun {
    name: String,
    ranks: usize,
    arena_bytes: u64,
    /// Memory of processes and ranks in addition to arenas.
    margin_bytes: u64,
    free_bytes: u64,
    total_bytes: u64,
}

impl From<&GpuMemory> for GpuOfRun {
    fn from(gpu: &GpuMemory) -> GpuOfRun {
        let GpuMemory { gpu: name, ranks, arena_bytes, margin_bytes, free_bytes, total_bytes } = gpu;
        GpuOfRun {
            name: name.clone(),
            ranks: *ranks,
            arena_bytes: *arena_bytes,
            margin_bytes: *margin_bytes,
            free_bytes: *free_bytes,
            total_bytes: *total_bytes,
        }
    }
}

#[derive(Serialize)]
struct Memory {
    together_bytes: u64,
    limit_bytes: Option<u64>,
    limit_of: &'static str,
}

#[derive(Serialize)]
struct StageOfRun {
    stage: usize,
    layers: Vec<u32>,
    ranks: usize,
    rank_bytes: usize,
    /// Bytes of one rank's state in memory of its host, where there is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    host_bytes: Option<usize>,
    bytes: BTreeMap<String, usize>,
}

/// A legal run with its GPUs on this machine, and what all of its ranks come to, where that was asked for.
///
/// # Errors
/// Numbers that JSON does not have.
pub fn of_verdict(
    verdict: &Verdict,
    all_ranks: Option<AllRanks>,
    hosts: Option<&RankHosts>,
    gpus: &[GpuMemory],
) -> Result<String, Failure> {
    let Verdict { config, setup, budget } = verdict;
    let (parallelism, train) = (&config.parallelism, &config.train);
    let need = Need::new(setup);
    let (limit_bytes, limit_of) = match budget {
        MemoryBudget::PerRank(bytes) => (Some(*bytes), "rank"),
        MemoryBudget::PerAccelerator(bytes) => (Some(*bytes), "accelerator"),
        MemoryBudget::Together(limit) => match limit.source {
            LimitSource::Accelerator => (Some(limit.bytes), "accelerator"),
            LimitSource::Machine => (Some(limit.bytes), "machine"),
            LimitSource::ControlGroup => (Some(limit.bytes), "control_group"),
            LimitSource::AddressSpace => (Some(limit.bytes), "address_space"),
        },
        MemoryBudget::Unknown => (None, "unknown"),
    };
    let stages = (0..parallelism.degrees.pp).map(|stage| {
        let plan = largest_plan(setup, stage);
        StageOfRun {
            stage,
            layers: layers(setup, stage),
            ranks: need.ranks_per_stage,
            rank_bytes: plan.arena_bytes(),
            host_bytes: Some(plan.host_bytes()).filter(|bytes| *bytes > 0),
            bytes: plan.categories().into_iter().map(|(category, bytes)| (category.to_string(), bytes)).collect(),
        }
    });
    let Degrees { dp, cp, tp, pp } = parallelism.degrees;
    line(&Run {
        legal: true,
        parameters: unique_parameters(&config.model),
        active_parameters: config.model.experts.map(|_| active_parameters(&config.model)),
        ranks: config.run.ranks,
        dp,
        cp,
        tp,
        pp,
        ep: Some(parallelism.ep).filter(|ep| *ep > 1),
        tokens_per_step: train.global_batch * train.sequence_length,
        microbatches_per_replica: setup.num_microbatches(),
        learning_rate: train.learning_rate_phases(),
        memory: Memory { together_bytes: need.together_bytes(), limit_bytes, limit_of },
        stages: stages.collect(),
        all_ranks,
        hosts: hosts.map_or(Ok(vec![]), |hosts| hosts_of(verdict, hosts))?,
        gpus: gpus.iter().map(GpuOfRun::from).collect(),
    })
}

/// The hosts with the memory of their ranks; without it on a cluster, where each rank has an accelerator.
fn hosts_of(verdict: &Verdict, hosts: &RankHosts) -> Result<Vec<HostOfRun>, Failure> {
    let memory = hosts.memory(&verdict.setup, verdict.config.run.memory_every)?;
    let host = |(name, processes): (String, Vec<Vec<usize>>)| {
        let of_host = memory.iter().find(|host| host.host == name);
        let (arena_bytes, connection_bytes) =
            (of_host.map(|host| host.arena_bytes), of_host.map(|host| host.connection_bytes));
        let checkpoint_bytes = of_host.map(|host| host.checkpoint_bytes).filter(|bytes| *bytes > 0);
        HostOfRun { name, processes, arena_bytes, connection_bytes, checkpoint_bytes }
    };
    Ok(hosts.processes().into_iter().map(host).collect())
}

#[derive(Serialize)]
struct Refusal<'a> {
    legal: bool,
    problems: Vec<ProblemOfRun<'a>>,
}

#[derive(Serialize)]
struct ProblemOfRun<'a> {
    place: Option<String>,
    key: &'a str,
    value: Option<&'a str>,
    rule: &'a str,
    remedy: &'a str,
}

/// A run that is not legal.
///
/// # Errors
/// The errors of [`of_verdict`].
pub fn of_problems(problems: &[Problem]) -> Result<String, Failure> {
    let problems = problems.iter().map(|problem| ProblemOfRun {
        place: problem.location.as_ref().map(ToString::to_string),
        key: &problem.key,
        value: problem.value.as_deref(),
        rule: &problem.rule,
        remedy: &problem.remedy,
    });
    line(&Refusal { legal: false, problems: problems.collect() })
}

#[derive(Serialize)]
struct TwoRuns<'a> {
    class: Option<String>,
    promise: Option<&'static str>,
    differences: BTreeMap<&'a str, &'a [String; 2]>,
}

/// Two runs.
///
/// # Errors
/// The errors of [`of_verdict`].
pub fn of_comparison(comparison: &Comparison) -> Result<String, Failure> {
    let differences = comparison.differences.iter();
    line(&TwoRuns {
        class: comparison.class.map(|class| class.to_string()),
        promise: comparison.class.map(promise),
        differences: differences.map(|difference| (difference.key.as_str(), &difference.values)).collect(),
    })
}

fn line(value: &impl Serialize) -> Result<String, Failure> {
    match serde_json::to_string(value) {
        Ok(text) => Ok(text + "\n"),
        Err(error) => Err(Failure::Work(error.to_string())),
    }
}
