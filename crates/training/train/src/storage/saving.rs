//! Saving the state of a run while it continues: each rank has a thread that reads its state and writes it, and an
//! instruction waits only where it would change state that is still to be read.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender};
use std::thread::Scope;
use std::time::{Duration, Instant};

use checkpoint::{
    BLOCK_BYTES, CheckpointError, CheckpointFolder, Committer, Finished, Hash, PieceCollector, PieceEntry, PieceFile,
    ProcessWriter, RunState, SavedIn, StatePart, file_bytes,
};
use config::{KeptRunFile, ModelCoord, ParamSpec, Unit, UnitLayout, router_corrections, router_loads};
use device::{MemoryReader, Tensor};
use mesh::{Rank, Region};
use program::saved_units;
use sync::{NoThread, start_scoped};

use crate::setup::Setup;
use crate::storage::pieces::{Copies, Piece, pieces};
use crate::storage::routers;
use crate::worker::Worker;
use crate::worker::position::RankPosition;
use crate::worker::save_stream::{SaveStream, SaveTask};
use crate::worker::unit_state::common;

/// Where the state of a run is saved, and how often.
#[derive(Clone, Copy)]
pub struct SavingPlace<'a> {
    /// Where the ranks of this process write their pieces.
    pub folder: &'a CheckpointFolder,
    /// Steps from one to the next; 0 for none between steps.
    pub every: u32,
}

/// When the state of a run is saved, and where.
#[derive(Clone, Copy)]
pub struct Saving<'a> {
    /// The folder of the run; there is always one checkpoint after the last step.
    pub disk: SavingPlace<'a>,
    /// The memory of hosts, which takes the state where the disk does not.
    pub memory: Option<SavingPlace<'a>>,
    /// Brings the records of pieces to the process that commits.
    pub collector: &'a dyn PieceCollector,
    /// The resolved run file, which goes with each.
    pub run: &'a str,
    /// Hash of all tokens that the run reads, if it is known; goes with each, too.
    pub data_xxh3: Option<Hash>,
}

impl<'a> Saving<'a> {
    /// Saves with `committer`, from a process that commits; only after the last step, without a run file.
    pub fn with(committer: &'a Committer<'a>) -> Saving<'a> {
        let disk = SavingPlace { folder: committer.folder(), every: 0 };
        Saving { disk, memory: None, collector: committer, run: "", data_xxh3: None }
    }

    /// The same, with a checkpoint on the disk after every `every` steps.
    #[must_use]
    pub fn every(self, every: u32) -> Saving<'a> {
        Saving { disk: SavingPlace { every, ..self.disk }, ..self }
    }

    /// The folder for the state after `steps` steps, between steps; none where nothing is due.
    pub fn folder_after(&self, steps: u32) -> Option<&'a CheckpointFolder> {
        let is_due = |place: &SavingPlace<'_>| place.every > 0 && steps.is_multiple_of(place.every);
        [Some(self.disk), self.memory].into_iter().flatten().find(is_due).map(|place| place.folder)
    }

    /// The state of the run after `steps` steps; the same on every rank.
    pub(crate) fn state(&self, worker: &Worker<'_>, steps: u32) -> RunState {
        RunState {
            steps,
            sequences: worker.position.setup.train.batches().at(steps).first_sequence,
            skipped_steps: worker.state.loss_scale.skipped_steps(),
            loss_scale: worker.state.loss_scale.state(),
            // A measurement adds its loss later.
            held_out_loss: None,
            data_xxh3: self.data_xxh3,
            spikes: worker.spike_state(),
            run: KeptRunFile::new(self.run),
        }
    }
}

/// The result of a checkpoint.
#[derive(Debug)]
pub struct SaveReport {
    /// Steps that were done.
    pub steps: u32,
    /// Where its data are.
    pub data: SavedIn,
    /// The checkpoint, or why there is none.
    pub finished: Finished,
    /// From the first rank's beginning to the commit.
    pub wall: Duration,
}

/// Hears of checkpoints, on threads that save.
type Report<'a> = dyn Fn(SaveReport) + Sync + 'a;

/// The two ends of saving that all ranks of a process share.
#[derive(Clone, Copy)]
pub(crate) struct SavePort<'a> {
    /// Takes the ranks' pieces.
    pub(crate) writer: &'a ProcessWriter,
    /// Takes the records of all of them.
    pub(crate) collector: &'a dyn PieceCollector,
}

