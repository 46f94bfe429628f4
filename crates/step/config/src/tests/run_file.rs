//! Run files: what is read, what is said about what cannot be read, and what is written back.

use std::path::Path;

use config::{
    Activation, BatchGrowth, BatchRamp, DataSpec, Files, FullRecompute, Gathering, GradientReduction, NormKind,
    Pairing, ParameterGroup, Position, Positions, Recompute, Reshard, RotaryScaling, RunConfig, RunSpec, SavedInputs,
    ScheduleKind, ScheduleSpec, SequenceParallel, Visible, ZeroStage, check, unique_parameters,
};
use mesh::PlacementOrder;

fn load(text: &str, overrides: &[&str]) -> Result<RunConfig, String> {
    let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
    RunConfig::load("run.toml", text, &overrides)
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

/// The message for a file that is refused.
fn refused(text: &str, overrides: &[&str]) -> String {
    load(text, overrides).expect_err("the file is wrong")
}

#[test]
fn an_empty_file_is_the_quick_start() {
    let config = load("", &[]).expect("defaults are legal");
    assert_eq!(config, RunConfig::quick_start());
    assert_eq!(check(&config), Ok(()));
    assert_eq!(config.parallelism.mesh().expect("a mesh").world_size(), 8);
    let embeddings = (config.model.vocabulary + config.model.context) * config.model.hidden;
    assert!(unique_parameters(&config.model) - embeddings as u64 >= 1_000_000);
}

/// The run that the defaults describe, with every value.
const QUICK_START: &str = r#"[model]
num_layers = 6
hidden = 128
num_heads = 4
num_kv_heads = 4
head_dim = 32
ffn_hidden = 512
vocabulary = 1024
context = 128
norm = "layer"
norm_epsilon = 1e-5
position = "learned"
position_offset = 0
activation = "gelu_tanh"
blocks = "sequential"
biases = true
embedding_norm = false
tied_embeddings = true
top_query = false
qk_norm = false
dropout = 0.0
attention_dropout = 0.0
init_std = 0.02

[parallelism]
dp = 2
tp = 2
pp = 2
sequence_parallel = false
zero = 1
schedule = "1f1b"
microbatch_size = 2
recompute = "none"

[train]
steps = 240
global_batch = 16
sequence_length = 128
learning_rate = 0.001
min_learning_rate = 0.0001
warmup_steps = 60
schedule = "cosine"
optimizer = "adamw"
weight_decay = 0.1
beta1 = 0.9
beta2 = 0.95
epsilon = 1e-8
clip_norm = 1.0
embedding_gradient_scale = 1.0
precision = "fp32"
products = "chained"
sums = "single"
on_nonfinite = "stop"
on_spike = "warn"
spike_score = 8.0
seed = 0

[data]
tokenizer = "bpe:1024"
visible = "past"
positions = "sequence"
held_out = 0.1

[run]
folder = "runs/latest"
ranks = 8
threads_per_rank = 1
device = "cpu"
evaluate_every = 0
log_every = 0
save_every = 0
keep_newest = 2
keep_every = 0
keep_best = 1
engine = "auto"
transport = "auto"
collectives = "own"
placement = "tp-pp-dp"
recheck = "sample"
on_loss = "stop"
heartbeat_seconds = 5.0
rendezvous_seconds = 10.0
grace_seconds = 30.0
timeout_seconds = 60.0
"#;

#[test]
fn the_resolved_file_names_every_value_and_reads_back() {
    let resolved = RunConfig::quick_start().to_toml();
    assert_eq!(resolved, QUICK_START);
    assert_eq!(load(&resolved, &[]).expect("legal"), RunConfig::quick_start());
}

#[test]
fn every_value_is_read_and_survives_writing() {
    let text = r#"
[model]
num_layers = 5
hidden = 96
num_heads = 6
num_kv_heads = 2
head_dim = 20
norm = "rms"
position = "rotary"
rotary_base = 5e5
rotary_fraction = 0.3
rotary_pairing = "interleaved"
activation = "swiglu"
ffn_hidden = 250
biases = false
tied_embeddings = false
qk_norm = true
dropout = 0.1
vocabulary = 300
[parallelism]
dp = 3
tp = 2
pp = 2
zero = 0
schedule = "gpipe"
sequence_parallel = true
recompute = "full"
recompute_every = 2
stage_layers = [3, 2]
microbatch_size = 1
[train]
global_batch = 9
batch_ramp = { start = 3, increment = 3, sequences = 50 }
sequence_length = 64
clip_norm = 0
embedding_gradient_scale = 0.1
seed = 18446744073709551615
[[train.groups]]
parameters = ["embedding.*", "*_norm.weight"]
learning_rate_scale = 0.5
[[train.groups]]
parameters = ["layers.0.ffn.*"]
weight_decay = 0
[data]
path = "a \"quoted\" folder"
tokenizer = "bpe:300"
[run]
evaluate_every = 50
timeout_seconds = 2.5
"#;
    let config = load(text, &["model.num_layers=5", "train.learning_rate=1e-3"]).expect("legal");
    assert_eq!(config.model.norm.kind, NormKind::Rms);
    let (pairing, scaling) = (Pairing::Interleaved, RotaryScaling::Off);
    assert_eq!(config.model.position, Position::Rotary { base: 5e5, rotary_dims: 6, pairing, scaling });
    assert_eq!(config.model.activation, Activation::SwiGlu);
    assert_eq!((config.model.dropout, config.model.attention_dropout), (0.1, 0.1));
    assert_eq!(config.parallelism.zero, ZeroStage::Off);
    assert_eq!(config.parallelism.schedule, ScheduleKind::GPipe.into());
    assert_eq!(config.parallelism.sequence_parallel, SequenceParallel::On);
    // With sequence parallelism inputs are sharded from the start.
    let full = FullRecompute { every: 2, inputs: SavedInputs::Sharded };
    assert_eq!(config.parallelism.recompute, Recompute::Full(full));
    assert_eq!(config.parallelism.stage_layers, Some(vec![3, 2]));
    assert_eq!(
        config.train.batch_ramp,
        Some(BatchRamp { start: 3, increment: 3, sequences: 50, grows: BatchGrowth::Microbatches })
    );
    assert_eq!(config.train.embedding_gradient_scale, 0.1);
    let groups = [(vec!["embedding.*", "*_norm.weight"], 0.5, None), (vec!["layers.0.ffn.*"], 1.0, Some(0.0))];
    let groups = groups.map(|(names, learning_rate_scale, weight_decay)| ParameterGroup {
        parameters: names.into_iter().map(String::from).collect(),
        learning_rate_scale,
        weight_decay,
    });
    assert_eq!(config.train.groups, groups);
    assert_eq!((config.train.clip_norm, config.train.seed), (None, u64::MAX));
    assert_eq!((config.run.ranks, config.run.evaluate_every, config.run.timeout_seconds), (12, 50, 2.5));
    assert_eq!(load(&config.to_toml(), &[]).expect("legal"), config);
}

#[test]
fn what_is_saved_and_kept_is_read_and_survives_writing() {
    let text = "[run]\nplacement = \"dp-pp-tp\"\nsave_every = 40\nmemory_every = 8\nkeep_newest = 3\nkeep_every = 400\nkeep_best = 0\ngrace_seconds = 90\n";
    let config = load(text, &[]).expect("legal");
    let RunSpec { save_every, memory_every, keep_newest, keep_every, keep_best, grace_seconds, .. } = config.run;
    let read = (save_every, memory_every, keep_newest, keep_every, keep_best, grace_seconds);
    assert_eq!(read, (40, 8, 3, 400, 0, 90.0));
    assert_eq!(config.run.placement, PlacementOrder::DpPpTp);
    assert_eq!(load(&config.to_toml(), &[]).expect("legal"), config);
}

/// A folder with one file.
struct OneFile;

impl Files for OneFile {
    fn vocabulary(&self, _: &DataSpec) -> Result<usize, String> {
        Err("there is no such file".into())
    }

    fn text(&self, path: &Path) -> Result<String, String> {
        match path.to_str() {
            Some("my.schedule") => Ok("0F0 0B0\n1F0 1B0\n".into()),
            _ => Err("there is no such file".into()),
        }
    }
}

#[test]
fn every_schedule_is_read_and_survives_writing() {
    for (text, schedule) in [
        ("schedule = \"gpipe\"\n", ScheduleKind::GPipe),
        ("schedule = \"1f1b\"\n", ScheduleKind::OneForwardOneBackward),
        ("schedule = \"interleaved\"\nstages_per_rank = 3\n", ScheduleKind::Interleaved { stages_per_rank: 3 }),
        ("schedule = \"zb-h1\"\n", ScheduleKind::ZeroBubbleH1),
        ("schedule = \"zb-h2\"\n", ScheduleKind::ZeroBubbleH2),
        ("schedule = \"zb-v\"\n", ScheduleKind::ZeroBubbleV),
        (
            "schedule = \"zb-auto\"\nschedule_memory_percent = 150\n",
            ScheduleKind::ZeroBubbleAuto { memory_percent: 150 },
        ),
    ] {
        let config = load(&format!("[parallelism]\n{text}"), &[]).expect("legal");
        assert_eq!(config.parallelism.schedule, schedule.into());
        assert!(config.to_toml().contains(text), "{}", config.to_toml());
        assert_eq!(load(&config.to_toml(), &[]).expect("legal"), config);
    }
    let read = |text: &str| RunConfig::load_with("run.toml", text, &[], &OneFile);
    let (config, _) = read("[parallelism]\nschedule_file = \"my.schedule\"\n").expect("legal");
    let ScheduleSpec::Given(given) = &config.parallelism.schedule else { panic!("{:?}", config.parallelism.schedule) };
    assert_eq!(given.text.lines().count(), 2);
    assert_eq!(read(&config.to_toml()).expect("legal").0, config);
    let said = |text: &str| read(text).expect_err("wrong").iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        said("[parallelism]\nschedule_file = \"other\"\nschedule = \"gpipe\"\n"),
        [
            "run.toml:2:1: parallelism.schedule_file = \"other\" cannot be read: there is no such file",
            "run.toml:3:1: parallelism.schedule and parallelism.schedule_file are both given; leave one of them out"
        ]
    );
}

