//! Trials one by one, each kept as it ends.

use std::collections::BTreeMap;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

/// Counts of a trial, by name, which are added over trials.
pub type Counts = BTreeMap<String, usize>;

/// Counts of trials, by row and number.
pub type Kept = crate::kept::Kept<(String, usize), Counts>;

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

/// The trials in the file at `path`. Those of another build of this program are not used.
///
/// # Errors
/// A file that cannot be read or written, in words.
pub fn kept_in(path: &Path) -> Result<Kept, String> {
    let program = std::env::current_exe().and_then(std::fs::read).map_err(|error| error.to_string())?;
    Kept::open(path, &format!("build {:016x}", xxh3_64(&program)))
}

/// Does the trials `0 .. trials` of the row `row` that are not kept. One that fails is not kept, so that the next run
/// tries it again.
pub(super) fn row(
    kept: &Kept,
    row: &str,
    trials: usize,
    mut trial: impl FnMut(usize) -> Result<Counts, String>,
) -> Row {
    let mut all = Row::default();
    for number in 0..trials {
        let key = (row.to_string(), number);
        let counts = kept.get(&key).map_or_else(|| trial(number).inspect(|counts| kept.keep(key, counts.clone())), Ok);
        match counts {
            Ok(counts) => counts.into_iter().for_each(|(name, count)| *all.counts.entry(name).or_default() += count),
            Err(failure) => all.failures.push(format!("trial {number}: {failure}")),
        }
    }
    all
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
            let kept = Kept::open(&path, build).expect("a file");
            let mut done = vec![];
            let row = row(&kept, "R3", 4, |number| {
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
