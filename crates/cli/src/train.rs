//! `pleach train`: from arguments to a finished run.

use std::sync::mpsc::channel;
use std::time::Duration;

use comm::Timeouts;
use data::{Batches, Order};
use spec::RunConfig;
use train::{Ending, Engine, Observer, Ports, Setup, ThreadEngine, TokenSource};

use crate::arguments::TrainArguments;
use crate::check::describe;
use crate::failure::Failure;
use crate::figures::grouped;
use crate::progress::{Progress, Style};
use crate::run_folder::RunFolder;
use crate::watchdog::{GRACE, watch};
use crate::{input, memory};

/// Trains as the arguments say. Steps go to the standard output, everything else to the standard error.
///
/// # Errors
/// Input that cannot be used, or the failure of a rank.
pub fn train(arguments: &TrainArguments) -> Result<(), Failure> {
    let config = input::load(&arguments.run)?;
    let batches = batches(&config)?;
    let folder = RunFolder::create(&config)?;
    let style = style(arguments);
    if style != Style::Quiet {
        let text = grouped(batches.corpus().len() as u64);
        let epoch = grouped(batches.num_windows());
        eprint!("{}text    {text} tokens, {epoch} sequences per epoch\n\n", describe(&config));
    }
    let terminal = Box::new(std::io::stdout());
    let progress = Progress::new(style, config.train.steps, terminal, folder.metrics()?);
    let setup = Setup::new(config.model.clone(), config.parallelism.clone(), config.train.clone())
        .map_err(|error| Failure::Work(error.to_string()))?;
    let ending = launch(&config, &setup, &batches, &progress)?;
    progress.finish().map_err(|reason| Failure::Work(format!("the metrics cannot be written: {reason}")))?;
    if style != Style::Quiet {
        if let Ending::Stopped { steps } = ending {
            eprintln!("stopped after step {steps}");
        }
        eprintln!("\n{}", memory::describe(&setup, memory::resident_peak_bytes()));
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

fn batches(config: &RunConfig) -> Result<Batches, Failure> {
    let text = input::text(config)?.train;
    let order = Order::Shuffled { seed: config.train.seed };
    Batches::new(text, "training", &config.train, config.model.vocabulary, order)
        .map_err(|error| Failure::Input(error.to_string()))
}

/// Runs on ranks that are threads of this process. Where the run fails and a rank does not come back, the process ends without it.
fn launch(
    config: &RunConfig,
    setup: &Setup,
    tokens: &dyn TokenSource,
    observer: &dyn Observer,
) -> Result<Ending, Failure> {
    let timeouts = Timeouts { wait: Duration::from_secs_f32(config.run.timeout_seconds) };
    let engine = ThreadEngine::new(setup.mesh, timeouts);
    let ports = Ports::new(tokens, observer);
    std::thread::scope(|scope| {
        let (running, watched) = channel();
        let failure = || engine.failure().map(|(_, told)| told);
        scope.spawn(move || {
            if let Some(told) = watch(&watched, failure, GRACE) {
                eprintln!("{told}");
                std::process::exit(Failure::WORK);
            }
        });
        let result = train::run(setup, &engine, ports);
        drop(running);
        result.map_err(|error| Failure::Work(error.to_string()))
    })
}
