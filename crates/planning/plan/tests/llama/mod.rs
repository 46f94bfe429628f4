//! Runs of Llama 3.1.

use config::RunConfig;

/// Layers, width, query heads and width of the feed-forward blocks; all have 8 key heads.
pub const LLAMA_8B: [usize; 4] = [32, 4096, 32, 14336];
pub const LLAMA_70B: [usize; 4] = [80, 8192, 64, 28672];
pub const LLAMA_405B: [usize; 4] = [126, 16384, 128, 53248];

/// A run of a batch of `sequences` of `length` tokens, whose layout is not meant.
pub fn run([layers, hidden, heads, ffn]: [usize; 4], (sequences, length): (usize, usize)) -> RunConfig {
    let overrides = [
        format!("model.num_layers={layers}"),
        format!("model.hidden={hidden}"),
        format!("model.num_heads={heads}"),
        "model.num_kv_heads=8".into(),
        format!("model.ffn_hidden={ffn}"),
        "model.vocabulary=128256".into(),
        "model.context=131072".into(),
        "model.norm=rms".into(),
        "model.position=rotary".into(),
        "model.activation=swiglu".into(),
        "model.biases=false".into(),
        "model.tied_embeddings=false".into(),
        "model.dropout=0".into(),
        "train.precision=bf16".into(),
        format!("train.sequence_length={length}"),
        format!("train.global_batch={sequences}"),
        format!("parallelism.dp={sequences}"),
        "parallelism.tp=1".into(),
        "parallelism.pp=1".into(),
        "parallelism.microbatch_size=1".into(),
    ];
    RunConfig::load("", "", &overrides).expect("keys of a run")
}
