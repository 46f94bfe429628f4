//! The source of `--from`: the folder of a run, with its run file, its tokenizer and the weights that it ended with, or
//! else its newest checkpoint; a checkpoint, which has its run file and its weights in it; or a folder of the Hugging
//! Face library.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use checkpoint::{Checkpoint, MANIFEST, StatePart, TensorReader, TensorRecord};
use config::{
    Degrees, GivenWeights, KeptRun, KeptRunFile, ModelSpec, ParamSpec, ROUTER_LOAD, RunConfig, TokenizerSpec, Unit,
    params, router_corrections,
};
use data::{BYTES_FILE, DataError, TOKENIZER_FILE, Tokenizer};
use interchange::{ADAPTER_CONFIG, HuggingFaceFolder, InterchangeError, special_tokens};
use mesh::Region;
use rendezvous::TextHash;
use train::{PartSource, SourceError, TensorSource, has_averages};

use crate::failure::Failure;
use crate::messages::stderr::tell;
use crate::places::author::judge;
use crate::places::checkpoint_path::{check_local, checkpoint_path, newest_sound, run_folder_of};
use crate::places::disk::Disk;
use crate::places::kept_run_file::kept_run_file;
use crate::places::names::{RUN_FILE, WEIGHTS};
use crate::places::own_places;
use crate::presets;
use crate::process_group::meeting::Meeting;
use crate::run_file::RunFile;
use crate::source::file_hash::{file_hash, sampled_hash};
use crate::source::hugging_face_run;
use crate::verdict::Verdict;

/// A run to read from.
#[derive(Debug)]
pub struct RunSource {
    /// Where it and its tokenizer are: of a checkpoint, the folder of its run.
    pub folder: PathBuf,
    /// Its run file with other defaults and overrides: one rank unless those say otherwise.
    pub config: RunConfig,
    pub weights: Weights,
    /// Lines about keys of `[data]` that act, and that nobody answers for: those of `[run]` have no effect here.
    pub left_out: Vec<String>,
}

/// The weights of a run that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhichWeights {
    /// The weights of the last update.
    Trained,
    /// Their moving average, from the newest checkpoint.
    Average,
}

/// Weights on disk.
#[derive(Debug)]
pub enum Weights {
    /// Those that a run ended with.
    File(TensorReader),
    /// Those between two steps, or their averages.
    Checkpoint(Checkpoint, StatePart),
    /// The weights of another program.
    HuggingFace(HuggingFaceFolder),
}

impl Weights {
    fn open(folder: &Path, choice: WhichWeights) -> Result<Weights, String> {
        match choice {
            WhichWeights::Trained => Weights::trained(folder),
            WhichWeights::Average => Weights::averages(folder),
        }
    }

    /// The averages of a checkpoint, or of the newest one of a run.
    fn averages(folder: &Path) -> Result<Weights, String> {
        let none = |what: String| format!("{what} has no moving average of weights; use --weights trained");
        if hugging_face_run::is_folder(folder) {
            return Err(none(folder.display().to_string()));
        }
        let path = checkpoint_path(folder).map_err(|failure| failure.to_string())?;
        let checkpoint = Checkpoint::open(&path).map_err(|error| error.to_string())?;
        if !has_averages(&checkpoint) {
            let hint = "train with train.ema_decay, or use --weights trained";
            return Err(format!("{} has no moving average of weights; {hint}", path.display()));
        }
        Ok(Weights::Checkpoint(checkpoint, StatePart::Average))
    }

    fn trained(folder: &Path) -> Result<Weights, String> {
        if hugging_face_run::is_folder(folder) {
            return HuggingFaceFolder::open(folder).map(Weights::HuggingFace).map_err(|error| error.to_string());
        }
        if folder.join(MANIFEST).is_file() {
            let checkpoint = Checkpoint::open(folder).map_err(|error| error.to_string())?;
            return Ok(Weights::Checkpoint(checkpoint, StatePart::Weights));
        }
        let file = TensorReader::open(&folder.join(WEIGHTS));
        file.map(Weights::File)
            .map_err(|error| format!("{error}; a run writes its weights when it ends, and it has no checkpoint"))
    }

    fn path(folder: &Path) -> PathBuf {
        let is_folder = folder.join(MANIFEST).is_file() || hugging_face_run::is_folder(folder);
        if is_folder { folder.to_path_buf() } else { folder.join(WEIGHTS) }
    }

