//! Experts of the classes that have them.

use config::{ExpertsSpec, ModelSpec, RouterScores, RouterWeights, Routing, SharedExpert, SharedGate};
use serde_json::{Map, Value};

use super::object;
use crate::error::InterchangeError;
use crate::fields::Fields;

/// Keys of a class with experts, and what the library takes where a file leaves them out.
pub(super) struct Class {
    /// The number of experts.
    number: (&'static str, usize),
    per_token: usize,
    /// The width of an expert; that of dense blocks where there is no key of its own.
    hidden: Option<(&'static str, usize)>,
    /// The width of the shared expert.
    shared: Option<(&'static str, usize)>,
    /// Which weights the class has.
    weights: Weights,
    layers: Layers,
}

/// The weights of chosen experts.
#[derive(Clone, Copy)]
enum Weights {
    /// They add up to 1.
    Normalised,
    /// The file says whether.
    OfFile,
}

/// The layers with experts.
#[derive(Clone, Copy)]
enum Layers {
    All,
    /// The file says which.
    OfFile,
}

pub(super) const MIXTRAL: Class = Class {
    number: ("num_local_experts", 8),
    per_token: 2,
    hidden: None,
    shared: None,
    weights: Weights::Normalised,
    layers: Layers::All,
};
pub(super) const GRANITE: Class = MIXTRAL;
pub(super) const QWEN2: Class = Class {
    number: ("num_experts", 60),
    per_token: 4,
    hidden: Some(("moe_intermediate_size", 1408)),
    shared: Some(("shared_expert_intermediate_size", 5632)),
    weights: Weights::OfFile,
    layers: Layers::OfFile,
};
pub(super) const QWEN3: Class = Class {
    number: ("num_experts", 128),
    per_token: 8,
    hidden: Some(("moe_intermediate_size", 768)),
    shared: None,
    weights: Weights::OfFile,
    layers: Layers::OfFile,
};
pub(super) const OLMOE: Class = Class {
    number: ("num_experts", 64),
    per_token: 8,
    hidden: None,
    shared: None,
    weights: Weights::OfFile,
    layers: Layers::All,
};

/// Keys of the number of experts.
const NUMBERS: [&str; 2] = ["num_experts", "num_local_experts"];
const PER_TOKEN: &str = "num_experts_per_tok";
const NORMALISED: &str = "norm_topk_prob";
const STEP: &str = "decoder_sparse_step";
const DENSE: &str = "mlp_only_layers";

/// The experts of a model of `num_layers` layers, whose dense blocks have the width `ffn_hidden`.
///
/// `router_aux_loss_coef` is ignored, and so is `output_router_logits`, which adds its loss where the library trains:
/// neither belongs to the function that is learned. That loss is the coefficient times `E` times the sum over experts e
/// of `f_e P_e`. `f_e` is the number of choices of e divided by the rows, `P_e` the mean of its softmax scores; both
/// are means over the rows of all layers of a microbatch together. So `f` adds up to `k`, balanced routing gives `k`
/// and not 1, and layers that lean to different experts cancel each other. Of a loss whose `f` adds up to 1, a
/// coefficient of the same strength is `k` times as large.
pub(super) fn read(
    class: Option<&Class>,
    fields: &Fields,
    [num_layers, ffn_hidden]: [usize; 2],
) -> Result<Option<ExpertsSpec>, InterchangeError> {
    let Some(class) = class else {
        NUMBERS.into_iter().try_for_each(|key| fields.absent(key))?;
        return Ok(None);
    };
    if fields.number_or("router_jitter_noise", 0.0)? != 0.0 {
        return Err(fields.refused("router_jitter_noise", "is not supported; use 0.0"));
    }
    fields.absent("clip_qkv")?;
    let or_default = |(key, default): (&str, usize)| fields.count_or(key, default);
    let is_normalised = match class.weights {
        Weights::Normalised => true,
        Weights::OfFile => fields.truth_or(NORMALISED, false)?,
    };
    let (first_layer, layer_interval) = match class.layers {
        Layers::All => (0, 1),
        Layers::OfFile => layers(fields, num_layers)?,
    };
    let shared = class.shared.map(or_default).transpose()?;
    Ok(Some(ExpertsSpec {
        number: number(class, fields)?,
        per_token: fields.count_or(PER_TOKEN, class.per_token)?,
        hidden: class.hidden.map_or(Ok(ffn_hidden), or_default)?,
        shared: shared.map(|hidden| SharedExpert { hidden, gate: SharedGate::Learned }),
        first_layer,
        layer_interval,
        routing: Routing {
            scores: RouterScores::Softmax,
            weights: if is_normalised { RouterWeights::Normalised } else { RouterWeights::Scores },
            scale: 1.0,
            groups: None,
        },
    }))
}

/// The number of experts, under the key of the class or the other one: the library writes either for Qwen 3.
fn number(class: &Class, fields: &Fields) -> Result<usize, InterchangeError> {
    let (key, default) = class.number;
    let other = NUMBERS.into_iter().find(|other| *other != key).unwrap_or(key);
    fields.count_or(key, fields.count_or(other, default)?)
}

/// The first layer with experts and their interval: layer i has some where `decoder_sparse_step` divides i + 1, unless
/// `mlp_only_layers` lists it.
fn layers(fields: &Fields, num_layers: usize) -> Result<(usize, usize), InterchangeError> {
    let step = fields.count_or(STEP, 1)?;
    if step == 0 {
        return Err(fields.refused(STEP, "must be positive; use 1"));
    }
    let listed = fields.map.get(DENSE).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut dense: Vec<u64> = listed.iter().filter_map(Value::as_u64).collect();
    dense.sort_unstable();
    let are_first = dense.iter().zip(0..).all(|(layer, place)| *layer == place) && dense.len() == listed.len();
    match (dense.len(), step) {
        (0, step) => Ok((step - 1, step)),
        (first, 1) if are_first && first < num_layers => Ok((first, 1)),
        (_, _) => Err(fields.refused(DENSE, format!("must list the first layers, with {STEP} = 1; use []"))),
    }
}

/// The keys that [`read`] reads; nothing for a class without experts.
pub(super) fn write(class: Option<&Class>, model: &ModelSpec) -> Map<String, Value> {
    let (Some(class), Some(experts)) = (class, &model.experts) else { return Map::new() };
    let mut map = object([(class.number.0, experts.number.into()), (PER_TOKEN, experts.per_token.into())]);
    match class.hidden {
        Some((key, _)) => map.insert(key.into(), experts.hidden.into()),
        None => map.insert("intermediate_size".into(), experts.hidden.into()),
    };
    if let (Some((key, _)), Some(shared)) = (class.shared, experts.shared) {
        map.insert(key.into(), shared.hidden.into());
    }
    if let Weights::OfFile = class.weights {
        map.insert(NORMALISED.into(), (experts.routing.weights == RouterWeights::Normalised).into());
    }
    if let Layers::OfFile = class.layers {
        let (first, interval) = (experts.first_layer, experts.layer_interval);
        map.insert(STEP.into(), interval.into());
        let dense: Vec<usize> = if interval == 1 { (0..first).collect() } else { vec![] };
        map.insert(DENSE.into(), dense.into());
    }
    map
}
