//! Which format a file has, by its first bytes.

use crate::compressed::Compression;

/// A format that its first bytes distinguish from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// gzip or zstd around something else.
    Compressed(Compression),
    /// A table of parquet.
    Parquet,
    /// An Arrow file, which is also called Feather.
    ArrowFile,
    /// An Arrow stream: the same messages without a footer.
    ArrowStream,
    /// A format that is named and not read: "an archive of zip".
    Other(&'static str),
}

/// Archives and compressions that are not read, by their first bytes.
const OTHERS: [(&[u8], &str); 13] = [
    (b"\xfd7zXZ\0", "compressed by xz"),
    (b"BZh", "compressed by bzip2"),
    (b"PK\x03\x04", "an archive of zip, as weights of PyTorch are"),
    (b"7z\xbc\xaf\x27\x1c", "an archive of 7-Zip"),
    (b"ORC", "a table of ORC"),
    (b"Obj\x01", "a table of Avro"),
    (b"FEA1", "a table of the first version of Feather"),
    (b"GGUF", "weights in GGUF"),
    (b"\x80\x02}q", "pickled, as old weights of PyTorch are"),
    (b"\x93NUMPY", "an array of NumPy"),
    (b"\x89HDF\r\n", "a file of HDF5"),
    (b"%PDF-", "a document of PDF"),
    (b"\x89PNG\r\n", "an image of PNG"),
];
/// The most bytes of the header of a file of safetensors.
const MOST_HEADER_BYTES: u64 = 100_000_000;

/// A length of 64 bits, and a JSON object of that length: text has no zero bytes there.
fn is_safetensors(bytes: &[u8]) -> bool {
    let Some((length, rest)) = bytes.split_first_chunk::<8>() else { return false };
    let length = u64::from_le_bytes(*length);
    (2..=MOST_HEADER_BYTES).contains(&length) && rest.starts_with(b"{\"")
}

/// Where an archive of tar says that it is one.
const TAR_MARK: std::ops::Range<usize> = 257..262;

impl Format {
    /// Bytes from the beginning that distinguish formats.
    pub const BEGINNING_BYTES: usize = 512;

    /// The format of a file that begins with `bytes`; `None` for text and for what is not known.
    pub fn of(bytes: &[u8]) -> Option<Format> {
        if let Some(compression) = Compression::of(bytes) {
            return Some(Format::Compressed(compression));
        }
        if bytes.starts_with(b"PAR1") || bytes.starts_with(b"PARE") {
            return Some(Format::Parquet);
        }
        if bytes.starts_with(b"ARROW1") {
            return Some(Format::ArrowFile);
        }
        // The mark of a message, and a length that text does not have there.
        if bytes.starts_with(&[0xff; 4]) && bytes.get(6..8) == Some(&[0, 0]) {
            return Some(Format::ArrowStream);
        }
        if is_safetensors(bytes) {
            return Some(Format::Other("weights in safetensors"));
        }
        if bytes.get(TAR_MARK) == Some(b"ustar") {
            return Some(Format::Other("an archive of tar"));
        }
        OTHERS.into_iter().find(|(beginning, _)| bytes.starts_with(beginning)).map(|(_, name)| Format::Other(name))
    }
}
