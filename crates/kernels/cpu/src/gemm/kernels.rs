//! The kernels of each instruction set, as tables of functions that were compiled for it.

use device::{Bf16, Dtype, F16};

use super::pack::{self, Block, PackKernel};
use super::tile::{self, Layout, RowMajor, StepMajor, Tile, TileKernel};
use super::vector::{Vector, Widened};
use crate::instruction_set::InstructionSet;

/// Tiles are one or two registers wide.
pub(crate) const MAX_VECTORS: usize = 2;

/// The functions of an instruction set for products. They may be called where [`InstructionSet::is_available`].
pub(crate) struct Kernels {
    /// Lanes of a register.
    pub lanes: usize,
    /// Tile kernels for a row-major A: `[rows - 1][registers per row - 1]`.
    pub row_major: &'static [[TileKernel; MAX_VECTORS]],
    /// Tile kernels for a step-major A: `[rows - 1][registers per row - 1]`.
    pub step_major: &'static [[TileKernel; MAX_VECTORS]],
    pack_f32: PackKernels,
    pack_bf16: PackKernels,
    pack_f16: PackKernels,
}

/// How operands of one type are packed.
#[derive(Clone, Copy)]
pub(crate) struct PackKernels {
    /// A block whose steps are adjacent.
    pub transposed: PackKernel,
    /// A block whose lanes are adjacent.
    pub copied: PackKernel,
}

impl Kernels {
    /// Most rows of a tile.
    pub fn max_rows(&self) -> usize {
        self.row_major.len()
    }

    /// How operands of this type are packed. Panics for types that are not real numbers.
    pub fn pack(&self, dtype: Dtype) -> PackKernels {
        match dtype {
            Dtype::F32 => self.pack_f32,
            Dtype::Bf16 => self.pack_bf16,
            Dtype::F16 => self.pack_f16,
            Dtype::I32 | Dtype::I64 => panic!("{dtype:?} is not a type of products"),
        }
    }

    /// Most columns of a tile.
    pub fn max_columns(&self) -> usize {
        MAX_VECTORS * self.lanes
    }

    /// The kernels of `instruction_set`. Panics on a machine that does not have it.
    pub fn of(instruction_set: InstructionSet) -> &'static Self {
        assert!(instruction_set.is_available(), "this machine has no {instruction_set:?}");
        match instruction_set {
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Amx | InstructionSet::Avx512 => &avx512::KERNELS,
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => &avx2::KERNELS,
            #[cfg(not(target_arch = "x86_64"))]
            InstructionSet::Amx | InstructionSet::Avx512 | InstructionSet::Avx2 => &scalar::KERNELS,
            InstructionSet::Scalar => &scalar::KERNELS,
        }
    }
}

/// Defines `KERNELS` of one instruction set: its vector, lanes, features and the numbers of rows of its tiles.
macro_rules! kernels {
    ($vector:ty, $lanes:literal, $(#[$features:meta])?, $($rows:literal)*) => {
        use super::*;

        $(#[$features])?
        unsafe fn run<L: Layout, const ROWS: usize, const VECTORS: usize>(tile: &Tile) {
            // SAFETY: this function is compiled for the vector's instructions; the rest is the caller's promise.
            unsafe { tile::run::<$vector, L, ROWS, VECTORS>(tile) }
        }

        $(#[$features])?
        unsafe fn pack_transposed<E: Widened>(block: &Block) {
            // SAFETY: this function is compiled for the vector's instructions; the rest is the caller's promise.
            unsafe { pack::transposed::<$vector, E, $lanes>(block) }
        }

        $(#[$features])?
        unsafe fn pack_copied<E: Widened>(block: &Block) {
            // SAFETY: this function is compiled for the vector's instructions; the rest is the caller's promise.
            unsafe { pack::copied::<$vector, E>(block) }
        }

        pub(super) static KERNELS: Kernels = Kernels {
            lanes: <$vector as Vector>::LANES,
            row_major: &[$([run::<RowMajor, $rows, 1>, run::<RowMajor, $rows, 2>]),*],
            step_major: &[$([run::<StepMajor, $rows, 1>, run::<StepMajor, $rows, 2>]),*],
            pack_f32: PackKernels { transposed: pack_transposed::<f32>, copied: pack_copied::<f32> },
            pack_bf16: PackKernels { transposed: pack_transposed::<Bf16>, copied: pack_copied::<Bf16> },
            pack_f16: PackKernels { transposed: pack_transposed::<F16>, copied: pack_copied::<F16> },
        };
    };
}

/// Fourteen rows of two registers are 28 sums; two registers of B and one element of A fit next to them in 32.
#[cfg(target_arch = "x86_64")]
mod avx512 {
    kernels!(
        crate::gemm::vector_avx512::Avx512Vector,
        16,
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")],
        1 2 3 4 5 6 7 8 9 10 11 12 13 14
    );
}

/// Six rows of two registers are twelve sums; two registers of B and one element of A fit next to them in sixteen.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    kernels!(
        crate::gemm::vector_avx2::Avx2Vector,
        8,
        #[target_feature(enable = "avx2,fma,f16c")],
        1 2 3 4 5 6
    );
}

mod scalar {
    kernels!(crate::gemm::vector_scalar::ScalarVector, 4, , 1 2 3 4);
}
