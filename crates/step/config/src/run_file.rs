//! Run files: TOML and overrides in, a whole run out, and back.
//!
//! A run file has the sections `[model]`, `[parallelism]`, `[train]`, `[data]` and `[run]`; every key has a default,
//! and the defaults together are the quick start. A file and its overrides are resolved into a [`RunConfig`], which is
//! written back as a file with a value for every key.

mod balance;
mod data;
mod given;
mod kept;
mod keys;
mod model;
mod nearest;
mod other_names;
mod parallelism;
mod reader;
mod run;
mod source;
mod table;
mod train;
mod unsupported;
mod value;

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::path::Path;

use crate::data_spec::{DataSpec, DeviceChoice, Marks, RunSpec, TokenizerSpec};
use crate::model::ModelSpec;
use crate::parallelism::{Overlap, Parallelism};
use crate::problem::{Location, Problem};
use crate::training::TrainSpec;
use crate::trusted::Author;
use keys::{Keys, Work};
use parallelism::Others;
use reader::{OfWeights, Reader};
use source::Entries;

pub use given::GivenWeights;
pub use kept::{KeptRun, KeptRunFile};
pub(crate) use model::MAX_WIDTH;
pub use nearest::nearest;
pub use parallelism::context_kind_name;
pub(crate) use run::MOST_SAMPLED;
pub(crate) use value::Item;

/// Stands for a number of tokens that is not known, in a run that is refused or gives its own.
const ANY_VOCABULARY: usize = 256;

/// Everything about a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunConfig {
    /// The function that is learned.
    pub model: ModelSpec,
    /// How it is spread over ranks.
    pub parallelism: Parallelism,
    /// The optimisation.
    pub train: TrainSpec,
    /// The text.
    pub data: DataSpec,
    /// Where the run writes and how many ranks it has.
    pub run: RunSpec,
}

impl RunConfig {
    /// The defaults: a small GPT on eight ranks.
    pub fn quick_start() -> RunConfig {
        read(&mut Reader::new(Entries::new(), Author::User), &NoFiles)
    }

    /// The layout as the run's device computes it: with overlap as the run says, or else as it is faster there.
    pub fn parallelism_on_device(&self) -> Parallelism {
        Parallelism { overlap: Some(self.overlap()), ..self.parallelism.clone() }
    }

    /// Whether ranks communicate while they compute. On CPUs only where the run asks for it, since their threads have
    /// all cores; several ranks on GPUs do unless the run says otherwise.
    pub fn overlap(&self) -> Overlap {
        self.parallelism.overlap.unwrap_or(match self.run.device {
            DeviceChoice::Cuda if self.parallelism.world_size() > 1 => Overlap::On,
            DeviceChoice::Cpu | DeviceChoice::Cuda => Overlap::Off,
        })
    }

    /// The run as a file in which nothing is left to defaults; reading it gives the same run.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        self.clone().visit(&mut Keys::new(Work::Write(&mut text)));
        text
    }

    /// The values that are out of their range by themselves.
    pub(crate) fn out_of_range(&self) -> Vec<Problem> {
        let mut problems = vec![];
        self.clone().visit(&mut Keys::new(Work::Check(&mut problems)));
        problems
    }

    /// Visits all keys of a run that is known, in the order of a run file.
    fn visit(&mut self, keys: &mut Keys<'_>) {
        let RunConfig { model, parallelism, train, data, run } = self;
        model::visit(keys.section("model"), model, ANY_VOCABULARY);
        let others = Others { ranks: None, data, model, files: &NoFiles };
        parallelism::visit(keys.section("parallelism"), parallelism, &others);
        train::visit(keys.section("train"), train, model.context);
        data::visit(keys.section("data"), data);
        run::visit(keys.section("run"), run);
    }
}

/// A run as its file and the overrides have it, before the rules between keys are checked.
pub(crate) struct Reading {
    pub(crate) config: RunConfig,
    /// All that is wrong with the keys by themselves.
    pub(crate) problems: Vec<Problem>,
    /// Keys whose value could not be used, so that a default stands in for it.
    pub(crate) unusable: BTreeSet<String>,
    /// Keys that are written and do not act.
    pub(crate) left_out: Vec<String>,
    /// The place of every key that was written.
    pub(crate) locations: BTreeMap<String, Location>,
}

impl Reading {
    /// Reads the file `name` of `author`, and the overrides.
    pub(crate) fn of(
        (name, text, author): (&str, &str, Author),
        overrides: &[String],
        files: &dyn Files,
        given: Option<&GivenWeights<'_>>,
    ) -> Reading {
        let (mut entries, mut problems) = source::parse(name, text);
        problems.extend(source::apply_overrides(overrides, &mut entries));
        problems.extend(given.map_or(vec![], |given| given.take_over(&mut entries)));
        let mut reader = Reader::new(entries, author);
        let config = read(&mut reader, files);
        if let Some(problem) = given.and_then(|given| given.lacks_tokenizer(&config.data)) {
            // Rules of text rest on it.
            reader.unusable.insert("data.tokenizer".into());
            reader.unusable.insert("data.chat".into());
            problems.push(problem);
        }
        reader.report_unknown_keys();
        problems.append(&mut reader.problems);
        let (unusable, left_out) = (take(&mut reader.unusable), take(&mut reader.left_out));
        let locations = reader.into_entries().into_iter().map(|(key, entry)| (key, entry.location)).collect();
        Reading { config, problems, unusable, left_out, locations }
    }
}

