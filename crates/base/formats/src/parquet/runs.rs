//! Small numbers as runs and packed groups: the encoding of levels and of places in a dictionary.

use std::ops::Range;

use crate::error::Problem;

/// A run of equal numbers, or packed ones.
#[derive(Clone, Debug)]
enum Run {
    Equal { value: u32, left: u64 },
    Packed { first_bit: usize, left: u64 },
}

/// Numbers of `width` bits in a range of a page, which the caller keeps.
#[derive(Clone, Debug)]
pub struct Runs {
    left: Range<usize>,
    width: u32,
    run: Run,
}

impl Runs {
    /// The numbers in `range`; `width` is at most 32.
    pub fn new(range: Range<usize>, width: u32) -> Result<Runs, Problem> {
        if width > 32 {
            return Err(Problem::damaged(format!("numbers of a page have {width} bits")));
        }
        Ok(Runs { left: range, width, run: Run::Equal { value: 0, left: 0 } })
    }

    /// The next number.
    pub fn next(&mut self, page: &[u8]) -> Result<u32, Problem> {
        loop {
            match &mut self.run {
                Run::Equal { value, left } if *left > 0 => {
                    *left -= 1;
                    return Ok(*value);
                }
                Run::Packed { first_bit, left } if *left > 0 => {
                    *left -= 1;
                    let at = *first_bit;
                    *first_bit += self.width as usize;
                    return Ok(bits(page, at, self.width) as u32);
                }
                Run::Equal { .. } | Run::Packed { .. } => self.begin(page)?,
            }
        }
    }

    fn begin(&mut self, page: &[u8]) -> Result<(), Problem> {
        let head = varint(page, &mut self.left)?;
        let count = head >> 1;
        if head & 1 == 0 {
            let bytes = self.width.div_ceil(8) as usize;
            let value = bits(page, self.left.start * 8, bytes as u32 * 8) as u32;
            self.take(bytes)?;
            self.run = Run::Equal { value, left: count };
        } else {
            let first_bit = self.left.start * 8;
            let bytes = count.checked_mul(self.width.into()).and_then(|bytes| usize::try_from(bytes).ok());
            // The last group may be cut where the values end.
            let there = bytes.unwrap_or(usize::MAX).min(self.left.len());
            let most = if self.width == 0 { count.saturating_mul(8) } else { there as u64 * 8 / u64::from(self.width) };
            self.take(there)?;
            self.run = Run::Packed { first_bit, left: count.saturating_mul(8).min(most) };
            if there == 0 && self.width > 0 {
                return Err(Problem::damaged("numbers of a page end too early"));
            }
        }
        Ok(())
    }

    fn take(&mut self, bytes: usize) -> Result<(), Problem> {
        if bytes > self.left.len() {
            return Err(Problem::damaged("numbers of a page end too early"));
        }
        self.left.start += bytes;
        Ok(())
    }
}

/// `width` bits, at most 64, from `first_bit` of `bytes`, lowest first; bits after the end are 0.
pub fn bits(bytes: &[u8], first_bit: usize, width: u32) -> u64 {
    let (at, shift) = (first_bit / 8, first_bit % 8);
    let mut window = [0; 16];
    let there = bytes.get(at..).unwrap_or_default();
    let count = there.len().min(window.len()).min((shift + width as usize).div_ceil(8));
    window[..count].copy_from_slice(&there[..count]);
    let value = u128::from_le_bytes(window) >> shift;
    let mask = if width >= 64 { u64::MAX } else { (1 << width) - 1 };
    value as u64 & mask
}

/// The next number of variable length, at the front of `left`.
pub fn varint(page: &[u8], left: &mut Range<usize>) -> Result<u64, Problem> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = page.get(left.clone()).and_then(<[u8]>::first);
        let byte = *byte.ok_or_else(|| Problem::damaged("numbers of a page end too early"))?;
        left.start += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(Problem::damaged("a number of a page does not end"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_packed_groups_are_read_in_turns() {
        // The example of the format's description: 0 to 7 in 3 bits, after a run of five 4s.
        let page = [5 << 1, 4, (1 << 1) | 1, 0b1000_1000, 0b1100_0110, 0b1111_1010];
        let mut runs = Runs::new(0..page.len(), 3).expect("runs");
        let read: Vec<u32> = (0..13).map(|_| runs.next(&page).expect("a number")).collect();
        assert_eq!(read, [4, 4, 4, 4, 4, 0, 1, 2, 3, 4, 5, 6, 7]);
        assert!(runs.next(&page).is_err());
    }

    #[test]
    fn bits_may_cross_bytes() {
        let bytes = 0x0123_4567_89ab_cdef_u64.to_le_bytes();
        assert_eq!(bits(&bytes, 0, 64), 0x0123_4567_89ab_cdef);
        assert_eq!(bits(&bytes, 4, 12), 0xcde);
        assert_eq!(bits(&bytes, 60, 8), 0);
        assert_eq!(bits(&bytes, 100, 8), 0);
    }
}
