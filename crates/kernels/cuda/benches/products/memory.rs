//! Memory of the GPU with random factors.

use std::sync::Arc;

use device::{Bf16, Element};
use gpu::{DevicePointer, Gpu, PinnedHandle, StreamHandle};

use crate::Failed;

/// Bytes of each factor and of each output, and of the random numbers that are repeated in them.
pub struct Sizes {
    factor: usize,
    output: usize,
    pattern: usize,
}

/// For the largest product that is measured.
pub const LARGE: Sizes =
    Sizes { factor: 16_384 * 50_304 * 2, output: 16_384 * 50_304 * 4, pattern: (16 << 20) + 2 * 4096 + 32 };
/// For those that are compared.
pub const SMALL: Sizes = Sizes { factor: 22 << 20, output: 6 << 20, pattern: (2 << 20) + 2 * 4096 + 32 };

const BIAS_BYTES: usize = 1 << 20;
pub const WORKSPACE_BYTES: usize = 32 << 20;

pub struct Memory {
    gpu: Arc<dyn Gpu>,
    pub stream: StreamHandle,
    pinned: PinnedHandle,
    pattern_bytes: usize,
    pub a: DevicePointer,
    pub b: DevicePointer,
    pub bias: DevicePointer,
    /// The range of memory in which outputs begin.
    pub begun: DevicePointer,
    pub expected: DevicePointer,
    pub out: DevicePointer,
    pub result: DevicePointer,
    pub workspace: DevicePointer,
}

/// Random words, the same for a seed.
struct Words(u64);

impl Words {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ word >> 31
    }

    /// The sum of four uniform numbers: nearly normal, of variance 1.
    fn normal(&mut self) -> f32 {
        let word = self.next();
        let sum: u32 = (0..4).map(|part| (word >> (16 * part) & 0xffff) as u32).sum();
        (sum as f32 / 65_536.0 - 2.0) * 3f32.sqrt()
    }
}

impl Memory {
    pub fn allocate(gpu: &Arc<dyn Gpu>, sizes: Sizes) -> Result<Memory, Failed> {
        let memory = Memory {
            stream: gpu.create_stream()?,
            pinned: gpu.allocate_pinned(sizes.pattern)?,
            pattern_bytes: sizes.pattern,
            a: gpu.allocate(sizes.factor)?,
            b: gpu.allocate(sizes.factor)?,
            bias: gpu.allocate(BIAS_BYTES)?,
            begun: gpu.allocate(BIAS_BYTES)?,
            expected: gpu.allocate(sizes.output)?,
            out: gpu.allocate(sizes.output)?,
            result: gpu.allocate(16)?,
            workspace: gpu.allocate(WORKSPACE_BYTES)?,
            gpu: Arc::clone(gpu),
        };
        let mut words = Words(7);
        let pattern: Vec<u8> =
            (0..sizes.pattern / 2).flat_map(|_| Bf16::narrow(words.normal()).0.to_le_bytes()).collect();
        gpu.write_pinned(memory.pinned, 0, &pattern)?;
        memory.repeat(memory.a, sizes.factor, 0)?;
        memory.repeat(memory.b, sizes.factor, 4096)?;
        memory.repeat(memory.bias, BIAS_BYTES, 8192)?;
        memory.repeat(memory.begun, BIAS_BYTES, 12_288)?;
        gpu.synchronize(memory.stream)?;
        Ok(memory)
    }

    fn repeat(&self, to: DevicePointer, bytes: usize, skipped: usize) -> Result<(), Failed> {
        let pattern = self.pattern_bytes - skipped;
        let mut done = pattern.min(bytes);
        self.gpu.upload(self.stream, to, self.pinned, skipped, done)?;
        while done < bytes {
            let piece = pattern.min(bytes - done);
            self.gpu.copy(self.stream, to.offset(done), to, piece)?;
            done += piece;
        }
        Ok(())
    }

    /// Random numbers in place of an output of `bytes`.
    pub fn begin(&self, out: DevicePointer, bytes: usize) -> Result<(), Failed> {
        let mut done = 0;
        while done < bytes {
            let piece = BIAS_BYTES.min(bytes - done);
            self.gpu.copy(self.stream, out.offset(done), self.begun, piece)?;
            done += piece;
        }
        Ok(())
    }

    /// Words that differ, and the first of them.
    pub fn differences(&self) -> Result<[u64; 2], Failed> {
        let mut words = [0; 16];
        self.gpu.download(self.stream, self.pinned, 0, self.result, 16)?;
        self.gpu.synchronize(self.stream)?;
        self.gpu.read_pinned(self.pinned, 0, &mut words)?;
        let word = |at: usize| words[at..at + 8].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        Ok([word(0), word(8)])
    }
}
