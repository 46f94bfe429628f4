//! Distances of two runs that have bounds, each relative to the size that its rounding errors scale with.

use std::collections::BTreeMap;

use config::{ModelSpec, QkNorm};

use crate::distance::{Outcome, Tensors, norm, relative};
use crate::initial::{Initial, standard_deviations};
use crate::parameter_kind::ParameterKind;
use crate::verdict::is_noise;

/// The measured distances of two runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Of each kind that the model has, the tensor of the first gradient that is farthest, and its distance.
    pub gradients: BTreeMap<ParameterKind, (f64, String)>,
    /// The distances of the losses, by step.
    pub losses: Vec<StepDistance>,
    /// Root mean square difference of a last weight.
    pub weight: f64,
}

/// The losses of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepDistance {
    /// Their relative difference.
    pub distance: f64,
    /// The smaller one of the two norms of the step's gradient.
    pub norm: f64,
    /// The loss that the difference is relative to.
    pub loss: f64,
}

/// Below this share of the norm of the whole gradient a tensor's errors are those of its neighbours.
const SMALL_SHARE: f64 = 1e-3;
/// The same for biases and norms of queries and keys, whose exact gradients may be zero.
const CANCELLED_SHARE: f64 = 1e-4;
/// A sum over tokens of random sign, which a matrix next to a vector shows, may be twice the vector's own norm by
/// chance.
const WITHOUT_CANCELLING: f64 = 2.0;
/// Share of the gradient of queries and keys that the softmax's subtraction leaves where sequences have four tokens;
/// the rest of longer ones is larger.
const LEFT_BY_SOFTMAX: f64 = 0.5;
/// Share of it that is left of gradients that are rounding alone.
const NOISE_SHARE: f64 = 0.01;
/// The table of a top layer's queries, and the map that reads it.
const TOP_QUERIES: &str = "top_query.position.weight";
const TOP_QUERY_MAP: &str = "top_query.attention.query";

impl Measured {
    /// Between two outcomes of `model`. A tensor that one of them does not have, or has as NaN, is infinitely far.
    /// Weights whose first gradient is below the share `least_gradient` of its tensor's are left out.
    pub fn between(model: &ModelSpec, [first, second]: [&Outcome; 2], least_gradient: f64) -> Measured {
        Measured {
            gradients: gradients(model, &first.gradients, &second.gradients),
            losses: losses([first, second]),
            weight: weight(model, [first, second], least_gradient),
        }
    }
}

/// Relative difference of each step's loss, and its gradient's norm; infinitely far where a run has steps that the
/// other does not have. A step that was skipped has no norm: the largest of all steps stands for it.
fn losses([first, second]: [&Outcome; 2]) -> Vec<StepDistance> {
    let largest = first.norms.iter().copied().filter(|norm| norm.is_finite()).fold(0.0, f64::max);
    let of_run = |outcome: &Outcome, step: usize| {
        outcome.norms.get(step).copied().filter(|norm| norm.is_finite()).unwrap_or(largest)
    };
    let of_step = |step: usize| {
        let (distance, loss) = match (first.losses.get(step), second.losses.get(step)) {
            (Some(a), Some(b)) => (relative(*a, *b), *a),
            (None, _) | (_, None) => (f64::INFINITY, f64::NAN),
        };
        StepDistance { distance, norm: of_run(first, step).min(of_run(second, step)), loss }
    };
    (0..first.losses.len().max(second.losses.len())).map(of_step).collect()
}

