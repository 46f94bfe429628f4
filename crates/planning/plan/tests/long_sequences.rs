//! Llama 3.1 in bf16 on H100s: sequences of 131,072 tokens are shared by ranks, as in the published layout of its 405B
//! model (Grattafiori et al. 2024, table 4: tp 8, cp 16, pp 16, dp 8). Sequences of 8,192 tokens of the 8B model are
//! not.

#![allow(clippy::unwrap_used, reason = "a test that fails is one that panics")]

use std::collections::BTreeMap;

use cluster::{Cluster, named};
use config::{ContextKind, Degrees};
use plan::search::{Found, Question, search};

use crate::llama::{LLAMA_8B, LLAMA_405B, run};

/// The fastest layout of a batch of `sequences` of `length` tokens, of those that agree with `fixed`.
fn fastest(
    model: [usize; 4],
    (sequences, length): (usize, usize),
    accelerators: usize,
    fixed: &[(&str, &str)],
) -> Found {
    let config = run(model, (sequences, length));
    let cluster = Cluster::from_toml(named("h100-80g-dgx").unwrap()).unwrap();
    let fixed: BTreeMap<String, String> =
        fixed.iter().map(|(key, value)| ((*key).to_string(), (*value).to_string())).collect();
    let question = Question {
        config: &config,
        cluster: &cluster,
        software: None,
        expert_load: 1.0,
        accelerators,
        fixed: &fixed,
        memory_bytes: cluster.accelerator.memory_bytes(),
        margin_bytes: 0.0,
        top: 1,
    };
    search(&question).unwrap().best.swap_remove(0)
}

/// The keys that are the same in all of them, so that few layouts are left.
const PLAIN: [(&str, &str); 5] =
    [("schedule", "1f1b"), ("microbatch_size", "1"), ("zero", "3"), ("reduce", "microbatch"), ("recompute", "none")];

#[test]
fn the_8b_model_shares_sequences_of_131072_tokens_and_not_of_8192() {
    let of = |sequences, length| fastest(LLAMA_8B, (sequences, length), 64, &[&PLAIN[..], &[("pp", "1")]].concat());
    assert_eq!(of(512, 8192).parallelism.degrees, Degrees { dp: 64, cp: 1, tp: 1, pp: 1 });
    let long = of(32, 131_072).parallelism;
    // As many ranks as there are key heads exchange them, which moves less than keys that are gathered.
    assert_eq!((long.degrees, long.context.kind), (Degrees { dp: 8, cp: 8, tp: 1, pp: 1 }, ContextKind::Heads));
}

#[test]
fn the_405b_model_shares_131072_tokens_between_as_many_ranks_as_were_published() {
    let published = [
        ("tp", "8"),
        ("pp", "16"),
        ("cp_kind", "gather"),
        ("schedule", "interleaved"),
        ("stages_per_rank", "4"),
        ("microbatch_size", "1"),
        ("zero", "1"),
        ("recompute", "none"),
        ("sequence_parallel", "true"),
    ];
    let found = fastest(LLAMA_405B, (128, 131_072), 16_384, &published).parallelism;
    assert_eq!(found.degrees, Degrees { dp: 8, cp: 16, tp: 8, pp: 16 });
}
