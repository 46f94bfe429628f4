//! Takes typed values out of a run file, and knows of every key what is declared. A key that is never read is unknown.

use std::collections::{BTreeMap, BTreeSet};

use super::nearest::nearest;
use super::source::{Entries, Entry, Value};
use super::table;
use super::value::{Item, name_written, one_of};
use super::{other_names, unsupported};
use crate::problem::{Location, Problem};
use crate::trusted::{Author, Consequence, Requests, Trusted};

/// Unknown keys that are reported one by one.
const MOST_UNKNOWN: usize = 100;

/// Whether weights compute another function with another value of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OfWeights {
    /// They do.
    #[default]
    Function,
    /// They do not: it is about their training.
    Training,
    /// It stretches the function to longer sequences.
    Length,
}

/// The declaration of a key.
#[derive(Debug)]
pub struct Declared {
    /// The names that its value may have.
    pub names: Vec<&'static str>,
    /// The most that its value can cause.
    pub consequence: Consequence,
    /// Whether weights depend on it.
    pub of_weights: OfWeights,
}

/// The name of a key in Megatron-LM or DeepSpeed, so that messages name the key here.
#[derive(Debug)]
pub struct Alias {
    /// Its name there.
    pub name: &'static str,
    /// The key here.
    pub key: String,
    /// A remark next to the name.
    pub note: &'static str,
}

/// A kind of values.
struct Kind {
    /// The names that it has.
    names: Vec<&'static str>,
    /// The keys of its inline tables.
    table_keys: Vec<&'static str>,
    /// Its description, as the rest of a sentence that begins with "is not".
    wanted: String,
}

/// Hands out entries by key and collects everything that is wrong with them.
#[derive(Debug, Default)]
pub struct Reader {
    entries: Entries,
    /// Who wrote the entries that are not overrides.
    author: Author,
    /// All keys that were asked for.
    pub declared: BTreeMap<String, Declared>,
    /// Their names elsewhere.
    pub aliases: Vec<Alias>,
    /// Keys that act and are written, but not by the user.
    pub left_out: Vec<String>,
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

    /// Where `key` was written.
    pub fn location(&self, key: &str) -> Option<&Location> {
        Some(&self.entries.get(key)?.location)
    }

