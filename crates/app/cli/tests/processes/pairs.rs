//! `prove` and `diff` in several processes: verdicts, hashes and values are those of threads.

use std::fs;

use crate::harness::several::{Folder, launched, succeeds};
use crate::harness::{pleach, stderr, stdout};

const TP_PP: &str = "[parallelism]\ntp = 2\npp = 2\nmicrobatch_size = 1\n";
const DP: &str = "[parallelism]\ndp = 4\ntp = 1\npp = 1\nzero = 2\nmicrobatch_size = 1\n";
const ON_THREADS: &str = "[run]\nengine = \"threads\"\n";

/// The keys of both runs.
const KEYS: &[&str] = &[
    "model.num_layers=4",
    "model.hidden=16",
    "model.num_heads=2",
    "model.context=16",
    "data.tokenizer=bytes",
    "train.global_batch=4",
    "train.steps=4",
    "run.rendezvous_seconds=120",
    "run.heartbeat_seconds=60",
];

/// Run files of two layouts.
fn pair(folder: &Folder, layouts: [&str; 2]) -> [String; 2] {
    let mut names = ["a.toml", "b.toml"].into_iter();
    layouts.map(|layout| {
        let path = folder.path(names.next().expect("two names"));
        fs::write(&path, layout).expect("a run file");
        path
    })
}

/// The arguments of `command` for both runs.
fn of_pair<'a>(command: &'a str, [a, b]: &'a [String; 2], options: &[&'a str]) -> Vec<&'a str> {
    let keys = KEYS.iter().flat_map(|key| ["--set", key]);
    [command, a, b].into_iter().chain(options.iter().copied()).chain(keys).collect()
}

/// Whether `command` prints the same in each number of processes as in one.
fn is_the_same_in_processes(command: &[&str], numbers: &[&str]) -> String {
    let threads = pleach(command);
    for number in numbers {
        let output = launched(number, command);
        assert_eq!(output.status.code(), threads.status.code(), "{}", stderr(&output));
        assert_eq!(stdout(&output), stdout(&threads), "{command:?} in {number} processes");
        assert!(!stderr(&output).contains("[1]"), "only process 0 speaks: {}", stderr(&output));
    }
    stdout(&threads)
}

#[test]
fn a_proof_in_processes_is_that_of_threads() {
    let folder = Folder::new("prove");
    let files = pair(&folder, [TP_PP, DP]);
    let proof = is_the_same_in_processes(&of_pair("prove", &files, &["--json"]), &["2", "4"]);
    let proof: serde_json::Value = serde_json::from_str(&proof).expect("JSON");
    assert_eq!((&proof["holds"], &proof["same_bits"]), (&true.into(), &false.into()), "{proof}");
    assert!(proof["weights_xxh3"][0] != proof["weights_xxh3"][1], "{proof}");
}

#[test]
fn a_run_on_threads_is_proved_against_the_same_run_in_processes() {
    let folder = Folder::new("mixed");
    let on_threads = format!("{TP_PP}{ON_THREADS}");
    for files in [pair(&folder, [&on_threads, TP_PP]), pair(&folder, [TP_PP, &on_threads])] {
        let proof = is_the_same_in_processes(&of_pair("prove", &files, &[]), &["2", "4"]);
        assert!(proof.contains("3 steps: same bits, weights xxh3 "), "{proof}");
        let found = is_the_same_in_processes(&of_pair("diff", &files, &[]), &["4"]);
        assert!(found.contains("no difference; "), "{found}");
    }
}

#[test]
fn the_first_difference_in_processes_is_that_of_threads() {
    let folder = Folder::new("diff");
    let files = pair(&folder, [TP_PP, DP]);
    for format in [&[][..], &["--json"]] {
        let found = is_the_same_in_processes(&of_pair("diff", &files, format), &["2", "4"]);
        assert!(found.contains("rank"), "{found}");
    }
}

#[test]
fn processes_that_fit_one_run_only_are_refused() {
    let folder = Folder::new("worlds");
    let six = "[parallelism]\ndp = 1\npp = 6\ntp = 1\nmicrobatch_size = 1\n";
    let files = pair(&folder, [TP_PP, six]);
    // Of one key that is set twice the last value counts.
    let command = [&of_pair("prove", &files, &[])[..], &["--set", "model.num_layers=6"]].concat();
    let output = launched("4", &command);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let expected = "pleach launch: 4 processes must divide the 8 ranks of one run and the 6 of the other; start 1 or 2 processes, or \
                    keep a run in process 0 with run.engine = \"threads\"\n";
    assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    succeeds(&launched("2", &command));
}