#[test]
fn loss_scales_are_written_to_the_last_digit() {
    let config = load("", &["train.precision=fp16", "train.initial_loss_scale=4294967296"]).expect("legal");
    let text = config.to_toml();
    assert!(text.contains("initial_loss_scale = 4294967296.0\n") && text.contains("min_loss_scale = 1.0\n"), "{text}");
    assert_eq!(load(&text, &[]).expect("legal"), config);
}

#[test]
fn overrides_win_and_need_no_quotes() {
    let config =
        load("[model]\nnorm = \"layer\"\n", &["model.norm=rms", "train.steps = 7", "train.steps=8"]).expect("legal");
    assert_eq!((config.model.norm.kind, config.train.steps), (NormKind::Rms, 8));
}

#[test]
fn a_degree_that_is_left_out_follows_from_the_ranks() {
    let degrees = |overrides: &[&str]| {
        let config = load("", overrides).expect("legal");
        (config.parallelism.degrees.dp, config.parallelism.degrees.tp, config.parallelism.degrees.pp)
    };
    assert_eq!(degrees(&["run.ranks=8", "parallelism.dp=2", "parallelism.tp=4"]), (2, 4, 1));
    assert_eq!(degrees(&["run.ranks=8", "parallelism.dp=1", "parallelism.pp=2"]), (1, 4, 2));
    assert_eq!(degrees(&["run.ranks=4", "parallelism.tp=2"]), (2, 2, 1));
    assert_eq!(degrees(&["run.ranks=1"]), (1, 1, 1));
    assert_eq!(degrees(&["parallelism.tp=1"]), (2, 1, 2));
    assert_eq!(
        refused("", &["run.ranks=9", "parallelism.tp=2", "parallelism.pp=2"]),
        "--set run.ranks=9: run.ranks = 9 must be a multiple of parallelism.tp = 2 x parallelism.pp = 2; use 8 or 12"
    );
}

