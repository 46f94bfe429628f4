//! Operands of products in blocks as tiles read them: widened numbers, and for each of them the number that it adds
//! to the exponent of a product.
//!
//! Rows of A are packed in blocks of sixteen steps, `[block][row][step]`; columns of B in panels of sixteen,
//! `[panel][block][step][column]`. Zeros fill blocks and panels up.

use device::{Bf16, Dtype, Element, F16};

use super::rule::Term;
use crate::gemm::pairs::small::Adjacent;
use crate::lanes::LANES;
use crate::view::MatRef;

/// Steps of a packed block: one block of the longer rule, two of the shorter.
pub(super) const STEPS: usize = 16;

/// The exponent of a zero: with any number's it is below all exponents of products.
const OF_ZERO: i16 = -8192;
/// The exponent of infinity and NaN: also with [`OF_ZERO`] it is above all exponents of products.
const OF_NOT_FINITE: i16 = 16_000;
/// Below all exponents of products, and above those with a zero.
pub(super) const NO_EXPONENT: i32 = -4096;

/// The format that factors have, or are rounded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Narrow {
    /// Of 8 bits.
    Bf16,
    /// Of 11 bits.
    F16,
}

impl Narrow {
    /// The format that a product of these types has: that of its narrow factor. `None` where it has none, or two.
    pub fn of(factors: [Dtype; 2]) -> Option<Narrow> {
        match factors {
            [Dtype::Bf16, Dtype::Bf16 | Dtype::F32] | [Dtype::F32, Dtype::Bf16] => Some(Narrow::Bf16),
            [Dtype::F16, Dtype::F16 | Dtype::F32] | [Dtype::F32, Dtype::F16] => Some(Narrow::F16),
            [Dtype::F32, Dtype::F32]
            | [Dtype::Bf16, Dtype::F16]
            | [Dtype::F16, Dtype::Bf16]
            | [Dtype::I32 | Dtype::I64, _]
            | [_, Dtype::I32 | Dtype::I64] => None,
        }
    }

    /// `value` as a number of this format, widened again.
    #[inline(always)]
    fn rounded(self, value: f32) -> f32 {
        match self {
            Narrow::Bf16 => Bf16::narrow(value).widen(),
            Narrow::F16 => F16::narrow(value).widen(),
        }
    }

    /// A widened number of this format as the rule reads it.
    pub(super) fn term(self, widened: f32) -> Term {
        match self {
            Narrow::Bf16 => Bf16::narrow(widened).into(),
            Narrow::F16 => F16::narrow(widened).into(),
        }
    }

    /// The exponent of a widened number of this format: those of two factors add up to that of their product.
    #[inline(always)]
    fn exponent(self, widened: f32) -> i16 {
        let least = match self {
            Narrow::Bf16 => -126,
            Narrow::F16 => -14,
        };
        let magnitude = widened.to_bits() & 0x7fff_ffff;
        match magnitude >> 23 {
            _ if magnitude == 0 => OF_ZERO,
            255 => OF_NOT_FINITE,
            field => (field as i16 - 127).max(least),
        }
    }
}

/// Which operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Rows,
    /// Columns of B.
    Columns,
}

/// Memory for a packed operand.
pub(crate) struct PackedBuffer<'a> {
    side: Side,
    narrow: Narrow,
    values: &'a mut [f32],
    exponents: &'a mut [i16],
    lanes: usize,
    blocks: usize,
}

/// A packed operand, or some lanes and blocks of steps of one.
#[derive(Clone, Copy)]
pub(crate) struct Packed<'a> {
    side: Side,
    pub(super) narrow: Narrow,
    values: &'a [f32],
    exponents: &'a [i16],
    /// Rows, or blocks of a panel, from one to the next.
    stored: usize,
    first_lane: usize,
    /// How many take part.
    pub(super) lanes: usize,
    first_block: usize,
    /// How many take part.
    pub(super) blocks: usize,
}

/// Takes room for `len` numbers from the front of `memory`, a cache line at a time.
pub(crate) fn take<'a, T: bytemuck::Pod>(memory: &mut &'a mut [u8], len: usize) -> &'a mut [T] {
    let bytes = (len * size_of::<T>()).next_multiple_of(64);
    let Some(part) = memory.split_off_mut(..bytes) else { panic!("{bytes} bytes in {}", memory.len()) };
    &mut bytemuck::cast_slice_mut(part)[..len]
}

