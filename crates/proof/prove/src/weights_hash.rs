//! A number that stands for the bits of all weights, the same under every layout.

use config::{ModelSpec, Unit, params};
use xxhash_rust::xxh3::Xxh3Default;

use crate::distance::Tensors;

/// XXH3 (64 bits) of the names and the little-endian single-precision numbers of `weights`, tensor by tensor in the
/// order in which `model` declares its parameters. Tensors that `weights` does not have are left out.
pub fn weights_hash(model: &ModelSpec, weights: &Tensors) -> u64 {
    let mut hash = Xxh3Default::new();
    let units = Unit::holding(model.num_layers);
    for param in units.flat_map(|unit| params(model, unit)) {
        let Some(values) = weights.get(&param.name) else { continue };
        hash.update(param.name.as_bytes());
        values.iter().for_each(|value| hash.update(&value.to_le_bytes()));
    }
    hash.digest()
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::models::{Style, proof_model};

    #[test]
    fn a_bit_or_a_name_makes_another_hash() {
        let model = proof_model(Style::Gpt2, 12, true);
        let hash = |name: &str, value: f32| weights_hash(&model, &Tensors::from([(name.to_string(), vec![value])]));
        let [first, second] = ["layers.0.ffn.up.bias", "layers.1.ffn.up.bias"];
        assert_eq!(hash(first, 0.0), hash(first, 0.0));
        assert_ne!(hash(first, 0.0), hash(first, -0.0));
        assert_ne!(hash(first, 0.0), hash(second, 0.0));
    }
}
