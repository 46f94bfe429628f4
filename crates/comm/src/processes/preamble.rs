//! The first bytes of a connection, in both directions: a token, and who speaks to whom.
//!
//! | bytes | field |
//! |---|---|
//! | 0..32 | token |
//! | 32..40 | magic |
//! | 40..42, 42..44 | version, verdict |
//! | 44..48, 48..52 | process that sends, process that receives |
//! | 52..56 | zero |
//! | 56..64 | fingerprint of the process map and the number of lanes |

use super::frame::VERSION;
use super::process_map::WorldToken;

pub(super) const PREAMBLE_BYTES: usize = 64;

const MAGIC: [u8; 8] = *b"plchhelo";

/// The answer of a listener to a preamble with the right token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The connection is part of the world.
    Welcome,
    /// The versions differ.
    OtherVersion,
    /// The directories or the numbers of lanes differ.
    OtherWorld,
    /// The process that sends may not connect here, or is connected already.
    NotExpected,
}

impl Verdict {
    const ALL: [Verdict; 4] = [Verdict::Welcome, Verdict::OtherVersion, Verdict::OtherWorld, Verdict::NotExpected];

    fn number(self) -> u16 {
        match self {
            Verdict::Welcome => 0,
            Verdict::OtherVersion => 1,
            Verdict::OtherWorld => 2,
            Verdict::NotExpected => 3,
        }
    }

    /// The verdict as a clause about the process that gives it.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Verdict::Welcome => "accepts the connection",
            Verdict::OtherVersion => "speaks another version; start the same build everywhere",
            Verdict::OtherWorld => "has another process map or another number of lanes; start the same run everywhere",
            Verdict::NotExpected => "has a connection of this process already; give each process a number of its own",
        }
    }
}

/// A preamble without its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Preamble {
    pub(super) verdict: Verdict,
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) fingerprint: u64,
}

/// Why a preamble is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadPreamble {
    /// Not of this world. Nothing else was looked at.
    WorldToken,
    /// Not of this program, or of another version of it.
    Version,
}

impl Preamble {
    pub(super) fn encode(&self, token: &WorldToken) -> [u8; PREAMBLE_BYTES] {
        let mut bytes = [0; PREAMBLE_BYTES];
        bytes[..32].copy_from_slice(token.bytes());
        bytes[32..40].copy_from_slice(&MAGIC);
        bytes[40..42].copy_from_slice(&VERSION.to_le_bytes());
        bytes[42..44].copy_from_slice(&self.verdict.number().to_le_bytes());
        bytes[44..48].copy_from_slice(&self.from.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.to.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.fingerprint.to_le_bytes());
        bytes
    }

    /// Reads a preamble, the token first.
    pub(super) fn decode(bytes: &[u8; PREAMBLE_BYTES], token: &WorldToken) -> Result<Preamble, BadPreamble> {
        let (claimed, rest) = bytes.split_first_chunk::<32>().ok_or(BadPreamble::WorldToken)?;
        if !token.is(claimed) {
            return Err(BadPreamble::WorldToken);
        }
        let u32_at = |at: usize| u32::from_le_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]);
        let version = u16::from_le_bytes([rest[8], rest[9]]);
        let verdict = u16::from_le_bytes([rest[10], rest[11]]);
        let verdict = Verdict::ALL.get(usize::from(verdict)).copied();
        match verdict {
            Some(verdict) if rest[..8] == MAGIC && version == VERSION && u32_at(20) == 0 => Ok(Preamble {
                verdict,
                from: u32_at(12),
                to: u32_at(16),
                fingerprint: u64::from(u32_at(24)) | u64::from(u32_at(28)) << 32,
            }),
            Some(_) | None => Err(BadPreamble::Version),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_preamble_comes_back_and_a_changed_one_differs(
            from in any::<u32>(), to in any::<u32>(), fingerprint in any::<u64>(), verdict in 0usize..4,
            at in 0..PREAMBLE_BYTES, by in 1u8..=255,
        ) {
            let token = WorldToken::new([9; 32]);
            let preamble = Preamble { verdict: Verdict::ALL[verdict], from, to, fingerprint };
            let mut bytes = preamble.encode(&token);
            prop_assert_eq!(Preamble::decode(&bytes, &token), Ok(preamble));
            bytes[at] ^= by;
            prop_assert_ne!(Preamble::decode(&bytes, &token), Ok(preamble));
            if at < 32 {
                prop_assert_eq!(Preamble::decode(&bytes, &token), Err(BadPreamble::WorldToken));
            }
        }

        #[test]
        fn arbitrary_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), PREAMBLE_BYTES)) {
            let bytes: [u8; PREAMBLE_BYTES] = bytes.try_into().unwrap();
            prop_assert_eq!(Preamble::decode(&bytes, &WorldToken::new([9; 32])), Err(BadPreamble::WorldToken));
        }
    }
}
