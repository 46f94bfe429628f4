//! One thread of a rank: its kernels' buffers, and the views that they get of the rank's arena.
//!
//! This file turns places in the arena into views, so it touches raw memory; the obligations are those of
//! `device::Arena`: the memory plan gives live values disjoint places, one operation of a stream runs at a time,
//! operations of different streams that touch the same place wait for each other (`program::waits`), and the parts of
//! an operation that threads run at once write disjoint places (`crate::parts`).

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use config::Products;
use device::{Arena, Bf16, DeviceError, Dtype, Element, F16, SUM_WORDS, Tensor};

use crate::attention::AttentionBuffers;
use crate::gemm::pairs::RankWorkspace;
use crate::gemm::{Operand, PackingBuffers};
use crate::instruction_set::InstructionSet;
use crate::meter::Meter;
use crate::view::{MatMut, MatRef};

/// Executes operations, or parts of them, one after the other.
pub(crate) struct Worker {
    arena: Arc<Arena>,
    pub(crate) instruction_set: InstructionSet,
    pub(crate) products: Products,
    pub(crate) packing: RefCell<PackingBuffers>,
    pub(crate) attention: RefCell<AttentionBuffers>,
    /// Memory that the rank's threads share.
    pub(crate) workspace: Arc<RankWorkspace>,
    pub(crate) meter: Arc<Meter>,
}

impl Worker {
    /// A worker on `arena`; it is used by one thread.
    ///
    /// # Errors
    /// [`DeviceError::Buffers`].
    pub(crate) fn new(arena: Arc<Arena>, instruction_set: InstructionSet) -> Result<Worker, DeviceError> {
        Worker::sharing(Arc::new(RankWorkspace::new()?), arena, instruction_set)
    }

    /// Returns the same as [`Worker::new`], with the workspace of another one.
    fn sharing(
        workspace: Arc<RankWorkspace>,
        arena: Arc<Arena>,
        instruction_set: InstructionSet,
    ) -> Result<Worker, DeviceError> {
        Ok(Worker {
            packing: RefCell::new(PackingBuffers::of_rank(arena.size_bytes())?),
            arena,
            instruction_set,
            products: Products::Chained,
            attention: RefCell::new(AttentionBuffers::new()),
            workspace,
            meter: Arc::new(Meter::new()),
        })
    }

    /// A worker for another thread of the rank.
    ///
    /// # Errors
    /// The errors of [`Worker::new`].
    pub(crate) fn sibling(&self) -> Result<Worker, DeviceError> {
        let (workspace, arena) = (Arc::clone(&self.workspace), Arc::clone(&self.arena));
        Ok(Worker { products: self.products, ..Worker::sharing(workspace, arena, self.instruction_set)? })
    }

    /// A worker for a stream with a thread of its own: it shares nothing but the arena.
    ///
    /// # Errors
    /// The errors of [`Worker::new`].
    pub(crate) fn apart(&self) -> Result<Worker, DeviceError> {
        Ok(Worker { products: self.products, ..Worker::new(Arc::clone(&self.arena), self.instruction_set)? })
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
        // SAFETY: as in `matrix`; an operation's outputs do not overlap its other operands, or `Source::Out` says so.
        Ok(unsafe { MatMut::from_raw(start, tensor.rows, tensor.cols, tensor.row_stride) })
    }

    /// A matrix of any type of real numbers, as an operand of a product.
    pub(crate) fn operand(&self, tensor: Tensor) -> Result<Operand<'_>, DeviceError> {
        match tensor.dtype {
            Dtype::F32 => self.matrix::<f32>(tensor).map(Operand::F32),
            Dtype::Bf16 => self.matrix::<Bf16>(tensor).map(Operand::Bf16),
            Dtype::F16 => self.matrix::<F16>(tensor).map(Operand::F16),
            Dtype::I32 | Dtype::I64 => Err(tensor.not_real()),
        }
    }

    /// Overwrites a dense tensor.
    pub(crate) fn write(&self, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        to.has_host_bytes("write", from.len())?;
        // SAFETY: no operation that touches the tensor runs: other streams wait, or have ended.
        unsafe { self.arena.bytes_mut(to) }?.copy_from_slice(from);
        Ok(())
    }

    /// Copies a dense tensor out.
    pub(crate) fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        from.has_host_bytes("read", to.len())?;
        // SAFETY: as in `write`.
        to.copy_from_slice(unsafe { self.arena.bytes(from) }?);
        Ok(())
    }

    fn reals_address<E: Element>(&self, tensor: Tensor) -> Result<*mut E, DeviceError> {
        tensor.holds(E::DTYPE)?;
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

    /// Dense integers to write.
    #[expect(clippy::mut_from_ref, reason = "the arena is shared memory; see the top of this file")]
    pub(crate) fn ints_mut(&self, tensor: Tensor) -> Result<&mut [i32], DeviceError> {
        // SAFETY: as in `reals_mut`.
        unsafe { self.arena.ints_mut(tensor) }
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

    /// Adds to the words of a sum. Integers associate, so the parts of an operation may do so at once and in any order.
    pub(crate) fn add_to_sum(&self, sum: Tensor, words: &[i64; SUM_WORDS]) -> Result<(), DeviceError> {
        if (sum.dtype, sum.rows, sum.cols) != (Dtype::I64, 1, SUM_WORDS) {
            return Err(DeviceError::Shape {
                op: "sum",
                what: format!("{sum:?} is not the {SUM_WORDS} words of a sum"),
            });
        }
        let start = self.arena.address(sum)?.cast::<i64>();
        for (index, word) in words.iter().enumerate() {
            // SAFETY: the sum's words are inside the arena, aligned, and while an operation's parts run they are
            // reached here only.
            unsafe { AtomicI64::from_ptr(start.add(index).as_ptr()) }.fetch_add(*word, Ordering::Relaxed);
        }
        Ok(())
    }
}
