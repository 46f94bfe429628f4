//! Kinds of parameters, whose gradients have bounds of their own.

use std::fmt;

/// The kind of a parameter, as far as rounding errors of its gradient are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ParameterKind {
    /// Token and position embeddings: the last gradients of the backward pass.
    Table,
    /// The output matrix: the first gradient of the backward pass.
    Output,
    /// Matrices of values, of the attention output and of the feed-forward block.
    Matrix,
    /// Matrices of queries and keys, the queries of a top layer, and routers of experts: their gradients come through a
    /// softmax, whose backward pass subtracts.
    QueryKey,
    /// Weights and biases of norms, and biases of [`ParameterKind::Matrix`]: sums over tokens that partly cancel.
    Vector,
    /// Biases of queries, keys and routers, and the weights of norms of heads. Those of keys that are not rotated
    /// cancel altogether.
    QueryKeyVector,
}

impl ParameterKind {
    /// Each of them.
    pub const ALL: [ParameterKind; 6] = [
        ParameterKind::Table,
        ParameterKind::Output,
        ParameterKind::Matrix,
        ParameterKind::QueryKey,
        ParameterKind::Vector,
        ParameterKind::QueryKeyVector,
    ];

    /// The kind of the parameter `name` (`config::params`).
    pub fn of(name: &str) -> ParameterKind {
        let (map, part) = name.rsplit_once('.').unwrap_or((name, ""));
        let map = map.rsplit('.').next().unwrap_or_default();
        match (map, part) {
            ("token", _) => ParameterKind::Table,
            // `head.output`, and `layers.0.attention.output`.
            ("output", "weight") if !name.contains("attention") => ParameterKind::Output,
            ("position", _) if name.starts_with("top_query") => ParameterKind::QueryKey,
            ("position", _) => ParameterKind::Table,
            ("query" | "key", "weight" | "lora_a" | "lora_b") => ParameterKind::QueryKey,
            ("router", "bias") => ParameterKind::QueryKeyVector,
            ("router" | "shared_gate", _) => ParameterKind::QueryKey,
            ("query" | "key" | "query_norm" | "key_norm", _) => ParameterKind::QueryKeyVector,
            (norm, _) if norm.ends_with("norm") => ParameterKind::Vector,
            (_, "bias") => ParameterKind::Vector,
            (_, _) => ParameterKind::Matrix,
        }
    }

    /// The factor by which the distance of one pair of runs in 100,000 exceeds the root mean square distance that the
    /// count of roundings gives, the largest over the tensors of the kind in a model (`docs/numerics.md`,
    /// "Probability").
    pub(crate) fn probability_factor(self) -> f64 {
        match self {
            ParameterKind::Table | ParameterKind::Output | ParameterKind::Matrix | ParameterKind::QueryKey => 1.6,
            ParameterKind::Vector => 1.9,
            // They are compared with at least twice a sum of random terms.
            ParameterKind::QueryKeyVector => 1.1,
        }
    }
}

impl fmt::Display for ParameterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ParameterKind::Table => "embeddings",
            ParameterKind::Output => "output matrix",
            ParameterKind::Matrix => "matrices",
            ParameterKind::QueryKey => "queries and keys",
            ParameterKind::Vector => "norms and biases",
            ParameterKind::QueryKeyVector => "biases and norms of queries and keys",
        })
    }
}

#[cfg(test)]
mod tests {
    use config::{Biases, ModelSpec, TopQuery, all_params};
    use testkit::models::{Style, proof_model};

    use super::*;

    #[test]
    fn every_parameter_has_its_kind() {
        let model = ModelSpec {
            num_layers: 1,
            biases: Biases::All,
            qk_norm: config::QkNorm::Heads,
            embedding_norm: true,
            top_query: TopQuery::On,
            ..proof_model(Style::Gpt2, 12, false)
        };
        let of_kind = |kind: ParameterKind| -> Vec<String> {
            let names = all_params(&model).map(|param| param.name).filter(|name| !name.contains("top_query.a"));
            names.filter(|name| ParameterKind::of(name) == kind && !name.contains("top_query.f")).collect()
        };
        assert_eq!(of_kind(ParameterKind::Table), ["embedding.token.weight", "embedding.position.weight"]);
        assert_eq!(of_kind(ParameterKind::Output), ["head.output.weight"]);
        let layer = |names: &[&str]| names.iter().map(|name| format!("layers.0.{name}")).collect::<Vec<_>>();
        assert_eq!(
            of_kind(ParameterKind::Matrix),
            layer(&["attention.value.weight", "attention.output.weight", "ffn.up.weight", "ffn.down.weight"])
        );
        let queries = layer(&["attention.query.weight", "attention.key.weight"]);
        assert_eq!(of_kind(ParameterKind::QueryKey), [queries, vec!["top_query.position.weight".into()]].concat());
        assert_eq!(
            of_kind(ParameterKind::QueryKeyVector),
            layer(&[
                "attention.query.bias",
                "attention.key.bias",
                "attention.query_norm.weight",
                "attention.key_norm.weight"
            ])
        );
        let vectors = of_kind(ParameterKind::Vector);
        assert!(vectors.contains(&"head.norm.weight".into()) && vectors.contains(&"embedding.norm.bias".into()));
        assert!(vectors.contains(&"layers.0.attention.output.bias".into()), "{vectors:?}");
    }
}
