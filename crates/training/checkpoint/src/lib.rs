//! Tensors in files, under the names that parameters are declared with.
//!
//! A [`TensorWriter`] takes boxes of global tensors in any order from any number of threads and leaves a whole file or
//! none; a [`TensorReader`] gives boxes back. Neither knows a layout: what one layout wrote, every other reads.
//!
//! A [`Checkpoint`] is the state of a run between two steps: tensors in pieces, one file per rank that wrote, and a
//! [`Manifest`] that says where each piece is. Each process of a run writes with a [`ProcessWriter`]; one has the
//! [`Store`], the folder of the run's checkpoints, and commits with a [`Committer`]. `docs/checkpoint-format.md`
//! describes both.
//!
//! A [`StoredRun`] is the place of a run's checkpoints in an object store, and a [`Mirror`] brings them there.

#![forbid(unsafe_code)]

mod checkpoint;
mod checkpoint_error;
mod checkpoint_folder;
mod commit;
mod committer;
mod cover;
mod data_files;
mod disk;
mod disk_file;
mod error;
mod hash;
mod header;
mod holds;
mod lock;
mod manifest;
mod mirror;
mod number;
mod partial;
mod piece_file;
mod process_pieces;
mod process_writer;
mod reader;
mod retention;
mod state_part;
mod step_names;
mod store;
mod stored_run;
mod writer;

pub use checkpoint::{Checkpoint, read_manifest};
pub use checkpoint_error::CheckpointError;
pub use checkpoint_folder::{CheckpointFolder, SavedIn};
pub use commit::Committed;
pub use committer::{Committer, PieceCollector};
pub use cover::{Share, Uncovered, cover};
pub use data_files::DataFiles;
pub use disk::{Disk, NewFile, Storage};
pub use error::FileError;
pub use hash::{BLOCK_BYTES, Hash};
pub use header::TensorEntry;
pub use holds::Holds;
pub use lock::{LOCK, check_unused, is_in_use};
pub use manifest::{
    FORMAT, FileRecord, LossScaleState, MANIFEST, Manifest, ManifestError, PieceRecord, RunState, SpikeState,
    TensorRecord,
};
pub use mirror::{Mirror, Uploaded};
pub use piece_file::{PieceEntry, PieceFile, file_bytes};
pub use process_pieces::ProcessPieces;
pub use process_writer::ProcessWriter;
pub use reader::TensorReader;
pub use retention::{Retention, Saved};
pub use state_part::StatePart;
pub use step_names::{Found, LATEST, named_steps};
pub use store::{Finished, Store, committed, named, unfinished};
pub use stored_run::{StoredError, StoredRun, StoredSteps};
pub use writer::TensorWriter;