/// Values from files that a run names, since this crate reads no files.
pub trait Files {
    /// Number of different tokens in the data: the default of `model.vocabulary`.
    ///
    /// # Errors
    /// Why it is not known.
    fn vocabulary(&self, data: &DataSpec) -> Result<usize, String>;

    /// The text of a file.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn text(&self, path: &Path) -> Result<String, String>;

    /// The tokens around documents by the files of a tokenizer: the defaults of `data.begin` and `data.end`. None by
    /// default.
    ///
    /// # Errors
    /// Why they are not known.
    fn marks(&self, _tokenizer: &TokenizerSpec) -> Result<Marks, String> {
        Ok(Marks::default())
    }
}

/// Where no files are read.
pub(crate) struct NoFiles;

impl Files for NoFiles {
    fn vocabulary(&self, _: &DataSpec) -> Result<usize, String> {
        Err("its file is not read here; give model.vocabulary".into())
    }

    fn text(&self, _: &Path) -> Result<String, String> {
        Err("no file is read here".into())
    }
}

fn read(reader: &mut Reader, files: &dyn Files) -> RunConfig {
    let (mut data, mut model, mut run) = (data::defaults(), model::defaults(), run::defaults());
    let (mut parallelism, mut train) = (parallelism::defaults(), train::defaults());
    data::visit(Keys::new(Work::Read(reader)).section("data"), &mut data);
    let tokens = num_tokens(reader, &data, files);
    read_marks(reader, &mut data, files);
    let mut keys = Keys::new(Work::Read(reader));
    model::visit(keys.section("model"), &mut model, tokens);
    run::visit(keys.section("run"), &mut run);
    let ranks = keys.is_set("ranks").then_some(run.ranks);
    let others = Others { ranks, data: &data, model: &model, files };
    parallelism::visit(keys.section("parallelism"), &mut parallelism, &others);
    train::visit(keys.section("train"), &mut train, model.context);
    if ranks.is_none() {
        run.ranks = parallelism.world_size();
    }
    RunConfig { model, parallelism, train, data, run }
}

/// The tokens around documents that a run file leaves out.
fn read_marks(reader: &mut Reader, data: &mut DataSpec, files: &dyn Files) {
    let is_set = ["data.begin", "data.end"].map(|key| reader.is_set(key));
    if is_set == [true, true] {
        return;
    }
    match files.marks(&data.tokenizer) {
        Ok(Marks { begin, end }) => {
            let slots = [(&mut data.begin, begin), (&mut data.end, end)];
            for ((slot, default), _) in slots.into_iter().zip(is_set).filter(|(_, is_set)| !is_set) {
                *slot = default;
            }
        }
        Err(reason) => {
            let rule = format!("has no default: {reason}");
            reader.report(Problem::of_key("data.begin", rule, "set data.begin and data.end, \"\" for none"));
        }
    }
}

fn num_tokens(reader: &mut Reader, data: &DataSpec, files: &dyn Files) -> usize {
    let known = data.tokenizer.vocabulary();
    if let (None, false) = (known, reader.is_set("model.vocabulary")) {
        return files.vocabulary(data).unwrap_or_else(|reason| {
            // A default has the rule of the key that follows from it.
            let (key, rule) = match reader.is_set("data.tokenizer") {
                true => ("data.tokenizer", "has an unknown number of tokens"),
                false => ("model.vocabulary", "has no default"),
            };
            reader.report(Problem::of_key(key, format!("{rule}: {reason}"), ""));
            reader.unusable.insert("model.vocabulary".into());
            ANY_VOCABULARY
        });
    }
    known.unwrap_or(ANY_VOCABULARY)
}

/// A reader that knows all keys.
fn declared() -> Reader {
    let mut reader = Reader::new(Entries::new(), Author::User);
    read(&mut reader, &NoFiles);
    reader
}

/// Every key of a run file as `section.key`.
pub fn known_keys() -> Vec<String> {
    declared().declared.into_keys().collect()
}

/// The keys whose values have names, with the names.
pub fn known_names() -> BTreeMap<String, Vec<&'static str>> {
    let names = declared().declared.into_iter().map(|(key, declared)| (key, declared.names));
    names.filter(|(_, names)| !names.is_empty()).collect()
}

/// Whether a key is part of the function that weights compute, so that a run may not resume with another value: every
/// key of `[model]` but those of training and of longer sequences.
pub fn is_function_of_weights(key: &str) -> bool {
    key.starts_with("model.") && declared().of_weights(key) == Some(OfWeights::Function)
}

/// The key, as `section.key`, that an option of this name means: one of its own keys, or an option of Megatron-LM or
/// another program.
pub fn key_of_option(option: &str) -> Option<String> {
    let (name, reader) = (option.trim_start_matches('-').replace('-', "_"), declared());
    let own = reader.section_of(&name).map(|section| format!("{section}.{name}"));
    let of_megatron = || reader.aliases.into_iter().find(|alias| alias.name == name).map(|alias| alias.key);
    own.or_else(of_megatron).or_else(|| other_names::key(&name).map(str::to_string))
}

/// The answer to an option that names a feature which runs do not have, as the end of a sentence about it.
pub fn answer_to_option(option: &str) -> Option<String> {
    unsupported::other_axis(option).or_else(|| unsupported::answer(option).map(str::to_string))
}