impl<'a> PackedBuffer<'a> {
    /// Takes the room for these lanes and steps, at most, from the front of `memory`.
    pub(crate) fn take(
        side: Side,
        narrow: Narrow,
        (lanes, steps): (usize, usize),
        memory: &mut &'a mut [u8],
    ) -> PackedBuffer<'a> {
        let len = padded_lanes(side, lanes) * steps.next_multiple_of(STEPS);
        PackedBuffer { side, narrow, values: take(memory, len), exponents: take(memory, len), lanes: 0, blocks: 0 }
    }

    /// Packs a matrix in place of the one before; each number is rounded to the format first, which changes none that
    /// has it.
    pub(crate) fn pack<E: Element>(&mut self, adjacent: Adjacent, matrix: MatRef<'_, E>) {
        let (lanes, steps) = match adjacent {
            Adjacent::Steps => (matrix.rows(), matrix.cols()),
            Adjacent::Lanes => (matrix.cols(), matrix.rows()),
        };
        let (side, narrow, blocks) = (self.side, self.narrow, steps.div_ceil(STEPS));
        (self.lanes, self.blocks) = (lanes, blocks);
        let len = padded_lanes(side, lanes) * blocks * STEPS;
        let (values, exponents) = (&mut self.values[..len], &mut self.exponents[..len]);
        if len > lanes * steps {
            values.fill(0.0);
            exponents.fill(OF_ZERO);
        }
        let place = |lane: usize, step: usize| match side {
            Side::Rows => (step / STEPS * lanes + lane) * STEPS + step % STEPS,
            Side::Columns => (lane / LANES * blocks * STEPS + step) * LANES + lane % LANES,
        };
        let mut put = |at: usize, number: E| {
            let value = if E::DTYPE == Dtype::F32 { narrow.rounded(number.widen()) } else { number.widen() };
            (values[at], exponents[at]) = (value, narrow.exponent(value));
        };
        for row in 0..matrix.rows() {
            let numbers = matrix.row(row).iter().enumerate();
            match adjacent {
                Adjacent::Steps => numbers.for_each(|(step, number)| put(place(row, step), *number)),
                Adjacent::Lanes => numbers.for_each(|(lane, number)| put(place(lane, row), *number)),
            }
        }
    }

    /// The packed factors.
    pub(crate) fn packed(&self) -> Packed<'_> {
        let stored = match self.side {
            Side::Rows => self.lanes,
            Side::Columns => self.blocks,
        };
        Packed {
            side: self.side,
            narrow: self.narrow,
            values: self.values,
            exponents: self.exponents,
            stored,
            first_lane: 0,
            lanes: self.lanes,
            first_block: 0,
            blocks: self.blocks,
        }
    }
}

fn padded_lanes(side: Side, lanes: usize) -> usize {
    match side {
        Side::Rows => lanes,
        Side::Columns => lanes.next_multiple_of(LANES),
    }
}

impl<'a> Packed<'a> {
    /// `lanes` lanes from `first` on: of columns a multiple of sixteen.
    pub(crate) fn lanes(self, first: usize, lanes: usize) -> Packed<'a> {
        assert!(first + lanes <= self.lanes, "{lanes} lanes from {first} on, of {}", self.lanes);
        assert!(self.side == Side::Rows || first.is_multiple_of(LANES), "column {first} must begin a panel of {LANES}");
        Packed { first_lane: self.first_lane + first, lanes, ..self }
    }

    /// `blocks` blocks of sixteen steps from `first` on.
    pub(crate) fn steps(self, first: usize, blocks: usize) -> Packed<'a> {
        assert!(first + blocks <= self.blocks, "{blocks} blocks of steps from {first} on, of {}", self.blocks);
        Packed { first_block: self.first_block + first, blocks, ..self }
    }

    /// How many blocks of steps take part.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }

    /// A row's numbers of a block of steps, and what they add to exponents.
    #[inline(always)]
    pub(super) fn row(&self, row: usize, block: usize) -> (&'a [f32; STEPS], &'a [i16; STEPS]) {
        let at = (self.first_block + block) * self.stored + self.first_lane + row;
        (&self.values.as_chunks().0[at], &self.exponents.as_chunks().0[at])
    }

    /// A panel's numbers of a block of steps, and what they add to exponents.
    #[inline(always)]
    pub(super) fn panel(&self, panel: usize, block: usize) -> (&'a [[f32; LANES]; STEPS], &'a [[i16; LANES]; STEPS]) {
        let at = (self.first_lane / LANES + panel) * self.stored + self.first_block + block;
        (&self.values.as_chunks().0.as_chunks().0[at], &self.exponents.as_chunks().0.as_chunks().0[at])
    }
}
