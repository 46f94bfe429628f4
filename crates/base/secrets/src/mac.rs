//! Codes of messages: HMAC with SHA-256 (RFC 2104, FIPS 180-4).

use ring::hmac;

use crate::Secret;

/// The use of a code. A code of one use differs from that of another, whatever bytes it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purpose(&'static str);

impl Purpose {
    /// The use with this name, which no other use in the program has.
    pub const fn new(name: &'static str) -> Purpose {
        Purpose(name)
    }
}

/// A code of some bytes, which only a holder of the secret can make.
#[derive(Clone, Copy, Debug)]
pub struct Mac([u8; Mac::BYTES]);

impl Mac {
    /// Size of a code.
    pub const BYTES: usize = 32;

    /// The code itself.
    pub fn bytes(&self) -> &[u8; Mac::BYTES] {
        &self.0
    }
}

impl Secret {
    /// The code of `parts` for `purpose`. The lengths of the parts are in the code: parts that are cut elsewhere have
    /// another one.
    pub fn mac(&self, purpose: Purpose, parts: &[&[u8]]) -> Mac {
        let tag = hmac::sign(&self.key(), &message(purpose, parts));
        let mut bytes = [0; Mac::BYTES];
        bytes.copy_from_slice(tag.as_ref());
        Mac(bytes)
    }

    /// Whether `shown` is the code of `parts` for `purpose`, in a time that does not depend on its bytes.
    pub fn confirms(&self, purpose: Purpose, parts: &[&[u8]], shown: &[u8]) -> bool {
        hmac::verify(&self.key(), &message(purpose, parts), shown).is_ok()
    }

    /// The secret of `purpose` that all holders of this one derive from the same `parts`. It says nothing about this
    /// one.
    pub fn derive(&self, purpose: Purpose, parts: &[&[u8]]) -> Secret {
        Secret::new(self.mac(purpose, parts).0)
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, self.bytes())
    }
}

/// The purpose and the parts, each after its length in 8 bytes.
fn message(purpose: Purpose, parts: &[&[u8]]) -> Vec<u8> {
    let mut message = vec![];
    for part in [purpose.0.as_bytes()].iter().chain(parts) {
        message.extend((part.len() as u64).to_le_bytes());
        message.extend(*part);
    }
    message
}