    /// The shapes of all parameters by name.
    fn shapes(&self) -> BTreeMap<String, Vec<usize>> {
        match self {
            Weights::File(file) => {
                let shape = |name: &str| Some((name.to_string(), file.shape(name)?.to_vec()));
                file.names().filter_map(shape).collect()
            }
            Weights::Checkpoint(checkpoint, part) => {
                let others = StatePart::ALL.into_iter().filter(|other| *other != StatePart::Weights);
                let others: Vec<String> = others.map(|other| other.tensor("")).collect();
                let own = |(name, tensor): (&String, &TensorRecord)| {
                    let is_weight = !others.iter().any(|other| name.starts_with(other.as_str()));
                    let is_weight = is_weight && !name.starts_with(ROUTER_LOAD);
                    let is_there =
                        is_weight && checkpoint.shape(&read_as(checkpoint, *part, name).tensor(name)).is_some();
                    is_there.then(|| (name.clone(), tensor.shape.clone()))
                };
                checkpoint.manifest().tensors.iter().filter_map(own).collect()
            }
            Weights::HuggingFace(folder) => shapes(&folder.model),
        }
    }
}

/// The tensor that `part` of the parameter `name` is: a frozen parameter, which has no moments, is its own average.
fn read_as(checkpoint: &Checkpoint, part: StatePart, name: &str) -> StatePart {
    match part {
        StatePart::Average if checkpoint.shape(&StatePart::FirstMoment.tensor(name)).is_none() => StatePart::Weights,
        StatePart::Average | StatePart::Weights | StatePart::FirstMoment | StatePart::SecondMoment => part,
    }
}

impl TensorSource for Weights {
    fn get(&self, param: &ParamSpec, region: &Region, values: &mut [f32]) -> Result<(), SourceError> {
        match self {
            Weights::File(file) => TensorSource::get(file, param, region, values),
            Weights::Checkpoint(checkpoint, part) => {
                let part = read_as(checkpoint, *part, &param.name);
                PartSource { checkpoint, part }.get(param, region, values)
            }
            Weights::HuggingFace(folder) => folder.get(param, region, values).map_err(|error| {
                let name = param.name.clone();
                match matches!(error, InterchangeError::Missing { .. }) {
                    true => SourceError::Missing { name },
                    false => SourceError::Read { name, cause: error.to_string() },
                }
            }),
        }
    }
}

impl RunSource {
    /// Opens `folder`. The run is taken on one rank with microbatches of one sequence; `changes` replace keys of its
    /// file, and `overrides` are those of the command line.
    ///
    /// # Errors
    /// A folder without a run, and all that is wrong with the run.
    pub fn open(folder: &Path, changes: &[(&str, toml::Value)], overrides: &[String]) -> Result<RunSource, Failure> {
        RunSource::open_weights(folder, WhichWeights::Trained, changes, overrides)
    }

    /// Returns the same as [`RunSource::open`], with these weights of the run.
    ///
    /// # Errors
    /// The errors of [`RunSource::open`], and a run without them.
    pub fn open_weights(
        folder: &Path,
        choice: WhichWeights,
        changes: &[(&str, toml::Value)],
        overrides: &[String],
    ) -> Result<RunSource, Failure> {
        check_local(folder)?;
        let newest = checkpoint_in_place_of_weights(folder)?;
        let folder = newest.as_deref().unwrap_or(folder);
        let (name, kept) = run_file(folder)?;
        // The tokenizer of a checkpoint is that of its run.
        let run = if folder.join(MANIFEST).is_file() { run_folder_of(folder) } else { Some(folder) };
        let run = run.unwrap_or(folder).to_path_buf();
        let judged = judge(&kept);
        let kept = kept.edited(|text| on_one_rank(text, changes, overrides));
        let kept = kept.map_err(|reason| Failure::Input(format!("{name}: {reason}")))?;
        let kept = kept.load(&name, judged.author, overrides, &Disk).map_err(Failure::Run)?;
        let KeptRun { mut config, left_out, .. } = kept;
        let tokenizer = run.join(TOKENIZER_FILE);
        if tokenizer.exists() {
            // Nothing is trained again, and other text is read as the run read its own.
            config.data.tokenizer = TokenizerSpec::File(tokenizer);
        }
        let weights = Weights::open(folder, choice).map_err(Failure::Input)?;
        fits(&config.model, &weights.shapes()).map_err(|reason| {
            let why = "--set has changed the model, or a later run in this folder has not ended";
            Failure::Input(format!("{}: {reason} of {name}; {why}", Weights::path(folder).display()))
        })?;
        let of_text: Vec<String> = left_out.into_iter().filter(|key| key.starts_with("data.")).collect();
        Ok(RunSource { folder: run, config, weights, left_out: judged.lines(&name, &of_text) })
    }

    /// The run `file`, which begins with these weights.
    ///
    /// # Errors
    /// All that is wrong with it, a model that is not that of the weights among it.
    pub fn judged(&self, file: &RunFile) -> Result<Verdict, Failure> {
        let given = GivenWeights {
            name: &self.folder.display().to_string(),
            model: &self.config.model,
            tokenizer: &self.config.data.tokenizer,
            marks: &self.config.data.marks(),
        };
        file.judged_for(&given)
    }

