//! The part of a training that a run does once, whatever its processes: files of its folder, signals, and the last
//! words.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use checkpoint::TensorWriter;
use config::{CollectivesChoice, unique_parameters};
use serde_json::json;
use sim::{Algorithms, Trace};
use train::{Ending, EvaluationReport, Start, StragglerWatch, describe_engine};

use crate::description::product_line;
use crate::description::run_lines::{describe, memory_line};
use crate::failure::Failure;
use crate::folder::run_folder::RunFolder;
use crate::gpus::kernels::KernelStart;
use crate::layout::unwatched_hosts::warning_of_process;
use crate::memory::{host, taken};
use crate::peer_memory::PeerMemory;
use crate::places::names::LOG;
use crate::places::output_file::OutputFile;
use crate::places::own_places;
use crate::process_group::engine::{available_cores, crowded, threads};
use crate::process_group::group::ProcessGroup;
use crate::records::communication::communication;
use crate::records::rates::{Capacity, Meter};
use crate::records::timeline;
use crate::records::unwritten::unwritten;
use crate::signals::exit_deadline::ExitDeadline;
use crate::signals::interrupt::Interrupt;
use crate::spec::Origin;
use crate::training::attempt::RunAttempt;
use crate::training::event_log::EventLog;
use crate::training::measured_trace::{Recorder, Recording};
use crate::training::missing::Missing;
use crate::training::progress::{EndResults, Progress};
use crate::training::session::{RunRequest, Session};
use crate::verdict::Verdict;
use crate::watch::{Event, Watchers};

/// Open ends of a run: all that it will write has its place before the first step.
pub struct OncePerRun<'a> {
    session: &'a Session<'a>,
    folder: &'a RunFolder,
    trace: Option<OutputFile>,
    /// Hears signals.
    pub interrupt: Interrupt,
    _exit_deadline: ExitDeadline,
    event_log: Arc<EventLog<'a>>,
    /// Takes the weights.
    pub weights: TensorWriter,
    /// Hears of every step.
    pub progress: Progress<'a>,
    watchers: Arc<Watchers>,
}

