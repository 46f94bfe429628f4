//! Memory between two operations: nothing may change there.
//!
//! The arena of a rank is hashed in blocks. Before an operation, the blocks that it touches must have the hashes that
//! the one before left; after it, bytes that it does not write must be as they were. Writes of the host and calls of
//! groups are operations, too.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use checkpoint::Hash;
use device::{Device, DeviceError, Dtype, Tensor};

/// Bytes of a block, but for the last one.
const BLOCK_BYTES: usize = 16 << 10;

/// Hashes of the blocks of a rank's arena.
pub(crate) struct RestingMemory {
    device: Rc<dyn Device>,
    arena_bytes: usize,
    /// As the last operation on the block left it; `None` before the first.
    hashes: RefCell<Vec<Option<Hash>>>,
}

/// The blocks that an operation touches.
pub(crate) struct Touched {
    writes: Vec<Tensor>,
    /// Each block with the hash of its bytes that are not written.
    blocks: Vec<(usize, Hash)>,
}

impl RestingMemory {
    /// Of an arena of this size, of which nothing is known yet.
    pub(crate) fn new(device: Rc<dyn Device>, arena_bytes: usize) -> RestingMemory {
        let hashes = RefCell::new(vec![None; arena_bytes.div_ceil(BLOCK_BYTES)]);
        RestingMemory { device, arena_bytes, hashes }
    }

    /// Does `work`, which reads and writes these tensors.
    ///
    /// # Errors
    /// See [`RestingMemory::enter`] and [`RestingMemory::leave`]; those of `work`.
    pub(crate) fn guarded(
        &self,
        name: &str,
        reads: &[Tensor],
        writes: &[Tensor],
        work: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let touched = self.enter(name, reads, writes)?;
        work()?;
        self.leave(name, touched)
    }

    /// Compares the blocks of these tensors with their hashes.
    ///
    /// # Errors
    /// [`DeviceError::Corrupted`] names the first block that has changed.
    pub(crate) fn enter(&self, name: &str, reads: &[Tensor], writes: &[Tensor]) -> Result<Touched, DeviceError> {
        let mut touched = Touched { writes: writes.to_vec(), blocks: vec![] };
        for index in blocks_of(reads.iter().chain(writes)) {
            let mut bytes = self.read(index)?;
            let (expected, found) = (self.hashes.borrow()[index], Hash::of(&bytes));
            if let Some(expected) = expected.filter(|expected| *expected != found) {
                let again = Hash::of(&self.read(index)?);
                return Err(self.corrupted(index, &format!("before {name}"), [expected, found, again]));
            }
            let rest = self.rest(index, &mut bytes, writes);
            touched.blocks.push((index, rest.unwrap_or(found)));
        }
        Ok(touched)
    }

    /// Notes the blocks as the operation has left them.
    ///
    /// # Errors
    /// [`DeviceError::Corrupted`] names the first block in which other bytes than those of the written tensors have
    /// changed.
    pub(crate) fn leave(&self, name: &str, touched: Touched) -> Result<(), DeviceError> {
        let Touched { writes, blocks } = touched;
        for (index, expected) in blocks {
            let mut bytes = self.read(index)?;
            let left = Hash::of(&bytes);
            self.hashes.borrow_mut()[index] = Some(left);
            let found = self.rest(index, &mut bytes, &writes).unwrap_or(left);
            if found != expected {
                let mut bytes = self.read(index)?;
                let again = self.rest(index, &mut bytes, &writes).unwrap_or_else(|| Hash::of(&bytes));
                return Err(self.corrupted(index, &format!("during {name}"), [expected, found, again]));
            }
        }
        Ok(())
    }

    /// The hash of `bytes` of a block without those that belong to `writes`; `None` where none do.
    fn rest(&self, index: usize, bytes: &mut [u8], writes: &[Tensor]) -> Option<Hash> {
        let block = self.place(index);
        let places: Vec<Range<usize>> = writes.iter().flat_map(|tensor| places_in(tensor, &block)).collect();
        for place in &places {
            bytes[place.start - block.start..place.end - block.start].fill(0);
        }
        (!places.is_empty()).then(|| Hash::of(bytes))
    }

    fn place(&self, index: usize) -> Range<usize> {
        index * BLOCK_BYTES..self.arena_bytes.min((index + 1) * BLOCK_BYTES)
    }

