//! The comparison, in parts: a case that is done is not done again. One during which the program ended is done once
//! more, and has failed where the program ends during it again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use train::{Engine, Setup};

use crate::conformance::cases::Case;
use crate::conformance::expected::{Expected, difference, result};

/// The state of a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It was begun, and has not ended.
    Begun,
    /// The bits are those of the CPU.
    Equal,
    /// They are not, or the run failed.
    Different(String),
}

/// A case with its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseResult {
    pub verdict: Verdict,
    /// Wall time, in whole milliseconds: a number that JSON gives back with the same bits.
    pub seconds: f64,
}

/// The file of results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The GPU, by the driver.
    pub gpu: String,
    /// Version of CUDA of the driver.
    pub driver: String,
    /// Cases during which the program ended once.
    #[serde(default)]
    pub interrupted: BTreeSet<String>,
    /// Results by the names of their cases.
    pub cases: BTreeMap<String, CaseResult>,
}

/// How a part ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All cases are done and equal.
    Equal,
    /// All cases are done, and some are not equal.
    Different,
    /// The time is over, or a failure has left the GPU in a state in which nothing else is compared; the next part
    /// resumes.
    Unfinished,
}

impl Results {
    /// Reads `path`, or begins with nothing where there is no such file.
    ///
    /// # Errors
    /// A file that holds no results.
    pub fn read(path: &Path) -> Result<Results, String> {
        match std::fs::read_to_string(path) {
            Ok(text) => serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display())),
            Err(_) => Ok(Results::default()),
        }
    }

    fn write(&self, path: &Path) -> Result<(), String> {
        let failed = |error: &dyn std::fmt::Display| format!("{} cannot be written: {error}", path.display());
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(&error))?;
        let partial = path.with_extension("partial");
        std::fs::write(&partial, text).and_then(|()| std::fs::rename(&partial, path)).map_err(|error| failed(&error))
    }

    /// A case that the program did not come back from is begun again, but once.
    fn close_begun(&mut self) {
        let interrupted = &mut self.interrupted;
        self.cases.retain(|name, case| {
            let is_again = case.verdict == Verdict::Begun && !interrupted.insert(name.clone());
            if is_again {
                case.verdict = Verdict::Different("the program ended twice during this case".into());
            }
            case.verdict != Verdict::Begun
        });
    }

    /// Compares what is left of `cases` within `time`, on the ranks that `open` makes, and keeps all results in `path`.
    ///
    /// # Errors
    /// A file that cannot be written, and a case without an expected result.
    pub fn compare(
        &mut self,
        cases: &[Case],
        expected: &Expected,
        (path, time): (&Path, Duration),
        open: impl Fn(&Setup) -> Box<dyn Engine>,
    ) -> Result<Ended, String> {
        self.close_begun();
        let began = Instant::now();
        for case in cases.iter().filter(|case| !self.cases.contains_key(&case.name)).collect::<Vec<_>>() {
            if began.elapsed() >= time {
                return Ok(Ended::Unfinished);
            }
            let expected = expected.get(&case.name).ok_or_else(|| format!("{} has no expected result", case.name))?;
            self.cases.insert(case.name.clone(), CaseResult { verdict: Verdict::Begun, seconds: 0.0 });
            self.write(path)?;
            let started = Instant::now();
            let found = result(case, &open);
            let has_failed = found.is_err();
            let verdict = match found.map(|found| difference(expected, &found)) {
                Ok(None) => Verdict::Equal,
                Ok(Some(difference)) => Verdict::Different(difference),
                Err(error) => Verdict::Different(error.to_string()),
            };
            println!("{}: {verdict:?}", case.name);
            let seconds = started.elapsed().as_millis() as f64 / 1000.0;
            self.cases.insert(case.name.clone(), CaseResult { verdict, seconds });
            self.write(path)?;
            if has_failed {
                return Ok(Ended::Unfinished);
            }
        }
        let is_equal = self.cases.values().all(|case| case.verdict == Verdict::Equal);
        Ok(if is_equal { Ended::Equal } else { Ended::Different })
    }
}
