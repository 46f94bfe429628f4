//! `pleach plan`: the fastest layouts of a run on a cluster, and how they were found.

use std::collections::{BTreeMap, BTreeSet};

use plan::search::candidates::keys;
use plan::search::{Answer, Counts, Found, Question, Smallest, search};
use serde::Serialize;
use sim::Loss;
use spec::{Parallelism, RunConfig};

use crate::arguments::Format;
use crate::cluster_arguments::PlanArguments;
use crate::cluster_profile::of_run;
use crate::failure::Failure;
use crate::figures::{bytes, counted, enough_bytes, grouped};
use crate::input;
use crate::memory_table::aligned;
use crate::output::print;
use crate::simulate::seconds;

/// Searches, prints the best layouts with what makes each better than the next, and writes the best where that was asked for.
///
/// # Errors
/// A run or a profile that cannot be used, and a run that fits nowhere.
pub fn plan(arguments: &PlanArguments) -> Result<(), Failure> {
    if arguments.gpus == 0 {
        return Err(Failure::Input("--gpus 0: a run needs at least one accelerator".into()));
    }
    if let Some(memory_gb) = arguments.max_memory.filter(|memory_gb| !(memory_gb.is_finite() && *memory_gb > 0.0)) {
        return Err(Failure::Input(format!(
            "--max-memory {memory_gb} is no memory; give 10^9 bytes, e.g. --max-memory 40, or leave it out"
        )));
    }
    let config = input::load(&arguments.run)?;
    let (cluster, software) = of_run(&arguments.run, &arguments.cluster)?;
    let memory_gb = arguments.max_memory.unwrap_or(cluster.accelerator.memory_gb);
    let fixed = fixed(&arguments.fix, &config.parallelism)?;
    let question = Question {
        config: &config,
        cluster: &cluster,
        software: software.as_ref(),
        accelerators: arguments.gpus,
        fixed: &fixed,
        memory_bytes: memory_gb * 1e9,
        top: usize::from(arguments.top),
    };
    let answer = search(&question).map_err(|error| Failure::Work(error.to_string()))?;
    let Some(best) = answer.best.first() else {
        return Err(nowhere(&answer, &question).unwrap_or_else(|error| Failure::Work(error.to_string())));
    };
    if let Some(path) = &arguments.write {
        std::fs::write(path, planned(&config, &best.parallelism).to_toml())
            .map_err(|error| Failure::Work(format!("{} cannot be written: {error}", path.display())))?;
    }
    match arguments.format() {
        Format::Text => print(&text(&answer, &question)),
        Format::Json => {
            let json =
                serde_json::to_string(&json(&answer, &question)).map_err(|error| Failure::Work(error.to_string()))?;
            print(&format!("{json}\n"))
        }
    }
}

/// The run with a layout.
fn planned(config: &RunConfig, parallelism: &Parallelism) -> RunConfig {
    let mut config = config.clone();
    config.run.ranks = parallelism.world_size();
    config.parallelism = parallelism.clone();
    config
}

fn fixed(given: &[String], parallelism: &Parallelism) -> Result<BTreeMap<String, String>, Failure> {
    let known: Vec<String> = keys(parallelism).into_keys().collect();
    let mut fixed = BTreeMap::new();
    for text in given {
        let pair = text.split_once('=').filter(|(key, _)| known.iter().any(|known| known == key));
        let Some((key, value)) = pair else {
            return Err(Failure::Input(format!(
                "--fix {text} fixes nothing; write KEY=VALUE with {}",
                known.join(", ")
            )));
        };
        fixed.insert(key.to_string(), value.to_string());
    }
    Ok(fixed)
}

/// That nothing fits, and what would.
fn nowhere(answer: &Answer, question: &Question) -> Result<Failure, train::SetupError> {
    let accelerators = counted(question.accelerators as u64, "accelerator");
    let Some(Smallest { parallelism, memory_bytes }) = question.smallest()? else {
        return Ok(illegal(answer, question));
    };
    let needed = bytes(memory_bytes as u64);
    let mut remedies = vec![format!("{} a rank", enough_bytes(memory_bytes as u64))];
    remedies.extend(question.needless_keys()?.into_iter().map(|key| format!("leaving --fix {key} out")));
    remedies.extend(question.enough_accelerators()?.map(|more| format!("{} accelerators", grouped(more as u64))));
    Ok(Failure::Input(format!(
        "the run fits nowhere on {accelerators} of {}: {} needs least, {needed} a rank; {} would do",
        bytes(question.memory_bytes as u64),
        layout(&parallelism),
        remedies.join(", or ")
    )))
}

/// That no layout is legal, and which value of a key that is fixed would be.
fn illegal(answer: &Answer, question: &Question) -> Failure {
    let accelerators = counted(question.accelerators as u64, "accelerator");
    let rules = match question.fixed.is_empty() {
        true => format!("a run ({} were refused)", grouped(answer.counts.refused as u64)),
        false => {
            let fixed: Vec<String> = question.fixed.iter().map(|(key, value)| format!("--fix {key}={value}")).collect();
            format!("a run with {}", fixed.join(" "))
        }
    };
    let of_key = |(key, values): (String, BTreeSet<String>)| {
        let mut values: Vec<String> = values.into_iter().collect();
        // Numbers by their size.
        values.sort_by_key(|value| value.parse::<usize>().ok());
        (!values.is_empty()).then(|| format!("{key} = {}", values.join(" or ")))
    };
    let values: Vec<String> = question.legal_values().into_iter().filter_map(of_key).collect();
    let remedy = match values.is_empty() {
        true => "another number of accelerators or another train.global_batch would do".to_string(),
        false => format!("{} would do", values.join(", or ")),
    };
    Failure::Input(format!("no layout on {accelerators} obeys the rules of {rules}; {remedy}"))
}

