//! Run files by chance: those of tests and the defaults, with a few keys changed.

use std::collections::BTreeMap;

use testkit::run_files::run_files;

/// A run file as `section.key` and value, both as written.
pub type Keys = BTreeMap<String, String>;

/// A file with what makes it differ from the file that it was made of.
#[derive(Clone, Debug)]
pub struct RunFile {
    /// The change, as text.
    pub changed: String,
    /// The keys.
    pub keys: Keys,
}

impl RunFile {
    /// The TOML of it.
    pub fn text(&self) -> String {
        let mut sections: BTreeMap<&str, String> = BTreeMap::new();
        for (key, value) in &self.keys {
            let (section, name) = key.split_once('.').expect("a section");
            sections.entry(section).or_default().push_str(&format!("{name} = {value}\n"));
        }
        let sections: Vec<String> = sections.iter().map(|(section, keys)| format!("[{section}]\n{keys}")).collect();
        sections.join("\n")
    }
}

/// New values of a key: sensible ones, limits, and nonsense.
const CHANGES: &[(&str, &[&str])] = &[
    ("model.num_layers", &["1", "2", "3", "6", "8", "0", "-1", "24"]),
    ("model.hidden", &["64", "96", "120", "130", "0", "256", "99", "\"wide\""]),
    ("model.num_heads", &["1", "2", "3", "4", "8", "12", "0", "4.0"]),
    ("model.num_kv_heads", &["1", "2", "3", "4", "6", "0", "8"]),
    ("model.head_dim", &["16", "31", "32", "0", "8"]),
    ("model.ffn_hidden", &["510", "512", "384", "0", "20000000"]),
    ("model.experts", &["1", "4", "6", "8", "0", "5000"]),
    ("model.experts_per_token", &["1", "2", "3", "4", "0", "9"]),
    ("model.expert_hidden", &["48", "96", "0", "20000000"]),
    ("model.shared_expert_hidden", &["64", "65", "0"]),
    ("model.shared_expert_gate", &["true", "false", "1"]),
    ("model.first_expert_layer", &["0", "1", "3", "4", "-1"]),
    ("model.expert_layer_interval", &["1", "2", "9", "0"]),
    ("model.router_scores", &["\"softmax\"", "\"sigmoid\"", "\"relu\""]),
    ("model.router_weights", &["\"scores\"", "\"normalised\"", "true"]),
    ("model.router_scale", &["1.0", "2.5", "0"]),
    ("model.router_balance_loss", &["0", "0.01", "1", "-0.1", "2"]),
    ("model.router_balance_over", &["\"sequence\"", "\"step\"", "\"microbatch\""]),
    ("model.router_z_loss", &["0", "1e-3", "2"]),
    ("model.router_bias", &["true", "false", "1"]),
    ("model.router_bias_rate", &["0", "1e-3", "-1e-3"]),
    ("model.router_statistics", &["true", "false", "1"]),
    ("model.expert_capacity", &["1.25", "1", "0", "-1"]),
    ("model.logit_divisor", &["6", "0.5", "0", "-1"]),
    ("model.router_groups", &["2", "3", "4", "8", "0"]),
    ("model.router_groups_kept", &["1", "2", "5", "0"]),
    ("model.vocabulary", &["1023", "1024", "1100", "1025"]),
    ("model.context", &["32", "64", "128", "256", "0"]),
    ("model.norm", &["\"layer\"", "\"rms\"", "\"batch\"", "1"]),
    ("model.norm_epsilon", &["1e-5", "0", "-1e-5"]),
    ("model.position", &["\"learned\"", "\"rotary\"", "\"alibi\"", "\"absolute\""]),
    ("model.position_offset", &["0", "2", "9000000", "-2"]),
    ("model.rotary_base", &["1e4", "500000", "1", "0.5"]),
    ("model.rotary_fraction", &["0.25", "0.5", "1", "0", "1.5", "0.1"]),
    ("model.rotary_pairing", &["\"half\"", "\"interleaved\"", "\"pairs\""]),
    ("model.rotary_scaling", &["\"none\"", "\"linear\"", "\"llama3\"", "\"dynamic\""]),
    ("model.rotary_scaling_factor", &["8", "1", "0.5"]),
    ("model.rotary_low_turns", &["1", "0", "4"]),
    ("model.rotary_high_turns", &["4", "1", "0.5"]),
    ("model.rotary_original_context", &["64", "0", "9000000"]),
    ("model.activation", &["\"gelu_tanh\"", "\"swiglu\"", "\"relu\"", "\"gelu_sigmoid\"", "\"gelu\""]),
    ("model.blocks", &["\"sequential\"", "\"parallel\"", "\"deepnorm\"", "\"side by side\""]),
    ("model.deepnorm_alpha", &["2", "0", "\"large\""]),
    ("model.biases", &["true", "false", "\"qkv\"", "\"attention\"", "\"ffn\"", "1"]),
    ("model.padding_token", &["1", "1023", "1024"]),
    ("model.embedding_norm", &["true", "false", "0"]),
    ("model.tied_embeddings", &["true", "false", "\"yes\""]),
    ("model.top_query", &["true", "false", "1"]),
    ("model.qk_norm", &["true", "false"]),
    ("model.dropout", &["0", "0.1", "0.99", "1", "-0.1"]),
    ("model.attention_dropout", &["0", "0.1", "1.5"]),
    ("model.init_std", &["0.02", "0", "-1", "0.1"]),
    ("model.output_init_std", &["0.002", "0"]),
    ("model.xavier_gain", &["0.1", "0"]),
    (
        "model.lora",
        &[
            "{ rank = 8 }",
            "{ rank = 2, alpha = 4.0, targets = [\"query\", \"output\", \"up\", \"down\"] }",
            "{ rank = 2, targets = [\"gate\"] }",
            "{ rank = 0 }",
            "{ alpha = 4.0 }",
        ],
    ),
    ("model.z_loss", &["1e-4", "0", "-1", "2"]),
    ("parallelism.dp", &["1", "2", "3", "4", "8", "0", "5"]),
    ("parallelism.tp", &["1", "2", "3", "4", "8", "0"]),
    ("parallelism.pp", &["1", "2", "3", "4", "7", "0"]),
    ("parallelism.zero", &["0", "1", "2", "3", "4", "true"]),
    ("parallelism.shard_group", &["1", "2", "3", "4", "0"]),
    ("parallelism.reduce", &["\"step\"", "\"microbatch\"", "\"never\""]),
    ("parallelism.prefetch", &["0", "1", "3", "-1"]),
    ("parallelism.reshard", &["\"after-use\"", "\"after-backward\"", "true"]),
    (
        "parallelism.schedule",
        &["\"gpipe\"", "\"1f1b\"", "\"interleaved\"", "\"zb-h1\"", "\"zb-v\"", "\"zb-auto\"", "\"zero\""],
    ),
    ("parallelism.stages_per_rank", &["1", "2", "3", "0"]),
    ("parallelism.schedule_memory_percent", &["100", "200", "50", "20"]),
    ("parallelism.microbatch_size", &["1", "2", "3", "4", "8", "0"]),
    ("parallelism.recompute", &["\"none\"", "\"full\"", "\"selective\"", "\"some\""]),
    ("parallelism.recompute_every", &["1", "2", "0"]),
    ("parallelism.recompute_inputs", &["\"whole\"", "\"sharded\"", "\"half\""]),
    ("parallelism.sequence_parallel", &["true", "false", "1"]),
    ("parallelism.stage_layers", &["[3, 3]", "[2, 4]", "[6]", "[0, 6]", "[1, 1, 4]", "[1, 2]", "6"]),
    ("train.steps", &["1", "10", "1000", "0", "1e3"]),
    ("train.global_batch", &["1", "8", "16", "24", "48", "30", "0", "100000"]),
    (
        "train.batch_ramp",
        &[
            "{ start = 4, increment = 4, sequences = 100 }",
            "{ start = 8, increment = 8, sequences = 0 }",
            "{ start = 2, increment = 7, sequences = 10 }",
            "{ start = 4, increment = 4 }",
            "{ start = 8, increment = 8, sequences = 20, grows = \"microbatch_size\" }",
            "{ start = 4, increment = 4, sequences = 20, grows = \"microbatch_size\" }",
            "{ start = 4, increment = 4, sequences = 20, grows = \"slowly\" }",
            "4",
        ],
    ),
    ("train.sequence_length", &["1", "32", "64", "128", "129", "0"]),
    ("train.learning_rate", &["1e-3", "0", "1", "1.5", "-1e-3", "inf"]),
    ("train.min_learning_rate", &["0", "1e-4", "0.5", "-1"]),
    ("train.warmup_steps", &["0", "5", "400", "-3"]),
    ("train.schedule", &["\"cosine\"", "\"linear\"", "\"constant\"", "\"wsd\"", "\"cosine-restarts\"", "\"step\""]),
    ("train.schedule_steps", &["0", "240", "500", "20", "-1"]),
    ("train.decay_length", &["0.1", "0.999", "10", "400", "0", "1.0", "-0.1"]),
    ("train.decay_shape", &["\"linear\"", "\"cosine\"", "\"1-sqrt\"", "\"sqrt\""]),
    ("train.restart_steps", &["1", "50", "0"]),
    ("train.restart_growth", &["1", "2", "0", "1.5"]),
    ("train.optimizer", &["\"adamw\"", "\"muon\"", "\"sgd\""]),
    ("train.muon_momentum", &["0.9", "0", "1"]),
    ("train.muon_scale", &["\"adamw\"", "\"shape\"", "\"none\""]),
    ("train.weight_decay", &["0", "0.1", "-0.1", "5000"]),
    ("train.beta1", &["0", "0.9", "1", "-0.9"]),
    ("train.beta2", &["0.999", "1"]),
    ("train.epsilon", &["1e-8", "0"]),
    ("train.clip_norm", &["0", "1", "-1"]),
    ("train.ema_decay", &["0", "0.999", "1", "-0.5"]),
    ("train.embedding_gradient_scale", &["0.1", "1", "0", "1.5"]),
    (
        "train.groups",
        &[
            "[{ parameters = [\"embedding.*\"], learning_rate_scale = 0.5 }]",
            "[{ parameters = [\"*.bias\"], weight_decay = 0.1 }, { parameters = [\"embedding.*\"] }]",
            "[{ parameters = [\"head.output.weight\"], learning_rate_scale = 0.1 }]",
            "[{ parameters = [\"layers.5.*\"], learning_rate_scale = 2 }]",
            "[{ parameters = [\"*.bias\"] }, { parameters = [\"head.*\"] }]",
            "[{ parameter = \"head\" }]",
        ],
    ),
    ("train.products", &["\"chained\"", "\"pairs\"", "\"tree\"", "32", "\"blocks16\""]),
    ("train.sums", &["\"single\"", "\"exact\"", "\"double\"", "true"]),
    ("train.seed", &["0", "17", "-1", "18446744073709551615"]),
    ("data.path", &["\"text.txt\"", "\"\"", "3"]),
    (
        "data.sources",
        &["[{ path = \"a.txt\" }, { path = \"b.txt\", weight = 2 }]", "[{ path = \"a\", weight = 0 }]", "[1]"],
    ),
    ("data.tokenizer", &["\"bytes\"", "\"bpe:300\"", "\"bpe:100\"", "\"words\""]),
    ("data.visible", &["\"past\"", "\"document\"", "\"all\""]),
    ("data.odd_files", &["\"refuse\"", "\"skip\"", "\"list\""]),
    (
        "data.blanks",
        &[
            "{ mask = 1024, gmask = 1025, sop = 1026, eop = 1027 }",
            "{ mask = 256, gmask = 257, sop = 258, eop = 259, samples = 2, instructions = \"tasks.jsonl\" }",
            "{ mask = 1, gmask = 2, sop = 3 }",
            "true",
        ],
    ),
    (
        "data.chat",
        &[
            "{ template = \"model\" }",
            "{ template = \"chat.jinja\", date = \"2026-01-31\", long = \"cut\" }",
            "{ template = \"\" }",
            "{ long = \"split\" }",
        ],
    ),
    ("data.positions", &["\"sequence\"", "\"document\"", "\"batch\""]),
    ("data.held_out", &["0", "0.2", "1", "-0.5"]),
    ("run.folder", &["\"out\"", "\"\""]),
    ("run.ranks", &["1", "2", "4", "8", "12", "7", "0"]),
    ("run.threads_per_rank", &["1", "2", "0", "1025", "1.5"]),
    ("run.timeout_seconds", &["1", "0.5", "0", "100000"]),
    ("run.sample_every", &["0", "10", "-1"]),
    ("run.sample_prompts", &["[\"The\"]", "[]", "[\"\"]", "\"The\""]),
    ("run.sample_tokens", &["10", "0", "20000"]),
    ("run.sample_temperature", &["0", "0.8", "-1"]),
    ("run.save_every", &["0", "50", "-1", "\"often\""]),
    ("run.keep_newest", &["1", "5", "0"]),
    ("run.keep_every", &["0", "100", "0.5"]),
    ("run.keep_best", &["0", "3", "-2"]),
    ("run.store", &["\"s3://bucket/runs\"", "\"s3://\"", "\"bucket/runs\"", "\"s3://key:word@bucket/runs\""]),
    ("run.store_seconds", &["0.5", "0"]),
    ("run.grace_seconds", &["0.5", "30", "0", "90000"]),
    ("run.engine", &["\"auto\"", "\"threads\"", "\"processes\"", "\"mpi\""]),
    ("run.transport", &["\"auto\"", "\"shared-memory\"", "\"tcp\"", "\"infiniband\""]),
    ("run.heartbeat_seconds", &["5", "0.5", "0", "90000"]),
    ("run.rendezvous_seconds", &["10", "600", "-1", "90000"]),
    ("run.rank_memory_bytes", &["1000", "1000000000000000", "-5", "\"80 GB\""]),
    // Names that are not keys.
    ("model.hiden", &["64"]),
    ("model.n_layers", &["6"]),
    ("model.hidden_size", &["64"]),
    ("parallelism.steps", &["10"]),
    ("parallelism.tensor_model_parallel_size", &["2"]),
    ("parallelism.tpp", &["2"]),
    ("train.micro_batch_size", &["2"]),
    ("train.lerning_rate", &["1e-3"]),
    ("train.epochs", &["2"]),
    ("trian.steps", &["10"]),
    ("optimizer.name", &["\"adam\""]),
];

