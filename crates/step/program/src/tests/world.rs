//! All ranks of a mesh with programs of their own: what one rank does otherwise than its peers is found and named.

use crate::{Instr, PeerGroup, PeerGroups, Program, Rule, World, WorldRank, WorldStep};
use config::{GradientReduction, Microbatch, ScheduleKind, Unit, UnitClass, ZeroStage};
use mesh::{Axis, AxisSet, Mesh, Rank};

use crate::tests::setup::{Setup, ZERO_3};

/// The world of `mesh` in which each rank of `setup` brings what `change` makes of its part.
fn world(setup: &Setup, mesh: &Mesh, change: impl Fn(Rank, &mut WorldRank)) -> Result<WorldStep, (Rule, String)> {
    let (programs, sizes, groups) = (setup.programs(), setup.sizes(), setup.groups());
    let mut world = World::default();
    for rank in mesh.ranks() {
        let program = programs[mesh.coord(rank).along(Axis::Pp)].clone();
        let mut own = WorldRank { program, sizes: sizes.clone(), peers: groups.of(rank) };
        change(rank, &mut own);
        world.add(own);
    }
    world.verify().map_err(|violations| (violations[0].rule, violations[0].message.clone()))
}

/// Of `setup`, where `rank` alone is changed.
fn with_changed(
    setup: &Setup,
    rank: usize,
    change: impl Fn(&Mesh, &mut WorldRank),
) -> Result<WorldStep, (Rule, String)> {
    let mesh = setup.parallelism().mesh().unwrap();
    world(setup, &mesh, |other, own| {
        if other.0 == rank {
            change(&mesh, own);
        }
    })
}

/// Returns the same as [`with_changed`], where the rank's program is changed.
fn verified(setup: &Setup, rank: usize, change: impl Fn(&mut Program)) -> Result<WorldStep, (Rule, String)> {
    with_changed(setup, rank, |_, own| change(&mut own.program))
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
            assert_eq!(step.programs, pp as u64, "peers compile equal programs");
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
    assert_eq!(
        (rule, message.as_str()),
        (Rule::Gradients, "pipeline of rank 3, pipeline rank 0: `gradient norm` is missing")
    );
}

/// Each replica of the pipeline is sound, but the one with more microbatches gathers more often than its peers.
#[test]
fn a_replica_with_more_microbatches_is_found() {
    let few = Setup { zero: ZERO_3, ..Setup::default() };
    let many = Setup { num_microbatches: 6, ..few.clone() };
    let mesh = few.parallelism().mesh().unwrap();
    let (rule, message) = world(&few, &mesh, |rank, own| {
        let coord = mesh.coord(rank);
        if coord.along(Axis::Tp) == 0 && coord.along(Axis::DpInner) == 1 {
            own.program = many.programs().swap_remove(coord.along(Axis::Pp));
        }
    })
    .unwrap_err();
    assert_eq!(rule, Rule::Collectives);
    assert!(message.contains("and rank 6, of the same group, "), "{message}");
}

/// Rank 5 waits for the second activation before it sends the first gradient, for which rank 1 waits; all others wait
/// for the two.
#[test]
fn ranks_that_wait_for_ever_are_found() {
    let setup = Setup { num_microbatches: 2, ..Setup::default() };
    let programs = setup.compile_schedule(&"0F0 0B0 0F1 0B1\n1F0 1B0 1F1 1B1".parse().unwrap());
    let mesh = setup.parallelism().mesh().unwrap();
    let (rule, message) = world(&setup, &mesh, |rank, own| {
        own.program = programs[mesh.coord(rank).along(Axis::Pp)].clone();
        if rank.0 == 5 {
            let (unit, [first, second]) = (Unit::Layer(1), [Microbatch(0), Microbatch(1)]);
            let receive = position(&own.program, Instr::RecvAct { unit, microbatch: second });
            own.program.instrs.remove(receive);
            let send = position(&own.program, Instr::SendGrad { unit, microbatch: first });
            own.program.instrs.insert(send, Instr::RecvAct { unit, microbatch: second });
        }
    })
    .unwrap_err();
    assert_eq!(rule, Rule::Progress);
    assert!(message.contains("rank 5 waits at instruction 11, `receive output of layer 1, microbatch 1`"), "{message}");
    assert!(
        message.contains("rank 1 waits at instruction 5, `receive gradient of layer 1, microbatch 0`"),
        "{message}"
    );
}