impl<'a> OncePerRun<'a> {
    /// Opens the files, listens to signals and describes the run.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn prepare(
        session: &'a Session<'a>,
        folder: &'a RunFolder,
        start: Start<'_>,
        attempt: &RunAttempt<'_>,
    ) -> Result<OncePerRun<'a>, Failure> {
        let Session { request: RunRequest { spec, observer }, verdict, text, .. } = *session;
        let config = &verdict.config;
        let trace = OutputFile::promised_if("--trace", spec.trace.as_deref(), &spec.run.inputs())?;
        own_places::check_outside(folder.path(), "--trace", trace.as_ref().and_then(OutputFile::file))?;
        let weights = folder.weights(&config.model)?;
        text.save_tokenizer(folder.path())?;
        let metrics = folder.metrics(start.steps())?;
        if start.checkpoint().is_none() {
            folder.forget_results()?;
            folder.store.clear()?;
        }
        folder.write_run_file(config)?;
        if let Origin::Weights(from) = &spec.origin {
            folder.record_start(&json!({ "from": from, "build": env!("CARGO_PKG_VERSION") }))?;
        }
        let watchers = Arc::new(Watchers::open(config, folder.path(), start.steps())?);
        let interrupt = session.signals.noted();
        let exit_deadline = attempt.exit_deadline(&interrupt)?;
        let steps = config.train.steps;
        observer.started(start.steps(), steps);
        let event_log = Arc::new(EventLog::new(observer, folder.log(start.steps())?));
        if let Some(warning) = warning_of_process(config.run.on_loss) {
            event_log.warn(&warning);
        }
        for note in folder.take_notes() {
            event_log.tell(&note);
        }
        if let Some(address) = watchers.address() {
            tell_metrics(address, &event_log);
        }
        if event_log.is_shown() {
            event_log.say(&description(session)?);
        }
        let kernels = KernelStart::of(config)?;
        let lines = kernels.lines();
        if !lines.is_empty() {
            event_log.say(&lines);
        }
        if let Some(warning) = kernels.warning() {
            event_log.warn(&warning);
        }
        let of_gpus = session.process_group.gpu_peak_flops(config, &verdict.setup)?;
        let capacity = Capacity::measure(config, threads(config), of_gpus);
        let meter = Meter::start(config, text.sequences_per_epoch(), capacity);
        let recording = match (&trace, session.process_group) {
            (Some(_), _) => Some(Recording::EveryStep),
            (None, ProcessGroup::Alone) => Some(Recording::Sampled { steps }),
            // Times of other processes are gathered for a trace only.
            (None, ProcessGroup::Several(_)) => None,
        };
        let recorder = recording.map(|recording| Recorder::new(config.run.ranks, recording));
        let (often, files) = ((steps, config.run.log_every), (metrics, Arc::clone(&event_log)));
        let progress = Progress::new(often, observer, meter, interrupt.clone(), files).with_recorder(recorder);
        let turns = session.process_group.turns(config, &verdict.setup)?;
        let progress = progress.with_stragglers(StragglerWatch::new(&verdict.setup, turns));
        let progress = progress.with_watchers(Arc::clone(&watchers));
        watchers.turn(Event::Started, &format!("training from step {} to {steps}", start.steps() + 1));
        Ok(OncePerRun {
            session,
            folder,
            trace,
            interrupt,
            _exit_deadline: exit_deadline,
            event_log,
            weights,
            progress,
            watchers,
        })
    }

    /// Says something that was found after the run was described.
    pub fn tell(&self, text: &str) {
        self.event_log.tell(text);
    }

    /// Finishes the files, and reports the ends of the ranks.
    ///
    /// # Errors
    /// The failure of a rank, a file that cannot be finished, or a signal.
    pub fn conclude(self, ending: Result<Ending, Failure>, attempt: &RunAttempt<'_>) -> Result<(), Failure> {
        let (watchers, event_log) = (Arc::clone(&self.watchers), Arc::clone(&self.event_log));
        attempt.reached(watchers.last_step());
        let concluded = self.concluded(ending);
        match &concluded {
            // It has said so before its last words.
            Ok(()) => {}
            Err(stopped @ Failure::Interrupted { .. }) => {
                event_log.log(&format!("{stopped}\n"));
                watchers.turn(Event::Stopped, &stopped.to_string());
            }
            // Where the run cannot return, its end is reported later.
            Err(Failure::RollBack { step, reason, .. }) => {
                watchers.event(Event::Anomaly, *step, &format!("{reason}; the run returns to its newest checkpoint"));
            }
            Err(failure) => {
                event_log.log(&format!("{failure}\n"));
                watchers.turn(Event::Failed, &failure.to_string());
            }
        }
        concluded
    }

    fn concluded(self, ending: Result<Ending, Failure>) -> Result<(), Failure> {
        let OncePerRun { session, folder, trace, interrupt, _exit_deadline, event_log, weights, progress, watchers } =
            self;
        let verdict = session.verdict;
        let steps = verdict.config.train.steps;
        // All files are finished, also where one of them fails.
        let (told, kept) = (progress.finish(), ending.is_ok().then(|| weights.finish()));
        let ending = ending?;
        let EndResults { failure, evaluation, not_saved, recorder } = told;
        let of_step = keep_step(recorder, session, trace.as_ref(), folder);
        if let Ok(Some(step)) = &of_step
            && event_log.is_shown()
        {
            event_log.say(&communication(step, verdict.config.parallelism.degrees));
        }
        let not_kept = kept.and_then(Result::err);
        let missing = Missing {
            weights: not_kept.map(|error| error.to_string()),
            checkpoint: not_saved,
            records: failure.or(of_step.err()).map(|failure| failure.to_string()),
            log: event_log.take_failure().map(|error| unwritten(&folder.path().join(LOG), &error)),
        };
        missing.check(ending, steps, folder.path())?;
        if let Ending::Finished = ending {
            // All is written: what follows is for the reader, and no failure of it is one of the run.
            watchers.turn(Event::Finished, "all steps are done");
        }
        if event_log.is_shown()
            && let Err(failure) = tell_end(session, evaluation.as_ref(), folder, &event_log)
        {
            event_log.warn(&format!("warning: the results cannot be shown: {failure}\n"));
        }
        match (ending, interrupt.signal()) {
            (Ending::Stopped { steps: done }, Some(signal)) => Err(Failure::Interrupted {
                signal,
                told: format!(
                    "ended by {signal} after step {done} of {steps}; `pleach train --resume {}` resumes from there",
                    folder.path().display()
                ),
            }),
            // A request to stop that no signal and no file explains.
            (Ending::Stopped { steps: done }, None) => Err(Failure::Work(format!(
                "the run was stopped after step {done} of {steps} without a cause that is known; `pleach train --resume {}` \
                 resumes from there",
                folder.path().display()
            ))),
            (Ending::Finished, _) => {
                if event_log.has_screen() {
                    tell_sample(session, &interrupt, &event_log);
                }
                Ok(())
            }
        }
    }
}

/// Tells where the numbers of the run are, and warns of an address that other hosts may reach.
fn tell_metrics(address: SocketAddr, event_log: &EventLog<'_>) {
    event_log.say(&format!("metrics for Prometheus: http://{address}/metrics\n"));
    if !address.ip().is_loopback() {
        event_log.warn(&format!(
            "warning: run.metrics_address: every client that reaches {address} can read the numbers of the run; a port alone, such as \
             \"{}\", is local\n",
            address.port()
        ));
    }
}