    fn read(&self, index: usize) -> Result<Vec<u8>, DeviceError> {
        let place = self.place(index);
        // Elements of two bytes are the shortest.
        let elements = place.len() / Dtype::Bf16.size_bytes();
        let mut bytes = vec![0; elements * Dtype::Bf16.size_bytes()];
        self.device.read(Tensor::new(place.start, 1, elements, Dtype::Bf16), &mut bytes)?;
        Ok(bytes)
    }

    fn corrupted(&self, index: usize, when: &str, [expected, found, again]: [Hash; 3]) -> DeviceError {
        let third = match again == expected {
            true => "read again, it is as it was: a read went wrong",
            false if again == found => "read again, it is the same: memory keeps wrong bits",
            false => "read again, it is different once more: memory does not keep its bits",
        };
        let Range { start, end } = self.place(index);
        DeviceError::Corrupted {
            what: format!(
                "bytes {start} to {end} of this rank's memory changed {when}, and no operation wrote them: XXH3 {expected} is now \
                 {found}; {third}"
            ),
        }
    }
}

/// Blocks that have bytes between the first and the last of a tensor.
fn blocks_of<'a>(tensors: impl Iterator<Item = &'a Tensor>) -> BTreeSet<usize> {
    let blocks = |place: Range<usize>| place.start / BLOCK_BYTES..place.end.div_ceil(BLOCK_BYTES);
    tensors.filter(|tensor| !tensor.is_empty()).flat_map(|tensor| blocks(tensor.bytes())).collect()
}

/// The bytes of the rows of `tensor` in `block`.
fn places_in(tensor: &Tensor, block: &Range<usize>) -> Vec<Range<usize>> {
    let (rows, row) = match tensor.is_dense() {
        true => (1, tensor.span_bytes()),
        false => (tensor.rows, tensor.cols * tensor.dtype.size_bytes()),
    };
    let stride = (tensor.row_stride * tensor.dtype.size_bytes()).max(1);
    let first = block.start.saturating_sub(tensor.offset_bytes + row).checked_div(stride).unwrap_or(0);
    let places = (first.min(rows)..rows).map(|number| {
        let start = tensor.offset_bytes + number * stride;
        start.max(block.start)..(start + row).min(block.end)
    });
    places.skip_while(|place| place.is_empty()).take_while(|place| !place.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(place: Range<usize>) -> Vec<Range<usize>> {
        std::iter::once(place).collect()
    }

    #[test]
    fn rows_are_found_in_the_blocks_that_they_touch() {
        let dense = Tensor::new(BLOCK_BYTES - 8, 2, 4, Dtype::F32);
        assert_eq!(blocks_of([dense].iter()).into_iter().collect::<Vec<_>>(), [0, 1]);
        let [first, second] = [0..BLOCK_BYTES, BLOCK_BYTES..2 * BLOCK_BYTES];
        assert_eq!(places_in(&dense, &first), one(BLOCK_BYTES - 8..BLOCK_BYTES));
        assert_eq!(places_in(&dense, &second), one(BLOCK_BYTES..BLOCK_BYTES + 24));
        // Rows of 8 bytes, 4,096 bytes apart: four in each block.
        let strided = Tensor { offset_bytes: 4, rows: 6, cols: 2, row_stride: 1024, dtype: Dtype::F32 };
        let row = |number: usize| 4 + 4096 * number..12 + 4096 * number;
        assert_eq!(places_in(&strided, &first), [row(0), row(1), row(2), row(3)]);
        assert_eq!(places_in(&strided, &second), [row(4), row(5)]);
        assert!(places_in(&strided, &(2 * BLOCK_BYTES..3 * BLOCK_BYTES)).is_empty());
        // A row that two blocks share.
        let across = Tensor { offset_bytes: BLOCK_BYTES - 4, rows: 2, cols: 2, row_stride: 1024, dtype: Dtype::F32 };
        assert_eq!(places_in(&across, &first), one(BLOCK_BYTES - 4..BLOCK_BYTES));
        let place = BLOCK_BYTES + 4092;
        assert_eq!(places_in(&across, &second), [BLOCK_BYTES..BLOCK_BYTES + 4, place..place + 8]);
    }
}