    /// Copies what belongs to the tokenizer into `folder`, for a run that reads its text with `tokenizer`: nothing if
    /// that is another.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn copy_tokenizer(&self, tokenizer: &TokenizerSpec, folder: &Path) -> Result<(), Failure> {
        if *tokenizer == self.config.data.tokenizer {
            hugging_face_run::copy_tokenizer(&self.folder, folder)?;
        }
        Ok(())
    }

    /// All files that a command reads of it, and the others of the run, which an output must not replace.
    pub fn files(&self) -> Vec<PathBuf> {
        let weights: Vec<PathBuf> = match &self.weights {
            Weights::File(file) => vec![file.path().to_path_buf()],
            Weights::Checkpoint(checkpoint, _) => {
                let pieces = checkpoint.manifest().files.iter().map(|file| checkpoint.path().join(&file.name));
                pieces.chain([checkpoint.path().join(MANIFEST)]).collect()
            }
            Weights::HuggingFace(folder) => {
                let described = self.folder.join(interchange::folder::CONFIG);
                folder.weight_files().map(Path::to_path_buf).chain([described]).collect()
            }
        };
        weights.into_iter().chain(own_places::files_in(&self.folder)).collect()
    }

    /// How the run's text became tokens, with those around documents.
    ///
    /// # Errors
    /// A tokenizer that cannot be read.
    pub fn tokenizer(&self) -> Result<Tokenizer, Failure> {
        let input = |error: DataError| Failure::Input(error.to_string());
        self.unmarked_tokenizer()?.with_marks(&self.config.data.marks()).map_err(input)
    }

    fn unmarked_tokenizer(&self) -> Result<Tokenizer, Failure> {
        let is_there = |name| self.folder.join(name).exists();
        if !is_there(TOKENIZER_FILE) && !is_there(BYTES_FILE) && self.config.data.tokenizer == TokenizerSpec::Bytes {
            return Ok(Tokenizer::bytes());
        }
        if matches!(self.weights, Weights::HuggingFace(_)) && !is_there(TOKENIZER_FILE) {
            let folder = self.folder.display();
            return Err(Failure::Input(format!("{folder} has no {TOKENIZER_FILE}; copy it there")));
        }
        Tokenizer::load(&self.folder).map_err(|error| Failure::Input(error.to_string()))
    }

    /// The tokens that end a text of its model: those of its folder, or of the folder that it began with.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn end_tokens(&self) -> Result<Vec<u32>, Failure> {
        let mut ends = special_tokens::ends(&self.folder)?;
        if let [end] = self.tokenizer()?.end() {
            ends.push(*end);
        }
        Ok(ends)
    }

    /// Hashes of its files, by their names in messages: other weights on the host of a process are found before they
    /// are used.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn inputs(&self) -> Result<BTreeMap<String, u64>, Failure> {
        let named = |path: PathBuf, hash: u64| (format!("file {}", path.display()), hash);
        let files = match &self.weights {
            Weights::File(file) => vec![file.path().to_path_buf()],
            Weights::Checkpoint(checkpoint, _) => {
                let manifest = checkpoint.path().join(MANIFEST);
                return Ok(BTreeMap::from([named(manifest.clone(), file_hash(&manifest)?)]));
            }
            Weights::HuggingFace(folder) => folder.weight_files().map(Path::to_path_buf).collect(),
        };
        files.into_iter().map(|path| Ok(named(path.clone(), sampled_hash(&path)?))).collect()
    }

    /// The meeting of processes that do `command` with these weights, and read no text.
    ///
    /// # Errors
    /// Weights that cannot be read.
    pub fn meeting(&self, command: String) -> Result<Meeting<'_>, Failure> {
        let runs = vec![&self.config];
        Ok(Meeting { command, runs, programs: vec![], text: TextHash::NotNeeded, inputs: self.inputs()? })
    }
}

/// The newest checkpoint of a run that has not written its weights: it was stopped, it trains, or it was fetched.
fn checkpoint_in_place_of_weights(folder: &Path) -> Result<Option<PathBuf>, Failure> {
    // A link to nothing is a fault of the folder.
    let has_weights = folder.join(WEIGHTS).symlink_metadata().is_ok();
    if folder.join(MANIFEST).is_file() || hugging_face_run::is_folder(folder) || has_weights {
        return Ok(None);
    }
    let newest = newest_sound(folder)?;
    if let Some(path) = &newest {
        tell(&format!("{} has no {WEIGHTS}; its newest checkpoint is read: {}\n", folder.display(), path.display()));
    }
    Ok(newest)
}

