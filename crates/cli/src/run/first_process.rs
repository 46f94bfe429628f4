//! The ranks of process 0, which commits checkpoints and gathers weights: of all ranks, where there is one process.

use std::sync::atomic::{AtomicBool, Ordering};

use checkpoint::Committer;
use train::{
    Ending, EvaluationReport, Observer, Ports, SaveReport, Saving, Start, StepReport, TensorSink, Wish, Worker,
};

use crate::arguments::TrainArguments;
use crate::failure::Failure;
use crate::processes::company::{Company, Several};
use crate::processes::delivery::{self, Destinations};
use crate::run::interrupt::Interrupt;
use crate::run::once_per_run::OncePerRun;
use crate::run::process_ranks::ProcessRanks;
use crate::run::run_folder::RunFolder;
use crate::run::train::Session;

/// Runs from `start` to the end, and leaves in `folder` what there is to leave.
///
/// # Errors
/// The failure of a rank, a file that cannot be written, or a signal.
pub fn run(session: &Session, folder: &RunFolder, arguments: &TrainArguments, start: Start<'_>) -> Result<(), Failure> {
    let once =
        session.company.once("the files of the run", || OncePerRun::prepare(session, folder, arguments, start))?;
    let Some(once) = once else { return Ok(()) };
    let ending = match &session.company {
        Company::Alone => {
            commit_with(session, &Committer::new(&folder.store, 1), (&once.progress, &once.weights), start)
        }
        Company::Several(several) => with_others(session, folder, several, &once, start),
    };
    once.conclude(ending)
}

/// The ranks of this process, while a thread receives from the other processes.
fn with_others(
    session: &Session,
    folder: &RunFolder,
    several: &Several,
    once: &OncePerRun<'_>,
    start: Start<'_>,
) -> Result<Ending, Failure> {
    let observer = Heard { progress: &once.progress, several, interrupt: &once.interrupt };
    let committer = Committer::new(&folder.store, several.processes());
    let to = Destinations {
        model: &session.verdict.config.model,
        weights: &once.weights,
        pieces: &committer,
        observer: &observer,
    };
    let has_failed = AtomicBool::new(false);
    let others = several.processes() - 1;
    std::thread::scope(|scope| {
        let receiving =
            scope.spawn(|| delivery::receive(&several.control, others, to, || has_failed.load(Ordering::Acquire)));
        let ending = commit_with(session, &committer, (&observer, &once.weights), start);
        has_failed.store(ending.is_err(), Ordering::Release);
        let received =
            receiving.join().unwrap_or_else(|_| Err(Failure::Work("the thread that gathers weights ended".into())));
        ending.and_then(|ending| received.map(|()| ending))
    })
}

/// The ranks of this process, whose checkpoints `committer` commits.
fn commit_with(
    session: &Session,
    committer: &Committer<'_>,
    (observer, weights): (&dyn Observer, &dyn TensorSink),
    start: Start<'_>,
) -> Result<Ending, Failure> {
    let Session { verdict, text, company } = session;
    let (run, data_xxh3) = (verdict.config.to_toml(), Some(text.hash()));
    let every = verdict.config.run.save_every;
    let saving = Some(Saving { every, run: &run, data_xxh3, ..Saving::with(committer) });
    let (weights, evaluation) = (Some(weights), text.evaluation());
    let ports = Ports { start, saving, weights, evaluation, ..Ports::new(text.training(), observer) };
    ProcessRanks::of_run(company, &verdict.config, &verdict.setup)?.train_watched(ports)
}

/// The observer of a run whose signals may reach any process.
struct Heard<'a> {
    progress: &'a dyn Observer,
    several: &'a Several,
    interrupt: &'a Interrupt,
}

impl Observer for Heard<'_> {
    fn step(&self, report: &StepReport) -> Wish {
        self.progress.step(report)
    }

    fn wish(&self) -> Wish {
        if let Some(wish) = self.several.control.stop_wish() {
            self.interrupt.note(wish.signal);
        }
        self.progress.wish()
    }

    fn evaluation(&self, report: &EvaluationReport) {
        self.progress.evaluation(report);
    }

    fn saved(&self, report: SaveReport) {
        self.progress.saved(report);
    }

    fn instruction(&self, worker: &Worker<'_>) -> Result<(), device::DeviceError> {
        self.progress.instruction(worker)
    }
}
