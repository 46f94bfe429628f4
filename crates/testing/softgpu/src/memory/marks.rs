//! A mark for each byte of a memory.

/// A bit for each byte.
#[derive(Clone, Debug, Default)]
pub struct Marks(Vec<u64>);

/// The words of `bytes` from `offset` on, each with its bits of them.
#[inline(always)]
fn words(offset: usize, bytes: usize) -> impl Iterator<Item = (usize, u64)> {
    let end = offset + bytes;
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let count = (64 - at % 64).min(end - at);
        let bits = (u64::MAX >> (64 - count)) << (at % 64);
        let word = at / 64;
        at += count;
        Some((word, bits))
    })
}

impl Marks {
    /// No marks, for a memory of `bytes`.
    pub fn new(bytes: usize) -> Marks {
        Marks(vec![0; bytes.div_ceil(64)])
    }

    /// Whether all of `bytes` from `offset` on are marked.
    #[inline(always)]
    pub fn are_all(&self, offset: usize, bytes: usize) -> bool {
        words(offset, bytes).fold(true, |all, (word, bits)| all & (self.0[word] & bits == bits))
    }

    /// Whether any of `bytes` from `offset` on is marked.
    #[inline(always)]
    pub fn is_any(&self, offset: usize, bytes: usize) -> bool {
        words(offset, bytes).fold(false, |any, (word, bits)| any | (self.0[word] & bits != 0))
    }

    /// Marks `bytes` from `offset` on.
    #[inline(always)]
    pub fn set(&mut self, offset: usize, bytes: usize) {
        for (word, bits) in words(offset, bytes) {
            self.0[word] |= bits;
        }
    }

    /// Removes all marks.
    pub fn clear(&mut self) {
        self.0.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_those_that_were_set() {
        for (offset, bytes) in [(0, 1), (3, 4), (60, 8), (64, 64), (1, 300), (0, 0), (127, 2)] {
            let mut marks = Marks::new(512);
            marks.set(offset, bytes);
            for byte in 0..512 {
                let is_inside = (offset..offset + bytes).contains(&byte);
                assert_eq!((marks.is_any(byte, 1), marks.are_all(byte, 1)), (is_inside, is_inside), "byte {byte}");
            }
            assert!(marks.are_all(offset, bytes) && !marks.are_all(offset, bytes + 1));
            assert!(marks.is_any(offset, bytes) == (bytes > 0) && !marks.is_any(offset + bytes, 100));
            marks.clear();
            assert!(!marks.is_any(0, 512));
        }
    }
}
