//! Runs programs: ranks open their devices, execute instructions step by step, and deliver what they learned.

#![forbid(unsafe_code)]

mod all_ranks;
mod engine;
mod execute;
mod infer;
mod ranks;
mod recheck;
mod run;
mod setup;
mod stop_request;
mod storage;
mod worker;

pub use all_ranks::{Assignment, Assignments, verify_all_ranks};
pub use cuda::{
    Choice, ChosenAlgorithms, ChosenTiles, GraphNotice, GraphUse, KernelProduct, RunProduct, StreamProduct,
    check_products,
};
pub use engine::attention_source::{ATTENTION_RANK_BYTES, AttentionSource, AttentionUse, OpenAttention};
pub use engine::gpu_code::{CodeForm, CodeOrigin, CompiledKernels, GpuCode, KernelCode, ToCompile};
pub use engine::gpu_engine::GpuEngine;
pub use engine::gpu_error::GpuError;
pub use engine::gpu_memory::GpuMemory;
pub use engine::gpus::{BlocksBy, Gpus, OpenGpu, own_process_margin_bytes};
pub use engine::kernel_archive::{ARCHIVED_CAPABILITIES, ArchiveError, ArchivedKernels};
pub use engine::kernel_choice::{ModelChoices, ProductChoice};
pub use engine::meta_engine::{MetaEngine, RankRecord};
pub use engine::open_engine::{EngineOptions, describe_engine, engine_cores, open_engine, open_process_engine};
pub use engine::processor;
pub use engine::product_source::{NoProductLibrary, OpenProducts, ProductSource};
pub use engine::run_device::{GpuPlaces, RunDevice, check_numerics, gpus_of};
pub use engine::thread_engine::{ProcessMember, ThreadEngine, queued_streams};
pub use engine::{Communicators, Engine, EngineDescription, MissingGroup, RankEngine};
pub use execute::routers::{RouterFigures, RouterReport};
pub use gpu_rank::{MAX_MEMBERS, NCCL_RANK_BYTES};
pub use infer::evaluate::{Evaluation, EvaluationReport, Validation, run_evaluation};
pub use infer::forward::run_forward;
pub use infer::generate::{Generation, Listener, run_generation};
pub use infer::sampling::{NoDistribution, Sampling};
pub use ranks::failure::{RankFailure, TrainError};
pub use ranks::rings::Rings;
pub use recheck::rechecked_device::SAMPLED_OPERATIONS;
pub use run::observer::{LossScalingReport, Observer, StepReport};
pub use run::run_products::run_products;
pub use run::samples::{SampleReport, Samples};
pub use run::step_verdict::{AnomalyReport, MOST_SKIPPED_IN_A_ROW, StepVerdict};
pub use run::stragglers::{Straggler, StragglerWatch, Suspect};
pub use run::work_times::{Work, WorkTimes};
pub use run::{Ending, Ports, run, run_ranks};
pub use setup::source::{SourceError, TensorSource};
pub use setup::start::{PartSource, Start, check_tensors, has_averages};
pub use setup::step_order::StepOrder;
pub use setup::{GENERATION_ROWS, Setup, SetupError, Workload, WorkloadIndex};
pub use stop_request::StopRequest;
pub use storage::fetch::FetchError;
pub use storage::gathered::{ForwardingSink, GatherError, GatheringSink, take_logits};
pub use storage::open::OpenError;
pub use storage::pieces::{Copies, Piece, pieces};
pub use storage::saving::{SaveReport, Saving, SavingPlace, checkpoint_bytes};
pub use storage::sink::{Assembly, LogitsSink, TensorMap, TensorSink};
pub use storage::tensor_file::weights_writer;
pub use worker::Worker;
pub use worker::batch::{SequenceBuffers, TokenSource};
pub use worker::call_clock::CallTimes;
pub use worker::loss_scale::{LossScale, UpdateOutcome};
pub use worker::ports::RankPorts;
pub use worker::position::RankPosition;
pub use worker::rank_state::{Issued, RankState};
pub use worker::run_position::RunPosition;
pub use worker::save_stream::SaveStream;
pub use worker::spikes::{Anomaly, Spike, SpikeKind, SpikeWatch};
pub use worker::unit_state::{Held, ShardPlace, UnitState};
