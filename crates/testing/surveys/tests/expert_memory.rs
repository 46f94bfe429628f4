//! Memory of experts: planned for the most rows that routing can give a rank, used to the byte whatever it gives, and
//! filled where all tokens choose experts of one rank.

#![allow(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use config::{
    Balance, Biases, ExpertsSpec, ModelSpec, Parallelism, ParamSpec, Recompute, RouterScores, RouterWeights, Routing,
    TrainSpec,
};
use device::{ExpertOp, Op};
use mesh::{Axis, Coord};
use prove::outcome_from;
use surveys::arena_use::Arenas;
use testkit::initial_weights::initial_weights;
use testkit::intercepted::intercept_ops;
use testkit::layout::Layout;
use testkit::models::{Style, plain_layout, proof_model, proof_text, proof_training};
use testkit::wrapped_engine::WrappedEngine;
use train::{RankEngine, TensorMap};

const EXPERTS: usize = 8;
const PER_TOKEN: usize = 3;

/// Norms with biases, so that a channel of a router's input can be the same for all tokens.
fn layout(parallelism: Parallelism) -> Layout {
    let routing =
        Routing { scores: RouterScores::Softmax, weights: RouterWeights::Normalised, scale: 1.0, groups: None };
    let experts = ExpertsSpec {
        number: EXPERTS,
        per_token: PER_TOKEN,
        hidden: 32,
        shared: None,
        first_layer: 0,
        layer_interval: 1,
        routing,
        balance: Balance::NONE,
    };
    let plain = proof_model(Style::Gpt2, 12, true);
    let model = ModelSpec { num_layers: 4, experts: Some(experts), biases: Biases::Attention, ..plain };
    Layout { model, parallelism, train: TrainSpec { steps: 2, global_batch: 8, ..proof_training() } }
}

/// Channel 0 of a router's input is 8, and experts below `chosen` like it as much as others dislike it: those logits
/// are some 16 apart, where the other channels make differences of 1.
fn forced_to(chosen: usize) -> impl Fn(&ParamSpec, &mut [f32]) {
    move |param, values| {
        if param.name.ends_with("ffn_norm.bias") {
            values[0] = 8.0;
        } else if param.name.ends_with("router.weight") {
            for (expert, row) in values.chunks_mut(param.shape[1]).enumerate() {
                row[0] = if expert < chosen { 1.0 } else { -1.0 };
            }
        }
    }
}

/// Rows of experts on a tensor-parallel rank: the fewest and the most of a microbatch, and room for them.
type Rows = BTreeMap<usize, [usize; 3]>;

/// The rows of each tensor-parallel rank in a run that begins with `initial`, whose arenas are as planned.
fn run(layout: &Layout, initial: &TensorMap) -> Rows {
    let setup = layout.setup().unwrap();
    let (arenas, seen) = (Arenas::of(&setup), Arc::new(Mutex::new(Rows::new())));
    let counting = |coord: Coord, rank: RankEngine| {
        let (seen, position) = (Arc::clone(&seen), coord.along(Axis::Tp));
        intercept_ops(rank, move |device, stream, op| {
            device.submit(stream, op)?;
            if let Op::Experts(ExpertOp::GroupRows { rows, .. }) = op {
                let mut bytes = vec![0; 4 * rows.offsets.len()];
                device.read(rows.offsets, &mut bytes)?;
                let number = i32::from_le_bytes(*bytes.last_chunk().expect("a number of rows")) as usize;
                let mut seen = seen.lock().expect("no panic");
                let [fewest, most, _] = seen.get(&position).copied().unwrap_or([usize::MAX, 0, 0]);
                seen.insert(position, [fewest.min(number), most.max(number), rows.slots.cols]);
            }
            Ok(())
        })
    };
    let mesh = setup.mesh;
    let engine = WrappedEngine::opened_by(Box::new(arenas.engine()), |inner, rank, size, numerics| {
        Ok(counting(mesh.coord(rank), inner.open(rank, size, numerics)?))
    });
    outcome_from(&setup, &engine, &proof_text(), Some(initial)).unwrap();
    assert_eq!(arenas.faults(), [""; 0], "{:?}", layout.parallelism);
    seen.lock().expect("no panic").clone()
}

#[test]
fn arenas_are_as_planned_and_full_whatever_the_router_chooses() {
    let plain = plain_layout;
    for parallelism in [
        plain(1, 2, 1, 2),
        Parallelism { recompute: Recompute::FULL, ..plain(1, 2, 2, 1) },
        Parallelism { recompute: Recompute::Selective, ..plain(1, 4, 1, 2) },
    ] {
        let layout = layout(parallelism);
        let (tp, tokens) = (layout.parallelism.degrees.tp, layout.parallelism.microbatch_size * 8);
        let own = EXPERTS / tp;
        let room = tokens * PER_TOKEN.min(own);
        let drawn = run(&layout, &initial_weights(&layout, |_, _| {}).unwrap());
        for (position, [_, most, of_plan]) in &drawn {
            assert!(0 < *most && *most < room && *of_plan == room, "rank {position} of {tp}: {drawn:?}");
        }
        // As many of the first rank's experts as a token chooses, or all of them and others.
        let forced = run(&layout, &initial_weights(&layout, forced_to(own.min(PER_TOKEN))).unwrap());
        assert_eq!(forced[&0], [room; 3], "every row of the first of {tp} ranks is used");
        let others: usize = (1..tp).map(|position| forced[&position][1]).sum();
        assert_eq!(others == 0, own >= PER_TOKEN, "{forced:?}");
    }
}
