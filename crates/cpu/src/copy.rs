//! Copies between matrices whose rows lie differently.

use crate::view::{MatMut, MatRef};

/// `to[R,C] = from[R,C]`, row by row. The same on every instruction set.
pub fn copy(from: MatRef<'_>, mut to: MatMut<'_>) {
    assert_eq!((from.rows(), from.cols()), (to.rows(), to.cols()), "matrices of one shape");
    for row in 0..from.rows() {
        to.row_mut(row).copy_from_slice(from.row(row));
    }
}