/// Writes the times of the last recorded step into the folder of the run, and into `file` as a Chrome trace, if there
/// is one; returns the trace where it was asked for.
fn keep_step(
    recorder: Option<Recorder>,
    session: &Session<'_>,
    file: Option<&OutputFile>,
    folder: &RunFolder,
) -> Result<Option<Trace>, Failure> {
    let setup = &session.verdict.setup;
    match (recorder.and_then(|recorder| recorder.last_step(setup)), file) {
        (Some(step), file) => {
            folder.write_timeline(&timeline::measured(&step.trace, &setup.mesh, step.number))?;
            file.map_or(Ok(()), |file| step.write(file, setup, algorithms(session)?))?;
            Ok(file.map(|_| step.trace))
        }
        (None, None) => Ok(None),
        (None, Some(file)) => Err(Failure::Work(format!("{}: no step was measured", file.path().display()))),
    }
}

/// The collectives of a run.
fn algorithms(session: &Session<'_>) -> Result<Algorithms<'static>, Failure> {
    let Session { verdict: Verdict { config, setup, .. }, process_group, .. } = session;
    match config.run.collectives {
        CollectivesChoice::Native => Ok(Algorithms::Unknown),
        CollectivesChoice::Own => {
            let hosts = process_group.memory(config, setup)?.len().max(1);
            let per_host = setup.mesh.world_size().div_ceil(hosts);
            Ok(Algorithms::Own { per_host, order: config.run.placement })
        }
    }
}

/// The results of the run. Memory is that of this process.
fn tell_end(
    session: &Session<'_>,
    measured: Option<&EvaluationReport>,
    folder: &RunFolder,
    event_log: &EventLog<'_>,
) -> Result<(), Failure> {
    let Session { verdict: Verdict { config, setup, .. }, text, process_group, .. } = session;
    let arenas = taken::arenas_bytes(setup, &process_group.ranks_of(config, setup)?);
    let of = match process_group {
        ProcessGroup::Alone => "",
        ProcessGroup::Several(_) => "process 0: ",
    };
    let memory = taken::describe(of, arenas, taken::resident_peak_bytes());
    event_log.say(&format!("\n{}written {}\n{memory}", text.comparison(measured)?, folder.contents()));
    Ok(())
}

/// Parameters of a model that writes a sample in a moment, on one core.
const SAMPLED_PARAMETERS: u64 = 50_000_000;

/// The beginning of a sample where no line is held out.
const WORD: &str = "The";

/// Shows what the model writes. The run is done; if this fails, nothing is lost.
fn tell_sample(session: &Session<'_>, interrupt: &Interrupt, event_log: &EventLog<'_>) {
    let Session { request, verdict: Verdict { config, .. }, text, .. } = session;
    // A run that fills blanks does not continue texts, and an answer begins after the template's words.
    let continues_texts = config.data.blanks.is_none() && config.data.chat.is_none();
    if unique_parameters(&config.model) > SAMPLED_PARAMETERS || !continues_texts {
        return;
    }
    let folder = &config.run.folder;
    let sampled = text.beginning().and_then(|beginning| {
        let (of, beginning) = match beginning {
            Some(beginning) => ("the beginning of a held-out line".into(), beginning),
            None => (format!("the word {WORD:?}"), WORD.into()),
        };
        event_log.say(&format!("\nsample  generated from {of}:\n\n"));
        let sample = AssertUnwindSafe(|| request.observer.sample(folder, &beginning, interrupt));
        catch_unwind(sample).unwrap_or_else(|_| Err(Failure::Work("its thread panicked".into())))
    });
    if let Err(failure) = sampled {
        event_log.say(&format!("no sample: {failure}\n"));
    }
}

/// The description of a run before its first step: model, layout, products, memory, devices and text.
fn description(session: &Session<'_>) -> Result<String, Failure> {
    let Session { verdict, text, .. } = *session;
    let config = &verdict.config;
    let engine = describe_engine(config.run.device, config.run.threads_per_rank);
    let products = product_line::line(config.train.precision, &engine);
    let memory = memory_line(verdict)
        + &host::line(&session.process_group.memory(config, &verdict.setup)?)
        + &session.memory.map_or(String::new(), PeerMemory::line);
    let device = session.process_group.device_lines(config, &verdict.setup)?;
    let mpi = session.process_group.mpi_line();
    let crowded = crowded(config, session.process_group.ranks_of(config, &verdict.setup)?.len(), available_cores());
    let text = text.description();
    Ok(format!("{}{products}{memory}{device}{mpi}{crowded}{text}\n", describe(config)))
}
