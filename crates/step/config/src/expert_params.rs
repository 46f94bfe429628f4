//! Parameters of layers with experts.

use crate::experts::{ExpertsSpec, SharedGate};
use crate::model::ModelSpec;
use crate::params::{AppliedTo, Bias, Direction, Gain, Init, Map, ParamSpec, Sharding, feed_forward, std_of_map};
use crate::unit::Unit;

/// The router of a layer with experts, `{prefix}.router`, with a bias where feed-forward blocks have biases, and its
/// shared expert, `{prefix}.shared`. A rank makes the gradients of the rows of its own experts, and the first rank that
/// of the gate, so that sums over ranks have each once.
pub fn around_experts(model: &ModelSpec, experts: &ExpertsSpec, unit: Unit, prefix: &str) -> Vec<ParamSpec> {
    let rows = |part: &str, rows: usize| ParamSpec {
        name: format!("{prefix}.{part}.weight"),
        shape: vec![rows, model.hidden],
        sharding: Sharding::Replicated,
        unit,
        applied_to: AppliedTo::Hidden,
        init: Init::Normal { std: std_of_map(model, [rows, model.hidden], SMALL_COLUMN) },
        decay: true,
    };
    let mut list = vec![rows("router", experts.number)];
    list.extend(model.biases.are_in_feed_forward().then(|| ParamSpec {
        name: format!("{prefix}.router.bias"),
        shape: vec![experts.number],
        sharding: Sharding::Replicated,
        unit,
        applied_to: AppliedTo::Hidden,
        init: Init::Zeros,
        decay: false,
    }));
    if let Some(shared) = experts.shared {
        list.extend(feed_forward(model, unit, &format!("{prefix}.shared"), shared.hidden));
        list.extend((shared.gate == SharedGate::Learned).then(|| rows("shared_gate", 1)));
    }
    list
}

/// The experts of `layer`, whole ones on each rank. The last two dims are one matrix of one expert: of gated
/// activations, gate and up of an expert are one after the other. Biases are vectors, expert after expert, of all
/// experts of a tensor-parallel rank: they are small, and the norm has blocks of the same elements for every ep.
pub fn stacks(model: &ModelSpec, experts: &ExpertsSpec, layer: u32) -> Vec<ParamSpec> {
    let (number, hidden, ffn) = (experts.number, model.hidden, experts.hidden);
    let stack = |name: &str, shape: Vec<usize>, map: Map| ParamSpec {
        name: format!("layers.{layer}.experts.{name}.weight"),
        sharding: Sharding::EXPERTS,
        unit: Unit::Experts(layer),
        applied_to: AppliedTo::Hidden,
        init: Init::Normal { std: std_of_map(model, [shape[shape.len() - 2], shape[shape.len() - 1]], map) },
        decay: true,
        shape,
    };
    let matrices = model.activation.inputs_per_output();
    let (first, first_shape) = match matrices {
        1 => ("up", vec![number, ffn, hidden]),
        matrices => ("gate_up", vec![number, matrices, ffn, hidden]),
    };
    let down = stack("down", vec![number, hidden, ffn], Map { direction: Direction::Row, ..SMALL_COLUMN });
    let biases = [(first, matrices * ffn), ("down", hidden)].map(|(name, width)| ParamSpec {
        name: format!("layers.{layer}.experts.{name}.bias"),
        shape: vec![number * width],
        sharding: Sharding::COLUMNS,
        unit: Unit::Experts(layer),
        applied_to: AppliedTo::Hidden,
        init: Init::Zeros,
        decay: false,
    });
    let biases = biases.into_iter().filter(|_| model.biases.are_in_feed_forward());
    [stack(first, first_shape, SMALL_COLUMN), down].into_iter().chain(biases).collect()
}

/// A map from the stream into experts, whose bias is a parameter of all experts.
const SMALL_COLUMN: Map =
    Map { direction: Direction::Column, inside: AppliedTo::Hidden, bias: Bias::Off, gain: Gain::Small };
