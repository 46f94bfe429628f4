//! The last instructions of a rank as they are read from its ring.

use std::io;
use std::path::Path;

use files::InputKind;
use serde::{Deserialize, Serialize};

use crate::entry_words::whole;
use crate::ring::{HEADER_BYTES, MAGIC, RING_BYTES, RingHeader, TEXT_BYTES, field};

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Number of the instruction since the start of the rank, counted from 1.
    pub number: u64,
    /// Step, counted from 1; 0 before the first.
    pub step: u32,
    /// The instruction in words.
    pub instruction: String,
    /// The other ranks that take part, ascending; empty where the rank needs none, or where they are many.
    pub peers: Vec<usize>,
    /// Nanoseconds since 1970-01-01 at its begin, by the clock of the rank's host.
    pub began_ns: u64,
    /// The same at its end; none where the rank was in it when it was last heard of.
    pub ended_ns: Option<u64>,
}

impl Entry {
    /// Whether the rank was in it.
    pub fn is_running(&self) -> bool {
        self.ended_ns.is_none()
    }
}

/// The last instructions of a rank, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankHistory {
    /// The rank and its groups.
    pub header: RingHeader,
    /// Its instructions.
    pub entries: Vec<Entry>,
}

impl RankHistory {
    /// Reads the ring at `path`, also while its rank writes it: an entry that changes meanwhile is left out.
    ///
    /// # Errors
    /// A file that cannot be read, or is not a ring.
    pub fn read(path: &Path) -> io::Result<RankHistory> {
        let malformed = || io::Error::new(io::ErrorKind::InvalidData, format!("{} is not a ring", path.display()));
        let copy = || -> io::Result<Vec<u8>> {
            let bytes = files::read(path, InputKind::Records)?;
            if bytes.len() == RING_BYTES && &bytes[..8] == MAGIC { Ok(bytes) } else { Err(malformed()) }
        };
        let [before, bytes, after] = [copy()?, copy()?, copy()?];
        let length = u32_at(&bytes, 8) as usize;
        let json = bytes[..HEADER_BYTES].get(12..12 + length).ok_or_else(malformed)?;
        let header: RingHeader = serde_json::from_slice(json)?;
        let copies = [&before[HEADER_BYTES..], &bytes[HEADER_BYTES..], &after[HEADER_BYTES..]];
        let mut entries: Vec<Entry> = whole(copies).filter_map(|entry| read_entry(entry, &header)).collect();
        entries.sort_by_key(|entry| entry.number);
        Ok(RankHistory { header, entries })
    }

    /// The instruction that the rank was in, or the last one that it ended.
    pub fn last(&self) -> Option<&Entry> {
        self.entries.last()
    }
}

/// `None` for an entry that was never written, or was being written.
fn read_entry(bytes: &[u8], header: &RingHeader) -> Option<Entry> {
    let number = u64_at(bytes, field::NUMBER);
    let length = u32_at(bytes, field::TEXT_LEN) as usize;
    if number == 0 || length > TEXT_BYTES {
        return None;
    }
    let peer = u32_at(bytes, field::PEER) as usize;
    let mut peers = match bytes[field::PEER_KIND] {
        1 => u8::try_from(peer).ok().and_then(|group| header.groups.get(&group)).cloned().unwrap_or_default(),
        2 => vec![peer],
        _ => vec![],
    };
    peers.retain(|rank| *rank != header.rank);
    let ended = u64_at(bytes, field::ENDED);
    Some(Entry {
        number,
        step: u32_at(bytes, field::STEP),
        instruction: String::from_utf8_lossy(&bytes[field::TEXT..field::TEXT + length]).into_owned(),
        peers,
        began_ns: u64_at(bytes, field::BEGAN),
        ended_ns: (ended > 0).then_some(ended),
    })
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}
