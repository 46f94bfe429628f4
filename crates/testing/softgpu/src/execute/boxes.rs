//! A box of a tensor between global and shared memory.

use std::ops::Range;

use gpu::TensorTiles;

use super::fault::{Fault, FaultKind};
use super::memory::Memory;
use super::swizzle::{CHUNK, pattern_bytes, placed};
use crate::code::MAX_DIMS;
use crate::ptx::Space;

/// The alignment of a box in shared memory.
const ALIGNMENT: usize = 128;

/// A box of a tensor, and its place in shared memory.
#[derive(Clone, Debug)]
pub struct PlacedBox {
    tiles: TensorTiles,
    /// The first element along each dim.
    first: [i64; MAX_DIMS],
    /// The first byte in shared memory.
    shared: usize,
}

/// A row of a box: elements that are next to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    /// Its place in shared memory, before chunks change theirs.
    shared: usize,
    /// The address of its part within the tensor.
    address: u64,
    /// Bytes before this part.
    skipped: usize,
    /// Bytes of this part.
    bytes: usize,
}

impl PlacedBox {
    /// The box from `first` on.
    ///
    /// # Errors
    /// A place in shared memory that breaks a rule.
    pub fn new(tiles: TensorTiles, first: [i64; MAX_DIMS], shared: usize, lane: usize) -> Result<PlacedBox, Fault> {
        let needed = ALIGNMENT.max(if tiles.swizzle.span().is_some() { pattern_bytes(tiles.swizzle) } else { 1 });
        if !shared.is_multiple_of(needed) {
            let swizzle = tiles.swizzle.span().map_or("no".into(), |span| format!("a {span}-byte"));
            let text = format!(
                "a box with {swizzle} swizzle must be at a multiple of {needed} bytes of shared memory; got {shared:#x}"
            );
            return Err(Fault::of_lane(FaultKind::Misaligned, lane, text));
        }
        let placed = PlacedBox { tiles, first, shared };
        if let Some(span) = placed.tiles.swizzle.span().filter(|span| *span as usize != placed.row_bytes()) {
            let text = format!(
                "rows of a box with a {span}-byte swizzle must have {span} bytes on this GPU; got {}",
                placed.row_bytes()
            );
            return Err(Fault::of_lane(FaultKind::Invalid, lane, text));
        }
        Ok(placed)
    }

    fn row_bytes(&self) -> usize {
        self.tiles.box_dims[0] as usize * self.tiles.element.bytes() as usize
    }

    /// Its bytes in shared memory.
    pub fn range(&self) -> Range<usize> {
        self.shared..self.shared + self.tiles.box_bytes() as usize
    }

    fn rows(&self) -> Vec<Row> {
        let tiles = &self.tiles;
        let element = tiles.element.bytes() as i64;
        let count: usize = tiles.box_dims[1..].iter().map(|dim| *dim as usize).product();
        // The part of a row within the tensor.
        let begin = self.first[0].clamp(0, tiles.dims[0] as i64);
        let end = (self.first[0] + i64::from(tiles.box_dims[0])).clamp(begin, tiles.dims[0] as i64);
        let mut rows = Vec::with_capacity(count);
        for number in 0..count {
            let mut left = number;
            let mut address = tiles.address.0.wrapping_add_signed(begin * element);
            let mut is_inside = true;
            for dim in 1..tiles.dims.len() {
                let index = self.first[dim] + (left % tiles.box_dims[dim] as usize) as i64;
                left /= tiles.box_dims[dim] as usize;
                is_inside &= index >= 0 && (index as u64) < tiles.dims[dim];
                address = address.wrapping_add_signed(index.wrapping_mul(tiles.strides_bytes[dim - 1] as i64));
            }
            let bytes = if is_inside { ((end - begin) * element) as usize } else { 0 };
            let skipped = if bytes > 0 { ((begin - self.first[0]) * element) as usize } else { 0 };
            rows.push(Row { shared: self.shared + number * self.row_bytes(), address, skipped, bytes });
        }
        rows
    }

    /// Copies the box to shared memory.
    ///
    /// # Errors
    /// Reads that the launch may not make.
    pub fn load(&self, memory: &mut Memory<'_>, lane: usize) -> Result<(), Fault> {
        let mut buffer = vec![0; self.row_bytes()];
        for row in self.rows() {
            buffer.fill(0);
            if row.bytes > 0 {
                let from = memory.read_unaligned(Space::Global, row.address, row.bytes, lane)?;
                buffer[row.skipped..row.skipped + row.bytes].copy_from_slice(from);
            }
            for (number, chunk) in buffer.chunks(CHUNK).enumerate() {
                let to = placed(self.tiles.swizzle, row.shared + number * CHUNK);
                memory.shared.write_asynchronously(to, chunk);
            }
        }
        Ok(())
    }

    /// The bytes of the box in shared memory, row after row.
    ///
    /// # Errors
    /// Bytes that nothing has written.
    pub fn read(&self, memory: &Memory<'_>, lane: usize) -> Result<Vec<u8>, Fault> {
        let mut bytes = Vec::with_capacity(self.range().len());
        for from in self.range().step_by(CHUNK) {
            let from = placed(self.tiles.swizzle, from);
            bytes.extend_from_slice(memory.shared.read_asynchronously(from, CHUNK, lane)?);
        }
        Ok(bytes)
    }

    /// Writes bytes of [`PlacedBox::read`] to the tensor.
    ///
    /// # Errors
    /// Writes that the launch may not make.
    pub fn store(&self, bytes: &[u8], memory: &mut Memory<'_>, lane: usize) -> Result<(), Fault> {
        for (row, from) in self.rows().iter().zip(bytes.chunks(self.row_bytes())) {
            if row.bytes > 0 {
                let from = &from[row.skipped..row.skipped + row.bytes];
                memory.write_unaligned(Space::Global, row.address, from, lane)?;
            }
        }
        Ok(())
    }
}
