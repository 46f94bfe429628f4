//! Limits of sheer size once more.

use toml::Value;

use crate::verdicts::experts;
use crate::verdicts::model::{Model, has_gates, resolved_model};
use crate::verdicts::oracle::{Values, degrees, int, stages_per_rank, text};

/// Whether a run is small enough to be planned.
pub fn are_planned(values: &Values) -> bool {
    let Some([dp, _, pp]) = degrees(values) else { return false };
    let Model { layers, hidden, heads, kv_heads, head_dim, ffn, vocabulary, context } = resolved_model(values);
    let (query, key) = (heads * head_dim, kv_heads * head_dim);
    let gates = if has_gates(values) { 2 } else { 1 };
    let experts = experts::experts(values, ffn);
    let of_experts = experts.map_or(0, |experts| experts.layers(layers));
    // Columns of the feed-forward blocks of all layers.
    let columns = experts.map_or(0, |experts| experts.number * experts.hidden + experts.shared.unwrap_or(0));
    let columns = of_experts * columns + (layers - of_experts) * ffn;
    // Biases, norms and routers are a few thousandths of this; no file comes so near to the limit.
    let parameters = layers * hidden * (2 * query + 2 * key)
        + (gates + 1) * hidden * columns
        + 2 * vocabulary * hidden
        + context * hidden;
    let microbatch_size = int(values, "parallelism.microbatch_size", 2);
    let sequences = int(values, "train.global_batch", 16) / dp;
    let microbatches = sequences / microbatch_size;
    let length = int(values, "train.sequence_length", context);
    let stages = stages_per_rank(values);
    let held = match text(values, "parallelism.schedule", "1f1b") {
        "gpipe" => microbatches,
        "interleaved" => (stages + 1) * pp - 1,
        "zb-h2" => 2 * pp - 1,
        "zb-v" => 2 * pp,
        "zb-auto" => int(values, "parallelism.schedule_memory_percent", 100) * pp / 100,
        _ => pp,
    };
    let in_flight = held.min(microbatches * stages).max(microbatches.min(pp) * stages);
    parameters <= 1 << 44
        && microbatch_size * length <= 1 << 24
        && microbatches * (layers + pp * stages) <= 1 << 16
        && in_flight * ((layers + pp * stages - 1) / (pp * stages)) <= 1 << 12
        && sequences * length * layers * width(values, &resolved_model(values)) <= 1 << 52
}

/// The widest activation of a token: of its experts all that it goes through.
fn width(values: &Values, Model { layers, hidden, heads, head_dim, ffn, .. }: &Model) -> i128 {
    let experts = experts::experts(values, *ffn);
    let of_experts = experts.map_or(0, |experts| experts.per_token * experts.hidden);
    let shared = experts.and_then(|experts| experts.shared).unwrap_or(0);
    let is_dense = experts.is_none_or(|experts| experts.layers(*layers) < *layers)
        || values.get("model.top_query").and_then(Value::as_bool) == Some(true);
    let dense = if is_dense { *ffn } else { 0 };
    [*hidden, heads * head_dim, dense, of_experts, shared].into_iter().max().unwrap_or(0)
}
