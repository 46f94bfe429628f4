//! Decoded operations that end later than the instruction that starts them, and what waits for them.

use super::operations::{Address, NumberFormat, PredicateSource, Row, Slot};

/// An operation of the asynchronous units of Hopper, or a wait for them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Asynchronous {
    /// An operation on an mbarrier.
    Barrier(PhaseOperation),
    /// Shows initialised mbarriers to asynchronous operations.
    BarrierFence,
    /// Orders accesses of threads and of asynchronous operations.
    ProxyFence,
    /// A copy of a box or of consecutive bytes.
    Copy(BulkCopy),
    /// Groups stores, or waits for groups.
    CopyGroup(BulkGroup),
    /// A product of matrices by a warpgroup.
    Product(WarpgroupProduct),
    /// Orders accesses to registers before products.
    ProductFence,
    /// Ends a group of products.
    ProductCommit,
    /// Waits until at most N groups of products have not ended.
    ProductWait(u32),
    /// Arrives at the barrier of a cluster.
    ClusterArrive,
    /// Waits at the barrier of a cluster.
    ClusterWait,
    /// The address of a variable in another block of the cluster: to, from, the block.
    MapToBlock(Slot, Slot, Row),
}

/// An operation on the mbarrier at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseOperation {
    /// The mbarrier.
    pub barrier: Address,
    /// The operation.
    pub kind: PhaseKind,
}

/// The kinds of operations on an mbarrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhaseKind {
    /// Makes one whose phases have this many arrivals.
    Initialize(Row),
    /// Ends its use.
    Invalidate,
    Arrive {
        /// The phase before.
        state: Slot,
        /// Arrivals; one by default.
        count: Option<Row>,
        /// Bytes that the phase waits for in addition.
        bytes: Option<Row>,
    },
    /// Bytes that the phase waits for in addition.
    ExpectBytes(Row),
    /// Whether a phase has ended.
    Wait {
        /// The answer.
        to: Row,
        /// The phase.
        phase: Phase,
        /// Whether the instruction may wait.
        patience: Patience,
    },
    /// Arrivals that a phase still waited for: to, the phase's state.
    Pending(Row, Row),
}

/// The phase that a wait names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The phase of the state that an arrival returned.
    Of(Row),
    /// The newest one of this parity.
    Parity(Row),
}

/// Whether an instruction may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// It tests once.
    Test,
    /// It may wait, and may fail.
    Try,
}

/// The most dims of a tensor.
pub const MAX_DIMS: usize = 5;

/// The box of a tensor map that a copy reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorBox {
    /// The tensor map.
    pub map: Address,
    /// The first element along each dim, innermost first.
    pub coordinates: [Row; MAX_DIMS],
    /// Dims of the tensor.
    pub dims: u8,
}

/// A copy between global and shared memory that one thread starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkCopy {
    /// A box to shared memory.
    LoadBox {
        /// The destination.
        to: Address,
        /// The box.
        from: TensorBox,
        /// The mbarrier that counts the bytes.
        barrier: Address,
        /// The blocks of the cluster that get it; this one by default.
        blocks: Option<Row>,
    },
    /// A box from shared memory.
    StoreBox {
        /// The box.
        to: TensorBox,
        /// The source.
        from: Address,
    },
    /// Consecutive bytes to shared memory.
    Load {
        /// The destination.
        to: Address,
        /// The source.
        from: Address,
        /// Their number.
        bytes: Row,
        /// The mbarrier that counts them.
        barrier: Address,
    },
    /// Consecutive bytes from shared memory.
    Store {
        /// The destination.
        to: Address,
        /// The source.
        from: Address,
        /// Their number.
        bytes: Row,
    },
}

/// Groups of copies from shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkGroup {
    /// Ends a group.
    Commit,
    /// Waits until at most N groups have not ended.
    Wait(u32),
    /// Waits until at most N groups have not read their source.
    WaitRead(u32),
}

/// The dim along which the elements of a matrix are next to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Major {
    /// The dim of the sum.
    K,
    /// The dim of the result.
    Outer,
}

/// The first factor of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstFactor {
    /// In shared memory, by a descriptor.
    Shared(Row, Major),
    Registers([Row; 4]),
}

/// `d[64,N] = a[64,16] b[16,N] + d[64,N]` by the four warps of a warpgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarpgroupProduct {
    /// N.
    pub columns: u16,
    /// The format of a and b; d has single precision.
    pub format: NumberFormat,
    /// The first register of d among [`super::Kernel::slots`].
    pub d: u32,
    /// The first factor.
    pub a: FirstFactor,
    /// The descriptor of b.
    pub b: Row,
    /// The dim along which elements of b are neighbours.
    pub b_major: Major,
    /// Whether d is added.
    pub adds: Adds,
    /// The signs of a and b.
    pub signs: [Sign; 2],
}

/// Whether a product is added to its register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adds {
    /// Known when it is decoded: yes.
    Always,
    /// Known when it is decoded: no.
    Never,
    /// By a predicate.
    Where(PredicateSource),
}

/// A factor as it is, or with the other sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// As it is.
    Plus,
    /// With the other sign.
    Minus,
}
