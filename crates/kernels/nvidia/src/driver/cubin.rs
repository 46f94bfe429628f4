//! A CUBIN whose size is known to be right: the driver finds its end by the tables of ELF alone.

/// Bytes of the header of a 64-bit ELF file.
const HEADER_BYTES: usize = 64;
/// Sections without bytes in the file.
const NO_BITS: u32 = 8;

/// Bytes that are a whole ELF file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cubin<'a>(&'a [u8]);

impl<'a> Cubin<'a> {
    /// Checks that both tables and all that they name are within `bytes`.
    pub(super) fn whole(bytes: &'a [u8]) -> Result<Cubin<'a>, String> {
        if !bytes.starts_with(b"\x7fELF\x02\x01") || bytes.len() < HEADER_BYTES {
            return Err(format!("{} bytes are not a CUBIN: they do not begin with the header of ELF", bytes.len()));
        }
        let end = extents(bytes).and_then(|ends| ends.into_iter().max()).unwrap_or(u64::MAX);
        if end > bytes.len() as u64 {
            return Err(format!("a CUBIN of {} bytes names bytes beyond its end; it was cut off", bytes.len()));
        }
        Ok(Cubin(bytes))
    }

    pub(super) fn bytes(self) -> &'a [u8] {
        self.0
    }
}

/// Ends of all parts; `None` for one that cannot be computed or read.
fn extents(bytes: &[u8]) -> Option<Vec<u64>> {
    // Offsets of ELF's header: programs, sections; their entry sizes and counts.
    let (programs, sections) = (word(bytes, 32)?, word(bytes, 40)?);
    let (program_bytes, program_count) = (half(bytes, 54)?, half(bytes, 56)?);
    let (section_bytes, section_count) = (half(bytes, 58)?, half(bytes, 60)?);
    let mut ends = vec![
        programs.checked_add(u64::from(program_bytes) * u64::from(program_count))?,
        sections.checked_add(u64::from(section_bytes) * u64::from(section_count))?,
    ];
    for number in 0..u64::from(program_count) {
        let at = usize::try_from(programs + number * u64::from(program_bytes)).ok()?;
        ends.push(word(bytes, at + 8)?.checked_add(word(bytes, at + 32)?)?);
    }
    for number in 0..u64::from(section_count) {
        let at = usize::try_from(sections + number * u64::from(section_bytes)).ok()?;
        let kind = u32::from_le_bytes(*bytes.get(at + 4..)?.first_chunk()?);
        if kind != NO_BITS {
            ends.push(word(bytes, at + 24)?.checked_add(word(bytes, at + 32)?)?);
        }
    }
    Some(ends)
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of ELF: the program that runs this test.
    fn own_program() -> Vec<u8> {
        std::fs::read(std::env::current_exe().expect("a program")).expect("read")
    }

    #[test]
    fn a_file_that_is_cut_off_is_refused() {
        let whole = own_program();
        assert!(Cubin::whole(&whole).is_ok());
        for len in [0, 4, 63, 64, 1000, whole.len() / 2, whole.len() - 1] {
            assert!(Cubin::whole(&whole[..len]).is_err(), "{len} bytes");
        }
        assert!(Cubin::whole(b".version 9.0").is_err());
    }

    #[test]
    fn tables_beyond_all_numbers_are_refused() {
        for at in [32, 40] {
            let mut damaged = own_program();
            damaged[at..at + 8].copy_from_slice(&[0xff; 8]);
            assert!(Cubin::whole(&damaged).is_err(), "offset at {at}");
        }
    }
}
