//! The first few trials of what `docs/reliability.md` shows; the program `reliability` does all of them. And trials in
//! which nothing is shown, which must fail.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::Command;

use surveys::reliability::{
    Kept, Reference, Report, Role, Shown, StartChild, flipped_bits, full_disks, kills, layouts, locks, pairs, stops,
    vanished_folders, wrong_files,
};
use testkit::faulty_disk::FaultyDisk;

/// Set in children of these tests: the words of their role, one a line.
const ROLE: &str = "PLEACH_TEST_PART";

/// The body of a child.
fn perform(words: &str) {
    let words: Vec<String> = words.lines().map(String::from).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [ABORTS] => {
            println!("{}", Report::Step { loss: 1.0 });
            std::process::abort();
        }
        [CLAIMS_AND_ENDS, ref reports @ ..] => reports.iter().for_each(|report| println!("{report}")),
        [CLAIMS, ref reports @ ..] => {
            reports.iter().for_each(|report| println!("{report}"));
            loop {
                std::thread::park();
            }
        }
        _ => Role::parse(&words).expect("a role").perform().expect("performed"),
    }
}

/// A child that ends by itself after a step, with a signal.
const ABORTS: &str = "aborts";
/// A child that reports lines that it was given, and waits.
const CLAIMS: &str = "claims";
/// A child that reports lines that it was given, and ends.
const CLAIMS_AND_ENDS: &str = "claims-and-ends";

fn start_with(words: &[String]) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["--exact", "reliability::faults_are_survived", "--nocapture", "--test-threads", "1"])
        .env(ROLE, words.join("\n"));
    Ok(command)
}

fn start(role: &Role) -> std::io::Result<Command> {
    start_with(&role.words())
}

fn held(shown: Shown, trials: usize) {
    assert_eq!(shown.failures, [""; 0], "{} {}", shown.number, shown.demand);
    assert!(shown.trials >= trials, "{}: {} trials", shown.number, shown.trials);
}

/// In a child this test is its body.
#[test]
fn faults_are_survived() {
    match std::env::var(ROLE) {
        Ok(words) => perform(&words),
        Err(_) => survive_faults(),
    }
}

fn survive_faults() {
    let (reference, kept) = (Reference::new().unwrap(), Kept::default());
    let killed = kills(&reference, 6, &start, &kept).unwrap();
    assert!(killed.seen.starts_with("6 children died of the kill, 0 had ended before"), "{}", killed.seen);
    held(killed, 6);
    let flipped = flipped_bits(&reference, 40, &kept).unwrap();
    assert_eq!(flipped.seen, "9 files", "a manifest, and one file for each of eight ranks, for each holds a shard");
    held(flipped, 40);
    held(wrong_files(&reference).unwrap(), 36);
    held(full_disks(&reference, 4, &kept).unwrap(), 4);
    held(vanished_folders(&reference, 2, &kept).unwrap(), 2);
    held(stops(&reference, 3, &kept).unwrap(), 3);
    held(locks(2, &start, &kept).unwrap(), 2);
}

#[test]
fn every_pair_keeps_the_promise_of_its_class() {
    let pairs = pairs();
    assert!(pairs.len() >= 24, "{} pairs", pairs.len());
    held(layouts(&pairs, &Kept::default()).unwrap(), pairs.len());
}

/// Two trials of R3 and of R19 with children that are not what they should be: each must fail for this reason.
fn found(child: &StartChild<'_>, words: &str) {
    let (reference, kept) = (Reference::new().unwrap(), Kept::default());
    let shown = kills(&reference, 2, child, &kept).unwrap();
    assert_eq!(shown.failures.len(), 2, "{shown:?}");
    assert!(shown.failures.iter().all(|failure| failure.contains(words)), "`{words}` was expected; got {shown:?}");
}

#[test]
fn children_that_never_start_are_no_kills() {
    let words = "the child had ended before (exit status: 101), in each of 3 trials";
    found(&|_| start_with(&["trian".into()]), words);
    let locks = locks(1, &|_| start_with(&["trian".into()]), &Kept::default()).unwrap();
    assert!(locks.failures.len() == 1 && locks.failures[0].contains(words), "{locks:?}");
    found(&|_| Ok(Command::new("/no/such/program")), "No such file");
}

#[test]
fn children_that_end_by_themselves_are_no_kills() {
    let undisturbed = |role: &Role| match role {
        Role::Train { folder, .. } => start(&Role::Train { folder: folder.clone(), bytes: FaultyDisk::PLENTY }),
        Role::Hold { .. } => start(role),
    };
    found(&undisturbed, "the child had ended before (exit status: 0), in each of 3 trials");
    found(&|_| start_with(&[ABORTS.into()]), "the child had ended before (signal: 6");
}

/// A child that dies of the kill, but trained nothing, or something else.
#[test]
fn kills_before_the_first_step_and_steps_of_another_run_are_found() {
    let halted = Report::Halted { access: "data".into() };
    let claims = |role: &str, reports: &[Report]| {
        let words: Vec<String> = [role.into()].into_iter().chain(reports.iter().map(Report::to_string)).collect();
        move |_: &Role| start_with(&words)
    };
    let untrained = claims(CLAIMS_AND_ENDS, std::slice::from_ref(&halted));
    found(&untrained, "the child had ended before (exit status: 0), in each of 3 trials");
    let another = claims(CLAIMS, &[Report::Step { loss: 1.0 }, halted]);
    found(&another, "before the kill, the loss of step 1 must be that of the undisturbed run; got 1");
}
