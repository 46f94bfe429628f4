//! Run files that a folder or a store keeps: whoever wrote the folder wrote them.

use std::collections::BTreeMap;
use std::path::Path;

use super::source::{self, Entries, Entry};
use super::{Files, NoFiles, RunConfig, declared};
use crate::data_spec::DataSpec;
use crate::problem::{Location, Problem};
use crate::trusted::{Author, Consequence, Trusted};

/// The beginning of the last line of a run file whose user has confirmed it.
const CODE: &str = "# code ";

/// The text of a run file in a folder, a checkpoint or a store. It becomes a run only together with its author, so that
/// no key of a stranger acts.
#[derive(Clone, Debug)]
pub struct KeptRunFile(String);

/// A run as it was kept.
#[derive(Clone, Debug)]
pub struct KeptRun {
    /// The run, without what is left out.
    pub config: RunConfig,
    /// Where each key was written.
    pub locations: BTreeMap<String, Location>,
    /// Keys that act, which the text has and nobody answers for: as if they were not there.
    pub left_out: Vec<String>,
}

impl KeptRunFile {
    /// The text as it is kept, with or without a code.
    pub fn new(text: impl Into<String>) -> KeptRunFile {
        KeptRunFile(text.into())
    }

    /// The text of `config`, for a file of a folder.
    pub fn of(config: &RunConfig) -> KeptRunFile {
        KeptRunFile(config.to_toml())
    }

    /// The same with the code that confirms it.
    #[must_use]
    pub fn with_code(&self, code: &[u8]) -> KeptRunFile {
        let digits: String = code.iter().map(|byte| format!("{byte:02x}")).collect();
        KeptRunFile(format!("{}{CODE}{digits}\n", self.text()))
    }

    /// The code, if there is one.
    pub fn code(&self) -> Option<Vec<u8>> {
        let digits = self.0.strip_prefix(self.text())?.strip_prefix(CODE)?.trim_end();
        let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
        (0..digits.len()).step_by(2).map(byte).collect()
    }

    /// All of it, to keep.
    pub fn to_text(&self) -> &str {
        &self.0
    }

    /// The text without the code, which is of all bytes of it: to show it, and to compare it.
    pub fn text(&self) -> &str {
        let lines = self.0.strip_suffix('\n').unwrap_or(&self.0);
        let last = lines.rfind('\n').map_or(0, |end| end + 1);
        if lines[last..].starts_with(CODE) { &self.0[..last] } else { &self.0 }
    }

    /// The same with another text, which no code confirms.
    ///
    /// # Errors
    /// The errors of `edit`.
    pub fn edited<E>(&self, edit: impl FnOnce(&str) -> Result<String, E>) -> Result<KeptRunFile, E> {
        edit(self.text()).map(KeptRunFile)
    }

    /// Keys that it has and that only the user may choose. `run.folder`, which every run file has, is not counted: the
    /// folder that is named on the command line takes its place.
    pub fn acting_keys(&self) -> Vec<String> {
        let reader = declared();
        let is_acting = |(key, Entry { value, .. }): &(String, Entry)| match reader.consequence_of(key) {
            Some(Consequence::Sends) => value.has_address(),
            other => other.is_some_and(Consequence::is_for_user_alone) && key != "run.folder",
        };
        self.entries().into_iter().filter(is_acting).map(|(key, _)| key).collect()
    }

    /// The text of a key that acts, where `author` answers for it.
    pub fn acting_text(&self, key: &str, author: Author) -> Option<Trusted<String>> {
        match author {
            Author::User => self.claimed(key).map(Trusted::new),
            Author::Unknown => None,
        }
    }

    /// The text of a key, for comparisons and messages: anyone may have written it.
    pub fn claimed(&self, key: &str) -> Option<String> {
        let Entry { value, .. } = self.entries().remove(key)?;
        value.text().map(str::to_string)
    }

    /// The run, as [`RunConfig::load_with`] reads it. `overrides` are the user's; of the text only a user's keys act.
    ///
    /// # Errors
    /// The errors of [`RunConfig::load_with`].
    pub fn load(
        &self,
        name: &str,
        author: Author,
        overrides: &[String],
        files: &dyn Files,
    ) -> Result<KeptRun, Vec<Problem>> {
        RunConfig::resolve((name, self.text(), author), overrides, &AsRecorded(files), None)
    }

    /// The run as far as its text alone tells, to describe it: no key acts, and no file is read.
    ///
    /// # Errors
    /// The errors of [`RunConfig::load`].
    pub fn described(&self, name: &str) -> Result<RunConfig, Vec<Problem>> {
        self.load(name, Author::Unknown, &[], &NoFiles).map(|kept| kept.config)
    }

    fn entries(&self) -> Entries {
        source::parse("", self.text()).0
    }
}

