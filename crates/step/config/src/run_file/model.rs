//! The section `[model]`.

use super::balance;
use super::keys::{Keys, Variants, keys, where_first};
use super::reader::OfWeights::{Length, Training};
use super::table::{Fields, Table, tables};
use crate::balance::Balance;
use crate::experts::{ExpertsSpec, SharedExpert, SharedGate};
use crate::local_attention::{LocalAttention, Reach};
use crate::lora::{LinearLayer, LoraSpec};
use crate::model::{Activation, Biases, Blocks, ModelSpec, Norm, NormKind, Pairing, Position, QkNorm, TopQuery};
use crate::problem::Problem;
use crate::rotary_scaling::RotaryScaling;
use crate::routing::{ExpertGroups, RouterScores, RouterWeights, Routing};
use crate::trusted::Consequence;

/// Longest sequence: attention compares positions in single precision, whose whole numbers are exact up to 2^24, and a
/// pass that generates computes rows after the context.
const MAX_CONTEXT: usize = 1 << 23;
/// Widest row of any matrix: offsets within a matrix then fit 32 bits in every kernel.
pub const MAX_WIDTH: usize = 1 << 24;

const TOO_LARGE: &str = "is more than any supported model has";
const LEFT_OUT_OR_MORE: &str = "leave it out, or use more than 0";

