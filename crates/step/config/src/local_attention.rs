//! Layers whose queries see the nearest tokens only: sliding windows.

use crate::model::{ModelSpec, Position};
use crate::names::names;
use crate::rotary_scaling::RotaryScaling;
use crate::unit::Unit;

/// Which tokens before it a token of a layer sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reach {
    /// All that the text lets it see.
    Global,
    /// Of these, the nearest.
    Local,
}

names! { Reach: "global" = Global, "local" = Local; "a list such as [\"local\", \"global\"]" }

/// Layers with sliding windows (Beltagy et al. 2020, arXiv 2004.05150): Mistral, Qwen, Gemma.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalAttention {
    /// Tokens that a token of a local layer sees at most, itself among them.
    pub window: usize,
    /// The reach of the first layers; it repeats, with the shortest period that gives all layers theirs.
    pub pattern: Vec<Reach>,
    /// Base of the rotary angles of local layers, which are then not scaled; `None` gives them those of the others.
    pub rotary_base: Option<f32>,
}

/// The longest pattern.
pub const MAX_PATTERN: usize = 1024;

impl LocalAttention {
    /// The shortest pattern that gives `num_layers` layers the reach that `pattern` gives them.
    pub fn shortest(pattern: &[Reach], num_layers: usize) -> Vec<Reach> {
        let len = pattern.len();
        if len > MAX_PATTERN {
            return pattern.to_vec();
        }
        let reach = |layer: usize| pattern[layer % len];
        // A pattern that repeats with two periods over their sum repeats with their common divisor everywhere.
        let layers = num_layers.min(2 * len);
        let repeats = |period: &usize| (0..layers).all(|layer| reach(layer) == reach(layer % period));
        let period = (1..=len).find(repeats).unwrap_or(len);
        pattern[..period].to_vec()
    }

    fn reach(&self, layer: u32) -> Reach {
        self.pattern.get(layer as usize % self.pattern.len().max(1)).copied().unwrap_or(Reach::Global)
    }
}

impl ModelSpec {
    /// The reach of a unit; all but layers of the stack are global.
    pub fn reach_of(&self, unit: Unit) -> Reach {
        match (unit, &self.local_attention) {
            (Unit::Layer(layer), Some(local)) if (layer as usize) < self.num_layers => local.reach(layer),
            (Unit::Table | Unit::Embedding | Unit::Layer(_) | Unit::Head, _) => Reach::Global,
            (Unit::Adapters(_) | Unit::Experts(_), _) => Reach::Global,
        }
    }

    /// Tokens that a token of `unit` sees at most, itself among them; `None` where there is no limit.
    pub fn window_of(&self, unit: Unit) -> Option<usize> {
        match self.reach_of(unit) {
            Reach::Global => None,
            Reach::Local => self.local_attention.as_ref().map(|local| local.window),
        }
    }

    /// Base and scaling of the rotary angles of local layers, where these differ from those of other layers.
    pub fn local_rotary(&self) -> Option<(f32, RotaryScaling)> {
        match (&self.local_attention, self.position) {
            (Some(local), Position::Rotary { .. }) => local.rotary_base.map(|base| (base, RotaryScaling::Off)),
            (Some(_) | None, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Reach::{Global, Local};
    use super::*;
    use crate::RunConfig;

    #[test]
    fn patterns_are_as_short_as_can_be() {
        for (pattern, num_layers, shortest) in [
            (&[Local][..], 4, &[Local][..]),
            (&[Local, Local, Local], 4, &[Local]),
            (&[Local, Global, Local, Global], 4, &[Local, Global]),
            (&[Local, Global, Local], 3, &[Local, Global]),
            // The fourth layer is local again.
            (&[Local, Global, Local], 4, &[Local, Global, Local]),
            (&[Local, Local, Global], 2, &[Local]),
            (&[Global, Local, Local, Local], 4, &[Global, Local, Local, Local]),
            (&[Global, Global], 8, &[Global]),
        ] {
            assert_eq!(LocalAttention::shortest(pattern, num_layers), shortest, "{pattern:?} of {num_layers}");
        }
    }

    #[test]
    fn every_sixth_layer_is_global() {
        let local =
            LocalAttention { window: 16, pattern: vec![Local, Local, Local, Local, Local, Global], rotary_base: None };
        let model = ModelSpec { num_layers: 8, local_attention: Some(local), ..RunConfig::quick_start().model };
        let windows: Vec<Option<usize>> = (0..9).map(|layer| model.window_of(Unit::Layer(layer))).collect();
        let near = Some(16);
        // The stack ends before layer 8.
        assert_eq!(windows, [near, near, near, near, near, None, near, near, None]);
        assert_eq!(model.window_of(Unit::Head), None);
        let classes = model.classes();
        assert_ne!(classes.class_of(Unit::Layer(0)), classes.class_of(Unit::Layer(5)));
        assert_eq!(classes.class_of(Unit::Layer(0)), classes.class_of(Unit::Layer(6)));
    }
}
