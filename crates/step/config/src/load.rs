//! Reads run files and checks them by all rules.

use std::collections::{BTreeMap, BTreeSet};

use crate::check::check;
use crate::problem::{Location, Problem};
use crate::run_file::{Files, GivenWeights, KeptRun, NoFiles, Reading, RunConfig};
use crate::trusted::Author;

impl RunConfig {
    /// Reads and checks a run file that the user has named: all of its keys act. One that a folder keeps is a
    /// [`KeptRunFile`]. `name` stands for the file in messages; `overrides` are `section.key=value`, of
    /// which later ones win.
    ///
    /// # Errors
    /// All that is wrong, each with its place: syntax, unknown keys, values of a wrong type, and every rule of
    /// [`check`].
    ///
    /// Where the tokenizer is a file, `model.vocabulary` is required, and the schedule is not one: this reads no
    /// files. [`RunConfig::load_with`] asks.
    pub fn load(name: &str, text: &str, overrides: &[String]) -> Result<RunConfig, Vec<Problem>> {
        RunConfig::load_with(name, text, overrides, &NoFiles).map(|(config, _)| config)
    }

    /// Returns the same as [`RunConfig::load`], with what only `files` can tell, and with the place of every key that
    /// was written: for rules that are checked later.
    ///
    /// # Errors
    /// The errors of [`RunConfig::load`], and what `files` says.
    pub fn load_with(
        name: &str,
        text: &str,
        overrides: &[String],
        files: &dyn Files,
    ) -> Result<(RunConfig, BTreeMap<String, Location>), Vec<Problem>> {
        let KeptRun { config, locations, .. } = RunConfig::resolve((name, text, Author::User), overrides, files, None)?;
        Ok((config, locations))
    }

    /// Returns the same as [`RunConfig::load_with`], for a run that begins with given weights: what the file leaves out
    /// of their model is theirs, and what it says has to agree with them.
    ///
    /// # Errors
    /// The errors of [`RunConfig::load_with`], and every key of the file that makes another model.
    pub fn load_for(
        given: &GivenWeights<'_>,
        name: &str,
        text: &str,
        overrides: &[String],
        files: &dyn Files,
    ) -> Result<(RunConfig, BTreeMap<String, Location>), Vec<Problem>> {
        let KeptRun { config, locations, .. } =
            RunConfig::resolve((name, text, Author::User), overrides, files, Some(given))?;
        Ok((config, locations))
    }

    pub(crate) fn resolve(
        file: (&str, &str, Author),
        overrides: &[String],
        files: &dyn Files,
        given: Option<&GivenWeights<'_>>,
    ) -> Result<KeptRun, Vec<Problem>> {
        let Reading { config, mut problems, unusable, left_out, locations } =
            Reading::of(file, overrides, files, given);
        if let Err(broken_rules) = check(&config) {
            let broken_rules = broken_rules.into_iter().filter(|problem| !rests_on(problem, &unusable));
            problems.extend(broken_rules.map(|problem| {
                let location = locations.get(&problem.key).cloned();
                problem.at(location)
            }));
        }
        // As a reader goes through the file, then the overrides; what follows from defaults comes last.
        problems.sort_by_key(|problem| reading_order(problem.location.as_ref()));
        if problems.is_empty() { Ok(KeptRun { config, locations, left_out }) } else { Err(problems) }
    }
}

/// Where a place comes: the lines of a file, then overrides, which keep their order, then what was not written.
fn reading_order(location: Option<&Location>) -> (usize, usize, usize) {
    match location {
        Some(Location::File { line, column, .. }) => (0, *line, *column),
        Some(Location::Override(_)) => (1, 0, 0),
        None => (2, 0, 0),
    }
}

/// Whether a rule was broken by a default that stands in for a value that could not be used.
fn rests_on(problem: &Problem, unusable: &BTreeSet<String>) -> bool {
    unusable.iter().any(|key| problem.key == *key || problem.rule.contains(key))
}
