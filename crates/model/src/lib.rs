//! The layers of a transformer, with backward passes written by hand over [`device::Op`].
//!
//! A layer does not know its pipeline stage, its microbatch's number or what ZeRO shards: it sees local sizes, whole
//! (gathered) parameters and a tensor-parallel communicator in its [`Context`]. What it saves for its backward passes
//! is a struct laid out in frames of the rank's arena; nothing is allocated.
//!
//! `T` is the number of tokens of a microbatch, `D` the width of the residual stream, `R` its rows on this rank: `T`, or with sequence
//! parallelism `T / tp`.

#![forbid(unsafe_code)]

pub mod binding;
pub mod cache;
pub mod constants;
pub mod context;
pub mod embedding;
pub mod gradient_sums;
pub mod head;
pub mod initialize;
pub mod layer;
pub mod linear;
pub mod norm;
pub mod placement;
pub mod projection;
pub mod recording;
pub mod saved;
pub mod saved_input;
pub mod unit_records;

mod attention;
mod feed_forward;
mod layer_tensors;
mod table;
mod top_query;

pub use binding::{BindError, EmbeddingParams, HeadParams, LayerParams};
pub use cache::{CacheSize, KeyValueCache};
pub use constants::Constants;
pub use context::{Batch, Context, DropoutRun, DropoutSite, MicrobatchShape};
pub use embedding::{Embedding, EmbeddingGradients};
pub use gradient_sums::Accumulation;
pub use head::{Head, HeadGradients};
pub use initialize::{TensorParallel, initialize};
pub use layer::Layer;
pub use placement::Residual;
pub use recording::{Phase, RecordCase, RecordError, UnitRecord, record_unit};
pub use saved::SavedFrames;
pub use unit_records::{UnitRecords, footprints};
