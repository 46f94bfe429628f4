//! The folder that a run leaves.

use std::fmt;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use checkpoint::{Checkpoint, Disk, Found, Retention, Store, TensorWriter, committed, named};
use config::{ModelSpec, RunConfig, RunSpec};
use data::{BYTES_FILE, TOKENIZER_FILE};
use files::{InputError, InputKind};
use report::Timeline;
use sync::lock;
use train::weights_writer;

use crate::failure::Failure;
use crate::folder::past_records::keep_records;
use crate::messages::stderr::tell;
use crate::places::author::{Confirmed, confirmed};
use crate::places::kept_run::{self, Earlier};
use crate::places::names::{
    ALGORITHMS, CHECKPOINTS, LIBRARIES, LOG, MEMORY, METRICS, RESUMES, RUN_FILE, TIMELINE, WEIGHTS,
};
use crate::places::own_places;
use crate::records::metrics_file::MetricsFile;
use crate::store::stored;

/// A folder that is there, and that no other run writes.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    /// Takes checkpoints.
    pub store: Store,
    remedy: Remedy,
    notes: Mutex<Vec<String>>,
}

/// The content of a folder before a run begins in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Results {
    /// A finished run, or weights.
    There,
    /// Neither.
    Nothing,
}

/// The remedy for a run that cannot write its folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// One that begins may do so in any folder.
    OtherFolder,
    /// An imported one, too.
    OtherOut,
    /// A resumed run needs the contents folder.
    Copy,
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Remedy::OtherFolder => "use another folder: --set run.folder=...",
            Remedy::OtherOut => "use another folder: --out FOLDER",
            Remedy::Copy => "copy the folder of the run, and resume the copy, to continue elsewhere",
        })
    }
}

impl RunFolder {
    /// Makes the folder, if it is not there, and keeps other runs out of it.
    ///
    /// # Errors
    /// A folder that cannot be made or written, or in which another run writes.
    pub fn open(run: &RunSpec, remedy: Remedy) -> Result<RunFolder, Failure> {
        own_places::check_free("run.folder", &run.folder)?;
        let RunSpec { keep_newest, keep_every, keep_best, .. } = *run;
        let retention = Retention { newest: keep_newest, every: keep_every, best: keep_best };
        let store = Store::open(&run.folder.join(CHECKPOINTS), Arc::new(Disk), retention);
        let store = store.map_err(|error| failure(error, remedy))?;
        own_places::check(&run.folder).map_err(|error| failure(error, remedy))?;
        Ok(RunFolder { path: run.folder.to_path_buf(), store, remedy, notes: Mutex::default() })
    }

