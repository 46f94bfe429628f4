//! Names of what a GPU holds. Each is valid for the [`crate::Gpu`] that returned it, until it is destroyed there.

/// An address in the memory of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DevicePointer(pub u64);

impl DevicePointer {
    /// The address `bytes` further on.
    #[must_use]
    pub fn offset(self, bytes: usize) -> DevicePointer {
        DevicePointer(self.0.wrapping_add(bytes as u64))
    }
}

impl DevicePointer {
    /// The address `bytes` before this one, at which nothing need be.
    #[must_use]
    pub fn before(self, bytes: usize) -> DevicePointer {
        DevicePointer(self.0.wrapping_sub(bytes as u64))
    }
}

/// An in-order queue of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamHandle(pub u64);

/// A point in the work of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventHandle(pub u64);

/// Loaded code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleHandle(pub u64);

/// A kernel of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionHandle(pub u64);

/// Work that was captured and can be launched as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GraphHandle(pub u64);

/// Memory of the host that a GPU reads and writes while the host continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PinnedHandle(pub u64);