/// A generator of run files: the same files for the same seed (xorshift).
pub struct Files {
    state: u64,
    origins: Vec<(String, Keys)>,
}

impl Files {
    /// Files made of the defaults and of the run files in `examples`.
    pub fn new(seed: u64) -> Files {
        let mut origins = vec![("defaults".to_string(), Keys::new())];
        for (name, text) in run_files() {
            let table: toml::Table = text.parse().expect("TOML");
            let mut keys = Keys::new();
            for (section, values) in &table {
                let values = values.as_table().expect("a section");
                keys.extend(values.iter().map(|(key, value)| (format!("{section}.{key}"), value.to_string())));
            }
            origins.push((name, keys));
        }
        Files { state: seed, origins }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state % bound as u64) as usize
    }

    /// The next file: up to three keys of an origin changed.
    pub fn next(&mut self) -> RunFile {
        let origin = self.below(self.origins.len());
        let (name, keys) = self.origins[origin].clone();
        let changes: Vec<(&str, &str)> = (0..=self.below(3))
            .map(|_| {
                let (key, values) = CHANGES[self.below(CHANGES.len())];
                (key, values[self.below(values.len())])
            })
            .collect();
        changed(&name, keys, &changes)
    }
}

/// `keys` of `origin` with `changes`. Memory is given, so that no verdict depends on the machine.
pub fn changed(origin: &str, mut keys: Keys, changes: &[(&str, &str)]) -> RunFile {
    keys.insert("run.folder".into(), "\"out\"".into());
    keys.insert("run.rank_memory_bytes".into(), "1000000000000000".into());
    keys.extend(changes.iter().map(|(key, value)| (key.to_string(), value.to_string())));
    let changes: Vec<String> = changes.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    RunFile { changed: format!("{origin}: {}", changes.join("; ")), keys }
}