/// Root mean square difference over all elements but those whose gradients are noise, or nearly 0: AdamW makes steps of
/// them.
fn weight(model: &ModelSpec, [first, second]: [&Outcome; 2], least_gradient: f64) -> f64 {
    let scales = Scales::of_gradients(model, &first.gradients);
    let (mut squares, mut elements) = (0.0, 0usize);
    for (name, values) in &first.weights {
        let others = second.weights.get(name).filter(|others| others.len() == values.len());
        let Some(others) = others else { return f64::INFINITY };
        let learned = if is_noise(model, name) || scales.is_noise(name) {
            values.len()..values.len()
        } else if name == TOP_QUERIES {
            // The query of the first place sees one key, whose probability is 1 whatever the query is.
            model.hidden.min(values.len())..values.len()
        } else {
            0..values.len()
        };
        let gradients = first.gradients.get(name).filter(|gradients| gradients.len() == values.len());
        let least = least_gradient * scales.of(name) / (values.len().max(1) as f64).sqrt();
        let is_small = |index: usize| gradients.is_some_and(|gradients| f64::from(gradients[index]).abs() < least);
        for index in learned.filter(|index| !is_small(*index)) {
            elements += 1;
            squares += (f64::from(values[index]) - f64::from(others[index])).powi(2);
        }
    }
    if first.weights.len() != second.weights.len() || squares.is_nan() {
        return f64::INFINITY;
    }
    (squares / elements.max(1) as f64).sqrt()
}

fn gradients(model: &ModelSpec, first: &Tensors, second: &Tensors) -> BTreeMap<ParameterKind, (f64, String)> {
    let scales = Scales::of_gradients(model, first);
    let mut farthest: BTreeMap<ParameterKind, (f64, String)> = BTreeMap::new();
    for (name, values) in first {
        let distance = match difference(values, second.get(name)) {
            Some(0.0) => 0.0,
            Some(difference) => difference / scales.of(name),
            None => f64::INFINITY,
        };
        let distance = if distance.is_nan() { f64::INFINITY } else { distance };
        let of_kind = farthest.entry(ParameterKind::of(name)).or_insert_with(|| (0.0, name.clone()));
        if distance > of_kind.0 {
            *of_kind = (distance, name.clone());
        }
    }
    for name in second.keys().filter(|name| !first.contains_key(*name)) {
        farthest.insert(ParameterKind::of(name), (f64::INFINITY, name.clone()));
    }
    farthest
}

fn difference(values: &[f32], others: Option<&Vec<f32>>) -> Option<f64> {
    let others = others.filter(|others| others.len() == values.len())?;
    Some(squared_distance(values, others).sqrt())
}

fn squared_distance(values: &[f32], others: &[f32]) -> f64 {
    values.iter().zip(others).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum()
}

fn whole(sizes: &BTreeMap<&str, (f64, usize)>) -> f64 {
    sizes.values().map(|(norm, _)| norm * norm).sum::<f64>().sqrt()
}

/// Sizes that distances are relative to.
struct Scales<'a> {
    model: &'a ModelSpec,
    stds: BTreeMap<String, f64>,
    /// Norm and elements of each tensor.
    sizes: BTreeMap<&'a str, (f64, usize)>,
    /// Root mean squares of what each layer's attention reads.
    reads: Vec<f64>,
    /// Norm of the whole gradient.
    whole: f64,
}