#[test]
fn everything_wrong_is_said_at_once_with_its_place() {
    let text = "[model]\nhiden = 64\nnum_heads = \"four\"\n\n[paralellism]\ntp = 2\n\n[train]\nnum_layers = 3\nglobal_batch = 30\n";
    assert_eq!(
        refused(text, &["parallelism.tp=3"]),
        "run.toml:2:1: `model.hiden` is not a key; did you mean `model.hidden`?\n\
         run.toml:3:1: model.num_heads = \"four\" is not a whole number from 0 to 2147483647\n\
         run.toml:5:2: [paralellism] is not a section; did you mean [parallelism]?\n\
         run.toml:9:1: `train.num_layers` belongs to [model]; write model.num_layers\n\
         run.toml:10:1: train.global_batch = 30 must be a multiple of parallelism.dp = 2 x parallelism.microbatch_size = 2; \
         use 28 or 32, or parallelism.microbatch_size = 1, 3, 5 or 15\n\
         --set parallelism.tp=3: parallelism.tp = 3 must divide model.ffn_hidden = 512; use 1, 2 or 4"
    );
}

#[test]
fn names_of_megatron_are_answered_with_the_key_here() {
    assert_eq!(
        refused("[parallelism]\ntensor_model_parallel_size = 2\n", &[]),
        "run.toml:2:1: `tensor_model_parallel_size` is `parallelism.tp` here"
    );
    assert_eq!(refused("lr = 1e-3\n", &[]), "run.toml:1:1: `lr` is `train.learning_rate` here");
    assert_eq!(
        refused("", &["--pipeline-model-parallel-size=4"]),
        "--set --pipeline-model-parallel-size=4: `--pipeline-model-parallel-size` is `parallelism.pp` here"
    );
    assert_eq!(refused("", &["swiglu"]), "--set swiglu: `swiglu` is `model.activation` here (write \"swiglu\")");
}

