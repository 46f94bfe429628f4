//! A checkpoint to read: boxes of tensors, whatever boxes were saved, every byte compared with its hash.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use files::{InputError, InputKind};
use mesh::{CopyRun, Region};
use sync::lock;

use crate::checkpoint_error::CheckpointError;
use crate::checkpoint_folder::SavedIn;
use crate::cover::cover;
use crate::data_files::{DataFiles, FolderFiles};
use crate::hash::{BLOCK_BYTES, Hash};
use crate::manifest::{ELEMENT_BYTES, FORMAT, FileRecord, MANIFEST, Manifest, ManifestError, PieceRecord, RunState};
use crate::step_names::named_steps;

/// Elements of a block.
const BLOCK_LEN: usize = BLOCK_BYTES / ELEMENT_BYTES;

/// A checkpoint whose manifest is sound and whose files have their lengths.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    manifest: Manifest,
    /// None until they are found, where they are elsewhere.
    files: OnceLock<Box<dyn DataFiles>>,
    /// Files whose headers were found sound.
    opened: Vec<OnceLock<()>>,
    /// Held by the one thread that opens a file: each header is read once, however many ranks ask for it.
    opening: Mutex<()>,
    bytes_read: AtomicU64,
    damage: OnceLock<String>,
}

impl Checkpoint {
    /// Opens the checkpoint in the folder `path`: reads its manifest, and looks whether its files are there.
    ///
    /// # Errors
    /// A manifest that is damaged or of a later format, files that are missing or of another length.
    pub fn open(path: &Path) -> Result<Checkpoint, CheckpointError> {
        let checkpoint = Checkpoint::open_manifest(path)?;
        checkpoint.find(FolderFiles::find(path, &checkpoint.manifest)?);
        Ok(checkpoint)
    }

    /// Opens a checkpoint as [`Checkpoint::open`] does, with the files in `data`; in memory they are still to be found.
    ///
    /// # Errors
    /// The errors of [`Checkpoint::open`].
    pub fn open_in(path: &Path, data: SavedIn) -> Result<Checkpoint, CheckpointError> {
        match data {
            SavedIn::Disk => Checkpoint::open(path),
            SavedIn::Memory => Checkpoint::open_manifest(path),
        }
    }

    fn open_manifest(path: &Path) -> Result<Checkpoint, CheckpointError> {
        let manifest = read_manifest(path)?;
        let opened = manifest.files.iter().map(|_| OnceLock::new()).collect();
        let (files, opening, bytes_read, damage) =
            (OnceLock::new(), Mutex::new(()), AtomicU64::new(0), OnceLock::new());
        Ok(Checkpoint { path: path.to_path_buf(), manifest, files, opened, opening, bytes_read, damage })
    }

    /// From now on the data are read from `files`. They are found once.
    pub fn find(&self, files: impl DataFiles + 'static) {
        let _ = self.files.set(Box::new(files));
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its content.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Where its run stood.
    pub fn state(&self) -> &RunState {
        &self.manifest.state
    }

    /// The shape of tensor `name`, if it has it.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.manifest.tensors.get(name).map(|tensor| tensor.shape.as_slice())
    }

    /// Bytes that were read from its files with data so far, by all threads.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// The first damage that a read found.
    pub fn damage(&self) -> Option<&str> {
        self.damage.get().map(String::as_str)
    }

    /// Assigns all of `values`, row-major: box `region` of tensor `name`. Of the files only blocks are read that the
    /// box touches, each once, and all of them are compared with their hashes.
    ///
    /// # Errors
    /// Damage of the checkpoint, or a tensor that it does not have.
    ///
    /// # Panics
    /// When the box has other dims than the tensor, or `values` another length than the box.
    pub fn get(&self, name: &str, region: &Region, values: &mut [f32]) -> Result<(), CheckpointError> {
        let read = self.assemble(name, region, values);
        if let Err(error) = &read
            && error.is_damage()
        {
            // The first error is reported.
            let _ = self.damage.set(error.to_string());
        }
        read
    }

    fn assemble(&self, name: &str, region: &Region, values: &mut [f32]) -> Result<(), CheckpointError> {
        assert_eq!(values.len(), region.len(), "box {region:?} of {name}");
        let Some(tensor) = self.manifest.tensors.get(name) else {
            return Err(CheckpointError::NoTensor { path: self.path.clone(), tensor: name.into() });
        };
        let saved: Vec<Region> = tensor.pieces.iter().map(PieceRecord::region).collect();
        let uncovered =
            |reason: String| CheckpointError::Uncovered { path: self.path.clone(), tensor: name.into(), reason };
        for share in cover(&saved, region).map_err(|error| uncovered(error.to_string()))? {
            let mut blocks = Blocks { checkpoint: self, tensor: name, piece: &tensor.pieces[share.piece], block: None };
            share.runs.iter().try_for_each(|run| blocks.copy(run, values))?;
        }
        Ok(())
    }

    /// Reads everything and compares it with its hashes: all damage that there is.
    pub fn verify(&self) -> Vec<CheckpointError> {
        let mut damage = Vec::new();
        let mut buffer = vec![0; BLOCK_BYTES];
        for (file, pieces) in self.manifest.pieces_of_files().into_iter().enumerate() {
            if let Err(error) = self.open_file(file) {
                damage.push(error);
                continue;
            }
            for (tensor, piece) in pieces {
                let read = |index| {
                    let (_, len) = piece.block(index);
                    self.read_block(tensor, piece, index, &mut buffer[..len])
                };
                damage.extend((0..piece.xxh3.len()).map(read).filter_map(Result::err));
            }
        }
        damage
    }

