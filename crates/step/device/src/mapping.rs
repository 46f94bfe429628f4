//! Zeroed memory on huge pages, where the system has them.

use std::alloc::{Layout, handle_alloc_error};
use std::io;
use std::ops::{Deref, DerefMut};

use memmap2::{MmapMut, MmapOptions};

/// A page of the larger kind. Rows of a matrix are on pages of their own where pages are small, and looking those up
/// then costs more than reading: memory begins at a huge page and asks for those that it fills.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Bytes of the last huge page that are left to small ones unless there are more: a huge page is in memory as a whole.
const LEFT_BYTES: usize = HUGE_PAGE_BYTES / 4 * 3;

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
        let mapped = Mapping::of_small_pages(bytes)?;
        let huge_pages = (bytes + HUGE_PAGE_BYTES - LEFT_BYTES - 1) / HUGE_PAGE_BYTES;
        if huge_pages > 0 {
            advise_huge_pages(&mapped.mapping, mapped.before, huge_pages * HUGE_PAGE_BYTES);
        }
        Ok(mapped)
    }

    /// Returns the same as [`Mapping::new`], on small pages: for memory of which little may be used.
    ///
    /// # Errors
    /// The errors of [`Mapping::new`].
    pub fn of_small_pages(bytes: usize) -> io::Result<Mapping> {
        let mapped_bytes = bytes.checked_add(HUGE_PAGE_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = MmapOptions::new().len(mapped_bytes).map_anon()?;
        let before = mapping.as_ptr().align_offset(HUGE_PAGE_BYTES);
        Ok(Mapping { mapping, before, len: bytes })
    }

    /// Returns the same as [`Mapping::new`], but where the system has no such piece left, the process ends as it does
    /// where a `Vec` finds none.
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
fn advise_huge_pages(mapping: &MmapMut, first: usize, len: usize) {
    let _ = mapping.advise_range(memmap2::Advice::HugePage, first, len.min(mapping.len() - first));
}

/// Other systems choose themselves.
#[cfg(not(target_os = "linux"))]
fn advise_huge_pages(_: &MmapMut, _: usize, _: usize) {}
