//! Runs programs: ranks open their devices, execute instructions step by step, and deliver what they learned.

#![forbid(unsafe_code)]

pub mod batch;
pub mod deliver;
pub mod engine;
mod execute;
pub mod failure;
pub mod fetch;
mod memory;
pub mod observer;
mod optimizer;
pub mod pieces;
pub mod rank;
pub mod reduce;
pub mod run;
pub mod setup;
pub mod sink;
pub mod source;
pub mod state;
pub mod thread_engine;

pub use batch::{SequenceBuffers, TokenSource};
pub use engine::{Engine, Groups, RankEngine};
pub use failure::{RankFailure, TrainError};
pub use observer::{Observer, StepReport, Wish};
pub use run::{Ending, Ports, run};
pub use setup::{Setup, SetupError};
pub use sink::{TensorMap, TensorSink};
pub use source::{SourceError, TensorSource};
pub use thread_engine::ThreadEngine;
