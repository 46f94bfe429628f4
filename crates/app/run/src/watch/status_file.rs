//! A file that a run renews while it trains, so that its age shows whether the run makes progress, and whose last
//! content shows how the run ended.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use files::InputKind;
use serde_json::{Value, json};

use crate::places::names::STATUS;
use crate::process_group::place::own_host;

/// Shortest time between two renewals.
const PAUSE: Duration = Duration::from_secs(1);

/// The work of a run, or its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Training,
    /// All steps are done.
    Finished,
    /// A signal has ended it.
    Stopped,
    Failed,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Training => "training",
            State::Finished => "finished",
            State::Stopped => "stopped",
            State::Failed => "failed",
        }
    }
}

/// [`STATUS`], renewed while a run trains.
#[derive(Debug)]
pub struct StatusFile {
    path: PathBuf,
    steps: u32,
    /// The last step that is done, and its loss where it was done since the start.
    latest: (u32, Option<f64>),
    renewed: Option<Instant>,
}

impl StatusFile {
    /// The status file of the run of `steps` steps in `folder`, of which `done` are done.
    pub fn new(folder: &Path, done: u32, steps: u32) -> StatusFile {
        StatusFile { path: folder.join(STATUS), steps, latest: (done, None), renewed: None }
    }

    /// Renews it after a step, at most once a second.
    pub fn step(&mut self, step: u32, loss: f64) {
        self.latest = (step, Some(loss));
        if self.renewed.is_none_or(|renewed| renewed.elapsed() >= PAUSE) {
            self.renewed = Some(Instant::now());
            self.write(State::Training);
        }
    }

    /// Writes the last step and what the run does now.
    pub fn write(&self, state: State) {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        let (step, loss) = self.latest;
        let status = json!({
            "state": state.name(),
            "step": step,
            "steps": self.steps,
            "loss": loss,
            "unix_seconds": at,
            "pid": std::process::id(),
            "host": own_host(),
        });
        // A disk that is full for a moment ends no run; an old file says so.
        let _ = files::replace(&self.path, format!("{status}\n"));
    }
}

/// The status of the run in `folder` as it was written last; empty without one.
pub fn status_of(folder: &Path) -> String {
    files::read_text_of_file(&folder.join(STATUS), InputKind::Records).unwrap_or_default()
}

/// Whether the run in `folder` did all of its steps, and wrote its files, after its status was `before`.
pub fn has_finished_after(folder: &Path, before: &str) -> bool {
    let text = status_of(folder);
    let status: Option<Value> = serde_json::from_str(&text).ok();
    let is_finished = |status: Value| status.get("state").is_some_and(|state| state == State::Finished.name());
    text != before && status.is_some_and(is_finished)
}

/// Notes that the run in `folder` has failed, where its own process could not.
pub fn fail(folder: &Path) {
    let path = folder.join(STATUS);
    let text = files::read_text_of_file(&path, InputKind::Records).unwrap_or_default();
    let Ok(Value::Object(mut status)) = serde_json::from_str(&text) else { return };
    if status.get("state").is_some_and(|state| state == State::Training.name()) {
        status.insert("state".into(), State::Failed.name().into());
        let _ = files::replace(&path, format!("{}\n", Value::Object(status)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_the_first_step_and_how_the_run_ended() {
        let folder = std::env::temp_dir().join(format!("pleach-status-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let read = || {
            let text = std::fs::read_to_string(folder.join(STATUS)).expect("a file");
            let status: Value = serde_json::from_str(&text).expect("JSON");
            (status["state"].as_str().expect("text").to_string(), status["step"].as_u64(), status["loss"].as_f64())
        };
        let mut file = StatusFile::new(&folder, 3, 9);
        file.write(State::Training);
        assert_eq!(read(), ("training".into(), Some(3), None));
        // Steps follow each other within a second.
        for (step, expected) in [(4, 4), (5, 4)] {
            file.step(step, 2.5);
            assert_eq!(read(), ("training".into(), Some(expected), Some(2.5)));
        }
        file.step(6, f64::NAN);
        file.write(State::Stopped);
        assert_eq!(read(), ("stopped".into(), Some(6), None));
        let before = status_of(&folder);
        assert!(!has_finished_after(&folder, ""), "it has not finished");
        file.write(State::Finished);
        assert!(has_finished_after(&folder, &before));
        assert!(!has_finished_after(&folder, &status_of(&folder)), "that was an earlier run");
        file.write(State::Stopped);
        // A run that has ended has said how; one that was killed has not.
        fail(&folder);
        assert_eq!(read().0, "stopped");
        file.write(State::Training);
        fail(&folder);
        assert_eq!(read(), ("failed".into(), Some(6), None));
        std::fs::remove_dir_all(&folder).expect("removed");
        fail(&folder);
        assert!(!folder.exists());
    }
}
