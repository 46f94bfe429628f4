//! The folder that a run leaves.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use spec::RunConfig;

use crate::failure::Failure;

/// A folder that could be written when the run began.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// Makes the folder of `config`, if it is not there, and writes the resolved run file `run.toml`.
    ///
    /// # Errors
    /// A folder that cannot be made or written.
    pub fn create(config: &RunConfig) -> Result<RunFolder, Failure> {
        let folder = RunFolder { path: config.run.folder.clone() };
        fs::create_dir_all(&folder.path).map_err(|error| cannot_write(&folder.path, &error))?;
        let file = folder.path.join("run.toml");
        fs::write(&file, config.to_toml()).map_err(|error| cannot_write(&file, &error))?;
        Ok(folder)
    }

    /// The place of the weights after the last step: `weights.safetensors`.
    pub fn weights(&self) -> PathBuf {
        self.path.join("weights.safetensors")
    }

    /// What it holds after a run.
    pub fn contents(&self) -> String {
        format!("{}: run.toml, metrics.jsonl, weights.safetensors", self.path.display())
    }

    /// The empty file `metrics.jsonl`: one object per step.
    ///
    /// # Errors
    /// A file that cannot be made.
    pub fn metrics(&self) -> Result<File, Failure> {
        let file = self.path.join("metrics.jsonl");
        File::create(&file).map_err(|error| cannot_write(&file, &error))
    }
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Input(format!("{} cannot be written: {error}; another folder: --set run.folder=...", path.display()))
}
