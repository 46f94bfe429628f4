//! What `--from` names: the folder of a run that has ended, with its run file, its tokenizer and its weights.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use checkpoint::TensorReader;
use data::{BYTES_FILE, TOKENIZER_FILE, Tokenizer};
use spec::{ModelSpec, RunConfig, TokenizerSpec, Unit, params};
use train::{Setup, ThreadEngine};

use crate::engine::engine;
use crate::failure::Failure;
use crate::input::Disk;

/// A run to read from.
#[derive(Debug)]
pub struct RunSource {
    folder: PathBuf,
    /// Its run file with other defaults and overrides: one rank unless those say otherwise.
    pub config: RunConfig,
    /// Its weights.
    pub weights: TensorReader,
}

impl RunSource {
    /// Opens `folder`. The run is taken on one rank with microbatches of one sequence; `changes` replace keys of its file, and
    /// `overrides` are those of the command line.
    ///
    /// # Errors
    /// A folder that is none of a run, and all that is wrong with the run.
    pub fn open(folder: &Path, changes: &[(&str, toml::Value)], overrides: &[String]) -> Result<RunSource, Failure> {
        let file = folder.join("run.toml");
        let name = file.display().to_string();
        let text = std::fs::read_to_string(&file).map_err(|error| {
            let hint = "--from takes the folder that `pleach train` wrote (run.folder)";
            Failure::Input(format!("{name} cannot be read: {error}; {hint}"))
        })?;
        let text = on_one_rank(&text, changes).map_err(|reason| Failure::Input(format!("{name}: {reason}")))?;
        let (mut config, _) = RunConfig::load_with(&name, &text, overrides, &Disk).map_err(Failure::Run)?;
        let tokenizer = folder.join(TOKENIZER_FILE);
        if tokenizer.exists() {
            // Nothing is trained again, and other text is read as the run read its own.
            config.data.tokenizer = TokenizerSpec::File(tokenizer);
        }
        let weights = TensorReader::open(&folder.join(WEIGHTS))
            .map_err(|error| Failure::Input(format!("{error}; a run writes its weights when it ends")))?;
        fits(&config.model, &weights).map_err(|reason| {
            let why = "--set has changed the model, or a later run in this folder has not ended";
            Failure::Input(format!("{}: {reason} of {name}; {why}", folder.join(WEIGHTS).display()))
        })?;
        Ok(RunSource { folder: folder.to_path_buf(), config, weights })
    }

    /// How the run's text became tokens.
    ///
    /// # Errors
    /// A tokenizer that cannot be read.
    pub fn tokenizer(&self) -> Result<Tokenizer, Failure> {
        let is_there = |name| self.folder.join(name).exists();
        if !is_there(TOKENIZER_FILE) && !is_there(BYTES_FILE) && self.config.data.tokenizer == TokenizerSpec::Bytes {
            return Ok(Tokenizer::bytes());
        }
        Tokenizer::load(&self.folder).map_err(|error| Failure::Input(error.to_string()))
    }

    /// Fresh ranks for `setup`.
    pub fn engine(&self, setup: &Setup) -> ThreadEngine {
        engine(&self.config, setup)
    }
}

/// The file of a run's weights.
const WEIGHTS: &str = "weights.safetensors";

/// Whether `weights` are those of `model`, to the last name and size.
fn fits(model: &ModelSpec, weights: &TensorReader) -> Result<(), String> {
    let units = std::iter::once(Unit::Table).chain(Unit::computing(model.num_layers));
    let shapes: BTreeMap<String, Vec<usize>> =
        units.flat_map(|unit| params(model, unit)).map(|param| (param.name, param.shape)).collect();
    for (name, shape) in &shapes {
        match weights.shape(name) {
            None => return Err(format!("there is no {name}, which is in the model")),
            Some(found) if found != shape => return Err(format!("{name} is {found:?}, and {shape:?} in the model")),
            Some(_) => {}
        }
    }
    match weights.names().find(|name| !shapes.contains_key(*name)) {
        Some(name) => Err(format!("there is {name}, which is not in the model")),
        None => Ok(()),
    }
}

/// A run file whose layout is one rank and whose keys `changes` are replaced.
fn on_one_rank(text: &str, changes: &[(&str, toml::Value)]) -> Result<String, String> {
    let mut table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.message().to_string())?;
    table.remove("parallelism");
    if let Some(run) = table.get_mut("run").and_then(toml::Value::as_table_mut) {
        run.remove("ranks");
    }
    let one = ["dp", "tp", "pp", "microbatch_size"].map(|key| (format!("parallelism.{key}"), toml::Value::Integer(1)));
    let changes = changes.iter().map(|(key, value)| (key.to_string(), value.clone()));
    for (key, value) in one.into_iter().chain(changes) {
        let (section, key) = key.split_once('.').unwrap_or(("", &key));
        let section = table.entry(section).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        if let Some(section) = section.as_table_mut() {
            section.insert(key.into(), value);
        }
    }
    Ok(table.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_eight_ranks_is_taken_on_one() {
        let text = spec::RunConfig::quick_start().to_toml();
        let text = on_one_rank(&text, &[("model.dropout", toml::Value::Float(0.0))]).expect("a run file");
        let config = RunConfig::load("run.toml", &text, &[]).expect("a legal run");
        assert_eq!((config.parallelism.world_size(), config.run.ranks, config.model.dropout), (1, 1, 0.0));
        let overrides = ["parallelism.tp=2".to_string()];
        let config = RunConfig::load("run.toml", &text, &overrides).expect("a legal run");
        assert_eq!((config.parallelism.tp, config.run.ranks), (2, 2));
    }
}
