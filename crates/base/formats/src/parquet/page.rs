//! Pages: a header, then levels and values, compressed together or apart.

use flate2::Crc;

use super::codec::decompress;
use super::columns::Column;
use super::footer::Chunk;
use super::runs::Runs;
use super::thrift::{Kind, Read, Reader};
use super::values::{Dictionary, Values};
use crate::error::Problem;
use crate::growth::Growth;

/// The most bytes of a page, compressed or not.
pub const MOST_BYTES: u64 = 256 << 20;
/// The most bytes of a page's header, which may hold the smallest and the largest value.
const MOST_HEADER_BYTES: usize = 16 << 20;
/// The most values of a page.
const MOST_VALUES: u64 = 1 << 26;

/// The use of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageKind {
    Data,
    DataV2,
    Dictionary,
    /// Nothing that is read here.
    Other,
}

#[derive(Clone, Copy, Debug)]
struct Header {
    kind: PageKind,
    bytes: usize,
    packed_bytes: usize,
    crc: Option<u32>,
    num_values: u64,
    encoding: i64,
    definition_encoding: i64,
    repetition_encoding: i64,
    definition_bytes: usize,
    repetition_bytes: usize,
    is_compressed: bool,
}

/// Levels and values of a page that are still to come.
#[derive(Debug)]
pub struct Page {
    /// The page, decompressed.
    pub bytes: Vec<u8>,
    /// Values that are left, and places of none.
    pub left: u64,
    pub repetition: Option<Runs>,
    pub definition: Option<Runs>,
    pub values: Values,
}

/// The next thing in a chunk.
pub enum Next {
    Page(Box<Page>),
    Dictionary(Dictionary),
    /// A page that is skipped.
    Nothing,
}

/// Reads the page at the front of `bytes`, which are what is left of `chunk`; with the bytes that it has.
pub fn read(
    bytes: &[u8],
    chunk: &Chunk,
    column: &Column,
    has_dictionary: bool,
    growth: &mut Growth,
) -> Result<(Next, usize), Problem> {
    let mut reader = Reader::new(&bytes[..bytes.len().min(MOST_HEADER_BYTES)]);
    let header = header(&mut reader)?;
    let start = reader.at();
    for size in [header.bytes as u64, header.packed_bytes as u64] {
        if size > MOST_BYTES {
            return Err(Problem::TooLarge { what: "a page", bytes: size, limit_bytes: MOST_BYTES });
        }
    }
    if header.num_values > MOST_VALUES {
        let what = format!("a page of {} values", header.num_values);
        return Err(Problem::Unsupported { what, remedy: "write smaller pages" });
    }
    let packed = bytes.get(start..start + header.packed_bytes).ok_or(Problem::Truncated("a page"))?;
    let end = start + header.packed_bytes;
    if let Some(expected) = header.crc {
        let mut crc = Crc::new();
        crc.update(packed);
        if crc.sum() != expected {
            return Err(Problem::damaged(format!("the CRC of a page is {:08x}, not {expected:08x}", crc.sum())));
        }
    }
    growth.add(header.bytes as u64)?;
    let next = match header.kind {
        PageKind::Other => Next::Nothing,
        PageKind::Dictionary => {
            if has_dictionary {
                return Err(Problem::damaged("a second dictionary"));
            }
            let mut content = Vec::new();
            decompress(chunk.codec, packed, header.bytes, &mut content)?;
            Next::Dictionary(Dictionary::read(content, header.num_values, header.encoding, column.physical)?)
        }
        PageKind::Data => {
            let mut content = Vec::new();
            decompress(chunk.codec, packed, header.bytes, &mut content)?;
            Next::Page(Box::new(first_version(&header, content, column)?))
        }
        PageKind::DataV2 => Next::Page(Box::new(second_version(&header, packed, chunk, column)?)),
    };
    Ok((next, end))
}

