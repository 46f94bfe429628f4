//! The ranks of process 0, which commits checkpoints and gathers weights: of all ranks, where there is one process.

use std::time::Duration;

use checkpoint::Committer;
use train::{
    Ending, EvaluationReport, ModelChoices, Observer, Ports, SampleReport, SaveReport, SavedIn, Saving, SavingPlace,
    Start, StepReport, TensorSink, Wish, WorkTimes, Worker,
};

use crate::arguments::TrainArguments;
use crate::failure::Failure;
use crate::folder::run_folder::RunFolder;
use crate::places::author::confirmed;
use crate::process_group::company::Company;
use crate::process_group::delivery::{self, Destinations, PieceDestination};
use crate::process_group::process_ranks::ProcessRanks;
use crate::process_group::several::{Part, Several};
use crate::run::attempt::{RunAttempt, train_in};
use crate::run::once_per_run::OncePerRun;
use crate::run::product_algorithms::{self, Decided};
use crate::run::progress::Progress;
use crate::run::roll_back::returning;
use crate::run::train::Session;
use crate::run::uploads::Uploads;
use crate::run::work_times;
use crate::signals::interrupt::Interrupt;
use crate::text::run_text::Text;
use crate::watch;

/// Runs from `start` to the end, and leaves in `folder` what there is to leave.
///
/// # Errors
/// The failure of a rank, a file that cannot be written, or a signal.
pub fn run(
    session: &Session<'_>,
    folder: &RunFolder,
    arguments: &TrainArguments,
    (start, uploads): (Start<'_>, Option<&Uploads>),
) -> Result<(), Failure> {
    let attempt = RunAttempt::begin(session)?;
    let run =
        |session: &Session<'_>, start: Start<'_>| run_attempt(session, (folder, uploads), arguments, start, &attempt);
    let ended = attempt.conclude(returning(session, Some(folder), start, run));
    if let Err(given_up @ Failure::RollBack { step, .. }) = &ended {
        // Until now only the anomaly was reported.
        folder.log_line(&given_up.to_string());
        watch::fail(&session.verdict.config, *step, &given_up.to_string());
    }
    match &ended {
        // The disk has the last state.
        Ok(()) | Err(Failure::Interrupted { .. }) => folder.forget_manifests().and(ended),
        Err(_) => ended,
    }
}

fn run_attempt(
    session: &Session<'_>,
    (folder, uploads): (&RunFolder, Option<&Uploads>),
    arguments: &TrainArguments,
    start: Start<'_>,
    attempt: &RunAttempt<'_>,
) -> Result<(), Failure> {
    let once =
        session.company.once("the files of the run", || OncePerRun::prepare(session, folder, arguments, start))?;
    let Part::First(once) = once else { return Ok(()) };
    let Decided { choices, notes } = product_algorithms::decide(session)?;
    notes.iter().for_each(|note| once.tell(note));
    let several = match session.company {
        Company::Alone => None,
        Company::Several(several) => Some(several),
    };
    let observer = Heard { progress: &once.progress, text: session.text, several, interrupt: &once.interrupt, uploads };
    let processes = several.map_or(1, Several::processes);
    let committer = Committer::new(&folder.store, processes);
    let memory = match (session.memory, several) {
        (Some(memory), Some(several)) => memory.attempt(several, start)?,
        (None, _) | (_, None) => None,
    };
    // Those of later steps are of another attempt, also where this one saves none.
    let is_open = memory.is_some() || folder.has_manifests();
    let manifests = is_open.then(|| folder.manifests(start.steps())).transpose()?;
    let in_memory = memory.as_ref().zip(manifests.as_ref());
    let in_memory = in_memory.map(|(memory, store)| memory.committer(store, processes));
    let places = Places {
        disk: &committer,
        memory: memory.as_ref().zip(in_memory.as_ref()).map(|(memory, collector)| memory.place(collector)),
    };
    let destination = |collector| PieceDestination { collector, observer: &observer };
    let to = Destinations {
        weights: Some(&once.weights),
        pieces: Some(destination(&committer)),
        memory_pieces: places.memory.map(|place| destination(place.collector)),
        ..Destinations::default()
    };
    let ending = delivery::receive_while(session.company, &session.verdict.config.model, to, || {
        let ending = commit_with(session, places, (&observer, &once.weights), (start, attempt), choices)?;
        match (several, once.progress.recorder()) {
            (Some(several), Some(recorder)) => recorder.gather(several).map(|()| ending),
            (None, _) | (_, None) => Ok(ending),
        }
    });
    once.conclude(ending, attempt)
}

/// Where checkpoints go.
#[derive(Clone, Copy)]
struct Places<'a> {
    disk: &'a Committer<'a>,
    memory: Option<SavingPlace<'a>>,
}

