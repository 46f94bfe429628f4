//! Takes typed values out of a run file. A key that is never read is unknown.

use std::collections::{BTreeMap, BTreeSet};

use super::aliases;
use super::nearest::nearest;
use super::source::{Entries, Entry, Value};
use super::table_keys;
use super::unsupported;
use crate::problem::{Location, Problem};
use crate::trusted::{Author, Requests, Trusted};

/// Largest count that a run file may name: every product of two counts then fits 64 bits.
const MAX_COUNT: i128 = i32::MAX as i128;
/// Unknown keys that are reported one by one.
const MOST_UNKNOWN: usize = 100;

/// The names that a key takes, with what each means.
pub type Choices<T> = [(&'static str, T)];

/// The name of a choice.
pub fn name_of<T: Copy + PartialEq>(choices: &Choices<T>, value: T) -> &'static str {
    choices.iter().find(|(_, choice)| *choice == value).map_or("", |(name, _)| name)
}

/// Hands out entries by key and collects everything that is wrong with them.
#[derive(Debug, Default)]
pub struct Reader {
    entries: Entries,
    /// Who wrote the entries that are not overrides.
    author: Author,
    asked: BTreeSet<String>,
    /// Keys that act: those of the user only.
    acting: BTreeSet<String>,
    /// Those that are written, and not by the user.
    left_out: Vec<String>,
    names: BTreeMap<String, Vec<&'static str>>,
    /// Keys whose value could not be used, so that a default stands in for it.
    pub unusable: BTreeSet<String>,
    /// The errors so far.
    pub problems: Vec<Problem>,
}

impl Reader {
    /// A reader of `entries`, which are overrides of the user or were written by `author`.
    pub fn new(entries: Entries, author: Author) -> Reader {
        Reader { entries, author, ..Reader::default() }
    }

    /// All keys that were asked for.
    pub fn asked(&self) -> impl Iterator<Item = &str> {
        self.asked.iter().map(String::as_str)
    }

    /// All keys that were asked for and act.
    #[cfg(test)]
    pub fn acting(&self) -> &BTreeSet<String> {
        &self.acting
    }

    /// Keys that act and are written, but not by the user.
    pub fn take_left_out(&mut self) -> Vec<String> {
        std::mem::take(&mut self.left_out)
    }

    /// Keys whose values have names, with the names.
    pub fn into_names(self) -> BTreeMap<String, Vec<&'static str>> {
        self.names
    }

    /// Whether `key` was written.
    pub fn is_set(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// The string of `key`, for the message of another key, which judges nothing; `None` where another value or none is
    /// written.
    pub fn text_beside(&self, key: &str) -> Option<&str> {
        self.entries.get(key)?.value.text()
    }

    /// Where everything was written.
    pub fn into_entries(self) -> Entries {
        self.entries
    }

    fn take<T>(&mut self, key: &str, wanted: &str, convert: impl Fn(&Value) -> Option<T>) -> Option<T> {
        self.asked.insert(key.into());
        let Entry { value, location } = self.entries.get(key)?;
        let converted = convert(value);
        if converted.is_none() {
            self.unusable.insert(key.into());
            self.problems
                .push(Problem::of_value(key, value, format!("is not {wanted}"), "").at(Some(location.clone())));
        }
        converted
    }

    /// A whole number below 2^31, or `None` if the key is absent.
    pub fn optional_count(&mut self, key: &str) -> Option<usize> {
        self.take(key, "a whole number from 0 to 2147483647", count)
    }

    /// A whole number below 2^31.
    pub fn count(&mut self, key: &str, default: usize) -> usize {
        self.optional_count(key).unwrap_or(default)
    }

    /// A list of whole numbers below 2^31, or `None` if the key is absent.
    pub fn optional_counts(&mut self, key: &str) -> Option<Vec<usize>> {
        self.list_of(key, "a list of whole numbers such as [3, 3]", count)
    }

    /// A whole number of 64 bits.
    pub fn seed(&mut self, key: &str, default: u64) -> u64 {
        self.optional_long_count(key).unwrap_or(default)
    }

    /// A whole number of 64 bits, or `None` if the key is absent.
    pub fn optional_long_count(&mut self, key: &str) -> Option<u64> {
        self.take(key, "a whole number from 0 to 18446744073709551615", |value| u64::try_from(value.integer()?).ok())
    }

    /// A finite number, whole or not, or `None` if the key is absent.
    pub fn optional_number(&mut self, key: &str) -> Option<f32> {
        self.take(key, "a number", Value::number)
    }

    /// A finite number, whole or not.
    pub fn number(&mut self, key: &str, default: f32) -> f32 {
        self.optional_number(key).unwrap_or(default)
    }

    /// `true` or `false`.
    pub fn yes_no(&mut self, key: &str, default: bool) -> bool {
        self.take(key, "true or false", Value::boolean).unwrap_or(default)
    }

    /// A string, or `None` if the key is absent.
    pub fn optional_text(&mut self, key: &str) -> Option<String> {
        self.take(key, "a string", |value| value.text().map(str::to_string))
    }

    /// The string of a key that acts, where the user has chosen it; `None` if the key is absent or left out.
    pub fn acting_text(&mut self, key: &str) -> Option<Trusted<String>> {
        self.acting.insert(key.into());
        let text = self.optional_text(key)?;
        if self.is_chosen(key) {
            return Some(Trusted::new(text));
        }
        self.left_out.push(key.into());
        None
    }

    /// Permission to send requests to the addresses in the values of `keys`: not where one is of someone else. Each of
    /// these keys was read.
    pub fn requests(&mut self, keys: &[&str]) -> Option<Trusted<Requests>> {
        self.acting.extend(keys.iter().map(ToString::to_string));
        let has_address = |key: &str| self.entries.get(key).is_some_and(|entry| entry.value.has_address());
        let is_asked = keys.iter().all(|key| self.is_chosen(key) || !has_address(key));
        is_asked.then_some(Trusted::new(Requests))
    }

    /// Whether the user has chosen the value of a key, or that it has no value.
    fn is_chosen(&self, key: &str) -> bool {
        match (self.author, self.location(key)) {
            (Author::User, _) | (Author::Unknown, Some(Location::Override(_)) | None) => true,
            (Author::Unknown, Some(Location::File { .. })) => false,
        }
    }

    /// A string that `convert` understands, or `None` if the key is absent. `wanted` says what it would understand.
    pub fn text_as<T>(&mut self, key: &str, wanted: &str, convert: impl Fn(&str) -> Option<T>) -> Option<T> {
        self.take(key, wanted, |value| convert(value.text()?))
    }

    /// A value of any kind that `convert` understands, or `None` if the key is absent. `wanted` says what it would
    /// understand.
    pub fn value_as<T>(&mut self, key: &str, wanted: &str, convert: impl Fn(&Value) -> Option<T>) -> Option<T> {
        self.take(key, wanted, convert)
    }

    /// A table with the keys `known` that `convert` understands, or `None` if the key is absent. `wanted` says what it
    /// would understand.
    pub fn table_as<T>(
        &mut self,
        key: &str,
        wanted: &str,
        known: &[&str],
        convert: impl Fn(&[(String, Value)]) -> Option<T>,
    ) -> Option<T> {
        self.take_tables(key, wanted, known, |value| convert(value.table()?))
    }

    /// A list whose every item `convert` understands, tables of the keys `known` among them, or `None` if the key is
    /// absent. `wanted` says what it would understand.
    pub fn tables_of<T>(
        &mut self,
        key: &str,
        wanted: &str,
        known: &[&str],
        convert: impl Fn(&Value) -> Option<T>,
    ) -> Option<Vec<T>> {
        self.take_tables(key, wanted, known, |value| value.list()?.iter().map(&convert).collect())
    }

    fn take_tables<T>(
        &mut self,
        key: &str,
        wanted: &str,
        known: &[&str],
        convert: impl Fn(&Value) -> Option<T>,
    ) -> Option<T> {
        let unknown = self.entries.get(key).map(|entry| table_keys::unknown(key, &entry.value, known));
        let unknown = unknown.unwrap_or_default();
        if unknown.is_empty() {
            return self.take(key, wanted, convert);
        }
        self.asked.insert(key.into());
        self.unusable.insert(key.into());
        unknown.into_iter().for_each(|problem| self.report(problem));
        None
    }

    /// A list whose every item `convert` understands, or `None` if the key is absent. `wanted` says what it would
    /// understand.
    pub fn list_of<T>(&mut self, key: &str, wanted: &str, convert: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
        self.take(key, wanted, |value| value.list()?.iter().map(&convert).collect())
    }

    /// Where `key` was written.
    pub fn location(&self, key: &str) -> Option<&Location> {
        Some(&self.entries.get(key)?.location)
    }

    /// One of the names in `choices`; a number stands for its own digits, `true` and `false` for themselves.
    pub fn choice<T: Copy>(&mut self, key: &str, choices: &Choices<T>, default: T) -> T {
        let names: Vec<&'static str> = choices.iter().map(|(name, _)| *name).collect();
        let wanted = one_of(&names);
        self.names.insert(key.into(), names.clone());
        let written = |value: &Value| {
            let digits = || value.integer().map(|number| number.to_string());
            let truth = || value.boolean().map(|truth| truth.to_string());
            value.text().map(str::to_string).or_else(digits).or_else(truth)
        };
        let found = |value: &Value| {
            let text = written(value)?;
            choices.iter().find(|(name, _)| *name == text).map(|(_, choice)| *choice)
        };
        let choice = self.take(key, &wanted, found);
        let text = self.entries.get(key).filter(|_| choice.is_none()).and_then(|entry| entry.value.text());
        let near = text.and_then(|text| nearest_choice(text, &names));
        if let (Some(near), Some(problem)) = (near, self.problems.last_mut()) {
            problem.remedy = format!("did you mean {near:?}?");
        }
        choice.unwrap_or(default)
    }

    /// A problem of a value that was written, or of a default.
    pub fn report(&mut self, problem: Problem) {
        let location = self.entries.get(&problem.key).map(|entry| entry.location.clone());
        self.problems.push(problem.at(location));
    }

    /// Reports keys that were never asked for, each with the key that may have been meant: the first [`MOST_UNKNOWN`],
    /// and the number of the others.
    pub fn report_unknown_keys(&mut self) {
        let mut unknown = self.entries.iter().filter(|(key, _)| !self.asked.contains(*key));
        let first = unknown.by_ref().take(MOST_UNKNOWN);
        let problems: Vec<Problem> =
            first.map(|(key, entry)| unknown_key(key, &self.asked).at(Some(entry.location.clone()))).collect();
        self.problems.extend(problems);
        if let Some((key, entry)) = unknown.next() {
            let others = format!("and {} more are not keys", unknown.count() + 1);
            let remedy = "use `pleach check` on a run file that this version wrote to see all keys";
            self.problems.push(Problem::of_key(&format!("`{key}`"), others, remedy).at(Some(entry.location.clone())));
        }
    }
}

/// The name of more than three letters that a misspelled one is near to: shorter ones are near to too many, as is the
/// beginning of several names.
fn nearest_choice<'a>(text: &str, names: &[&'a str]) -> Option<&'a str> {
    let begin = names.iter().filter(|name| name.starts_with(text)).count();
    nearest(text, names.iter().copied()).filter(|near| begin < 2 && (near.len() > 3 || near.len() < text.len()))
}

