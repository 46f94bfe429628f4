//! The CPU as a device: operations run on the rank's own thread, on tensors of its arena.
//!
//! This file turns places in the arena into views, so it touches raw memory; the obligations are those of
//! `device::arena`: one thread computes, and the memory plan gives live values disjoint places.

use std::cell::RefCell;
use std::sync::Arc;

use device::{Arena, Bf16, Device, DeviceError, Dtype, Element, F16, Op, Stream, Tensor};

use crate::attention::AttentionBuffers;
use crate::gemm::{Operand, PackingBuffers};
use crate::instruction_set::InstructionSet;
use crate::meter::Meter;
use crate::view::{MatMut, MatRef};

/// Executes operations at once, in the order in which they are submitted; streams are all the same thread.
pub struct CpuDevice {
    arena: Arc<Arena>,
    pub(crate) instruction_set: InstructionSet,
    pub(crate) packing: RefCell<PackingBuffers>,
    pub(crate) attention: RefCell<AttentionBuffers>,
    pub(crate) meter: Meter,
}

impl CpuDevice {
    /// A device over `arena` that uses the best instruction set of this machine.
    pub fn new(arena: Arc<Arena>) -> CpuDevice {
        CpuDevice::with_instruction_set(arena, InstructionSet::detect())
    }

    /// A device that uses `instruction_set`, which this machine must have. Results are the same bits on all.
    pub fn with_instruction_set(arena: Arc<Arena>, instruction_set: InstructionSet) -> CpuDevice {
        assert!(instruction_set.is_available(), "this machine has no {instruction_set:?}");
        CpuDevice {
            arena,
            instruction_set,
            packing: RefCell::new(PackingBuffers::new()),
            attention: RefCell::new(AttentionBuffers::new()),
            meter: Meter::new(),
        }
    }

    /// Multiply-adds that the kernels have counted in their loops.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// A matrix to read.
    pub(crate) fn matrix<E: Element>(&self, tensor: Tensor) -> Result<MatRef<'_, E>, DeviceError> {
        let start = self.reals_address::<E>(tensor)?;
        // SAFETY: the arena covers the tensor's span (checked by `address`), is initialised, and nothing writes the
        // tensor's elements while an operation that reads them runs.
        Ok(unsafe { MatRef::from_raw(start, tensor.rows, tensor.cols, tensor.row_stride) })
    }

    /// A matrix to write.
    pub(crate) fn matrix_mut<E: Element>(&self, tensor: Tensor) -> Result<MatMut<'_, E>, DeviceError> {
        let start = self.reals_address::<E>(tensor)?;
        // SAFETY: as in `matrix`; an operation's outputs do not overlap its other operands, or it is told so (`Source::Out`).
        Ok(unsafe { MatMut::from_raw(start, tensor.rows, tensor.cols, tensor.row_stride) })
    }

    /// A matrix of any type of real numbers, as an operand of a product.
    pub(crate) fn operand(&self, tensor: Tensor) -> Result<Operand<'_>, DeviceError> {
        match tensor.dtype {
            Dtype::F32 => self.matrix::<f32>(tensor).map(Operand::F32),
            Dtype::Bf16 => self.matrix::<Bf16>(tensor).map(Operand::Bf16),
            Dtype::F16 => self.matrix::<F16>(tensor).map(Operand::F16),
            Dtype::I32 | Dtype::I64 => Err(not_real(tensor)),
        }
    }

    fn reals_address<E: Element>(&self, tensor: Tensor) -> Result<*mut E, DeviceError> {
        if tensor.dtype != E::DTYPE {
            return Err(DeviceError::Shape { op: "matrix", what: format!("{tensor:?} is not {:?}", E::DTYPE) });
        }
        Ok(self.arena.address(tensor)?.as_ptr().cast())
    }

    /// A dense vector to read.
    pub(crate) fn reals<E: Element>(&self, tensor: Tensor) -> Result<&[E], DeviceError> {
        // SAFETY: nothing writes an operation's inputs while it runs.
        unsafe { self.arena.reals(tensor) }
    }

    /// A dense vector to write.
    #[expect(clippy::mut_from_ref, reason = "the arena is shared memory; see the top of this file")]
    pub(crate) fn reals_mut<E: Element>(&self, tensor: Tensor) -> Result<&mut [E], DeviceError> {
        // SAFETY: an operation's outputs are its own while it runs.
        unsafe { self.arena.reals_mut(tensor) }
    }

    /// Dense integers to read.
    pub(crate) fn ints(&self, tensor: Tensor) -> Result<&[i32], DeviceError> {
        // SAFETY: as in `reals`.
        unsafe { self.arena.ints(tensor) }
    }

    /// Dense sums to read.
    pub(crate) fn longs(&self, tensor: Tensor) -> Result<&[i64], DeviceError> {
        // SAFETY: as in `reals`.
        unsafe { self.arena.longs(tensor) }
    }

    /// Dense sums to read and write.
    #[expect(clippy::mut_from_ref, reason = "the arena is shared memory; see the top of this file")]
    pub(crate) fn longs_mut(&self, tensor: Tensor) -> Result<&mut [i64], DeviceError> {
        // SAFETY: as in `reals_mut`.
        unsafe { self.arena.longs_mut(tensor) }
    }
}

impl Device for CpuDevice {
    fn submit(&self, _stream: Stream, op: &Op) -> Result<(), DeviceError> {
        self.execute(op)
    }

    fn write(&self, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        check_len("write", to, from.len())?;
        // SAFETY: no operation runs while the rank's thread is here.
        unsafe { self.arena.bytes_mut(to) }?.copy_from_slice(from);
        Ok(())
    }

    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        check_len("read", from, to.len())?;
        // SAFETY: as in `write`.
        to.copy_from_slice(unsafe { self.arena.bytes(from) }?);
        Ok(())
    }
}

/// Why a tensor of integers is refused where real numbers are computed with.
pub(crate) fn not_real(tensor: Tensor) -> DeviceError {
    DeviceError::Shape { op: "matrix", what: format!("{tensor:?} holds no real numbers") }
}

pub(crate) fn check_len(op: &'static str, tensor: Tensor, host_bytes: usize) -> Result<(), DeviceError> {
    if tensor.size_bytes() == host_bytes {
        return Ok(());
    }
    Err(DeviceError::Shape { op, what: format!("{tensor:?} has {} bytes, the host {host_bytes}", tensor.size_bytes()) })
}
