//! Hashes of blocks: every byte of a checkpoint is in one.

use std::fmt;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// Length of a block of a tensor; the last one of a piece may be shorter.
pub const BLOCK_BYTES: usize = 1 << 20;

/// XXH3 with 64 bits and seed 0, written as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hash(pub u64);

impl Hash {
    /// The hash of `bytes`.
    pub fn of(bytes: &[u8]) -> Hash {
        Hash(xxh3_64(bytes))
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl From<Hash> for String {
    fn from(hash: Hash) -> String {
        hash.to_string()
    }
}

impl TryFrom<String> for Hash {
    type Error = String;

    fn try_from(text: String) -> Result<Hash, String> {
        let number = u64::from_str_radix(&text, 16).ok().filter(|_| text.len() == 16);
        number.map(Hash).ok_or_else(|| format!("{text:?} is not a hash of 16 hexadecimal digits"))
    }
}

/// How many blocks a piece of `len_bytes` has.
pub(crate) fn num_blocks(len_bytes: u64) -> u64 {
    len_bytes.div_ceil(BLOCK_BYTES as u64)
}