/// Levels are in front of the values, each kind after its length.
fn first_version(header: &Header, bytes: Vec<u8>, column: &Column) -> Result<Page, Problem> {
    let mut at = 0;
    let mut levels = |most: u32, encoding: i64| -> Result<Option<Runs>, Problem> {
        if most == 0 {
            return Ok(None);
        }
        if encoding != RLE {
            let what = format!("levels in encoding {encoding}");
            return Err(Problem::Unsupported { what, remedy: "write it again with a newer program" });
        }
        let early = || Problem::damaged("levels of a page end too early");
        let word = bytes.get(at..at + 4).ok_or_else(early)?;
        let count = u32::from_le_bytes([word[0], word[1], word[2], word[3]]) as usize;
        let range = at + 4..(at + 4).checked_add(count).filter(|end| *end <= bytes.len()).ok_or_else(early)?;
        at = range.end;
        Runs::new(range, width(most)).map(Some)
    };
    let repetition = levels(column.max_repetition, header.repetition_encoding)?;
    let definition = levels(column.max_definition, header.definition_encoding)?;
    let values = Values::begin(&bytes, at, header.encoding, column.physical)?;
    Ok(Page { bytes, left: header.num_values, repetition, definition, values })
}

/// Levels are not compressed, and their lengths are in the header.
fn second_version(header: &Header, packed: &[u8], chunk: &Chunk, column: &Column) -> Result<Page, Problem> {
    let (first, second) = (header.repetition_bytes, header.definition_bytes);
    let levels = first.checked_add(second).filter(|levels| *levels <= packed.len().min(header.bytes));
    let levels = levels.ok_or_else(|| Problem::damaged("levels are longer than their page"))?;
    let mut bytes = packed[..levels].to_vec();
    let codec = if header.is_compressed { chunk.codec } else { 0 };
    // Without values there is nothing that was compressed.
    if header.bytes > levels || packed.len() > levels {
        decompress(codec, &packed[levels..], header.bytes - levels, &mut bytes)?;
    }
    let repetition = (column.max_repetition > 0).then(|| Runs::new(0..first, width(column.max_repetition)));
    let definition = (column.max_definition > 0).then(|| Runs::new(first..levels, width(column.max_definition)));
    let values = Values::begin(&bytes, levels, header.encoding, column.physical)?;
    let (repetition, definition) = (repetition.transpose()?, definition.transpose()?);
    Ok(Page { bytes, left: header.num_values, repetition, definition, values })
}

const RLE: i64 = 3;

/// Bits of levels up to `most`.
fn width(most: u32) -> u32 {
    32 - most.leading_zeros()
}

fn header(reader: &mut Reader) -> Result<Header, Problem> {
    let mut header = Header {
        kind: PageKind::Other,
        bytes: 0,
        packed_bytes: 0,
        crc: None,
        num_values: 0,
        encoding: 0,
        definition_encoding: RLE,
        repetition_encoding: RLE,
        definition_bytes: 0,
        repetition_bytes: 0,
        is_compressed: true,
    };
    reader.fields(|reader, number, kind| {
        match (number, kind) {
            (1, Kind::Integer) => {
                header.kind = match reader.integer()? {
                    0 => PageKind::Data,
                    2 => PageKind::Dictionary,
                    3 => PageKind::DataV2,
                    _ => PageKind::Other,
                }
            }
            (2, Kind::Integer) => header.bytes = reader.length()?,
            (3, Kind::Integer) => header.packed_bytes = reader.length()?,
            (4, Kind::Integer) => header.crc = Some(reader.integer()? as u32),
            (5 | 7, Kind::Struct) => reader.fields(|reader, number, kind| {
                match (number, kind) {
                    (1, Kind::Integer) => header.num_values = reader.length()? as u64,
                    (2, Kind::Integer) => header.encoding = reader.integer()?,
                    (3, Kind::Integer) => header.definition_encoding = reader.integer()?,
                    (4, Kind::Integer) => header.repetition_encoding = reader.integer()?,
                    _ => return Ok(Read::No),
                }
                Ok(Read::Yes)
            })?,
            (8, Kind::Struct) => reader.fields(|reader, number, kind| {
                match (number, kind) {
                    (1, Kind::Integer) => header.num_values = reader.length()? as u64,
                    (4, Kind::Integer) => header.encoding = reader.integer()?,
                    (5, Kind::Integer) => header.definition_bytes = reader.length()?,
                    (6, Kind::Integer) => header.repetition_bytes = reader.length()?,
                    (7, Kind::True) => header.is_compressed = true,
                    (7, Kind::False) => header.is_compressed = false,
                    _ => return Ok(Read::No),
                }
                Ok(Read::Yes)
            })?,
            _ => return Ok(Read::No),
        }
        Ok(Read::Yes)
    })?;
    Ok(header)
}
