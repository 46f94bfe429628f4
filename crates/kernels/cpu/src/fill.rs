//! One value everywhere.

use device::Element;

use crate::view::MatMut;

/// `out[R,C] = value` in every element, rounded once. The same on every instruction set.
pub fn fill<E: Element>(mut out: MatMut<'_, E>, value: f32) {
    for row in 0..out.rows() {
        out.row_mut(row).fill(E::narrow(value));
    }
}
