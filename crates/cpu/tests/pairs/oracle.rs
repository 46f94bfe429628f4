//! The definition of products in pairs, element by element.

use cpu::gemm::{Orientation, PAIRS_BLOCK, Write};

use device::Element;

use crate::case::Case;

/// Zero of its sign where a number is subnormal.
fn flushed(value: f32) -> f32 {
    if value.is_subnormal() { 0.0f32.copysign(value) } else { value }
}

/// 2^exponent.
fn power(exponent: i32) -> f32 {
    2.0f64.powi(exponent) as f32
}

/// `a b + addend`, rounded to 24 bits with an exponent of any size, and zero below 2^-126.
fn multiply_add(a: f32, b: f32, addend: f32) -> f32 {
    let sum = a.mul_add(b, addend);
    if sum.is_nan() || sum.abs() >= power(-100) {
        return sum;
    }
    // Far below overflow: 2^80 times as large all of it is normal, unless large terms have cancelled to zero.
    if addend.abs() >= power(-60) {
        assert!(sum == 0.0, "{a:e} * {b:e} + {addend:e}: what is left of large terms is no small number");
        return sum;
    }
    let (a, b) = if a.abs() < b.abs() { (a * power(80), b) } else { (a, b * power(80)) };
    let large = a.mul_add(b, addend * power(80));
    if large.abs() < power(80 - 126) { 0.0f32.copysign(sum) } else { large * power(-80) }
}

impl Case {
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

    /// What `c` becomes, before it is rounded to the type of C.
    pub fn expected(&self, row: usize, column: usize) -> f32 {
        let mut sum = 0.0f32;
        for block in (0..self.k).step_by(PAIRS_BLOCK) {
            let mut chains = [0.0f32; 2];
            for step in block..block + PAIRS_BLOCK {
                let (a, b) = if step < self.k { (self.a_at(row, step), self.b_at(step, column)) } else { (0.0, 0.0) };
                let chain = &mut chains[step % 2];
                *chain = multiply_add(flushed(a), flushed(b), *chain);
            }
            sum = flushed(sum + flushed(chains[0] + chains[1]));
        }
        let value = match self.write {
            Write::Assign => sum,
            Write::Accumulate => self.c[row * (self.n + self.gap) + column] + sum,
        };
        self.bias.as_ref().map_or(value, |bias| value + bias[column])
    }

    /// The exact result, and by how much a computed one may be off, as the kernel's documentation says.
    pub fn exact(&self, row: usize, column: usize) -> (f64, f64) {
        let old = match self.write {
            Write::Assign => 0.0,
            Write::Accumulate => f64::from(self.c[row * (self.n + self.gap) + column]),
        };
        let bias = self.bias.as_ref().map_or(0.0, |bias| f64::from(bias[column]));
        let (mut exact, mut size, mut flushed) = (old + bias, old.abs() + bias.abs(), 0.0);
        for step in 0..self.k {
            let (a, b) = (f64::from(self.a_at(row, step)), f64::from(self.b_at(step, column)));
            exact += a * b;
            size += (a * b).abs();
            flushed += a.abs() + b.abs() + 1.0;
        }
        let blocks = self.k.div_ceil(PAIRS_BLOCK);
        let unit = (self.k.min(PAIRS_BLOCK).div_ceil(2) + blocks + 3) as f64 * f64::from(f32::EPSILON) / 2.0;
        let lost = f64::from(f32::MIN_POSITIVE) * (flushed + 2.0 * blocks as f64);
        (exact, unit / (1.0 - unit) * size + lost)
    }
}
