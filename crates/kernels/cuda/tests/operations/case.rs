//! The bytes of an arena with tensors of chosen shapes, strides and values.

use device::{Bf16, Dtype, Element, F16, Tensor};

/// The types of real numbers in which a run may store its tensors.
pub const STORED: [Dtype; 3] = [Dtype::F32, Dtype::Bf16, Dtype::F16];

/// Values of real numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Of both signs, magnitudes from 1/16 to 16.
    Plain,
    /// One in four is a zero, an infinity, a NaN, subnormal, huge or tiny.
    Wild,
}

/// Random words, the same for a seed.
pub struct Words {
    state: u64,
}

impl Words {
    pub fn new(seed: u64) -> Words {
        Words { state: seed }
    }

    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.state;
        word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ word >> 31
    }

    /// Below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub fn real(&mut self, values: Values) -> f32 {
        const WILD: [f32; 14] = [
            0.0,
            -0.0,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            1e-45,
            -1e-40,
            1.1e-38,
            f32::MAX,
            -1e38,
            1e-30,
            -3e-20,
            88.0,
            -87.0,
        ];
        let word = self.next();
        let kind = (word >> 8) as usize;
        if values == Values::Wild && kind.is_multiple_of(4) {
            return WILD[kind / 4 % WILD.len()];
        }
        // A power of two from 2^-4 to 2^3, by its exponent.
        let power = f32::from_bits((word % 8 + 123) as u32 * (1 << 23));
        let magnitude = ((word >> 40) as f32 / (1u64 << 24) as f32 + 1.0) * power;
        if word & 0x80 == 0 { magnitude } else { -magnitude }
    }
}

/// The bytes of an arena. Tensors are laid out one after the other, but for one at the arena's end in some cases, after
/// which there is no memory; all other bytes are random.
pub struct Case {
    bytes: Vec<u8>,
    used: usize,
    placed: usize,
    /// Which tensor is at the end.
    last: Option<usize>,
    /// The type of [`Case::stored`].
    stored: Dtype,
    pub words: Words,
}

impl Case {
    pub fn new(seed: u64) -> Case {
        Case { bytes: vec![], used: 0, placed: 0, last: None, stored: Dtype::F32, words: Words::new(seed) }
    }

    /// A case whose tensor number `last`, counted from 0, is at the end of an arena of `arena_bytes`.
    pub fn with_last(seed: u64, last: usize, arena_bytes: usize) -> Case {
        Case { bytes: vec![0x5a; arena_bytes], last: Some(last), ..Case::new(seed) }
    }

    /// The case with tensors of this type where the operation leaves the type to the run.
    pub fn storing(self, stored: Dtype) -> Case {
        Case { stored, ..self }
    }

    /// All bytes; a multiple of 64.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A place for `[rows, cols]`, rows `gap` elements apart, with random bytes in it.
    pub fn place(&mut self, rows: usize, cols: usize, gap: usize, dtype: Dtype) -> Tensor {
        let tensor = Tensor { row_stride: cols + gap, ..Tensor::new(self.used, rows, cols, dtype) };
        self.placed += 1;
        if self.last == Some(self.placed - 1) {
            return Tensor { offset_bytes: self.bytes.len() - tensor.span_bytes(), ..tensor };
        }
        let end = self.used + rows.max(1) * tensor.row_stride * dtype.size_bytes();
        // Random bytes after every tensor, so that an access beyond its end shows.
        self.used = end.next_multiple_of(64) + 64;
        while self.bytes.len() < self.used {
            let word = self.words.next();
            self.bytes.extend_from_slice(&word.to_le_bytes());
        }
        tensor
    }

    /// Real numbers in single precision.
    pub fn reals(&mut self, rows: usize, cols: usize, gap: usize, values: Values) -> Tensor {
        self.reals_of(Dtype::F32, [rows, cols], gap, values)
    }

    /// Real numbers of the type that the case stores.
    pub fn stored(&mut self, rows: usize, cols: usize, gap: usize, values: Values) -> Tensor {
        self.reals_of(self.stored, [rows, cols], gap, values)
    }

    /// A dense vector of real numbers of the type that the case stores.
    pub fn stored_vector(&mut self, len: usize, values: Values) -> Tensor {
        self.stored(1, len, 0, values)
    }

    /// Real numbers of this type. Some wild ones of a narrow type are any of its numbers.
    pub fn reals_of(&mut self, dtype: Dtype, [rows, cols]: [usize; 2], gap: usize, values: Values) -> Tensor {
        let tensor = self.place(rows, cols, gap, dtype);
        for row in 0..rows {
            for col in 0..cols {
                let value = self.words.real(values);
                let any = values == Values::Wild && self.words.below(8) == 0;
                let bits = self.words.next() as u16;
                match dtype {
                    Dtype::F32 => self.put(tensor, row, col, &value.to_le_bytes()),
                    Dtype::Bf16 => {
                        let number = if any { Bf16(bits) } else { Bf16::narrow(value) };
                        self.put(tensor, row, col, &number.0.to_le_bytes());
                    }
                    Dtype::F16 => {
                        let number = if any { F16(bits) } else { F16::narrow(value) };
                        self.put(tensor, row, col, &number.0.to_le_bytes());
                    }
                    Dtype::I32 | Dtype::I64 => panic!("{dtype:?} holds no real numbers"),
                }
            }
        }
        tensor
    }

    /// A dense vector of real numbers.
    pub fn vector(&mut self, len: usize, values: Values) -> Tensor {
        self.reals(1, len, 0, values)
    }

    /// A dense vector of these integers. More of them are after it, so that who reads too many takes them for its own.
    pub fn ints(&mut self, values: &[i32]) -> Tensor {
        const AFTER: usize = 16;
        let tensor = self.place(1, values.len() + AFTER, 0, Dtype::I32);
        for (col, value) in values.iter().cycle().take(tensor.cols).enumerate() {
            self.put(tensor, 0, col, &value.to_le_bytes());
        }
        Tensor { cols: values.len(), row_stride: values.len(), ..tensor }
    }

    /// Overwrites an element.
    pub fn put(&mut self, tensor: Tensor, row: usize, col: usize, value: &[u8]) {
        let place = tensor.offset_bytes + (row * tensor.row_stride + col) * tensor.dtype.size_bytes();
        self.bytes[place..place + value.len()].copy_from_slice(value);
    }
}
