//! The tensors of routers that have no gradient: corrections, and loads of the step before.

use crate::experts::ExpertsSpec;
use crate::model::ModelSpec;
use crate::params::{AppliedTo, Init, ParamSpec, Sharding};
use crate::unit::Unit;

impl ExpertsSpec {
    /// The most tokens of a sequence of `tokens` that an expert computes in training: `tokens k / E` times the
    /// capacity, rounded up.
    pub fn capacity_of(&self, tokens: usize) -> Option<usize> {
        let share = (tokens * self.per_token) as f64 / self.number as f64;
        self.balance.capacity.map(|capacity| (share * f64::from(capacity)).ceil() as usize)
    }

    /// The row of a layer in tensors that have one for each layer with experts.
    pub fn row_of(&self, layer: u32) -> usize {
        (layer as usize).saturating_sub(self.first_layer) / self.layer_interval.max(1)
    }

    /// The layers of `num_layers` that have experts, in forward order: the one of each row.
    pub fn layers(&self, num_layers: usize) -> impl Iterator<Item = u32> + use<> {
        let experts = *self;
        (0..num_layers as u32).filter(move |layer| experts.are_in(*layer))
    }
}

/// The beginning of the names of [`router_loads`].
pub const ROUTER_LOAD: &str = "load.";

/// The corrections of routers, `layers.N.router.correction[E]`: weights of the model that no layer's flat buffer has,
/// since they have neither a gradient nor a moment nor an average, and are in single precision on every rank.
pub fn router_corrections(model: &ModelSpec) -> impl Iterator<Item = ParamSpec> + use<> {
    let has_them = |experts: &ExpertsSpec| experts.balance.bias.is_some();
    of_routers(model, |layer| format!("layers.{layer}.router.correction"), has_them)
}

/// The loads of the step before, `load.layers.N.router[E]`: state of a run whose balance loss is of them.
pub fn router_loads(model: &ModelSpec) -> impl Iterator<Item = ParamSpec> + use<> {
    let has_them = |experts: &ExpertsSpec| experts.balance.has_load_of_step();
    of_routers(model, |layer| format!("{ROUTER_LOAD}layers.{layer}.router"), has_them)
}

fn of_routers(
    model: &ModelSpec,
    name: fn(u32) -> String,
    has_them: fn(&ExpertsSpec) -> bool,
) -> impl Iterator<Item = ParamSpec> + use<> {
    let experts = model.experts.filter(has_them);
    let num_layers = model.num_layers;
    experts.into_iter().flat_map(move |experts| {
        experts.layers(num_layers).map(move |layer| ParamSpec {
            name: name(layer),
            shape: vec![experts.number],
            sharding: Sharding::Replicated,
            unit: Unit::Layer(layer),
            applied_to: AppliedTo::Choice,
            init: Init::Zeros,
            decay: false,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RunConfig;

    fn model(sets: &[&str]) -> ModelSpec {
        let of_experts = ["model.experts=4", "model.biases=false", "model.first_expert_layer=1"];
        let sets: Vec<String> = of_experts.iter().chain(sets).map(ToString::to_string).collect();
        RunConfig::load("", "", &sets).expect("legal").model
    }

    fn names(params: impl Iterator<Item = ParamSpec>) -> Vec<String> {
        params.map(|param| format!("{}{:?}", param.name, param.shape)).collect()
    }

    #[test]
    fn layers_with_experts_have_a_correction_where_the_choice_is_corrected() {
        let every_second = "model.expert_layer_interval=2";
        let model = model(&["model.router_bias=true", every_second]);
        let expected = [1, 3, 5].map(|layer| format!("layers.{layer}.router.correction[4]"));
        assert_eq!(names(router_corrections(&model)), expected);
        assert_eq!(names(router_loads(&model)), [""; 0]);
        let experts = model.experts.expect("experts");
        assert_eq!(experts.layers(6).map(|layer| experts.row_of(layer)).collect::<Vec<_>>(), [0, 1, 2]);
        let plain = self::model(&[]);
        assert_eq!(names(router_corrections(&plain).chain(router_loads(&plain))), [""; 0]);
    }

    #[test]
    fn the_load_of_the_step_before_is_kept_for_a_loss_of_it() {
        let loss = "model.router_balance_loss=0.01";
        let of_sequences = model(&[loss]);
        assert_eq!(names(router_loads(&of_sequences)), [""; 0]);
        let of_steps = model(&[loss, "model.router_balance_over=step", "model.router_statistics=false"]);
        assert_eq!(names(router_loads(&of_steps)).len(), 5);
        let counted = [&of_sequences, &of_steps].map(|model| {
            let balance = model.experts.expect("experts").balance;
            (balance.counts_choices(), balance.num_sums())
        });
        assert_eq!(counted, [(true, 2), (true, 1)]);
    }
}
