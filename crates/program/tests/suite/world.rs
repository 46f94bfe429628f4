//! All ranks of a mesh with programs of their own: what one rank does otherwise than its peers is found and named.

use config::{GradientReduction, Microbatch, ScheduleKind, Unit, ZeroStage};
use mesh::{Axis, Mesh, Rank};
use program::{Instr, Program, Rule, World, WorldStep};

use crate::setup::{Setup, ZERO_3};

/// The ranks of `setup`, of which `rank` does what `change` makes of its program.
fn verified(setup: &Setup, rank: usize, change: impl Fn(&mut Program)) -> Result<WorldStep, (Rule, String)> {
    let (mesh, programs) = (setup.parallelism().mesh().unwrap(), setup.programs());
    let own = |other: Rank, mesh: &Mesh| {
        let mut program = programs[mesh.coord(other).along(Axis::Pp)].clone();
        if other.0 == rank {
            change(&mut program);
        }
        program
    };
    let world = World::new(&mesh, |rank| own(rank, &mesh));
    world.verify().map_err(|violations| (violations[0].rule, violations[0].message.clone()))
}

fn unchanged(_: &mut Program) {}

fn position(program: &Program, instr: Instr) -> usize {
    program.instrs.iter().position(|other| *other == instr).unwrap()
}

#[test]
fn peers_that_do_the_same_end_together() {
    for zero in [ZeroStage::Off, ZeroStage::One, ZeroStage::Two { reduce: GradientReduction::Microbatch }, ZERO_3] {
        for pp in [1, 2, 4] {
            let setup = Setup { zero, pp, ..Setup::default() };
            let step = verified(&setup, 0, unchanged).unwrap_or_else(|(rule, message)| panic!("{rule}: {message}"));
            let instructions: usize = setup.programs().iter().map(|program| program.instrs.len()).sum();
            assert_eq!(step.instructions, 4 * instructions as u64, "dp 2 x tp 2 replicas of the pipeline");
            // Outputs and their gradients between neighbours.
            assert_eq!(step.transfers, (4 * 2 * (pp - 1) * setup.num_microbatches) as u64);
            assert!(step.collectives > 0);
        }
    }
}

/// Its program is as sound as theirs.
#[test]
fn a_rank_that_gathers_in_another_order_is_found() {
    let (rule, message) = verified(&Setup::default(), 6, |program| {
        for of in [|unit| Instr::OptimizerStep { unit }, |unit| Instr::GatherParams { unit }] {
            let [one, other] = [2, 3].map(|layer| position(program, of(Unit::Layer(layer))));
            program.instrs.swap(one, other);
        }
    })
    .unwrap_err();
    assert_eq!(rule, Rule::Collectives, "{message}");
    assert!(message.contains("rank 6") && message.contains("rank 4"), "{message}");
}

#[test]
fn a_rank_that_sends_in_another_order_is_found() {
    let setup = Setup { kind: ScheduleKind::GPipe, ..Setup::default() };
    let send = |microbatch| Instr::SendAct { unit: Unit::Layer(1), microbatch: Microbatch(microbatch) };
    let (rule, message) = verified(&setup, 1, |program| {
        let first = position(program, send(0));
        program.instrs.remove(first);
        let second = position(program, send(1));
        program.instrs.insert(second + 1, send(0));
    })
    .unwrap_err();
    assert_eq!(
        (rule, message.as_str()),
        (
            Rule::Pairs,
            "rank 1 sends the output of layer 1, microbatch 1 where rank 5 receives the output of layer 1, microbatch 0"
        )
    );
}

#[test]
fn a_rank_that_breaks_a_rule_is_found_in_its_replica() {
    let norm = |program: &mut Program| {
        let at = position(program, Instr::GradNorm);
        program.instrs.remove(at);
    };
    let (rule, message) = verified(&Setup::default(), 3, norm).unwrap_err();
    assert_eq!((rule, message.as_str()), (Rule::Gradients, "replica 3, pipeline rank 0: `gradient norm` is missing"));
}

/// Each replica of the pipeline is sound, but the one with more microbatches gathers more often than its peers.
#[test]
fn ranks_that_wait_for_ever_are_found() {
    let few = Setup { zero: ZERO_3, ..Setup::default() };
    let many = Setup { num_microbatches: 6, ..few.clone() };
    let mesh = few.parallelism().mesh().unwrap();
    let world = World::new(&mesh, |rank| {
        let coord = mesh.coord(rank);
        let setup = if coord.along(Axis::Tp) == 0 && coord.along(Axis::DpInner) == 1 { &many } else { &few };
        setup.programs().swap_remove(coord.along(Axis::Pp))
    });
    let violations = world.verify().unwrap_err();
    assert_eq!(violations[0].rule, Rule::Progress);
    assert!(violations[0].message.contains("rank 2 waits at instruction "), "{violations:?}");
}