    /// Refuses to resume the run in the folder `run` while another process trains it, before anything is read for it.
    ///
    /// # Errors
    /// The process that does.
    pub fn check_unused(run: &Path) -> Result<(), Failure> {
        checkpoint::check_unused(&run.join(CHECKPOINTS)).map_err(|error| failure(error, Remedy::Copy))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Something to know about the folder, which the run reports as soon as it has a screen and a log.
    pub fn note(&self, text: String) {
        lock(&self.notes).push(text);
    }

    /// Notes that are not reported yet.
    pub fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.notes))
    }

    /// Whether there are manifests of checkpoints in memory.
    pub fn has_manifests(&self) -> bool {
        self.path.join(MEMORY).exists()
    }

    /// The manifests of checkpoints in memory, those after at most `steps` steps: the run continues from there.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn manifests(&self, steps: u32) -> Result<Store, Failure> {
        let retention = Retention { newest: 2, every: 0, best: 0 };
        let store = Store::open_manifests(&self.path.join(MEMORY), Arc::new(Disk), retention);
        let cleared = store.and_then(|store| store.clear_after(steps).map(|()| store));
        cleared.map_err(|error| self.failure(error))
    }

    /// Removes all manifests of checkpoints in memory.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn forget_manifests(&self) -> Result<(), Failure> {
        let path = self.path.join(MEMORY);
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(self.cannot_write(&path, error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Makes the folder as [`RunFolder::open`] does, for a run that begins. A finished run or weights that are there
    /// already are kept under another name, or replaced.
    ///
    /// # Errors
    /// The errors of [`RunFolder::open`]; a run that is not finished, and a folder that cannot be renamed.
    pub fn begin(run: &RunSpec, earlier: Earlier) -> Result<RunFolder, Failure> {
        let folder = RunFolder::open(run, Remedy::OtherFolder)?;
        let results = folder.results()?;
        stored::check_fresh(run, earlier)?;
        match (results, earlier) {
            (Results::Nothing, _) | (Results::There, Earlier::Replaced) => Ok(folder),
            (Results::There, Earlier::Kept) => {
                let kept = kept_run::keep(&run.folder)?;
                let note = format!("{} is kept as {}\n", run.folder.display(), kept.display());
                // Its lock went with it.
                drop(folder);
                let folder = RunFolder::open(run, Remedy::OtherFolder).inspect_err(|_| tell(&note))?;
                folder.note(note);
                Ok(folder)
            }
        }
    }

    /// Refuses checkpoints and records of steps, which are of another run than the weights that come.
    ///
    /// # Errors
    /// A folder that has some, or cannot be read.
    pub fn check_without_steps(&self) -> Result<(), Failure> {
        let path = self.path.display();
        if let Some(newest) = named(self.store.folder().path()).map_err(|error| self.failure(error))?.first() {
            let steps = newest.steps;
            return Err(self.failure(format!("{path} holds a run with checkpoints (the newest after step {steps})")));
        }
        match [METRICS, LOG, RESUMES].into_iter().find(|name| self.path.join(name).exists()) {
            None => Ok(()),
            Some(record) => Err(self.failure(format!("{path} holds a run with {record}"))),
        }
    }

    /// Whether an earlier run left results here.
    ///
    /// # Errors
    /// A run whose newest checkpoint is not after its last step: it can be resumed.
    fn results(&self) -> Result<Results, Failure> {
        let sound = |found: &Found| Checkpoint::open(&found.path).ok();
        let checkpoints = self.store.folder().path();
        let newest = committed(checkpoints).map_err(|error| self.failure(error))?.iter().find_map(sound);
        let Some(newest) = newest else {
            // Those of a later build, or on a disk with faults: none of them may be lost.
            let has_others = !named(checkpoints).map_err(|error| self.failure(error))?.is_empty();
            let has_results = has_others || self.path.join(WEIGHTS).is_file();
            return Ok(if has_results { Results::There } else { Results::Nothing });
        };
        let (steps, all) = (newest.state().steps, steps_of(newest.state().run.text()));
        if all == Some(steps) {
            return Ok(Results::There);
        }
        let of = all.map_or(String::new(), |all| format!(" of {all}"));
        let (path, checkpoints, remedy) = (self.path.display(), self.store.folder().path().display(), self.remedy);
        Err(Failure::Input(format!(
            "{path} holds an unfinished run (step {steps}{of}); resume with `pleach train --resume {path}`, \
             delete {checkpoints} to discard it, or {remedy}"
        )))
    }

    /// Its content after a run.
    pub fn contents(&self) -> String {
        let tokenizer = [TOKENIZER_FILE, BYTES_FILE].into_iter().find(|name| self.path.join(name).exists());
        let names = [RUN_FILE].into_iter().chain(tokenizer).chain([METRICS, WEIGHTS, CHECKPOINTS]);
        format!("{}: {}", self.path.display(), names.collect::<Vec<_>>().join(", "))
    }

    /// Takes the weights after the last step: `weights.safetensors`, for which there is room.
    ///
    /// # Errors
    /// A folder that cannot be written, a disk without room, or another run that writes here.
    pub fn weights(&self, model: &ModelSpec) -> Result<TensorWriter, Failure> {
        weights_writer(model, &self.path.join(WEIGHTS)).map_err(|error| self.failure(error))
    }

    /// The file `metrics.jsonl`, one object per step, with those of the first `steps` steps that are in it already.
    ///
    /// # Errors
    /// A file that cannot be made.
    pub fn metrics(&self, steps: u32) -> Result<MetricsFile, Failure> {
        let path = self.path.join(METRICS);
        if let Some(before) = if steps > 0 { self.records()? } else { None } {
            keep_records(before, &path, steps).map_err(|error| self.cannot_write(&path, error))?;
        }
        let opened = if steps > 0 { files::open_to_append(&path) } else { files::recreate(&path) };
        opened.map(|file| MetricsFile::new(path.clone(), file)).map_err(|error| self.cannot_write(&path, error))
    }

    /// The records of the run so far. A run may resume without them, as where only its checkpoints were copied.
    ///
    /// # Errors
    /// A file that is there and cannot be read: it is not to be replaced.
    pub fn records(&self) -> Result<Option<File>, Failure> {
        let path = self.path.join(METRICS);
        match files::open(&path, InputKind::Records) {
            Ok(file) => Ok(Some(file)),
            Err(InputError::System(error)) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failure(format!("{} {error}", path.display()))),
        }
    }

    /// The file `train.log`, at its end; without what is in it where a run begins.
    ///
    /// # Errors
    /// A file that cannot be made.
    pub fn log(&self, steps: u32) -> Result<File, Failure> {
        let file = self.path.join(LOG);
        let opened = if steps > 0 { files::open_to_append(&file) } else { files::recreate(&file) };
        opened.map_err(|error| self.cannot_write(&file, error))
    }

    /// Adds a line to `train.log`. Nothing depends on whether it arrives.
    pub fn log_line(&self, text: &str) {
        if let Ok(mut file) = files::open_to_append(&self.path.join(LOG)) {
            let _ = writeln!(file, "{text}");
        }
    }

    /// Writes the resolved run file, `run.toml`; that of an earlier run is replaced when this one is whole.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn write_run_file(&self, config: &RunConfig) -> Result<(), Failure> {
        let Confirmed { run_file, warning } = confirmed(config);
        warning.into_iter().for_each(|warning| self.note(warning));
        self.replace(RUN_FILE, run_file.to_text())
    }

    /// Adds a line to `resumes.jsonl`: the checkpoint of the resumption, or the weights that it began with.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn record_start(&self, record: &serde_json::Value) -> Result<(), Failure> {
        let file = self.path.join(RESUMES);
        let opened = files::open_to_append(&file);
        opened.and_then(|mut file| writeln!(file, "{record}")).map_err(|error| self.cannot_write(&file, error))
    }

    /// Writes the times of a step, `timeline.json`.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn write_timeline(&self, timeline: &Timeline) -> Result<(), Failure> {
        let text = serde_json::to_string(timeline).map_err(|error| Failure::Work(error.to_string()))?;
        self.replace(TIMELINE, &text)
    }

    /// Removes the list of resumes, the times of a step, the algorithms of products, the versions of libraries and the
    /// weights of an earlier run: they do not belong to the run file that is there now.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn forget_results(&self) -> Result<(), Failure> {
        self.remove(RESUMES)?;
        self.remove(TIMELINE)?;
        self.remove(ALGORITHMS)?;
        self.remove(LIBRARIES)?;
        self.remove(WEIGHTS)
    }

    fn remove(&self, name: &str) -> Result<(), Failure> {
        let file = self.path.join(name);
        match fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(self.cannot_write(&file, error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn failure(&self, error: impl fmt::Display) -> Failure {
        failure(error, self.remedy)
    }

    fn cannot_write(&self, path: &Path, error: impl fmt::Display) -> Failure {
        self.failure(format!("{} cannot be written: {error}", path.display()))
    }

    /// Gives the file `name` another content, at once.
    fn replace(&self, name: &str, text: &str) -> Result<(), Failure> {
        let file = self.path.join(name);
        files::replace(&file, text).map_err(|error| self.cannot_write(&file, error))
    }
}

/// Notes of a run that did not begin are printed all the same.
impl Drop for RunFolder {
    fn drop(&mut self) {
        self.take_notes().iter().for_each(|note| tell(note));
    }
}

/// Whether `run` may begin with the weights in `from`, which it must not write over.
///
/// # Errors
/// Weights that are in the folder of the run.
pub fn check_apart(run: &RunSpec, from: &Path) -> Result<(), Failure> {
    let [own, from] =
        [run.folder.as_path(), from].map(|path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf()));
    match from.starts_with(&own) {
        true => {
            let error = format!("--from {} is in the folder of the run, which starts again", from.display());
            Err(failure(error, Remedy::OtherFolder))
        }
        false => Ok(()),
    }
}

/// Steps that a resolved run file asks for.
fn steps_of(run: &str) -> Option<u32> {
    let table: toml::Table = run.parse().ok()?;
    table.get("train")?.get("steps")?.as_integer().and_then(|steps| u32::try_from(steps).ok())
}

fn failure(error: impl fmt::Display, remedy: Remedy) -> Failure {
    Failure::Input(format!("{error}; {remedy}"))
}