/// Rank 3 of dp 2 x tp 2 x pp 2 takes the groups of another rank, one at a time.
#[test]
fn a_rank_with_the_group_of_another_is_found() {
    for which in Setup::default().groups().iter() {
        let name = &which.to_string();
        // No group of rank 4 has rank 3 as a member.
        let (rule, message) = with_changed(&Setup::default(), 3, |_, own| {
            let other = Setup::default().groups().of(Rank(4)).group(which).unwrap().clone();
            own.peers = own.peers.clone().with(which, other);
        })
        .unwrap_err();
        assert_eq!(rule, Rule::Collectives, "{name}: {message}");
        assert!(message.contains(name) && message.contains("rank 3"), "{name}: {message}");
    }
}

/// Rank 1 is in the group that it names, but its peers name other members.
#[test]
fn a_group_that_its_members_do_not_share_is_found() {
    let (rule, message) = with_changed(&Setup::default(), 1, |_, own| {
        let tensor = own.peers.group(PeerGroup::TENSOR).unwrap().clone();
        own.peers = own.peers.clone().with(PeerGroup::SHARDS, tensor);
    })
    .unwrap_err();
    assert_eq!(
        (rule, message.as_str()),
        (Rule::Collectives, "the sharding group of rank 1 is ranks 0, 1; that of rank 0, a member, is ranks 0, 2")
    );
}

#[test]
fn a_rank_that_runs_the_program_of_another_stage_is_found() {
    let setup = Setup::default();
    let (rule, message) = verified(&setup, 5, |program| *program = setup.programs().swap_remove(0)).unwrap_err();
    assert_eq!(rule, Rule::Collectives);
    assert!(message.contains("rank 5 is at position 1 of its pipeline and must run the program of"), "{message}");
}

#[test]
fn a_rank_whose_values_have_other_sizes_is_found() {
    let setup = Setup { zero: ZERO_3, ..Setup::default() };
    let (rule, message) =
        with_changed(&setup, 3, |_, own| own.sizes.units[UnitClass::Layer(0)].gathered += 64).unwrap_err();
    assert_eq!(rule, Rule::Collectives, "{message}");
    assert!(message.contains("rank 3") && message.contains("bytes, and rank"), "{message}");
    let (rule, message) =
        with_changed(&setup, 3, |_, own| own.sizes.footprints.units[UnitClass::Layer(0)].output_bytes -= 64)
            .unwrap_err();
    assert_eq!(rule, Rule::Pairs, "{message}");
    assert!(message.contains("bytes of the output of layer 1, microbatch 0 where rank 7 receives"), "{message}");
}

/// One axis of one parameter, on one rank.
#[test]
fn a_rank_that_reduces_over_fewer_axes_is_found() {
    let (rule, message) = verified(&Setup::default(), 6, |program| {
        let reduction = |instr: &&mut Instr| matches!(**instr, Instr::ReduceGrads { unit: Unit::Layer(3), .. });
        let Some(Instr::ReduceGrads { axes, .. }) = program.instrs.iter_mut().find(reduction) else { panic!() };
        let fewer = axes.as_slice().iter().map(|axes| axes.without(Axis::Tp));
        *axes = crate::GradientAxes::new(fewer);
    })
    .unwrap_err();
    assert_eq!(rule, Rule::Gradients);
    let expected = "must sum the gradient of attention.query_norm.weight of layer 3 over dp_outer+dp_inner+cp+tp; got dp_outer+dp_inner+cp";
    assert!(message.starts_with("pipeline of rank 2, pipeline rank 1: ") && message.ends_with(expected), "{message}");
}

/// A program that shards along axes for which engines open no group.
#[test]
fn a_collective_over_axes_without_a_group_is_found() {
    let setup = Setup { zero: ZERO_3, ..Setup::default() };
    let mesh = setup.parallelism().mesh().unwrap();
    let others = PeerGroups::new(mesh, [AxisSet::of(Axis::DpOuter)]);
    let (rule, message) = world(&setup, &mesh, |rank, own| own.peers = others.of(rank)).unwrap_err();
    assert_eq!(rule, Rule::Collectives, "{message}");
    assert!(message.starts_with("rank 0, `gather parameters of "), "{message}");
    assert!(message.ends_with("it has no sharding group"), "{message}");
}

/// A layer that is sharded over the tensor-parallel ranks, which hold different parts of it.
#[test]
fn a_unit_that_is_sharded_over_other_axes_than_it_declares_is_found() {
    let setup = Setup { zero: ZERO_3, ..Setup::default() };
    let (rule, message) = verified(&setup, 5, |program| {
        program.view.axes[UnitClass::Layer(0)].shards = AxisSet::of(Axis::DpInner).with(Axis::Tp);
    })
    .unwrap_err();
    assert_eq!(rule, Rule::Gradients, "{message}");
    let expected = "must be reduced over dp_outer+dp_inner+cp and sharded over dp_inner+cp; got dp_outer+dp_inner+cp and dp_inner+tp";
    assert!(message.ends_with(expected), "{message}");
}
