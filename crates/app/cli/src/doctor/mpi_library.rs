//! The library of MPI that a run would open, and its answers: another process initialises it, so that it cannot stop
//! this one.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use launcher::Environment;
use mpi::{Endpoint, Library, Surroundings, ThreadLevel, find, loader};
use run::failure::Failure;
use serde::{Deserialize, Serialize};

use crate::screen::output::print;

/// Longest wait for a library to be initialised.
const DEADLINE: Duration = Duration::from_secs(10);
/// How often the wait looks.
const GLANCE: Duration = Duration::from_millis(20);

/// A library, or the reason why no library was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum MpiLibrary {
    /// One that a run would open.
    Found {
        /// Where it is.
        path: PathBuf,
        /// Why this one.
        reason: String,
        /// Its version, by itself.
        version: String,
        /// Its ABI.
        abi: &'static str,
        /// Its answers, or why it gives none.
        answers: Result<Answers, String>,
    },
    /// None.
    Missing {
        /// The reason.
        problem: String,
    },
}

/// Answers of a library that is initialised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answers {
    /// The highest thread level that it gives.
    pub thread_level: String,
    /// Number of processes of its world.
    pub processes: usize,
}

impl MpiLibrary {
    /// The library that a run of this process would open.
    pub fn of_process(environment: Environment<'_>) -> MpiLibrary {
        let surroundings = Surroundings::of_process(environment, loader::folders(Path::new("/"), environment));
        let found = match find(&surroundings) {
            Ok(found) => found,
            Err(error) => return MpiLibrary::Missing { problem: error.to_string() },
        };
        match Library::open(&found.path) {
            Err(error) => MpiLibrary::Missing { problem: error.to_string() },
            Ok(library) => MpiLibrary::Found {
                answers: answers(&found.path),
                path: found.path,
                reason: found.reason,
                version: library.version().into(),
                abi: library.abi().name(),
            },
        }
    }
}

/// Asks the library in a process of its own.
fn answers(path: &Path) -> Result<Answers, String> {
    let failed = |error: std::io::Error| format!("no process could ask it: {error}");
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    command.arg("mpi-answers").arg(path).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let started = Instant::now();
    let status = loop {
        match child.try_wait().map_err(failed)? {
            Some(status) => break status,
            None if started.elapsed() >= DEADLINE => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("MPI_Init_thread has not returned within {} s", DEADLINE.as_secs()));
            }
            None => std::thread::sleep(GLANCE),
        }
    };
    let (mut text, mut complaint) = (String::new(), String::new());
    let _ = child.stdout.take().map(|mut pipe| pipe.read_to_string(&mut text));
    let _ = child.stderr.take().map(|mut pipe| pipe.read_to_string(&mut complaint));
    // Libraries print lines of their own.
    let answers = text.lines().find_map(|line| serde_json::from_str(line).ok());
    let complaint = complaint.lines().find(|line| !line.trim().is_empty()).unwrap_or("it printed nothing").to_owned();
    answers.ok_or_else(|| format!("MPI_Init_thread ended the process with {status}: {complaint}"))
}

/// The process that asks: initialises the library at `path` and prints its answers on one line.
///
/// # Errors
/// The library's.
pub fn print_answers(path: &Path) -> Result<(), Failure> {
    let failed = |error: mpi::EndpointError| Failure::Work(error.to_string());
    let endpoint = Endpoint::open(path.into(), ThreadLevel::Multiple, DEADLINE, &|| None).map_err(failed)?;
    let answers = Answers { thread_level: endpoint.level().name().into(), processes: endpoint.processes() };
    let line = serde_json::to_string(&answers).map_err(|error| Failure::Work(error.to_string()))?;
    print(&format!("{line}\n"))?;
    endpoint.finish(DEADLINE, &|| None).map_err(failed)
}