// `tokens` is the number of different tokens in the data, the default of the vocabulary.
keys! { keys, model: ModelSpec, tokens: usize;
    num_layers = 6, .positive().at_most(MAX_WIDTH, TOO_LARGE);
    hidden = 128, .positive().at_most(MAX_WIDTH, TOO_LARGE).megatron("hidden_size");
    num_heads = 4, .positive().at_most(MAX_WIDTH, TOO_LARGE).megatron("num_attention_heads");
    num_kv_heads = 4, .or(model.num_heads).positive().megatron("num_query_groups")
        .megatron("group_query_attention: write their number");
    head_dim = 32 => {
        if !keys.key("head_dim", &mut model.head_dim).positive().at_most(MAX_WIDTH, TOO_LARGE).given() {
            head_dim(keys, model);
        }
        keys.megatron("head_dim", "kv_channels");
    };
    ffn_hidden = 512, .or(4 * model.hidden).positive().at_most(MAX_WIDTH, TOO_LARGE).megatron("ffn_hidden_size");
    ffn_hidden_of_layers = None;
    experts = None => { experts(keys, model) };
    vocabulary = 1024, .or(tokens).positive().at_most(MAX_WIDTH, TOO_LARGE).megatron("vocab_size");
    context = 128, .positive().at_most(MAX_CONTEXT, "is more positions than attention can distinguish").of(Length)
        .megatron("max_position_embeddings");
    norm = Norm { kind: NormKind::Layer, epsilon: 1e-5 } => {
        keys.key("norm", &mut model.norm.kind).megatron("normalization: \"layer\" or \"rms\"");
        let epsilon = keys.key("norm_epsilon", &mut model.norm.epsilon).megatron("layernorm_epsilon");
        epsilon.above_zero("must be more than 0", "use 1e-5");
    };
    position = Position::Learned { offset: 0 } => { position(keys, model) };
    local_attention = None => { windows(keys, model) };
    activation = Activation::GeluTanh, .megatron("swiglu: write \"swiglu\"");
    blocks = Blocks::Sequential => {
        // DeepNorm's weight of the stream is by default that of its paper for a decoder.
        let alpha = (2.0 * model.num_layers as f64).sqrt() as f32;
        let blocks: &Variants<Blocks> = &[
            ("sequential", Blocks::Sequential),
            ("parallel", Blocks::Parallel),
            ("postnorm", Blocks::PostNorm),
            ("sandwich", Blocks::Sandwich),
            ("deepnorm", Blocks::DeepNorm { alpha }),
        ];
        keys.variants("blocks", &mut model.blocks, blocks, where_first, |keys, blocks| {
            if let Blocks::DeepNorm { alpha } = blocks {
                keys.key("deepnorm_alpha", alpha).above_zero("must keep the residual stream", "use more than 0");
            }
        });
    };
    biases = Biases::All, .megatron("disable_bias_linear: write false").megatron("add_bias_linear")
        .megatron("add_qkv_bias: write \"qkv\"");
    embedding_scale = None, .above_zero("must be more than 0", LEFT_OUT_OR_MORE);
    query_scalar = None, .above_zero("must be more than 0", LEFT_OUT_OR_MORE);
    attention_soft_cap = None, .above_zero("must be more than 0", LEFT_OUT_OR_MORE);
    logit_divisor = None, .above_zero("must be more than 0", LEFT_OUT_OR_MORE);
    logit_soft_cap = None, .above_zero("must be more than 0", LEFT_OUT_OR_MORE);
    embedding_norm = false, .megatron("embed_layernorm");
    tied_embeddings = true, .megatron("untie_embeddings_and_output_weights: write false");
    padding_token = None, .of(Training);
    top_query = TopQuery::Off;
    qk_norm = QkNorm::Off, .megatron("qk_layernorm");
    dropout = 0.0, .below_one("must be a probability below 1").of(Training).megatron("hidden_dropout");
    // It follows dropout, unless it is given; one verdict is enough.
    attention_dropout = 0.0, .or(model.dropout).of(Training).must(
        |share| *share == model.dropout || (0.0..1.0).contains(share),
        "must be a probability below 1",
        "use 0 or more and less than 1"
    );
    init_std = 0.02, .above_zero("must be a standard deviation above 0", "use 0.02").of(Training)
        .megatron("init_method_std");
    output_init_std = None, .above_zero("must be a standard deviation above 0", LEFT_OUT_OR_MORE).of(Training);
    xavier_gain = None => {
        let gain = keys.key("xavier_gain", &mut model.xavier_gain).of(Training);
        let is_given = gain.above_zero("must be more than 0", LEFT_OUT_OR_MORE).given();
        // It is of maps in layers, in place of the standard deviation of those back into the stream.
        keys.idle(is_given, &["output_init_std"], "conflicts with model.xavier_gain", "remove one of them");
    };
    lora = None => { keys.judged(Consequence::Within, "lora", &mut model.lora); };
    z_loss = None => {
        let holds = |coefficient: &f32| (0.0..=1.0).contains(coefficient);
        let z_loss = keys.key("z_loss", &mut model.z_loss).of(Training);
        z_loss.must(holds, "must be the coefficient of a loss", "use 0 to 1, such as 1e-4");
        model.z_loss = model.z_loss.filter(|coefficient| *coefficient != 0.0);
    };
}

/// The width of a head that follows from the number of heads.
fn head_dim(keys: &mut Keys<'_>, model: &mut ModelSpec) {
    let Some(reader) = keys.reader() else { return };
    // No heads at all is a problem of its own, which `check` names.
    let (hidden, heads) = (model.hidden, model.num_heads.max(1));
    if !hidden.is_multiple_of(heads) {
        let remedy = format!("use {}, or give model.head_dim", mesh::multiples_around(heads, hidden));
        let rule = format!("must be a multiple of model.num_heads = {heads}");
        reader.report(Problem::of_value("model.hidden", hidden, rule, remedy));
    }
    model.head_dim = (hidden / heads).max(1);
}

