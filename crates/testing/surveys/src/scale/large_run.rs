//! A run of Llama 3.1 405B on a number of ranks: tp 8, pp 16, and as many replicas as there are.

use config::RunConfig;
use train::{Setup, SetupError};

/// Ranks of a model replica.
pub const RANKS_OF_A_REPLICA: usize = 8 * 16;

/// Replicas of a sharding group of ZeRO-3, at most.
const SHARD_GROUP: usize = 16;

/// arXiv 2407.21783, table 3. A step has 16 sequences of 8,192 tokens for each replica.
const MODEL: &str = r#"
[model]
num_layers = 126
hidden = 16384
num_heads = 128
num_kv_heads = 8
ffn_hidden = 53248
vocabulary = 128256
context = 8192
norm = "rms"
position = "rotary"
rotary_base = 500000.0
activation = "swiglu"
biases = false
tied_embeddings = false

[parallelism]
tp = 8
pp = 16
microbatch_size = 1
sequence_parallel = true
recompute = "selective"

[train]
steps = 2
precision = "bf16"

[data]
tokenizer = "bytes"
"#;

/// The state that replicas shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharded {
    /// The state of the optimizer, over all replicas: ZeRO-1.
    Optimizer,
    /// All state, in groups of 16 replicas: ZeRO-3.
    AllInGroups,
}

/// A run of many ranks with a small model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargeRun {
    /// Its ranks: replicas of [`RANKS_OF_A_REPLICA`].
    pub ranks: usize,
    /// The state that replicas shard.
    pub sharded: Sharded,
}

impl LargeRun {
    /// Its run file, resolved.
    ///
    /// # Errors
    /// A number of ranks that has no whole replicas.
    pub fn config(self) -> Result<RunConfig, String> {
        let LargeRun { ranks, sharded } = self;
        if ranks == 0 || !ranks.is_multiple_of(RANKS_OF_A_REPLICA) {
            return Err(format!("ranks must be a multiple of {RANKS_OF_A_REPLICA}; got {ranks}"));
        }
        let dp = ranks / RANKS_OF_A_REPLICA;
        let mut keys = vec![format!("parallelism.dp={dp}"), format!("train.global_batch={}", 16 * dp)];
        keys.extend(match sharded {
            Sharded::Optimizer => vec!["parallelism.zero=1".to_string()],
            Sharded::AllInGroups => {
                let group = format!("parallelism.shard_group={}", SHARD_GROUP.min(dp));
                vec!["parallelism.zero=3".to_string(), group]
            }
        });
        RunConfig::load("", MODEL, &keys).map_err(|problems| format!("{problems:?}"))
    }

    /// Its programs and layouts, compiled, linked and verified for one rank of each stage.
    ///
    /// # Errors
    /// A run that is refused.
    pub fn setup(self) -> Result<Setup, String> {
        let RunConfig { model, parallelism, train, .. } = self.config()?;
        Setup::new(model, parallelism, train).map_err(|error: SetupError| error.to_string())
    }
}
