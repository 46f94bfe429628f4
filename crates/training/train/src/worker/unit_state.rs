//! A unit's persistent tensors on one rank.

use std::collections::BTreeMap;
use std::ops::Range;

use checkpoint::StatePart;
use config::{StateKind, TrainSpec, Unit, UnitLayout, UpdateRule, ZeroStage};
use device::{Dtype, Tensor};
use mesh::Coord;
use program::{OptimizerPart, State, Value};

use crate::setup::Setup;
use crate::worker::memory;
use crate::worker::run_position::RunPosition;

/// Elements of a unit's flat buffer, and their place.
#[derive(Clone, Debug)]
pub struct Held {
    /// Which ones: all, or a shard.
    pub elements: Range<usize>,
    /// `[1, elements.len()]`
    pub tensor: Tensor,
}

impl Held {
    /// The place of `elements` of the flat buffer.
    ///
    /// # Panics
    /// When they are not held here.
    pub fn part(&self, elements: Range<usize>) -> Tensor {
        self.tensor.elements(self.places(elements))
    }

    /// Positions in the tensor of `elements` of the flat buffer.
    ///
    /// # Panics
    /// When they are not held here.
    pub fn places(&self, elements: Range<usize>) -> Range<usize> {
        let Range { start, end } = self.elements;
        assert!(start <= elements.start && elements.end <= end, "{elements:?} of {:?}", self.elements);
        elements.start - start..elements.end - start
    }
}

/// Parameters, gradients and optimizer state of one unit: places in the arena.
#[derive(Clone, Debug)]
pub struct UnitState {
    pub unit: Unit,
    /// Its flat buffer.
    pub layout: UnitLayout,
    /// All parameters, or this rank's shard.
    pub params: Held,
    /// The weights that are updated, of the elements [`UnitState::updated`], where they are not the parameters
    /// themselves.
    pub masters: Option<Held>,
    /// A place of as many numbers in the arena, which is free before the first step, where the master weights are in
    /// memory of the host.
    pub staging: Option<Tensor>,
    /// The computing units of this rank that contribute gradients, each to a sum of its own: two for a tied table whose
    /// uses share a rank, and the one first whose sum becomes the finished gradient. None when nothing is trained.
    pub makers: Vec<Unit>,
    /// Elements of the sums of gradients: all, or this rank's shard.
    pub summed: Range<usize>,
    /// First moments of the updated elements, and second ones of those that have them; absent when nothing is trained.
    pub moments: Option<[Held; 2]>,
    /// Moving average of the weights, of the elements [`UnitState::updated`], where it is kept.
    pub average: Option<Held>,
    /// Elements that this rank updates: its shard under ZeRO, all otherwise.
    pub updated: Range<usize>,
    /// How the elements of the flat buffer are updated: runs of one rule each, in ascending order, without padding.
    pub update_runs: Vec<(Range<usize>, UpdateRule)>,
    /// Elements that this rank answers for in the norm and in storage: its data-parallel slice, whatever is sharded.
    pub owned: Range<usize>,
}

impl UnitState {
    /// The buffer of the weights that the optimizer updates and a run ends with.
    pub fn weights(&self) -> &Held {
        self.masters.as_ref().unwrap_or(&self.params)
    }

    /// The state that storage keeps between two steps, in the order of [`StatePart`].
    pub fn saved(&self) -> impl Iterator<Item = (StatePart, Held)> {
        let [first, second] = self.held_moments().map_or([None, None], |moments| moments.map(Some));
        let all = [Some(self.weights().clone()), first, second, self.average.clone()];
        StatePart::ALL.into_iter().zip(all).filter_map(|(part, held)| Some((part, held?)))
    }

    /// The same unit while its optimizer state is in the arena for the instruction at `position`.
    #[must_use]
    pub fn staged(&self, position: &RunPosition<'_>) -> UnitState {
        let view = &position.program.view;
        let staged = |held: &Held, part: OptimizerPart| {
            let value = view.updated(self.unit, part);
            let tensor = memory::numbers_at(position.plan, value, position.at, held.elements.len(), Dtype::F32);
            Held { elements: held.elements.clone(), tensor }
        };
        let moments = self.moments.as_ref().map(|[first, second]| {
            [staged(first, OptimizerPart::FirstMoment), staged(second, OptimizerPart::SecondMoment)]
        });
        UnitState {
            masters: self.masters.as_ref().map(|masters| staged(masters, OptimizerPart::Master)),
            moments,
            average: self.average.as_ref().map(|average| staged(average, OptimizerPart::Average)),
            ..self.clone()
        }
    }

