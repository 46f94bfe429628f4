//! A training step as a plain loop on one rank. Every result is a hash of all that it was made from; gradients add up.

use std::collections::HashMap;

use crate::{Purpose, RankView};
use config::{GradientReduction, Kept, StateKind, Tied, Unit};

/// Mixes numbers into one.
pub fn hash(parts: &[u64]) -> u64 {
    parts.iter().fold(0x9e37_79b9_7f4a_7c15, |state, part| {
        let mixed = (state ^ part).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 29)
    })
}

pub fn name(unit: Unit) -> u64 {
    match unit {
        Unit::Table => 1,
        Unit::Embedding => 2,
        Unit::Head => 3,
        Unit::Layer(layer) => 10 + u64::from(layer),
        Unit::Adapters(layer) => (1 << 40) + u64::from(layer),
        Unit::Experts(layer) => (1 << 41) + u64::from(layer),
    }
}

/// Numbers that keep the roles of a computation's results apart.
pub const BATCH: u64 = 101;
pub const OUTPUT: u64 = 102;
pub const SAVED_INPUT: u64 = 103;
pub const SAVED_WEIGHT: u64 = 104;
pub const INPUT_GRAD: u64 = 105;
pub const PENDING: u64 = 106;
pub const CONTRIBUTION: u64 = 107;
pub const LOSS: u64 = 108;
pub const REDUCED: u64 = 109;
pub const NORM: u64 = 110;
pub const STEPPED: u64 = 111;
pub const GATHERED: u64 = 112;
pub const CORE: u64 = 113;

pub fn initial(unit: Unit) -> u64 {
    hash(&[7, name(unit)])
}

/// The parameters that units compute with: initial ones, gathered where ranks keep shards.
pub fn read(view: &RankView, unit: Unit) -> u64 {
    match (view.has_parameters(unit), view.zero.keeps(StateKind::Parameters)) {
        (true, Kept::Shard) => hash(&[GATHERED, initial(unit)]),
        (true, Kept::Whole) | (false, _) => initial(unit),
    }
}

/// Parameters that the units' forward passes read, as one number.
pub fn parameters(unit: Unit, tied: Tied, mut of: impl FnMut(Unit) -> u64) -> u64 {
    match (unit, tied) {
        (Unit::Embedding, _) => hash(&[of(Unit::Table), of(Unit::Embedding)]),
        (Unit::Head, Tied::Yes) => hash(&[of(Unit::Table), of(Unit::Head)]),
        (_, _) => of(unit),
    }
}

pub fn uses(unit: Unit, tied: Tied) -> Vec<Unit> {
    match (unit, tied) {
        (Unit::Embedding, _) => vec![Unit::Table, Unit::Embedding],
        (Unit::Head, Tied::Yes) => vec![Unit::Table, Unit::Head],
        (_, _) => vec![unit],
    }
}

pub fn contribution(unit: Unit, made_of: u64) -> u64 {
    hash(&[CONTRIBUTION, name(unit), made_of])
}

/// The result of a step: parameters by unit (training), or the sum of losses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub params: HashMap<Unit, u64>,
    pub sums: u64,
}

/// A plain loop over microbatches and units, on one rank.
pub fn reference(view: &RankView) -> Outcome {
    let num_layers = view.num_layers();
    let units: Vec<Unit> = Unit::computing(num_layers).collect();
    let mut gradients: HashMap<(Unit, Unit), u64> = HashMap::new();
    let mut losses = 0u64;
    for mb in view.microbatches().map(|microbatch| u64::from(microbatch.0)) {
        let batch = hash(&[BATCH, mb]);
        let mut inputs = vec![];
        let mut x = 0;
        for unit in &units[..units.len() - 1] {
            inputs.push(x);
            x = hash(&[OUTPUT, name(*unit), x, parameters(*unit, view.tied, |unit| read(view, unit)), batch]);
        }
        let head = hash(&[x, parameters(Unit::Head, view.tied, |unit| read(view, unit)), batch]);
        losses = losses.wrapping_add(hash(&[LOSS, head]));
        let mut add = |by: Unit, made_of: u64| {
            for unit in uses(by, view.tied) {
                let sum = gradients.entry((unit, by)).or_default();
                let made = contribution(unit, made_of);
                *sum = sum.wrapping_add(match view.zero.reduction() {
                    GradientReduction::Step => made,
                    GradientReduction::Microbatch => hash(&[REDUCED, made]),
                });
            }
        };
        add(Unit::Head, head);
        let mut grad = hash(&[INPUT_GRAD, head]);
        for (unit, x) in units[..units.len() - 1].iter().zip(inputs).rev() {
            let read = parameters(*unit, view.tied, |unit| read(view, unit));
            let input = saved(SAVED_INPUT, *unit, x, read, batch);
            let weight = saved(SAVED_WEIGHT, *unit, x, read, batch);
            let pending = hash(&[PENDING, grad, input, weight]);
            add(*unit, hash(&[grad, x, weight, pending, batch]));
            grad = hash(&[INPUT_GRAD, grad, x, input, weight, batch, if *unit == Unit::Embedding { 0 } else { read }]);
        }
    }
    if view.purpose != Purpose::Train {
        return Outcome { params: HashMap::new(), sums: hash(&[NORM, losses]) };
    }
    match view.zero.reduction() {
        GradientReduction::Step => gradients.values_mut().for_each(|sum| *sum = hash(&[REDUCED, *sum])),
        GradientReduction::Microbatch => {}
    }
    if let (Tied::Yes, Some(of_head)) = (view.tied, gradients.remove(&(Unit::Table, Unit::Head))) {
        let sum = gradients.entry((Unit::Table, Unit::Embedding)).or_default();
        *sum = sum.wrapping_add(of_head);
    }
    let has = |unit: &Unit| view.has_parameters(*unit);
    let counted = gradients.iter().filter(|((unit, _), _)| has(unit));
    let norm = counted.fold(0u64, |sum, ((unit, _), gradient)| sum.wrapping_add(hash(&[name(*unit), *gradient])));
    let sums = hash(&[NORM, losses.wrapping_add(norm)]);
    let params = gradients.into_iter().filter(|((unit, _), _)| has(unit));
    let params = params.map(|((unit, _), gradient)| (unit, stepped(view, initial(unit), gradient, sums)));
    Outcome { params: params.collect(), sums }
}

pub fn saved(role: u64, unit: Unit, x: u64, parameters: u64, batch: u64) -> u64 {
    hash(&[role, name(unit), x, parameters, batch])
}

pub fn stepped(view: &RankView, params: u64, gradient: u64, sums: u64) -> u64 {
    let stepped = hash(&[STEPPED, params, gradient, sums]);
    match (view.zero.keeps(StateKind::Optimizer), view.zero.keeps(StateKind::Parameters)) {
        // A value that was updated in shards and is kept whole is gathered.
        (Kept::Shard, Kept::Whole) => hash(&[GATHERED, stepped]),
        (Kept::Whole, _) | (Kept::Shard, Kept::Shard) => stepped,
    }
}
