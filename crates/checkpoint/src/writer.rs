//! A safetensors file that comes into being at once: boxes go to a temporary file, which takes the name when it is whole.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mesh::{Region, copy_runs};

use crate::error::FileError;
use crate::partial::Partial;

/// Bytes of an element.
const ELEMENT_BYTES: usize = 4;
/// The first tensor starts on a multiple of this.
const HEADER_ALIGN_BYTES: usize = 64;

/// A tensor to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorEntry {
    /// Its name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
}

/// Takes boxes of tensors of 4-byte floats. Until [`TensorWriter::finish`] succeeds, whatever the file's name stood for before stays as it is.
#[derive(Debug)]
pub struct TensorWriter {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    partial: Partial,
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
    /// Makes the temporary file beside `path`, with room for `entries` that is taken now.
    ///
    /// # Errors
    /// A folder that cannot be written, a disk without room, another process that writes the same file.
    pub fn create(path: &Path, entries: &[TensorEntry]) -> Result<TensorWriter, FileError> {
        let (header, slots, len_bytes) = layout(entries);
        let mut partial = Partial::create(path, len_bytes)?;
        let begun = partial.file.write_all(&header);
        begun.map_err(|reason| FileError::Write { path: path.to_path_buf(), reason })?;
        Ok(TensorWriter { path: path.to_path_buf(), state: Mutex::new(State { partial, slots, failure: None }) })
    }

    /// Takes `values`, row-major: box `region` of tensor `name`. A failure is kept for [`TensorWriter::finish`], so that
    /// ranks that deliver need not stop each other.
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
        let State { partial, slots, failure } = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
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
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn put(&mut self, name: &str, region: &Region, values: &[f32]) -> io::Result<()> {
        let slot = self.slots.get_mut(name).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("the file was made without a tensor {name}"))
        })?;
        for run in copy_runs(region, &Region::whole(&slot.shape)) {
            self.partial.file.seek(SeekFrom::Start(slot.start_bytes + (run.target * ELEMENT_BYTES) as u64))?;
            write_floats(&mut self.partial.file, &values[run.source..run.source + run.len])?;
        }
        slot.received += values.len();
        Ok(())
    }
}

/// Little-endian, as the format says.
fn write_floats(file: &mut File, values: &[f32]) -> io::Result<()> {
    if cfg!(target_endian = "little") {
        return file.write_all(bytemuck::cast_slice(values));
    }
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    file.write_all(&bytes)
}

/// The header with its length, the place of every tensor and the length of the file.
fn layout(entries: &[TensorEntry]) -> (Vec<u8>, BTreeMap<String, Slot>, u64) {
    let mut header = serde_json::Map::new();
    let mut slots = BTreeMap::new();
    let mut end_bytes = 0u64;
    for TensorEntry { name, shape } in entries {
        let start_bytes = end_bytes;
        end_bytes += (shape.iter().product::<usize>() * ELEMENT_BYTES) as u64;
        let entry = serde_json::json!({ "dtype": "F32", "shape": shape, "data_offsets": [start_bytes, end_bytes] });
        header.insert(name.clone(), entry);
        slots.insert(name.clone(), Slot { shape: shape.clone(), start_bytes, received: 0 });
    }
    let mut text = serde_json::Value::Object(header).to_string().into_bytes();
    // The format lets a header end in spaces.
    text.resize((text.len() + 8).next_multiple_of(HEADER_ALIGN_BYTES) - 8, b' ');
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend(text);
    let data_start_bytes = bytes.len() as u64;
    slots.values_mut().for_each(|slot| slot.start_bytes += data_start_bytes);
    (bytes, slots, data_start_bytes + end_bytes)
}
