//! `pleach train`: from arguments to a finished run.

use std::sync::mpsc::channel;
use std::time::Duration;

use comm::Timeouts;
use spec::unique_parameters;
use train::{Ending, Engine, Observer, Ports, TensorSink, ThreadEngine, weights_writer};

use crate::arguments::TrainArguments;
use crate::check::{describe, memory_line};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
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
    let folder = RunFolder::create(config)?;
    text.save_tokenizer(&config.run.folder)?;
    let metrics = folder.metrics()?;
    let weights =
        weights_writer(&config.model, &folder.weights()).map_err(|error| Failure::Input(error.to_string()))?;
    let interrupt = Interrupt::listen().map_err(|error| Failure::Work(format!("Ctrl-C cannot be handled: {error}")))?;
    let steps = config.train.steps;
    let screen = screen(arguments, steps);
    let tells_more = screen.tells_more();
    if tells_more {
        eprintln!("{}{}{}", describe(config), memory_line(&verdict), text.description());
    }
    let meter = Meter::start(config, Capacity::measure(config.run.ranks));
    let progress = Progress::new(steps, screen, meter, interrupt.clone(), metrics);
    let ending = launch(&verdict, &text, &progress, &weights);
    // Whatever one of the files came to, the other is finished.
    let (measured, kept) = (progress.finish(), ending.is_ok().then(|| weights.finish()));
    let ending = ending?;
    kept.transpose().map_err(|error| Failure::Work(error.to_string()))?;
    let measured = measured.map_err(|reason| Failure::Work(format!("the metrics cannot be written: {reason}")))?;
    if tells_more {
        let memory = memory::describe(memory::arenas_bytes(&verdict.setup), memory::resident_peak_bytes());
        eprint!("\n{}written {}\n{memory}", text.comparison(measured.as_ref())?, folder.contents());
        if ending == Ending::Finished {
            tell_sample(&verdict, &text);
        }
    }
    match ending {
        Ending::Stopped { steps: done } if interrupt.is_pressed() => Err(Failure::Interrupted(format!(
            "interrupted after step {done} of {steps}; the weights are those of that step"
        ))),
        Ending::Stopped { steps: done } => {
            eprintln!("stopped after step {done} of {steps}: nobody reads the lines any more");
            Ok(())
        }
        Ending::Finished => Ok(()),
    }
}

/// Parameters of a model that writes a sample in a moment, on one core.
const SAMPLED_PARAMETERS: u64 = 50_000_000;

/// Shows what the model writes. The run is done; if this fails, nothing is lost.
fn tell_sample(verdict: &Verdict, text: &Text) {
    if unique_parameters(&verdict.config.model) > SAMPLED_PARAMETERS {
        return;
    }
    let folder = &verdict.config.run.folder;
    eprintln!("\nsample  what the model makes of the beginning of a held-out line:\n");
    if let Err(failure) = text.beginning().and_then(|beginning| generate::sample(folder, &beginning)) {
        eprintln!("no sample: {failure}");
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
    let timeouts = Timeouts { wait: Duration::from_secs_f32(verdict.config.run.timeout_seconds) };
    let engine = ThreadEngine::new(setup.mesh, timeouts);
    let ports =
        Ports { weights: Some(weights), evaluation: text.evaluation(), ..Ports::new(text.training(), observer) };
    std::thread::scope(|scope| {
        let (running, watched) = channel();
        let failure = || engine.failure().map(|(_, told)| told);
        scope.spawn(move || {
            if let Some(told) = watch(&watched, failure, GRACE) {
                eprintln!("{told}");
                std::process::exit(Failure::WORK.into());
            }
        });
        let result = train::run(setup, &engine, ports);
        drop(running);
        result.map_err(|error| Failure::Work(error.to_string()))
    })
}
