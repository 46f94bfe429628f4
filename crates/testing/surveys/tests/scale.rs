//! The program `scale` on 128 and 256 ranks: its parts get to their ends, with the counts of such a run.

use std::process::{Command, Output};

fn scale(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_survey")).arg("scale").args(arguments).output().expect("the program starts")
}

/// The figure `name` of a part of `ranks` ranks.
fn figure(part: &str, ranks: &str, name: &str) -> f64 {
    let output = scale(&["one", part, ranks]);
    let (text, failure) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{part}: {failure}");
    let figures = surveys::scale::parsed(&text).expect("figures");
    figures.into_iter().find(|(known, _)| known == name).expect("the figure").1
}

#[test]
fn programs_grow_with_ranks() {
    for part in ["programs", "sharded-programs"] {
        assert_eq!(figure(part, "256", "instructions"), 2.0 * figure(part, "128", "instructions"), "{part}");
    }
}

#[test]
fn the_meeting_has_a_connection_for_each_process() {
    let more = figure("meeting", "256", "descriptors") - figure("meeting", "128", "descriptors");
    assert_eq!(more, 128.0);
}

#[test]
fn records_of_all_ranks_are_a_checkpoint_of_the_whole_model() {
    for part in ["records", "sharded-records"] {
        assert_eq!(figure(part, "256", "files"), 256.0);
        // Weights and two moments of 405,853,388,800 parameters in single precision, and headers.
        let data = figure(part, "256", "data_bytes");
        let numbers = 405_853_388_800.0 * 12.0;
        assert!(data > numbers && data < numbers * 1.001, "{part}: {data}");
    }
}

#[test]
fn ranks_without_whole_replicas_are_refused() {
    let refused = scale(&["one", "programs", "200"]);
    assert!(!refused.status.success());
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(message.contains("ranks must be a multiple of 128; got 200"), "{message}");
}

#[test]
fn processes_that_do_not_come_are_an_error() {
    // Nothing listens at the port of process 0.
    let refused = scale(&["joining-processes", "1", "1", "2", "3"]);
    assert!(!refused.status.success());
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(message.contains("processes from 1 on: "), "{message}");
}
