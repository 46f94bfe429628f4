//! Distances that have bounds, each relative to what rounding errors of it are relative to.

use std::collections::BTreeMap;

use config::ModelSpec;

use crate::distance::{Outcome, Tensors, norm, relative};
use crate::initial::standard_deviations;
use crate::parameter_kind::ParameterKind;
use crate::verdict::is_noise;

/// How far two runs are apart.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Of each kind that the model has, the tensor of the first gradient that is farthest, and its distance.
    pub gradients: BTreeMap<ParameterKind, (f64, String)>,
    /// Relative difference of each step's loss, and the smaller one of the two norms of its gradient.
    pub losses: Vec<(f64, f64)>,
    /// Root mean square difference of a last weight.
    pub weight: f64,
}

/// Below this share of the norm of the whole gradient a tensor's errors are those of its neighbours.
const SMALL_SHARE: f64 = 1e-3;
/// The same for biases and norms of queries and keys, whose exact gradients may be zero.
const CANCELLED_SHARE: f64 = 1e-4;
/// A sum over tokens of random sign, which a matrix next to a vector shows, may be twice the vector's own norm by chance.
const WITHOUT_CANCELLING: f64 = 2.0;

impl Measured {
    /// Between two outcomes of `model`. A tensor that one of them does not have, or has as NaN, is infinitely far.
    pub fn between(model: &ModelSpec, [first, second]: [&Outcome; 2]) -> Measured {
        Measured {
            gradients: gradients(model, &first.gradients, &second.gradients),
            losses: losses([first, second]),
            weight: weight(model, &first.weights, &second.weights),
        }
    }
}

/// Relative difference of each step's loss, and its gradient's norm; infinitely far where a run has steps that the other does
/// not have. A step that was skipped has no norm: the largest of all steps stands for it.
fn losses([first, second]: [&Outcome; 2]) -> Vec<(f64, f64)> {
    let largest = first.norms.iter().copied().filter(|norm| norm.is_finite()).fold(0.0, f64::max);
    let of_run = |outcome: &Outcome, step: usize| {
        outcome.norms.get(step).copied().filter(|norm| norm.is_finite()).unwrap_or(largest)
    };
    let of_step = |step: usize| {
        let distance = match (first.losses.get(step), second.losses.get(step)) {
            (Some(a), Some(b)) => relative(*a, *b),
            (None, _) | (_, None) => f64::INFINITY,
        };
        (distance, of_run(first, step).min(of_run(second, step)))
    };
    (0..first.losses.len().max(second.losses.len())).map(of_step).collect()
}

/// Root mean square difference over all elements but those that are noise.
fn weight(model: &ModelSpec, first: &Tensors, second: &Tensors) -> f64 {
    let (mut squares, mut elements) = (0.0, 0usize);
    for (name, values) in first.iter().filter(|(name, _)| !is_noise(model, name)) {
        let Some(difference) = difference(values, second.get(name)) else { return f64::INFINITY };
        squares += difference * difference;
        elements += values.len();
    }
    if first.len() != second.len() || squares.is_nan() {
        return f64::INFINITY;
    }
    (squares / elements.max(1) as f64).sqrt()
}

fn gradients(model: &ModelSpec, first: &Tensors, second: &Tensors) -> BTreeMap<ParameterKind, (f64, String)> {
    let sizes: BTreeMap<&str, (f64, usize)> =
        first.iter().map(|(name, values)| (name.as_str(), (norm(values), values.len()))).collect();
    let scales = Scales { model, stds: standard_deviations(model), whole: whole(&sizes), sizes };
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
    let squares = values.iter().zip(others).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2));
    Some(squares.sum::<f64>().sqrt())
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
    /// Norm of the whole gradient.
    whole: f64,
}

impl Scales<'_> {
    /// That of `name`: its own norm, or what a sum over tokens would be that does not cancel.
    fn of(&self, name: &str) -> f64 {
        let own = self.norm(name);
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
            // The matrix's gradient is the same sum with each term times an input of mean square 1.
            return self.norm(&format!("{map}.weight")) / (self.model.hidden as f64).sqrt();
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
            format!("{layer}ffn.up.weight")
        } else {
            return 0.0;
        };
        self.norm(&matrix) * self.stds.get(&matrix).copied().unwrap_or(0.0)
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
        Measured::between(&model, [&first, &second]).gradients[&kind].0
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

    #[test]
    fn what_is_missing_or_not_a_number_is_infinitely_far() {
        let values: &[f32] = &[1.0];
        for other in [&[][..], &[(WEIGHT, &[f32::NAN][..])], &[(WEIGHT, &[1.0, 2.0][..])]] {
            assert_eq!(distance(ParameterKind::QueryKey, &[(WEIGHT, values)], other), f64::INFINITY, "{other:?}");
            let model = proof_model(Style::Gpt2, 12, true);
            let of_weights = |pairs| Outcome { weights: outcome(pairs).gradients, ..Outcome::default() };
            let measured = Measured::between(&model, [&of_weights(&[(WEIGHT, values)]), &of_weights(other)]);
            assert_eq!(measured.weight, f64::INFINITY, "{other:?}");
        }
        assert_eq!(distance(ParameterKind::QueryKey, &[], &[(WEIGHT, values)]), f64::INFINITY);
        assert_eq!(distance(ParameterKind::QueryKey, &[(WEIGHT, &[0.0])], &[(WEIGHT, &[0.0])]), 0.0);
    }
}
