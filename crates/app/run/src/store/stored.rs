//! The place of a run in an object store, as the commands see it.

use std::path::{Path, PathBuf};

use checkpoint::{Checkpoint, CheckpointError, Found, StoredError, StoredRun, committed, is_in_use};
use config::{KeptRunFile, RunConfig, RunSpec, Trusted};
use data::{BYTES_FILE, TOKENIZER_FILE};
use files::{InputError, InputKind};
use stores::{Address, OnUnanswered, Settings, StoreError};

use crate::failure::Failure;
use crate::messages::patience::announced_while;
use crate::messages::stderr::tell;
use crate::places::author::own_text;
use crate::places::kept_run::Earlier;
use crate::places::kept_run_file::kept_run_file;
use crate::places::names::{ALGORITHMS, CHECKPOINTS, LIBRARIES, METRICS, RESUMES, RUN_FILE, STORE_LOCK};
use crate::places::unfinished::{skipped, tell_unfinished};
use crate::store::settings::{RetryTime, SECONDS, settings};

/// The files of a run that are in its store, next to its checkpoints.
const FILES: [&str; 7] = [RUN_FILE, METRICS, RESUMES, TOKENIZER_FILE, BYTES_FILE, ALGORITHMS, LIBRARIES];

/// Opens the place of `run` in its store, if it has one.
///
/// # Errors
/// An address or settings that cannot be used.
pub fn of_run(run: &RunSpec, patient: impl Fn(f32) -> RetryTime) -> Result<Option<StoredRun>, Failure> {
    run.store.as_ref().map(|store| open("run.store", store, patient(run.store_seconds))).transpose()
}

/// Returns the same as [`of_run`], for requests during the steps of the run; `on_unanswered` is called with those that
/// are not answered soon.
///
/// # Errors
/// The errors of [`of_run`].
pub fn in_background(run: &RunSpec, on_unanswered: OnUnanswered) -> Result<Option<StoredRun>, Failure> {
    let settings = settings(RetryTime::InBackground(run.store_seconds)).with_on_unanswered(on_unanswered);
    run.store.as_ref().map(|store| open_with("run.store", store, &settings)).transpose()
}

/// Opens the place at `text`, which `key` names.
///
/// # Errors
/// The errors of [`of_run`].
pub fn open(key: &str, text: &Trusted<String>, patient: RetryTime) -> Result<StoredRun, Failure> {
    open_with(key, text, &settings(patient))
}

fn open_with(key: &str, text: &Trusted<String>, settings: &Settings) -> Result<StoredRun, Failure> {
    let address = match Address::parse(text) {
        Some(Ok(address @ Address::S3 { .. })) => address,
        Some(Ok(Address::Http { .. })) | None => {
            let rule = "must be s3://BUCKET/PREFIX, the address of a run in a store";
            return Err(Failure::Input(format!("{key} {rule}; use one such as s3://bucket/runs/a")));
        }
        Some(Err(error)) => return Err(Failure::Input(format!("{key}: {error}"))),
    };
    StoredRun::open(&address, settings).map_err(|error| Failure::Input(format!("{key}: {error}")))
}

/// The files of the run in `folder` that go into its store.
pub fn files_of(folder: &Path) -> Vec<PathBuf> {
    FILES.iter().map(|name| folder.join(name)).collect()
}

/// Refuses a new run whose address has checkpoints; those of a run that is replaced are removed.
///
/// # Errors
/// Checkpoints that are there, and a store without an answer.
pub fn check_fresh(run: &RunSpec, earlier: Earlier) -> Result<(), Failure> {
    let Some(stored) = of_run(run, RetryTime::OfRun)? else { return Ok(()) };
    let all = stored.list().map_err(of_store)?;
    let newest = all.iter().rev().find(|(_, of_steps)| of_steps.is_committed());
    match (newest, earlier) {
        (None, _) => Ok(()),
        (Some((steps, _)), Earlier::Kept) => {
            let (address, folder) = (stored.address(), run.folder.display());
            Err(Failure::Input(format!(
                "run.store = \"{address}\" has checkpoints of a run, the newest after step {steps}; resume it with `pleach train \
                 --resume {address} --set run.folder={folder}`, use another prefix, or remove them with --overwrite"
            )))
        }
        (Some(_), Earlier::Replaced) => all.keys().try_for_each(|steps| stored.remove(*steps)).map_err(of_store),
    }
}

