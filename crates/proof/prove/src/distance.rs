//! How far apart two runs are.

use std::collections::BTreeMap;

use train::LossScalingReport;

/// Whole tensors by name.
pub type Tensors = BTreeMap<String, Vec<f32>>;

/// The values of a run that are compared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Mean loss of each step.
    pub losses: Vec<f64>,
    /// Global gradient norm of each step.
    pub norms: Vec<f64>,
    /// Valid tokens of each step.
    pub valid_tokens: Vec<u64>,
    /// How the loss of each step was scaled; nothing in steps where it was not.
    pub scaling: Vec<Option<LossScalingReport>>,
    /// Gradients of the first step that updates weights, of the mean loss, before clipping.
    pub gradients: Tensors,
    /// Weights after the last step.
    pub weights: Tensors,
}

impl Outcome {
    /// The outcome of this part of a run and the `later` one together: losses and norms of all steps, the first
    /// gradients that there are, the last weights.
    pub fn followed_by(mut self, later: Outcome) -> Outcome {
        self.losses.extend(later.losses);
        self.norms.extend(later.norms);
        self.valid_tokens.extend(later.valid_tokens);
        self.scaling.extend(later.scaling);
        let gradients = if self.gradients.is_empty() { later.gradients } else { self.gradients };
        Outcome { gradients, weights: later.weights, ..self }
    }
}

/// Largest distances between two runs, each with where it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Distance {
    /// Whether losses, norms, gradients and weights are the same bits.
    pub same_bits: bool,
    /// Largest relative difference of a step's loss.
    pub loss: f64,
    /// Largest relative difference of a step's global norm.
    pub norm: f64,
    /// Largest relative Frobenius distance of a gradient tensor, and its name.
    pub gradient: (f64, String),
    /// Largest relative Frobenius distance of a weight tensor, and its name.
    pub weight: (f64, String),
}

/// Distances below this share of the whole are measured against the share: a tensor whose own norm is tiny
/// has rounding errors of the size of its neighbours'.
const SMALL_SHARE: f64 = 1e-3;

impl Distance {
    /// The distance of `other` from `oracle`. `left_out` names tensors whose exact gradient is zero (key biases without
    /// rotary positions): their values are rounding errors, so they take part in `same_bits` only.
    pub fn between(oracle: &Outcome, other: &Outcome, left_out: impl Fn(&str) -> bool) -> Distance {
        Distance {
            same_bits: same_bits(oracle, other),
            loss: largest_relative(&oracle.losses, &other.losses),
            norm: largest_relative(&oracle.norms, &other.norms),
            gradient: largest_frobenius(&oracle.gradients, &other.gradients, &left_out),
            weight: largest_frobenius(&oracle.weights, &other.weights, &left_out),
        }
    }
}

fn same_bits(a: &Outcome, b: &Outcome) -> bool {
    let doubles = |x: &[f64], y: &[f64]| x.len() == y.len() && x.iter().zip(y).all(|(p, q)| p.to_bits() == q.to_bits());
    let tensors = |x: &Tensors, y: &Tensors| {
        x.len() == y.len()
            && x.iter().zip(y).all(|((name, p), (other, q))| {
                name == other && p.len() == q.len() && p.iter().zip(q).all(|(s, t)| s.to_bits() == t.to_bits())
            })
    };
    a.scaling == b.scaling
        && doubles(&a.losses, &b.losses)
        && doubles(&a.norms, &b.norms)
        && tensors(&a.gradients, &b.gradients)
        && tensors(&a.weights, &b.weights)
}

/// NaN and missing steps count as infinitely far.
fn largest_relative(oracle: &[f64], other: &[f64]) -> f64 {
    if oracle.len() != other.len() {
        return f64::INFINITY;
    }
    oracle.iter().zip(other).map(|(a, b)| relative(*a, *b)).fold(0.0, f64::max)
}

/// Difference of two numbers, relative to the first one: none between the same bits, as of the norms of a skipped step,
/// and infinite where one of them is NaN.
pub(crate) fn relative(a: f64, b: f64) -> f64 {
    if a.to_bits() == b.to_bits() { 0.0 } else { finite_or_infinity((a - b).abs() / a.abs()) }
}

fn finite_or_infinity(x: f64) -> f64 {
    if x.is_nan() { f64::INFINITY } else { x }
}

fn largest_frobenius(oracle: &Tensors, other: &Tensors, left_out: &impl Fn(&str) -> bool) -> (f64, String) {
    let whole = oracle.values().map(|values| square_sum(values.iter().copied().map(f64::from))).sum::<f64>().sqrt();
    let mut largest = (0.0, String::from("none"));
    for (name, values) in oracle.iter().filter(|(name, _)| !left_out(name)) {
        let distance = match other.get(name) {
            Some(theirs) if theirs.len() == values.len() => {
                let difference =
                    square_sum(values.iter().zip(theirs).map(|(a, b)| f64::from(*a) - f64::from(*b))).sqrt();
                let own = square_sum(values.iter().copied().map(f64::from)).sqrt();
                finite_or_infinity(difference / own.max(SMALL_SHARE * whole))
            }
            _ => f64::INFINITY,
        };
        if distance > largest.0 {
            largest = (distance, name.clone());
        }
    }
    largest
}

/// Euclidean norm.
pub(crate) fn norm(values: &[f32]) -> f64 {
    square_sum(values.iter().copied().map(f64::from)).sqrt()
}

fn square_sum(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(loss: f64, gradient: &[f32]) -> Outcome {
        Outcome {
            losses: vec![loss],
            norms: vec![1.0],
            valid_tokens: vec![1],
            scaling: vec![],
            gradients: BTreeMap::from([("w".to_string(), gradient.to_vec())]),
            weights: BTreeMap::new(),
        }
    }

    #[test]
    fn equal_runs_have_distance_zero() {
        let distance = Distance::between(&outcome(2.0, &[3.0, 4.0]), &outcome(2.0, &[3.0, 4.0]), |_| false);
        assert!(distance.same_bits && distance.loss == 0.0 && distance.gradient.0 == 0.0);
    }

    #[test]
    fn distances_are_relative_to_the_oracle() {
        let distance = Distance::between(&outcome(2.0, &[3.0, 4.0]), &outcome(2.5, &[3.0, 4.5]), |_| false);
        assert!(!distance.same_bits);
        assert_eq!(distance.loss, 0.25);
        assert_eq!(distance.gradient, (0.1, "w".into()));
    }

    #[test]
    fn a_nan_or_a_missing_tensor_is_infinitely_far() {
        let nan = Distance::between(&outcome(2.0, &[3.0]), &outcome(f64::NAN, &[3.0]), |_| false);
        assert_eq!(nan.loss, f64::INFINITY);
        let missing = Distance::between(&outcome(2.0, &[3.0]), &outcome(2.0, &[]), |_| false);
        assert_eq!(missing.gradient.0, f64::INFINITY);
    }
}
