//! `pleach train`: from arguments to a finished run.

use std::sync::mpsc::channel;

use spec::unique_parameters;
use train::{Ending, Engine, EvaluationReport, Observer, Ports, TensorSink};

use crate::arguments::TrainArguments;
use crate::check::{describe, memory_line};
use crate::engine::{engine, threads};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::tell;
use crate::progress::{Progress, Screen};
use crate::rates::{Capacity, Meter};
use crate::run_folder::RunFolder;
use crate::text::Text;
use crate::verdict::Verdict;
use crate::watchdog::{GRACE, watch};
use crate::{generate, input, memory};

/// Trains as the arguments say. Steps go to the standard output, everything else to the standard error.
///
/// # Errors
/// Input that cannot be used, the failure of a rank, or an interrupt.
pub fn train(arguments: &TrainArguments) -> Result<(), Failure> {
    let verdict = input::judged(&arguments.run)?;
    let config = &verdict.config;
    let text = Text::read(config)?;
    let folder = RunFolder::create(&config.run.folder)?;
    // All that the run will write has its place before the first step.
    let weights = folder.weights(&config.model)?;
    text.save_tokenizer(&config.run.folder)?;
    let metrics = folder.metrics()?;
    folder.write_run_file(config)?;
    let interrupt = Interrupt::listen()?;
    let steps = config.train.steps;
    let screen = screen(arguments, steps);
    let tells_more = screen.tells_more();
    if tells_more {
        tell(&format!("{}{}{}\n", describe(config), memory_line(&verdict), text.description()));
    }
    let meter = Meter::start(config, Capacity::measure(threads(config)));
    let progress = Progress::new(steps, screen, meter, interrupt.clone(), metrics);
    let ending = launch(&verdict, &text, &progress, &weights);
    // Whatever one of the files came to, the other is finished.
    let (measured, kept) = (progress.finish(), ending.is_ok().then(|| weights.finish()));
    let ending = ending?;
    kept.transpose().map_err(|error| Failure::Work(error.to_string()))?;
    let measured = measured.map_err(|failure| after(failure, ending, steps, &folder))?;
    if tells_more {
        tell_end(&verdict, &text, measured.as_ref(), &folder)?;
    }
    match ending {
        Ending::Stopped { steps: done } if interrupt.is_pressed() => Err(Failure::Interrupted(format!(
            "interrupted after step {done} of {steps}; the weights are those of that step"
        ))),
        Ending::Stopped { steps: done } => {
            tell(&format!("stopped after step {done} of {steps}: nobody reads the lines any more\n"));
            Ok(())
        }
        Ending::Finished => {
            if tells_more {
                tell_sample(&verdict, &text, &interrupt);
            }
            Ok(())
        }
    }
}

/// `failure` of what a run tells, with what became of the run.
fn after(failure: Failure, ending: Ending, steps: u32, folder: &RunFolder) -> Failure {
    let done = match ending {
        Ending::Stopped { steps: done } => format!("the run was stopped after step {done} of {steps}"),
        Ending::Finished => format!("the run did all of its {steps} steps"),
    };
    Failure::Work(format!("{failure}; {done}, and its weights are in {}", folder.path().display()))
}

/// What the run came to.
fn tell_end(
    verdict: &Verdict,
    text: &Text,
    measured: Option<&EvaluationReport>,
    folder: &RunFolder,
) -> Result<(), Failure> {
    let memory = memory::describe(memory::arenas_bytes(&verdict.setup), memory::resident_peak_bytes());
    tell(&format!("\n{}written {}\n{memory}", text.comparison(measured)?, folder.contents()));
    Ok(())
}

/// Parameters of a model that writes a sample in a moment, on one core.
const SAMPLED_PARAMETERS: u64 = 50_000_000;

/// Shows what the model writes. The run is done; if this fails, nothing is lost.
fn tell_sample(verdict: &Verdict, text: &Text, interrupt: &Interrupt) {
    if unique_parameters(&verdict.config.model) > SAMPLED_PARAMETERS {
        return;
    }
    let folder = &verdict.config.run.folder;
    tell("\nsample  what the model makes of the beginning of a held-out line:\n\n");
    if let Err(failure) = text.beginning().and_then(|beginning| generate::sample(folder, &beginning, interrupt)) {
        tell(&format!("no sample: {failure}\n"));
    }
}

fn screen(arguments: &TrainArguments, steps: u32) -> Screen {
    match (arguments.quiet, arguments.json) {
        (true, _) => Screen::Quiet,
        (false, true) => Screen::Json(Box::new(std::io::stdout())),
        (false, false) => Screen::of_standard_output(steps),
    }
}

/// Runs on ranks that are threads of this process. Where the run fails and a rank does not come back, the process ends without it.
fn launch(
    verdict: &Verdict,
    text: &Text,
    observer: &dyn Observer,
    weights: &dyn TensorSink,
) -> Result<Ending, Failure> {
    let setup = &verdict.setup;
    let engine = engine(&verdict.config, setup);
    let ports =
        Ports { weights: Some(weights), evaluation: text.evaluation(), ..Ports::new(text.training(), observer) };
    std::thread::scope(|scope| {
        let (running, watched) = channel();
        let failure = || engine.failure().map(|(_, told)| told);
        scope.spawn(move || {
            if let Some(told) = watch(&watched, failure, GRACE) {
                tell(&format!("{told}\n"));
                std::process::exit(Failure::WORK.into());
            }
        });
        let result = train::run(setup, &engine, ports);
        drop(running);
        result.map_err(|error| Failure::Work(error.to_string()))
    })
}
