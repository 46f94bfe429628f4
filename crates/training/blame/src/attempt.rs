//! The attempts of a run in its folder: `failures/attempt-0003/` while one trains, `failures/0003.json` once it has
//! failed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use files::InputKind;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::clock::now_ns;
use crate::history::RankHistory;
use crate::judge::{Parts, judge};
use crate::part::{LauncherPart, ProcessPart};
use crate::report::{FORMAT, RankReport, Report};
use crate::ring::{Ring, RingHeader};

/// The folder of failures in that of a run.
pub const FAILURES: &str = "failures";
const PREFIX: &str = "attempt-";
/// The file of an attempt that says when it began.
const BEGIN: &str = "begin.json";
/// A file of an attempt that holds room for what processes have to say where the disk is full.
const SPARE: &str = "spare";
const SPARE_BYTES: u64 = 64 << 10;
/// Reports that are kept, the newest.
const KEPT: usize = 100;

/// A file of an attempt that cannot be used.
#[derive(Debug, Error)]
#[error("{path}: {reason}", path = path.display())]
pub struct AttemptError {
    path: PathBuf,
    reason: io::Error,
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> AttemptError + '_ {
    |reason| AttemptError { path: path.to_path_buf(), reason }
}

/// The attempts of one run.
#[derive(Clone, Debug)]
pub struct Attempts {
    folder: PathBuf,
}

/// One start of a run, until it has ended well or its failure is reported.
#[derive(Clone, Debug)]
pub struct Attempt {
    folder: PathBuf,
    number: u32,
}

/// The begin of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Begin {
    started_ns: u64,
    steps: u32,
    processes: usize,
}

impl Attempts {
    /// The attempts of the run in `run`.
    pub fn of_run(run: &Path) -> Attempts {
        Attempts { folder: run.join(FAILURES) }
    }

    /// Begins an attempt of a run of `steps` steps by a number of processes.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn begin(&self, steps: u32, processes: usize) -> Result<Attempt, AttemptError> {
        let last = self.numbers(PREFIX, "")?.into_iter().chain(self.numbers("", ".json")?).max();
        let attempt = self.attempt(last.unwrap_or(0) + 1);
        let path = attempt.path();
        fs::create_dir_all(&path).map_err(at(&path))?;
        attempt.write(BEGIN, &Begin { started_ns: now_ns(), steps, processes })?;
        let spare = path.join(SPARE);
        let reserved = files::recreate(&spare).and_then(|file| files::reserve(&file, SPARE_BYTES));
        if reserved.is_err() {
            // A run without it trains as well.
            let _ = fs::remove_file(&spare);
        }
        Ok(attempt)
    }

    /// The attempt of this number.
    pub fn attempt(&self, number: u32) -> Attempt {
        Attempt { folder: self.folder.clone(), number }
    }

    /// Attempts that train, or whose failure is not reported, the oldest first.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn open(&self) -> Result<Vec<Attempt>, AttemptError> {
        Ok(self.numbers(PREFIX, "")?.into_iter().map(|number| self.attempt(number)).collect())
    }

    /// Numbers of the attempts whose failures are reported, ascending.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn reported(&self) -> Result<Vec<u32>, AttemptError> {
        self.numbers("", ".json")
    }

    /// The report of an attempt.
    ///
    /// # Errors
    /// A report that cannot be read.
    pub fn report(&self, number: u32) -> Result<Report, AttemptError> {
        read(&self.file(number))
    }

    fn file(&self, number: u32) -> PathBuf {
        self.folder.join(format!("{number:04}.json"))
    }

    fn numbers(&self, prefix: &str, suffix: &str) -> Result<Vec<u32>, AttemptError> {
        let mut numbers: Vec<u32> = names(&self.folder)?
            .iter()
            .filter_map(|name| name.strip_prefix(prefix)?.strip_suffix(suffix)?.parse().ok())
            .collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn keep_newest(&self) -> Result<(), AttemptError> {
        let reported = self.reported()?;
        let dropped = reported.len().saturating_sub(KEPT);
        for number in &reported[..dropped] {
            let path = self.file(*number);
            fs::remove_file(&path).map_err(at(&path))?;
        }
        Ok(())
    }
}

impl Attempt {
    /// Number of the attempt, from 1.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// When it began, in nanoseconds since 1970-01-01; 0 where that is not known.
    pub fn started_ns(&self) -> u64 {
        read::<Begin>(&self.path().join(BEGIN)).map_or(0, |begin| begin.started_ns)
    }

    /// The ring of a rank, which the rank writes.
    ///
    /// # Errors
    /// A file that cannot be made or mapped.
    pub fn ring(&self, header: &RingHeader) -> Result<Ring, AttemptError> {
        let path = self.path().join(format!("rank-{:05}.ring", header.rank));
        Ring::create(&path, header).map_err(at(&path))
    }