/// Changes of the defaults, one for every rule that a file can break.
pub const ONE_PER_RULE: &[&[(&str, &str)]] = &[
    &[("model.num_layers", "0")],
    &[("model.hidden", "20000000"), ("model.ffn_hidden", "512")],
    &[("model.num_heads", "200000"), ("model.head_dim", "500"), ("parallelism.tp", "1")],
    &[("model.hidden", "130")],
    &[("model.head_dim", "513"), ("parallelism.tp", "1")],
    &[("model.hidden", "4096")],
    &[("model.num_kv_heads", "3")],
    &[("model.vocabulary", "100")],
    &[("model.norm_epsilon", "0")],
    &[("model.rotary_base", "1e4")],
    &[("model.position", "\"rotary\""), ("model.rotary_base", "1")],
    &[("model.position", "\"rotary\""), ("model.rotary_fraction", "2")],
    &[("model.position", "\"rotary\""), ("model.rotary_fraction", "0.1")],
    &[("model.dropout", "1")],
    &[("model.attention_dropout", "-1")],
    &[("model.init_std", "0")],
    &[("model.output_init_std", "0")],
    &[("model.output_init_std", "0.002"), ("model.xavier_gain", "0.1")],
    &[("model.xavier_gain", "0")],
    &[("model.padding_token", "1024")],
    &[("model.rotary_scaling", "\"linear\"")],
    &[("model.position", "\"rotary\""), ("model.rotary_scaling_factor", "2")],
    &[("model.position", "\"rotary\""), ("model.rotary_scaling", "\"linear\""), ("model.rotary_low_turns", "2")],
    &[("model.position", "\"rotary\""), ("model.rotary_scaling", "\"linear\""), ("model.rotary_scaling_factor", "0.5")],
    &[("model.position", "\"rotary\""), ("model.rotary_scaling", "\"llama3\""), ("model.rotary_low_turns", "0")],
    &[("model.position", "\"rotary\""), ("model.rotary_scaling", "\"llama3\""), ("model.rotary_high_turns", "1")],
    &[("model.position", "\"rotary\""), ("model.rotary_scaling", "\"llama3\""), ("model.rotary_original_context", "0")],
    &[("model.position_offset", "9000000")],
    &[("model.position", "\"alibi\""), ("model.position_offset", "2")],
    &[("model.position", "\"alibi\""), ("model.rotary_base", "1e4")],
    &[("model.position", "\"alibi\""), ("data.positions", "\"document\"")],
    &[("model.deepnorm_alpha", "2")],
    &[("model.blocks", "\"deepnorm\""), ("model.deepnorm_alpha", "0")],
    &[("parallelism.tp", "3")],
    &[("parallelism.tp", "4"), ("model.num_kv_heads", "2")],
    &[("parallelism.tp", "4"), ("model.num_heads", "12"), ("model.hidden", "96"), ("model.num_kv_heads", "6")],
    &[("parallelism.shard_group", "3")],
    &[("parallelism.shard_group", "0")],
    &[("parallelism.zero", "0"), ("parallelism.shard_group", "2")],
    &[("parallelism.reduce", "\"microbatch\"")],
    &[("parallelism.zero", "2"), ("parallelism.prefetch", "2")],
    &[("parallelism.zero", "2"), ("parallelism.reshard", "\"after-use\"")],
    &[("parallelism.pp", "9")],
    &[("parallelism.pp", "5"), ("parallelism.schedule", "\"zb-v\"")],
    &[("parallelism.schedule", "\"interleaved\""), ("parallelism.stages_per_rank", "0")],
    &[("parallelism.schedule", "\"interleaved\""), ("parallelism.pp", "3")],
    &[("parallelism.schedule", "\"zb-auto\""), ("parallelism.schedule_memory_percent", "20")],
    &[("parallelism.stages_per_rank", "2")],
    &[("parallelism.schedule_file", "\"there is none\"")],
    &[("parallelism.stage_layers", "[6]")],
    &[("parallelism.stage_layers", "[2, 2]")],
    &[("parallelism.stage_layers", "[3, 0, 3]"), ("parallelism.pp", "3")],
    &[("parallelism.dp", "1000000"), ("train.global_batch", "2000000")],
    &[("parallelism.dp", "2"), ("parallelism.tp", "2"), ("parallelism.pp", "2"), ("run.ranks", "6")],
    &[("run.ranks", "9"), ("parallelism.tp", "2")],
    &[("train.global_batch", "30")],
    &[
        ("parallelism.sequence_parallel", "true"),
        ("parallelism.microbatch_size", "1"),
        ("train.sequence_length", "127"),
    ],
    &[("parallelism.recompute_every", "2")],
    &[("parallelism.recompute", "\"full\""), ("parallelism.recompute_every", "0")],
    &[
        ("parallelism.sequence_parallel", "true"),
        ("parallelism.recompute", "\"full\""),
        ("parallelism.recompute_inputs", "\"whole\""),
    ],
    &[("train.batch_ramp", "{ start = 0, increment = 4, sequences = 9 }")],
    &[("train.batch_ramp", "{ start = 20, increment = 4, sequences = 9 }")],
    &[("train.batch_ramp", "{ start = 4, increment = 5, sequences = 9 }")],
    &[("train.batch_ramp", "{ start = 4, increment = 2, sequences = 9 }")],
    &[("train.batch_ramp", "{ start = 4, increment = 4, sequences = 9 }"), ("parallelism.schedule", "\"interleaved\"")],
    &[("train.batch_ramp", "{ start = 4, increment = 4, sequences = 9, grows = \"microbatch_size\" }")],
    &[
        ("train.batch_ramp", "{ start = 8, increment = 8, sequences = 9, grows = \"microbatch_size\" }"),
        ("parallelism.sequence_parallel", "true"),
        ("train.sequence_length", "127"),
    ],
    &[("train.embedding_gradient_scale", "0")],
    &[("train.groups", "[{ parameters = [\"layrs.*\"] }]")],
    &[("train.groups", "[{ parameters = [] }]")],
    &[("train.groups", "[{ parameters = [\"*\"] }, { parameters = [\"head.norm.weight\"] }]")],
    &[("train.groups", "[{ parameters = [\"*\"], learning_rate_scale = -1 }]")],
    &[("train.groups", "[{ parameters = [\"*\"], learning_rate_scale = 2000 }]")],
    &[("train.groups", "[{ parameters = [\"*\"], weight_decay = -1 }]")],
    &[("train.groups", "[{ parameters = [\"*\"], weight_decay = 10000 }]")],
    &[("model.context", "16777215")],
    &[("train.sequence_length", "500")],
    &[("train.learning_rate", "2")],
    &[("train.min_learning_rate", "-1")],
    &[("train.min_learning_rate", "0.5")],
    &[("train.warmup_steps", "301")],
    &[("train.weight_decay", "-1")],
    &[("train.weight_decay", "10000")],
    &[("train.beta1", "1")],
    &[("train.beta2", "1.5")],
    &[("train.epsilon", "0")],
    &[("train.clip_norm", "-1")],
    &[("data.path", "\"\"")],
    &[
        ("data.blanks", "{ mask = 1024, gmask = 1025, sop = 1026, eop = 1027, span_share = 1.5 }"),
        ("model.vocabulary", "1028"),
    ],
    &[
        ("data.blanks", "{ mask = 1024, gmask = 1025, sop = 1026, eop = 1027, span_mean = 0 }"),
        ("model.vocabulary", "1028"),
    ],
    &[
        ("data.blanks", "{ mask = 1024, gmask = 1025, sop = 1026, eop = 1027, span_tokens = 0.5 }"),
        ("model.vocabulary", "1028"),
    ],
    &[
        ("data.blanks", "{ mask = 1024, gmask = 1025, sop = 1026, eop = 1027, samples = 3 }"),
        ("model.vocabulary", "1028"),
    ],
    &[
        ("data.blanks", "{ mask = 1024, gmask = 1025, sop = 1026, eop = 1027, samples = 16 }"),
        ("model.vocabulary", "1028"),
    ],
    &[("data.blanks", "{ mask = 1025, gmask = 1025, sop = 1026, eop = 1027 }"), ("model.vocabulary", "1028")],
    &[("data.blanks", "{ mask = 7, gmask = 1025, sop = 1026, eop = 1027 }"), ("model.vocabulary", "1028")],
    &[("data.blanks", "{ mask = 1024, gmask = 1025, sop = 1026, eop = 1027 }")],
    &[
        ("data.blanks", "{ mask = 1024, gmask = 1025, sop = 1026, eop = 1027 }"),
        ("model.vocabulary", "1028"),
        ("data.visible", "\"document\""),
    ],
    &[
        (
            "data.blanks",
            "{ mask = 1024, gmask = 1025, sop = 1026, eop = 1027, instructions = \"a.jsonl\", instruction_share = -1 }",
        ),
        ("model.vocabulary", "1028"),
    ],
    &[("data.blanks", "{ mask = 1024, gmask = 1025, sop = 1026, eop = 1027, instruction_shares = 0.5 }")],
    &[("model.lora", "{ rank = 0 }")],
    &[("model.lora", "{ rank = 20000 }")],
    &[("model.lora", "{ rank = 8, alpha = 0 }")],
    &[("model.lora", "{ rank = 8, targets = [] }")],
    &[("model.lora", "{ rank = 8, targets = [\"gate\"] }")],
    &[("model.lora", "{ rank = 8, targets = [\"head\"] }")],
    &[("model.lora", "{ rank = 8 }"), ("model.top_query", "true")],
    &[("model.lora", "{ rank = 8 }"), ("parallelism.zero", "3")],
    &[("model.lora", "{ rank = 8 }"), ("train.optimizer", "\"muon\"")],
    &[("model.lora", "{ rank = 8 }"), ("train.sums", "\"exact\"")],
    &[("data.chat", "{ template = \"model\" }")],
    &[("data.chat", "{}"), ("data.path", "\"a.jsonl\"")],
    &[("data.chat", "{ template = \"model\" }"), ("data.path", "\"a.tokens\"")],
    &[("data.chat", "{ template = \"model\" }"), ("data.path", "\"a\""), ("data.visible", "\"document\"")],
    &[("data.chat", "{ template = \"model\", date = \"today\" }"), ("data.path", "\"a\"")],
    &[
        ("data.chat", "{ template = \"model\" }"),
        ("data.path", "\"a\""),
        ("data.blanks", "{ mask = 1024, gmask = 1025, sop = 1026, eop = 1027 }"),
        ("model.vocabulary", "1028"),
    ],
    &[("run.store", "\"s3://\"")],
    &[("run.store", "\"bucket/runs\"")],
    &[("run.store", "\"s3://key:word@bucket/runs\"")],
    &[("run.store", "\"s3://bucket/runs?versionId=1\"")],
    &[("run.store", "\"s3://bucket/runs\""), ("run.store_seconds", "0")],
    &[("run.store_seconds", "60")],
    &[("data.path", "\"a.txt\""), ("data.sources", "[{ path = \"b.txt\" }]")],
    &[("data.sources", "[{ path = \"b.txt\", weight = -1 }]")],
    &[("data.tokenizer", "\"bpe:10\"")],
    &[("data.tokenizer", "\"bpe:500\""), ("model.vocabulary", "400")],
    &[("data.held_out", "1")],
    &[("run.folder", "\"\"")],
    &[("run.timeout_seconds", "0")],
    &[("run.threads_per_rank", "0")],
    &[("run.threads_per_rank", "2000")],
    &[("run.gpus", "2")],
    &[("run.device", "\"soft-gpu\"")],
    &[("run.device", "\"cuda\""), ("run.gpus", "0")],
    &[("run.device", "\"cuda\""), ("run.gpus", "2000")],
    &[("run.device", "\"cuda\""), ("run.threads_per_rank", "2")],
    &[("run.device", "\"cuda\""), ("train.precision", "\"bf16\""), ("train.products", "\"pairs\"")],
    &[("run.device", "\"cuda\""), ("train.products", "\"pairs\"")],
    &[("run.device", "\"cuda\""), ("train.products", "\"device\"")],
    &[("train.precision", "\"bf16\""), ("train.products", "\"device\"")],
    &[
        ("run.device", "\"cuda\""),
        ("train.optimizer", "\"muon\""),
        ("train.precision", "\"bf16\""),
        ("train.products", "\"device\""),
    ],
    &[("run.gpu_collectives", "\"host\"")],
    &[("run.device", "\"cuda\""), ("run.engine", "\"threads\""), ("run.gpu_collectives", "\"nccl\"")],
    &[("run.gpu_graphs", "\"off\"")],
    &[("run.product_algorithms", "\"timed\"")],
    &[("run.product_algorithms", "\"equal\"")],
    &[("run.device", "\"cuda\""), ("run.product_algorithms", "\"equal\"")],
    &[("run.product_kernels", "\"timed\"")],
    &[("run.device", "\"cuda\""), ("run.product_kernels", "\"timed\"")],
    &[("run.device", "\"cuda\""), ("run.attention_library", "\"off\"")],
    &[("run.grace_seconds", "0")],
    &[("run.engine", "\"threads\""), ("run.transport", "\"tcp\"")],
    &[("run.collectives", "\"native\"")],
    &[("run.transport", "\"tcp\""), ("run.collectives", "\"native\"")],
    &[
        ("run.transport", "\"mpi\""),
        ("run.collectives", "\"native\""),
        ("parallelism.dp", "4"),
        ("parallelism.sum_tree", "2"),
    ],
    &[("run.collectives", "\"nccl\"")],
    &[("run.keep_newest", "0")],
    &[("run.save_every", "-1")],
    &[("run.rank_memory_bytes", "5000000")],
    &[("model.hidden", "1048576"), ("model.num_heads", "2048"), ("model.num_layers", "1000")],
    &[("parallelism.microbatch_size", "1048576"), ("train.global_batch", "2097152")],
    &[("train.global_batch", "1048576")],
    &[("parallelism.schedule", "\"gpipe\""), ("train.global_batch", "8000")],
    &[("model.num_layers", "5000"), ("parallelism.pp", "1")],
    &[
        ("model.hidden", "16384"),
        ("model.num_heads", "128"),
        ("model.ffn_hidden", "16777216"),
        ("train.global_batch", "268435456"),
        ("parallelism.microbatch_size", "131072"),
    ],
];