fn position(keys: &mut Keys<'_>, model: &mut ModelSpec) {
    let head_dim = model.head_dim;
    let rotary =
        Position::Rotary { base: 10_000.0, rotary_dims: head_dim, pairing: Pairing::Half, scaling: RotaryScaling::Off };
    let positions: &Variants<Position> =
        &[("learned", Position::Learned { offset: 0 }), ("rotary", rotary), ("alibi", Position::Alibi)];
    keys.megatron("position", "position_embedding_type: \"learned\", \"rotary\" or \"alibi\"");
    keys.megatron("position", "use_rotary_position_embeddings: write \"rotary\"");
    keys.variants("position", &mut model.position, positions, where_first, |keys, position| match position {
        Position::Learned { offset } => {
            let offset = keys.key("position_offset", offset);
            offset.at_most(MAX_CONTEXT, "is more rows than a position table can skip");
        }
        Position::Rotary { base, rotary_dims, pairing, scaling } => {
            let is_base = |base: &f32| *base > 1.0 && base.is_finite();
            keys.key("rotary_base", base).of(Length).must(is_base, "must give falling frequencies", "use more than 1");
            rotary_fraction(keys, rotary_dims, head_dim);
            keys.key("rotary_pairing", pairing).megatron("rotary_interleaved: write \"interleaved\"");
            rotary_scaling(keys, scaling);
        }
        Position::Alibi => {}
    });
}

/// The share of a head's dims that are rotated, of which a run has the number.
fn rotary_fraction(keys: &mut Keys<'_>, rotary_dims: &mut usize, head_dim: usize) {
    let mut fraction = if keys.reader().is_some() { 1.0 } else { (*rotary_dims as f64 / head_dim as f64) as f32 };
    keys.key("rotary_fraction", &mut fraction).megatron("rotary_percent");
    if keys.reader().is_some() {
        *rotary_dims = (f64::from(fraction) * head_dim as f64).round() as usize;
    }
    if let Some(reader) = keys.chosen_reader().filter(|_| !(fraction > 0.0 && fraction <= 1.0)) {
        // One verdict is enough: whole pairs are not asked for as well.
        reader.unusable.insert("model.rotary_fraction".into());
        let (rule, remedy) = ("must be a share of the head's dims", "use more than 0 and at most 1");
        reader.report(Problem::of_value("model.rotary_fraction", fraction, rule, remedy));
    }
}

/// The defaults of its numbers are those of Llama 3.1, and those of the paper of YaRN.
fn rotary_scaling(keys: &mut Keys<'_>, scaling: &mut RotaryScaling) {
    let (factor, low_turns, original_context) = (8.0, 1.0, 8192);
    let yarn = RotaryScaling::Yarn { factor, low_turns, high_turns: 32.0, original_context, magnitude: 1.0 };
    let scalings: &Variants<RotaryScaling> = &[
        ("none", RotaryScaling::Off),
        ("linear", RotaryScaling::Linear { factor }),
        ("llama3", RotaryScaling::Llama3 { factor, low_turns, high_turns: 4.0, original_context }),
        ("yarn", yarn),
    ];
    keys.variants("rotary_scaling", scaling, scalings, where_first, |keys, scaling| {
        match scaling {
            RotaryScaling::Off => return,
            RotaryScaling::Linear { factor }
            | RotaryScaling::Llama3 { factor, .. }
            | RotaryScaling::Yarn { factor, .. } => {
                let factor = keys.key("rotary_scaling_factor", factor).of(Length);
                factor.must(|factor| *factor >= 1.0, "must slow rotations down", "use 1 or more");
            }
        }
        if let RotaryScaling::Llama3 { low_turns, high_turns, original_context, .. }
        | RotaryScaling::Yarn { low_turns, high_turns, original_context, .. } = scaling
        {
            let low = keys.key("rotary_low_turns", low_turns).of(Length);
            low.above_zero("must be a positive number of turns", "use more than 0");
            let rule = format!("must be more than model.rotary_low_turns = {low_turns:?}");
            let high = keys.key("rotary_high_turns", high_turns).of(Length);
            high.must(|turns| *turns > *low_turns, &rule, format!("use {:?}", 4.0 * *low_turns));
            let context = keys.key("rotary_original_context", original_context).of(Length);
            let remedy = format!("use from 1 to {MAX_CONTEXT}");
            context.must(is_context, "must be the context length of pretraining", remedy);
        }
        if let RotaryScaling::Yarn { factor, magnitude, .. } = scaling {
            let fitted = RotaryScaling::fitted_magnitude(*factor);
            let magnitude = keys.key("rotary_magnitude", magnitude).or(fitted).of(Length);
            magnitude.above_zero("must keep queries and keys", LEFT_OUT_OR_MORE);
        }
    });
    keys.of_weights("rotary_scaling", Length);
    keys.megatron("rotary_scaling", "use_rope_scaling: write \"llama3\"");
    keys.megatron("rotary_scaling_factor", "rope_scaling_factor");
    keys.megatron("rotary_scaling_factor", "rotary_seq_len_interpolation_factor: with rotary_scaling = \"linear\"");
}