/// `dp 8 x tp 8 x pp 35, zero 1, 1f1b, microbatches of 1, full recomputation`.
fn layout(parallelism: &Parallelism) -> String {
    let keys = keys(parallelism);
    let of = |key: &str| keys.get(key).map_or("", String::as_str).to_string();
    let mut text = format!(
        "dp {} x tp {} x pp {}, zero {}, {}",
        of("dp"),
        of("tp"),
        of("pp"),
        parallelism_zero(parallelism, &of("zero")),
        of("schedule")
    );
    if of("stages_per_rank") != "1" {
        text += &format!(" with {} stages per rank", of("stages_per_rank"));
    }
    text += &format!(", microbatches of {}, recompute {}", of("microbatch_size"), of("recompute"));
    if of("sequence_parallel") == "true" {
        text += ", sequence parallel";
    }
    text
}

/// The form of ZeRO, with when gradients are reduced where that is a choice.
fn parallelism_zero(parallelism: &Parallelism, number: &str) -> String {
    match parallelism.zero {
        spec::ZeroStage::Off | spec::ZeroStage::One => number.to_string(),
        spec::ZeroStage::Two { reduce } | spec::ZeroStage::Three { reduce, .. } => match reduce {
            spec::GradientReduction::Step => format!("{number} reduced once a step"),
            spec::GradientReduction::Microbatch => format!("{number} reduced per microbatch"),
        },
    }
}

/// By how much the better layout is ahead, and on what the other spends more.
fn reason(better: &Found, worse: &Found) -> String {
    let more = |loss: Loss| worse.spent.on(loss) as i64 - better.spent.on(loss) as i64;
    let most = Loss::ALL.into_iter().max_by_key(|loss| more(*loss)).filter(|loss| more(*loss) > 0);
    match (worse.step_ns - better.step_ns, most) {
        (0, _) if worse.memory_bytes == better.memory_bytes => "the next takes as long and as much memory".into(),
        (0, _) => {
            let bytes = bytes((worse.memory_bytes - better.memory_bytes) as u64);
            format!("the next takes as long and needs {bytes} more")
        }
        (ahead, Some(loss)) => {
            format!("{} ahead of the next, which spends {} more on {loss}", seconds(ahead), seconds(more(loss) as u64))
        }
        (ahead, None) => {
            format!("{} ahead of the next, whose busiest rank has more of the model to compute", seconds(ahead))
        }
    }
}

fn text(answer: &Answer, question: &Question) -> String {
    let mut text = String::new();
    for (index, found) in answer.best.iter().enumerate() {
        let room = question.memory_bytes - found.memory_bytes as f64;
        text += &format!(
            "{}. {}, {} a rank of which {} are left: {}\n",
            index + 1,
            seconds(found.step_ns),
            bytes(question.memory_bytes as u64),
            bytes(room.max(0.0) as u64),
            layout(&found.parallelism)
        );
        if let Some(next) = answer.best.get(index + 1) {
            text += &format!("   {}\n", reason(found, next));
        }
    }
    let Counts { refused, over_memory, over_time, simulated, did_not_fit } = answer.counts;
    let row = |number: usize, what: &str| vec![grouped(number as u64), what.to_string()];
    text + "\nlayouts\n"
        + &aligned(&[
            row(refused, "refused by a rule"),
            row(over_memory, "excluded by the memory floor"),
            row(over_time, "excluded by the bound on time"),
            row(simulated, &format!("simulated, of which {} do not fit", grouped(did_not_fit as u64))),
        ])
}

#[derive(Serialize)]
struct JsonFound {
    step_s: f64,
    memory_bytes: usize,
    layout: BTreeMap<String, String>,
    losses_s: BTreeMap<String, f64>,
}

#[derive(Serialize)]
struct JsonAnswer {
    accelerators: usize,
    memory_bytes: f64,
    best: Vec<JsonFound>,
    refused: usize,
    excluded_by_memory: usize,
    excluded_by_time: usize,
    simulated: usize,
    did_not_fit: usize,
}

fn json(answer: &Answer, question: &Question) -> JsonAnswer {
    let found = |found: &Found| JsonFound {
        step_s: found.step_ns as f64 * 1e-9,
        memory_bytes: found.memory_bytes,
        layout: keys(&found.parallelism),
        losses_s: Loss::ALL.iter().map(|loss| (loss.to_string(), found.spent.on(*loss) as f64 * 1e-9)).collect(),
    };
    JsonAnswer {
        accelerators: question.accelerators,
        memory_bytes: question.memory_bytes,
        best: answer.best.iter().map(found).collect(),
        refused: answer.counts.refused,
        excluded_by_memory: answer.counts.over_memory,
        excluded_by_time: answer.counts.over_time,
        simulated: answer.counts.simulated,
        did_not_fit: answer.counts.did_not_fit,
    }
}
