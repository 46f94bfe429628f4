//! The manifest of a checkpoint: what it is the state of, which tensors it has, and where their pieces are.
//! `docs/checkpoint-format.md` says the same in words.

use std::collections::BTreeMap;

use config::KeptRunFile;
use mesh::Region;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::hash::{BLOCK_BYTES, Hash, num_blocks};
use crate::header::MAX_HEADER_BYTES;

/// Bytes of an element: checkpoints hold single precision.
pub(crate) const ELEMENT_BYTES: usize = 4;

/// The format that this program writes, and the latest that it reads.
pub const FORMAT: u32 = 1;
/// The name of the file.
pub const MANIFEST: &str = "manifest.json";

/// The beginning of a manifest; 16 digits follow, the hash of the file with zeros in their place.
const SEAL: &str = "{\"xxh3\":\"";
const DIGITS: usize = 16;
const UNSEALED: [u8; DIGITS] = [b'0'; DIGITS];

/// Where a run is between two steps, apart from its tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunState {
    /// Steps that are done.
    pub steps: u32,
    /// Sequences that they took: the position in the data.
    pub sequences: u64,
    /// Steps among them that overflowed and changed no weight; the optimizer has counted the others.
    pub skipped_steps: u32,
    /// The factor of the loss, where it is scaled.
    pub loss_scale: Option<LossScaleState>,
    /// Mean loss on held-out text after the last step, if it was measured then.
    pub held_out_loss: Option<f64>,
    /// Hash of the tokens that the run takes its sequences from. Where it is not known, other text is not noticed.
    #[serde(default)]
    pub data_xxh3: Option<Hash>,
    /// The losses and norms that later steps are compared with, where that may change weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spikes: Option<SpikeState>,
    /// The resolved run file. Whoever wrote the manifest wrote it.
    #[serde(serialize_with = "write_run", deserialize_with = "read_run")]
    pub run: KeptRunFile,
}

fn write_run<S: Serializer>(run: &KeptRunFile, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(run.to_text())
}

fn read_run<'de, D: Deserializer<'de>>(deserializer: D) -> Result<KeptRunFile, D::Error> {
    String::deserialize(deserializer).map(KeptRunFile::new)
}

/// The losses and norms of the last steps that updated weights, the oldest first; numbers are the bits of 64-bit
/// floats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpikeState {
    pub losses: Vec<u64>,
    /// Norms of their gradients.
    pub norms: Vec<u64>,
    /// The smoothed loss.
    pub smoothed: Option<u64>,
    /// The least smoothed loss.
    pub least: u64,
    /// Whether a divergence was reported from which the run has not recovered.
    pub has_diverged: bool,
}

/// A dynamic loss scale between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossScaleState {
    /// The factor of the next step's loss.
    pub factor: f32,
    /// Steps since the factor last changed or a step overflowed.
    pub finite_steps: u32,
    /// Overflows that are tolerated before the factor is halved.
    pub tolerated: u32,
}

/// The list of a checkpoint's files, tensors and hashes, with the state of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the format.
    pub format: u32,
    /// Version of the program that wrote it.
    pub build: String,
    /// Where the run is.
    pub state: RunState,
    /// The files with data.
    pub files: Vec<FileRecord>,
    /// Tensors by their global names.
    pub tensors: BTreeMap<String, TensorRecord>,
}

/// A file of pieces: a safetensors file whose tensors are the pieces, one after the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Its name in the folder of the checkpoint.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Length of its header; the first piece follows.
    pub header_bytes: u64,
    /// Hash of the header.
    pub header_xxh3: Hash,
}

/// A tensor of the model or of the optimizer, over all ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TensorRecord {
    /// Type of its elements, in the words of safetensors: `F32`.
    pub dtype: String,
    pub shape: Vec<usize>,
    /// Where its elements are; each is in one piece.
    pub pieces: Vec<PieceRecord>,
}