    /// Adds what a process knows. A second part of a process replaces its first.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn add_process(&self, part: &ProcessPart) -> Result<(), AttemptError> {
        self.write(&format!("process-{:05}.json", part.process), part)
    }

    /// Adds what a launcher knows.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn add_launcher(&self, part: &LauncherPart) -> Result<(), AttemptError> {
        let host: String = part.host.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        self.write(&format!("launcher-{host}.json"), part)
    }

    /// Removes everything of an attempt that has ended well, or was stopped on purpose.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn end_well(&self) -> Result<(), AttemptError> {
        let path = self.path();
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(&path)(error)),
            Ok(()) | Err(_) => {
                // It goes where it is empty.
                let _ = fs::remove_dir(&self.folder);
                Ok(())
            }
        }
    }

    /// The report of everything that is known now; nothing is written.
    ///
    /// # Errors
    /// Parts that cannot be read.
    pub fn judged(&self, newest_checkpoint: Option<u32>) -> Result<Report, AttemptError> {
        let parts = self.parts()?;
        let begin: Begin = read(&self.path().join(BEGIN)).unwrap_or_default();
        let verdict = judge(&parts);
        let at_process = parts.processes.iter().map(|part| part.at_ns);
        let at_launcher = parts.launchers.iter().map(|part| part.at_ns);
        let last_entry = parts.histories.values().filter_map(|own| own.last()).map(|last| last.began_ns).max();
        let failed_ns = at_process.chain(at_launcher).min().or(last_entry).unwrap_or(begin.started_ns);
        let history = parts.histories.into_values().map(|RankHistory { header, entries }| RankReport {
            rank: header.rank,
            process: header.process,
            host: header.host,
            instructions: entries,
        });
        let culprit = verdict.culprit;
        Ok(Report {
            format: FORMAT.into(),
            attempt: self.number,
            started_ns: begin.started_ns,
            failed_ns,
            steps: begin.steps,
            processes: begin.processes,
            cause: verdict.cause,
            rank: culprit.rank,
            ranks: culprit.ranks,
            process: culprit.process,
            host: culprit.host,
            step: culprit.step,
            moment: culprit.moment,
            instruction: culprit.instruction,
            peers: culprit.peers,
            noticed_by: verdict.noticed_by,
            newest_checkpoint,
            history: history.collect(),
        })
    }

    /// Writes the report and removes the parts.
    ///
    /// # Errors
    /// Parts that cannot be read, a folder that cannot be written.
    pub fn report(&self, newest_checkpoint: Option<u32>) -> Result<Report, AttemptError> {
        let mut report = self.judged(newest_checkpoint)?;
        let attempts = Attempts { folder: self.folder.clone() };
        let path = attempts.file(self.number);
        let parts = self.path();
        let remove_parts = || fs::remove_dir_all(&parts).map_err(at(&parts));
        match write(&path, &report) {
            Err(error) if files::is_full(&error.reason) => {
                // All that the parts say is in the report, so it takes their room. Instructions may need more.
                remove_parts()?;
                if write(&path, &report).is_err() {
                    report.history.iter_mut().for_each(|rank| rank.instructions.clear());
                    write(&path, &report)?;
                }
            }
            written => written.and_then(|()| remove_parts())?,
        }
        attempts.keep_newest()?;
        Ok(report)
    }

    fn parts(&self) -> Result<Parts, AttemptError> {
        let mut parts = Parts::default();
        let folder = self.path();
        for name in names(&folder)? {
            let path = folder.join(&name);
            // A process that is killed may leave a part of a file, which says nothing.
            if name.starts_with("rank-") {
                if let Ok(history) = RankHistory::read(&path) {
                    parts.histories.insert(history.header.rank, history);
                }
            } else if name.starts_with("process-") {
                parts.processes.extend(read::<ProcessPart>(&path).ok());
            } else if name.starts_with("launcher-") {
                parts.launchers.extend(read::<LauncherPart>(&path).ok());
            }
        }
        Ok(parts)
    }

    fn path(&self) -> PathBuf {
        self.folder.join(format!("{PREFIX}{:04}", self.number))
    }

    /// Writes a part, into the spare room where the disk is full.
    fn write(&self, name: &str, value: &impl Serialize) -> Result<(), AttemptError> {
        let path = self.path().join(name);
        match write(&path, value) {
            Err(error) if files::is_full(&error.reason) => match fs::remove_file(self.path().join(SPARE)) {
                Ok(()) => write(&path, value),
                Err(_) => Err(error),
            },
            written => written,
        }
    }
}

fn write(path: &Path, value: &impl Serialize) -> Result<(), AttemptError> {
    let text = serde_json::to_string_pretty(value).map_err(io::Error::from);
    text.and_then(|text| files::replace(path, text + "\n")).map_err(at(path))
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, AttemptError> {
    let bytes = files::read(path, InputKind::Records).map_err(io::Error::from).map_err(at(path))?;
    serde_json::from_slice(&bytes).map_err(io::Error::from).map_err(at(path))
}

/// Names in a folder, ascending; none where there is no such folder.
fn names(folder: &Path) -> Result<Vec<String>, AttemptError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        Err(error) => return Err(at(folder)(error)),
    };
    let mut names: Vec<String> =
        entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect();
    names.sort_unstable();
    Ok(names)
}
