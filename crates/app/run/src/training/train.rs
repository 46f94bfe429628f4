//! The road of a run from its folder to its end, the same in every process: process 0 leaves what there is to leave,
//! all others send their part of it there.

use train::Start;

use crate::failure::Failure;
use crate::folder::run_folder::RunFolder;
use crate::peer_memory::{Beginning, PeerMemory};
use crate::places::own_places;
use crate::process_group::member::Part;
use crate::training::attempt::RunAttempt;
use crate::training::first_process::FirstProcess;
use crate::training::other_process::OtherProcess;
use crate::training::product_algorithms::{self, Decided};
use crate::training::ranks::Ranks;
use crate::training::roll_back::returning;
use crate::training::session::Session;
use crate::training::uploads::Uploads;
use crate::verdict::Verdict;
use crate::watch;

/// Runs from `start` to the end. Process 0 opens the folder with `open`, and leaves in it what there is to leave.
///
/// # Errors
/// A folder that cannot be used, the failure of a rank, a file that cannot be written, or a signal.
pub fn train(
    session: &Session<'_>,
    start: Start<'_>,
    open: impl FnOnce(&Verdict) -> Result<RunFolder, Failure>,
) -> Result<(), Failure> {
    let Verdict { config, setup, .. } = session.verdict;
    if !matches!(start, Start::Checkpoint(_)) {
        PeerMemory::check_hosts(session.process_group, config, Beginning::Fresh)?;
    }
    let part = session.process_group.once("the folder of the run", || {
        let spec = session.request.spec;
        own_places::check_outside(&config.run.folder, "--trace", spec.trace.as_deref())?;
        let folder = open(session.verdict)?;
        own_places::check_inputs(folder.path(), spec.run.file.as_deref(), config, spec.earlier)?;
        Ok(folder)
    })?;
    let opened = match start {
        Start::Seed | Start::Weights(_) => PeerMemory::open(session.process_group, (config, setup), Beginning::Fresh)?,
        Start::Checkpoint(_) => None,
    };
    let session = Session { memory: opened.as_ref().or(session.memory), ..*session };
    let uploads = match &part {
        Part::First(folder) => Uploads::begin(&config.run, folder, start.steps())?,
        Part::Other(_) => None,
    };
    let ended = attempt(&session, &part, uploads.as_ref(), start);
    let ended = session.after(&ended).and(ended);
    match (uploads, &part) {
        (Some(uploads), Part::First(folder)) => uploads.finish(folder, ended),
        (None, _) | (_, Part::Other(_)) => ended,
    }
}

/// An attempt of the run, which may return to a checkpoint.
fn attempt(
    session: &Session<'_>,
    part: &Part<'_, RunFolder>,
    uploads: Option<&Uploads>,
    start: Start<'_>,
) -> Result<(), Failure> {
    let attempt = RunAttempt::begin(session)?;
    let folder = match part {
        Part::First(folder) => Some(folder),
        Part::Other(_) => None,
    };
    let from = |session: &Session<'_>, start: Start<'_>| from(session, (part, uploads), start, &attempt);
    let ended = attempt.conclude(returning(session, folder, start, from));
    let Some(folder) = folder else { return ended };
    match &ended {
        // The disk has the last state.
        Ok(()) | Err(Failure::Interrupted { .. }) => folder.forget_manifests().and(ended),
        Err(given_up @ Failure::RollBack { step, .. }) => {
            // Until now only the anomaly was reported.
            folder.log_line(&given_up.to_string());
            watch::fail(&session.verdict.config, *step, &given_up.to_string());
            ended
        }
        Err(_) => ended,
    }
}

/// The attempt from one `start`, to the end or to an anomaly.
fn from(
    session: &Session<'_>,
    (part, uploads): (&Part<'_, RunFolder>, Option<&Uploads>),
    start: Start<'_>,
    attempt: &RunAttempt<'_>,
) -> Result<(), Failure> {
    match part {
        Part::First(folder) => {
            let first = FirstProcess::open(session, folder, uploads, start, attempt)?;
            with_ranks(session, start, attempt, |ranks, notes| first.train(ranks, notes))
        }
        Part::Other(member) => {
            let other = OtherProcess::open(session, member, attempt)?;
            with_ranks(session, start, attempt, |ranks, _| other.train(ranks))
        }
    }
}

/// Does `work` with the ranks of this process and the lines about their algorithms, once these are decided.
fn with_ranks(
    session: &Session<'_>,
    start: Start<'_>,
    attempt: &RunAttempt<'_>,
    work: impl FnOnce(Ranks<'_>, &[String]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let Decided { choices, notes } = product_algorithms::decide(session)?;
    let memory = match (session.memory, session.process_group.member()) {
        (Some(memory), Some(member)) => memory.attempt(member, start)?,
        (None, _) | (_, None) => None,
    };
    work(Ranks { session, start, attempt, choices, memory: memory.as_ref() }, &notes)
}