/// The files of a run that was recorded: tokens around documents are those that its file has.
struct AsRecorded<'a>(&'a dyn Files);

impl Files for AsRecorded<'_> {
    fn vocabulary(&self, data: &DataSpec) -> Result<usize, String> {
        self.0.vocabulary(data)
    }

    fn text(&self, path: &Path) -> Result<String, String> {
        self.0.text(path)
    }
}

impl PartialEq for KeptRunFile {
    fn eq(&self, other: &KeptRunFile) -> bool {
        self.text() == other.text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value for each key that acts.
    const VALUES: [(&str, &str); 8] = [
        ("data.cache", "\"a/cache\""),
        ("data.path", "\"https://host/a.txt\""),
        ("data.sources", "[{ path = \"s3://bucket/a.txt\" }]"),
        ("data.validation", "[{ name = \"a\", path = \"s3://bucket/a.txt\" }]"),
        ("run.folder", "\"elsewhere/.ssh\""),
        ("run.metrics_address", "\"0.0.0.0:9400\""),
        ("run.notify", "\"a command\""),
        ("run.store", "\"s3://bucket/a\""),
    ];

    fn loaded(text: &str, author: Author, overrides: &[String]) -> KeptRun {
        // A cache needs a tokenizer that is there.
        let overrides = [&["data.tokenizer=bytes".to_string()], overrides].concat();
        let loaded = KeptRunFile::new(text).load("", author, &overrides, &NoFiles);
        loaded.unwrap_or_else(|problems| panic!("{text}: {problems:?}"))
    }

    /// Whether a run does what `value` of `key` says.
    fn acts(KeptRun { config, .. }: &KeptRun, (key, value): (&str, &str)) -> bool {
        match declared().consequence_of(key) {
            Some(Consequence::Sends) if key.starts_with("data.") => config.data.requests.is_some(),
            _ => config.to_toml().contains(value),
        }
    }

    #[test]
    fn no_key_of_a_stranger_acts() {
        let reader = declared();
        let is_for_user = |key: &&str| reader.consequence_of(key).is_some_and(Consequence::is_for_user_alone);
        let for_user = reader.keys().filter(is_for_user);
        assert_eq!(for_user.collect::<Vec<_>>(), VALUES.map(|(key, _)| key), "each key that acts has a value here");
        for (key, value) in VALUES {
            let (section, name) = key.split_once('.').expect("a key");
            let text = format!("[{section}]\n{name} = {value}\n");
            assert!(acts(&loaded(&text, Author::User, &[]), (key, value)), "{key} of the user");
            let unknown = loaded(&text, Author::Unknown, &[]);
            assert!(!acts(&unknown, (key, value)), "{key} of a stranger");
            // Text at an address is refused where it is asked for: without it the run would be another one.
            let is_of_text = ["data.path", "data.sources", "data.validation"].contains(&key);
            assert_eq!(unknown.left_out, if is_of_text { vec![] } else { vec![key.to_string()] });
            let set = loaded(&text, Author::Unknown, &[format!("{key}={value}")]);
            assert!(acts(&set, (key, value)) && set.left_out.is_empty(), "{key} of the command line");
        }
    }

    #[test]
    fn text_of_this_machine_needs_no_permission() {
        let of =
            |path: &str| loaded(&format!("[data]\npath = \"{path}\"\n"), Author::Unknown, &[]).config.data.requests;
        assert!(of("a.txt").is_some() && of("/texts/a.txt").is_some() && of("http://host/a.txt").is_none());
    }

    #[test]
    fn a_code_is_the_last_line_and_no_part_of_the_text() {
        let text = RunConfig::quick_start().to_toml();
        let plain = KeptRunFile::new(text.clone());
        assert_eq!((plain.code(), plain.text()), (None, text.as_str()));
        let coded = plain.with_code(&[0xab; 32]);
        assert_eq!((coded.code(), coded.text()), (Some(vec![0xab; 32]), text.as_str()));
        assert!(coded == plain && coded.to_text() == format!("{text}# code {}\n", "ab".repeat(32)));
        assert_eq!(
            coded.with_code(&[1]).to_text(),
            format!("{text}# code 01\n"),
            "one code takes the place of another"
        );
        assert_eq!(coded.edited(|text| Ok::<_, ()>(text.into())).map(|kept| kept.code()), Ok(None));
        for broken in ["# code ab0", "# code xy", "# code é"] {
            assert_eq!(KeptRunFile::new(format!("{text}{broken}\n")).code(), None, "{broken}");
        }
        assert!(plain.acting_keys().is_empty(), "every run file has a folder");
        let of = |path: &str| KeptRunFile::new(format!("[data]\npath = \"{path}\"\n")).acting_keys();
        assert_eq!((of("a.txt"), of("s3://bucket/a.txt")), (vec![], vec!["data.path".to_string()]));
    }
}