#[test]
fn features_that_runs_do_not_have_are_answered_wherever_they_are_named() {
    let wandb = "is not built in; docs/metrics.md has a script that sends metrics.jsonl there";
    let moe = "is a choice of model.experts; write model.experts = 8 and model.experts_per_token = 2";
    assert_eq!(refused("[run]\nwandb = true\n", &[]), format!("run.toml:2:1: `wandb` {wandb}"));
    assert_eq!(refused("[moe]\nexperts = 8\n", &[]), format!("run.toml:1:2: [moe] {moe}"));
    assert_eq!(refused("moe = 8\n", &[]), format!("run.toml:1:1: `moe` {moe}"));
    assert_eq!(refused("", &["moe=8"]), format!("--set moe=8: `moe` {moe}"));
    assert_eq!(
        refused("", &["model.lora_rank=8"]),
        "--set model.lora_rank=8: `lora_rank` is a part of model.lora; write model.lora = { rank = 8, alpha = 16.0, \
         targets = [\"query\", \"value\"] }"
    );
    assert_eq!(refused("", &["wandb.project=a"]), format!("--set wandb.project=a: [wandb] {wandb}"));
    assert_eq!(
        refused("", &["train.fp8=true"]),
        "--set train.fp8=true: `fp8` is not a precision that runs have; use train.precision = \"bf16\""
    );
}

#[test]
fn axes_that_runs_do_not_have_are_refused_by_name() {
    let of =
        |name: &str, axis: &str| format!("`{name}` is {axis}, an axis that runs do not have; use dp, cp, tp and pp");
    let (name, axis) = ("expert_tensor_parallel_size", "tensor parallelism within experts");
    assert_eq!(refused(&format!("[parallelism]\n{name} = 2\n"), &[]), format!("run.toml:2:1: {}", of(name, axis)));
    assert_eq!(
        refused("", &["parallelism.expert_tensor_parallel_size=2"]),
        format!("--set parallelism.{name}=2: {}", of(name, axis))
    );
}

/// A ramp is left out, not made one of nothing.
#[test]
fn an_override_without_a_value_takes_a_key_out() {
    let text = "[train]\nglobal_batch = 32\nbatch_ramp = { start = 8, increment = 8, sequences = 96 }\n";
    assert!(load(text, &[]).expect("legal").train.batch_ramp.is_some());
    let config = load(text, &["train.batch_ramp=", "train.global_batch = "]).expect("legal");
    assert_eq!((config.train.batch_ramp, config.train.global_batch), (None, 16));
    assert_eq!(
        refused("", &["train.batch_rump="]),
        "--set train.batch_rump=: `train.batch_rump` is not a key; did you mean `train.batch_ramp`?"
    );
}