    /// The parts of its optimizer state, with their places between two steps.
    pub fn optimizer_parts(&self) -> impl Iterator<Item = (OptimizerPart, &Held)> {
        let [first, second] = self.moments.as_ref().map_or([None, None], |moments| moments.each_ref().map(Some));
        let all = [
            (OptimizerPart::Master, self.masters.as_ref()),
            (OptimizerPart::FirstMoment, first),
            (OptimizerPart::SecondMoment, second),
            (OptimizerPart::Average, self.average.as_ref()),
        ];
        all.into_iter().filter_map(|(part, held)| Some((part, held?)))
    }

    /// First and second moment; absent when nothing is trained.
    pub fn held_moments(&self) -> Option<[Held; 2]> {
        self.moments.clone()
    }
}

/// The elements that are in both ranges.
pub fn common(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    let start = a.start.max(b.start);
    start..a.end.min(b.end).max(start)
}

/// The runs of `layout` that are updated by one rule: usually two, what decays and what does not.
pub fn update_runs(layout: &UnitLayout, train: &TrainSpec) -> Vec<(Range<usize>, UpdateRule)> {
    let mut runs: Vec<(Range<usize>, UpdateRule)> = vec![];
    for segment in &layout.segments {
        let (elements, rule) = (segment.range(), train.update_rule(&segment.param));
        match runs.last_mut() {
            Some((run, of_run)) if *of_run == rule => run.end = elements.end,
            Some(_) | None => runs.push((elements, rule)),
        }
    }
    runs
}

/// A rank's place among its replicas, and what of each unit it therefore keeps.
#[derive(Clone, Copy, Debug)]
pub struct ShardPlace {
    zero: ZeroStage,
    coord: Coord,
}

impl ShardPlace {
    /// Of the rank at `coord`.
    pub fn new(zero: ZeroStage, coord: Coord) -> ShardPlace {
        ShardPlace { zero, coord }
    }

    /// The elements that are kept of a state between its uses.
    pub fn kept(&self, layout: &UnitLayout, state: StateKind) -> Range<usize> {
        layout.kept(self.zero, state, self.coord)
    }

    /// The shard of this rank, which is that of its position in every sharding group.
    pub fn shard(&self, layout: &UnitLayout) -> Range<usize> {
        layout.shard_at(self.coord)
    }

    /// The slice of its shard for which this rank answers: groups hold the same shards, so each answers for a part of
    /// them.
    pub fn owned(&self, layout: &UnitLayout) -> Range<usize> {
        let axes = layout.axes();
        let num_groups = self.coord.sizes().size(axes.replicas());
        layout.shard(self.coord.position(axes.shards) * num_groups + self.coord.position(axes.replicas()))
    }
}

/// The state of all units with parameters on the rank at `position`.
pub fn unit_states(position: &RunPosition<'_>) -> BTreeMap<Unit, UnitState> {
    let RunPosition { setup, plan, rank, .. } = *position;
    let (place, shards) = (&position.program.view, rank.shards);
    let states = place.parameter_units().map(|unit| {
        let layout = setup.layouts[&unit].clone();
        let held = |value: Value, state: StateKind, dtype: Dtype| {
            let elements = shards.kept(&layout, state);
            Held { tensor: memory::state_numbers(plan, value, elements.len(), dtype), elements }
        };
        let single = |value| held(value, StateKind::Optimizer, Dtype::F32);
        let makers = place.accumulators().filter(|&(of, _)| of == unit && is_trained(setup)).map(|(_, by)| by);
        let mut makers: Vec<Unit> = makers.collect();
        makers.sort_by_key(|by| *by != place.finisher(unit));
        let state = UnitState {
            unit,
            params: held(Value::Params(unit), StateKind::Parameters, setup.stored()),
            masters: place.master(unit).filter(|_| is_trained(setup)).map(single),
            staging: plan
                .first_extent(Value::Staged { unit, part: OptimizerPart::Master })
                .map(|extent| memory::frame(extent).floats(1, shards.kept(&layout, StateKind::Optimizer).len())),
            makers,
            summed: shards.kept(&layout, StateKind::Gradients),
            moments: (is_trained(setup) && place.trains(unit)).then(|| {
                let first = single(Value::FirstMoment(unit));
                let elements = common(&setup.train.optimizer.second_moments(&layout), &first.elements);
                let tensor = memory::state_numbers(plan, Value::SecondMoment(unit), elements.len(), Dtype::F32);
                [first, Held { elements, tensor }]
            }),
            average: place.average(unit).filter(|_| is_trained(setup)).map(single),
            owned: shards.owned(&layout),
            updated: shards.kept(&layout, StateKind::Optimizer),
            update_runs: update_runs(&layout, &setup.train),
            layout: layout.clone(),
        };
        (unit, state)
    });
    states.collect()
}

fn is_trained(setup: &Setup) -> bool {
    match setup.state {
        State::Training | State::TrainingWithSamples { .. } => true,
        State::Inference | State::Generation { .. } => false,
    }
}
