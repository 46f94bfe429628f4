//! A layout for the processes that are left.

use std::collections::BTreeMap;

use cluster::{Cluster, named};
use config::{DeviceChoice, RunConfig};
use launcher::Host;
use plan::machine::measure;
use plan::search::{Question, search};
use program::StepTimes;
use train::Setup;

use crate::failure::Failure;
use crate::layout::changes::{base, changes};
use crate::memory::machine::memory_limit;
use crate::places::disk::Disk;

/// The profile by which layouts of GPUs are compared.
const GPU_PROFILE: &str = "h100-80g-dgx";

/// The profile by which layouts of a run are compared, where more than dp changes: that of this machine for ranks on
/// cores.
///
/// # Errors
/// A machine that cannot be measured.
pub fn comparing_profile(config: &RunConfig) -> Result<Cluster, Failure> {
    match config.run.device {
        DeviceChoice::Cpu => measure().map_err(|error| Failure::Work(error.to_string())),
        DeviceChoice::Cuda => of_gpus(),
    }
}

/// The built-in profile.
fn of_gpus() -> Result<Cluster, Failure> {
    let missing = || Failure::Work(format!("{GPU_PROFILE} must be a built-in profile"));
    let text = named(GPU_PROFILE).ok_or_else(missing)?;
    Cluster::from_toml(text).map_err(|error| Failure::Work(format!("{GPU_PROFILE}: {error}")))
}

/// A run in another layout.
#[derive(Debug)]
pub struct Replanned {
    /// The run.
    pub config: RunConfig,
    pub hosts: Vec<Host>,
    /// Work of a step on its longest path, in steps of the layout before; `None` where one of them cannot be planned.
    pub slower: Option<f64>,
}

/// The run of `config`, which had `processes`, on the hosts that are `left`, with as many ranks in each process as
/// before. A layout that differs in dp alone is taken where one is legal, with as many replicas as possible: it keeps
/// the bits where sums are exact, and every replica does what it did. Else it is the fastest one that `plan` finds for
/// the most processes, on the cluster that `cluster` returns.
///
/// # Errors
/// No layout that is legal and fits.
pub fn replan(
    config: &RunConfig,
    processes: usize,
    left: &[Host],
    cluster: impl FnOnce() -> Result<Cluster, Failure>,
) -> Result<Replanned, Failure> {
    let there: usize = left.iter().map(|host| host.processes).sum();
    let mut found = with_most_replicas(config, processes, left);
    if found.is_none() && there > 0 {
        let (cluster, of_process) = (cluster()?, ranks_of_process(config, processes));
        for count in (1..=there).rev() {
            found = searched(config, count * of_process, left, &cluster)?.map(|config| (count, config));
            if found.is_some() {
                break;
            }
        }
    }
    let Some((count, after)) = found else {
        return Err(Failure::Work(format!(
            "no layout of the run is legal on the {there} processes that are left; `pleach plan` lists the rules that refuse them"
        )));
    };
    let work = step_work(&after).zip(step_work(config));
    let slower = work.map(|(after, before)| after as f64 / before as f64);
    Ok(Replanned { config: after, hosts: first_of(left, count), slower })
}

/// The run of `config`, which had `processes`, with as many replicas as processes that are `left` can hold, and the
/// number of these processes; `None` where no other dp is legal.
pub fn with_most_replicas(config: &RunConfig, processes: usize, left: &[Host]) -> Option<(usize, RunConfig)> {
    let there: usize = left.iter().map(|host| host.processes).sum();
    let of_process = ranks_of_process(config, processes);
    (1..=there).rev().find_map(|count| Some((count, with_other_dp(config, count * of_process)?)))
}

fn ranks_of_process(config: &RunConfig, processes: usize) -> usize {
    config.parallelism.world_size() / processes.max(1)
}

/// The first `processes` of `hosts`.
fn first_of(hosts: &[Host], mut processes: usize) -> Vec<Host> {
    let mut first = vec![];
    for host in hosts {
        let own = host.processes.min(processes);
        if own > 0 {
            first.push(Host { name: host.name.clone(), processes: own });
        }
        processes -= own;
    }
    first
}

/// The run with another dp on `ranks` ranks, where that is legal.
fn with_other_dp(config: &RunConfig, ranks: usize) -> Option<RunConfig> {
    let of_replica = config.parallelism.world_size() / config.parallelism.degrees.dp.max(1);
    ranks.is_multiple_of(of_replica).then(|| changed(config, &[format!("parallelism.dp={}", ranks / of_replica)]))?
}

/// The run with the fastest layout on `ranks` ranks.
fn searched(config: &RunConfig, ranks: usize, left: &[Host], cluster: &Cluster) -> Result<Option<RunConfig>, Failure> {
    let of_host = (ranks / left.len().max(1)).max(1);
    let of_machine = memory_limit().map_or(f64::INFINITY, |limit| limit.bytes as f64 / of_host as f64);
    let question = Question {
        config,
        cluster,
        software: None,
        expert_load: 1.0,
        accelerators: ranks,
        fixed: &BTreeMap::new(),
        memory_bytes: config.run.rank_memory_bytes.map_or(of_machine, |bytes| bytes as f64),
        margin_bytes: 0.0,
        top: 1,
    };
    let answer = search(&question).map_err(|error| Failure::Work(error.to_string()))?;
    let Some(best) = answer.best.first() else { return Ok(None) };
    let mut after = config.clone();
    after.run.ranks = ranks;
    after.parallelism = best.parallelism.clone();
    Ok(changed(config, &layout_keys(config, &after)))
}

