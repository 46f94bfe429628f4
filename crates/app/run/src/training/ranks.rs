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
    /// Takes checkpoints on the disk.
    pub disk: SavingPlace<'a>,
    /// Brings records of those in memory to process 0.
    pub in_memory: Option<&'a dyn PieceCollector>,
    /// The run file of checkpoints.
    pub run: &'a str,
}

impl Ranks<'_> {
    /// Trains them to the end of the run, and gathers the times of the last step in process 0.
    ///
    /// # Errors
    /// The failure of a rank, and those of other processes.
    pub fn train(self, ends: RankOutputs<'_>) -> Result<Ending, Failure> {
        let Ranks { session: Session { verdict, text, process_group, .. }, start, attempt, choices, memory } = self;
        let RankOutputs { observer, recorder, weights, disk, in_memory, run } = ends;
        let memory = memory.zip(in_memory).map(|(memory, collector)| memory.place(collector));
        let validation = text.validation();
        let ports = Ports {
            start,
            saving: Some(Saving { disk, memory, run, data_xxh3: Some(text.hash()) }),
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
