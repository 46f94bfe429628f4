//! One value everywhere.

use crate::view::MatMut;

/// `out[R,C] = value` in every element. The same on every instruction set.
pub fn fill(mut out: MatMut<'_>, value: f32) {
    for row in 0..out.rows() {
        out.row_mut(row).fill(value);
    }
}
