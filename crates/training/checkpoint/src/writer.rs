//! A safetensors file that comes into being at once: boxes go to a temporary file, which takes the name when it is
//! whole.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use config::Format;
use mesh::{Region, copy_runs};
use sync::{into_inner, lock};

use crate::error::FileError;
use crate::header::{TensorEntry, header};
use crate::number;
use crate::partial::Partial;

/// Takes boxes of tensors, whose numbers the file has in one format. Until [`TensorWriter::finish`] succeeds, whatever
/// the file's name stood for before stays as it is.
#[derive(Debug)]
pub struct TensorWriter {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    partial: Partial,
    format: Format,
    slots: BTreeMap<String, Slot>,
    failure: Option<io::Error>,
}

#[derive(Debug)]
struct Slot {
    shape: Vec<usize>,
    start_bytes: u64,
    received: usize,
}

impl Slot {
    fn len(&self) -> usize {
        self.shape.iter().product()
    }
}

impl TensorWriter {
    /// Creates the temporary file next to `path`, and allocates its room for `entries` in single precision.
    ///
    /// # Errors
    /// A folder that cannot be written, a disk without room, another process that writes the same file.
    pub fn create(path: &Path, entries: &[TensorEntry]) -> Result<TensorWriter, FileError> {
        TensorWriter::create_in(path, entries, Format::Fp32)
    }

    /// Returns the same as [`TensorWriter::create`], with numbers of `format`, to which each is rounded once.
    ///
    /// # Errors
    /// The errors of [`TensorWriter::create`].
    pub fn create_in(path: &Path, entries: &[TensorEntry], format: Format) -> Result<TensorWriter, FileError> {
        let header = header(entries, format);
        let mut partial = Partial::create(path, header.len_bytes)?;
        let slot = |entry: &TensorEntry, start_bytes: &u64| Slot {
            shape: entry.shape.clone(),
            start_bytes: *start_bytes,
            received: 0,
        };
        let slots = entries.iter().zip(&header.starts_bytes);
        let slots = slots.map(|(entry, start_bytes)| (entry.name.clone(), slot(entry, start_bytes))).collect();
        let begun = partial.file.write_all(&header.bytes);
        begun.map_err(|reason| FileError::Write { path: path.to_path_buf(), reason })?;
        Ok(TensorWriter {
            path: path.to_path_buf(),
            state: Mutex::new(State { partial, format, slots, failure: None }),
        })
    }

    /// Takes `values`, row-major: box `region` of tensor `name`. A failure is kept for [`TensorWriter::finish`], so
    /// that ranks that deliver need not stop each other.
    pub fn put(&self, name: &str, region: &Region, values: &[f32]) {
        let mut state = self.lock();
        if state.failure.is_none()
            && let Err(reason) = state.put(name, region, values)
        {
            state.failure = Some(reason);
        }
    }

    /// Brings everything to the disk and gives the file its name.
    ///
    /// # Errors
    /// The first failure of any [`TensorWriter::put`], elements that never came, or a disk that refuses.
    pub fn finish(self) -> Result<(), FileError> {
        let path = self.path;
        // A thread that panicked while it wrote has ended the run, and `finish` is not called.
        let State { partial, slots, failure, .. } = into_inner(self.state);
        let failed = |reason| FileError::Write { path: path.clone(), reason };
        if let Some(reason) = failure {
            return Err(failed(reason));
        }
        if let Some((name, slot)) = slots.iter().find(|(_, slot)| slot.received != slot.len()) {
            let (received, expected) = (slot.received, slot.len());
            return Err(FileError::Incomplete { path, tensor: name.clone(), received, expected });
        }
        partial.keep().map_err(failed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // As in `finish`.
        lock(&self.state)
    }
}

impl State {
    fn put(&mut self, name: &str, region: &Region, values: &[f32]) -> io::Result<()> {
        let slot = self.slots.get_mut(name).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("the file was made without a tensor {name}"))
        })?;
        for run in copy_runs(region, &Region::whole(&slot.shape)) {
            self.partial
                .file
                .seek(SeekFrom::Start(slot.start_bytes + (run.target * self.format.size_bytes()) as u64))?;
            write_numbers(&mut self.partial.file, &values[run.source..run.source + run.len], self.format)?;
        }
        slot.received += values.len();
        Ok(())
    }
}

/// Little-endian, as safetensors says.
fn write_numbers(file: &mut File, values: &[f32], format: Format) -> io::Result<()> {
    match format {
        // The bytes in memory are those of the file.
        Format::Fp32 if cfg!(target_endian = "little") => file.write_all(bytemuck::cast_slice(values)),
        Format::Fp32 | Format::Bf16 | Format::Fp16 => file.write_all(&number::narrow(format, values)),
    }
}
