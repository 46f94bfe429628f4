//! `pleach check`: the verdict on a run, and what it is; or what two runs promise each other.

pub mod all_ranks;
pub mod json;
pub mod products;
pub mod verdict;

use cluster::Cluster;
use config::figures::{bytes, counted, three_digits};
use config::{LoraSpec, ModelSpec, Parallelism, RunConfig, TopQuery, all_params, unique_parameters};
use train::describe_engine;

use crate::arguments::CheckArguments;
use crate::arguments::format::Format;
use crate::check::all_ranks::AllRanks;
use crate::check::verdict::{Planned, Verdict};
use crate::cluster::gpus::{self, Margin};
use crate::cluster::profile::{check_precision, profile};
use crate::compare::comparison;
use crate::failure::Failure;
use crate::gpu;
use crate::input;
use crate::input::run_source::RunSource;
use crate::memory::host;
use crate::memory::machine::{LimitSource, MemoryLimit};
use crate::memory::need::{MemoryBudget, Need};
use crate::memory::table::memory_table;
use crate::rank_hosts::RankHosts;
use crate::screen::narrow::wrapped;
use crate::screen::output::print;
use crate::screen::terminal;

/// Prints what the run is, or how two runs compare.
///
/// # Errors
/// All that is wrong with a run; as JSON it is printed as well.
pub fn check(arguments: &CheckArguments) -> Result<(), Failure> {
    let outcome = match &arguments.other {
        None => judged(arguments).and_then(|verdict| one(&verdict, arguments)),
        Some(other) => comparison::comparison(&arguments.run, other).and_then(|comparison| match arguments.format() {
            Format::Text => Ok(comparison.to_string()),
            Format::Json => json::of_comparison(&comparison),
        }),
    };
    match outcome {
        Ok(text) => print(&text),
        Err(Failure::Run(problems)) => {
            if arguments.format() == Format::Json {
                print(&json::of_problems(&problems)?)?;
            }
            Err(Failure::Run(problems))
        }
        Err(failure) => Err(failure),
    }
}

/// [`CheckArguments::ramp`] as a type.
fn planned(arguments: &CheckArguments) -> Planned {
    if arguments.ramp { Planned::EveryBatch } else { Planned::FullBatch }
}

/// The verdict for this machine, also for a run that starts from weights, or for the accelerators of the cluster that
/// was asked for.
fn judged(arguments: &CheckArguments) -> Result<Verdict, Failure> {
    if let Some(from) = &arguments.from {
        return RunSource::open(from, &[], &[])?.judged(&arguments.run);
    }
    let Some(name) = &arguments.cluster else {
        return match &arguments.hosts {
            None => input::judged(&arguments.run, planned(arguments)),
            // The memory of hosts is checked by processes there.
            Some(_) => input::judged_within(&arguments.run, None, planned(arguments)),
        };
    };
    judged_on(&profile(name)?, arguments)
}

/// The verdict for the accelerators of `cluster`.
fn judged_on(cluster: &Cluster, arguments: &CheckArguments) -> Result<Verdict, Failure> {
    let (config, locations) = input::located(arguments.run.file.as_deref(), &arguments.run)?;
    if let Some(problem) = gpus::problem(&config, cluster, config.run.ranks) {
        let location = locations.get(&problem.key).cloned();
        return Err(Failure::Run(vec![problem.at(location)]));
    }
    let margin = Margin::of(&config);
    let bytes = (cluster.accelerator.memory_bytes() as u64).saturating_sub(margin.bytes);
    let limit = MemoryLimit { bytes, source: LimitSource::Accelerator };
    let judged = verdict::judge(config, &locations, Some(limit), planned(arguments));
    let verdict = judged.map_err(|problems| margin.named_in(Failure::Run(problems)))?;
    check_precision(&verdict.config, cluster)?;
    Ok(verdict)
}

