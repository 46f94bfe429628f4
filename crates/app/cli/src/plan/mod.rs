//! `pleach plan`: the fastest layouts of a run on a cluster, and how they were found.

pub mod json;
pub mod published_runs;
pub mod text;

use std::collections::BTreeMap;

use cluster::Software;
use config::{Parallelism, RunConfig};
use plan::search::{MEMORY_MARGIN, Question, Remedies, keys, search, search_up_to, values};
use run::failure::Failure;
use run::places::output_file::OutputFile;

use crate::arguments::cluster::{PlanArguments, Searched};
use crate::arguments::format::Format;
use crate::cluster::gpus;
use crate::cluster::profile::{expert_load, of_run};
use crate::screen::narrow::wrapped;
use crate::screen::output::print;
use crate::screen::patience::shown_while;
use crate::screen::terminal;

/// Searches, prints the best layouts with what makes each better than the next, and writes the best where that was
/// asked for.
///
/// # Errors
/// A run or a profile that cannot be used, and a run that fits nowhere; as JSON it is printed as well.
pub fn plan(arguments: &PlanArguments) -> Result<(), Failure> {
    let run = arguments.run.run_file();
    let inputs = [run.inputs(), arguments.cluster.inputs()].concat();
    let file = OutputFile::promised_if("--write", arguments.write.as_deref(), &inputs)?;
    let config = run.load_any_layout()?;
    if config.model.lora.is_some() {
        // Its bounds count gradients and moments of every parameter.
        let reason = "model.lora: layouts of adapters are not searched; use `pleach simulate` with a layout";
        return Err(Failure::Input(reason.into()));
    }
    let (cluster, software) = of_run(&run, &arguments.cluster, &config)?;
    let device = gpus::predicted(&config, &cluster, arguments.gpus)?;
    let memory_bytes = arguments.max_memory.map_or(cluster.accelerator.memory_bytes(), |gigabytes| gigabytes * 1e9);
    let fixed = fixed(&arguments.fix, &config, software.as_ref(), arguments.gpus)?;
    let question = Question {
        config: &config,
        cluster: &cluster,
        software: software.as_ref(),
        expert_load: expert_load(&arguments.cluster, &config)?,
        accelerators: arguments.gpus,
        fixed: &fixed,
        memory_bytes,
        margin_bytes: memory_bytes * margin(arguments),
        top: usize::from(arguments.top),
    };
    let failed = |error: train::SetupError| Failure::Work(error.to_string());
    let find = || match arguments.searched() {
        Searched::Exactly => search(&question),
        Searched::UpTo => search_up_to(&question),
    };
    let answer = shown_while(|elapsed| format!("searching: {} s so far", elapsed.as_secs()), find).map_err(failed)?;
    let remedies = match answer.best.is_empty() && answer.closer.is_empty() {
        true => Some(remedies(&question).map_err(failed)?),
        false => None,
    };
    if let (Some(file), Some(best)) = (file, answer.best.first().or(answer.closer.first())) {
        file.write(planned(&config, &best.parallelism).to_toml())?;
    }
    match (arguments.format(), &remedies) {
        (Format::Text, None) => {
            let text = text::found(&answer, &question).map_err(failed)? + &device;
            print(&wrapped(&text, terminal::columns()))?;
        }
        (Format::Text, Some(_)) => {}
        (Format::Json, _) => print(&json::document(&answer, &question, remedies.as_ref())?)?,
    }
    match remedies {
        None => Ok(()),
        Some(remedies) => Err(Failure::Input(text::nowhere(&answer, &question, &remedies, arguments.searched()))),
    }
}

/// Changes with which a run fits that fits nowhere.
fn remedies(question: &Question) -> Result<Remedies, train::SetupError> {
    shown_while(|elapsed| format!("searching for remedies: {} s so far", elapsed.as_secs()), || question.remedies())
}

/// The share of the memory that a layout leaves free: that of `--margin`; with a limit of `--max-memory`, which says
/// what a rank may use, nothing.
fn margin(arguments: &PlanArguments) -> f64 {
    match (arguments.margin, arguments.max_memory) {
        (Some(percent), _) => percent / 100.0,
        (None, None) => MEMORY_MARGIN,
        (None, Some(_)) => 0.0,
    }
}

/// The run with a layout.
fn planned(config: &RunConfig, parallelism: &Parallelism) -> RunConfig {
    let mut config = config.clone();
    config.run.ranks = parallelism.world_size();
    config.parallelism = parallelism.clone();
    config
}

/// The keys and values of `--fix`, each of which some layout on `accelerators` has.
fn fixed(
    given: &[String],
    config: &RunConfig,
    software: Option<&Software>,
    accelerators: usize,
) -> Result<BTreeMap<String, String>, Failure> {
    let known: Vec<String> = keys(&config.parallelism).into_keys().collect();
    let mut fixed = BTreeMap::new();
    for text in given {
        let pair = text.split_once('=').filter(|(key, _)| known.iter().any(|known| known == key));
        let Some((key, value)) = pair else {
            return Err(Failure::Input(format!(
                "--fix {text} fixes nothing; write KEY=VALUE with {}",
                known.join(", ")
            )));
        };
        let tried = values(config, software, accelerators, key).unwrap_or_default();
        if !tried.iter().any(|tried| tried == value) {
            return Err(Failure::Input(format!(
                "--fix {key} = {value} must be one of the values that plan tries on {accelerators} accelerators{}; use {}",
                software.map_or(String::new(), |software| format!(" for {}", software.name)),
                tried.join(", ")
            )));
        }
        fixed.insert(key.to_string(), value.to_string());
    }
    Ok(fixed)
}
