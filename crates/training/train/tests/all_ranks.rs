//! Every rank compiled and placed by itself: what one rank gets wrong is found and named, and so is what all get wrong.

#![expect(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test may stop at once")]

use config::{ModelCoord, RunConfig};
use mesh::{Axis, AxisSet, Rank};
use program::{PeerGroup, Rule, Violation, WorldStep};
use train::{Assignment, Assignments, Setup, SetupError, ShardPlace, StepOrder, WorkloadIndex, verify_all_ranks};

/// dp 4 x tp 2 x pp 2: rank 8 pp + 2 dp + tp.
fn setup(overrides: &[&str]) -> Setup {
    let fixed = [
        "model.vocabulary=1031",
        "train.sequence_length=16",
        "train.global_batch=16",
        "parallelism.dp=4",
        "parallelism.tp=2",
        "parallelism.pp=2",
        "parallelism.microbatch_size=2",
    ];
    let overrides: Vec<String> = fixed.iter().chain(overrides).map(ToString::to_string).collect();
    let RunConfig { model, parallelism, train, .. } = RunConfig::load("", "", &overrides).unwrap();
    Setup::with_evaluation(model, parallelism, train, 24).unwrap()
}

/// The step of all ranks, each of which brings what `change` makes of its assignment.
fn verified(
    setup: &Setup,
    workload: WorkloadIndex,
    change: impl Fn(usize, &mut Assignment) + Sync,
) -> Result<WorldStep, Vec<Violation>> {
    let order = StepOrder::new(&setup.model, &setup.parallelism, &setup.train).unwrap();
    let assignments = Assignments::new(setup, workload, &order).unwrap();
    let step = verify_all_ranks(setup, workload, |rank| {
        let mut own = assignments.of(rank)?;
        change(rank.0, &mut own);
        Ok(own)
    });
    step.map_err(|error| match error {
        SetupError::Refused(violations) => violations,
        error => panic!("{error}"),
    })
}

/// Rank `changed` alone brings something else; the violations must be of `rule`, and one of them must contain
/// `expected`.
fn finds(setup: &Setup, changed: usize, change: impl Fn(&mut Assignment) + Sync, (rule, expected): (Rule, &str)) {
    let violations = verified(setup, WorkloadIndex::MAIN, |rank, own| {
        if rank == changed {
            change(own);
        }
    })
    .unwrap_err();
    assert!(violations.iter().all(|violation| violation.rule == rule), "{violations:#?}");
    assert!(violations.iter().any(|violation| violation.message.contains(expected)), "{expected}: {violations:#?}");
}

const GROUPED: &str = "parallelism.shard_group=2";

fn zero(stage: u32) -> String {
    format!("parallelism.zero={stage}")
}

#[test]
fn ranks_that_are_placed_by_themselves_fit_together() {
    for stage in 0..4 {
        for more in [&[][..], &[GROUPED], &["parallelism.sequence_parallel=true"], &["model.tied_embeddings=false"]] {
            if stage == 0 && more == [GROUPED] {
                continue;
            }
            let zero = zero(stage);
            let overrides: Vec<&str> = std::iter::once(zero.as_str()).chain(more.iter().copied()).collect();
            let setup = setup(&overrides);
            for workload in setup.workload_indices() {
                let step =
                    verified(&setup, workload, |_, _| {}).unwrap_or_else(|found| panic!("{overrides:?}: {found:#?}"));
                assert_eq!(step.programs, 2, "one for each stage");
                let of_stages: usize = (0..2).map(|stage| setup.program_of(workload, stage).instrs.len()).sum();
                assert_eq!(step.instructions, 8 * of_stages as u64);
            }
        }
    }
}

#[test]
fn a_rank_that_reads_the_sequences_of_another_replica_is_found() {
    let setup = setup(&[]);
    finds(
        &setup,
        5,
        |own| own.sequences.replica = 1,
        (
            Rule::Batch,
            "rank 5 must read the sequences of rank 4, of its tensor-parallel group: 8 to 11 in 2 microbatches; got 4 to 7",
        ),
    );
    finds(
        &setup,
        12,
        |own| own.sequences.replica = 3,
        (Rule::Batch, "rank 12 must read the sequences of rank 4, of its pipeline"),
    );
    finds(&setup, 3, |own| own.sequences.microbatch_size = 1, (Rule::Batch, "rank 3 must read"));
}