#[test]
fn overrides_that_name_nothing_are_refused() {
    assert_eq!(refused("", &["tp=2"]), "--set tp=2: `tp` has no section; write parallelism.tp");
    assert_eq!(refused("", &["steps"]), "--set steps: this has no `=`; write section.key=value");
    assert_eq!(refused("", &["zebra=1"]), "--set zebra=1: `zebra` has no section; write section.key=value");
    assert_eq!(
        refused("", &["modle.norm=rms"]),
        "--set modle.norm=rms: [modle] is not a section; did you mean [model]?"
    );
    assert_eq!(
        refused("", &["model.zebra=1"]),
        "--set model.zebra=1: `model.zebra` is not a key; [model] has activation, attention_dropout, attention_soft_cap, biases, blocks, context, deepnorm_alpha, dropout, embedding_norm, embedding_scale, \
         expert_capacity, expert_hidden, expert_layer_interval, experts, experts_per_token, ffn_hidden, ffn_hidden_of_layers, first_expert_layer, head_dim, hidden, init_std, layer_pattern, local_rotary_base, logit_divisor, logit_soft_cap, lora, norm, norm_epsilon, num_heads, num_kv_heads, num_layers, output_init_std, padding_token, \
         position, position_offset, qk_norm, query_scalar, rotary_base, rotary_fraction, rotary_high_turns, rotary_low_turns, rotary_magnitude, rotary_original_context, \
         rotary_pairing, rotary_scaling, rotary_scaling_factor, router_balance_loss, router_balance_over, router_bias, router_bias_rate, router_groups, router_groups_kept, router_scale, router_scores, router_statistics, router_weights, router_z_loss, \
         shared_expert_gate, shared_expert_hidden, tied_embeddings, top_query, vocabulary, window, xavier_gain, z_loss"
    );
}

#[test]
fn values_of_a_wrong_kind_are_refused() {
    for (text, expected) in [
        ("model.biases=1", "model.biases = 1 is not one of true, false, \"qkv\", \"attention\" and \"ffn\""),
        (
            "model.norm=layr",
            "model.norm = \"layr\" is not one of \"layer\", \"rms\" and \"rms_plus_one\"; did you mean \"layer\"?",
        ),
        (
            "train.schedule=wsdd",
            "train.schedule = \"wsdd\" is not one of \"cosine\", \"linear\", \"constant\", \"wsd\" and \"cosine-restarts\"; did you mean \"wsd\"?",
        ),
        ("model.num_layers=2.0", "model.num_layers = 2.0 is not a whole number from 0 to 2147483647"),
        ("train.learning_rate=inf", "train.learning_rate = inf is not a number"),
        ("train.seed=-1", "train.seed = -1 is not a whole number from 0 to 18446744073709551615"),
        (
            "data.tokenizer=bpe",
            "data.tokenizer = \"bpe\" is not \"bytes\", \"bpe:\" and a number of tokens as in \"bpe:2048\", or a path such as \"tokenizer.json\"",
        ),
        ("run.folder=3", "run.folder = 3 is not a string"),
        ("run.folder={}", "run.folder = {} is not a string"),
    ] {
        assert_eq!(refused("", &[text]), format!("--set {text}: {expected}"));
    }
}

#[test]
fn syntax_errors_are_named_with_their_place() {
    let said = refused("[model]\nhidden = = 3\n[train]\nsteps = \n", &[]);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("run.toml:2:10: this is not TOML: "), "{said}");
    assert!(lines.iter().any(|line| line.starts_with("run.toml:4:")), "{said}");
    assert!(refused("[model]\nhidden = 64\nhidden = 65\n", &[]).starts_with("run.toml:3:1: this is not TOML: "));
}

