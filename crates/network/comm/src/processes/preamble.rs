//! The first frame of a connection in both directions, which says who speaks to whom. It comes after the proofs of a
//! [`session`], sealed, so that only a process of the run writes one.
//!
//! | bytes | field |
//! |---|---|
//! | 0..4, 4..8 | verdict, zero |
//! | 8..12, 12..16 | process that sends, process that receives |
//! | 16..24 | fingerprint of the process map and the number of lanes |
//! | 24..32 | number of the file of its places for pieces, which comes with the frame; 0 without one |

use session::{SEAL_BYTES, Sealer};

const FIELDS_BYTES: usize = 32;
/// Bytes of a sealed preamble.
pub(super) const PREAMBLE_BYTES: usize = FIELDS_BYTES + SEAL_BYTES;

/// The answer of a listener to a preamble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The connection is part of the world.
    Welcome,
    /// The directories or the numbers of lanes differ.
    OtherWorld,
    /// The process that sends may not connect here, or is connected already.
    NotExpected,
}

impl Verdict {
    const ALL: [Verdict; 3] = [Verdict::Welcome, Verdict::OtherWorld, Verdict::NotExpected];

    fn number(self) -> u32 {
        match self {
            Verdict::Welcome => 0,
            Verdict::OtherWorld => 1,
            Verdict::NotExpected => 2,
        }
    }

    /// The verdict as a clause about the process that gives it.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Verdict::Welcome => "accepts the connection",
            Verdict::OtherWorld => "has another process map or another number of lanes; start the same run everywhere",
            Verdict::NotExpected => "has a connection of this process already; give each process a number of its own",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Preamble {
    pub(super) verdict: Verdict,
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) fingerprint: u64,
    /// The file of the sender's places for pieces; 0 without one.
    pub(super) file: u64,
}

impl Preamble {
    /// The bytes of the first frame.
    pub(super) fn seal(&self, sealer: &mut Sealer) -> Vec<u8> {
        let mut bytes = vec![];
        sealer.append(&self.encode(), &[], &mut bytes);
        bytes
    }

    pub(super) fn encode(&self) -> [u8; FIELDS_BYTES] {
        let mut bytes = [0; FIELDS_BYTES];
        bytes[..4].copy_from_slice(&self.verdict.number().to_le_bytes());
        bytes[8..12].copy_from_slice(&self.from.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.to.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.fingerprint.to_le_bytes());
        bytes[24..].copy_from_slice(&self.file.to_le_bytes());
        bytes
    }

    /// Reads what [`Preamble::encode`] writes, and nothing else.
    pub(super) fn decode(bytes: &[u8]) -> Option<Preamble> {
        let words: [u32; FIELDS_BYTES / 4] = bytemuck::try_pod_read_unaligned(bytes).ok()?;
        let [verdict, zero, from, to, words @ ..] = words.map(u32::from_le);
        let [fingerprint, file] = [0, 2].map(|at| u64::from(words[at]) | u64::from(words[at + 1]) << 32);
        let verdict = *Verdict::ALL.get(verdict as usize)?;
        (zero == 0).then_some(Preamble { verdict, from, to, fingerprint, file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_preamble_comes_back_and_a_changed_one_differs(
            from in any::<u32>(), to in any::<u32>(), fingerprint in any::<u64>(), file in any::<u64>(),
            verdict in 0usize..3, at in 0..FIELDS_BYTES, by in 1u8..=255,
        ) {
            let preamble = Preamble { verdict: Verdict::ALL[verdict], from, to, fingerprint, file };
            let mut bytes = preamble.encode();
            prop_assert_eq!(Preamble::decode(&bytes), Some(preamble));
            prop_assert_eq!(Preamble::decode(&bytes[1..]), None);
            bytes[at] ^= by;
            prop_assert_ne!(Preamble::decode(&bytes), Some(preamble));
        }

        #[test]
        fn arbitrary_bytes_are_read_as_written_or_refused(bytes in any::<[u8; FIELDS_BYTES]>()) {
            if let Some(preamble) = Preamble::decode(&bytes) {
                prop_assert_eq!(preamble.encode(), bytes);
            }
        }
    }
}