    /// Declares `key` and takes its value with `read`, or `None` if it is absent or wrong, which is reported once.
    pub fn take<T: Item>(
        &mut self,
        key: &str,
        consequence: Consequence,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Option<T> {
        let kind = Kind { names: T::names(), table_keys: T::table_keys(), wanted: T::wanted() };
        self.take_kind(key, &kind, consequence, read)
    }

    fn take_kind<T>(
        &mut self,
        key: &str,
        Kind { names, table_keys, wanted }: &Kind,
        consequence: Consequence,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Option<T> {
        let declared = Declared { names: names.clone(), consequence, of_weights: OfWeights::default() };
        let is_first = self.declared.insert(key.into(), declared).is_none();
        let Entry { value, location } = self.entries.get(key)?;
        let unknown = if table_keys.is_empty() { vec![] } else { table::unknown(key, value, table_keys) };
        let taken = if unknown.is_empty() { read(value) } else { None };
        if taken.is_some() || !is_first {
            return taken;
        }
        self.unusable.insert(key.into());
        let location = Some(location.clone());
        if unknown.is_empty() {
            let near = |text| nearest_choice(text, names).map(|near| format!("did you mean {near:?}?"));
            let answer = |text| unsupported::former(key, text).map(String::from).or_else(|| near(text));
            let remedy = value.text().and_then(answer).unwrap_or_default();
            let problem = Problem::of_value(key, value, format!("is not {wanted}"), remedy);
            self.problems.push(problem.at(location));
        } else {
            self.problems.extend(unknown.into_iter().map(|problem| problem.at(location.clone())));
        }
        None
    }

    /// One of `names`: the value of a key whose variants have further keys.
    pub fn take_name(&mut self, key: &str, names: &[&'static str]) -> Option<&'static str> {
        let kind = Kind { names: names.to_vec(), table_keys: vec![], wanted: one_of(names) };
        self.take_kind(key, &kind, Consequence::Within, |value| {
            let written = name_written(value)?;
            names.iter().find(|name| **name == written).copied()
        })
    }

    /// A name of Megatron-LM, of a key that is asked for.
    pub fn alias(&mut self, alias: Alias) {
        self.aliases.push(alias);
    }

    /// The string of a key that acts, where the user has chosen it; `None` if the key is absent or left out.
    pub fn acting_text(&mut self, key: &str, consequence: Consequence) -> Option<Trusted<String>> {
        let text = self.take(key, consequence, String::read)?;
        if self.is_chosen(key) {
            return Some(Trusted::new(text));
        }
        self.left_out.push(key.into());
        None
    }

    /// Permission to send requests to the addresses in the values of `keys`: not where one is of someone else. Each of
    /// these keys was read.
    pub fn requests(&self, keys: &[&str]) -> Option<Trusted<Requests>> {
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

    /// A problem of a value that was written, or of a default.
    pub fn report(&mut self, problem: Problem) {
        let location = self.entries.get(&problem.key).map(|entry| entry.location.clone());
        self.problems.push(problem.at(location));
    }

    /// Every key as `section.key`.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.declared.keys().map(String::as_str)
    }

    /// The most that the value of a key can cause; `None` for one that is not known.
    pub fn consequence_of(&self, key: &str) -> Option<Consequence> {
        self.declared.get(key).map(|declared| declared.consequence)
    }

    /// Whether weights depend on a key; `None` for one that is not known.
    pub fn of_weights(&self, key: &str) -> Option<OfWeights> {
        self.declared.get(key).map(|declared| declared.of_weights)
    }

    /// The section that has a key of this name.
    pub fn section_of(&self, name: &str) -> Option<&'static str> {
        super::source::SECTIONS.into_iter().find(|section| self.declared.contains_key(&format!("{section}.{name}")))
    }

    /// The meaning of a name of Megatron-LM or another program, with dashes or underscores, as the end of a sentence
    /// about it; a refusal for the name of an axis that runs do not have. Degrees have the names of sizes.
    pub fn meaning(&self, name: &str) -> Option<String> {
        let name = name.trim_start_matches("--").replace('-', "_");
        let of_size = format!("{}_size", name.strip_suffix("_degree").unwrap_or(&name));
        let of_alias = || {
            let Alias { key, note, .. } =
                self.aliases.iter().find(|alias| alias.name == name || alias.name == of_size)?;
            Some(if note.is_empty() { format!("is `{key}` here") } else { format!("is `{key}` here ({note})") })
        };
        unsupported::other_axis(&name).or_else(of_alias).or_else(|| other_names::meaning(&name))
    }

    /// Reports keys that were never asked for, each with the key that may have been meant: the first [`MOST_UNKNOWN`],
    /// and the number of the others.
    pub fn report_unknown_keys(&mut self) {
        let mut unknown = self.entries.iter().filter(|(key, _)| !self.declared.contains_key(*key));
        let first = unknown.by_ref().take(MOST_UNKNOWN);
        let mut problems: Vec<Problem> =
            first.map(|(key, entry)| self.unknown_key(key).at(Some(entry.location.clone()))).collect();
        if let Some((key, entry)) = unknown.next() {
            let others = format!("and {} more are not keys", unknown.count() + 1);
            let remedy = "use `pleach check` on a run file that this version wrote to see all keys";
            problems.push(Problem::of_key(&format!("`{key}`"), others, remedy).at(Some(entry.location.clone())));
        }
        self.problems.extend(problems);
    }

    fn unknown_key(&self, key: &str) -> Problem {
        let (section, name) = key.split_once('.').unwrap_or(("", key));
        let shown = format!("`{key}`");
        if let Some(meaning) = self.meaning(name) {
            return Problem::of_key(&format!("`{name}`"), meaning, "");
        }
        if let Some(problem) = unsupported::problem(&format!("`{name}`"), name) {
            return problem;
        }
        if let Some(home) = self.section_of(name) {
            return Problem::of_key(&shown, format!("belongs to [{home}]"), format!("write {home}.{name}"));
        }
        if let Some((table, field)) = key.rsplit_once('.').filter(|(table, _)| self.declared.contains_key(*table)) {
            let remedy = format!("write it as a field: `--set '{table}={{ {field} = ... }}'`");
            return Problem::of_key(&shown, "is not a key", remedy);
        }
        let known = || self.keys().filter_map(|key| key.split_once('.'));
        let siblings: Vec<&str> = known().filter(|(home, _)| *home == section).map(|(_, name)| name).collect();
        let near = nearest(name, siblings.iter().copied());
        let (home, near) = match near.or_else(|| nearest(name, known().map(|(_, name)| name))) {
            Some(near) if siblings.contains(&near) => (section, near),
            Some(near) => (self.section_of(near).unwrap_or(section), near),
            None => {
                let all = format!("[{section}] has {}", siblings.join(", "));
                return Problem::of_key(&shown, "is not a key", all);
            }
        };
        Problem::of_key(&shown, "is not a key", format!("did you mean `{home}.{near}`?"))
    }
}

/// The name of more than three letters that a misspelled one is near to: shorter ones are near to too many, as is the
/// beginning of several names.
fn nearest_choice<'a>(text: &str, names: &[&'a str]) -> Option<&'a str> {
    let begin = names.iter().filter(|name| name.starts_with(text)).count();
    nearest(text, names.iter().copied()).filter(|near| begin < 2 && (near.len() > 3 || near.len() < text.len()))
}
