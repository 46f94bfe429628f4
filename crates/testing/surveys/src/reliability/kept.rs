//! Trials one by one, each kept in a file as it ends, so that a command that was stopped continues where it was.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;

use sync::lock;
use xxhash_rust::xxh3::xxh3_64;

/// Counts of a trial, by name, which are added over trials.
pub type Counts = BTreeMap<String, usize>;

/// The file, or none, and what it holds.
#[derive(Debug, Default)]
pub struct Kept {
    file: Option<Mutex<File>>,
    trials: BTreeMap<(String, usize), Counts>,
}

/// All trials of a row.
#[derive(Debug, Default)]
pub(super) struct Row {
    /// Sums of what they saw.
    pub(super) counts: Counts,
    /// Failures, a line for each trial.
    pub(super) failures: Vec<String>,
}

impl Row {
    /// How often `name` was seen.
    pub(super) fn count(&self, name: &str) -> usize {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// The counts of all names that begin with `prefix`, as `REST: COUNT`.
    pub(super) fn list(&self, prefix: &str) -> String {
        let rests =
            self.counts.iter().filter_map(|(name, count)| Some(format!("{}: {count}", name.strip_prefix(prefix)?)));
        rests.collect::<Vec<_>>().join(", ")
    }
}

impl Kept {
    /// Opens or creates the file at `path`. Trials of another build of this program are not used.
    ///
    /// # Errors
    /// A file that cannot be read or written.
    pub fn open(path: &Path) -> io::Result<Kept> {
        let build = format!("build {:016x}", xxh3_64(&std::fs::read(std::env::current_exe()?)?));
        Kept::open_of(&build, path)
    }

    fn open_of(build: &str, path: &Path) -> io::Result<Kept> {
        let text = if path.exists() { std::fs::read_to_string(path)? } else { String::new() };
        let mut lines = text.lines();
        let is_of_this_build = lines.next() == Some(build);
        let trials = if is_of_this_build { lines.filter_map(read).collect() } else { BTreeMap::new() };
        let mut options = OpenOptions::new();
        let mut file = match is_of_this_build {
            true => options.append(true).open(path)?,
            false => options.create(true).write(true).truncate(true).open(path)?,
        };
        if !is_of_this_build {
            writeln!(file, "{build}")?;
        }
        Ok(Kept { file: Some(Mutex::new(file)), trials })
    }

    /// Does the trials `0 .. trials` of the row `row` that are not kept. One that fails is not kept, so that the next
    /// run tries it again.
    pub(super) fn row(&self, row: &str, trials: usize, mut trial: impl FnMut(usize) -> Result<Counts, String>) -> Row {
        let mut all = Row::default();
        for number in 0..trials {
            let known = self.trials.get(&(row.to_string(), number)).cloned();
            let counts = match known.map_or_else(|| trial(number).inspect(|counts| self.keep(row, number, counts)), Ok)
            {
                Ok(counts) => counts,
                Err(failure) => {
                    all.failures.push(format!("trial {number}: {failure}"));
                    continue;
                }
            };
            counts.into_iter().for_each(|(name, count)| *all.counts.entry(name).or_default() += count);
        }
        all
    }

    fn keep(&self, row: &str, number: usize, counts: &Counts) {
        let Some(file) = &self.file else { return };
        let counts: Vec<String> = counts.iter().map(|(name, count)| format!("{name}={count}")).collect();
        let line = format!("{row}\t{number}\t{}\n", counts.join("\t"));
        // A trial that is not kept is done again.
        if let Err(error) = lock(file).write_all(line.as_bytes()) {
            eprintln!("trial {number} of {row} is not kept: {error}");
        }
    }
}

/// A line of the file; `None` for one that was cut off.
fn read(line: &str) -> Option<((String, usize), Counts)> {
    let mut fields = line.split('\t');
    let (row, number) = (fields.next()?, fields.next()?.parse().ok()?);
    let count = |field: &str| {
        let (name, count) = field.rsplit_once('=')?;
        Some((name.to_string(), count.parse().ok()?))
    };
    let counts: Option<Counts> = fields.filter(|field| !field.is_empty()).map(count).collect();
    Some(((row.into(), number), counts?))
}

/// One of each of `names`.
pub(super) fn one_of_each(names: impl IntoIterator<Item = String>) -> Counts {
    names.into_iter().map(|name| (name, 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_trials_are_not_repeated_and_another_build_starts_over() {
        let path = std::env::temp_dir().join(format!("pleach-kept-{}", std::process::id()));
        let count = |number| one_of_each([format!("seen {}", number % 2)]);
        let done = |build, fails: usize| {
            let kept = Kept::open_of(build, &path).expect("a file");
            let mut done = vec![];
            let row = kept.row("R3", 4, |number| {
                done.push(number);
                if number == fails { Err("failed".into()) } else { Ok(count(number)) }
            });
            (done, row.list("seen "), row.failures)
        };
        assert_eq!(done("build 1", 2), (vec![0, 1, 2, 3], "0: 1, 1: 2".into(), vec!["trial 2: failed".into()]));
        assert_eq!(done("build 1", 9), (vec![2], "0: 2, 1: 2".into(), vec![]));
        assert_eq!(done("build 1", 9).0, [0; 0]);
        assert_eq!(done("build 2", 9).0, [0, 1, 2, 3]);
        std::fs::remove_file(&path).expect("a file");
    }
}
