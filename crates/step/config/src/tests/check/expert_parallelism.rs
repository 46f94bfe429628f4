//! Rules of `parallelism.ep`.

use config::RunConfig;

use super::{expect, said};

/// A run with 8 experts of 128 x 32 elements a matrix, on dp 4.
const SPREAD: [&str; 6] = [
    "model.experts=8",
    "model.expert_hidden=32",
    "model.biases=\"attention\"",
    "parallelism.dp=4",
    "parallelism.tp=1",
    "parallelism.ep=2",
];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    SPREAD.iter().copied().chain(more.iter().copied()).collect()
}

#[test]
fn ranks_that_divide_experts_are_a_part_of_dp() {
    for (ranks, more) in [
        (8, &[][..]),
        (8, &["parallelism.ep=4"]),
        (8, &["parallelism.shard_group=2"]),
        (16, &["parallelism.ep=4", "parallelism.tp=2"]),
        (32, &["parallelism.cp=2", "parallelism.tp=2"]),
    ] {
        let overrides: Vec<String> = with(more).iter().map(ToString::to_string).collect();
        let config = RunConfig::load("", "", &overrides).expect("legal");
        let sizes = config.parallelism.axis_sizes();
        assert_eq!((config.run.ranks, sizes.dp_outer * sizes.dp_inner * sizes.ep), (ranks, 4), "{more:?}");
        assert_eq!(RunConfig::load("", &config.to_toml(), &[]).expect("legal"), config);
    }
    assert!(!RunConfig::quick_start().to_toml().contains("\nep ="), "a default is not written");
}

#[test]
fn ep_divides_replicas_groups_and_experts() {
    for (more, expected) in [
        (
            &["parallelism.ep=3"][..],
            "parallelism.ep = 3 must divide parallelism.dp = 4, whose ranks divide the experts; use 1, 2 or 4\n\
             parallelism.ep = 3 must divide model.experts = 8; use 1, 2 or 4",
        ),
        (
            &["parallelism.ep=4", "parallelism.shard_group=2"],
            "parallelism.ep = 4 must divide parallelism.shard_group = 2; use 1 or 2",
        ),
        (&["model.experts=5"], "parallelism.ep = 2 must divide model.experts = 5; use 1"),
        (
            &["parallelism.ep=4", "parallelism.tp=4"],
            "parallelism.ep = 4 must divide model.experts / parallelism.tp = 8 / 4 = 2; use 1 or 2",
        ),
        (
            &["model.expert_hidden=48"],
            "parallelism.ep = 2 needs matrices of experts of whole blocks of the norm, 4096 elements; got model.hidden x \
             model.expert_hidden = 6144; use a model.expert_hidden that makes the product a multiple of 4096, or 1",
        ),
    ] {
        assert_eq!(said(&with(more)), expected, "{more:?}");
    }
    expect(&[(
        &["parallelism.ep=2"],
        "parallelism.ep = 2 divides experts, and the model has none; use 1, or set model.experts",
    )]);
}

/// Runs of a sum have whole copies of the experts.
#[test]
fn runs_of_a_sum_have_every_expert() {
    let of_eight = |more: &[&'static str]| [&with(&["parallelism.dp=8", "parallelism.ep=4"])[..], more].concat();
    for legal in [&["parallelism.sum_tree=4"][..], &["parallelism.sum_tree=8"], &["parallelism.sum_tree=1"]] {
        let overrides: Vec<String> = of_eight(legal).into_iter().map(String::from).collect();
        assert!(RunConfig::load("", "", &overrides).is_ok(), "{legal:?}");
    }
    for (tree, others) in [(2, "4"), (6, "4 or 8")] {
        assert_eq!(
            said(&with(&["parallelism.dp=8", "parallelism.ep=4", &format!("parallelism.sum_tree={tree}")])),
            format!(
                "parallelism.sum_tree = {tree} must be a multiple of parallelism.ep = 4, replicas with one copy of each \
                 expert; use 1, or {others}"
            )
        );
    }
}
