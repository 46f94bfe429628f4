//! One wrong run per rule, and what is said about it.

mod expert_parallelism;
mod gpus;
mod inline_tables;
mod loss_scale;
mod model;
mod recipes;

use config::{RunConfig, check};

fn said(overrides: &[&str]) -> String {
    let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
    let problems = RunConfig::load("run.toml", "", &overrides).expect_err("the run is wrong");
    let without_place = problems.into_iter().map(|problem| problem.at(None).to_string());
    without_place.collect::<Vec<_>>().join("\n")
}

/// Each case: overrides of the quick start, and all that is said.
fn expect(cases: &[(&[&str], &str)]) {
    for (overrides, expected) in cases {
        assert_eq!(said(overrides), *expected, "for {overrides:?}");
    }
}

#[test]
fn tensor_parallelism_divides_heads_and_columns() {
    expect(&[
        (
            &["parallelism.tp=3", "model.num_heads=16", "model.ffn_hidden=768"],
            "parallelism.tp = 3 must divide model.num_heads = 16; use 1, 2, 4, 8 or 16",
        ),
        (
            &["parallelism.tp=8", "model.num_heads=16", "model.num_kv_heads=4"],
            "parallelism.tp = 8 must be at most model.num_kv_heads = 4, since key and value heads are not split; use 1, 2 or 4",
        ),
        (
            &["parallelism.tp=4", "model.ffn_hidden=510"],
            "parallelism.tp = 4 must divide model.ffn_hidden = 510; use 1 or 2",
        ),
        (
            &["parallelism.tp=4", "model.ffn_hidden_of_layers=[512, 510, 256, 256, 512, 510]"],
            "parallelism.tp = 4 must divide model.ffn_hidden_of_layers = 510; use 1 or 2",
        ),
    ]);
}

#[test]
fn widths_of_layers_are_one_for_each_layer() {
    expect(&[
        (
            &["model.ffn_hidden_of_layers=[512, 256]"],
            "model.ffn_hidden_of_layers = [512, 256] must have a width for each of model.num_layers = 6 layers; got 2; \
             leave it out for layers of equal width",
        ),
        (
            &["model.num_layers=1", "model.ffn_hidden_of_layers=[512, 256]"],
            "model.ffn_hidden_of_layers = [512, 256] must have a width for each of model.num_layers = 1 layers; got 2; \
             leave it out for layers of equal width",
        ),
        (
            &["model.num_layers=2", "model.ffn_hidden_of_layers=[512, 0]"],
            "model.ffn_hidden_of_layers = [512, 0] must be positive; use at least 1 for each layer",
        ),
        (
            &["model.num_layers=2", "model.ffn_hidden_of_layers=[512, 16777218]"],
            "model.ffn_hidden_of_layers = [512, 16777218] must be at most 16777216; use smaller widths",
        ),
    ]);
}

#[test]
fn the_largest_width_of_a_layer_is_legal() {
    let overrides = ["model.num_layers=2", "model.ffn_hidden_of_layers=[1, 16777216]", "parallelism.tp=1"];
    let problems = RunConfig::load("", "", &overrides.map(String::from)).err().unwrap_or_default();
    let of_widths: Vec<String> = problems.iter().map(ToString::to_string).filter(|text| text.contains("ffn")).collect();
    assert_eq!(of_widths, [""; 0]);
}

#[test]
fn positions_start_anew_only_where_something_reads_them() {
    let top_query = ["model.position=alibi", "data.positions=document", "model.top_query=true"].map(String::from);
    RunConfig::load("run.toml", "", &top_query).expect("the table of queries is read by position");
}

#[test]
fn sharding_groups_divide_the_replicas() {
    expect(&[(
        &["parallelism.dp=4", "parallelism.shard_group=3"],
        "parallelism.shard_group = 3 must divide parallelism.dp = 4; use 1, 2 or 4",
    )]);
}

