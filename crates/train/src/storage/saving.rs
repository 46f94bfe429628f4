//! Saving the state of a run while it goes on: each rank has a thread that reads its state and writes it, and an instruction waits only
//! where it would change what is still to be read.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

use checkpoint::{
    BLOCK_BYTES, CheckpointError, CheckpointFolder, Committer, Finished, Hash, PieceCollector, PieceEntry, PieceFile,
    ProcessWriter, RunState, StatePart,
};
use config::{ModelCoord, ParamSpec, Unit};
use device::{DeviceError, MemoryReader, Tensor};
use mesh::Rank;
use program::{Value, Values, saved_units};

use crate::run::observer::Observer;
use crate::storage::pieces::{Copies, pieces};
use crate::worker::Worker;
use crate::worker::unit_state::UnitState;

/// When the state of a run is saved, and where.
#[derive(Clone, Copy)]
pub struct Saving<'a> {
    /// Where the ranks of this process write their pieces.
    pub folder: &'a CheckpointFolder,
    /// Brings the records of these pieces to the process that commits.
    pub collector: &'a dyn PieceCollector,
    /// Steps from one to the next; with 0 there is one at the end, which there is always.
    pub every: u32,
    /// The resolved run file, which goes with each.
    pub run: &'a str,
    /// Hash of all tokens that the run reads, if it is known; goes with each, too.
    pub data_xxh3: Option<Hash>,
}

impl<'a> Saving<'a> {
    /// Saves with `committer`, from a process that commits; only after the last step, without a run file.
    pub fn with(committer: &'a Committer<'a>) -> Saving<'a> {
        Saving { folder: committer.folder(), collector: committer, every: 0, run: "", data_xxh3: None }
    }

    /// Whether it is time after so many steps. After the last step it always is, also where a run was stopped.
    pub fn is_due_after(&self, steps: u32) -> bool {
        self.every > 0 && steps.is_multiple_of(self.every)
    }

    /// Where the run stands after `steps` steps; the same on every rank.
    pub(crate) fn state(&self, worker: &Worker<'_>, steps: u32, held_out_loss: Option<f64>) -> RunState {
        RunState {
            steps,
            sequences: worker.position.setup.train.batches().at(steps).first_sequence,
            skipped_steps: worker.state.loss_scale.skipped_steps(),
            loss_scale: worker.state.loss_scale.state(),
            held_out_loss,
            data_xxh3: self.data_xxh3,
            spikes: worker.spike_state(),
            run: self.run.into(),
        }
    }
}

/// What became of a checkpoint.
#[derive(Debug)]
pub struct SaveReport {
    /// Steps that were done.
    pub steps: u32,
    /// The checkpoint, or why there is none.
    pub finished: Finished,
    /// From the first rank's beginning to the commit.
    pub wall: Duration,
}

/// A thread that gets stuck longer than this ends the run.
const DEADLINE: Duration = Duration::from_secs(600);

/// The two ends of saving that all ranks of a process share.
#[derive(Clone, Copy)]
pub(crate) struct SavePort<'a> {
    /// Takes the ranks' pieces.
    pub(crate) writer: &'a ProcessWriter,
    /// Takes the records of all of them.
    pub(crate) collector: &'a dyn PieceCollector,
}

/// A rank's end of the thread that saves its state.
pub struct SaveStream {
    tasks: Sender<SaveTask>,
    done: Receiver<Unit>,
    /// Units whose state is still to be read.
    pending: Vec<(Unit, Values)>,
    waited: Duration,
}

enum SaveTask {
    Begin(RunState),
    Save(Unit),
    Finish,
}

impl SaveStream {
    /// Starts the thread of `rank`, whose memory it reads through `memory`. It ends when this end is dropped, with what it was given to do done.
    pub(crate) fn start<'scope, 'env>(
        scope: &'scope Scope<'scope, 'env>,
        worker: &Worker<'_>,
        number: Rank,
        memory: Box<dyn MemoryReader>,
        (port, observer): (SavePort<'env>, &'env dyn Observer),
    ) -> SaveStream {
        let (entries, places) = save_list(worker);
        let saver = Saver { number, port, observer, memory, entries, places };
        let ((tasks, taken), (tell, done)) = (channel(), channel());
        scope.spawn(move || saver.work(&taken, &tell));
        SaveStream { tasks, done, pending: vec![], waited: Duration::ZERO }
    }

