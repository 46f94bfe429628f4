//! The last write and read of every place in global memory.

/// Bytes of a page of the shadow.
pub const PAGE_BYTES: usize = 4096;

/// The last accesses of a few bytes. Work and blocks are counted from 1; 0 is for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// The work that wrote last.
    pub writer_work: u32,
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

/// Neighbouring cells, one list for each of their parts: so that many are compared at once.
#[derive(Debug)]
pub struct Cells<'a> {
    writer_work: &'a mut [u32],
    writer_block: &'a mut [u32],
    reader_work: &'a mut [u32],
    reader_block: &'a mut [u32],
}

fn is_uniform(words: &[u32]) -> bool {
    let first = words.first().copied().unwrap_or_default();
    words.iter().fold(true, |all, word| all & (*word == first))
}

impl Cells<'_> {
    /// Their number.
    pub fn count(&self) -> usize {
        self.writer_work.len()
    }

    /// A cell.
    #[inline(always)]
    pub fn get(&self, index: usize) -> Cell {
        Cell {
            writer_work: self.writer_work[index],
            writer_block: self.writer_block[index],
            reader_work: self.reader_work[index],
            reader_block: self.reader_block[index],
        }
    }

    /// The cell that all are, if they are alike.
    #[inline(always)]
    pub fn uniform(&self) -> Option<Cell> {
        let lists = [&*self.writer_work, &*self.writer_block, &*self.reader_work, &*self.reader_block];
        lists.into_iter().all(is_uniform).then(|| self.get(0))
    }

    /// Replaces a cell.
    #[inline(always)]
    pub fn set(&mut self, index: usize, cell: Cell) {
        self.writer_work[index] = cell.writer_work;
        self.writer_block[index] = cell.writer_block;
        self.reader_work[index] = cell.reader_work;
        self.reader_block[index] = cell.reader_block;
    }

    /// Replaces all cells.
    #[inline(always)]
    pub fn fill(&mut self, cell: Cell) {
        self.writer_work.fill(cell.writer_work);
        self.writer_block.fill(cell.writer_block);
        self.reader_work.fill(cell.reader_work);
        self.reader_block.fill(cell.reader_block);
    }
}

/// The shadow of a page. Cells are as large as the smallest access so far: at most 4 bytes.
#[derive(Clone, Debug)]
pub struct Page {
    /// A cell has `1 << shift` bytes.
    shift: u32,
    /// The four parts of all cells, one after the other.
    words: Vec<u32>,
}

impl Page {
    fn new() -> Page {
        Page { shift: 2, words: vec![0; 4 * (PAGE_BYTES >> 2)] }
    }

    /// The cells of `bytes` from `offset` on, which do not reach into the next page.
    #[inline(always)]
    pub fn cells(&mut self, offset: usize, bytes: usize) -> Cells<'_> {
        let wanted = (offset | bytes).trailing_zeros();
        while self.shift > wanted {
            self.shift -= 1;
            self.words = self.words.iter().flat_map(|word| [*word, *word]).collect();
        }
        let range = offset >> self.shift..(offset + bytes) >> self.shift;
        let (writers, readers) = self.words.split_at_mut(2 * (PAGE_BYTES >> self.shift));
        let (writer_work, writer_block) = writers.split_at_mut(PAGE_BYTES >> self.shift);
        let (reader_work, reader_block) = readers.split_at_mut(PAGE_BYTES >> self.shift);
        Cells {
            writer_work: &mut writer_work[range.clone()],
            writer_block: &mut writer_block[range.clone()],
            reader_work: &mut reader_work[range.clone()],
            reader_block: &mut reader_block[range],
        }
    }
}

/// The shadow of an allocation; pages come with their first access.
#[derive(Clone, Debug, Default)]
pub struct Shadow {
    pages: Vec<Option<Box<Page>>>,
}

impl Shadow {
    /// The cells of `bytes` from `offset` on, page after page.
    #[inline(always)]
    pub fn visit<E>(
        &mut self,
        offset: usize,
        bytes: usize,
        mut visit: impl FnMut(Cells<'_>) -> Result<(), E>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smaller_cells_take_over_what_is_known() {
        let mut shadow = Shadow::default();
        let cell = Cell { writer_work: 7, writer_block: 1, reader_work: 8, reader_block: SEVERAL };
        // From the end of a page into the next one.
        let mut counts = vec![];
        let filled: Result<(), ()> = shadow.visit(PAGE_BYTES - 8, 16, |mut cells| {
            counts.push(cells.count());
            cells.fill(cell);
            Ok(())
        });
        assert_eq!((filled, counts), (Ok(()), vec![2, 2]));
        let seen = |shadow: &mut Shadow, offset: usize, bytes: usize| {
            let mut seen = vec![];
            let visited: Result<(), ()> = shadow.visit(offset, bytes, |cells| {
                seen.push((cells.count(), cells.uniform()));
                Ok(())
            });
            visited.map(|()| seen)
        };
        assert_eq!(seen(&mut shadow, PAGE_BYTES - 8, 2), Ok(vec![(1, Some(cell))]));
        assert_eq!(seen(&mut shadow, PAGE_BYTES - 8, 8), Ok(vec![(4, Some(cell))]));
        assert_eq!(seen(&mut shadow, PAGE_BYTES - 10, 4), Ok(vec![(2, None)]));
        assert_eq!(seen(&mut shadow, PAGE_BYTES - 12, 4), Ok(vec![(2, Some(Cell::default()))]));
        assert_eq!(seen(&mut shadow, PAGE_BYTES, 12), Ok(vec![(3, None)]));
    }
}
