//! Process 0, which commits checkpoints, gathers weights and reports.

use std::time::Duration;

use checkpoint::{CheckpointError, Committer, SavedIn};
use train::{
    EvaluationReport, Observer, RouterReport, SampleReport, SaveReport, Start, StepReport, StopRequest, WorkTimes,
    Worker,
};

use crate::failure::Failure;
use crate::folder::run_folder::RunFolder;
use crate::peer_memory::MemoryAttempt;
use crate::places::author::confirmed;
use crate::process_group::delivery::{self, Destinations, PieceDestination};
use crate::process_group::member::{GroupMember, Part};
use crate::signals::interrupt::Interrupt;
use crate::text::run_text::Text;
use crate::training::attempt::RunAttempt;
use crate::training::once_per_run::OncePerRun;
use crate::training::progress::Progress;
use crate::training::ranks::{RankOutputs, Ranks};
use crate::training::session::Session;
use crate::training::uploads::Uploads;
use crate::training::work_times;

/// The process, with the files of the run.
pub struct FirstProcess<'a> {
    folder: &'a RunFolder,
    uploads: Option<&'a Uploads>,
    once: OncePerRun<'a>,
}

impl<'a> FirstProcess<'a> {
    /// Opens the files of the run in `folder`, for all processes.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn open(
        session: &'a Session<'a>,
        folder: &'a RunFolder,
        uploads: Option<&'a Uploads>,
        start: Start<'_>,
        attempt: &RunAttempt<'_>,
    ) -> Result<FirstProcess<'a>, Failure> {
        let prepare = || OncePerRun::prepare(session, folder, start, attempt);
        match session.process_group.once("the files of the run", prepare)? {
            Part::First(once) => Ok(FirstProcess { folder, uploads, once }),
            Part::Other(_) => Err(Failure::Work("process 0 is another process".into())),
        }
    }

    /// Trains `ranks`, and leaves in the folder what all processes compute. `notes` are about their algorithms.
    ///
    /// # Errors
    /// The failure of a rank, a file that cannot be written, or a signal.
    pub fn train(self, ranks: Ranks<'_>, notes: &[String]) -> Result<(), Failure> {
        let FirstProcess { folder, uploads, once } = self;
        let (session, attempt) = (ranks.session, ranks.attempt);
        let (config, member) = (&session.verdict.config, session.process_group.member());
        notes.iter().for_each(|note| once.tell(note));
        let (progress, interrupt) = (&once.progress, &once.interrupt);
        let observer =
            SignalObserver { progress, text: session.text, member, interrupt, uploads, memory: ranks.memory };
        // Those of later steps are of another attempt, also where this one saves none.
        let is_open = ranks.memory.is_some() || folder.has_manifests();
        let manifests = is_open.then(|| folder.manifests(ranks.start.steps())).transpose()?;
        let committer = Committer::new(&folder.store, member.map_or(1, GroupMember::processes));
        let committer = committer.with_memory(manifests.as_ref());
        let run = confirmed(config).run_file;
        let to = Destinations {
            weights: Some(&once.weights),
            pieces: Some(PieceDestination { collector: &committer, observer: &observer }),
            ..Destinations::default()
        };
        let ending = delivery::receive_while(session.process_group, &config.model, to, || {
            ranks.train(RankOutputs {
                observer: &observer,
                recorder: progress.recorder(),
                weights: &once.weights,
                collector: &committer,
                run: run.to_text(),
            })
        });
        once.conclude(ending, attempt)
    }
}

/// The observer of a run whose signals may reach any process.
struct SignalObserver<'a, 'r> {
    progress: &'a Progress<'r>,
    text: &'a Text,
    member: Option<&'a GroupMember>,
    interrupt: &'a Interrupt,
    uploads: Option<&'a Uploads>,
    memory: Option<&'a MemoryAttempt>,
}

impl SignalObserver<'_, '_> {
    /// Tells what uploads have to say.
    fn tell_uploads(&self) {
        for message in self.uploads.map(Uploads::messages).unwrap_or_default() {
            self.progress.uploaded(&message);
        }
    }
}

impl Observer for SignalObserver<'_, '_> {
    fn rank_step(&self, times: WorkTimes) {
        self.progress.rank_step(times);
    }

    fn step(&self, report: &StepReport) -> StopRequest {
        if let Some(member) = self.member {
            while let Ok(Some((_, message))) = member.control.receive(work_times::TOPIC, Duration::ZERO) {
                work_times::received(&message).into_iter().for_each(|times| self.progress.rank_step(times));
            }
        }
        self.tell_uploads();
        self.progress.step(report)
    }

    fn routers(&self, report: &RouterReport) {
        self.progress.routers(report);
    }

    fn stop_request(&self) -> StopRequest {
        if let Some(member) = self.member {
            member.note_signal(self.interrupt);
        }
        self.progress.stop_request()
    }

    fn evaluating(&self, share: f64, elapsed: Duration) {
        self.progress.evaluating(share, elapsed);
    }

    fn loss_not_saved(&self, step: u32, error: &CheckpointError) {
        self.progress.loss_not_saved(step, error);
    }

    fn evaluation(&self, report: &EvaluationReport) {
        // The manifest of a checkpoint that was uploaded before has the loss now.
        self.uploads.into_iter().for_each(Uploads::ask);
        self.progress.evaluation(report);
    }

    fn validation(&self, name: &str, report: &EvaluationReport) {
        self.progress.validation(name, report);
    }

    fn sampled(&self, report: &SampleReport) {
        self.progress.sampled(report.step, self.text.sampled(report));
    }

    fn saved(&self, report: SaveReport) {
        if let Some(memory) = self.memory.filter(|_| report.data == SavedIn::Memory) {
            memory.decisions.decide(report.steps, &report.finished);
        }
        let is_upload_due = report.data == SavedIn::Disk && report.finished.outcome.is_ok();
        self.progress.saved(report);
        if let Some(uploads) = self.uploads.filter(|_| is_upload_due) {
            uploads.ask();
        }
    }

    fn instruction(&self, worker: &Worker<'_>) -> Result<(), device::DeviceError> {
        self.progress.instruction(worker)
    }
}