/// Starts the thread of `number`, whose memory it reads through `memory` and which tells `report` of each checkpoint.
/// It ends when the rank's end is dropped, with what it was given to do done.
///
/// # Errors
/// A thread that cannot be started.
pub(crate) fn start_saving<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    worker: &Worker<'_>,
    number: Rank,
    memory: Box<dyn MemoryReader>,
    (port, report): (SavePort<'env>, &'env Report<'env>),
) -> Result<SaveStream, NoThread> {
    let (entries, places) = save_list(worker);
    let saver = Saver { number, port, report, memory, entries, places };
    let (stream, taken, tell) = SaveStream::new();
    start_scoped(scope, &format!("{number}.save"), move || saver.work(&taken, &tell))?;
    Ok(stream)
}

/// The pieces of a rank's file in their order, which is that of the units that a rank saves, and the place of each
/// unit's pieces in memory.
type SaveList = (Vec<PieceEntry>, BTreeMap<Unit, Vec<Tensor>>);

/// Everything that `rank` answers for: over all ranks each element of each tensor once.
fn save_list(worker: &Worker<'_>) -> SaveList {
    let (mut entries, mut places) = (Vec::new(), BTreeMap::new());
    let (model, constants) = (&worker.position.setup.model, &worker.state.constants);
    let of_routers = [routers::corrections(model, constants), routers::loads(model, constants)].concat();
    for unit in saved_units(&worker.position.program.view) {
        let state = &worker.state.units[&unit];
        let mut of_unit = Vec::new();
        let is_stored = |(param, _): &routers::Kept| {
            param.unit == unit && routers::stores(&worker.position.rank, &state.layout, param)
        };
        for (part, held) in state.saved() {
            let owned = common(&state.owned, &held.elements);
            for piece in saved_pieces(&state.layout, owned, worker.position.rank.model) {
                of_unit.push(held.part(piece.elements.clone()));
                entries.push(entry(piece, part));
            }
        }
        for (param, place) in of_routers.iter().filter(|kept| is_stored(kept)) {
            of_unit.push(*place);
            entries.push(whole(param));
        }
        places.insert(unit, of_unit);
    }
    (entries, places)
}

fn saved_pieces(layout: &UnitLayout, owned: Range<usize>, coord: ModelCoord) -> Vec<Piece<'_>> {
    pieces(layout, owned, coord, Copies::First)
}

fn entry(piece: Piece<'_>, part: StatePart) -> PieceEntry {
    PieceEntry { tensor: part.tensor(&piece.param.name), shape: piece.param.shape.clone(), region: piece.region }
}

/// A tensor of a router, which is in one piece.
fn whole(param: &ParamSpec) -> PieceEntry {
    PieceEntry { tensor: param.name.clone(), shape: param.shape.clone(), region: Region::whole(&param.shape) }
}

/// The elements of a unit's flat buffer of which all ranks together keep `part`.
fn kept_elements(setup: &Setup, layout: &UnitLayout, part: StatePart) -> Range<usize> {
    match part {
        StatePart::SecondMoment => setup.train.optimizer.second_moments(layout),
        StatePart::Weights | StatePart::FirstMoment | StatePart::Average => 0..layout.padded_len(),
    }
}

/// Bytes of the file of `rank` in every checkpoint of `setup`; 0 for a rank that answers for nothing.
pub fn checkpoint_bytes(setup: &Setup, rank: Rank) -> u64 {
    let rank = RankPosition::new(&setup.parallelism, setup.mesh.coord(rank));
    let mut entries = vec![];
    let view = &setup.program(rank.stage).view;
    for unit in saved_units(view) {
        let layout = &setup.layouts[&unit];
        let kept = StatePart::kept(setup.train.averages()).iter().copied();
        for part in kept.filter(|part| *part == StatePart::Weights || view.trains(unit)) {
            let owned = common(&rank.shards.owned(layout), &kept_elements(setup, layout, part));
            let pieces = saved_pieces(layout, owned, rank.model);
            entries.extend(pieces.into_iter().map(|piece| entry(piece, part)));
        }
        let of_routers = router_corrections(&setup.model).chain(router_loads(&setup.model));
        let is_stored = |param: &ParamSpec| param.unit == unit && routers::stores(&rank, layout, param);
        entries.extend(of_routers.filter(is_stored).map(|param| whole(&param)));
    }
    file_bytes(&entries)
}

/// The inputs of the saving thread.
struct Saver<'a> {
    number: Rank,
    port: SavePort<'a>,
    report: &'a Report<'a>,
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
                SaveTask::Begin(state, folder) => {
                    started = Instant::now();
                    current = Some((state.steps, writer.begin(&folder, &state, self.number.0, &self.entries)));
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
                    let data = pieces.data();
                    let Some(finished) = collector.deliver(pieces) else { continue };
                    (self.report)(SaveReport { steps, data, finished, wall: started.elapsed() });
                }
            }
        }
    }

    /// Block by block, so that little memory is needed in addition to the state.
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