/// All ranks of a model replica agree, so that only the batch as a whole is wrong.
#[test]
fn a_replica_that_reads_the_sequences_of_another_is_found() {
    let setup = setup(&[]);
    let violations = verified(&setup, WorkloadIndex::MAIN, |rank, own| {
        if [4, 5, 12, 13].contains(&rank) {
            own.sequences.replica = 1;
        }
    })
    .unwrap_err();
    let messages: Vec<&str> = violations.iter().map(|violation| violation.message.as_str()).collect();
    assert_eq!(
        messages,
        [
            "sequences 4 to 5 of the step are read by rank 2 and by rank 4",
            "sequences 6 to 7 of the step are read by rank 2 and by rank 4",
            "sequences 8 to 11 of the step are read by no rank",
        ]
    );
}

/// With groups of two, the position in the group is not the position among all replicas.
#[test]
fn ranks_that_take_the_wrong_axis_for_the_replica_are_found() {
    let (setup, mesh) = (setup(&["parallelism.zero=1", GROUPED]), setup(&["parallelism.zero=1", GROUPED]).mesh);
    let violations = verified(&setup, WorkloadIndex::MAIN, |rank, own| {
        own.sequences.replica = mesh.coord(Rank(rank)).position(AxisSet::of(Axis::DpInner));
    })
    .unwrap_err();
    assert!(
        violations.iter().any(|found| found.message == "sequences 8 to 15 of the step are read by no rank"),
        "{violations:#?}"
    );
}

#[test]
fn a_rank_that_holds_the_shard_of_another_is_found() {
    for (stage, expected) in [
        (0, "is stored by rank 4 and by rank 6"),
        (1, "rank 6 must keep part 1 of 2 of table"),
        (3, "is filled by rank 4 and by rank 6"),
    ] {
        let zero = zero(stage);
        let overrides = if stage == 0 { vec![zero.as_str()] } else { vec![zero.as_str(), GROUPED] };
        let setup = setup(&overrides);
        let other = setup.mesh.coord(Rank(4));
        let change = |own: &mut Assignment| {
            own.position.shards = ShardPlace::new(setup.parallelism.zero, other);
        };
        finds(&setup, 6, change, (Rule::Shards, expected));
    }
}

/// Both groups of two hold the same shards, of which each stores a part.
#[test]
fn a_rank_that_stores_the_part_of_another_group_is_found() {
    let setup = setup(&["parallelism.zero=1", GROUPED]);
    let other = setup.mesh.coord(Rank(0));
    let change = |own: &mut Assignment| {
        own.position.shards = ShardPlace::new(setup.parallelism.zero, other);
    };
    finds(&setup, 4, change, (Rule::Shards, "is stored by rank 0 and by rank 4"));
}

#[test]
fn a_rank_with_the_slice_of_its_tensor_parallel_peer_is_found() {
    for stage in [0, 3] {
        let setup = setup(&[&zero(stage)]);
        let peer = setup.mesh.coord(Rank(6));
        let change = |own: &mut Assignment| own.position.model = ModelCoord::new(peer);
        finds(&setup, 7, change, (Rule::Shards, "rank 7 must hold shard 1 of 2 of split parameters"));
        finds(&setup, 7, change, (Rule::Shards, "is filled by rank 6 and by rank 7"));
    }
}

#[test]
fn a_rank_with_the_groups_of_another_is_found() {
    let setup = setup(&[]);
    let with_group_of_6 = |own: &mut Assignment, which| {
        let group = setup.groups().of(Rank(6)).group(which).unwrap().clone();
        own.part.peers = own.part.peers.clone().with(which, group);
    };
    let expected = (Rule::Collectives, "rank 7 must be at position 3 of its sharding group; got ranks 0, 2, 4, 6");
    finds(&setup, 7, |own| with_group_of_6(own, PeerGroup::SHARDS), expected);
    let expected = (Rule::Collectives, "rank 7 must be at position 0 of its pipeline; got ranks 6, 14");
    finds(&setup, 7, |own| with_group_of_6(own, PeerGroup::PIPELINE), expected);
}

