//! Hundreds of ranks on one machine, as threads and as processes: a step, a checkpoint, and its end in other processes.
//!
//! CI runs 256 ranks in 8 processes. The command for 1,024 in 16 processes, as threads and in 64 processes is
//!
//! ```sh
//! PLEACH_CASES=1024 cargo test --release -p cli --test suite processes::many_ranks -- --nocapture
//! ```

use std::process::Output;
use std::time::Instant;

use crate::harness::several::{Folder, succeeds};
use crate::harness::{pleach, stdout};

/// tp 4, pp 4, and one sequence for each replica: a step computes next to nothing, so that ranks and messages are all
/// of it.
const KEYS: &[&str] = &[
    "model.num_layers=4",
    "model.hidden=32",
    "model.num_heads=4",
    "model.context=16",
    "model.dropout=0",
    "data.tokenizer=bytes",
    "data.held_out=0.001",
    "parallelism.tp=4",
    "parallelism.pp=4",
    "parallelism.microbatch_size=1",
    "train.steps=2",
    "run.rendezvous_seconds=600",
    "run.heartbeat_seconds=120",
];

struct Runs {
    folder: Folder,
    ranks: usize,
}

impl Runs {
    /// A run of two steps in `processes` processes, or on threads.
    fn run(&self, name: &str, processes: usize, keys: &[&str]) {
        let dp = self.ranks / 16;
        let own = [self.folder.run(name), format!("parallelism.dp={dp}"), format!("train.global_batch={dp}")];
        let keys = KEYS.iter().chain(keys).copied().chain(own.iter().map(String::as_str));
        let settings: Vec<&str> = keys.flat_map(|key| ["--set", key]).collect();
        self.started(name, processes, &[&["train"], &settings[..]].concat());
    }

    /// A third step of `name`, from its checkpoint.
    fn resume(&self, name: &str, processes: usize) {
        self.started(name, processes, &["train", "--resume", &self.folder.path(name), "--set", "train.steps=3"]);
    }

    fn started(&self, name: &str, processes: usize, command: &[&str]) {
        let number = processes.to_string();
        let launched = [&["launch", "--nproc", &number, "--"], command].concat();
        let started = Instant::now();
        let output: Output = if processes == 1 { pleach(command) } else { pleach(&launched) };
        succeeds(&output);
        let memory = stdout(&output).lines().rfind(|line| line.starts_with("memory")).unwrap_or("").to_string();
        let seconds = started.elapsed().as_secs_f64();
        eprintln!("{} {name}, {} ranks in {number} processes: {seconds:.1} s, {memory}", command[0], self.ranks);
    }

    fn are_equal(&self, one: &str, other: &str) {
        assert_eq!(self.folder.losses(one).last(), self.folder.losses(other).last(), "{one} and {other}");
        assert!(self.folder.weights(one) == self.folder.weights(other), "weights of {one} and {other}");
    }
}

#[test]
fn hundreds_of_ranks_have_the_bits_of_threads_and_resume() {
    let ranks = needs::cases!(256);
    let runs = Runs { folder: Folder::new("many"), ranks };
    runs.run("threads", 1, &[]);
    let (processes, others): (usize, &[usize]) = if ranks > 256 { (16, &[64]) } else { (8, &[]) };
    runs.run("processes", processes, &[]);
    runs.are_equal("threads", "processes");
    runs.resume("processes", processes);
    runs.resume("threads", 1);
    runs.are_equal("threads", "processes");
    for number in others {
        runs.run("others", *number, &[]);
        runs.resume("others", *number);
        runs.are_equal("threads", "others");
    }
}