impl<'a> Scales<'a> {
    fn of_gradients(model: &'a ModelSpec, gradients: &'a Tensors) -> Scales<'a> {
        let size = |(name, values): (&'a String, &'a Vec<f32>)| (name.as_str(), (norm(values), values.len()));
        let sizes = gradients.iter().map(size).collect();
        let reads = Initial::of(model, 1).layers.iter().map(|layer| layer.read[0].sqrt()).collect();
        Scales { model, stds: standard_deviations(model), whole: whole(&sizes), sizes, reads }
    }

    /// Whether the gradients of `name`, of queries or keys, are rounding: their map's would be a hundred times as large
    /// without the softmax's subtraction.
    fn is_noise(&self, name: &str) -> bool {
        let place = if name == TOP_QUERIES { Some(("top_query", "query")) } else { name.rsplit_once(".attention.") };
        let Some((layer, part)) = place else { return false };
        let [own, other] = match (part.starts_with("query"), part.starts_with("key")) {
            (true, _) => ["query", "key"],
            (_, true) => ["key", "query"],
            (false, false) => return false,
        };
        let size = self.norm(&format!("{layer}.attention.{own}.weight"));
        size < NOISE_SHARE * self.before_softmax(layer, [own, other])
    }

    /// The scale of `name`: its own norm, or what a sum over tokens or keys would be that does not cancel.
    fn of(&self, name: &str) -> f64 {
        let own = self.size(name);
        let kind = ParameterKind::of(name);
        let least = match kind {
            ParameterKind::QueryKeyVector => CANCELLED_SHARE * self.whole,
            ParameterKind::Table
            | ParameterKind::Output
            | ParameterKind::Matrix
            | ParameterKind::QueryKey
            | ParameterKind::Vector => SMALL_SHARE * self.whole,
        };
        own.max(least).max(WITHOUT_CANCELLING * self.without_cancelling(name))
    }

    /// The size of a vector's gradient as a sum of terms of random sign, from the gradient of the matrix next to it.
    fn without_cancelling(&self, name: &str) -> f64 {
        if let Some(map) = name.strip_suffix(".bias").filter(|map| !map.ends_with("norm")) {
            // The matrix's gradient is the same sum with each term times an input.
            return self.size(&format!("{map}.weight")) / ((self.model.hidden as f64).sqrt() * self.input(map));
        }
        let Some((norm, _)) = name.rsplit_once('.').filter(|(norm, _)| norm.ends_with("norm")) else { return 0.0 };
        // A norm's gradient comes through the matrix that reads it, or continues into the matrix in front of it.
        let matrix = if let Some(map) = norm.strip_suffix("query_norm") {
            format!("{map}query.weight")
        } else if let Some(map) = norm.strip_suffix("key_norm") {
            format!("{map}key.weight")
        } else if let Some(layer) = norm.strip_suffix("attention_norm") {
            format!("{layer}attention.value.weight")
        } else if let Some(layer) = norm.strip_suffix("ffn_norm") {
            self.of_block(layer, ["ffn.up", "experts.gate_up", "experts.up"])
        } else if let Some(layer) = norm.strip_suffix("attention_output_norm") {
            format!("{layer}attention.output.weight")
        } else if let Some(layer) = norm.strip_suffix("ffn_output_norm") {
            self.of_block(layer, ["ffn.down", "experts.down", "experts.down"])
        } else {
            return 0.0;
        };
        self.size(&matrix) * self.std(&matrix)
    }

    /// The matrix of the layer that has one of these names: of a dense block, or of experts.
    fn of_block(&self, layer: &str, maps: [&str; 3]) -> String {
        let names = maps.map(|map| format!("{layer}{map}.weight"));
        let found = names.iter().find(|name| self.size(name) > 0.0);
        found.unwrap_or(&names[0]).clone()
    }

    /// The norm of a tensor, of queries and keys at least that which errors of their gradients are relative to.
    fn size(&self, name: &str) -> f64 {
        let of_map = name.strip_suffix(".weight").and_then(|map| map.rsplit_once(".attention."));
        let before_softmax = match of_map {
            Some((layer, "query")) => self.before_softmax(layer, ["query", "key"]),
            Some((layer, "key")) => self.before_softmax(layer, ["key", "query"]),
            Some(_) => 0.0,
            // The gradient of queries continues into their table.
            None if name == TOP_QUERIES => {
                let matrix = format!("{TOP_QUERY_MAP}.weight");
                self.before_softmax("top_query", ["query", "key"]) * self.std(&matrix) / self.input(TOP_QUERY_MAP)
            }
            None => 0.0,
        };
        self.norm(name).max(LEFT_BY_SOFTMAX * before_softmax)
    }

    /// The size of the gradient of `own`, queries or keys that meet `other`, without the mean that the softmax
    /// subtracts.
    ///
    /// An output's gradient g reaches a value as p g, and a score as p (g v - mean) / sqrt(d), which is multiplied by a
    /// vector of `other`, of d numbers. So without the mean the gradient is that of values times the root mean square
    /// of a value and of a number of `other`; a norm of heads makes the latter 1 and divides by the root mean square of
    /// `own`.
    fn before_softmax(&self, layer: &str, [own, other]: [&str; 2]) -> f64 {
        let input = |map: &str| self.input(&format!("{layer}.attention.{map}"));
        let std = |map: &str| self.std(&format!("{layer}.attention.{map}.weight"));
        let of = |map: &str| std(map) * (self.model.hidden as f64).sqrt() * input(map);
        let factor = match (self.model.qk_norm, of(own)) {
            (QkNorm::Off, _) => of(other),
            (QkNorm::Heads | QkNorm::Whole, 0.0) => 0.0,
            (QkNorm::Heads | QkNorm::Whole, own) => 1.0 / own,
        };
        self.norm(&format!("{layer}.attention.value.weight")) * of("value") * factor * input(own)
    }

    /// Root mean square of the inputs of `map`: normed ones have 1, those of a top layer's queries are a table, and
    /// blocks without a norm before them read the stream.
    fn input(&self, map: &str) -> f64 {
        let table = self.stds.get(TOP_QUERIES).filter(|_| map == TOP_QUERY_MAP);
        let layer = map.strip_prefix("layers.").and_then(|rest| rest.split_once('.')?.0.parse::<usize>().ok());
        let read = layer.and_then(|layer| self.reads.get(layer));
        table.or(read).copied().unwrap_or(1.0)
    }

    fn std(&self, matrix: &str) -> f64 {
        self.stds.get(matrix).copied().unwrap_or(0.0)
    }

    fn norm(&self, name: &str) -> f64 {
        self.sizes.get(name).map_or(0.0, |(norm, _)| *norm)
    }
}

