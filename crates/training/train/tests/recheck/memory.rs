//! Bits that flip in gradients and activations between two operations.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use blame::CauseKind;
use config::Recheck;
use device::{BalanceOp, ExpertOp, Op, Orientation, Tensor};
use mesh::{Coord, Rank};
use testkit::intercepted::intercept_ops;
use testkit::wrapped_engine::WrappedEngine;
use train::{RankEngine, Setup};

use crate::recheck::{Draw, failure, flip, flips, four_ranks, losses};

/// The kind of the results of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    /// Values of the forward pass, and their gradients.
    Activation,
    /// Gradients of parameters.
    Gradient,
    /// State, sums and constants.
    Other,
}

impl Class {
    fn of(op: &Op) -> Class {
        match op {
            Op::MatMul { orientation: Orientation::Tn, .. }
            | Op::ColumnSum { .. }
            | Op::NormBackwardWeight { .. }
            | Op::EmbeddingBackward { .. } => Class::Gradient,
            Op::MatMul { orientation: Orientation::Nt | Orientation::Nn, .. }
            | Op::Norm { .. }
            | Op::NormBackwardInput { .. }
            | Op::Rotary { .. }
            | Op::Attention { .. }
            | Op::AttentionBackward { .. }
            | Op::JoinAttention { .. }
            | Op::Activation { .. }
            | Op::ActivationBackward { .. }
            | Op::MatMulActivation { .. }
            | Op::MatMulActivationBackward { .. }
            | Op::DropoutAdd { .. }
            | Op::DropoutBackward { .. }
            | Op::EmbeddingLookup { .. }
            | Op::SoftCap { .. }
            | Op::SoftCapBackward { .. }
            | Op::RowMax { .. }
            | Op::SumExp { .. }
            | Op::CrossEntropy { .. } => Class::Activation,
            Op::Experts(op) => Class::of_experts(op),
            Op::Balance(BalanceOp::RouterLossesBackward { .. }) => Class::Activation,
            Op::Balance(
                BalanceOp::CountChoices { .. }
                | BalanceOp::LimitChoices { .. }
                | BalanceOp::Load { .. }
                | BalanceOp::RouterLosses { .. }
                | BalanceOp::Correct { .. },
            ) => Class::Other,
            Op::RotaryTable { .. }
            | Op::AddRounded { .. }
            | Op::RoundedToSingle { .. }
            | Op::Accumulate { .. }
            | Op::ScaledSum { .. }
            | Op::Fill { .. }
            | Op::Copy { .. }
            | Op::InitializeNormal { .. }
            | Op::SquaredSum { .. }
            | Op::LossSum { .. }
            | Op::ClipCoefficient { .. }
            | Op::AdamW { .. } => Class::Other,
        }
    }
}

impl Class {
    fn of_experts(op: &ExpertOp) -> Class {
        match op {
            ExpertOp::MatMul { orientation: Orientation::Tn, .. } => Class::Gradient,
            ExpertOp::MatMul { orientation: Orientation::Nt | Orientation::Nn, .. }
            | ExpertOp::Route { .. }
            | ExpertOp::RouteBackward { .. }
            | ExpertOp::GroupRows { .. }
            | ExpertOp::GatherRows { .. }
            | ExpertOp::CombineRows { .. }
            | ExpertOp::Activation { .. }
            | ExpertOp::ActivationBackward { .. } => Class::Activation,
        }
    }
}

/// A tensor that the next operation reads.
#[derive(Clone, Copy)]
struct Place {
    /// Computations of the rank before the flip, of which each operation has two.
    after: usize,
    tensor: Tensor,
}

/// The operations of each rank in the clean run of three steps, in their order.
fn operations(setup: &Setup) -> BTreeMap<Rank, Vec<Op>> {
    let all = Arc::new(Mutex::new(BTreeMap::<Rank, Vec<Op>>::new()));
    let wrap = |coord: Coord, engine: RankEngine| {
        let (all, rank) = (Arc::clone(&all), setup.mesh.rank(coord));
        intercept_ops(engine, move |device, stream, op| {
            all.lock().expect("no panic").entry(rank).or_default().push(*op);
            device.submit(stream, op)
        })
    };
    losses(setup, &WrappedEngine::new(setup, &wrap), Recheck::All).expect("a clean run");
    let all = all.lock().expect("no panic").clone();
    all.into_iter().map(|(rank, computed)| (rank, computed.into_iter().step_by(2).collect())).collect()
}

/// The places of step 2 with values of this class.
fn places(operations: &[Op], class: Class) -> Vec<Place> {
    let updates = |operations: &[Op]| operations.iter().filter(|op| matches!(op, Op::AdamW { .. })).count();
    let of_step = updates(operations) / 3;
    let mut written: Vec<(Tensor, Class)> = vec![];
    let mut found = vec![];
    for (number, op) in operations.iter().enumerate() {
        let is_in_step_2 = updates(&operations[..number]) / of_step == 1 && !matches!(op, Op::AdamW { .. });
        let operands = op.operands();
        for tensor in operands.reads().filter(|tensor| is_in_step_2 && !tensor.is_empty()) {
            let covers = |by: &Tensor| by.bytes().start < tensor.bytes().end && tensor.bytes().start < by.bytes().end;
            let last = written.iter().rev().find(|(by, _)| covers(by));
            if last.is_some_and(|(_, last)| *last == class) {
                found.push(Place { after: 2 * number, tensor });
            }
        }
        written.extend(operands.writes().filter(|tensor| !tensor.is_empty()).map(|tensor| (tensor, Class::of(op))));
    }
    found
}

fn every_flip_is_found(class: Class, seed: u64) {
    let setup = four_ranks();
    let places: Vec<Vec<Place>> = operations(&setup).values().map(|operations| places(operations, class)).collect();
    let mut draw = Draw(seed);
    let ways = [
        ("changed before", "before the next operation"),
        ("changed during", "after an operation"),
        ("two computations", "in its results"),
    ];
    let mut counts = [0; 3];
    for _ in 0..flips() {
        let rank = draw.below(4);
        let Place { after, tensor } = places[rank][draw.below(places[rank].len())];
        let bit = draw.below(8 * tensor.size_bytes());
        let wrap = |coord: Coord, engine: RankEngine| {
            if setup.mesh.rank(coord) != Rank(rank) {
                return engine;
            }
            let computed = Cell::new(0);
            intercept_ops(engine, move |device, stream, op| {
                device.submit(stream, op)?;
                computed.set(computed.get() + 1);
                if computed.get() == after { flip(device, tensor, bit) } else { Ok(()) }
            })
        };
        let failure = failure(&setup, &WrappedEngine::new(&setup, &wrap), Recheck::All);
        let place = format!("rank {rank}, {tensor:?}, bit {bit}, after {after} computations: {failure}");
        assert_eq!((failure.rank, failure.kind, failure.step), (Rank(rank), CauseKind::Corruption, 2), "{place}");
        let way = ways.iter().position(|(text, _)| failure.cause.contains(text)).expect(&place);
        counts[way] += 1;
    }
    let found: Vec<String> = ways.iter().zip(counts).map(|((_, way), count)| format!("{count} {way}")).collect();
    println!("{} flips of {class:?}, all with their rank and step: {}", flips(), found.join(", "));
}

#[test]
fn every_flip_in_activations_is_found_by_the_next_operation() {
    every_flip_is_found(Class::Activation, 31);
}

#[test]
fn every_flip_in_gradients_is_found_by_the_next_operation() {
    every_flip_is_found(Class::Gradient, 37);
}