/// The run that is to resume.
pub struct Resuming {
    pub folder: PathBuf,
    /// The address that was given in place of a folder.
    pub address: Option<String>,
    /// Lines about keys that are left out, where nobody answers for them.
    pub left_out: Vec<String>,
}

/// A run as its store describes it.
#[derive(Debug)]
pub struct Described {
    stored: StoredRun,
    /// Its folder on this machine: that of the command line, or of its run file where the user wrote that, or the
    /// default.
    pub folder: Trusted<PathBuf>,
    /// The run file of its newest checkpoint.
    pub run_file: KeptRunFile,
    /// Lines about the folder, where nobody answers for that of the run file.
    pub left_out: Vec<String>,
}

/// The run at the address `named`, which may be a folder's path instead: `None`.
///
/// # Errors
/// A store without an answer, and an address without a checkpoint.
pub fn described(named: &Path, overrides: &[String], patient: RetryTime) -> Result<Option<Described>, Failure> {
    let text = named.to_string_lossy();
    if !Address::is_meant(&text) {
        return Ok(None);
    }
    let stored = open("--resume", &Trusted::of_command_line(text.into_owned()), patient)?;
    let newest = stored.newest().map_err(of_store)?.ok_or_else(|| none(&stored))?;
    let run_file = stored.manifest(newest).map_err(failure)?.state.run;
    let (key, name, mut left_out) = ("run.folder", stored.address().to_string(), vec![]);
    let folder = set(overrides, key).or_else(|| own_text(&run_file, (&name, key), &mut left_out));
    let folder = folder.map_or_else(|| RunConfig::quick_start().run.folder, |folder| folder.map(PathBuf::from));
    if folder.as_os_str().is_empty() {
        let address = stored.address();
        return Err(Failure::Input(format!("the run of {address} names no folder; use --set run.folder=FOLDER")));
    }
    if !left_out.is_empty() {
        left_out.push(format!("the run of {name} continues in {}\n", folder.display()));
    }
    Ok(Some(Described { stored, folder, run_file, left_out }))
}

/// The run that `--resume` names, by its folder or by its address, with what its store has and the folder lacks. The
/// first process prints the lines about keys that are left out.
///
/// # Errors
/// A store without an answer, and an address without a checkpoint.
pub fn resuming(named: &Path, overrides: &[String], is_first: bool) -> Result<Resuming, Failure> {
    if let Some(Described { stored, folder, left_out, .. }) = described(named, overrides, patient(overrides))? {
        if is_first {
            left_out.iter().for_each(|line| tell(line));
        }
        bring_newest(&stored, &folder, "use another folder: --set run.folder=FOLDER")?;
        let (folder, address) = (folder.to_path_buf(), Some(stored.address().to_string()));
        return Ok(Resuming { folder, address, left_out: vec![] });
    }
    let (key, mut left_out) = ("run.store", vec![]);
    let address = set(overrides, key).or_else(|| {
        // Without the file there is no address, and the command says what is missing.
        let name = named.join(RUN_FILE).display().to_string();
        own_text(&kept_run_file(named).ok()?, (&name, key), &mut left_out)
    });
    if let Some(address) = address.filter(|address| !address.is_empty()) {
        let stored = open("run.store", &address, patient(overrides))?;
        bring_newest(&stored, named, "use --set run.store= to continue without the store, or another address")?;
    }
    Ok(Resuming { folder: named.to_path_buf(), address: None, left_out })
}

/// The value that the command line gives a key last.
fn set(overrides: &[String], key: &str) -> Option<Trusted<String>> {
    let value = overrides.iter().rev().find_map(|set| set.split_once('=').filter(|(name, _)| name.trim() == key));
    value.map(|(_, value)| Trusted::of_command_line(value.trim().trim_matches('"').to_string()))
}

