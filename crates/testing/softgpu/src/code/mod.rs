//! PTX in the form that is executed: numbered registers, one value per instruction, blocks in an order.

mod arithmetic;
mod asynchronous;
mod bits;
mod bulk_copies;
mod comparisons;
mod decoder;
mod flow;
mod kernel;
mod layout;
mod matrices;
mod modifiers;
mod moves;
mod operations;
mod order;
mod phases;
mod transfers;
mod uses;
mod warpgroups;
mod warps;

pub use asynchronous::{
    Adds, Asynchronous, BulkCopy, BulkGroup, FirstFactor, MAX_DIMS, Major, Patience, Phase, PhaseKind, PhaseOperation,
    Sign, TensorBox, WarpgroupProduct,
};
pub use decoder::decode;
pub use kernel::{Constant, Kernel, Terminator};
pub use layout::{Place, Symbols, aligned};
pub use operations::{
    Address, Arithmetic, AsyncCopy, Atomic, AtomicOp, Comparison, ComparisonKind, Conversion, CopyGroup,
    FragmentTransfer, Instruction, Integer, IntegerFormat, Logic, MatrixProduct, MultiplyWide, Number, NumberFormat,
    NumberOp, Op, PredicateSource, Reach, Rounding, Row, Shuffle, ShuffleMode, Slot, Test, Transfer, Vote, VoteMode,
};
pub use uses::{Use, small_uses};
