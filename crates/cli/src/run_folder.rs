//! The folder that a run leaves.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use checkpoint::TensorWriter;
use data::{BYTES_FILE, TOKENIZER_FILE};
use spec::{ModelSpec, RunConfig};
use train::weights_writer;

use crate::failure::Failure;

/// A folder that is there.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// Makes the folder, if it is not there.
    ///
    /// # Errors
    /// A folder that cannot be made.
    pub fn create(path: &Path) -> Result<RunFolder, Failure> {
        fs::create_dir_all(path).map_err(|error| cannot_write(path, error))?;
        Ok(RunFolder { path: path.to_path_buf() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it holds after a run.
    pub fn contents(&self) -> String {
        let tokenizer = [TOKENIZER_FILE, BYTES_FILE].into_iter().find(|name| self.path.join(name).exists());
        let names = ["run.toml"].into_iter().chain(tokenizer).chain(["metrics.jsonl", "weights.safetensors"]);
        format!("{}: {}", self.path.display(), names.collect::<Vec<_>>().join(", "))
    }

    /// Takes the weights after the last step: `weights.safetensors`, for which there is room.
    ///
    /// # Errors
    /// A folder that cannot be written, a disk without room, or another run that writes here.
    pub fn weights(&self, model: &ModelSpec) -> Result<TensorWriter, Failure> {
        let writer = weights_writer(model, &self.path.join("weights.safetensors"));
        writer.map_err(|error| Failure::Input(format!("{error}; {OTHER_FOLDER}")))
    }

    /// The empty file `metrics.jsonl`: one object per step.
    ///
    /// # Errors
    /// A file that cannot be made.
    pub fn metrics(&self) -> Result<File, Failure> {
        let file = self.path.join("metrics.jsonl");
        File::create(&file).map_err(|error| cannot_write(&file, error))
    }

    /// Writes the resolved run file, `run.toml`; that of an earlier run is replaced when this one is whole.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn write_run_file(&self, config: &RunConfig) -> Result<(), Failure> {
        let (file, partial) = (self.path.join("run.toml"), self.path.join(".run.toml.partial"));
        let written = fs::write(&partial, config.to_toml()).and_then(|()| fs::rename(&partial, &file));
        written.map_err(|error| cannot_write(&file, error))
    }
}

const OTHER_FOLDER: &str = "another folder: --set run.folder=...";

fn cannot_write(path: &Path, error: impl fmt::Display) -> Failure {
    Failure::Input(format!("{} cannot be written: {error}; {OTHER_FOLDER}", path.display()))
}
