//! The choice of a kernel by the type of real numbers that its tensors hold.

use device::{DeviceError, Dtype, Tensor};

/// Kernels of one name, by the type of real numbers in memory.
pub(crate) type ByType = [&'static str; 3];

/// `by_type!("norm_rms")`: the kernels `norm_rms_f32`, `norm_rms_bf16` and `norm_rms_f16`.
macro_rules! by_type {
    ($name:literal) => {
        [concat!($name, "_f32"), concat!($name, "_bf16"), concat!($name, "_f16")]
    };
}
pub(crate) use by_type;

/// A type of real numbers in memory. Kernels compute in f32: they widen numbers that they read, and round results once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    /// The type.
    pub dtype: Dtype,
    /// Its number in [`ByType`] and in kernels.
    pub number: u32,
}

impl Stored {
    /// The type of a tensor.
    ///
    /// # Errors
    /// [`DeviceError::Shape`] for a tensor of integers.
    pub fn of(tensor: Tensor) -> Result<Stored, DeviceError> {
        let number = match tensor.dtype {
            Dtype::F32 => 0,
            Dtype::Bf16 => 1,
            Dtype::F16 => 2,
            Dtype::I32 | Dtype::I64 => return Err(tensor.not_real()),
        };
        Ok(Stored { dtype: tensor.dtype, number })
    }

    /// Elements of an access of 16 bytes: `IN_ACCESS` of kernels/vectors.cuh.
    pub fn in_access(self) -> usize {
        16 / self.dtype.size_bytes()
    }

    /// The kernel for this type.
    pub fn kernel(self, kernels: ByType) -> &'static str {
        kernels[self.number as usize]
    }
}