#[cfg(test)]
mod tests {
    use testkit::models::{Style, proof_model};

    use super::*;

    fn outcome(gradients: &[(&str, &[f32])]) -> Outcome {
        let gradients = gradients.iter().map(|(name, values)| ((*name).to_string(), values.to_vec())).collect();
        Outcome { gradients, ..Outcome::default() }
    }

    fn distance(kind: ParameterKind, first: &[(&str, &[f32])], second: &[(&str, &[f32])]) -> f64 {
        let model = proof_model(Style::Gpt2, 12, true);
        let (first, second) = (outcome(first), outcome(second));
        Measured::between(&model, [&first, &second], 0.0).gradients[&kind].0
    }

    const WEIGHT: &str = "layers.0.attention.key.weight";
    const BIAS: &str = "layers.0.attention.key.bias";

    #[test]
    fn a_bias_that_cancels_is_measured_by_what_cancels() {
        let (first, second) = ([0.0f32, 1e-6], [1e-6f32, 0.0]);
        let matrix: &[f32] = &[3.0, 4.0];
        let own = distance(ParameterKind::QueryKeyVector, &[(BIAS, &first)], &[(BIAS, &second)]);
        assert!(own > 1.0, "alone it is all error: {own}");
        let with_matrix = distance(
            ParameterKind::QueryKeyVector,
            &[(BIAS, &first), (WEIGHT, matrix)],
            &[(BIAS, &second), (WEIGHT, matrix)],
        );
        let expected = 2f64.sqrt() * 1e-6 / (2.0 * 5.0 / 48f64.sqrt());
        assert!((with_matrix / expected - 1.0).abs() < 1e-3, "{with_matrix} {expected}");
    }

    /// Where each query sees one key, the exact gradient of queries and keys is 0, and the computed one rounding.
    #[test]
    fn keys_that_the_softmax_cancels_are_measured_by_what_it_subtracts() {
        let proof = proof_model(Style::Gpt2, 12, true);
        let values: (&str, &[f32]) = ("layers.0.attention.value.weight", &[3.0, 4.0]);
        let outcomes = [[0.0f32, 1e-6], [1e-6f32, 0.0]].map(|keys| outcome(&[(WEIGHT, &keys), (BIAS, &keys), values]));
        let distance =
            |model: &ModelSpec, kind| Measured::between(model, [&outcomes[0], &outcomes[1]], 0.0).gradients[&kind].0;
        // Values have a standard deviation of 0.04 sqrt(48), and so have numbers of queries.
        let expected = 2f64.sqrt() * 1e-6 / (0.5 * 5.0 * 0.04 * 0.04 * 48.0);
        let found = distance(&proof, ParameterKind::QueryKey);
        assert!((found / expected - 1.0).abs() < 1e-3, "{found} {expected}");
        let of_bias = distance(&proof, ParameterKind::QueryKeyVector);
        assert!((of_bias / (expected * 48f64.sqrt() / 2.0) - 1.0).abs() < 1e-3, "{of_bias}");
        // With norms of heads a query's numbers have a size of 1, and gradients are divided by the length of a key.
        let found = distance(&ModelSpec { qk_norm: config::QkNorm::Heads, ..proof }, ParameterKind::QueryKey);
        assert!((found / (2f64.sqrt() * 1e-6 / (0.5 * 5.0)) - 1.0).abs() < 1e-3, "{found}");
    }

