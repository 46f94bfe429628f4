//! A run, from a run file to its last step: places of files, processes, text, checkpoints, records and launches.
//!
//! [`Run`] is the road of every training, for the command and for Rust programs: [`Run::open`] reads what a
//! [`TrainSpec`] asks for, and [`Run::train`] does it and tells an [`Observer`].

#![forbid(unsafe_code)]

pub mod description;
pub mod failure;
pub mod folder;
pub mod gpus;
pub mod launch;
mod layout;
pub mod memory;
pub mod messages;
mod peer_memory;
pub mod places;
pub mod presets;
pub mod process_group;
pub mod records;
pub mod run_file;
pub mod signal;
pub mod signals;
pub mod source;
pub mod spec;
pub mod store;
pub mod text;
mod training;
pub mod verdict;
mod watch;

pub use failure::Failure;
pub use run_file::RunFile;
pub use spec::{Origin, TrainSpec};
pub use training::event_log::WARNING;
pub use training::observer::{EndedStep, Measured, Observer, Visibility};
pub use training::open::Run;

// The example names the crate as its users do.
#[cfg(test)]
extern crate self as run;
#[cfg(test)]
#[allow(dead_code, reason = "its main function reads the arguments of the test program")]
#[path = "../../../../examples/train.rs"]
mod example;

#[cfg(test)]
mod tests {
    /// The program of `examples/train.rs` trains: its folder has the weights and a record of each step.
    #[test]
    fn the_example_trains() {
        let folder = std::env::temp_dir().join(format!("pleach-example-{}", std::process::id()));
        let keys = ["train.steps=2".into(), format!("run.folder={}", folder.display())];
        crate::example::train(keys.into_iter()).expect("trained");
        let metrics = std::fs::read_to_string(folder.join("metrics.jsonl")).expect("records");
        assert_eq!(metrics.lines().filter(|line| line.contains("\"loss\":")).count(), 2, "{metrics}");
        assert!(folder.join("weights.safetensors").is_file());
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
