//! Products in AMX order and in terms, element by element.

use cpu::gemm::{K_BLOCK, Orientation, PAIRS_BLOCK, TERMS_RUN, Write};
use device::Bf16;

use crate::pairs::case::{Case, Drawn};
use crate::pairs::definition::continued;

/// Which terms of A and B are multiplied, in this order.
const TERM_PRODUCTS: [(usize, usize); 6] = [(2, 0), (1, 0), (1, 1), (0, 1), (0, 2), (0, 0)];

/// The numbers of bf16 that one of single precision is the sum of; NaN for NaN.
fn terms(number: f32) -> [f32; 3] {
    if number.is_infinite() {
        return [1.0f32.copysign(number), 0.0, number];
    }
    let largest = 2.0f64.powi(128) - 2.0f64.powi(120);
    let mut rest = f64::from(number);
    [0; 3].map(|_| {
        // The unit in the last of eight places.
        let exponent = if rest == 0.0 { -126 } else { (rest.abs().log2().floor() as i32).max(-126) };
        let unit = 2.0f64.powi(exponent - 7);
        // Half a unit is rounded away from zero.
        let term = ((rest / unit).round() * unit).clamp(-largest, largest);
        rest -= term;
        term as f32
    })
}

/// The error of the terms that enter in place of a number: those below 2^-126 are zeros.
fn missed(number: f64) -> f64 {
    let least = f64::from(f32::MIN_POSITIVE);
    match number.abs() {
        size if size < least => size,
        size if size < 2.0f64.powi(-103) => least.min(size * 2.0f64.powi(-8)),
        _ => 0.0,
    }
}

/// An element in double precision.
pub struct Exact {
    pub value: f64,
    /// `sum |a b|`
    pub products: f64,
    /// `|c| + |bias|`
    pub added: f64,
    /// `sum |a| + sum |b|`
    pub operands: f64,
    /// The most by which the sum may change where operands enter in terms.
    pub missed: f64,
}

impl<T: Drawn> Case<T> {
    /// A's element as products read it.
    fn a_at(&self, row: usize, step: usize) -> f32 {
        self.a[match self.orientation {
            Orientation::Nt | Orientation::Nn => row * (self.k + self.gap) + step,
            Orientation::Tn => step * (self.m + self.gap) + row,
        }]
        .widen()
    }

    fn b_at(&self, step: usize, column: usize) -> f32 {
        self.b[match self.orientation {
            Orientation::Nt => column * (self.k + self.gap) + step,
            Orientation::Nn | Orientation::Tn => step * (self.n + self.gap) + column,
        }]
        .widen()
    }

    /// The element of C before, if it counts.
    fn old(&self, row: usize, column: usize) -> Option<f32> {
        match self.write {
            Write::Assign => None,
            Write::Accumulate => Some(self.c[row * (self.n + self.gap) + column]),
        }
    }

    pub fn exact(&self, row: usize, column: usize) -> Exact {
        let old = self.old(row, column).map_or(0.0, f64::from);
        let bias = self.bias.as_ref().map_or(0.0, |bias| f64::from(bias[column]));
        let mut exact =
            Exact { value: old + bias, products: 0.0, added: old.abs() + bias.abs(), operands: 0.0, missed: 0.0 };
        for step in 0..self.k {
            let (a, b) = (f64::from(self.a_at(row, step)), f64::from(self.b_at(step, column)));
            exact.value += a * b;
            exact.products += (a * b).abs();
            exact.operands += a.abs() + b.abs();
            exact.missed += missed(a) * b.abs() + missed(b) * (a.abs() + missed(a));
        }
        exact
    }
}

/// `n u / (1 - n u)`
fn of_roundings(n: usize) -> f64 {
    let unit = n as f64 * f64::from(f32::EPSILON) / 2.0;
    unit / (1.0 - unit)
}

impl Case<Bf16> {
    /// The new `c`, before it is rounded to the type of C.
    pub fn expected(&self, row: usize, column: usize) -> f32 {
        let sum = continued(0.0, self.k, |step| (self.a_at(row, step), self.b_at(step, column)));
        let value = self.old(row, column).map_or(sum, |old| old + sum);
        self.bias.as_ref().map_or(value, |bias| value + bias[column])
    }

    /// The largest error of a computed element, as the kernel's documentation says.
    pub fn bound(&self, exact: &Exact) -> f64 {
        let (steps, blocks) = (self.k.min(PAIRS_BLOCK), self.k.div_ceil(PAIRS_BLOCK));
        let lost = f64::from(f32::MIN_POSITIVE) * (exact.operands + (self.k + 2 * blocks) as f64);
        of_roundings(steps.div_ceil(2) + blocks + 3) * (exact.products + exact.added) + lost
    }
}

impl Case<f32> {
    /// The new `c`, in terms.
    pub fn expected_in_terms(&self, row: usize, column: usize) -> f32 {
        let mut value = self.old(row, column);
        for run in (0..self.k.max(1)).step_by(TERMS_RUN) {
            let mut sum = 0.0;
            for block in (run..self.k.min(run + TERMS_RUN)).step_by(PAIRS_BLOCK) {
                for (a, b) in TERM_PRODUCTS {
                    sum = continued(sum, PAIRS_BLOCK.min(self.k - block), |step| {
                        let (of_a, of_b) = (self.a_at(row, block + step), self.b_at(block + step, column));
                        (terms(of_a)[a], terms(of_b)[b])
                    });
                }
            }
            value = Some(value.map_or(sum, |value| value + sum));
        }
        let value = value.expect("there is a run");
        self.bias.as_ref().map_or(value, |bias| value + bias[column])
    }

    /// The largest error of an element of a chained product: roundings to 24 bits, and to a multiple of 2^-149 below
    /// 2^-126.
    pub fn bound_chained(&self, exact: &Exact) -> f64 {
        let (steps, blocks) = (self.k.min(K_BLOCK), self.k.div_ceil(K_BLOCK));
        let subnormal = 2.0f64.powi(-150) * (self.k + blocks + 1) as f64;
        of_roundings(steps + blocks + 1) * (exact.products + exact.added) + subnormal
    }

    /// The largest error of a computed element, as the kernel's documentation says.
    pub fn bound_in_terms(&self, exact: &Exact) -> f64 {
        let (steps, blocks) = (self.k.min(PAIRS_BLOCK), self.k.min(TERMS_RUN).div_ceil(PAIRS_BLOCK));
        let roundings = of_roundings(steps.div_ceil(2) + 1 + 6 * blocks + self.k.div_ceil(TERMS_RUN) + 1);
        let all_blocks = self.k.div_ceil(PAIRS_BLOCK);
        let lost = 1.02 * exact.missed + f64::from(f32::MIN_POSITIVE) * (6 * self.k + 12 * all_blocks) as f64;
        let left_out = 1.01 * f64::from(f32::EPSILON) / 2.0;
        (1.016 * roundings + left_out) * exact.products + roundings * exact.added + lost
    }
}
