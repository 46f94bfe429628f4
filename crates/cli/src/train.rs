//! `pleach train`: from arguments to a finished run.

use std::time::Duration;

use comm::Timeouts;
use data::{Batches, Dataset, Order};
use spec::RunConfig;
use train::{Ending, Observer, Ports, TensorSink, ThreadEngine, TokenSource, weights_writer};

use crate::arguments::TrainArguments;
use crate::check::{describe, memory_line};
use crate::failure::Failure;
use crate::figures::grouped;
use crate::progress::{Progress, Style};
use crate::run_folder::RunFolder;
use crate::verdict::Verdict;
use crate::{input, memory};

/// Trains as the arguments say. Steps go to the standard output, everything else to the standard error.
///
/// # Errors
/// Input that cannot be used, or the failure of a rank.
pub fn train(arguments: &TrainArguments) -> Result<(), Failure> {
    let verdict = input::judged(&arguments.run)?;
    let config = &verdict.config;
    let dataset = input::text(config)?;
    let batches = batches(config, &dataset)?;
    let folder = RunFolder::create(config)?;
    dataset.tokenizer.save(&config.run.folder).map_err(|error| Failure::Input(error.to_string()))?;
    let weights =
        weights_writer(&config.model, &folder.weights()).map_err(|error| Failure::Input(error.to_string()))?;
    let style = style(arguments);
    if style != Style::Quiet {
        let text = grouped(batches.corpus().len() as u64);
        let epoch = grouped(batches.num_windows());
        let (run, memory) = (describe(config), memory_line(&verdict));
        eprint!("{run}{memory}text    {text} tokens, {epoch} sequences per epoch\n\n");
    }
    let terminal = Box::new(std::io::stdout());
    let progress = Progress::new(style, config.train.steps, terminal, folder.metrics()?);
    let ending = launch(&verdict, &batches, &progress, &weights)?;
    weights.finish().map_err(|error| Failure::Work(error.to_string()))?;
    progress.finish().map_err(|reason| Failure::Work(format!("the metrics cannot be written: {reason}")))?;
    if style != Style::Quiet {
        if let Ending::Stopped { steps } = ending {
            eprintln!("stopped after step {steps}");
        }
        eprintln!("\n{}", memory::describe(&verdict.setup, memory::resident_peak_bytes()));
    }
    Ok(())
}

fn style(arguments: &TrainArguments) -> Style {
    match (arguments.quiet, arguments.json) {
        (true, _) => Style::Quiet,
        (false, true) => Style::Json,
        (false, false) => Style::Plain,
    }
}

fn batches(config: &RunConfig, dataset: &Dataset) -> Result<Batches, Failure> {
    let order = Order::Shuffled { seed: config.train.seed };
    Batches::new(dataset.train.clone(), "training", &config.train, config.model.vocabulary, order)
        .map_err(|error| Failure::Input(error.to_string()))
}

/// Runs on ranks that are threads of this process.
fn launch(
    verdict: &Verdict,
    tokens: &dyn TokenSource,
    observer: &dyn Observer,
    weights: &dyn TensorSink,
) -> Result<Ending, Failure> {
    let setup = &verdict.setup;
    let timeouts = Timeouts { wait: Duration::from_secs_f32(verdict.config.run.timeout_seconds) };
    let engine = ThreadEngine::new(setup.mesh, timeouts);
    let ports = Ports { weights: Some(weights), ..Ports::new(tokens, observer) };
    train::run(setup, &engine, ports).map_err(|error| Failure::Work(error.to_string()))
}