#[test]
fn a_rotated_part_is_a_share() {
    assert_eq!(
        refused("[model]\nposition = \"rotary\"\nrotary_fraction = 1.5\n", &[]),
        "run.toml:3:1: model.rotary_fraction = 1.5 must be a share of the head's dims; use more than 0 and at most 1"
    );
}

#[test]
fn keys_of_blocks_need_their_kind() {
    assert_eq!(
        refused("", &["model.blocks=parallel", "model.deepnorm_alpha=2"]),
        "--set model.deepnorm_alpha=2: model.deepnorm_alpha has no effect where model.blocks = \"parallel\"; \
         write model.blocks = \"deepnorm\", or leave it out"
    );
}

#[test]
fn documents_by_themselves_survive_their_file() {
    let config = load("", &["data.visible=document", "data.positions=document"]).expect("legal");
    assert_eq!((config.data.visible, config.data.positions), (Visible::Document, Positions::Document));
    assert_eq!(load(&config.to_toml(), &[]).expect("legal"), config);
}

#[test]
fn every_kind_of_model_survives_its_file() {
    for overrides in [
        vec!["model.position_offset=2", "model.activation=relu", "model.output_init_std=0.001"],
        vec!["model.position=alibi", "model.embedding_norm=true"],
        vec!["model.position=rotary", "model.rotary_fraction=0.25", "model.blocks=parallel"],
        vec!["model.position=rotary", "model.blocks=deepnorm", "model.deepnorm_alpha=11.832159"],
        vec!["model.activation=gelu_sigmoid", "model.biases=qkv"],
        vec!["model.top_query=true"],
        vec!["model.biases=false"],
    ] {
        let config = load("", &overrides).expect("legal");
        assert_ne!(config.model, RunConfig::quick_start().model, "{overrides:?}");
        assert_eq!(load(&config.to_toml(), &[]).expect("legal"), config, "{overrides:?}");
    }
}

#[test]
fn what_is_sharded_and_how_survives_its_file() {
    let zero = |overrides: &[&str]| {
        let config = load("", overrides).expect("legal");
        assert_eq!(load(&config.to_toml(), &[]).expect("legal"), config, "{overrides:?}");
        (config.parallelism.zero, config.parallelism.shard_group)
    };
    let after_use = Gathering { prefetch: 1, reshard: Reshard::AfterUse };
    let (step, microbatch) = (GradientReduction::Step, GradientReduction::Microbatch);
    assert_eq!(zero(&["parallelism.zero=1", "parallelism.shard_group=2"]), (ZeroStage::One, Some(2)));
    assert_eq!(zero(&["parallelism.zero=2"]), (ZeroStage::Two { reduce: step }, None));
    let overrides = ["parallelism.zero=2", "parallelism.reduce=microbatch", "parallelism.shard_group=1"];
    assert_eq!(zero(&overrides), (ZeroStage::Two { reduce: microbatch }, Some(1)));
    assert_eq!(zero(&["parallelism.zero=3"]), (ZeroStage::Three { reduce: step, gathering: after_use }, None));
    let kept = Gathering { prefetch: 0, reshard: Reshard::AfterBackward };
    let overrides = ["parallelism.zero=3", "parallelism.prefetch=0", "parallelism.reshard=after-backward"];
    assert_eq!(zero(&overrides), (ZeroStage::Three { reduce: step, gathering: kept }, None));
}

#[test]
fn runs_of_a_sum_survive_their_file_and_rank_order_is_not_written() {
    let config = load("", &["parallelism.sum_tree=2"]).expect("legal");
    assert!(config.to_toml().contains("\nsum_tree = 2\n"));
    assert_eq!(load(&config.to_toml(), &[]).expect("legal"), config);
    let plain = load("", &["parallelism.sum_tree=1"]).expect("legal");
    assert!(plain == load("", &[]).expect("legal") && !plain.to_toml().contains("sum_tree"));
}

