//! A small state in pieces, as ranks of some layout would save it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use checkpoint::{
    BLOCK_BYTES, Checkpoint, CheckpointError, Committer, Disk, Finished, PieceCollector, PieceEntry, PieceFile,
    ProcessWriter, Retention, RunState, Storage, Store,
};
use config::KeptRunFile;
use mesh::{Region, copy_runs};

/// A folder of a test, removed with it.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("pleach-checkpoints-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("a folder");
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub const ALL: Retention = Retention { newest: usize::MAX, every: 0, best: 0 };

pub fn store(folder: &Path) -> Result<Store, CheckpointError> {
    Store::open(folder, Arc::new(Disk), ALL)
}

pub fn store_on(folder: &Path, storage: Arc<dyn Storage>) -> Result<Store, CheckpointError> {
    Store::open(folder, storage, ALL)
}

pub fn region(start: &[usize], extent: &[usize]) -> Region {
    Region { start: start.to_vec(), extent: extent.to_vec() }
}

/// Tensors of a small state: a matrix, a vector, a number, and a vector of several blocks.
pub const TENSORS: [(&str, &[usize]); 4] =
    [("matrix", &[6, 10]), ("bias", &[7]), ("number", &[]), ("long", &[600_000])];

/// The value of element `index` of tensor `name` after `steps` steps.
pub fn value(name: &str, steps: u32, index: usize) -> f32 {
    name.len() as f32 + steps as f32 * 1000.0 + index as f32 * 0.5
}

/// Pieces that two ranks save: each has half of the columns of the matrix, one of them the rest.
pub fn pieces(rank: usize) -> Vec<PieceEntry> {
    let entry = |index: usize, region: Region| {
        let (tensor, shape) = TENSORS[index];
        PieceEntry { tensor: tensor.into(), shape: shape.to_vec(), region }
    };
    match rank {
        0 => vec![entry(0, region(&[0, 0], &[6, 5])), entry(1, region(&[0], &[3])), entry(3, region(&[0], &[400_000]))],
        _ => vec![
            entry(0, region(&[0, 5], &[6, 5])),
            entry(1, region(&[3], &[4])),
            entry(2, region(&[], &[])),
            entry(3, region(&[400_000], &[200_000])),
        ],
    }
}

/// The elements of a piece, row-major.
pub fn values(entry: &PieceEntry, steps: u32) -> Vec<f32> {
    let mut values = vec![0.0; entry.region.len()];
    for run in copy_runs(&Region::whole(&entry.shape), &entry.region) {
        for index in 0..run.len {
            values[run.target + index] = value(&entry.tensor, steps, run.source + index);
        }
    }
    values
}

pub fn state(steps: u32) -> RunState {
    RunState {
        steps,
        sequences: u64::from(steps) * 8,
        skipped_steps: 0,
        loss_scale: None,
        held_out_loss: None,
        data_xxh3: None,
        spikes: None,
        run: KeptRunFile::new("[train]\nsteps = 9\n"),
    }
}

/// Saves the state after `steps` steps, rank by rank.
pub fn save(store: &Store, steps: u32) -> Finished {
    save_as(store, state(steps), |_| true)
}

/// Saves as [`save`] does, without the blocks of pieces that `is_put` leaves out.
pub fn save_as(store: &Store, state: RunState, is_put: impl Fn(&PieceEntry) -> bool) -> Finished {
    let (mut finished, steps) = (None, state.steps);
    let writer = ProcessWriter::new(store.folder(), 2);
    for rank in 0..2 {
        let entries: Vec<PieceEntry> = pieces(rank).into_iter().filter(&is_put).collect();
        let file = put(&writer, rank, &state, &entries);
        finished = writer.finish(steps, file, &entries);
    }
    let pieces = finished.expect("the last rank gets the pieces of its process");
    Committer::new(store, 1).deliver(pieces).expect("there is one process")
}

/// The file of a rank with all of `entries`.
pub fn put(
    writer: &ProcessWriter,
    rank: usize,
    state: &RunState,
    entries: &[PieceEntry],
) -> Result<Option<PieceFile>, CheckpointError> {
    let Some(mut file) = writer.begin(state, rank, entries)? else { return Ok(None) };
    for entry in entries {
        let mut bytes: Vec<u8> = values(entry, state.steps).iter().flat_map(|value| value.to_ne_bytes()).collect();
        bytes.chunks_mut(BLOCK_BYTES).try_for_each(|block| file.put(block))?;
    }
    Ok(Some(file))
}

/// Whether `checkpoint` has every element of the state after its steps.
pub fn check(checkpoint: &Checkpoint) -> Result<(), CheckpointError> {
    let steps = checkpoint.state().steps;
    for (name, shape) in TENSORS {
        let mut found = vec![0.0; shape.iter().product()];
        checkpoint.get(name, &Region::whole(shape), &mut found)?;
        let wrong = found.iter().enumerate().find(|(index, found)| **found != value(name, steps, *index));
        assert_eq!(wrong, None, "{name} after {steps} steps");
    }
    Ok(())
}
