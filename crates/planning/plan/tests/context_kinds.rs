//! `parallelism.cp_kind = "auto"` counts bytes, and plans count time. On a grid of layouts both choose the same kind in
//! 25 of 36, and in the others the kind of bytes takes at most 2 % longer: it gathers keys, and attention to these is
//! two calls, at the end of which multiprocessors wait for tiles.

#![allow(clippy::unwrap_used, reason = "a test that fails is one that panics")]

use cluster::{Cluster, named};
use config::{ContextKind, RunConfig, context_kind_name};
use plan::PreparedStep;

/// A run on 16 GPUs of two nodes with 32 query heads.
fn run(kv_heads: usize, [cp, tp]: [usize; 2], tokens: usize, kind: &str) -> RunConfig {
    let dp = 16 / (cp * tp);
    let overrides = [
        "model.num_layers=2".into(),
        "model.hidden=4096".into(),
        "model.num_heads=32".into(),
        format!("model.num_kv_heads={kv_heads}"),
        "model.ffn_hidden=14336".into(),
        "model.vocabulary=1024".into(),
        format!("model.context={tokens}"),
        "model.norm=rms".into(),
        "model.position=rotary".into(),
        "model.activation=swiglu".into(),
        "model.biases=false".into(),
        "model.dropout=0".into(),
        "train.precision=bf16".into(),
        format!("train.sequence_length={tokens}"),
        format!("train.global_batch={dp}"),
        format!("parallelism.dp={dp}"),
        format!("parallelism.tp={tp}"),
        "parallelism.pp=1".into(),
        format!("parallelism.cp={cp}"),
        format!("parallelism.cp_kind={kind}"),
        "parallelism.microbatch_size=1".into(),
    ];
    RunConfig::load("", "", &overrides).unwrap()
}

/// Nanoseconds of a simulated step.
fn price(config: &RunConfig, cluster: &Cluster) -> u64 {
    let step = PreparedStep::new(&config.model, &config.parallelism, &config.train, None).unwrap();
    step.on(cluster).unwrap().step_ns()
}

#[test]
fn the_kind_with_fewest_bytes_has_the_shortest_step_or_nearly_so() {
    let cluster = Cluster::from_toml(named("h100-80g-dgx").unwrap()).unwrap();
    let (mut chosen, mut others, mut shortest) = (Vec::new(), Vec::new(), Vec::new());
    for kv_heads in [8, 32] {
        for degrees in [[2, 1], [4, 1], [8, 1], [16, 1], [2, 2], [4, 2], [8, 2], [2, 4], [4, 4]] {
            for tokens in [8_192, 32_768] {
                let config = run(kv_heads, degrees, tokens, "auto");
                let auto = config.parallelism.context.kind;
                let possible = ContextKind::ALL
                    .into_iter()
                    .filter(|kind| kind.divides_heads(&config.model, config.parallelism.degrees));
                let prices: Vec<(u64, ContextKind)> = possible
                    .map(|kind| (price(&run(kv_heads, degrees, tokens, context_kind_name(kind)), &cluster), kind))
                    .collect();
                let (least, kind) = *prices.iter().min_by_key(|(ns, _)| *ns).unwrap();
                shortest.push(kind);
                let (own, _) = *prices.iter().find(|(_, kind)| *kind == auto).unwrap();
                if own > least {
                    others.push(((kv_heads, degrees, tokens), own as f64 / least as f64));
                }
                chosen.push(auto);
            }
        }
    }
    assert_eq!((chosen.len(), others.len()), (36, 11), "{others:?}");
    let gathers = |(kv_heads, degrees, tokens): &(usize, [usize; 2], usize)| {
        run(*kv_heads, *degrees, *tokens, "auto").parallelism.context.kind == ContextKind::Gather
    };
    assert!(others.iter().all(|(layout, _)| gathers(layout)), "{others:?}");
    assert!(others.iter().all(|(_, ratio)| *ratio < 1.02), "{others:?}");
    // Shifts run during attention there, but joining outputs and adding terms moves more in memory than they hide.
    assert!(!shortest.contains(&ContextKind::Ring), "{shortest:?}");
    assert!(chosen.contains(&ContextKind::Gather) && chosen.contains(&ContextKind::Heads), "{chosen:?}");
}
