//! Runs programs: ranks open their devices, execute instructions step by step, and deliver what they learned.

#![forbid(unsafe_code)]

pub mod agreement;
pub mod batch;
pub mod bindings;
pub mod deliver;
pub mod engine;
pub mod evaluate;
mod execute;
pub mod failure;
pub mod fetch;
pub mod forward;
mod gather;
pub mod generate;
mod launch;
mod logits;
pub mod loss_scale;
mod memory;
pub mod meta_engine;
pub mod observer;
mod optimizer;
pub mod pieces;
pub mod rank;
pub mod reduce;
pub mod run;
pub mod sampling;
pub mod saving;
pub mod setup;
pub mod sink;
pub mod source;
pub mod start;
pub mod state;
pub mod step_order;
pub mod tensor_file;
pub mod thread_engine;

pub use batch::{SequenceBuffers, TokenSource};
pub use engine::{Engine, Groups, RankEngine};
pub use evaluate::{Evaluation, EvaluationReport, run_evaluation};
pub use failure::{RankFailure, TrainError};
pub use forward::{LogitsSink, run_forward};
pub use generate::{Generation, Listener, run_generation};
pub use loss_scale::{LossScale, StepFate};
pub use meta_engine::{MetaEngine, RankRecord};
pub use observer::{LossScalingReport, Observer, StepReport, Wish};
pub use run::{Ending, Ports, run, run_ranks};
pub use sampling::Sampling;
pub use saving::{SaveReport, Saving};
pub use setup::{Job, JobIndex, Setup, SetupError};
pub use sink::{TensorMap, TensorSink};
pub use source::{SourceError, TensorSource};
pub use start::{PartSource, Start, check_tensors};
pub use step_order::StepOrder;
pub use tensor_file::weights_writer;
pub use thread_engine::ThreadEngine;
