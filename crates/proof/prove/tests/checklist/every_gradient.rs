//! N35: after one step every parameter has a gradient in every element that the batch reaches.

use config::{AppliedTo, Biases, Init, ModelSpec, ParamSpec, Sharding, Unit, UnitLayout};
use device::Op;
use testkit::intercepted::drop_ops;
use testkit::models::Style;
use testkit::wrapped_engine::WrapRank;
use train::{RankEngine, Setup};

use crate::checklist::rig::*;

/// Layer norms and biases; or rotary positions, gates and norms per head.
fn model(style: Style) -> ModelSpec {
    ModelSpec {
        qk_norm: if style == Style::Llama { config::QkNorm::Heads } else { config::QkNorm::Off },
        biases: Biases::All,
        ..still_model(style, false)
    }
}

/// The parameters with an element whose gradient is zero. Of an untied token table, only rows of tokens that occur
/// have one.
fn check(style: Style, wrap: &WrapRank<'_>, spoil: &(dyn Fn(&mut Setup) + Sync)) -> Verdict {
    let model = model(style);
    let outcome = Case::new(&model, degrees((2, 2, 2)), &training(1)).wrapped(wrap).spoilt(spoil).outcome()?;
    let judged = outcome.gradients.iter().filter(|(name, _)| !has_no_gradient(&model, name));
    verdict(judged.filter_map(|(name, values)| {
        let zeros = values.iter().filter(|value| **value == 0.0).count();
        let allowed = if name == "embedding.token.weight" { values.len() - model.hidden } else { 0 };
        (zeros > allowed).then(|| format!("{name} has no gradient in {zeros} of {} elements", values.len()))
    }))
}

#[test]
fn every_parameter_has_a_gradient() {
    for style in [Style::Gpt2, Style::Llama] {
        assert_holds(check(style, &untouched, &|_| ()));
    }
}

#[test]
fn parameters_without_a_gradient_are_found() {
    let forget_norms = |_, rank: RankEngine| drop_ops(rank, |op| matches!(op, Op::NormBackwardWeight { .. }));
    assert_found(check(Style::Gpt2, &forget_norms, &|_| ()), "layers.0.attention_norm.weight has no gradient in 48");
    let forget_biases = |_, rank: RankEngine| drop_ops(rank, |op| matches!(op, Op::ColumnSum { .. }));
    assert_found(check(Style::Gpt2, &forget_biases, &|_| ()), "layers.1.ffn.down.bias has no gradient in 48");
    let declare_unread = |setup: &mut Setup| {
        let unread = ParamSpec {
            name: "head.unread.weight".into(),
            shape: vec![48],
            sharding: Sharding::Replicated,
            unit: Unit::Head,
            applied_to: AppliedTo::Residual,
            init: Init::Ones,
            decay: false,
        };
        let mut params = config::params(&setup.model, Unit::Head);
        params.push(unread);
        setup.layouts.insert(Unit::Head, UnitLayout::new(params, setup.parallelism.axis_sizes(), 2));
    };
    assert_found(check(Style::Llama, &untouched, &declare_unread), "head.unread.weight");
}