fn patient(overrides: &[String]) -> RetryTime {
    let seconds = set(overrides, "run.store_seconds").and_then(|seconds| seconds.parse().ok());
    RetryTime::OfRun(seconds.filter(|seconds| (0.0..=86_400.0).contains(seconds)).unwrap_or(SECONDS))
}

/// The result of [`bring_newest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewestCheckpoint {
    /// The checkpoint after these steps was downloaded.
    Downloaded(u32),
    /// The folder has a checkpoint after these steps, and the store has no later one.
    AsNew(u32),
    /// A run has the folder.
    InUse,
    /// No checkpoint of the store is whole.
    NoneWhole,
}

/// Brings the newest checkpoint of the store that is whole into `folder`, unless it has one as new. Processes that do
/// so at the same time do it one after the other. `remedy` ends the refusal of a folder with another run.
///
/// # Errors
/// A store without an answer, a folder of another run, and one that cannot be written.
pub fn bring_newest(stored: &StoredRun, folder: &Path, remedy: &str) -> Result<NewestCheckpoint, Failure> {
    let checkpoints = folder.join(CHECKPOINTS);
    // Another run has the folder; whoever opens it reports that.
    if is_in_use(&checkpoints) {
        return Ok(NewestCheckpoint::InUse);
    }
    let all = stored.list().map_err(of_store)?;
    check_same_run(stored, folder, remedy)?;
    let unwritable = |error| Failure::Input(format!("{} cannot be written: {error}", folder.display()));
    std::fs::create_dir_all(&checkpoints).map_err(unwritable)?;
    let turn = files::open_to_change(&folder.join(STORE_LOCK)).map_err(unwritable)?;
    // A file system without locks has one process at a time if its user has.
    let _ = turn.lock();
    tell_unfinished(folder);
    for (steps, of_steps) in all.into_iter().rev() {
        if !of_steps.is_committed() {
            tell(&skipped(&stored.place(steps)));
            continue;
        }
        let sound = |found: &Found| Checkpoint::open(&found.path).is_ok();
        let here = committed(&checkpoints)?.into_iter().find(sound);
        if let Some(newest) = here.filter(|newest| newest.steps >= steps) {
            if !folder.join(RESUMES).exists() {
                // Else a later upload would replace the longer list of the store.
                bring_resumes(stored, folder)?;
            }
            return Ok(NewestCheckpoint::AsNew(newest.steps));
        }
        let what = format!("downloading the checkpoint after step {steps} from {}", stored.address());
        tell(&format!("{what}\n"));
        match announced_while(&what, || stored.fetch(steps, &checkpoints)) {
            Ok(_) => {
                bring_resumes(stored, folder)?;
                for name in FILES.into_iter().filter(|name| *name != RESUMES) {
                    stored.fetch_file(name, &folder.join(name)).map_err(failure)?;
                }
                return Ok(NewestCheckpoint::Downloaded(steps));
            }
            Err(error @ StoredError::Damaged { .. }) => tell(&format!("{error}; an earlier one is used\n")),
            Err(error) => return Err(failure(error)),
        }
    }
    Ok(NewestCheckpoint::NoneWhole)
}

/// Refuses a folder whose run is not that of the store: neither names the other's address, and their run files differ.
fn check_same_run(stored: &StoredRun, folder: &Path, remedy: &str) -> Result<(), Failure> {
    let Some(own) = own_run_file(folder) else { return Ok(()) };
    let (address, own_store) = (stored.address().to_string(), store_of(&own));
    if own_store.as_ref() == Some(&address) {
        return Ok(());
    }
    let Some(newest) = stored.newest().map_err(of_store)? else { return Ok(()) };
    let theirs = stored.manifest(newest).map_err(failure)?.state.run;
    if own == theirs || (own_store.is_some() && own_store == store_of(&theirs)) {
        return Ok(());
    }
    let has = own_store.map_or("no run.store".into(), |store| format!("run.store = {store:?}"));
    Err(Failure::Input(format!("{} holds another run than {address}: one with {has}; {remedy}", folder.display())))
}

