//! Rows of a stored matrix as the products read and write them.

use device::{Bf16, F16};

use crate::copy::Copy;
use crate::instruction_set::InstructionSet;
use crate::lanes::{Stored, run};
use crate::view::{MatMut, MatRef};

/// A type that attention's tensors may have.
pub trait Operand: Stored {
    /// `matrix` in `f32`: itself where it is of that type, otherwise widened into `buffer`.
    fn widened<'a>(matrix: MatRef<'a, Self>, buffer: &'a mut [f32], instruction_set: InstructionSet) -> MatRef<'a>;

    /// `matrix` where it is of `f32`, so that sums may be taken in it; otherwise it is given back.
    fn for_sums(matrix: MatMut<'_, Self>) -> Result<MatMut<'_>, MatMut<'_, Self>>;
}

impl Operand for f32 {
    fn widened<'a>(matrix: MatRef<'a>, _: &'a mut [f32], _: InstructionSet) -> MatRef<'a> {
        matrix
    }

    fn for_sums(matrix: MatMut<'_>) -> Result<MatMut<'_>, MatMut<'_>> {
        Ok(matrix)
    }
}

macro_rules! narrow {
    ($type:ty) => {
        impl Operand for $type {
            fn widened<'a>(matrix: MatRef<'a, $type>, buffer: &'a mut [f32], set: InstructionSet) -> MatRef<'a> {
                let (rows, cols) = (matrix.rows(), matrix.cols());
                let buffer = &mut buffer[..rows * cols];
                run(set, Copy { from: matrix, to: MatMut::dense(buffer, rows, cols) });
                MatRef::dense(buffer, rows, cols)
            }

            fn for_sums(matrix: MatMut<'_, $type>) -> Result<MatMut<'_>, MatMut<'_, $type>> {
                Err(matrix)
            }
        }
    };
}
narrow!(Bf16);
narrow!(F16);
