//! The last instructions of one rank, in a file that the rank maps. Writing an entry allocates nothing and calls nothing
//! of the system but its clock; the system keeps the bytes when the process is killed.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write as _};
use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::sync::atomic::{Ordering, compiler_fence};
use std::time::{SystemTime, UNIX_EPOCH};

use memmap2::MmapMut;
use serde::{Deserialize, Serialize};

/// Instructions that a rank remembers.
pub const RING_ENTRIES: usize = 20;

/// First bytes of a ring.
pub(crate) const MAGIC: &[u8; 8] = b"PLRING1\n";
/// Bytes of the header, which is JSON after the magic number and its length.
pub(crate) const HEADER_BYTES: usize = 8192;
/// Bytes of an entry.
pub(crate) const ENTRY_BYTES: usize = 192;
/// Bytes of the text of an entry.
pub(crate) const TEXT_BYTES: usize = ENTRY_BYTES - field::TEXT;
/// Bytes of a ring.
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
    /// The rank.
    pub rank: usize,
    /// Its process.
    pub process: usize,
    /// Its host.
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
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        file.set_len(RING_BYTES as u64)?;
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
        map[..8].copy_from_slice(MAGIC);
        Ok(Ring { map, number: 0 })
    }

    /// Notes that an instruction begins in `step`, counted from 1.
    pub fn begin(&mut self, step: u32, peers: Peers, instruction: impl Display) {
        self.number += 1;
        let number = self.number;
        let entry = self.entry();
        entry[field::NUMBER..field::NUMBER + 8].copy_from_slice(&0u64.to_le_bytes());
        // A reader of a process that was killed in between finds number 0, and ignores the entry.
        compiler_fence(Ordering::SeqCst);
        let (kind, peer) = match peers {
            Peers::None => (0, 0),
            Peers::Group(group) => (1, usize::from(group)),
            Peers::Rank(rank) => (2, rank),
        };
        entry[field::PEER_KIND] = kind;
        put_u32(entry, field::PEER, u32::try_from(peer).unwrap_or(u32::MAX));
        put_u32(entry, field::STEP, step);
        let mut text = Text { bytes: &mut entry[field::TEXT..], len: 0 };
        // A text that is too long is cut.
        let _ = write!(text, "{instruction}");
        let len = text.len as u32;
        put_u32(entry, field::TEXT_LEN, len);
        put_u64(entry, field::BEGAN, now_ns());
        put_u64(entry, field::ENDED, 0);
        compiler_fence(Ordering::SeqCst);
        put_u64(entry, field::NUMBER, number);
    }

    /// Notes that the instruction that was begun last has ended.
    pub fn end(&mut self) {
        if self.number > 0 {
            put_u64(self.entry(), field::ENDED, now_ns());
        }
    }

    /// The entry that was begun last.
    fn entry(&mut self) -> &mut [u8] {
        let slot = (self.number.max(1) - 1) as usize % RING_ENTRIES;
        let start = HEADER_BYTES + slot * ENTRY_BYTES;
        &mut self.map[start..start + ENTRY_BYTES]
    }
}

fn put_u32(entry: &mut [u8], at: usize, value: u32) {
    entry[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put_u64(entry: &mut [u8], at: usize, value: u64) {
    entry[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Nanoseconds since 1970-01-01.
pub fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(0))
}

/// Text in memory of fixed size.
struct Text<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

impl fmt::Write for Text<'_> {
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