    /// Compares the header of file number `index`, once.
    fn open_file(&self, index: usize) -> Result<(), CheckpointError> {
        if self.opened[index].get().is_some() {
            return Ok(());
        }
        // The guarded value is always consistent, also after a panic of a thread.
        let _opening = lock(&self.opening);
        if self.opened[index].get().is_some() {
            return Ok(());
        }
        let FileRecord { name, header_bytes, header_xxh3, .. } = &self.manifest.files[index];
        let path = self.path.join(name);
        let mut header = vec![0; *header_bytes as usize];
        self.read_copies(name, &mut header, 0, *header_xxh3, |found| CheckpointError::Header {
            path: path.clone(),
            len_bytes: *header_bytes,
            found: found.to_string(),
            expected: header_xxh3.to_string(),
        })?;
        self.opened[index].get_or_init(|| ());
        Ok(())
    }

    /// Fills `bytes` from the first copy of the file `name` that has the hash `expected` there. `damaged` is the error
    /// of another hash.
    fn read_copies(
        &self,
        name: &str,
        bytes: &mut [u8],
        offset_bytes: u64,
        expected: Hash,
        damaged: impl Fn(Hash) -> CheckpointError,
    ) -> Result<(), CheckpointError> {
        let missing = || CheckpointError::Read {
            path: self.path.join(name),
            reason: std::io::Error::new(std::io::ErrorKind::NotFound, "there is no copy of it"),
        };
        let files = self.files.get().ok_or_else(missing)?;
        let mut errors: Vec<CheckpointError> = vec![];
        for copy in 0..files.copies(name) {
            let read = files.read(name, copy, bytes, offset_bytes);
            let read = read.map_err(|reason| CheckpointError::Read { path: self.path.join(name), reason });
            let found = read.map(|()| {
                self.bytes_read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                Hash::of(bytes)
            });
            match found {
                Ok(found) if found == expected => {
                    errors.iter().enumerate().for_each(|(copy, error)| files.replaced(name, copy, error));
                    return Ok(());
                }
                Ok(found) => errors.push(damaged(found)),
                Err(error) => errors.push(error),
            }
        }
        Err(errors.into_iter().next().unwrap_or_else(missing))
    }

    /// Fills `bytes`, as many as block `index` of `piece` has.
    fn read_block(
        &self,
        tensor: &str,
        piece: &PieceRecord,
        index: usize,
        bytes: &mut [u8],
    ) -> Result<(), CheckpointError> {
        let (start_bytes, len) = piece.block(index);
        self.open_file(piece.file)?;
        let (name, expected) = (&self.manifest.files[piece.file].name, piece.xxh3[index]);
        self.read_copies(name, bytes, start_bytes, expected, |found| CheckpointError::Block {
            path: self.path.join(name),
            tensor: tensor.into(),
            start_bytes,
            end_bytes: start_bytes + len as u64,
            found: found.to_string(),
            expected: expected.to_string(),
        })
    }
}

/// The manifest in the folder `path` of a checkpoint.
///
/// # Errors
/// One that is damaged, of a later format, or of another step than its folder's name.
pub fn read_manifest(path: &Path) -> Result<Manifest, CheckpointError> {
    let file = path.join(MANIFEST);
    let unreadable = |error: InputError| CheckpointError::Read { path: file.clone(), reason: error.into() };
    let bytes = files::read(&file, InputKind::Manifest).map_err(unreadable)?;
    let manifest = Manifest::parse(&bytes).map_err(|error| match error {
        ManifestError::Malformed(reason) => CheckpointError::Manifest { path: file.clone(), reason },
        ManifestError::Newer(found) => CheckpointError::Newer { path: file.clone(), found, known: FORMAT },
    })?;
    let steps = manifest.state.steps;
    if let Some(named) = named_steps(path).filter(|named| *named != steps) {
        let reason = format!("it is of step {steps}, and its folder has the name of step {named}");
        return Err(CheckpointError::Manifest { path: file, reason });
    }
    Ok(manifest)
}

/// The blocks of one piece, for runs in ascending order.
struct Blocks<'a> {
    checkpoint: &'a Checkpoint,
    tensor: &'a str,
    piece: &'a PieceRecord,
    /// The block that was read last.
    block: Option<(usize, Vec<f32>)>,
}

impl Blocks<'_> {
    /// Copies what `run` says from the piece to `values`.
    fn copy(&mut self, run: &CopyRun, values: &mut [f32]) -> Result<(), CheckpointError> {
        let mut done = 0;
        while done < run.len {
            let (index, place) = ((run.source + done) / BLOCK_LEN, (run.source + done) % BLOCK_LEN);
            let block_len = self.piece.block(index).1 / ELEMENT_BYTES;
            let len = (block_len - place).min(run.len - done);
            let target = &mut values[run.target + done..run.target + done + len];
            if len == block_len {
                // A whole block goes where it belongs.
                self.read(index, target)?;
            } else {
                target.copy_from_slice(&self.block(index, block_len)?[place..place + len]);
            }
            done += len;
        }
        Ok(())
    }

    fn block(&mut self, index: usize, len: usize) -> Result<&[f32], CheckpointError> {
        let mut buffer = match self.block.take() {
            Some((read, buffer)) if read == index => return Ok(&self.block.insert((read, buffer)).1),
            Some((_, buffer)) => buffer,
            None => Vec::new(),
        };
        buffer.resize(len, 0.0);
        self.read(index, &mut buffer)?;
        Ok(&self.block.insert((index, buffer)).1)
    }

    fn read(&self, index: usize, values: &mut [f32]) -> Result<(), CheckpointError> {
        self.checkpoint.read_block(self.tensor, self.piece, index, bytemuck::cast_slice_mut(values))?;
        if cfg!(target_endian = "big") {
            values.iter_mut().for_each(|value| *value = f32::from_bits(value.to_bits().swap_bytes()));
        }
        Ok(())
    }
}
