//! N28: over all ranks, each element of each parameter is owned once, and each layer too.

use config::{Sharding, unique_parameters};
use prove::Outcome;
use testkit::models::Style;
use train::Setup;

use crate::checklist::rig::*;

/// Whether what all ranks deliver is each tensor once, and as many elements as the model has.
fn check(style: Style, tied: bool, at: (usize, usize, usize), spoil: &(dyn Fn(&mut Setup) + Sync)) -> Verdict {
    let model = config::ModelSpec { num_layers: 4, ..small_model(style, tied) };
    let outcome = Case::new(&model, degrees(at), &training(0)).spoilt(spoil).outcome()?;
    let (owned, unique) = (elements(&outcome), unique_parameters(&model));
    verdict((owned != unique).then(|| format!("{owned} elements are owned, the model has {unique}")))
}

fn elements(outcome: &Outcome) -> u64 {
    outcome.weights.values().map(|values| values.len() as u64).sum()
}

#[test]
fn owned_parameters_add_up_to_the_model() {
    for (style, tied) in [(Style::Gpt2, true), (Style::Gpt2, false), (Style::Llama, true), (Style::Llama, false)] {
        for at in [(1, 1, 1), (4, 1, 1), (1, 4, 1), (1, 1, 4), (2, 2, 2)] {
            assert_holds(check(style, tied, at, &|_| ()));
        }
    }
}

#[test]
fn parameters_that_two_ranks_own_or_none_are_found() {
    let owned_twice = |setup: &mut Setup| {
        let segments = setup.layouts.values_mut().flat_map(|layout| &mut layout.segments);
        for segment in segments.filter(|segment| segment.param.name == "layers.1.ffn_norm.weight") {
            segment.param.sharding = Sharding::COLUMNS;
        }
    };
    let words = "layers.1.ffn_norm.weight has 48 elements, but";
    assert_found(check(Style::Llama, false, (1, 2, 1), &owned_twice), words);
    let owned_by_none = |setup: &mut Setup| {
        for layout in setup.layouts.values_mut() {
            layout.segments.retain(|segment| segment.param.name != "layers.1.ffn_norm.weight");
        }
    };
    assert_found(check(Style::Llama, false, (1, 2, 1), &owned_by_none), "layers.1.ffn_norm.weight");
}

#[test]
fn a_layer_that_two_stages_own_or_none_is_refused() {
    let case = Case::new(&small_model(Style::Llama, false), degrees((1, 1, 2)), &training(1));
    assert_holds(case.verdict_on(|_| ()));
    // Owners of embedding, two layers and head, as the first and as the second stage see them.
    let owners = case.setup().verified().programs()[0].view.owners.clone();
    let first_of_second = owners.iter().position(|owner| *owner == 1).expect("a second stage");
    let both = case.verdict_on(|programs| programs[0].view.owners[first_of_second] = 0);
    assert_found(both, "is owned by pipeline ranks [0, 1]; exactly one may own it");
    let none = case.verdict_on(|programs| programs[1].view.owners[first_of_second] = 0);
    assert_found(none, "has no owner among 2 pipeline ranks");
}