/// Keys that have a meaning where there are experts.
const OF_EXPERTS: [&str; 11] = [
    "experts_per_token",
    "expert_hidden",
    "shared_expert_hidden",
    "shared_expert_gate",
    "first_expert_layer",
    "expert_layer_interval",
    "router_scores",
    "router_weights",
    "router_scale",
    "router_groups",
    "router_groups_kept",
];

/// Experts, where their number is given.
fn experts(keys: &mut Keys<'_>, model: &mut ModelSpec) {
    let given = model.experts.take();
    let mut number = given.map(|experts| experts.number);
    let key = keys.key("experts", &mut number).positive().at_most(MAX_WIDTH, TOO_LARGE);
    key.megatron("num_experts");
    if number.is_none() && keys.reader().is_none() {
        return;
    }
    let mut spec = given.unwrap_or(ExpertsSpec {
        number: 0,
        per_token: 2,
        hidden: model.ffn_hidden,
        shared: None,
        first_layer: 0,
        layer_interval: 1,
        routing: Routing {
            scores: RouterScores::Softmax,
            weights: RouterWeights::Normalised,
            scale: 1.0,
            groups: None,
        },
        balance: Balance::NONE,
    });
    spec.number = number.unwrap_or(0);
    let key = keys.key("experts_per_token", &mut spec.per_token).positive();
    key.megatron("moe_router_topk");
    let key = keys.key("expert_hidden", &mut spec.hidden).positive().at_most(MAX_WIDTH, TOO_LARGE);
    key.megatron("moe_ffn_hidden_size");
    shared_expert(keys, &mut spec.shared);
    keys.key("first_expert_layer", &mut spec.first_layer);
    let key = keys.key("expert_layer_interval", &mut spec.layer_interval).positive();
    key.megatron("moe_layer_freq: the number of layers from one with experts to the next");
    router(keys, &mut spec.routing);
    balance::visit(keys, &mut spec.balance);
    let of_experts = [&OF_EXPERTS[..], &balance::KEYS].concat();
    keys.idle(number.is_none(), &of_experts, "has no effect without model.experts", "give both, or leave it out");
    model.experts = number.map(|_| spec);
}

fn shared_expert(keys: &mut Keys<'_>, shared: &mut Option<SharedExpert>) {
    let mut hidden = shared.map(|shared| shared.hidden);
    let mut is_gated = shared.is_some_and(|shared| shared.gate == SharedGate::Learned);
    let key = keys.key("shared_expert_hidden", &mut hidden).positive().at_most(MAX_WIDTH, TOO_LARGE);
    key.megatron("moe_shared_expert_intermediate_size");
    keys.key("shared_expert_gate", &mut is_gated).megatron("moe_shared_expert_gate");
    let (rule, remedy) = ("has no effect without model.shared_expert_hidden", "give both, or leave it out");
    keys.idle(hidden.is_none() && is_gated, &["shared_expert_gate"], rule, remedy);
    let gate = if is_gated { SharedGate::Learned } else { SharedGate::Open };
    *shared = hidden.map(|hidden| SharedExpert { hidden, gate });
}