#[test]
fn a_rank_that_compiles_another_stage_is_found() {
    let setup = setup(&[]);
    let expected = (Rule::Collectives, "rank 9 is at position 1 of its pipeline and must run the program of");
    finds(&setup, 9, |own| own.part.program = setup.program(0).clone(), expected);
}

#[test]
fn a_rank_that_compiles_other_instructions_is_found() {
    let setup = setup(&["parallelism.zero=1"]);
    let swap = |own: &mut Assignment| {
        let len = own.part.program.instrs.len();
        // The updates and gathers of two layers.
        own.part.program.instrs.swap(len - 1, len - 3);
        own.part.program.instrs.swap(len - 2, len - 4);
    };
    finds(&setup, 3, swap, (Rule::Collectives, "rank 3"));
}

#[test]
fn a_rank_with_other_sizes_is_found() {
    let setup = setup(&[]);
    let change = |own: &mut Assignment| own.part.sizes.units[config::UnitClass::Layer(0)].accumulator += 64;
    finds(&setup, 3, change, (Rule::Collectives, "rank 3"));
}

/// dp 4, of which two neighbours divide experts, x pp 2: rank 4 pp + 2 dp + ep.
#[test]
fn ranks_that_divide_experts_fit_together() {
    let model = ["model.experts=4", "model.expert_hidden=32", "model.biases=\"attention\""];
    let spread = |more: &str| setup(&[&model[..], &["parallelism.tp=1", "parallelism.ep=2", more]].concat());
    for stage in 0..=3 {
        let setup = spread(&zero(stage));
        for workload in setup.workload_indices() {
            verified(&setup, workload, |_, _| ()).unwrap();
        }
        let peer = setup.mesh.coord(Rank(2));
        let change = |own: &mut Assignment| own.position.model = ModelCoord::new(peer);
        finds(&setup, 3, change, (Rule::Shards, "rank 3 must hold shard 1 of 2 of split parameters"));
    }
    let expected = (Rule::Batch, "of the step are read by rank 0 and by rank 1");
    finds(&spread(&zero(1)), 1, |own| own.sequences.replica = 0, expected);
}

/// dp 2, whose replicas divide experts, x cp 2 x tp 2 x pp 2: rank 8 pp + 4 cp + 2 ep + tp.
#[test]
fn ranks_that_divide_experts_and_share_sequences_and_matrices_fit_together() {
    let model = ["model.experts=8", "model.expert_hidden=32", "model.biases=\"attention\""];
    let degrees = ["parallelism.dp=2", "parallelism.cp=2", "parallelism.ep=2"];
    for stage in 0..=3 {
        let setup = setup(&[&model[..], &degrees, &[&zero(stage)]].concat());
        for workload in setup.workload_indices() {
            verified(&setup, workload, |_, _| ()).unwrap();
        }
        let peer = setup.mesh.coord(Rank(1));
        let change = |own: &mut Assignment| own.position.model = ModelCoord::new(peer);
        finds(&setup, 3, change, (Rule::Shards, "rank 3 must hold shard 1 of 2 of split parameters"));
    }
}

/// dp 2 x cp 2 x tp 2 x pp 2: rank 8 pp + 4 dp + 2 cp + tp.
#[test]
fn ranks_that_share_sequences_fit_together() {
    let shared = |more: &str| setup(&["parallelism.dp=2", "parallelism.cp=2", more]);
    for stage in 0..=3 {
        let setup = shared(&zero(stage));
        for workload in setup.workload_indices() {
            verified(&setup, workload, |_, _| ()).unwrap();
        }
    }
    let expected = (Rule::Batch, "rank 2 must read the tokens of position 1 of a sequence; got 0");
    finds(&shared(&zero(1)), 2, |own| own.position.slice = 0, expected);
    let expected = (Rule::Batch, "rank 2 must read the sequences of rank 0, of its context-parallel group: 0 to 7");
    finds(&shared(&zero(1)), 2, |own| own.sequences.replica = 1, expected);
}
