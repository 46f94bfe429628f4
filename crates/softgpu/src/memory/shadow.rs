//! The last write and read of every place in global memory.

/// Bytes of a page of the shadow.
pub const PAGE_BYTES: usize = 4096;

/// The last accesses of a few bytes. Work and blocks are counted from 1; 0 is for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// The work that wrote last.
    pub writer_work: u32,
    /// Its block.
    pub writer_block: u32,
    /// The work that read last.
    pub reader_work: u32,
    /// Its block, or [`SEVERAL`].
    pub reader_block: u32,
}

/// Several blocks.
pub const SEVERAL: u32 = u32::MAX >> 1;
/// A bit next to the writing block: the write was atomic.
pub const ATOMIC: u32 = 1 << 31;

/// The shadow of a page. Cells are as large as the smallest access so far: at most 4 bytes.
#[derive(Clone, Debug)]
pub struct Page {
    /// A cell has `1 << shift` bytes.
    shift: u32,
    cells: Vec<Cell>,
}

impl Page {
    fn new() -> Page {
        Page { shift: 2, cells: vec![Cell::default(); PAGE_BYTES >> 2] }
    }

    /// The cells of `bytes` from `offset` on, which do not reach into the next page.
    pub fn cells(&mut self, offset: usize, bytes: usize) -> &mut [Cell] {
        let wanted = (offset | bytes).trailing_zeros();
        while self.shift > wanted {
            self.shift -= 1;
            self.cells = self.cells.iter().flat_map(|cell| [*cell, *cell]).collect();
        }
        &mut self.cells[offset >> self.shift..(offset + bytes) >> self.shift]
    }
}

/// The shadow of an allocation; pages come with their first access.
#[derive(Clone, Debug, Default)]
pub struct Shadow {
    pages: Vec<Option<Box<Page>>>,
}

impl Shadow {
    /// The cells of `bytes` from `offset` on, page after page.
    pub fn visit<E>(
        &mut self,
        offset: usize,
        bytes: usize,
        mut visit: impl FnMut(&mut [Cell]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut at = offset;
        let end = offset + bytes;
        while at < end {
            let page = at / PAGE_BYTES;
            let in_page = (end - at).min(PAGE_BYTES - at % PAGE_BYTES);
            if self.pages.len() <= page {
                self.pages.resize(page + 1, None);
            }
            let shadow = self.pages[page].get_or_insert_with(|| Box::new(Page::new()));
            visit(shadow.cells(at % PAGE_BYTES, in_page))?;
            at += in_page;
        }
        Ok(())
    }
}
