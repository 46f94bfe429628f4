//! The work of streams.

use std::fmt;
use std::sync::Arc;

use gpu::{DevicePointer, LaunchShape, PinnedHandle};

use super::points::Point;
use crate::checks::AccessRanges;
use crate::code::Kernel;

/// One piece of work.
#[derive(Clone, Debug)]
pub enum Work {
    /// Copies pinned memory to the GPU.
    Upload {
        /// To.
        to: DevicePointer,
        /// From.
        pinned: PinnedHandle,
        /// From this byte on.
        offset_bytes: usize,
        /// How much.
        bytes: usize,
    },
    /// Copies to pinned memory.
    Download {
        /// To.
        pinned: PinnedHandle,
        /// From this byte on.
        offset_bytes: usize,
        /// From.
        from: DevicePointer,
        /// How much.
        bytes: usize,
    },
    /// Copies within the GPU.
    Copy {
        /// To.
        to: DevicePointer,
        /// From.
        from: DevicePointer,
        /// How much.
        bytes: usize,
    },
    /// Sets bytes.
    Fill {
        /// Where.
        to: DevicePointer,
        /// The value that it is set to.
        value: u8,
        /// How much.
        bytes: usize,
    },
    /// Runs a kernel.
    Launch(Arc<LaunchWork>),
    /// Computes by a function of the host.
    Host(Arc<HostWork>),
    /// Marks a point as reached.
    Record(Point),
    /// Begins what follows only after a point.
    Wait(Point),
    /// A kernel that runs until other GPUs have come to a point, and then does the work of the host.
    Remote {
        /// The point.
        until: Point,
        /// The end of the kernel.
        end: Option<Arc<HostWork>>,
    },
}

/// A kernel with its arguments.
#[derive(Clone, Debug)]
pub struct LaunchWork {
    pub kernel: Arc<Kernel>,
    /// Blocks and threads.
    pub shape: LaunchShape,
    /// The arguments, each at its place.
    pub parameters: Vec<u8>,
    /// The ranges of memory that it may use; all where there are none.
    pub ranges: Option<AccessRanges>,
}

/// Work that a function of the host computes: a product of a library, or a sum over ranks.
pub struct HostWork {
    /// Its name in messages.
    pub call: &'static str,
    /// Ranges that are read: addresses and bytes.
    pub reads: Vec<(DevicePointer, usize)>,
    /// Ranges that are written.
    pub writes: Vec<(DevicePointer, usize)>,
    /// From the bytes of `reads` to those of `writes`.
    pub compute: HostFunction,
}

/// From bytes that are read to bytes that are written, range by range.
pub type HostFunction = Box<dyn Fn(&[Vec<u8>]) -> Vec<Vec<u8>> + Send + Sync>;

impl fmt::Debug for HostWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HostWork { call, reads, writes, compute: _ } = self;
        f.debug_struct("HostWork").field("call", call).field("reads", reads).field("writes", writes).finish()
    }
}
