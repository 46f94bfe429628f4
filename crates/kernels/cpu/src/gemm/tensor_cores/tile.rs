//! Products of packed operands, sixteen columns at a time.
//!
//! Usual blocks are summed in vectors. A product of two numbers of bf16 or fp16 is exact in `f32`, and so is its
//! multiple by a power of two; converting that to a whole number cuts off everything below the last bit that counts.
//! Sixteen such numbers fit 32 bits, and with the sum so far they are exact in `f64`, whose last 29 bits are then
//! cleared. Blocks with infinities and NaNs, and those whose exponents leave the range in which powers of two are
//! numbers of `f32`, are left to the rule itself.

use super::pack::{NO_EXPONENT, Packed, STEPS};
use super::rule::BlockRule;
use crate::instruction_set::InstructionSet;
use crate::lanes::{Kernel, LANES, Lanes};
use crate::view::MatMut;

/// The largest exponents for which products, and the factors that make whole numbers of them, are numbers of `f32`.
pub(super) const USUAL: std::ops::RangeInclusive<i32> = -102..=126;
/// All bits of an `f64` but those that an `f32` does not have.
pub(super) const BITS_OF_F32: u64 = !0x1fff_ffff;

/// `c = c + a b`, where each element of `c` is the sum that its product continues.
pub(crate) struct Multiply<'a> {
    pub rule: BlockRule,
    pub instruction_set: InstructionSet,
    pub a: Packed<'a>,
    pub b: Packed<'a>,
    pub c: MatMut<'a>,
}

impl Kernel for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let sizes = (self.c.rows(), self.c.cols(), self.a.blocks);
        assert!((self.a.lanes, self.b.lanes, self.b.blocks) == sizes, "operands of a product of {sizes:?}");
        assert!(self.instruction_set.is_available(), "this machine has no {:?}", self.instruction_set);
        match self.rule.steps {
            16 => self.in_blocks::<16>(),
            8 => self.in_blocks::<8>(),
            steps => panic!("blocks must have 16 or 8 steps; got {steps}"),
        }
    }
}

impl Multiply<'_> {
    #[inline(always)]
    fn in_blocks<const BLOCK: usize>(mut self) {
        for (panel, first) in (0..self.c.cols()).step_by(LANES).enumerate() {
            for row in 0..self.c.rows() {
                let c = &mut self.c.row_mut(row)[first..];
                let columns = c.len().min(LANES);
                let mut sums = [0.0; LANES];
                sums[..columns].copy_from_slice(&c[..columns]);
                for block in 0..self.a.blocks {
                    let ((a, a_exponents), (b, b_exponents)) = (self.a.row(row, block), self.b.panel(panel, block));
                    for part in 0..STEPS / BLOCK {
                        let block = Block::<BLOCK> {
                            a: &a.as_chunks().0[part],
                            a_exponents: &a_exponents.as_chunks().0[part],
                            b: &b.as_chunks().0[part],
                            b_exponents: &b_exponents.as_chunks().0[part],
                        };
                        if !block.add_usual_on(self.instruction_set, self.rule, &mut sums) {
                            block.add_any(self.rule, self.a, &mut sums);
                        }
                    }
                }
                c[..columns].copy_from_slice(&sums[..columns]);
            }
        }
    }
}

/// A block of steps of one row and sixteen columns.
pub(super) struct Block<'a, const BLOCK: usize> {
    pub a: &'a [f32; BLOCK],
    pub a_exponents: &'a [i16; BLOCK],
    pub b: &'a [[f32; LANES]; BLOCK],
    pub b_exponents: &'a [[i16; LANES]; BLOCK],
}

impl<const BLOCK: usize> Block<'_, BLOCK> {
    /// The largest exponent in each column, 0 where all terms are zeros.
    #[inline(always)]
    fn largest(&self, sums: &[f32; LANES]) -> [i32; LANES] {
        let mut of_products = [i16::MIN; LANES];
        for (a, b) in self.a_exponents.iter().zip(self.b_exponents) {
            for (largest, b) in of_products.iter_mut().zip(b) {
                *largest = (*largest).max(a.wrapping_add(*b));
            }
        }
        let mut largest = [0; LANES];
        for ((largest, of_products), sum) in largest.iter_mut().zip(of_products).zip(sums) {
            let magnitude = sum.to_bits() & 0x7fff_ffff;
            let of_sum = if magnitude == 0 { 2 * NO_EXPONENT } else { ((magnitude >> 23) as i32).max(1) - 127 };
            let of_all = of_sum.max(i32::from(of_products));
            *largest = if of_all < NO_EXPONENT { 0 } else { of_all };
        }
        largest
    }

    /// [`Block::add_usual`] with the vectors of `instruction_set`, which the machine must have.
    #[inline(always)]
    fn add_usual_on(&self, instruction_set: InstructionSet, rule: BlockRule, sums: &mut [f32; LANES]) -> bool {
        match instruction_set {
            // SAFETY: each of these sets has AVX2, and `Multiply` asked for it.
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Amx | InstructionSet::Avx512 | InstructionSet::Avx2 => unsafe {
                self.add_usual_avx2(rule, sums)
            },
            #[cfg(not(target_arch = "x86_64"))]
            InstructionSet::Amx | InstructionSet::Avx512 | InstructionSet::Avx2 => self.add_usual(rule, sums),
            InstructionSet::Scalar => self.add_usual(rule, sums),
        }
    }

    /// Adds the block to the sums of the columns, if all exponents are usual; says whether it did.
    #[inline(always)]
    fn add_usual(&self, rule: BlockRule, sums: &mut [f32; LANES]) -> bool {
        let largest = self.largest(sums);
        let mut is_usual = true;
        for exponent in largest {
            is_usual &= USUAL.contains(&exponent);
        }
        if !is_usual {
            return false;
        }
        let scales = largest.map(|exponent| f32::from_bits(((rule.fraction_bits - exponent + 127) as u32) << 23));
        let mut units = [0i32; LANES];
        for (a, b) in self.a.iter().zip(self.b) {
            for ((units, b), scale) in units.iter_mut().zip(b).zip(scales) {
                // SAFETY: exponents are usual, so the product is finite, and below 2^27: 2^(fraction bits) times a
                // number below 4.
                *units += unsafe { (a * b * scale).to_int_unchecked::<i32>() };
            }
        }
        for (((sum, scale), units), exponent) in sums.iter_mut().zip(scales).zip(units).zip(largest) {
            // SAFETY: as above; it is below 2^26.
            let own = unsafe { (*sum * scale).to_int_unchecked::<i32>() };
            let exact = f64::from(units) + f64::from(own);
            let unit = f64::from_bits(((exponent - rule.fraction_bits + 1023) as u64) << 52);
            *sum = (f64::from_bits(exact.to_bits() & BITS_OF_F32) * unit) as f32;
        }
        true
    }

    /// Adds the block by the rule itself.
    #[cold]
    #[inline(never)]
    fn add_any(&self, rule: BlockRule, of: Packed<'_>, sums: &mut [f32; LANES]) {
        for (lane, sum) in sums.iter_mut().enumerate() {
            let factors: [_; BLOCK] =
                std::array::from_fn(|step| [self.a[step], self.b[step][lane]].map(|number| of.narrow.term(number)));
            *sum = rule.add(*sum, &factors);
        }
    }
}
