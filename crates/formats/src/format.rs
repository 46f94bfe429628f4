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
const OTHERS: [(&[u8], &str); 7] = [
    (b"\xfd7zXZ\0", "compressed by xz"),
    (b"BZh", "compressed by bzip2"),
    (b"PK\x03\x04", "an archive of zip"),
    (b"7z\xbc\xaf\x27\x1c", "an archive of 7-Zip"),
    (b"ORC", "a table of ORC"),
    (b"Obj\x01", "a table of Avro"),
    (b"FEA1", "a table of the first version of Feather"),
];
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
        if bytes.get(TAR_MARK) == Some(b"ustar") {
            return Some(Format::Other("an archive of tar"));
        }
        OTHERS.into_iter().find(|(beginning, _)| bytes.starts_with(beginning)).map(|(_, name)| Format::Other(name))
    }
}
