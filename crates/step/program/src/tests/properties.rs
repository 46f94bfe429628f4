//! Properties of random runs: what is compiled verifies and computes what a plain loop does; what is damaged is
//! refused, or does no harm.

use crate::tests::random::{MicrobatchOrder, Random, damage, schedule};
use crate::tests::setup::{KINDS, OFFLOADS, RECOMPUTES, Setup, small_sizes, zero_forms};
use crate::tests::{oracle, reference};
use crate::{ContributionOrder, Demands, Program, Purpose, Schedule, Verified, Violation, link, verify};
use config::{Overlap, TopQuery};
use proptest::prelude::*;

fn setups() -> impl Strategy<Value = Setup> {
    let sizes = (1usize..=4, 0usize..5, 1usize..7);
    let choices = (
        any::<bool>(),
        any::<bool>(),
        (any::<bool>(), 0..OFFLOADS.len()),
        0..KINDS.len(),
        0..zero_forms().len(),
        0..RECOMPUTES.len(),
        0..4usize,
    );
    (sizes, choices).prop_map(|((pp, more_layers, num_microbatches), choices)| {
        let (tied, learned_positions, (top_query, offload), kind, zero, recompute, purpose) = choices;
        let kind = KINDS[kind];
        Setup {
            // The first and the last stage may have no layer.
            num_layers: (pp * kind.stages_per_rank()).saturating_sub(2) + more_layers,
            tied,
            learned_positions,
            top_query: if top_query { TopQuery::On } else { TopQuery::Off },
            pp,
            num_microbatches: num_microbatches.next_multiple_of(kind.microbatch_group(pp)),
            kind,
            zero: zero_forms()[zero],
            recompute: RECOMPUTES[recompute],
            purpose: [Purpose::Train, Purpose::Train, Purpose::Evaluate, Purpose::Generate][purpose],
            stage_layers: None,
            offload: OFFLOADS[offload],
        }
    })
}

fn check(programs: Vec<Program>, setup: &Setup, order: ContributionOrder) -> Result<Verified, Vec<Violation>> {
    let demands = Demands { capacity_bytes: None, order, overlap: Overlap::Off };
    verify(link(programs)?, &small_sizes(setup), demands)
}

/// Runs with several interleavings of ranks; all give what a plain loop gives.
fn agrees(verified: &Verified, seed: u64) -> Result<(), TestCaseError> {
    let view = &verified.programs()[0].view;
    for seed in seed..seed + 3 {
        let outcome = oracle::run(verified, seed);
        let outcome = outcome.map_err(|fault| TestCaseError::fail(fault.0))?;
        if view.purpose != Purpose::Generate {
            prop_assert_eq!(&outcome, &reference::reference(view));
        }
    }
    Ok(())
}

/// More stages than ranks, under any stage map, with whole and split backwards.
fn random_programs(setup: &mut Setup, seed: u64, order: MicrobatchOrder) -> (Schedule, Vec<Program>) {
    let num_stages = setup.pp + Random(seed).below((setup.num_layers + 3).saturating_sub(setup.pp));
    let schedule = schedule(seed, setup.pp, num_stages, setup.num_microbatches, order);
    let programs = setup.compile_schedule(&schedule);
    (schedule, programs)
}

proptest! {
    // A failing case prints its seed; nothing is written next to the sources.
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn known_schedules_verify_and_compute_what_a_loop_does(setup in setups(), seed in any::<u64>()) {
        let verified = check(setup.programs(), &setup, ContributionOrder::Ascending);
        let verified = verified.map_err(|violations| TestCaseError::fail(format!("{violations:#?}")))?;
        agrees(&verified, seed)?;
    }

    #[test]
    fn random_schedules_verify_and_compute_what_a_loop_does(
        mut setup in setups(), seed in any::<u64>(), ascending in any::<bool>(),
    ) {
        let (made, allowed) = match ascending {
            true => (MicrobatchOrder::Ascending, ContributionOrder::Ascending),
            false => (MicrobatchOrder::Any, ContributionOrder::Any),
        };
        let (schedule, programs) = random_programs(&mut setup, seed, made);
        let verified = check(programs, &setup, allowed);
        let verified = verified.map_err(|violations| TestCaseError::fail(format!("{schedule}{violations:#?}")))?;
        agrees(&verified, seed)?;
    }

    #[test]
    fn damaged_programs_are_refused_or_harmless(mut setup in setups(), seed in any::<u64>()) {
        let (schedule, mut programs) = random_programs(&mut setup, seed, MicrobatchOrder::Any);
        let intact = programs.clone();
        let what = damage(&mut programs, &mut Random(seed));
        if let Ok(verified) = check(programs, &setup, ContributionOrder::Any) {
            let agreed = agrees(&verified, seed);
            prop_assert!(agreed.is_ok(), "{} is accepted: {:?}\n{}{}", what, agreed, schedule, intact[0]);
        }
    }
}
