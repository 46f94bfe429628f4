//! The layers of a transformer, with backward passes written by hand over [`device::Op`].
//!
//! A layer does not know its pipeline stage, its microbatch's number or what ZeRO shards: it sees local sizes, whole
//! (gathered) parameters and a tensor-parallel communicator in its [`Context`]. Its saved activations are a struct laid
//! out in frames of the rank's arena; nothing is allocated.
//!
//! `T` is the number of tokens of a microbatch, `D` the width of the residual stream, `R` its rows on this rank: `T`,
//! or with sequence parallelism `T / tp`.

#![forbid(unsafe_code)]

mod adapter;
mod binding;
mod cache;
mod constants;
mod context;
mod context_parallel;
mod dense;
mod dropout;
mod embedding;
mod expert_biases;
mod expert_parallel;
mod expert_products;
mod expert_rounds;
mod experts;
mod experts_spec;
mod experts_tensors;
mod gradient_sums;
mod head;
mod initialize;
mod layer;
mod linear;
mod norm;
mod placement;
mod projection;
mod qk_norm;
mod router;
mod router_balance;
mod router_constants;
mod saved;
pub mod saved_input;
mod shared_expert;

mod attention;
mod feed_forward;
mod layer_tensors;
mod table;
mod top_query;

pub use adapter::{Adapter, AdapterAccumulators, Adapters, NO_ADAPTERS};
pub use binding::{
    AdapterBuffers, AttentionParams, BindError, BlockNorms, DenseParams, EmbeddingParams, ExpertsParams,
    FeedForwardParams, HeadParams, LayerParams, QkNormParams, SharedExpertParams,
};
pub use cache::{CacheSize, KeyValueCache};
pub use constants::{Constants, RotaryTables};
pub use context::{Batch, Context, DropoutRun, DropoutSite, MicrobatchShape, RouterRun, Visible};
pub use context_parallel::slices::TokenRun;
pub use embedding::{Embedding, EmbeddingGradients};
pub use gradient_sums::Accumulation;
pub use head::{Head, HeadGradients};
pub use initialize::{TensorParallel, drawn_values, initialize};
pub use layer::Layer;
pub use linear::{ColumnParallel, RowParallel};
pub use norm::NormParams;
pub use placement::{Partial, Residual, Sharded, Whole, enter, leave};
pub use projection::{Projection, TopQueryProjection};
pub use router_constants::RouterConstants;
pub use saved::SavedFrames;