/// A whole number below 2^31.
pub fn count(value: &Value) -> Option<usize> {
    value.integer().filter(|number| (0..=MAX_COUNT).contains(number)).and_then(|number| usize::try_from(number).ok())
}

/// Counts are below 2^31 wherever they are read.
pub(super) fn short_count(reader: &mut Reader, key: &str, default: u32) -> u32 {
    reader.optional_count(key).and_then(|count| u32::try_from(count).ok()).unwrap_or(default)
}

/// `"a"`, `"a" or "b"`, `one of "a", "b" and "c"`; digits and truths without quotes.
fn one_of(names: &[&str]) -> String {
    let is_bare = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit()) || ["true", "false"].contains(&name);
    let quoted: Vec<String> =
        names.iter().map(|name| if is_bare(name) { name.to_string() } else { format!("{name:?}") }).collect();
    match quoted.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [first, second] => format!("{first} or {second}"),
        [first @ .., last] => format!("one of {} and {last}", first.join(", ")),
    }
}

fn unknown_key(key: &str, known: &BTreeSet<String>) -> Problem {
    let (section, name) = key.split_once('.').unwrap_or(("", key));
    let shown = format!("`{key}`");
    if let Some(meaning) = aliases::meaning(name) {
        return Problem::of_key(&format!("`{name}`"), meaning, "");
    }
    if let Some(problem) = unsupported::problem(&format!("`{name}`"), name) {
        return problem;
    }
    if let Some(home) = super::section_of(name) {
        return Problem::of_key(&shown, format!("belongs to [{home}]"), format!("write {home}.{name}"));
    }
    let siblings =
        known.iter().filter_map(|key| key.split_once('.')).filter(|(home, _)| *home == section).map(|(_, name)| name);
    let all = known.iter().filter_map(|key| key.split_once('.')).map(|(_, name)| name);
    let near = nearest(name, siblings).or_else(|| nearest(name, all));
    let remedy = near.map(|near| {
        let home = if known.contains(&format!("{section}.{near}")) {
            section
        } else {
            super::section_of(near).unwrap_or(section)
        };
        format!("did you mean `{home}.{near}`?")
    });
    let of_section = || {
        let own = known.iter().filter_map(|key| key.split_once('.')).filter(|(home, _)| *home == section);
        let names: Vec<&str> = own.map(|(_, name)| name).collect();
        format!("[{section}] has {}", names.join(", "))
    };
    Problem::of_key(&shown, "is not a key", remedy.unwrap_or_else(of_section))
}
