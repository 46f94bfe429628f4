//! The values of factors that a pair has, by name.

use std::collections::BTreeSet;

use config::{
    Activation, ContextKind, Degrees, GradientSums, LoadSet, ModelSpec, Offload, Optimizer, Overlap, Parallelism,
    Recompute, ScheduleKind, ScheduleSpec, SharedGate, TopQuery, TrainSpec, ZeroStage,
};
use testkit::layout::Layout;

use crate::expert_pairs::draw::ExpertPair;

/// The factors of both layouts. A factor of a layout counts where it acts: ZeRO with several replicas, a schedule with
/// several stages.
pub fn factors(pair: &ExpertPair) -> Vec<String> {
    let of_both: BTreeSet<String> = pair.layouts.iter().flat_map(of_layout).collect();
    of_both.into_iter().collect()
}

/// The factors of one layout.
pub(crate) fn of_layout(Layout { model, parallelism, train }: &Layout) -> Vec<String> {
    let all = [of_model(model), of_training(train), of_parallelism(parallelism)];
    all.concat().into_iter().map(String::from).collect()
}

fn of_model(model: &ModelSpec) -> Vec<&'static str> {
    let Some(experts) = &model.experts else { return vec![] };
    let shared = experts.shared.map(|shared| match shared.gate {
        SharedGate::Open => "shared expert",
        SharedGate::Learned => "shared expert with a gate",
    });
    let balance = &experts.balance;
    let loss = balance.loss.map(|_| match balance.over {
        LoadSet::Sequence => "balance loss of sequences",
        LoadSet::Step => "balance loss of steps",
    });
    let named = [
        (balance.z_loss.is_some(), "z-loss of routers"),
        (balance.moves_bias(), "update of corrections"),
        (balance.capacity.is_some(), "capacity"),
        (experts.routing.groups.is_some(), "groups of experts"),
        (model.biases.are_in_feed_forward(), "biases of routers and experts"),
        (model.activation == Activation::SwiGluClamped, "clamped gates"),
        (experts.first_layer > 0, "dense first layer"),
        (experts.layer_interval > 1, "dense layers between"),
        (model.lora.is_some(), "LoRA on attention"),
        (model.top_query == TopQuery::On, "top query"),
    ];
    shared.into_iter().chain(loss).chain(acting(named)).collect()
}

fn of_training(train: &TrainSpec) -> Vec<&'static str> {
    let offload = match train.offload {
        Offload::None => None,
        Offload::Optimizer => Some("offload of the optimizer"),
        Offload::Activations => Some("offload of activations"),
        Offload::All => Some("offload of both"),
    };
    let named = [
        (train.sums == GradientSums::Exact, "exact sums"),
        (train.ema_decay.is_some(), "moving average"),
        (matches!(train.optimizer, Optimizer::Muon(_)), "Muon"),
    ];
    offload.into_iter().chain(acting(named)).chain([train.precision.stored().name()]).collect()
}

fn of_parallelism(parallelism: &Parallelism) -> Vec<&'static str> {
    let Degrees { dp, cp, tp, pp } = parallelism.degrees;
    let zero = match parallelism.zero {
        ZeroStage::Off => None,
        ZeroStage::One => Some("ZeRO-1"),
        ZeroStage::Two { .. } => Some("ZeRO-2"),
        ZeroStage::Three { .. } => Some("ZeRO-3"),
    };
    let schedule = match &parallelism.schedule {
        ScheduleSpec::Generated(ScheduleKind::Interleaved { .. }) => Some("interleaved"),
        ScheduleSpec::Generated(
            ScheduleKind::ZeroBubbleH1
            | ScheduleKind::ZeroBubbleH2
            | ScheduleKind::ZeroBubbleV
            | ScheduleKind::ZeroBubbleAuto { .. },
        ) => Some("zero bubble"),
        ScheduleSpec::Generated(ScheduleKind::GPipe | ScheduleKind::OneForwardOneBackward) | ScheduleSpec::Given(_) => {
            None
        }
    };
    let recompute = match parallelism.recompute {
        Recompute::None => None,
        Recompute::Selective => Some("core recomputed"),
        Recompute::Full(_) => Some("layers recomputed"),
    };
    let context = match parallelism.context.kind {
        ContextKind::Gather => "cp by gather",
        ContextKind::Heads => "cp by heads",
        ContextKind::Ring => "cp by ring",
    };
    let named = [
        (dp > 1, "dp"),
        (tp > 1, "tp"),
        (pp > 1, "pp"),
        (cp > 1, context),
        (parallelism.shard_group.is_some_and(|group| group < dp), "sharding groups"),
        (parallelism.sequence_parallel.runs(tp) > 1, "sequence parallelism"),
        (parallelism.overlap == Some(Overlap::On), "overlap"),
    ];
    let of_replicas = zero.filter(|_| dp * cp > 1);
    let of_stages = schedule.filter(|_| pp > 1);
    of_replicas.into_iter().chain(of_stages).chain(recompute).chain(acting(named)).collect()
}

fn acting<const N: usize>(named: [(bool, &'static str); N]) -> impl Iterator<Item = &'static str> {
    named.into_iter().filter_map(|(acts, name)| acts.then_some(name))
}
