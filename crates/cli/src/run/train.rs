//! `pleach train`: from arguments to a finished run.

use std::sync::mpsc::channel;

use config::unique_parameters;
use cpu::instruction_set::InstructionSet;
use serde_json::json;
use train::{Ending, Engine, EvaluationReport, Observer, Ports, Saving, Start, TensorSink};

use crate::arguments::TrainArguments;
use crate::check::products;
use crate::check::verdict::{Planned, Verdict};
use crate::check::{describe, memory_line};
use crate::failure::Failure;
use crate::infer::generate;
use crate::input;
use crate::input::run_source::RunSource;
use crate::input::text::Text;
use crate::memory::taken;
use crate::run::engine::{engine, threads};
use crate::run::grace::Grace;
use crate::run::interrupt::Interrupt;
use crate::run::measured_trace::Recorder;
use crate::run::resume::resume;
use crate::run::run_folder::{RunFolder, WayOut, check_apart};
use crate::run::watchdog::{GRACE, watch};
use crate::screen::output::tell;
use crate::screen::output_file::OutputFile;
use crate::screen::progress::{Progress, Screen, Told};
use crate::screen::rates::{Capacity, Meter};

/// Trains as the arguments say. Steps go to the standard output, everything else to the standard error.
///
/// # Errors
/// Input that cannot be used, the failure of a rank, or a signal.
pub fn train(arguments: &TrainArguments) -> Result<(), Failure> {
    if let Some(folder) = &arguments.resume {
        return resume(arguments, folder);
    }
    let Some(from) = &arguments.from else {
        return Session::new(input::judged(&arguments.run, Planned::EveryBatch)?)?.run(arguments, Start::Seed);
    };
    let source = RunSource::open(from, &[], &[])?;
    let verdict = source.judged(&arguments.run)?;
    check_apart(&verdict.config.run, from)?;
    let session = Session::new(verdict)?;
    source.copy_tokenizer(&session.verdict.config.data.tokenizer, session.folder.path())?;
    session.run(arguments, Start::Weights(&source.weights))
}

/// A run that is about to start.
pub struct Session {
    /// The run.
    pub verdict: Verdict,
    /// What it learns from.
    pub text: Text,
    /// Where it writes.
    pub folder: RunFolder,
}

impl Session {
    /// A run that begins, in a folder that it may have.
    fn new(verdict: Verdict) -> Result<Session, Failure> {
        let text = Text::read(&verdict.config)?;
        let folder = RunFolder::open(&verdict.config.run, WayOut::OtherFolder)?;
        folder.check_done()?;
        Ok(Session { verdict, text, folder })
    }