fn one(verdict: &Verdict, arguments: &CheckArguments) -> Result<String, Failure> {
    let order = verdict.config.run.placement;
    let hosts = match &arguments.cluster {
        Some(name) => Some(RankHosts::on_cluster(&verdict.setup.mesh, order, name, &profile(name)?)?),
        None => RankHosts::known(&verdict.setup.mesh, order, arguments.hosts.as_deref())?,
    };
    let setup = &verdict.setup;
    let all_ranks = arguments.all_ranks.then(|| AllRanks::verify(setup)).transpose()?;
    let gpus = match (&arguments.cluster, &arguments.hosts) {
        (None, None) => gpu::checked(&verdict.config, setup)?,
        // GPUs of other machines are not asked for here.
        (Some(_), _) | (None, Some(_)) => vec![],
    };
    match arguments.format() {
        Format::Text => {
            let all_ranks = all_ranks.map_or(String::new(), |all| format!("\n{}", all.line(setup)));
            let run = &verdict.config.run;
            let engine = describe_engine(run.device, run.threads_per_rank);
            let products = products::line(verdict.config.train.precision, &engine);
            let of_hosts =
                hosts.as_ref().map_or(Ok(vec![]), |hosts| hosts.memory(setup, verdict.config.run.memory_every))?;
            let margin = arguments.cluster.as_ref().map_or(String::new(), |_| Margin::of(&verdict.config).line());
            let memory = memory_line(verdict) + &margin + &host::line(&of_hosts);
            let rate = format!("rate    {}\n", verdict.config.train.learning_rate_phases());
            let device = gpu::lines_of(&gpus);
            let run = format!("{}{rate}{products}{memory}{device}", describe(&verdict.config));
            let hosts = hosts.map_or(String::new(), |hosts| format!("\n{}", hosts.drawn()));
            let columns = terminal::columns();
            Ok(wrapped(&format!("{run}\n{}{all_ranks}{hosts}", memory_table(setup, columns)), columns))
        }
        Format::Json => json::of_verdict(verdict, all_ranks, hosts.as_ref(), &gpus),
    }
}

/// A run in a few lines.
pub fn describe(config: &RunConfig) -> String {
    let paths: Vec<String> = config.data.sources.iter().map(|source| source.path.display().to_string()).collect();
    let corpus = if paths.is_empty() { "embedded text".to_string() } else { paths.join(", ") };
    let (steps, folder) = (counted(u64::from(config.train.steps), "step"), config.run.folder.display());
    format!("{}run     {steps} on {corpus}, results in {folder}\n", sizes(config))
}

/// Model, ranks and step of a run, which do not depend on where it runs.
pub fn sizes(config: &RunConfig) -> String {
    let (model, parallelism, train) = (&config.model, &config.parallelism, &config.train);
    let tokens = train.global_batch * train.sequence_length;
    format!(
        "model   {}: {}, hidden {}, {}\n\
         {}ranks   {} = {}{}\n\
         step    {}: {} of {}, {} of {} per replica\n",
        counted(unique_parameters(model), "parameter"),
        layers(model),
        model.hidden,
        counted(model.num_heads as u64, "head"),
        adapters(model),
        config.run.ranks,
        parallelism.degrees,
        sum_order(parallelism),
        counted(tokens as u64, "token"),
        counted(train.global_batch as u64, "sequence"),
        train.sequence_length,
        counted(parallelism.num_microbatches(train.global_batch) as u64, "microbatch"),
        parallelism.microbatch_size,
    )
}

/// The parameters that a run with adapters trains, with their share, in a line.
fn adapters(model: &ModelSpec) -> String {
    let Some(LoraSpec { rank, alpha, targets }) = &model.lora else { return String::new() };
    let trained: u64 = all_params(model).filter(|param| model.trains(param.unit)).map(|param| param.len() as u64).sum();
    let share = 100.0 * trained as f64 / unique_parameters(model) as f64;
    let targets: Vec<&str> = targets.iter().map(|target| target.name()).collect();
    let (trained, targets) = (counted(trained, "parameter"), targets.join(", "));
    format!("lora    {trained} trained, {} %: rank {rank}, alpha {alpha}, {targets}\n", three_digits(share))
}

/// In which order gradients are summed over replicas, where that is not rank order.
fn sum_order(parallelism: &Parallelism) -> String {
    match parallelism.sum_tree {
        tree if 1 < tree && tree < parallelism.degrees.dp => {
            format!("; gradients of {tree} neighbouring replicas are added first")
        }
        _ => String::new(),
    }
}

/// Those of the stack, and the one after the final norm where there is one.
fn layers(model: &ModelSpec) -> String {
    let stack = counted(model.num_layers as u64, "layer");
    match model.top_query {
        TopQuery::Off => stack,
        TopQuery::On => format!("{stack} and a top query's"),
    }
}

/// How much memory the arenas of a run need, and how much there is. Other memory of the process is not planned.
pub fn memory_line(verdict: &Verdict) -> String {
    let need = Need::new(&verdict.setup);
    let together = format!(
        "{} of arenas in {} together",
        bytes(need.together_bytes()),
        counted(verdict.config.run.ranks as u64, "rank")
    );
    let line = match verdict.budget {
        MemoryBudget::PerRank(there) | MemoryBudget::PerAccelerator(there) => {
            let largest = need.stage_bytes.iter().copied().max().unwrap_or(0);
            format!("{} of arena per rank at most, {} available; {together}", bytes(largest), bytes(there))
        }
        MemoryBudget::Together(limit) => format!("{together}; {} has {}", limit.source, bytes(limit.bytes)),
        MemoryBudget::Unknown => together,
    };
    let hosts = need.on_hosts().map_or(String::new(), |on_hosts| format!("        {on_hosts}\n"));
    format!("memory  {line}\n{hosts}")
}
