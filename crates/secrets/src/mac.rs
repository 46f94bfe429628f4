//! Codes of messages: HMAC with SHA-256 (RFC 2104, FIPS 180-4).

use ring::hmac;

use crate::Secret;

/// The use of a code. A code of one use is none of another, whatever bytes it is of.
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

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Purpose = Purpose::new("one");

    /// Python: `hmac.new(bytes(range(32)), b"".join(len(p).to_bytes(8, "little") + p for p in (b"one", b"ab", b"")),
    /// "sha256").hexdigest()`.
    #[test]
    fn codes_are_those_of_an_independent_implementation() {
        let mut bytes = [0; Secret::BYTES];
        (0..).zip(&mut bytes).for_each(|(value, byte)| *byte = value);
        let mac = Secret::new(bytes).mac(ONE, &[b"ab", b""]);
        let digits: String = mac.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digits, "bc28d15be67ab3ce72f675b7087909c1064240d894a5fd9bf42620c7a9127114");
    }

    #[test]
    fn a_code_confirms_its_secret_purpose_and_parts_only() {
        let (secret, other) = (Secret::new([1; 32]), Secret::new([2; 32]));
        let mac = secret.mac(ONE, &[b"ab", b"c"]);
        assert!(secret.confirms(ONE, &[b"ab", b"c"], mac.bytes()));
        assert!(!other.confirms(ONE, &[b"ab", b"c"], mac.bytes()), "another secret");
        assert!(!secret.confirms(Purpose::new("two"), &[b"ab", b"c"], mac.bytes()), "another purpose");
        assert!(!secret.confirms(ONE, &[b"a", b"bc"], mac.bytes()), "parts that are cut elsewhere");
        assert!(!secret.confirms(ONE, &[b"abc"], mac.bytes()), "one part");
        assert!(!secret.confirms(ONE, &[b"ab", b"c"], &mac.bytes()[..31]), "a shorter code");
        assert_ne!(secret.derive(ONE, &[b"a"]).bytes(), secret.derive(ONE, &[b"b"]).bytes());
    }
}