#[test]
fn runs_of_a_sum_cut_no_sharding_group() {
    let of_eight = |keys: &[&'static str]| [&["parallelism.dp=8", "parallelism.microbatch_size=1"], keys].concat();
    for legal in [
        &["parallelism.sum_tree=3"][..],
        &["parallelism.sum_tree=100"],
        &["parallelism.shard_group=4", "parallelism.sum_tree=3"],
    ] {
        let overrides: Vec<String> = of_eight(legal).into_iter().map(String::from).collect();
        assert!(RunConfig::load("run.toml", "", &overrides).is_ok(), "{legal:?}");
    }
    let cut = of_eight(&["parallelism.shard_group=2", "parallelism.sum_tree=3"]);
    expect(&[
        (
            &cut,
            "parallelism.sum_tree = 3 must be a multiple of parallelism.shard_group = 2 where it is more; use 2 or 4, or at most 2",
        ),
        (&["parallelism.sum_tree=0"], "parallelism.sum_tree = 0 must be positive; use at least 1"),
    ]);
}

#[test]
fn tensor_parallelism_shares_out_tokens() {
    let one_token = ["train.sequence_length=1", "model.num_heads=4", "run.ranks=4"];
    let of_one_token = |key: &'static str| [&one_token[..], &["parallelism.dp=1", "parallelism.tp=4", key]].concat();
    let said_of = |sharer: &str| {
        format!(
            "parallelism.tp = 4 must divide parallelism.microbatch_size x train.sequence_length = 2 x 1 = 2 tokens, which {sharer} \
             shards; use 1 or 2, or parallelism.microbatch_size = 4, 8 or 16"
        )
    };
    assert_eq!(
        said(&of_one_token("parallelism.sequence_parallel=true")),
        said_of("parallelism.sequence_parallel = true")
    );
    let sharded = [of_one_token("parallelism.recompute=full"), vec!["parallelism.recompute_inputs=sharded"]].concat();
    assert_eq!(said(&sharded), said_of("parallelism.recompute_inputs = \"sharded\""));
    expect(&[(
        &["parallelism.tp=3", "model.num_heads=6", "model.hidden=96", "parallelism.sequence_parallel=true"],
        "parallelism.tp = 3 must divide parallelism.microbatch_size x train.sequence_length = 2 x 128 = 256 tokens, \
         which parallelism.sequence_parallel = true shards; use 1 or 2",
    )]);
}

#[test]
fn pipeline_stages_hold_the_layers() {
    expect(&[
        (
            &["parallelism.stage_layers=[2,2,2]"],
            "parallelism.stage_layers = [2, 2, 2] must have as many numbers as stages, 2; got 3; leave it out to balance the stages",
        ),
        (
            &["parallelism.stage_layers=[2,3]"],
            "parallelism.stage_layers = [2, 3] must add up to model.num_layers = 6; got 5; leave it out to balance the stages",
        ),
    ]);
}

#[test]
fn schedules_have_what_they_need_and_no_more() {
    expect(&[
        (
            &["parallelism.schedule=interleaved", "parallelism.pp=4", "train.global_batch=24"],
            "train.global_batch = 24 gives 6 microbatches per replica, which must be a multiple of parallelism.pp = 4 with \"interleaved\"; \
             use 16 or 32, or parallelism.microbatch_size = 1 or 3",
        ),
        (
            &["parallelism.schedule_memory_percent=30", "parallelism.schedule=zb-auto"],
            "parallelism.schedule_memory_percent = 30 of parallelism.pp = 2 microbatches is less than one microbatch; use at least 50",
        ),
        (
            &["parallelism.schedule_file=my.schedule"],
            "parallelism.schedule_file = \"my.schedule\" cannot be read: no file is read here",
        ),
    ]);
}

#[test]
fn the_world_and_the_batch_are_products() {
    expect(&[
        (
            &["train.global_batch=3"],
            "train.global_batch = 3 must be a multiple of parallelism.dp = 2 x parallelism.microbatch_size = 2; use 4",
        ),
        (
            &["run.ranks=16"],
            "train.global_batch = 16 must be a multiple of parallelism.dp = 16 x parallelism.microbatch_size = 2; \
             use 32, or parallelism.microbatch_size = 1",
        ),
        (
            &["parallelism.dp=2000000", "train.global_batch=4000000"],
            "parallelism.dp = 2000000 x parallelism.tp = 2 x parallelism.pp = 2 must be at most 1048576 ranks; use smaller degrees",
        ),
    ]);
}

#[test]
fn nothing_is_zero_that_counts() {
    for key in [
        "model.num_layers",
        "model.num_heads",
        "model.num_kv_heads",
        "model.head_dim",
        "model.ffn_hidden",
        "model.context",
        "parallelism.dp",
        "parallelism.tp",
        "parallelism.pp",
        "parallelism.microbatch_size",
        "train.steps",
        "train.global_batch",
        "train.sequence_length",
    ] {
        let said = said(&[&format!("{key}=0")]);
        assert!(said.lines().any(|line| line == format!("{key} = 0 must be positive; use at least 1")), "{said}");
    }
}

/// A schedule of one microbatch.
struct ScheduleFile;

impl config::Files for ScheduleFile {
    fn vocabulary(&self, _: &config::DataSpec) -> Result<usize, String> {
        Err("there is no such file".into())
    }

    fn text(&self, _: &std::path::Path) -> Result<String, String> {
        Ok("0F0 0B0\n1F0 1B0\n".into())
    }
}

#[test]
fn a_schedule_file_is_for_one_number_of_microbatches() {
    let said = |ramp: &str| {
        let text = format!(
            "[parallelism]\nschedule_file = \"mine\"\nmicrobatch_size = 8\n[train]\nbatch_ramp = {{ start = 8, increment = 8, sequences = 9{ramp} }}"
        );
        let problems = RunConfig::load_with(
            "",
            &text,
            &["parallelism.microbatch_size=4".into(), "train.global_batch=16".into()],
            &ScheduleFile,
        );
        problems
            .err()
            .unwrap_or_default()
            .iter()
            .map(|problem| config::Problem { location: None, ..problem.clone() }.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        said(""),
        [
            "train.batch_ramp = { start = 8, increment = 8, sequences = 9 } changes the number of microbatches, which parallelism.schedule_file fixes; use a schedule by name, or grows = \"microbatch_size\""
        ]
    );
    assert_eq!(said(", grows = \"microbatch_size\""), Vec::<String>::new());
}

#[test]
fn groups_name_parameters_and_their_updates_stay_sane() {
    expect(&[
        (
            &["train.groups=[{ parameters = [\"embeding.*\"] }]"],
            "train.groups has \"embeding.*\", which names no parameter of this model; did you mean \"embedding.*\"?",
        ),
        (
            &["train.groups=[{ parameters = [\"head.normal.weight\"] }]"],
            "train.groups has \"head.normal.weight\", which names no parameter of this model; did you mean \"head.norm.weight\"?",
        ),
        (
            &["train.groups=[{ parameters = [\"experts\"] }]"],
            "train.groups has \"experts\", which names no parameter of this model; names are such as \"embedding.token.weight\", \
             \"layers.3.attention.query.weight\" and \"head.norm.bias\"; * stands for any characters",
        ),
        (
            &["train.groups=[{ parameters = [\"*.bias\"] }, { parameters = [\"head.*\"] }]"],
            "train.groups has head.norm.bias in group 1 and in group 2; name it in one group",
        ),
        (
            &["train.groups=[{ parameters = [\"*\"], learning_rate_scale = 500, weight_decay = 5 }]"],
            "train.groups has weight_decay = 5.0, which times its learning rate, 0.5, is 1 or more, which flips the signs of weights; \
             use a smaller product",
        ),
        (
            &["train.groups=[{ names = [\"*\"] }]"],
            "train.groups has the unknown key `names` in { names = [\"*\"] }; \
             its keys are parameters, learning_rate_scale, weight_decay",
        ),
    ]);
}

#[test]
fn every_size_of_a_growing_batch_is_a_batch() {
    expect(&[
        (
            &["train.batch_ramp={ start = 4, increment = 8, sequences = 100 }"],
            "train.batch_ramp = { start = 4, increment = 8, sequences = 100 } must reach train.global_batch = 16; use start = 8",
        ),
        (
            &["train.batch_ramp={ start = 2, increment = 2, sequences = 100 }"],
            "train.batch_ramp = { start = 2, increment = 2, sequences = 100 } has batches that are not multiples of \
             parallelism.dp = 2 x parallelism.microbatch_size = 2; use multiples of 4 for start and increment",
        ),
        (
            &["train.batch_ramp={ start = 4, increment = 0, sequences = 100 }"],
            "train.batch_ramp = { start = 4, increment = 0, sequences = 100 } must start with a batch and grow; use at least 1 for start and increment",
        ),
        (
            &["train.batch_ramp={ start = 4, increment = 4, sequences = 100 }", "train.global_batch=4000"],
            "train.batch_ramp = { start = 4, increment = 4, sequences = 100 } goes through 999 sizes, each with a program of its own, \
             more than 256; use a larger increment",
        ),
        (
            &["train.batch_ramp={ start = 4, increment = 4, sequences = 9, grows = \"fast\" }"],
            "train.batch_ramp = { grows = \"fast\", increment = 4, sequences = 9, start = 4 } is not a ramp such as \
             { start = 4, increment = 4, sequences = 1000 }",
        ),
    ]);
}

#[test]
fn training_numbers_are_sane() {
    expect(&[
        (
            &["train.sequence_length=129"],
            "train.sequence_length = 129 is longer than model.context = 128; use at most 128",
        ),
        (
            &["train.min_learning_rate=0.01"],
            "train.min_learning_rate = 0.01 must be at most train.learning_rate = 0.001; use at most 0.001",
        ),
        (
            &["train.steps=10", "train.warmup_steps=20"],
            "train.warmup_steps = 20 is longer than train.steps = 10, so the peak is never reached; use at most 10",
        ),
        (
            &["train.beta2=-0.5"],
            "train.beta2 = -0.5 must be the decay of a running mean; use 0 or more and less than 1",
        ),
        (
            &["run.threads_per_rank=1025"],
            "run.threads_per_rank = 1025 exceeds the cores of any machine; use at most 1024",
        ),
        (&["run.engine=mpi"], "run.engine = \"mpi\" is not one of \"auto\", \"threads\" and \"processes\""),
        (
            &["run.transport=ib"],
            "run.transport = \"ib\" is not one of \"auto\", \"shared-memory\", \"tcp\" and \"mpi\"",
        ),
        (
            &["run.placement=pp-tp"],
            "run.placement = \"pp-tp\" is not one of \"tp-pp-dp\", \"tp-dp-pp\", \"pp-tp-dp\", \"pp-dp-tp\", \"dp-tp-pp\", \"dp-pp-tp\", \"cp-tp-pp-dp\", \"tp-pp-cp-dp\" and \"tp-pp-dp-cp\"",
        ),
        (
            &["run.engine=threads", "run.memory_every=10"],
            "run.memory_every = 10 needs another host; with run.engine = \"threads\" all ranks are in one process; write \
             run.engine = \"processes\", or leave run.memory_every out",
        ),
        (
            &["run.heartbeat_seconds=0"],
            "run.heartbeat_seconds = 0.0 must be a time in seconds; use more than 0 and at most 86400",
        ),
    ]);
}

#[test]
fn enormous_numbers_are_refused_without_overflow() {
    let huge = "2147483647";
    for key in [
        "model.num_layers",
        "model.hidden",
        "model.num_heads",
        "model.head_dim",
        "model.ffn_hidden",
        "model.vocabulary",
    ] {
        assert!(said(&[&format!("{key}={huge}")]).contains("is more than any supported model has"), "{key}");
    }
    let all: Vec<String> = config::known_keys().into_iter().map(|key| format!("{key}={huge}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    assert!(said(&all).lines().count() > 10);
}

#[test]
fn many_choices_are_cut_to_the_nearest() {
    assert_eq!(
        said(&["model.num_heads=240", "model.hidden=240", "model.ffn_hidden=960", "parallelism.tp=7"]).lines().next(),
        Some("parallelism.tp = 7 must divide model.num_heads = 240; use 2, 3, 4, 5, 6, 8, 10 or 12")
    );
}

#[test]
fn one_rank_and_sixteen_are_legal() {
    for overrides in
        [["run.ranks=1", "parallelism.microbatch_size=16"], ["parallelism.dp=4", "parallelism.microbatch_size=4"]]
    {
        let overrides = overrides.map(str::to_string);
        let config = RunConfig::load("run.toml", "", &overrides).expect("legal");
        assert_eq!(check(&config), Ok(()));
    }
}

/// The rules of degrees once more, written as plainly as possible.
fn degrees_are_legal(config: &RunConfig) -> bool {
    let (model, parallelism) = (&config.model, &config.parallelism);
    let divides = |part: usize, whole: usize| (0..=whole).any(|times| times * part == whole);
    divides(parallelism.degrees.tp, model.num_heads)
        && divides(parallelism.degrees.tp, model.num_kv_heads)
        && divides(parallelism.degrees.tp, model.ffn_hidden)
        && parallelism.degrees.pp <= model.num_layers + 2
        && divides(parallelism.degrees.dp * parallelism.microbatch_size, config.train.global_batch)
}

#[test]
fn verdicts_on_degrees_are_those_of_the_plain_rules() {
    let mut legal = 0;
    for index in 0..6 * 6 * 6 * 2 * 2 {
        let (dp, tp, pp) = (index % 6 + 1, index / 6 % 6 + 1, index / 36 % 6 + 1);
        let (microbatch_size, num_kv_heads) = (index / 216 % 2 + 1, [12, 4][index / 432]);
        let mut config = RunConfig::quick_start();
        config.model.num_heads = 12;
        config.model.num_kv_heads = num_kv_heads;
        config.model.num_layers = 3;
        config.train.global_batch = 48;
        let (parallelism, ranks) = (config.parallelism.clone(), dp * tp * pp);
        config.parallelism =
            config::Parallelism { degrees: config::Degrees { dp, cp: 1, tp, pp }, microbatch_size, ..parallelism };
        config.run.ranks = ranks;
        assert_eq!(check(&config).is_ok(), degrees_are_legal(&config), "{:?}", config.parallelism);
        legal += usize::from(check(&config).is_ok());
    }
    assert!(legal > 100, "{legal}");
}

#[test]
fn what_is_too_large_to_plan_is_refused() {
    expect(&[
        (
            &["model.hidden=1048576", "model.num_heads=2048", "model.num_layers=1024"],
            "[model] has 13510814050811904 parameters, more than 17592186044416; \
             use a smaller hidden, ffn_hidden, vocabulary or num_layers",
        ),
        (
            &["model.num_layers=4097", "run.ranks=1"],
            "model.num_layers = 4097 is 4097 layers per stage; times microbatches in flight (1) that is more than 4096; use fewer layers",
        ),
    ]);
}
