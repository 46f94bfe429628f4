//! A file of a checkpoint in the making: the pieces that one rank answers for.

use std::path::{Path, PathBuf};

use config::Format;
use mesh::Region;

use crate::checkpoint_error::CheckpointError;
use crate::disk::NewFile;
use crate::hash::Hash;
use crate::header::{Header, TensorEntry, header};
use crate::manifest::{ELEMENT_BYTES, FileRecord};
use crate::process_pieces::{WrittenFile, WrittenPiece};

/// A box of a tensor that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PieceEntry {
    /// The tensor's name.
    pub tensor: String,
    /// The tensor's shape.
    pub shape: Vec<usize>,
    /// The box.
    pub region: Region,
}

impl PieceEntry {
    /// The piece as a tensor of its file: `NAME[first:end,..]`, of the box's shape.
    pub(crate) fn tensor_entry(&self) -> TensorEntry {
        let Region { start, extent } = &self.region;
        let ranges: Vec<String> =
            start.iter().zip(extent).map(|(start, extent)| format!("{start}:{}", start + extent)).collect();
        TensorEntry { name: format!("{}[{}]", self.tensor, ranges.join(",")), shape: extent.clone() }
    }
}

/// Bytes of the file of a rank with these pieces: 0 where it has none, for then there is no file.
pub fn file_bytes(entries: &[PieceEntry]) -> u64 {
    let tensors: Vec<TensorEntry> = entries.iter().map(PieceEntry::tensor_entry).collect();
    if tensors.is_empty() { 0 } else { header(&tensors, Format::Fp32).len_bytes }
}

/// Takes pieces, block by block, in the order of the file.
#[derive(Debug)]
pub struct PieceFile {
    path: PathBuf,
    file: Box<dyn NewFile>,
    record: FileRecord,
    /// Place of each piece.
    starts_bytes: Vec<u64>,
    /// Hashes of each piece's blocks so far.
    hashes: Vec<Vec<Hash>>,
    /// Bytes so far, the header among them.
    taken_bytes: u64,
}

impl PieceFile {
    /// Makes the file, which `create` opens with the length that it is given, and writes its header.
    pub(crate) fn create(
        path: PathBuf,
        entries: &[PieceEntry],
        create: impl FnOnce(u64) -> std::io::Result<Box<dyn NewFile>>,
    ) -> Result<PieceFile, CheckpointError> {
        let tensors: Vec<TensorEntry> = entries.iter().map(PieceEntry::tensor_entry).collect();
        let Header { bytes, starts_bytes, len_bytes } = header(&tensors, Format::Fp32);
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let (header_bytes, header_xxh3) = (bytes.len() as u64, Hash::of(&bytes));
        let record = FileRecord { name, bytes: len_bytes, header_bytes, header_xxh3 };
        let created = create(len_bytes).and_then(|mut file| file.append(&bytes).map(|()| file));
        let hashes = vec![vec![]; entries.len()];
        match created {
            Ok(file) => Ok(PieceFile { path, file, record, starts_bytes, hashes, taken_bytes: header_bytes }),
            Err(reason) => Err(CheckpointError::Write { path, reason }),
        }
    }

    /// Takes the next block of the first piece that is not whole: [`BLOCK_BYTES`](crate::BLOCK_BYTES) bytes, the last
    /// one of a piece what is left. Elements are floats as this machine has them.
    ///
    /// # Errors
    /// A disk that refuses.
    pub fn put(&mut self, block: &mut [u8]) -> Result<(), CheckpointError> {
        if cfg!(target_endian = "big") {
            block.as_chunks_mut::<ELEMENT_BYTES>().0.iter_mut().for_each(|element| element.reverse());
        }
        let piece = self.starts_bytes.partition_point(|start_bytes| *start_bytes <= self.taken_bytes) - 1;
        self.hashes[piece].push(Hash::of(block));
        self.taken_bytes += block.len() as u64;
        self.file.append(block).map_err(|reason| cannot_write(&self.path, reason))
    }

    /// Brings everything to the disk; `entries` are those that the file was made for.
    pub(crate) fn finish(self, entries: &[PieceEntry]) -> Result<WrittenFile, CheckpointError> {
        self.file.sync().map_err(|reason| cannot_write(&self.path, reason))?;
        let places = self.starts_bytes.into_iter().zip(self.hashes);
        let piece = |(entry, (offset, hashes))| WrittenPiece::new(entry, offset, hashes);
        Ok(WrittenFile { record: self.record, pieces: entries.iter().zip(places).map(piece).collect() })
    }
}

fn cannot_write(path: &Path, reason: std::io::Error) -> CheckpointError {
    CheckpointError::Write { path: path.into(), reason }
}
