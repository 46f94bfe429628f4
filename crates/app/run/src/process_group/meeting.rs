//! All that processes must have in common before the ranks of a command start.

use std::collections::BTreeMap;

use config::{RunConfig, RunSpec};
use rendezvous::{Identity, TextHash, hash_bytes, hash_file};

use crate::failure::Failure;

/// A command that runs ranks, as its processes compare it.
pub struct Meeting<'a> {
    /// The command, with everything that decides what it does and is not in a run file.
    pub command: String,
    /// Its runs: one, or both of a pair. The `[run]` of the first one has the deadlines.
    pub runs: Vec<&'a RunConfig>,
    /// Fingerprints of the programs that are known before the text is. Ranks compare all once more when they open.
    pub programs: Vec<u64>,
    pub text: TextHash,
    /// Hashes of other files that it reads, by their names in messages.
    pub inputs: BTreeMap<String, u64>,
}

impl Meeting<'_> {
    /// Hashes of all of it.
    ///
    /// # Errors
    /// This program's file cannot be read.
    pub fn identity(&self) -> Result<Identity, Failure> {
        let binary = std::env::current_exe().and_then(|path| hash_file(&path));
        let binary = binary.map_err(|error| Failure::Work(format!("this program cannot be read: {error}")))?;
        let files: Vec<String> = self.runs.iter().map(|config| of_ranks(config).to_toml()).collect();
        let programs: Vec<u8> = self.programs.iter().flat_map(|program| program.to_le_bytes()).collect();
        Ok(Identity {
            version: env!("CARGO_PKG_VERSION").into(),
            binary,
            run_file: hash_bytes(format!("{}\n{}", self.command, files.join("\n")).as_bytes()),
            program: hash_bytes(&programs),
            text: self.text,
            inputs: self.inputs.clone(),
        })
    }
}

/// A run without the keys by which process 0 alone acts: processes of other hosts may have no secret that confirms
/// them.
fn of_ranks(config: &RunConfig) -> RunConfig {
    let run = RunSpec { notify: None, metrics_address: None, store: None, ..config.run.clone() };
    RunConfig { run, ..config.clone() }
}
