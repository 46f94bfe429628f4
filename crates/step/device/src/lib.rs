//! Tensors, operations and the trait of what executes them.
//!
//! An operation is a value ([`Op`]); what it reads, writes and costs is matched once, here. A [`Device`] executes
//! operations on tensors that are places in one [`Arena`] per rank; [`MetaDevice`] computes nothing and records.

mod adamw;
mod arena;
mod attention;
mod balance;
mod communicator;
mod cost;
mod dropout_key;
mod element;
mod error;
mod experts;
mod frame;
mod mapping;
mod meta;
mod numerics;
mod op;
mod operands;
mod place;
mod queue;
mod stream;
mod sum_tree;
mod tensor;

mod device;

pub use adamw::{AdamWFactors, AdamWUpdate};
pub use arena::{Arena, ArenaSize};
pub use attention::{Alibi, AttentionGradients, AttentionOperands, AttentionShape, Places};
pub use balance::{BalanceOp, BalanceTerm, RouterTerms, RouterValues, step_sum_words};
pub use communicator::{Call, Communicator, ExchangedRows, Operation, Reduction};
pub use cost::Cost;
pub use device::{Around, Device, KeptTimes, MemoryReader};
pub use dropout_key::DropoutKey;
pub use element::{Bf16, Element, F16, read_floats, write_floats};
pub use error::DeviceError;
pub use experts::{ExpertOp, ExpertRows, TokenRange};
pub use frame::{ALIGN_BYTES, Frame};
pub use mapping::Mapping;
pub use meta::{MetaDevice, Record};
pub use numerics::{DeviceKind, Numerics, NumericsChoice};
pub use op::{
    COUNT_WORD, Direction, Family, LogitGradient, NOT_FINITE_WORD, NormBackward, Op, Orientation, Rounding,
    RowStatistics, SUM_WORDS, Write, ZLoss,
};
pub use operands::Operands;
pub use queue::{Job, OnFailure, StreamEvent, StreamQueue, StreamQueues};
pub use stream::Stream;
pub use sum_tree::SumTree;
pub use tensor::{Dtype, Tensor};