/// The ranks of this process, whose checkpoints go to `places`.
fn commit_with(
    session: &Session<'_>,
    places: Places<'_>,
    (observer, weights): (&dyn Observer, &dyn TensorSink),
    (start, attempt): (Start<'_>, &RunAttempt<'_>),
    choices: ModelChoices,
) -> Result<Ending, Failure> {
    let Session { verdict, text, company, .. } = session;
    let (run, data_xxh3) = (confirmed(&verdict.config).run_file, Some(text.hash()));
    let every = verdict.config.run.save_every;
    let disk = SavingPlace { every, ..SavingPlace::with(places.disk) };
    let saving = Some(Saving { disk, memory: places.memory, run: run.to_text(), data_xxh3 });
    let (weights, evaluation) = (Some(weights), text.evaluation());
    let validation = text.validation();
    let ports = Ports {
        start,
        saving,
        weights,
        evaluation,
        validation: &validation,
        samples: text.samples(),
        recheck: verdict.config.run.recheck,
        ..Ports::new(text.training(), observer)
    };
    let ranks = ProcessRanks::with_choices(company, &verdict.config, &verdict.setup, choices)?;
    train_in(&ranks, ports, attempt)
}

/// The observer of a run whose signals may reach any process.
struct Heard<'a> {
    progress: &'a Progress,
    text: &'a Text,
    several: Option<&'a Several>,
    interrupt: &'a Interrupt,
    uploads: Option<&'a Uploads>,
}

impl Heard<'_> {
    /// Tells what uploads have to say.
    fn tell_uploads(&self) {
        for message in self.uploads.map(Uploads::messages).unwrap_or_default() {
            self.progress.uploaded(&message);
        }
    }
}

impl Observer for Heard<'_> {
    fn rank_step(&self, times: WorkTimes) {
        self.progress.rank_step(times);
    }

    fn step(&self, report: &StepReport) -> Wish {
        if let Some(several) = self.several {
            while let Ok(Some((_, message))) = several.control.receive(work_times::TOPIC, Duration::ZERO) {
                work_times::received(&message).into_iter().for_each(|times| self.progress.rank_step(times));
            }
        }
        self.tell_uploads();
        self.progress.step(report)
    }

    fn wish(&self) -> Wish {
        if let Some(several) = self.several {
            several.note_signal(self.interrupt);
        }
        self.progress.wish()
    }

    fn evaluating(&self, share: f64, elapsed: Duration) {
        self.progress.evaluating(share, elapsed);
    }

    fn evaluation(&self, report: &EvaluationReport) {
        self.progress.evaluation(report);
    }

    fn validation(&self, name: &str, report: &EvaluationReport) {
        self.progress.validation(name, report);
    }

    fn sampled(&self, report: &SampleReport) {
        self.progress.sampled(report.step, self.text.sampled(report));
    }

    fn saved(&self, report: SaveReport) {
        let is_upload_due = report.place == SavedIn::Disk && report.finished.outcome.is_ok();
        self.progress.saved(report);
        if let Some(uploads) = self.uploads.filter(|_| is_upload_due) {
            uploads.ask();
        }
    }

    fn instruction(&self, worker: &Worker<'_>) -> Result<(), device::DeviceError> {
        self.progress.instruction(worker)
    }
}