/// Ranks share sequences only where the run says so, and a run file without the key is written as before.
#[test]
fn ranks_share_sequences_where_the_run_says_so() {
    let of = |keys: &[&str]| load("", keys).expect("legal");
    let plain = of(&[]);
    assert_eq!((plain.parallelism.degrees.cp, plain.to_toml().contains("\ncp")), (1, false));
    let shared = of(&["parallelism.cp=4"]);
    assert_eq!((shared.parallelism.degrees.cp, shared.run.ranks), (4, 32));
    assert!(shared.to_toml().contains("\ncp = 4\n"), "{}", shared.to_toml());
    assert_eq!(load(&shared.to_toml(), &[]).expect("legal").parallelism, shared.parallelism);
    // A degree that is left out is what the others leave, but never cp.
    let inferred = of(&["run.ranks=16", "parallelism.cp=2", "parallelism.tp=2", "parallelism.pp=2"]);
    assert_eq!(inferred.parallelism.degrees.dp, 2);
    assert_eq!(
        refused("", &["parallelism.cp=3"]),
        "--set parallelism.cp=3: parallelism.cp = 3 x 2 chunks must divide train.sequence_length = 128; use 1, 2, 4 or 8"
    );
    assert_eq!(
        refused("", &["parallelism.cp=128"]),
        "--set parallelism.cp=128: parallelism.cp = 128 x 2 chunks must divide train.sequence_length = 128; use 8, 16, 32 or 64, \
         or parallelism.cp_chunks = \"contiguous\""
    );
    let heads = of(&["parallelism.cp=2", "parallelism.cp_kind=heads"]);
    let context = config::ContextParallel { kind: config::ContextKind::Heads, chunks: config::ChunkOrder::Contiguous };
    assert_eq!((heads.parallelism.context, heads.to_toml().contains("cp_kind = \"heads\"")), (context, true));
    assert_eq!(load(&heads.to_toml(), &[]).expect("legal").parallelism, heads.parallelism);
    assert_eq!(
        refused("", &["parallelism.cp=4", "parallelism.cp_kind=heads"]),
        "--set parallelism.cp=4: parallelism.cp = 4 must divide model.num_kv_heads / parallelism.tp = 4 / 2 = 2, the heads that \
         parallelism.cp_kind = \"heads\" splits; use 1 or 2, or parallelism.cp_kind = \"gather\""
    );
    // As many heads for keys as for queries: from three ranks on it is cheaper to exchange heads than to gather keys.
    let auto =
        |more: &[&str]| of(&[&["parallelism.tp=1", "parallelism.cp_kind=auto"], more].concat()).parallelism.context;
    let kinds = [config::ContextKind::Gather, config::ContextKind::Heads];
    assert_eq!([auto(&["parallelism.cp=2"]).kind, auto(&["parallelism.cp=4"]).kind], kinds);
    assert_eq!(auto(&["parallelism.cp=8"]).kind, config::ContextKind::Gather, "4 heads are not split between 8 ranks");
    assert_eq!(auto(&["parallelism.cp=4", "model.num_kv_heads=1"]).kind, config::ContextKind::Gather);
    // Masks of probabilities are drawn for four keys at once.
    let ring = ["parallelism.cp=2", "parallelism.cp_kind=ring"];
    assert_eq!(of(&ring).parallelism.context.chunks, config::ChunkOrder::Balanced);
    assert_eq!(
        refused("", &[&ring[..], &["model.attention_dropout=0.1", "train.sequence_length=120"]].concat()),
        "--set parallelism.cp_kind=ring: parallelism.cp_kind = \"ring\" with model.attention_dropout takes chunks of a multiple of \
         4 tokens, not of train.sequence_length = 120 / 4 = 30; use \"gather\" or \"heads\""
    );
    assert!(load("", &[&ring[..], &["run.device=cuda"]].concat()).is_ok());
    let blanks = "data.blanks={ mask = 256, gmask = 257, sop = 258, eop = 259 }";
    let bytes = ["data.tokenizer=bytes", "model.vocabulary=260", "parallelism.cp=2", blanks];
    assert_eq!(of(&bytes).parallelism.context.chunks, config::ChunkOrder::Contiguous);
    assert_eq!(
        refused("", &[&bytes[..], &["parallelism.cp_chunks=balanced"]].concat()),
        "--set parallelism.cp_chunks=balanced: parallelism.cp_chunks = \"balanced\" hides tokens that data.blanks lets others see; \
         use \"contiguous\""
    );
}
