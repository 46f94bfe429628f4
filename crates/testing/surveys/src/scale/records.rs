//! The checkpoint of all ranks without its data: records of pieces with sizes and hashes as each process sends them to
//! process 0, merged into a manifest and committed; files are sparse.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use checkpoint::{
    BLOCK_BYTES, Checkpoint, Committer, Disk, FileRecord, Hash, MANIFEST, PieceCollector, PieceRecord, ProcessPieces,
    Retention, RunState, SavedIn, StatePart, Store,
};
use config::{KeptRunFile, Unit};
use mesh::Rank;
use program::saved_units;
use serde::Serialize;
use train::{Copies, RankPosition, Setup, WorkloadIndex, pieces};

use super::{Figures, LargeRun, peak_bytes};

/// Ranks of a process: a host with eight accelerators and a process for each would have one.
const RANKS_OF_A_PROCESS: usize = 1;
/// Steps of the run that is saved.
const STEPS: u32 = 1;
/// Bytes of an element in a checkpoint.
const ELEMENT_BYTES: u64 = 4;
/// Bytes of a header: this many for each piece, about those of its name, its shape and its place.
const HEADER_BYTES_OF_A_PIECE: u64 = 160;

/// A process's message, as `checkpoint` reads it.
#[derive(Serialize)]
struct Message {
    state: RunState,
    data: SavedIn,
    first_rank: usize,
    files: Result<Vec<WrittenFile>, String>,
}

/// A file of one rank.
#[derive(Serialize)]
struct WrittenFile {
    record: FileRecord,
    pieces: Vec<WrittenPiece>,
}

#[derive(Serialize)]
struct WrittenPiece {
    tensor: String,
    shape: Vec<usize>,
    #[serde(flatten)]
    place: PieceRecord,
}

/// Sends the records of all ranks of `run`, commits them below `folder`, and opens the checkpoint.
///
/// # Errors
/// A run that is refused, or a checkpoint that is not committed or not whole.
pub fn records(run: LargeRun, folder: &Path) -> Result<Figures, String> {
    let setup = run.setup()?;
    let state = state(&run)?;
    let store = Store::open(folder, Arc::new(Disk), Retention { newest: 1, every: 0, best: 0 })
        .map_err(|error| error.to_string())?;
    let partial = folder.join(format!(".step-{STEPS:08}.partial"));
    fs::create_dir_all(&partial).map_err(|error| error.to_string())?;
    let mut figures = Figures::default();
    let committer = Committer::new(&store, run.ranks / RANKS_OF_A_PROCESS);
    let (mut message_bytes, mut largest_bytes, mut num_pieces, mut merge_seconds) = (0, 0, 0, 0.0);
    let mut finished = None;
    for rank in 0..run.ranks {
        let file = written_file(&setup, Rank(rank))?;
        num_pieces += file.pieces.len();
        let sparse = File::create(partial.join(&file.record.name)).and_then(|made| made.set_len(file.record.bytes));
        sparse.map_err(|error| error.to_string())?;
        let message = Message { state: state.clone(), data: SavedIn::Disk, first_rank: rank, files: Ok(vec![file]) };
        let bytes = serde_json::to_vec(&message).map_err(|error| error.to_string())?;
        message_bytes += bytes.len();
        largest_bytes = largest_bytes.max(bytes.len());
        let started = Instant::now();
        let arrived = ProcessPieces::from_bytes(&bytes).map_err(|error| error.to_string())?;
        finished = committer.deliver(arrived).or(finished);
        merge_seconds += started.elapsed().as_secs_f64();
    }
    let finished = finished.ok_or("the last process must commit")?;
    let committed = finished.outcome.map_err(|error| error.to_string())?;
    figures.put("commit_seconds", merge_seconds);
    figures.put("pieces", num_pieces as f64);
    figures.put("message_bytes", message_bytes as f64);
    figures.put("largest_message_bytes", largest_bytes as f64);
    let manifest = fs::metadata(committed.path.join(MANIFEST)).map_err(|error| error.to_string())?;
    figures.put("manifest_bytes", manifest.len() as f64);
    figures.put("commit_peak_bytes", peak_bytes());
    let started = Instant::now();
    let checkpoint = Checkpoint::open(&committed.path).map_err(|error| error.to_string())?;
    figures.put("open_seconds", started.elapsed().as_secs_f64());
    figures.put("data_bytes", committed.data_bytes as f64);
    figures.put("files", checkpoint.manifest().files.len() as f64);
    figures.put("peak_bytes", peak_bytes());
    Ok(figures)
}

fn state(run: &LargeRun) -> Result<RunState, String> {
    let config = run.config()?;
    Ok(RunState {
        steps: STEPS,
        sequences: config.train.global_batch as u64,
        skipped_steps: 0,
        loss_scale: None,
        held_out_loss: None,
        data_xxh3: Some(Hash(1)),
        spikes: None,
        run: KeptRunFile::of(&config),
    })
}

/// The file of `rank`: weights and both moments of everything that it answers for, as a save writes them.
fn written_file(setup: &Setup, rank: Rank) -> Result<WrittenFile, String> {
    let position = RankPosition::new(&setup.parallelism, setup.mesh.coord(rank));
    let view = &setup.program_of(WorkloadIndex::MAIN, position.stage).view;
    let units: Vec<Unit> = saved_units(view).collect();
    let mut list = vec![];
    for unit in units {
        let layout = &setup.layouts[&unit];
        for part in StatePart::kept(setup.train.averages()).iter().copied() {
            for piece in pieces(layout, position.shards.owned(layout), position.model, Copies::First) {
                list.push((part.tensor(&piece.param.name), piece.param.shape.clone(), piece.region));
            }
        }
    }
    let header_bytes = HEADER_BYTES_OF_A_PIECE * list.len() as u64;
    let mut offset = header_bytes;
    let mut written = Vec::with_capacity(list.len());
    for (tensor, shape, region) in list {
        let len_bytes = region.len() as u64 * ELEMENT_BYTES;
        // Any number has the length of a hash.
        let hash = |block: u64| Hash((offset + block).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let xxh3 = (0..len_bytes.div_ceil(BLOCK_BYTES as u64)).map(hash).collect();
        let place = PieceRecord { start: region.start, extent: region.extent, file: 0, offset, xxh3 };
        written.push(WrittenPiece { tensor, shape, place });
        offset += len_bytes;
    }
    let record = FileRecord {
        name: format!("rank-{:05}.safetensors", rank.0),
        bytes: offset,
        header_bytes,
        header_xxh3: Hash(rank.0 as u64),
    };
    Ok(WrittenFile { record, pieces: written })
}
