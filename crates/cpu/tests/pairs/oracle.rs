//! What products in pairs are, element by element.

use cpu::gemm::{Orientation, PAIRS_BLOCK, Write};

use device::Element;

use crate::case::Case;
use crate::definition::continued;

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
        let sum = continued(0.0, self.k, |step| (self.a_at(row, step), self.b_at(step, column)));
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