/// A box of a tensor, row-major.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PieceRecord {
    /// The first index along each dim.
    pub start: Vec<usize>,
    /// The number of indices along each dim.
    pub extent: Vec<usize>,
    /// Index of the file.
    pub file: usize,
    /// Place in the file.
    pub offset: u64,
    /// Hashes of its blocks of [`BLOCK_BYTES`].
    pub xxh3: Vec<Hash>,
}

impl PieceRecord {
    /// The box.
    pub fn region(&self) -> Region {
        Region { start: self.start.clone(), extent: self.extent.clone() }
    }

    /// Its length.
    pub fn len_bytes(&self) -> u64 {
        (self.extent.iter().product::<usize>() * ELEMENT_BYTES) as u64
    }

    /// First byte in the file, and length, of block `index`.
    pub(crate) fn block(&self, index: usize) -> (u64, usize) {
        let start = index as u64 * BLOCK_BYTES as u64;
        (self.offset + start, (self.len_bytes() - start).min(BLOCK_BYTES as u64) as usize)
    }
}

/// The reason why bytes are not a manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// They are not as they were written, or never were one.
    #[error("{0}")]
    Malformed(String),
    /// They are one of a format that is not known yet.
    #[error("its format is {0}")]
    Newer(u32),
}

/// The part of every format that says which it is.
#[derive(Deserialize)]
struct Version {
    format: u32,
}

impl Manifest {
    /// The file: JSON with a hash of itself in front.
    ///
    /// # Errors
    /// None that is known: everything in a manifest has a form in JSON.
    pub fn to_bytes(&self) -> serde_json::Result<Vec<u8>> {
        let body = serde_json::to_string(self)?;
        let unsealed = |digits: &str| format!("{SEAL}{digits}\",{}\n", &body[1..]).into_bytes();
        let hash = Hash::of(&unsealed("0000000000000000"));
        Ok(unsealed(&hash.to_string()))
    }

    /// Reads and checks what [`Manifest::to_bytes`] gave: its hash, and that its parts fit each other, so that whoever
    /// reads by it stays within its files and tensors.
    ///
    /// # Errors
    /// See [`ManifestError`].
    pub fn parse(bytes: &[u8]) -> Result<Manifest, ManifestError> {
        let malformed = |reason: &str| ManifestError::Malformed(reason.into());
        let digits = SEAL.len()..SEAL.len() + DIGITS;
        let written = bytes.get(digits.clone()).filter(|_| bytes.starts_with(SEAL.as_bytes()));
        let written = written.ok_or_else(|| malformed("it does not begin with its hash"))?;
        let mut unsealed = bytes.to_vec();
        unsealed[digits].copy_from_slice(&UNSEALED);
        let (found, written) = (Hash::of(&unsealed).to_string(), String::from_utf8_lossy(written));
        if found != written {
            return Err(ManifestError::Malformed(format!("its hash is {found}, and {written} was written")));
        }
        let of_json = |error: serde_json::Error| ManifestError::Malformed(error.to_string());
        let Version { format } = serde_json::from_slice(bytes).map_err(of_json)?;
        if format > FORMAT {
            return Err(ManifestError::Newer(format));
        }
        let manifest: Manifest = serde_json::from_slice(bytes).map_err(of_json)?;
        manifest.check().map_err(ManifestError::Malformed)?;
        Ok(manifest)
    }

    /// Whether it is of the same checkpoint as `other`: the two differ at most in the held-out loss, which is added
    /// after a measurement.
    pub(crate) fn has_same_data(&self, other: &Manifest) -> bool {
        let unmeasured = |manifest: &Manifest| {
            let state = RunState { held_out_loss: None, ..manifest.state.clone() };
            Manifest { state, ..manifest.clone() }
        };
        unmeasured(self) == unmeasured(other)
    }

    /// Bytes of all files with data.
    pub fn data_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// The pieces of each file in ascending order of their places, with the names of their tensors.
    pub fn pieces_of_files(&self) -> Vec<Vec<(&str, &PieceRecord)>> {
        let mut of_files = vec![Vec::new(); self.files.len()];
        for (name, tensor) in &self.tensors {
            for piece in &tensor.pieces {
                if let Some(pieces) = of_files.get_mut(piece.file) {
                    pieces.push((name.as_str(), piece));
                }
            }
        }
        of_files.iter_mut().for_each(|pieces| pieces.sort_by_key(|(_, piece)| piece.offset));
        of_files
    }

