//! Runs programs: ranks open their devices, execute instructions step by step, and deliver what they learned.

#![forbid(unsafe_code)]

pub mod all_ranks;
pub mod engine;
pub mod execute;
pub mod infer;
pub mod run;
pub mod setup;
pub mod storage;
pub mod worker;

pub use all_ranks::{Assignment, Assignments, verify_all_ranks};
pub use engine::meta_engine::{MetaEngine, RankRecord};
pub use engine::thread_engine::ThreadEngine;
pub use engine::{Communicators, Engine, RankEngine};
pub use execute::loss_scale::{LossScale, StepFate};
pub use infer::evaluate::{Evaluation, EvaluationReport, run_evaluation};
pub use infer::forward::{LogitsSink, run_forward};
pub use infer::generate::{Generation, Listener, run_generation};
pub use infer::sampling::Sampling;
pub use run::failure::{RankFailure, TrainError};
pub use run::observer::{LossScalingReport, Observer, StepReport, Wish};
pub use run::{Ending, Ports, run, run_ranks};
pub use setup::start::{PartSource, Start, check_tensors};
pub use setup::step_order::StepOrder;
pub use setup::{Setup, SetupError, Workload, WorkloadIndex};
pub use storage::saving::{SaveReport, Saving};
pub use storage::sink::{TensorMap, TensorSink};
pub use storage::source::{SourceError, TensorSource};
pub use storage::tensor_file::weights_writer;
pub use worker::batch::{SequenceBuffers, TokenSource};
