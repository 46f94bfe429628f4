//! Arenas that are stained before the first operation: after a run, what lost its stain was written.

use std::sync::{Arc, Mutex};

use device::{ArenaSize, Device, DeviceError, Dtype, Op, Stream, Tensor};
use sync::lock;
use testkit::layout::engine;
use testkit::wrapped_engine::WrappedEngine;
use train::{RankEngine, Setup};

/// A quiet not-a-number that no operation makes: a result that happens to be it would count as unwritten.
const STAIN: u32 = 0x7fff_5eed;
/// Values of a plan begin at multiples of this number of bytes, the unit of counting.
pub const LINE_BYTES: usize = 64;
/// Bytes past the end of each arena of the plan, where writes beyond the plan are counted.
const BEYOND_BYTES: usize = 8 << 20;
/// Stained and read at once.
const PIECE_BYTES: usize = 1 << 20;

/// Bytes that the ranks of a run wrote.
pub struct Stained(Vec<Arc<Mutex<usize>>>);

impl Stained {
    /// The bytes of a run on this number of ranks.
    pub fn of(ranks: usize) -> Stained {
        Stained((0..ranks).map(|_| Arc::default()).collect())
    }

    /// Ranks for `setup` whose arenas are stained, with space past their ends.
    pub fn engine(&self, setup: &Setup) -> WrappedEngine<'_> {
        WrappedEngine::opened_by(engine(setup, 1), |inner, rank, size, numerics| {
            let size_bytes = size.end_bytes().next_multiple_of(LINE_BYTES) + BEYOND_BYTES;
            let opened = inner.open(rank, ArenaSize::of_device(size_bytes), numerics)?;
            let stain: Vec<u8> = STAIN.to_le_bytes().repeat(PIECE_BYTES / 4);
            for piece in pieces(size_bytes) {
                opened.device.write(piece, &stain[..piece.size_bytes()])?;
            }
            let written = Arc::clone(&self.0[rank.0]);
            Ok(RankEngine { device: Box::new(StainedDevice { inner: opened.device, size_bytes, written }), ..opened })
        })
    }

    /// After a run: bytes that were written of each rank's arena and of the space past its end, in whole lines.
    pub fn written_bytes(&self) -> Vec<usize> {
        self.0.iter().map(|bytes| *lock(bytes)).collect()
    }
}

/// All of an arena, piece by piece.
fn pieces(size_bytes: usize) -> impl Iterator<Item = Tensor> {
    let starts = (0..size_bytes).step_by(PIECE_BYTES);
    starts.map(move |start| Tensor::new(start, 1, PIECE_BYTES.min(size_bytes - start) / 4, Dtype::I32))
}

/// Counts what was written when its rank is done with it.
struct StainedDevice {
    inner: Box<dyn Device>,
    size_bytes: usize,
    written: Arc<Mutex<usize>>,
}

impl StainedDevice {
    fn count(&self) -> Result<usize, DeviceError> {
        let mut bytes = vec![0; PIECE_BYTES];
        let mut written = 0;
        for piece in pieces(self.size_bytes) {
            let bytes = &mut bytes[..piece.size_bytes()];
            self.inner.read(piece, bytes)?;
            let is_written = |line: &&[u8]| line.chunks(4).any(|word| word != STAIN.to_le_bytes());
            written += LINE_BYTES * bytes.chunks(LINE_BYTES).filter(is_written).count();
        }
        Ok(written)
    }
}

impl Drop for StainedDevice {
    fn drop(&mut self) {
        // Where it cannot be read, nothing counts as written, and the comparison with the plan shows it.
        let counted = self.count().unwrap_or_default();
        *lock(&self.written) = counted;
    }
}

impl Device for StainedDevice {
    fn submit(&self, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        self.inner.submit(stream, op)
    }

    fn upload(&self, stream: Stream, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.inner.upload(stream, to, from)
    }

    fn write(&self, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.inner.write(to, from)
    }

    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read(from, to)
    }

    device::forward_order!(inner);
}