    /// Runs from `start` to the end, and leaves in the folder what there is to leave.
    ///
    /// # Errors
    /// As [`train`].
    pub fn run(&self, arguments: &TrainArguments, start: Start<'_>) -> Result<(), Failure> {
        let Session { verdict, text, folder } = self;
        let config = &verdict.config;
        // All that the run will write has its place before the first step.
        let trace = OutputFile::promised_if("--trace", arguments.trace.as_deref())?;
        let weights = folder.weights(&config.model)?;
        text.save_tokenizer(folder.path())?;
        let metrics = folder.metrics(start.steps())?;
        folder.write_run_file(config)?;
        if start.checkpoint().is_none() {
            folder.forget_resumes()?;
            folder.store.clear()?;
        }
        if let Some(from) = &arguments.from {
            folder.record_start(&json!({ "from": from, "build": env!("CARGO_PKG_VERSION") }))?;
        }
        let interrupt = Interrupt::listen()?;
        let _grace = Grace::begin(config.run.grace_seconds, &interrupt);
        let steps = config.train.steps;
        let screen = screen(arguments, start.steps(), steps);
        let tells_more = screen.tells_more();
        if tells_more {
            let products = products::line(config.train.precision, &InstructionSet::available());
            tell(&format!("{}{products}{}{}\n", describe(config), memory_line(verdict), text.description()));
        }
        let meter = Meter::start(config, Capacity::measure(threads(config)));
        let recorder = trace.as_ref().map(|_| Recorder::new(config.run.ranks));
        let progress = Progress::new(steps, screen, meter, interrupt.clone(), metrics).with_recorder(recorder);
        let ending = self.launch(&progress, &weights, start);
        // Whatever one of the files came to, the other is finished.
        let (told, kept) = (progress.finish(), ending.is_ok().then(|| weights.finish()));
        let ending = ending?;
        kept.transpose().map_err(|error| Failure::Work(error.to_string()))?;
        let Told { evaluation, not_saved, recorder } =
            told.map_err(|failure| after(&failure.to_string(), ending, steps, folder))?;
        if let (Some(recorder), Some(file)) = (recorder, &trace) {
            let written = recorder.write(&verdict.setup, file);
            written.map_err(|failure| after(&failure.to_string(), ending, steps, folder))?;
        }
        if let Some(reason) = not_saved {
            return Err(after(&format!("the last checkpoint is missing: {reason}"), ending, steps, folder));
        }
        if tells_more {
            tell_end(verdict, text, evaluation.as_ref(), folder)?;
        }
        match (ending, interrupt.signal()) {
            (Ending::Stopped { steps: done }, Some(signal)) => Err(Failure::Interrupted {
                signal,
                told: format!(
                    "ended by {signal} after step {done} of {steps}; `pleach train --resume {}` resumes from there",
                    folder.path().display()
                ),
            }),
            (Ending::Stopped { steps: done }, None) => {
                tell(&format!("stopped after step {done} of {steps}: nobody reads the lines any more\n"));
                Ok(())
            }
            (Ending::Finished, _) => {
                if tells_more {
                    tell_sample(verdict, text, &interrupt);
                }
                Ok(())
            }
        }
    }

    /// Runs on ranks that are threads of this process. Where the run fails and a rank does not come back, the process ends without it.
    fn launch(&self, observer: &dyn Observer, weights: &dyn TensorSink, start: Start<'_>) -> Result<Ending, Failure> {
        let Session { verdict: Verdict { setup, config, .. }, text, folder } = self;
        let engine = engine(config, setup);
        let run = config.to_toml();
        let (every, data_xxh3) = (config.run.save_every, Some(text.hash()));
        let saving = Some(Saving { store: &folder.store, every, run: &run, data_xxh3 });
        let (weights, evaluation) = (Some(weights), text.evaluation());
        let ports = Ports { start, saving, weights, evaluation, ..Ports::new(text.training(), observer) };
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
}

/// `failure` of what a run tells, with what became of the run.
fn after(failure: &str, ending: Ending, steps: u32, folder: &RunFolder) -> Failure {
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
    let memory = taken::describe(taken::arenas_bytes(&verdict.setup), taken::resident_peak_bytes());
    tell(&format!("\n{}written {}\n{memory}", text.comparison(measured)?, folder.contents()));
    Ok(())
}

/// Parameters of a model that writes a sample in a moment, on one core.
const SAMPLED_PARAMETERS: u64 = 50_000_000;

/// Shows what the model writes. The run is done; if this fails, nothing is lost.
fn tell_sample(verdict: &Verdict, text: &Text, interrupt: &Interrupt) {
    let config = &verdict.config;
    // A run that fills blanks does not continue texts.
    if unique_parameters(&config.model) > SAMPLED_PARAMETERS || config.data.blanks.is_some() {
        return;
    }
    let folder = &config.run.folder;
    tell("\nsample  what the model makes of the beginning of a held-out line:\n\n");
    if let Err(failure) = text.beginning().and_then(|beginning| generate::sample(folder, &beginning, interrupt)) {
        tell(&format!("no sample: {failure}\n"));
    }
}

fn screen(arguments: &TrainArguments, done: u32, steps: u32) -> Screen {
    match (arguments.quiet, arguments.json) {
        (true, _) => Screen::Quiet,
        (false, true) => Screen::Json(Box::new(std::io::stdout())),
        (false, false) => Screen::of_standard_output(done, steps),
    }
}