    /// AdamW makes steps of gradients that are rounding: of queries and keys that the softmax cancels, and of a top
    /// query that sees one key.
    #[test]
    fn weights_whose_gradients_are_rounding_are_left_out() {
        let model = ModelSpec { hidden: 2, ..proof_model(Style::Gpt2, 12, true) };
        let distance = |key: f32, weights: [(&str, [f32; 4]); 2]| {
            let gradients: [(&str, &[f32]); 2] = [("layers.0.attention.value.weight", &[1.0]), (WEIGHT, &[key])];
            let outcomes = [1.0, 2.0].map(|factor| {
                let weights = weights.map(|(name, values)| (name.into(), values.map(|value| factor * value).to_vec()));
                Outcome { weights: weights.into(), ..outcome(&gradients) }
            });
            Measured::between(&model, [&outcomes[0], &outcomes[1]], 0.0).weight
        };
        let (up, key) = (("layers.0.ffn.up.weight", [0.0; 4]), (WEIGHT, [1.0; 4]));
        // Without the subtraction the gradient of keys would be 0.04 x 0.04 x 2.
        assert_eq!([1e-4, 1e-5].map(|size| distance(size, [up, key])), [0.5f64.sqrt(), 0.0]);
        let top = (TOP_QUERIES, [1.0, 1.0, 0.0, 0.0]);
        assert_eq!(distance(1.0, [up, top]), 0.0, "the first place's query");
        assert!(distance(1.0, [up, (TOP_QUERIES, [0.0, 1.0, 1.0, 0.0])]) > 0.4);
    }

    /// AdamW's first step of a gradient that is nearly 0 may have either sign.
    #[test]
    fn weights_whose_first_gradient_is_nearly_zero_are_left_out() {
        let model = proof_model(Style::Gpt2, 12, true);
        let up = "layers.0.ffn.up.weight";
        let distance = |gradient: f32, least| {
            let outcomes = [1.0, 2.0].map(|moved| Outcome {
                weights: [(up.to_string(), vec![1.0, moved])].into(),
                ..outcome(&[(up, &[1.0, gradient])])
            });
            Measured::between(&model, [&outcomes[0], &outcomes[1]], least).weight
        };
        assert_eq!([0.0, 1e-3].map(|least| distance(1e-4, least)), [0.5f64.sqrt(), 0.0]);
        assert_eq!([1e-3, f32::NAN].map(|gradient| distance(gradient, 1e-3)), [0.5f64.sqrt(); 2]);
    }

    #[test]
    fn what_is_missing_or_not_a_number_is_infinitely_far() {
        let values: &[f32] = &[1.0];
        for other in [&[][..], &[(WEIGHT, &[f32::NAN][..])], &[(WEIGHT, &[1.0, 2.0][..])]] {
            assert_eq!(distance(ParameterKind::QueryKey, &[(WEIGHT, values)], other), f64::INFINITY, "{other:?}");
            let model = proof_model(Style::Gpt2, 12, true);
            let of_weights = |pairs| Outcome { weights: outcome(pairs).gradients, ..Outcome::default() };
            let measured = Measured::between(&model, [&of_weights(&[(WEIGHT, values)]), &of_weights(other)], 0.0);
            assert_eq!(measured.weight, f64::INFINITY, "{other:?}");
        }
        assert_eq!(distance(ParameterKind::QueryKey, &[], &[(WEIGHT, values)]), f64::INFINITY);
        assert_eq!(distance(ParameterKind::QueryKey, &[(WEIGHT, &[0.0])], &[(WEIGHT, &[0.0])]), 0.0);
    }
}