/// The address of a run's store, as messages have it: it is compared, and no request goes there.
fn store_of(run: &KeptRunFile) -> Option<String> {
    let text = run.claimed("run.store").filter(|store| !store.is_empty())?;
    match Address::parse(&text) {
        Some(Ok(address)) => Some(address.to_string()),
        Some(Err(_)) | None => Some(text),
    }
}

/// The run file of a folder, or that of its newest checkpoint.
fn own_run_file(folder: &Path) -> Option<KeptRunFile> {
    kept_run_file(folder).ok().or_else(|| {
        let found = committed(&folder.join(CHECKPOINTS)).ok()?;
        found.iter().find_map(|found| Some(Checkpoint::open(&found.path).ok()?.state().run.clone()))
    })
}

/// Brings the list of resumptions. Lines that only the folder has stay, before those of the store.
fn bring_resumes(stored: &StoredRun, folder: &Path) -> Result<(), Failure> {
    let (path, brought) = (folder.join(RESUMES), folder.join(format!(".{RESUMES}.store")));
    if !stored.fetch_file(RESUMES, &brought).map_err(failure)? {
        return Ok(());
    }
    let read = |path: &Path| match files::read_text_of_file(path, InputKind::Records) {
        Ok(text) => Ok(text),
        Err(InputError::System(error)) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(Failure::Input(format!("{} {error}", path.display()))),
    };
    let (own, theirs) = (read(&path)?, read(&brought)?);
    let written = files::replace(&path, with_lines_of(&own, &theirs));
    // The next one replaces the rest of it.
    let _ = std::fs::remove_file(&brought);
    written.map_err(|error| Failure::Input(format!("{} cannot be written: {error}", path.display())))
}

/// The lines of `own` that `theirs` lacks, and those of `theirs`.
fn with_lines_of(own: &str, theirs: &str) -> String {
    let known: Vec<&str> = theirs.lines().collect();
    let missing = own.lines().filter(|line| !line.trim().is_empty() && !known.contains(line));
    missing.chain(known.iter().copied()).map(|line| format!("{line}\n")).collect()
}

/// That an address has no checkpoint.
pub fn none(stored: &StoredRun) -> Failure {
    Failure::Input(format!(
        "{} has no checkpoint; a run whose run.store it is writes some where run.save_every is above 0, and one when it ends",
        stored.address()
    ))
}

/// A store without an answer is not a fault of the input: the same command may succeed later.
pub fn of_store(error: StoreError) -> Failure {
    match error {
        StoreError::Failed { .. } | StoreError::Changed { .. } => {
            Failure::Work(format!("{error}; try again, or use --set run.store= to continue without the store"))
        }
        StoreError::Settings { .. }
        | StoreError::NotFound { .. }
        | StoreError::NoBucket { .. }
        | StoreError::Denied { .. }
        | StoreError::NoCredentials { .. }
        | StoreError::TooLarge { .. }
        | StoreError::Unsupported { .. }
        | StoreError::File(_) => Failure::Input(error.to_string()),
    }
}

/// The failure that an error of a stored checkpoint is.
pub fn failure(error: StoredError) -> Failure {
    match error {
        StoredError::Store(error) => of_store(error),
        StoredError::Checkpoint(error) => CheckpointError::into(error),
        StoredError::Length { .. } | StoredError::Damaged { .. } => Failure::Input(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_resumption_is_lost_where_two_lists_meet() {
        assert_eq!(with_lines_of("", "a\nb\n"), "a\nb\n");
        assert_eq!(with_lines_of("a\nb\n", "a\nb\nc\n"), "a\nb\nc\n");
        assert_eq!(with_lines_of("a\nx\n\n", "a\nb"), "x\na\nb\n");
        assert_eq!(with_lines_of("a\n", ""), "a\n");
    }
}