fn router(keys: &mut Keys<'_>, routing: &mut Routing) {
    keys.key("router_scores", &mut routing.scores).megatron("moe_router_score_function");
    keys.key("router_weights", &mut routing.weights)
        .megatron("moe_router_pre_softmax: true is \"scores\", false is \"normalised\"");
    let key = keys.key("router_scale", &mut routing.scale).above_zero("must be more than 0", "use 1");
    key.megatron("moe_router_topk_scaling_factor");
    let [mut number, mut kept] = routing.groups.map_or([None; 2], |groups| [Some(groups.number), Some(groups.kept)]);
    keys.key("router_groups", &mut number).positive().megatron("moe_router_num_groups");
    keys.key("router_groups_kept", &mut kept).positive().megatron("moe_router_group_topk");
    let remedy = "give both, or neither";
    keys.idle(number.is_none(), &["router_groups_kept"], "has no effect without model.router_groups", remedy);
    keys.idle(kept.is_none(), &["router_groups"], "has no effect without model.router_groups_kept", remedy);
    routing.groups = number.zip(kept).map(|(number, kept)| ExpertGroups { number, kept });
}

fn is_context(tokens: &usize) -> bool {
    (1..=MAX_CONTEXT).contains(tokens)
}

/// Sliding windows: without a window all layers are global, with one and without a pattern all are local.
fn windows(keys: &mut Keys<'_>, model: &mut ModelSpec) {
    let (window, pattern, base) = match model.local_attention.take() {
        None => (None, vec![], None),
        Some(LocalAttention { window, pattern, rotary_base }) => (Some(window), pattern, rotary_base),
    };
    let (mut window, mut pattern, mut rotary_base) = (window, pattern, base);
    let remedy = format!("use from 1 to {MAX_CONTEXT}, or leave it out");
    let key = keys.key("window", &mut window).megatron("window_size");
    key.must(is_context, "must let a token see itself", remedy);
    let key = keys.key("layer_pattern", &mut pattern);
    let is_given = key.megatron("window_attn_skip_freq: a list of \"local\" and \"global\"").given();
    let is_base = |base: &f32| *base > 1.0 && base.is_finite();
    let key = keys.key("local_rotary_base", &mut rotary_base).of(Length);
    key.must(is_base, "must give falling frequencies", "use more than 1, or leave it out");
    let (rule, remedy) = ("has no effect without model.window", "give both, or leave it out");
    keys.idle(window.is_none(), &["layer_pattern", "local_rotary_base"], rule, remedy);
    if let Some(reader) = keys.reader().filter(|_| window.is_some()) {
        if is_given && pattern.is_empty() {
            let remedy = "leave it out for local layers alone";
            reader.report(Problem::of_value("model.layer_pattern", "[]", "must name a layer", remedy));
        }
        pattern = match pattern.is_empty() {
            true => vec![Reach::Local],
            false => LocalAttention::shortest(&pattern, model.num_layers),
        };
    }
    model.local_attention = window.map(|window| LocalAttention { window, pattern, rotary_base });
}

impl Table for LoraSpec {
    const WANTED: &'static str = "adapters such as { rank = 8, alpha = 16.0, targets = [\"query\", \"value\"] }, with targets among query, \
                                  key, value, output, gate, up and down";

    /// Without targets, queries and values have adapters; without an alpha, their scale is 1.
    fn fields(&mut self, fields: &mut Fields<'_>) {
        fields.required("rank", &mut self.rank);
        if !fields.field("alpha", &mut self.alpha) && fields.reads() {
            self.alpha = self.rank as f32;
        }
        fields.field("targets", &mut self.targets);
        self.targets.sort_unstable();
        self.targets.dedup();
    }
}

tables! {
    LoraSpec = LoraSpec { rank: 0, alpha: 0.0, targets: vec![LinearLayer::Query, LinearLayer::Value] };
}