    /// Waits until nothing is still to be read that an instruction is about to write.
    ///
    /// # Errors
    /// A thread that does not get on.
    pub(crate) fn wait_for_readers(&mut self, written: &Values) -> Result<(), DeviceError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let started = Instant::now();
        let is_written = |value: &Value| written.as_slice().contains(value);
        while let Some((unit, _)) = self.pending.iter().find(|(_, read)| read.as_slice().iter().any(is_written)) {
            match self.done.recv_timeout(DEADLINE) {
                Ok(unit) => self.pending.retain(|(pending, _)| *pending != unit),
                Err(error) => return Err(stuck(*unit, error)),
            }
        }
        self.waited += started.elapsed();
        Ok(())
    }

    /// How long instructions have waited so far.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// From now on the thread reads the state of `unit`, the values `read`.
    pub(crate) fn save(&mut self, unit: Unit, read: Values) -> Result<(), DeviceError> {
        self.pending.push((unit, read));
        self.send(SaveTask::Save(unit))
    }

    /// A checkpoint of `state` begins.
    pub(crate) fn begin(&mut self, state: RunState) -> Result<(), DeviceError> {
        // A unit whose state of the checkpoint before is still to be read would otherwise count as read when that is.
        while let Some((unit, _)) = self.pending.first() {
            let done = self.done.recv_timeout(DEADLINE).map_err(|error| stuck(*unit, error))?;
            self.pending.retain(|(pending, _)| *pending != done);
        }
        self.send(SaveTask::Begin(state))
    }

    /// All units of it have been named.
    pub(crate) fn finish(&mut self) -> Result<(), DeviceError> {
        self.send(SaveTask::Finish)
    }

    fn send(&self, task: SaveTask) -> Result<(), DeviceError> {
        let ended = |_| DeviceError::Storage { what: "the run".into(), reason: "its thread has ended".into() };
        self.tasks.send(task).map_err(ended)
    }
}

fn stuck(unit: Unit, error: RecvTimeoutError) -> DeviceError {
    let reason = match error {
        RecvTimeoutError::Timeout => format!("it has not read it for {} s", DEADLINE.as_secs()),
        RecvTimeoutError::Disconnected => "its thread has ended".into(),
    };
    DeviceError::Storage { what: unit.to_string(), reason }
}

/// The pieces of a rank's file in their order, which is that of the units that a rank saves, and where the numbers of each unit's pieces lie.
type SaveList = (Vec<PieceEntry>, BTreeMap<Unit, Vec<Tensor>>);

/// Everything that `rank` answers for: over all ranks each element of each tensor once.
fn save_list(worker: &Worker<'_>) -> SaveList {
    let (mut entries, mut places) = (Vec::new(), BTreeMap::new());
    for unit in saved_units(&worker.position.program.view) {
        let mut of_unit = Vec::new();
        for (param, tensor, region, part) in unit_parts(&worker.state.units[&unit], worker.position.rank.model) {
            of_unit.push(tensor);
            entries.push(PieceEntry { tensor: part.tensor(&param.name), shape: param.shape.clone(), region });
        }
        places.insert(unit, of_unit);
    }
    (entries, places)
}

fn unit_parts(
    state: &UnitState,
    coord: ModelCoord,
) -> impl Iterator<Item = (&ParamSpec, Tensor, mesh::Region, StatePart)> {
    let moments = state.held_moments().into_iter().flatten();
    let held = std::iter::once(state.weights().clone()).chain(moments).zip(StatePart::ALL);
    let owned = state.owned.clone();
    held.flat_map(move |(held, part)| {
        let pieces = pieces(&state.layout, owned.clone(), coord, Copies::First);
        pieces.into_iter().map(move |piece| (piece.param, held.part(piece.elements), piece.region, part))
    })
}

/// What the thread works with.
struct Saver<'a> {
    number: Rank,
    port: SavePort<'a>,
    observer: &'a dyn Observer,
    memory: Box<dyn MemoryReader>,
    entries: Vec<PieceEntry>,
    places: BTreeMap<Unit, Vec<Tensor>>,
}

impl Saver<'_> {
    fn work(self, tasks: &Receiver<SaveTask>, done: &Sender<Unit>) {
        let SavePort { writer, collector } = self.port;
        let mut current = None;
        let mut started = Instant::now();
        for task in tasks {
            match task {
                SaveTask::Begin(state) => {
                    started = Instant::now();
                    let file = writer.begin(&state, self.number.0, &self.entries);
                    current = Some((state.steps, file));
                }
                SaveTask::Save(unit) => {
                    if let Some((_, file)) = &mut current
                        && let Ok(Some(open)) = file
                        && let Err(error) = self.save(unit, open)
                    {
                        *file = Err(error);
                    }
                    // Where nobody waits any more, the run is over.
                    let _ = done.send(unit);
                }
                SaveTask::Finish => {
                    let Some((steps, file)) = current.take() else { continue };
                    let Some(pieces) = writer.finish(steps, file, &self.entries) else { continue };
                    let Some(finished) = collector.deliver(pieces) else { continue };
                    self.observer.saved(SaveReport { steps, finished, wall: started.elapsed() });
                }
            }
        }
    }

    /// Block by block, so that little memory is needed beside the state itself.
    fn save(&self, unit: Unit, file: &mut PieceFile) -> Result<(), CheckpointError> {
        let mut buffer = vec![0; BLOCK_BYTES];
        for tensor in &self.places[&unit] {
            let block_len = BLOCK_BYTES / tensor.dtype.size_bytes();
            for start in (0..tensor.len()).step_by(block_len) {
                let block = tensor.elements(start..tensor.len().min(start + block_len));
                let bytes = &mut buffer[..block.size_bytes()];
                self.memory.read(block, bytes).map_err(|error| CheckpointError::State(error.to_string()))?;
                file.put(bytes)?;
            }
        }
        Ok(())
    }
}
