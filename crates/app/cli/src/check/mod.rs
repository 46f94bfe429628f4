//! `pleach check`: the verdict on a run, and what it is; or what two runs promise each other.

pub mod all_ranks;
pub mod json;
pub mod memory_table;

use cluster::Cluster;
use run::description::product_line;
use run::description::run_lines::{describe, memory_line};
use run::failure::Failure;
use run::gpus::arenas;
use run::memory::host;
use run::memory::machine::{LimitSource, MemoryLimit};
use run::source::run_source::RunSource;
use run::verdict::{self, Planned, Verdict};
use train::describe_engine;

use crate::arguments::CheckArguments;
use crate::arguments::format::Format;
use crate::check::all_ranks::AllRanks;
use crate::check::memory_table::memory_table;
use crate::cluster::gpus::{self, Margin};
use crate::cluster::profile::{check_precision, profile};
use crate::compare::comparison;
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
        Some(other) => {
            comparison::comparison(&arguments.run.run_file(), other).and_then(|comparison| match arguments.format() {
                Format::Text => Ok(comparison.to_string()),
                Format::Json => json::of_comparison(&comparison),
            })
        }
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
    let run = arguments.run.run_file();
    if let Some(from) = &arguments.from {
        return RunSource::open(from, &[], &[])?.judged(&run);
    }
    let Some(name) = &arguments.cluster else {
        return match &arguments.hosts {
            None => run.judged(planned(arguments)),
            // The memory of hosts is checked by processes there.
            Some(_) => run.judged_within(None, planned(arguments)),
        };
    };
    judged_on(&profile(name)?, arguments)
}

/// The verdict for the accelerators of `cluster`.
fn judged_on(cluster: &Cluster, arguments: &CheckArguments) -> Result<Verdict, Failure> {
    let (config, locations) = arguments.run.run_file().located()?;
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
        (None, None) => arenas::checked(&verdict.config, setup)?,
        // GPUs of other machines are not asked for here.
        (Some(_), _) | (None, Some(_)) => vec![],
    };
    match arguments.format() {
        Format::Text => {
            let all_ranks = all_ranks.map_or(String::new(), |all| format!("\n{}", all.line(setup)));
            let run = &verdict.config.run;
            let engine = describe_engine(run.device, run.threads_per_rank);
            let products = product_line::line(verdict.config.train.precision, &engine);
            let of_hosts =
                hosts.as_ref().map_or(Ok(vec![]), |hosts| hosts.memory(setup, verdict.config.run.memory_every))?;
            let margin = arguments.cluster.as_ref().map_or(String::new(), |_| Margin::of(&verdict.config).line());
            let memory = memory_line(verdict) + &margin + &host::line(&of_hosts);
            let rate = format!("rate    {}\n", verdict.config.train.learning_rate_phases());
            let device = arenas::lines_of(&gpus);
            let run = format!("{}{rate}{products}{memory}{device}", describe(&verdict.config));
            let hosts = hosts.map_or(String::new(), |hosts| format!("\n{}", hosts.drawn()));
            let columns = terminal::columns();
            Ok(wrapped(&format!("{run}\n{}{all_ranks}{hosts}", memory_table(setup, columns)), columns))
        }
        Format::Json => json::of_verdict(verdict, all_ranks, hosts.as_ref(), &gpus),
    }
}