    /// Elements of a tensor that no piece holds, or that two hold; none if the manifest is complete.
    pub(crate) fn incomplete(&self) -> Option<(&str, usize, usize)> {
        self.tensors.iter().find_map(|(name, tensor)| {
            let len: usize = tensor.shape.iter().product();
            let saved: usize = tensor.pieces.iter().map(|piece| piece.region().len()).sum();
            (saved != len).then(|| (name.as_str(), len.abs_diff(saved), len))
        })
    }

    /// Whether every tensor and piece has a size, every piece is in its tensor, and the pieces of each file fill it
    /// after its header, so that every byte is in a hash.
    fn check(&self) -> Result<(), String> {
        if let Some(file) = self.files.iter().find(|file| !is_plain(&file.name)) {
            return Err(format!("{:?} is not the name of a file in its folder", file.name));
        }
        for (name, tensor) in &self.tensors {
            check_tensor(tensor, self.files.len()).map_err(|reason| format!("tensor {name}: {reason}"))?;
        }
        for (file, pieces) in self.files.iter().zip(self.pieces_of_files()) {
            if file.header_bytes > MAX_HEADER_BYTES {
                let (name, found) = (&file.name, file.header_bytes);
                return Err(format!("{name} has a header of {found} bytes; at most {MAX_HEADER_BYTES} are read"));
            }
            let mut end_bytes = file.header_bytes;
            for (name, piece) in pieces {
                if piece.offset != end_bytes {
                    let (found, name) = (piece.offset, &file.name);
                    return Err(format!("{name}: a piece is at byte {found} where {end_bytes} is expected"));
                }
                if piece.xxh3.len() as u64 != num_blocks(piece.len_bytes()) {
                    return Err(format!("tensor {name}: {} hashes of a piece", piece.xxh3.len()));
                }
                end_bytes = end_bytes.checked_add(piece.len_bytes()).ok_or("a file has no length")?;
            }
            if end_bytes != file.bytes {
                return Err(format!("{} has {} bytes, its pieces end at {end_bytes}", file.name, file.bytes));
            }
        }
        match self.incomplete() {
            Some((name, missing, len)) => Err(format!("{missing} of {len} elements of tensor {name} are in no piece")),
            None => Ok(()),
        }
    }
}

/// Whether a name stays in its folder on every system.
fn is_plain(name: &str) -> bool {
    let is_known = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && !name.starts_with('.') && name.chars().all(is_known)
}

fn check_tensor(tensor: &TensorRecord, num_files: usize) -> Result<(), String> {
    if tensor.dtype != "F32" {
        return Err(format!("elements of type {}; use F32", tensor.dtype));
    }
    let bytes = |shape: &[usize]| shape.iter().try_fold(ELEMENT_BYTES, |bytes, extent| bytes.checked_mul(*extent));
    if bytes(&tensor.shape).is_none() {
        return Err(format!("{:?} is more than can be addressed", tensor.shape));
    }
    let mut len_bytes = 0usize;
    for piece in &tensor.pieces {
        let is_inside = |((start, extent), size): ((&usize, &usize), &usize)| {
            start.checked_add(*extent).is_some_and(|end| end <= *size)
        };
        let dims = piece.start.len() == tensor.shape.len() && piece.extent.len() == tensor.shape.len();
        if !dims || !piece.start.iter().zip(&piece.extent).zip(&tensor.shape).all(is_inside) {
            return Err(format!(
                "a piece of {:?} from {:?} on is not in {:?}",
                piece.extent, piece.start, tensor.shape
            ));
        }
        if piece.file >= num_files {
            return Err(format!("a piece is in file {} of {num_files}", piece.file));
        }
        let sum = bytes(&piece.extent).and_then(|bytes| len_bytes.checked_add(bytes));
        len_bytes = sum.ok_or("its pieces are more than can be addressed")?;
    }
    Ok(())
}
