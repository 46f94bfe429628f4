//! The one allocation of a rank: every tensor is a place in it.
//!
//! This file and the kernels are where raw memory is touched. The rules that keep it sound:
//! * one rank's threads compute, at any time parts of one operation of a stream that write disjoint places; operations
//!   of different streams that conflict wait for each other, which the verifier proves (`program::waits`); other ranks
//!   only read places that this rank lent for a send or a collective and does not write until the transport says that
//!   the reading is done;
//! * a thread of this rank that saves reads state, which no instruction writes until the thread says that it is done;
//! * the memory plan gives values that are alive together disjoint places, which the verifier has checked.

use std::ptr::NonNull;

use crate::mapping::Mapping;
use crate::{DeviceError, Dtype, Element, Tensor};

/// The size of a rank's arena. Its lowest addresses are memory of the host, which only copies reach on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaSize {
    /// Memory of the host: a multiple of [`crate::ALIGN_BYTES`].
    pub host_bytes: usize,
    /// Memory of the device.
    pub device_bytes: usize,
}

impl ArenaSize {
    /// An arena of the device alone.
    pub fn of_device(device_bytes: usize) -> ArenaSize {
        ArenaSize { host_bytes: 0, device_bytes }
    }

    /// Both together: the first address after the arena.
    pub fn end_bytes(self) -> usize {
        self.host_bytes + self.device_bytes
    }
}

impl From<usize> for ArenaSize {
    /// Of the device alone.
    fn from(device_bytes: usize) -> ArenaSize {
        ArenaSize::of_device(device_bytes)
    }
}

/// Zeroed memory of fixed size and place.
#[derive(Debug)]
pub struct Arena {
    start: NonNull<u8>,
    size_bytes: usize,
    /// Holds the arena.
    _mapping: Mapping,
}

// SAFETY: the arena is plain memory; the rules at the top of this file order all accesses to it.
unsafe impl Send for Arena {}
// SAFETY: as above; methods that hand out slices are unsafe and repeat the obligation.
unsafe impl Sync for Arena {}

impl Arena {
    /// Allocates `bytes` of zeroed memory. Fails when the system has no such piece left.
    pub fn new(bytes: usize) -> Result<Arena, DeviceError> {
        let size_bytes = bytes.max(1);
        let mut mapping = Mapping::new(size_bytes).map_err(|_| DeviceError::OutOfMemory {
            bytes,
            remedy: "a smaller parallelism.microbatch_size, more ranks or a higher parallelism.zero need less, and \
                     `ulimit -v unlimited` lifts a limit of address space",
        })?;
        let start = NonNull::from(&mut mapping[..]).cast();
        Ok(Arena { start, size_bytes, _mapping: mapping })
    }

    /// Bytes that were allocated.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Address of the first element of `tensor`, which is checked to be inside the arena.
    pub fn address(&self, tensor: Tensor) -> Result<NonNull<u8>, DeviceError> {
        tensor.inside(self.size_bytes())?;
        // SAFETY: the offset is inside the allocation, as just checked.
        Ok(unsafe { self.start.add(tensor.offset_bytes) })
    }

    /// The elements of a dense tensor of real numbers of type `E`.
    ///
    /// # Safety
    /// Nothing writes the tensor's place while the slice lives.
    pub unsafe fn reals<E: Element>(&self, tensor: Tensor) -> Result<&[E], DeviceError> {
        let start = self.dense(tensor, E::DTYPE)?;
        // SAFETY: inside the arena, aligned (offsets are multiples of the element's size), initialised (zeroed at
        // allocation); the caller excludes writers.
        Ok(unsafe { std::slice::from_raw_parts(start.as_ptr().cast(), tensor.len()) })
    }