/// The run file of what is in `folder`, and its name.
fn run_file(folder: &Path) -> Result<(String, KeptRunFile), Failure> {
    if folder.join(MANIFEST).is_file() {
        let checkpoint = Checkpoint::open(folder)?;
        return Ok((format!("the run file of {}", folder.display()), checkpoint.state().run.clone()));
    }
    if hugging_face_run::is_folder(folder) {
        let model = HuggingFaceFolder::open(folder)?.model;
        let run_file = KeptRunFile::new(hugging_face_run::run_file(&model, folder)?);
        return Ok((format!("the run of {}", folder.display()), run_file));
    }
    if let Some(preset) = presets::named(folder)? {
        return Err(Failure::Input(format!(
            "preset:{0} is a run file without weights; `pleach train preset:{0}` trains it from drawn weights",
            preset.name
        )));
    }
    let name = folder.join(RUN_FILE).display().to_string();
    if !folder.join(RUN_FILE).exists() && folder.join(ADAPTER_CONFIG).is_file() {
        return Err(Failure::Input(format!(
            "{} has adapters of PEFT ({ADAPTER_CONFIG}), and not the model that they change; use --from with the run \
             that trained them, or write the model with its adapters by `pleach export RUN --out FOLDER` or \
             merge_and_unload of PEFT, and use that folder",
            folder.display()
        )));
    }
    let kept = kept_run_file(folder).map_err(|error| {
        let hint = "use a run folder, a checkpoint, or a folder with config.json and model.safetensors";
        Failure::Input(format!("{name} {error}; {hint}"))
    })?;
    Ok((name, kept))
}

/// The shapes of all parameters of `model` by name.
fn shapes(model: &ModelSpec) -> BTreeMap<String, Vec<usize>> {
    let units = Unit::holding(model.num_layers);
    let params = units.flat_map(|unit| params(model, unit)).chain(router_corrections(model));
    params.map(|param| (param.name, param.shape)).collect()
}

/// Whether `weights` are those of `model`, to the last name and size.
fn fits(model: &ModelSpec, weights: &BTreeMap<String, Vec<usize>>) -> Result<(), String> {
    let shapes = shapes(model);
    for (name, shape) in &shapes {
        match weights.get(name) {
            None => return Err(format!("{name} of the model is missing")),
            Some(found) if found != shape => {
                return Err(format!("{name} has the shape {found:?}; the model has {shape:?}"));
            }
            Some(_) => {}
        }
    }
    match weights.keys().find(|name| !shapes.contains_key(*name)) {
        Some(name) => Err(format!("{name} is not in the model")),
        None => Ok(()),
    }
}

/// A run file whose layout is one rank and whose keys `changes` are replaced. An override of the precision also
/// replaces the order of products, which a run's folder writes out and which another precision may not have.
fn on_one_rank(text: &str, changes: &[(&str, toml::Value)], overrides: &[String]) -> Result<String, String> {
    let mut table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.message().to_string())?;
    table.remove("parallelism");
    let is_given = |key: &str| overrides.iter().any(|text| text.split('=').next().map(str::trim) == Some(key));
    if is_given("train.precision")
        && let Some(train) = table.get_mut("train").and_then(toml::Value::as_table_mut)
    {
        train.remove("products");
    }
    if let Some(run) = table.get_mut("run").and_then(toml::Value::as_table_mut) {
        run.remove("ranks");
    }
    let ones = Degrees::ONE.named().into_iter().map(|(key, _)| key).chain(["microbatch_size"]);
    let one = ones.map(|key| (format!("parallelism.{key}"), toml::Value::Integer(1)));
    let changes = changes.iter().map(|(key, value)| (key.to_string(), value.clone()));
    for (key, value) in one.chain(changes) {
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
        let text = config::RunConfig::quick_start().to_toml();
        let text = on_one_rank(&text, &[("model.dropout", toml::Value::Float(0.0))], &[]).expect("a run file");
        let config = RunConfig::load("run.toml", &text, &[]).expect("a legal run");
        assert_eq!((config.parallelism.world_size(), config.run.ranks, config.model.dropout), (1, 1, 0.0));
        let overrides = ["parallelism.tp=2".to_string()];
        let config = RunConfig::load("run.toml", &text, &overrides).expect("a legal run");
        assert_eq!((config.parallelism.degrees.tp, config.run.ranks), (2, 2));
    }

    #[test]
    fn another_precision_has_its_own_order_of_products() {
        let mut quick = config::RunConfig::quick_start();
        quick.train.precision = config::Precision::Fp32(config::Products::Pairs);
        let overrides = ["train.precision=fp16".to_string()];
        let text = on_one_rank(&quick.to_toml(), &[], &overrides).expect("a run file");
        assert!(RunConfig::load("run.toml", &text, &overrides).is_ok());
        let both = ["train.precision=fp16".to_string(), "train.products=pairs".to_string()];
        let text = on_one_rank(&quick.to_toml(), &[], &both).expect("a run file");
        assert!(RunConfig::load("run.toml", &text, &both).is_err(), "a choice that is written is refused by name");
    }
}
