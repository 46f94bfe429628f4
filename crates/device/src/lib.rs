//! Tensors, operations and the trait of what executes them.
//!
//! An operation is a value ([`Op`]); what it reads, writes and costs is matched once, here. A [`Device`] executes
//! operations on tensors that are places in one [`Arena`] per rank; [`MetaDevice`] computes nothing and records.

pub mod arena;
pub mod attention;
pub mod communicator;
pub mod cost;
pub mod element;
pub mod error;
pub mod frame;
pub mod mapping;
pub mod meta;
pub mod op;
pub mod tensor;

mod device;

pub use arena::Arena;
pub use attention::{Alibi, AttentionGradients, AttentionOperands, AttentionShape};
pub use communicator::{Communicator, Reduction};
pub use cost::Cost;
pub use device::{Device, MemoryReader, Stream};
pub use element::{Bf16, Element, F16};
pub use error::DeviceError;
pub use frame::Frame;
pub use mapping::Mapping;
pub use meta::{MetaDevice, Record};
pub use op::{
    AdamWUpdate, COUNT_WORD, Direction, DropoutKey, IGNORED_LABEL, NOT_FINITE_WORD, NormBackward, Op, Orientation,
    Rounding, SUM_WORDS, Write,
};
pub use tensor::{Dtype, Tensor};