/// The settings that lead from the layout of `before` to that of `after`, as `--set` takes them.
pub fn layout_keys(before: &RunConfig, after: &RunConfig) -> Vec<String> {
    let changed = changes(&before.to_toml(), &after.to_toml());
    let of_layout = changed.into_iter().filter(|(key, _)| key.starts_with("parallelism."));
    of_layout.filter(|(_, [_, after])| !after.is_null()).map(|(key, [_, after])| format!("{key}={after}")).collect()
}

/// The run as it is resumed with these settings; `None` where it is not legal.
fn changed(config: &RunConfig, keys: &[String]) -> Option<RunConfig> {
    let base = base(&config.to_toml(), keys).ok()?;
    RunConfig::load_with("", &base, keys, &Disk).ok().map(|(config, _)| config)
}

/// The work of a step on its longest path, in units of its own: passes and the waits of the pipeline, without what
/// ranks send.
fn step_work(config: &RunConfig) -> Option<u64> {
    let (model, parallelism, train) = (config.model.clone(), config.parallelism_on_device(), config.train.clone());
    let setup = Setup::of_run(model, parallelism, train, &config.run.samples).ok()?;
    let graph = setup.programs.programs().first()?.graph();
    Some(StepTimes::new(graph, &setup.times).bubble().until_norm).filter(|work| *work > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(keys: &[&str]) -> RunConfig {
        let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
        RunConfig::load("", "", &keys).expect("legal")
    }

    fn hosts(processes: &[usize]) -> Vec<Host> {
        let host = |(n, processes): (usize, &usize)| Host { name: format!("h{n}"), processes: *processes };
        processes.iter().enumerate().map(host).collect()
    }

    /// Some cluster: every layout is legal or not whatever it is.
    fn some_cluster() -> Result<Cluster, Failure> {
        of_gpus()
    }

    /// The settings of the new layout, its processes by host, and the work of a step.
    fn replanned(config: &RunConfig, processes: usize, left: &[usize]) -> (String, Vec<usize>, String) {
        let found = replan(config, processes, &hosts(left), some_cluster).expect("a layout");
        assert_eq!(found.config.train, config.train, "batch, data and steps stay");
        let of_hosts = found.hosts.iter().map(|host| host.processes).collect();
        let slower = found.slower.map_or("none".into(), |slower| format!("{slower:.2}"));
        (layout_keys(config, &found.config).join(" "), of_hosts, slower)
    }

    #[test]
    fn dp_alone_changes_where_that_is_possible() {
        let config = run(&["train.global_batch=16"]);
        assert_eq!(config.parallelism.world_size(), 8);
        let half = |processes: usize, left: &[usize]| {
            let (keys, of_hosts, slower) = replanned(&config, processes, left);
            (keys, of_hosts, slower.as_str() > "1.50" && slower.as_str() <= "2.00")
        };
        assert_eq!(half(8, &[2, 2]), ("parallelism.dp=1".into(), vec![2, 2], true));
        assert_eq!(half(4, &[1, 1]), ("parallelism.dp=1".into(), vec![1, 1], true));
        let wide = run(&["parallelism.dp=4", "parallelism.tp=1", "parallelism.pp=1", "train.global_batch=8"]);
        // Three replicas do not divide the batch of 8: the third host stays idle.
        assert_eq!(replanned(&wide, 4, &[1, 1, 1]), ("parallelism.dp=2".into(), vec![1, 1], "2.00".into()));
    }

    #[test]
    fn another_layout_is_searched_where_a_replica_does_not_fit() {
        let config = run(&["parallelism.dp=1", "parallelism.tp=2", "parallelism.pp=2", "train.global_batch=16"]);
        let (keys, processes, _) = replanned(&config, 4, &[2]);
        assert!(!keys.is_empty() && keys.split(' ').all(|key| key.starts_with("parallelism.")), "{keys}");
        assert_eq!(processes, [2]);
    }

    #[test]
    fn the_way_back_leads_to_the_layout_before() {
        let zero = ["parallelism.zero=1", "parallelism.dp=4", "parallelism.shard_group=2", "train.global_batch=16"];
        let before = run(&zero);
        let after = replan(&before, 16, &hosts(&[8]), some_cluster).expect("a layout").config;
        assert_ne!(after.parallelism, before.parallelism);
        let back = changed(&after, &layout_keys(&after, &before)).expect("legal");
        assert_eq!(back.to_toml(), before.to_toml());
    }

    #[test]
    fn a_run_without_a_legal_layout_is_refused() {
        let config = run(&["train.global_batch=16"]);
        let refused = replan(&config, 8, &[], some_cluster).expect_err("nothing is left").to_string();
        assert!(refused.contains("no layout of the run is legal on the 0 processes that are left"), "{refused}");
    }
}