    /// The elements of a dense tensor of real numbers of type `E`, to write.
    ///
    /// # Safety
    /// Nothing else reads or writes the tensor's place while the slice lives.
    #[expect(
        clippy::mut_from_ref,
        reason = "the arena is shared memory; exclusivity per place is the caller's obligation"
    )]
    pub unsafe fn reals_mut<E: Element>(&self, tensor: Tensor) -> Result<&mut [E], DeviceError> {
        let start = self.dense(tensor, E::DTYPE)?;
        // SAFETY: as in `reals`; the caller excludes every other access.
        Ok(unsafe { std::slice::from_raw_parts_mut(start.as_ptr().cast(), tensor.len()) })
    }

    /// The elements of a dense I32 tensor.
    ///
    /// # Safety
    /// Nothing writes the tensor's place while the slice lives.
    pub unsafe fn ints(&self, tensor: Tensor) -> Result<&[i32], DeviceError> {
        let start = self.dense(tensor, Dtype::I32)?;
        // SAFETY: as in `reals`.
        Ok(unsafe { std::slice::from_raw_parts(start.as_ptr().cast(), tensor.len()) })
    }

    /// The elements of a dense I32 tensor, to write.
    ///
    /// # Safety
    /// Nothing else reads or writes the tensor's place while the slice lives.
    #[expect(clippy::mut_from_ref, reason = "as in `reals_mut`")]
    pub unsafe fn ints_mut(&self, tensor: Tensor) -> Result<&mut [i32], DeviceError> {
        let start = self.dense(tensor, Dtype::I32)?;
        // SAFETY: as in `reals`; the caller excludes every other access.
        Ok(unsafe { std::slice::from_raw_parts_mut(start.as_ptr().cast(), tensor.len()) })
    }

    /// The elements of a dense I64 tensor.
    ///
    /// # Safety
    /// Nothing writes the tensor's place while the slice lives.
    pub unsafe fn longs(&self, tensor: Tensor) -> Result<&[i64], DeviceError> {
        let start = self.dense(tensor, Dtype::I64)?;
        // SAFETY: as in `reals`; places start on multiples of 256 bytes, so I64 elements on multiples of 8.
        Ok(unsafe { std::slice::from_raw_parts(start.as_ptr().cast(), tensor.len()) })
    }

    /// The elements of a dense I64 tensor, to write.
    ///
    /// # Safety
    /// Nothing else reads or writes the tensor's place while the slice lives.
    #[expect(clippy::mut_from_ref, reason = "as reals_mut")]
    pub unsafe fn longs_mut(&self, tensor: Tensor) -> Result<&mut [i64], DeviceError> {
        let start = self.dense(tensor, Dtype::I64)?;
        // SAFETY: as in `reals_mut`; places start on multiples of 256 bytes, so I64 elements on multiples of 8.
        Ok(unsafe { std::slice::from_raw_parts_mut(start.as_ptr().cast(), tensor.len()) })
    }

    /// The bytes of a dense tensor.
    ///
    /// # Safety
    /// Nothing writes the tensor's place while the slice lives.
    pub unsafe fn bytes(&self, tensor: Tensor) -> Result<&[u8], DeviceError> {
        let start = self.dense(tensor, tensor.dtype)?;
        // SAFETY: as in `reals`; bytes have no alignment.
        Ok(unsafe { std::slice::from_raw_parts(start.as_ptr(), tensor.size_bytes()) })
    }

    /// The bytes of a dense tensor, to write.
    ///
    /// # Safety
    /// Nothing else reads or writes the tensor's place while the slice lives.
    #[expect(clippy::mut_from_ref, reason = "as reals_mut")]
    pub unsafe fn bytes_mut(&self, tensor: Tensor) -> Result<&mut [u8], DeviceError> {
        let start = self.dense(tensor, tensor.dtype)?;
        // SAFETY: as in `reals_mut`; bytes have no alignment.
        Ok(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), tensor.size_bytes()) })
    }

    fn dense(&self, tensor: Tensor, dtype: Dtype) -> Result<NonNull<u8>, DeviceError> {
        tensor.is_dense_of(dtype)?;
        self.address(tensor)
    }
}
