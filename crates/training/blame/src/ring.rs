//! The last instructions of one rank, in a file that the rank maps. Writing an entry allocates nothing and calls
//! nothing of the system but its clock; the system keeps the bytes when the process is killed. One rank writes, and any
//! process may read at the same time: see [`crate::entry_words`].
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write as _};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use memmap2::MmapMut;
use serde::{Deserialize, Serialize};

use crate::clock::now_ns;
use crate::entry_words::{self, ENTRY_WORDS};

/// Instructions that a rank remembers.
pub const RING_ENTRIES: usize = 20;

/// First bytes of a ring.
pub(crate) const MAGIC: &[u8; 8] = b"PLRING1\n";
/// Bytes of the header, which is JSON after the magic number and its length.
pub(crate) const HEADER_BYTES: usize = 8192;
pub(crate) const ENTRY_BYTES: usize = 192;
/// Bytes of the text of an entry.
pub(crate) const TEXT_BYTES: usize = ENTRY_BYTES - field::TEXT;
pub(crate) const RING_BYTES: usize = HEADER_BYTES + RING_ENTRIES * ENTRY_BYTES;
/// Members of a group that a header names one by one.
const NAMED_MEMBERS: usize = 64;

/// Places within an entry; numbers are little-endian.
pub(crate) mod field {
    /// Number of the entry, counted from 1; 0 while it is written.
    pub const NUMBER: usize = 0;
    pub const STEP: usize = 8;
    pub const PEER_KIND: usize = 12;
    pub const PEER: usize = 16;
    pub const TEXT_LEN: usize = 20;
    /// Nanoseconds since 1970-01-01.
    pub const BEGAN: usize = 24;
    /// The same; 0 while the instruction runs.
    pub const ENDED: usize = 32;
    pub const TEXT: usize = 40;
}

/// Facts of a rank that do not change while it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RingHeader {
    pub rank: usize,
    pub process: usize,
    pub host: String,
    /// Number that the system gave the process.
    pub pid: u32,
    /// Ranks of each group of the rank, by number of the group; a large group is left out.
    pub groups: BTreeMap<u8, Vec<usize>>,
}

/// The ranks that take part in an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peers {
    /// It is the rank's alone.
    None,
    /// The members of the group with this number in [`RingHeader::groups`].
    Group(u8),
    /// One other rank.
    Rank(usize),
}

/// The last instructions of a rank; the rank's own thread writes it.
#[derive(Debug)]
pub struct Ring {
    map: MmapMut,
    /// Number of the entry that was begun last.
    number: u64,
}

impl Ring {
    /// Makes the file at `path` and maps it.
    ///
    /// # Errors
    /// A file that cannot be made or mapped.
    pub fn create(path: &Path, header: &RingHeader) -> io::Result<Ring> {
        let file = files::recreate(path)?;
        // A write into a map for which the disk has no room would end the process.
        files::reserve(&file, RING_BYTES as u64)?;
        // SAFETY: bytes of any value are legal, and the map is written through `&mut self` alone. Another process may
        // read the file at the same time, by calls of the system; nothing but this crate writes to it.
        let mut map = unsafe { MmapMut::map_mut(&file)? };
        let named = header.groups.iter().filter(|(_, members)| members.len() <= NAMED_MEMBERS);
        let groups = named.map(|(number, members)| (*number, members.clone())).collect();
        let json = serde_json::to_vec(&RingHeader { groups, ..header.clone() })?;
        if json.len() > HEADER_BYTES - 12 {
            return Err(io::Error::other(format!("the header of a ring has {} bytes", json.len())));
        }
        map[8..12].copy_from_slice(&(json.len() as u32).to_le_bytes());
        map[12..12 + json.len()].copy_from_slice(&json);
        // A file with the first bytes has the rest of its header.
        fence(Ordering::Release);
        map[..8].copy_from_slice(MAGIC);
        Ok(Ring { map, number: 0 })
    }

    /// Notes that an instruction begins in `step`, counted from 1.
    pub fn begin(&mut self, step: u32, peers: Peers, instruction: impl Display) {
        self.number += 1;
        let mut fields = [0; ENTRY_WORDS - 1];
        let mut text = Text::default();
        // A text that is too long is cut.
        let _ = write!(text, "{instruction}");
        let (kind, peer) = match peers {
            Peers::None => (0, 0),
            Peers::Group(group) => (1, usize::from(group)),
            Peers::Rank(rank) => (2, rank),
        };
        put(&mut fields, field::STEP, u64::from(step));
        put(&mut fields, field::PEER_KIND, kind);
        put(&mut fields, field::PEER, u64::from(u32::try_from(peer).unwrap_or(u32::MAX)));
        put(&mut fields, field::TEXT_LEN, text.len as u64);
        put(&mut fields, field::BEGAN, now_ns());
        let words = text.bytes.as_chunks().0;
        let used = text.len.div_ceil(size_of::<u64>());
        let first = field::TEXT / size_of::<u64>() - 1;
        for (field, word) in fields[first..].iter_mut().zip(&words[..used]) {
            *field = u64::from_le_bytes(*word);
        }
        let number = self.number;
        entry_words::begin(self.entry(), number, &fields[..first + used]);
    }

    /// Notes that the instruction that was begun last has ended.
    pub fn end(&mut self) {
        if self.number > 0 {
            entry_words::end(self.entry(), now_ns());
        }
    }

    /// The words of the entry that was begun last.
    fn entry(&mut self) -> &[AtomicU64] {
        let slot = (self.number.max(1) - 1) as usize % RING_ENTRIES;
        let start = HEADER_BYTES + slot * ENTRY_BYTES;
        let bytes = &mut self.map[start..start + ENTRY_BYTES];
        // SAFETY: the map begins at a page, and entries at multiples of eight bytes, so the words are aligned and
        // inside of the map. It is mapped for writing, and its entries are reached through these atomic words alone, by
        // this process.
        unsafe { std::slice::from_raw_parts(bytes.as_mut_ptr().cast(), ENTRY_WORDS) }
    }
}

/// Puts a number at a place of an entry, of which the fields after the first word are given.
fn put(fields: &mut [u64], place: usize, value: u64) {
    fields[place / size_of::<u64>() - 1] |= value << (8 * (place % size_of::<u64>()));
}

/// Text in memory of fixed size.
struct Text {
    bytes: [u8; TEXT_BYTES],
    len: usize,
}

impl Default for Text {
    fn default() -> Text {
        Text { bytes: [0; TEXT_BYTES], len: 0 }
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut fits = text.len().min(self.bytes.len() - self.len);
        while !text.is_char_boundary(fits) {
            fits -= 1;
        }
        self.bytes[self.len..self.len + fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.len += fits;
        Ok(())
    }
}
