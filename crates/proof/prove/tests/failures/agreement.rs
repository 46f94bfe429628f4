//! Ranks that are set up for different runs find out before the first step.

use config::{Parallelism, ScheduleKind, TrainSpec};
use mesh::Rank;
use train::{Ports, Setup, ThreadEngine, TrainError, run_ranks};

use crate::failures::rig::{NEVER, Silent, TOKENS, eight_ranks, model, threads, train_spec};

/// Runs `strange` on the ranks `strangers` and the usual setup on all others, in one world; the results of the two.
fn run_both(strange: &Setup, strangers: &[usize]) -> [Result<(), TrainError>; 2] {
    let usual = eight_ranks();
    let engine: ThreadEngine = threads(&usual, NEVER);
    let run = |setup: &Setup, is_wanted: &dyn Fn(&Rank) -> bool| {
        let ranks: Vec<Rank> = setup.mesh.ranks().filter(is_wanted).collect();
        run_ranks(setup, &engine, Ports::new(&TOKENS, &Silent), ranks.into_iter()).map(drop)
    };
    std::thread::scope(|scope| {
        let strange = scope.spawn(|| run(strange, &|rank| strangers.contains(&rank.0)));
        let usual = run(&usual, &|rank| !strangers.contains(&rank.0));
        [usual, strange.join().unwrap()]
    })
}

#[test]
fn ranks_of_another_run_are_named_to_all() {
    let parallelism = eight_ranks().parallelism;
    let gpipe = Parallelism { schedule: ScheduleKind::GPipe.into(), ..parallelism.clone() };
    let longer = TrainSpec { steps: 4, ..train_spec() };
    let other_schedule = Setup::new(model(), gpipe, train_spec()).unwrap();
    let other_training = Setup::new(model(), parallelism.clone(), longer).unwrap();
    for (strange, strangers, named) in [
        (&other_schedule, vec![5], "rank 5 is set up for another run than rank 0"),
        (&other_training, vec![2, 7], "ranks 2, 7 are set up for another run than rank 0"),
        (&other_training, vec![0], "ranks 1, 2, 3, 4, 5, 6, 7 are set up for another run than rank 0"),
    ] {
        for told in run_both(strange, &strangers) {
            let TrainError::Prepare(message) = told.expect_err("they differ") else {
                panic!("not refused before the run")
            };
            assert!(message.starts_with(named) && message.contains("the same run file"), "{message}");
        }
    }
}

#[test]
fn ranks_of_the_same_run_agree() {
    let same = eight_ranks();
    for told in run_both(&same, &[3, 4]) {
        told.expect("a run of three steps");
    }
}
