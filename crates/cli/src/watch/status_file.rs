//! A file that a run renews while it trains, so that its age shows whether the run makes progress.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;

/// The name of the file in the folder of a run.
pub const STATUS: &str = "status.json";
/// Shortest time between two renewals.
const PAUSE: Duration = Duration::from_secs(1);

/// [`STATUS`], renewed while a run trains.
#[derive(Debug)]
pub struct StatusFile {
    path: PathBuf,
    steps: u32,
    renewed: Option<Instant>,
}

impl StatusFile {
    /// That of the run of `steps` steps in `folder`.
    pub fn new(folder: &Path, steps: u32) -> StatusFile {
        StatusFile { path: folder.join(STATUS), steps, renewed: None }
    }

    /// Renews it after a step, at most once a second and after the last step.
    pub fn step(&mut self, step: u32, loss: f64) {
        let is_due = self.renewed.is_none_or(|renewed| renewed.elapsed() >= PAUSE);
        if !is_due && step < self.steps {
            return;
        }
        self.renewed = Some(Instant::now());
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        let (pid, steps) = (std::process::id(), self.steps);
        let status = json!({ "step": step, "steps": steps, "loss": loss, "unix_seconds": at, "pid": pid });
        // A disk that is full for a moment ends no run; an old file says so.
        let _ = files::replace(&self.path, format!("{status}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_the_first_and_the_last_step_however_short_they_are() {
        let folder = std::env::temp_dir().join(format!("pleach-status-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let mut file = StatusFile::new(&folder, 9);
        let step = |file: &mut StatusFile, step| {
            file.step(step, f64::NAN);
            let text = std::fs::read_to_string(folder.join(STATUS)).expect("a file");
            let status: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            (status["step"].as_u64(), status["loss"].is_null())
        };
        assert_eq!(
            [1, 2, 9].map(|number| step(&mut file, number)),
            [(Some(1), true), (Some(1), true), (Some(9), true)]
        );
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
