//! A hash that no version of a library and no machine changes.

use std::fmt;

/// FNV-1a with 64 bits, of text.
#[derive(Clone, Copy, Debug)]
pub struct Fnv1a(u64);

impl Fnv1a {
    /// The hash of all that was written.
    pub fn hash(self) -> u64 {
        self.0
    }

    /// Adds text.
    pub fn add(&mut self, text: &str) {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

impl Default for Fnv1a {
    fn default() -> Fnv1a {
        Fnv1a(0xcbf2_9ce4_8422_2325)
    }
}

impl fmt::Write for Fnv1a {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.add(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_its_published_hash() {
        let mut hash = Fnv1a::default();
        hash.add("foo");
        hash.add("bar");
        assert_eq!(hash.hash(), 0x8594_4171_f739_67e8);
    }
}
