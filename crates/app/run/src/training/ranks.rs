//! The ranks of a process in one attempt of a run.

use checkpoint::PieceCollector;
use train::{Ending, ModelChoices, Observer, Ports, Saving, SavingPlace, Start, TensorSink};

use crate::failure::Failure;
use crate::peer_memory::MemoryAttempt;
use crate::process_group::process_ranks::ProcessRanks;
use crate::training::attempt::{RunAttempt, train_in};
use crate::training::measured_trace::Recorder;
use crate::training::session::Session;

/// The ranks of this process, before their first step.
pub struct Ranks<'a> {
    pub session: &'a Session<'a>,
    pub start: Start<'a>,
    pub attempt: &'a RunAttempt<'a>,
    /// Kernels and algorithms of GPU models.
    pub choices: ModelChoices,
    /// Checkpoints in the memory of hosts, where some go there.
    pub memory: Option<&'a MemoryAttempt>,
}

/// The receivers of the ranks' results.
pub struct RankOutputs<'a> {
    /// Hears of steps.
    pub observer: &'a dyn Observer,
    /// Has the times of instructions, where they are recorded.
    pub recorder: Option<&'a Recorder>,
    /// Takes the weights after the last step.
    pub weights: &'a dyn TensorSink,
    /// Brings records of checkpoints to process 0.
    pub collector: &'a dyn PieceCollector,
    /// The run file of checkpoints.
    pub run: &'a str,
}

impl Ranks<'_> {
    /// Trains them to the end of the run, and gathers the times of the last step in process 0.
    ///
    /// # Errors
    /// The failure of a rank, and those of other processes.
    pub fn train(self, ends: RankOutputs<'_>) -> Result<Ending, Failure> {
        let Ranks { session, start, attempt, choices, memory } = self;
        let Session { verdict, text, process_group, .. } = session;
        let RankOutputs { observer, recorder, weights, collector, run } = ends;
        let folder = session.checkpoints();
        let disk = SavingPlace { folder: &folder, every: verdict.config.run.save_every };
        let memory = memory.map(MemoryAttempt::place);
        let validation = text.validation();
        let ports = Ports {
            start,
            saving: Some(Saving { disk, memory, collector, run, data_xxh3: Some(text.hash()) }),
            weights: Some(weights),
            evaluation: text.evaluation(),
            validation: &validation,
            samples: text.samples(),
            recheck: verdict.config.run.recheck,
            ..Ports::new(text.training(), observer)
        };
        let ranks = ProcessRanks::with_choices(process_group, &verdict.config, &verdict.setup, choices)?;
        let ending = train_in(&ranks, ports, attempt)?;
        match (process_group.member(), recorder) {
            (Some(member), Some(recorder)) => recorder.gather(member).map(|()| ending),
            (None, _) | (_, None) => Ok(ending),
        }
    }
}
