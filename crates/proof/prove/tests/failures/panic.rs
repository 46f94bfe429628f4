//! A rank that panics, or whose device fails.

use mesh::{Axis, Rank};

use crate::failures::faulty_engine::{Fault, faulty};
use crate::failures::rig::{NEVER, eight_ranks, failure_of, threads};

/// Whichever rank panics, in whatever operation: the error names it with its step and instruction, and nobody waits for
/// it. Deadlines are an hour, so a rank that was not informed would be noticed.
#[test]
fn a_panic_is_told_with_rank_step_and_instruction() {
    let setup = eight_ranks();
    for (rank, nth) in [(0, 150), (3, 200), (5, 400), (7, 700)] {
        let rank = Rank(rank);
        let engine = faulty(threads(&setup, NEVER), rank, nth, Fault::Panics);
        let failure = failure_of(&setup, &engine);
        let program = setup.program(setup.mesh.coord(rank).along(Axis::Pp));
        assert_eq!(failure.rank, rank);
        assert!((1..=3).contains(&failure.step), "{failure}");
        assert!(program.instrs.iter().any(|instr| instr.to_string() == failure.instruction), "{failure}");
        assert!(failure.cause.starts_with("panicked: a kernel has gone wrong in "), "{failure}");
        let arrows: Vec<&str> = failure.excerpt.lines().filter(|line| line.contains("-->")).collect();
        assert!(arrows.len() == 1 && arrows[0].ends_with(&failure.instruction), "{failure}");
        let told = failure.to_string();
        let start = format!("{rank} failed in step {} at \"{}\": panicked: ", failure.step, failure.instruction);
        assert!(told.starts_with(&start), "{told}");
    }
}

#[test]
fn a_panic_while_weights_are_drawn_is_told_without_an_instruction() {
    let setup = eight_ranks();
    // The first operation clears what the weights are drawn into.
    let engine = faulty(threads(&setup, NEVER), Rank(6), 1, Fault::Panics);
    let told = failure_of(&setup, &engine).to_string();
    assert_eq!(told, "rank 6 failed before the first step: panicked: a kernel has gone wrong in initialize_normal");
}

#[test]
fn an_error_of_a_device_is_told_like_a_panic() {
    let setup = eight_ranks();
    let engine = faulty(threads(&setup, NEVER), Rank(2), 200, Fault::Fails);
    let failure = failure_of(&setup, &engine);
    assert_eq!(failure.rank, Rank(2));
    assert!(failure.cause.ends_with("a shape that no kernel takes") && failure.excerpt.contains("-->"), "{failure}");
}
