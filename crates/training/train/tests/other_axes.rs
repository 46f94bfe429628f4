//! A mesh with ranks along `ep`, and programs of a run without them: a reduction along the axis is refused by name, and
//! copies of parameters are distinguished.

#![expect(clippy::unwrap_used, reason = "a test may stop at once")]

use config::{ModelCoord, RunConfig, Unit};
use device::{ArenaSize, Numerics};
use mesh::{Axis, AxisSet, AxisSizes, Mesh, Rank};
use program::{GradientAxes, Instr, PeerGroup};
use train::{Copies, Engine, MetaEngine, SequenceBuffers, Setup, Start, TokenSource, pieces};

struct NoTokens;

impl TokenSource for NoTokens {
    fn fill(&self, _step: u32, _sequence: u64, _buffers: SequenceBuffers<'_>) {}
}

/// dp 1 x tp 2 x pp 1, on one rank along every other axis.
fn setup() -> Setup {
    let degrees = ["parallelism.dp=1", "parallelism.tp=2", "parallelism.pp=1", "train.sequence_length=16"];
    let RunConfig { model, parallelism, train, .. } =
        RunConfig::load("", "", &degrees.map(ToString::to_string)).unwrap();
    Setup::new(model, parallelism, train).unwrap()
}

/// The verifier refuses such a reduction; an executor that gets one all the same must not leave the axis out.
#[test]
fn a_reduction_over_axes_without_a_group_names_them() {
    let setup = setup();
    let ends = MetaEngine::new(setup.groups()).open(Rank(0), ArenaSize::of_device(0), Numerics::SINGLE).unwrap();
    let mut rank = train::Worker::open(&setup, setup.mesh.origin(), &NoTokens, Start::Seed, ends).unwrap();
    let is_of_layer = |instr: &Instr| matches!(instr, Instr::ReduceGrads { unit: Unit::Layer(0), .. });
    rank.position.at = setup.program(0).instrs.iter().position(is_of_layer).unwrap();
    let Instr::ReduceGrads { unit, by, axes } = setup.program(0).instrs[rank.position.at] else {
        panic!("no reduction")
    };
    for (added, named) in [(AxisSet::of(Axis::Ep), "ep"), (AxisSet::of(Axis::Ep).with(Axis::Tp), "ep+tp")] {
        let axes = GradientAxes::new(axes.as_slice().iter().map(|axes| axes.without(Axis::Tp).union(added)));
        let error = rank.execute(Instr::ReduceGrads { unit, by, axes }).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("a rank has no group along {named}; its groups are along tp, cp, dp_inner+cp, dp_outer, pp")
        );
    }
    assert!(rank.ports.communicators.group(PeerGroup::Along(AxisSet::of(Axis::Ep))).is_err());
}

/// Ranks along the axis hold copies; each element of each parameter is stored by one of them.
#[test]
fn pieces_store_each_element_once_over_all_ranks() {
    let setup = setup();
    let mesh = Mesh::new(AxisSizes { tp: 2, ep: 2, ..AxisSizes::ONE }).unwrap();
    for layout in setup.layouts.values() {
        let mut stored: usize = 0;
        for rank in mesh.ranks() {
            let place = ModelCoord::new(mesh.coord(rank));
            let listed = |copies| -> usize {
                pieces(layout, 0..layout.len, place, copies).iter().map(|piece| piece.elements.len()).sum()
            };
            stored += listed(Copies::First);
            assert!(listed(Copies::Every) >= listed(Copies::First));
        }
        let elements: usize = layout.segments.iter().map(|segment| segment.param.len()).sum();
        assert_eq!(stored, elements);
    }
}
