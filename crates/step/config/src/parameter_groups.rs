//! Parameters that are updated with a learning rate or a decay of their own.

use crate::optimizer::UpdateMethod;
use crate::params::ParamSpec;
use crate::training::TrainSpec;

/// Parameters by their names, and what is special about their updates.
#[derive(Clone, Debug, PartialEq)]
pub struct ParameterGroup {
    /// Names of parameters; `*` stands for any characters, and for none.
    pub parameters: Vec<String>,
    /// Factor of every step's learning rate; 0 keeps the parameters as they are.
    pub learning_rate_scale: f32,
    /// Decoupled weight decay; `None` leaves it as it is outside groups.
    pub weight_decay: Option<f32>,
}

impl ParameterGroup {
    /// Whether the parameter called `name` belongs to the group.
    pub fn contains(&self, name: &str) -> bool {
        self.parameters.iter().any(|pattern| is_named(pattern, name))
    }
}

/// How a parameter is updated, besides what all parameters have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UpdateRule {
    /// Factor of every step's learning rate.
    pub learning_rate_scale: f32,
    /// Decoupled weight decay.
    pub weight_decay: f32,
    /// The method of the optimizer.
    pub method: UpdateMethod,
}

impl TrainSpec {
    /// The rule for `param`: that of its group, or else that of all.
    pub fn update_rule(&self, param: &ParamSpec) -> UpdateRule {
        let method = self.optimizer.method(param);
        let usual = if param.decay { self.weight_decay } else { 0.0 };
        match self.groups.iter().find(|group| group.contains(&param.name)) {
            Some(group) => UpdateRule {
                learning_rate_scale: group.learning_rate_scale,
                weight_decay: group.weight_decay.unwrap_or(usual),
                method,
            },
            None => UpdateRule { learning_rate_scale: 1.0, weight_decay: usual, method },
        }
    }
}

/// Whether `pattern` means `name`. Texts between two `*` are searched from left to right, so the time for each is at
/// most linear in the length of the name.
pub(crate) fn is_named(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_any_run_of_characters() {
        for (pattern, name, expected) in [
            ("head.norm.weight", "head.norm.weight", true),
            ("head.norm", "head.norm.weight", false),
            ("*", "head.norm.weight", true),
            ("*.bias", "layers.3.ffn.up.bias", true),
            ("*.bias", "layers.3.ffn.up.weight", false),
            ("layers.1.*", "layers.11.ffn.up.bias", false),
            ("layers.*.ffn.*.weight", "layers.11.ffn.up.weight", true),
            ("layers.*.ffn.*.weight", "layers.11.attention.key.weight", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("a*b*b", "ab", false),
            ("", "a", false),
        ] {
            assert_eq!(is_named(pattern, name), expected, "{pattern} {name}");
        }
    }
}
