//! Zeroed memory on huge pages, where the system has them.

use std::alloc::{Layout, handle_alloc_error};
use std::io;
use std::ops::{Deref, DerefMut};

use memmap2::{MmapMut, MmapOptions};

/// A page of the larger kind. Rows of a matrix lie on pages of their own where pages are small, and looking those up then costs more than
/// reading: memory begins at a huge page and, if it fills one, asks for them.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Bytes of fixed number and place, zero until written; the system gives them as they are touched.
#[derive(Debug)]
pub struct Mapping {
    mapping: MmapMut,
    /// Bytes before the first.
    before: usize,
    len: usize,
}

impl Mapping {
    /// Maps `bytes`, the first at the start of a huge page.
    ///
    /// # Errors
    /// The system's, where it has no such piece left.
    pub fn new(bytes: usize) -> io::Result<Mapping> {
        let mapped_bytes = bytes.checked_add(HUGE_PAGE_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = MmapOptions::new().len(mapped_bytes).map_anon()?;
        if bytes >= HUGE_PAGE_BYTES {
            advise_huge_pages(&mapping);
        }
        let before = mapping.as_ptr().align_offset(HUGE_PAGE_BYTES);
        Ok(Mapping { mapping, before, len: bytes })
    }

    /// As [`Mapping::new`], but where the system has no such piece left, the process ends as it does where a `Vec` finds none.
    pub fn or_abort(bytes: usize) -> Mapping {
        Mapping::new(bytes)
            .unwrap_or_else(|_| handle_alloc_error(Layout::array::<u8>(bytes).unwrap_or(Layout::new::<u8>())))
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.mapping[self.before..self.before + self.len]
    }
}

impl DerefMut for Mapping {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.mapping[self.before..self.before + self.len]
    }
}

/// Where the system has huge pages and leaves the choice to programs. Without them the memory is as good, only slower.
#[cfg(target_os = "linux")]
fn advise_huge_pages(mapping: &MmapMut) {
    let _ = mapping.advise(memmap2::Advice::HugePage);
}

/// Other systems choose themselves.
#[cfg(not(target_os = "linux"))]
fn advise_huge_pages(_: &MmapMut) {}
