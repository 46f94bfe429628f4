//! The header of a safetensors file that is to be written.

use config::Format;

use crate::number;

/// A header longer than this is one of something else.
pub(crate) const MAX_HEADER_BYTES: u64 = 32 << 20;
/// The first tensor starts on a multiple of this.
const ALIGN_BYTES: usize = 64;

/// A tensor to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorEntry {
    pub name: String,
    pub shape: Vec<usize>,
}

/// The beginning of a file, and where its tensors are, one after the other.
#[derive(Debug)]
pub(crate) struct Header {
    /// The length of the text, and the text.
    pub(crate) bytes: Vec<u8>,
    /// Place of each tensor in the file.
    pub(crate) starts_bytes: Vec<u64>,
    /// Length of the file.
    pub(crate) len_bytes: u64,
}

/// The header of a file of `entries`, in their order, whose numbers are all of `format`.
pub(crate) fn header(entries: &[TensorEntry], format: Format) -> Header {
    let mut text = serde_json::Map::new();
    let mut starts_bytes = Vec::with_capacity(entries.len());
    let mut end_bytes = 0u64;
    for TensorEntry { name, shape } in entries {
        let start_bytes = end_bytes;
        end_bytes += (shape.iter().product::<usize>() * format.size_bytes()) as u64;
        let entry = serde_json::json!({ "dtype": number::name_of(format), "shape": shape, "data_offsets": [start_bytes, end_bytes] });
        text.insert(name.clone(), entry);
        starts_bytes.push(start_bytes);
    }
    let mut text = serde_json::Value::Object(text).to_string().into_bytes();
    // The format lets a header end in spaces.
    text.resize((text.len() + 8).next_multiple_of(ALIGN_BYTES) - 8, b' ');
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend(text);
    let data_start_bytes = bytes.len() as u64;
    starts_bytes.iter_mut().for_each(|start| *start += data_start_bytes);
    Header { bytes, starts_bytes, len_bytes: data_start_bytes + end_bytes }
}
