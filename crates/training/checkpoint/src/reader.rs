//! Boxes of tensors from a safetensors file, in single precision or narrow. Only what is asked for is read.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use config::Format;
use files::InputKind;
use mesh::{CopyRun, Region, copy_runs};
use safetensors::tensor::Metadata;
use sync::lock;

use crate::error::FileError;
use crate::header::MAX_HEADER_BYTES;
use crate::number;

/// Elements that are read at once.
const CHUNK_LEN: usize = 1 << 20;
/// Elements that are read for nothing rather than left out by a read of their own: about what the system reads at once
/// anyway.
const NEAR_LEN: usize = 1 << 10;

/// An open file of tensors.
#[derive(Debug)]
pub struct TensorReader {
    path: PathBuf,
    file: Mutex<File>,
    tensors: BTreeMap<String, Stored>,
    read_bytes: AtomicU64,
}

#[derive(Debug)]
struct Stored {
    shape: Vec<usize>,
    start_bytes: u64,
    format: Format,
}

impl TensorReader {
    /// Opens the file and reads its header.
    ///
    /// # Errors
    /// A file that is not there, is cut short, or holds something else than floats of 4 or 2 bytes.
    pub fn open(path: &Path) -> Result<TensorReader, FileError> {
        let unreadable = |reason| FileError::Read { path: path.to_path_buf(), reason };
        let malformed = |reason: String| FileError::Format { path: path.to_path_buf(), reason };
        let mut file = files::open(path, InputKind::Data).map_err(|error| unreadable(error.into()))?;
        let len_bytes = file.metadata().map_err(unreadable)?.len();
        let mut prefix = [0; 8];
        file.read_exact(&mut prefix).map_err(|_| malformed(format!("it has {len_bytes} bytes")))?;
        let header_bytes = u64::from_le_bytes(prefix);
        if header_bytes > MAX_HEADER_BYTES.min(len_bytes - 8) {
            return Err(malformed(format!("its first 8 bytes promise a header of {header_bytes} bytes")));
        }
        let mut buffer = prefix.to_vec();
        buffer.resize(8 + header_bytes as usize, 0);
        file.read_exact(&mut buffer[8..]).map_err(unreadable)?;
        let metadata: Metadata =
            serde_json::from_slice(&buffer[8..]).map_err(|error| malformed(format!("its header: {error}")))?;
        let data_start_bytes = buffer.len() as u64;
        let (described_bytes, found_bytes) = (metadata.data_len() as u64, len_bytes - data_start_bytes);
        if described_bytes != found_bytes {
            let end = if found_bytes < described_bytes { "it was cut off" } else { "it is longer than that" };
            return Err(malformed(format!(
                "its header describes {described_bytes} bytes of data, it has {found_bytes}: {end}; copy or download it again"
            )));
        }
        let mut tensors = BTreeMap::new();
        for (name, info) in metadata.tensors() {
            let Some(format) = number::format_of(info.dtype) else {
                let dtype = format!("{:?}", info.dtype);
                return Err(FileError::Dtype { path: path.to_path_buf(), tensor: name, dtype });
            };
            let start_bytes = data_start_bytes + info.data_offsets.0 as u64;
            tensors.insert(name, Stored { shape: info.shape.clone(), start_bytes, format });
        }
        let read_bytes = AtomicU64::new(data_start_bytes);
        Ok(TensorReader { path: path.to_path_buf(), file: Mutex::new(file), tensors, read_bytes })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes that were read of the file so far, its header among them.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// The names of all tensors, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The shape of tensor `name`, if the file has it.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.tensors.get(name).map(|stored| stored.shape.as_slice())
    }

    /// Assigns all of `values`, row-major: box `region` of tensor `name`, which the file has.
    ///
    /// # Errors
    /// A file that cannot be read.
    ///
    /// # Panics
    /// When the file has no such tensor, or the box is outside of it.
    pub fn get(&self, name: &str, region: &Region, values: &mut [f32]) -> Result<(), FileError> {
        let stored = &self.tensors[name];
        let whole = Region::whole(&stored.shape);
        assert!(whole.contains(region) && values.len() == region.len(), "box {region:?} of {name} {:?}", stored.shape);
        let runs = copy_runs(&whole, region);
        // Pieces far apart are read alone; near ones, as many as fit together with what is between them.
        let mut buffer = Vec::new();
        let mut rest = runs.as_slice();
        while let Some(first) = rest.first() {
            let fits = |end: usize| end <= first.source + CHUNK_LEN;
            let is_near = |pair: &[CopyRun]| pair[1].source - (pair[0].source + pair[0].len) <= NEAR_LEN;
            let count =
                1 + rest.windows(2).take_while(|pair| is_near(pair) && fits(pair[1].source + pair[1].len)).count();
            let (together, behind) = rest.split_at(count);
            let end = together.last().map_or(first.source, |run| run.source + run.len);
            let element_bytes = stored.format.size_bytes();
            buffer.resize((end - first.source) * element_bytes, 0u8);
            self.read(stored.start_bytes + (first.source * element_bytes) as u64, &mut buffer)?;
            for run in together {
                let source = (run.source - first.source) * element_bytes..;
                number::widen(stored.format, &buffer[source], &mut values[run.target..run.target + run.len]);
            }
            rest = behind;
        }
        Ok(())
    }

    fn read(&self, start_bytes: u64, bytes: &mut [u8]) -> Result<(), FileError> {
        // The position is set before each read, so a thread that panicked between the two does not affect the next one.
        let mut file = lock(&self.file);
        let read = file.seek(SeekFrom::Start(start_bytes)).and_then(|_| file.read_exact(bytes));
        read.map_err(|reason| FileError::Read { path: self.path.clone(), reason })?;
        self.read_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}
