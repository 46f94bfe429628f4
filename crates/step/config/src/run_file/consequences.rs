//! The effects of the keys of a run file outside of the run. Every key is listed, so that a new one is judged.

/// The most that the value of a key can cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consequence {
    /// It changes what is computed, what is shown, and which files the run's folder has.
    Within,
    /// It also opens libraries of the system, connections between the run's processes, or this user's caches: at
    /// places that no key names.
    AtFixedPlaces,
    /// It names files of this machine that are read.
    Reads,
    /// It names an address to which requests may be sent.
    Sends,
    /// It names a place where files are written.
    Writes,
    /// It names an address where the run listens.
    Listens,
    /// It is a command that is run.
    Runs,
}

impl Consequence {
    /// Whether only the user may choose such a value: its key is read as [`crate::Trusted`].
    pub fn is_for_user_alone(self) -> bool {
        match self {
            Consequence::Within | Consequence::AtFixedPlaces | Consequence::Reads => false,
            Consequence::Sends | Consequence::Writes | Consequence::Listens | Consequence::Runs => true,
        }
    }
}

/// Keys of [`Consequence::Within`].
const WITHIN: &str = "\
    data.held_out data.positions data.visible model.activation model.attention_dropout model.attention_soft_cap \
    model.biases model.blocks model.context model.deepnorm_alpha model.dropout model.embedding_norm \
    model.embedding_scale model.ffn_hidden model.ffn_hidden_of_layers model.head_dim model.hidden model.init_std \
    model.layer_pattern model.local_rotary_base model.logit_soft_cap model.lora model.norm model.norm_epsilon \
    model.num_heads model.num_kv_heads model.num_layers model.output_init_std model.padding_token model.position \
    model.position_offset model.qk_norm model.query_scalar model.rotary_base model.rotary_fraction \
    model.rotary_high_turns model.rotary_low_turns model.rotary_magnitude model.rotary_original_context \
    model.rotary_pairing model.rotary_scaling model.rotary_scaling_factor model.tied_embeddings model.top_query \
    model.vocabulary model.window model.xavier_gain model.z_loss parallelism.cp parallelism.cp_chunks \
    parallelism.cp_kind parallelism.dp parallelism.microbatch_size parallelism.overlap parallelism.pp \
    parallelism.prefetch parallelism.recompute parallelism.recompute_every parallelism.recompute_inputs \
    parallelism.reduce parallelism.reshard parallelism.schedule parallelism.schedule_memory_percent \
    parallelism.sequence_parallel parallelism.shard_group parallelism.stage_layers parallelism.stages_per_rank \
    parallelism.sum_tree parallelism.tp parallelism.zero run.evaluate_every run.grace_seconds run.heartbeat_seconds \
    run.keep_best run.keep_every run.keep_newest run.log_every run.on_loss run.placement run.rank_memory_bytes \
    run.ranks run.recheck run.rendezvous_seconds run.sample_every run.sample_prompts run.sample_temperature \
    run.sample_tokens run.save_every run.store_seconds run.threads_per_rank run.timeout_seconds train.batch_ramp \
    train.beta1 train.beta2 train.clip_norm train.decay_length train.decay_shape train.ema_decay \
    train.embedding_gradient_scale train.epsilon train.global_batch train.groups train.initial_loss_scale \
    train.learning_rate train.loss_scale_hysteresis train.loss_scale_window train.min_learning_rate \
    train.min_loss_scale train.muon_momentum train.muon_scale train.offload train.on_nonfinite train.on_spike \
    train.optimizer train.precision train.restart_growth train.restart_steps train.schedule train.seed \
    train.sequence_length train.spike_score train.steps train.sums train.warmup_steps train.weight_decay";

/// Keys of [`Consequence::AtFixedPlaces`].
const AT_FIXED_PLACES: &str = "\
    run.attention_library run.collectives run.device run.engine run.gpu_collectives run.gpu_graphs run.gpus \
    run.memory_every run.product_algorithms run.product_kernels run.transport train.products";

/// The other keys.
const OTHERS: [(&str, Consequence); 12] = [
    ("data.blanks", Consequence::Reads),
    ("data.cache", Consequence::Writes),
    ("data.chat", Consequence::Reads),
    ("data.path", Consequence::Sends),
    ("data.sources", Consequence::Sends),
    ("data.tokenizer", Consequence::Reads),
    ("data.validation", Consequence::Sends),
    ("parallelism.schedule_file", Consequence::Reads),
    ("run.folder", Consequence::Writes),
    ("run.metrics_address", Consequence::Listens),
    ("run.notify", Consequence::Runs),
    ("run.store", Consequence::Sends),
];

/// The consequence of `key`, as `section.key`; `None` for one that is not a key, or that nobody has judged.
pub fn consequence_of(key: &str) -> Option<Consequence> {
    let listed = |keys: &str| keys.split_whitespace().any(|listed| listed == key);
    let other = OTHERS.iter().find(|(other, _)| *other == key).map(|(_, consequence)| *consequence);
    let fixed = || listed(AT_FIXED_PLACES).then_some(Consequence::AtFixedPlaces);
    other.or_else(fixed).or_else(|| listed(WITHIN).then_some(Consequence::Within))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::run_file::reader::Reader;
    use crate::run_file::source::Entries;
    use crate::run_file::{NoFiles, known_keys, read};
    use crate::trusted::Author;

    #[test]
    fn every_key_is_judged() {
        let listed = WITHIN.split_whitespace().chain(AT_FIXED_PLACES.split_whitespace());
        let mut listed: Vec<&str> = listed.chain(OTHERS.iter().map(|(key, _)| *key)).collect();
        listed.sort_unstable();
        assert_eq!(listed, known_keys(), "a key must be in one list, and every key in a list is one");
    }

    #[test]
    fn keys_that_act_are_read_as_values_of_the_user() {
        let mut reader = Reader::new(Entries::new(), Author::User);
        read(&mut reader, &NoFiles);
        let known = known_keys();
        let for_user = known.iter().filter(|key| consequence_of(key).is_some_and(Consequence::is_for_user_alone));
        assert_eq!(reader.acting(), &for_user.cloned().collect::<BTreeSet<String>>());
    }
}
