//! Sums of real numbers that were rounded once to whole ones, which associate; and the way back.

use device::{Rounding, Write};

use crate::lanes::{Kernel, Lanes};

/// `into` = or += the whole numbers nearest to `x / unit`, of two equally near ones the even one; zero for a refused
/// element. Returns how many elements were refused.
///
/// Dividing by a power of two is exact. A limit of at most 2^62 units is the caller's matter, and that sums stay below
/// 2^63.
pub struct AddRounded<'a> {
    /// `[N]`
    pub x: &'a [f32],
    /// The unit of the sum, and the magnitude from which elements are refused.
    pub rounding: Rounding,
    /// `[N]`, assigned or accumulated.
    pub into: &'a mut [i64],
    /// Which of the two.
    pub write: Write,
}

impl Kernel for AddRounded<'_> {
    type Output = i64;
    #[inline(always)]
    fn run<L: Lanes>(self) -> i64 {
        assert_eq!(self.x.len(), self.into.len(), "one sum per element");
        let Rounding { unit, limit } = self.rounding;
        let per_unit = 1.0 / unit;
        let mut refused = 0;
        for (sum, &x) in self.into.iter_mut().zip(self.x) {
            let accepted = x.abs() < limit;
            refused += i64::from(!accepted);
            let whole = if accepted { (x * per_unit).round_ties_even() as i64 } else { 0 };
            *sum = match self.write {
                Write::Assign => whole,
                Write::Accumulate => sum.wrapping_add(whole),
            };
        }
        refused
    }
}

/// `sums[N]` become `unit * sums` in single precision, each rounded once, in the first half of their place; the other
/// half is left as it is.
pub struct RoundedToSingle<'a> {
    /// `[N]`, replaced.
    pub sums: &'a mut [i64],
    /// The value of one: a power of two.
    pub unit: f32,
}

impl Kernel for RoundedToSingle<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let single = |sum: i64| sum as f32 * self.unit;
        let len = self.sums.len();
        // Two sums are read before their two numbers are written over one that has been read.
        for pair in 0..len / 2 {
            let numbers = [single(self.sums[2 * pair]), single(self.sums[2 * pair + 1])];
            self.sums[pair] = bytemuck::cast(numbers);
        }
        if !len.is_multiple_of(2) {
            self.sums[len / 2] = bytemuck::cast([single(self.sums[len - 1]), 0.0]);
        }
    }
}
