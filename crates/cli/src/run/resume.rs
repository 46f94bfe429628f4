//! `pleach train --resume`: a run resumes from its newest valid checkpoint.

use std::collections::BTreeMap;
use std::path::Path;

use checkpoint::{Checkpoint, Found, Hash, MANIFEST};
use config::{BatchOrigin, DataSpec, HIDDEN, KeptRun, KeptRunFile, TokenizerSpec, is_secret_key, shown_setting};
use data::TOKENIZER_FILE;
use serde_json::json;
use train::{Start, check_tensors};

use crate::arguments::TrainArguments;
use crate::failure::Failure;
use crate::input;
use crate::input::file_hash::file_hash;
use crate::messages::stderr::tell;
use crate::peer_memory::{Beginning, PeerMemory};
use crate::places::author::{self, Judged};
use crate::places::checkpoint_path::run_around;
use crate::places::disk::Disk;
use crate::places::names::MEMORY;
use crate::process_group::place::{Launched, own_number};
use crate::process_group::shared_limit::shared_limit;
use crate::run::candidates::{Candidate, Candidates, DataPlace, set_aside};
use crate::run::other_model;
use crate::run::run_folder::{RunFolder, WayOut};
use crate::run::stored::{Resuming, resuming};
use crate::run::train::Session;
use crate::verdict::{Planned, Verdict, judge};

/// Resumes the run in `folder`. A checkpoint that is found damaged, at once or while ranks read it, is named and set
/// aside, and the one before is taken. Several processes end when one of them finds damage in its part: they resume
/// from the one before when they are started again.
///
/// # Errors
/// As a run that begins; and no checkpoint that is sound.
pub fn resume(arguments: &TrainArguments, folder: &Path) -> Result<(), Failure> {
    if let Some(run) = run_around(folder) {
        let (folder, run) = (folder.display(), run.display());
        return Err(Failure::Input(format!(
            "{folder} is a part of the run in {run}; --resume {run} resumes it, from its newest valid checkpoint"
        )));
    }
    let is_first = own_number()? == 0;
    let resuming = resuming(folder, &arguments.run)?;
    let folder = resuming.folder.as_path();
    if is_first {
        RunFolder::check_unused(folder)?;
    }
    let mut candidates = Candidates::of(folder, is_first)?;
    loop {
        let in_memory = candidates.in_memory();
        let Some(first) = candidates.next(is_first)? else { return Err(candidates.none()) };
        let first = Resumed::new(arguments, &resuming, first)?;
        // The one that the processes agree on, where the first is in the memory of hosts that are gone.
        let mut other = None;
        let ended = first.meet(|session| {
            let Verdict { config, setup, .. } = &first.verdict;
            let memory = PeerMemory::open(session.company, (config, setup), Beginning::Resumed, in_memory)?;
            while let Err(reason) = other.as_ref().unwrap_or(&first).find(memory.as_ref()) {
                if is_first {
                    tell(&format!("{reason}; an earlier one is used\n"));
                }
                let next = candidates.next(is_first)?.ok_or_else(|| gone(folder, is_first))?;
                other = Some(Resumed::new(arguments, &resuming, next)?);
            }
            let chosen = other.as_ref().unwrap_or(&first);
            let session = Session { verdict: &chosen.verdict, memory: memory.as_ref(), ..*session };
            chosen.run(&session, arguments, &mut candidates.damaged)
        });
        let used = other.unwrap_or(first);
        match (ended, used.candidate.checkpoint.damage()) {
            (Err(failure), Some(damage)) if used.is_shared()? => {
                return Err(set_aside_for_next_start(folder, &used.candidate, damage).unwrap_or(failure));
            }
            (Err(_), Some(damage)) => {
                tell(&format!("{damage}\n"));
                candidates.damaged.push((used.candidate.found, used.candidate.place));
            }
            (ended, _) => return ended,
        }
    }
}

/// That all checkpoints were in memory that is gone. The run begins again when it is started again.
fn gone(folder: &Path, is_first: bool) -> Failure {
    if is_first {
        // One that cannot be removed is found again, and reported.
        let _ = std::fs::remove_dir_all(folder.join(MEMORY));
    }
    let folder = folder.display();
    Failure::Work(format!(
        "no checkpoint of {folder} is left; start the run again without --resume, and set run.save_every"
    ))
}

/// Sets aside a checkpoint in which this one of several processes found `damage`; nothing where another process was
/// faster or the folder cannot be written.
fn set_aside_for_next_start(folder: &Path, candidate: &Candidate, damage: &str) -> Option<Failure> {
    let Candidate { found, place, .. } = candidate;
    let aside = set_aside(folder, &(found.clone(), place.clone())).ok()?;
    let (path, aside) = (found.path.display(), aside.display());
    Some(Failure::Work(format!(
        "{damage}; {path} is damaged; renamed to {aside}; start the same command again to resume from the checkpoint before"
    )))
}

/// Changed keys of a run file, each with its values before and after.
pub type Changed = BTreeMap<String, [serde_json::Value; 2]>;

/// The folder of a run that resumes; newer checkpoints that are `damaged` are set aside.
fn reopened(
    verdict: &Verdict,
    Resumed { candidate, left_out, .. }: &Resumed,
    changed: &Changed,
    damaged: Vec<(Found, DataPlace)>,
) -> Result<RunFolder, Failure> {
    let checkpoint = &candidate.checkpoint;
    let folder = RunFolder::open(&verdict.config.run, WayOut::Copy)?;
    // Before anything is written: what cannot be read would be lost.
    folder.records()?;
    let state = checkpoint.state();
    folder.record_start(&json!({
        "after_step": state.steps,
        "checkpoint": checkpoint.path().file_name().map(|name| name.to_string_lossy()),
        "build": env!("CARGO_PKG_VERSION"),
        "changed": changed,
    }))?;
    for damaged in damaged {
        let aside = set_aside(&verdict.config.run.folder, &damaged)?;
        folder.note(format!("{} is damaged; renamed to {}\n", damaged.0.path.display(), aside.display()));
    }
    left_out.iter().for_each(|line| folder.note(line.clone()));
    other_model::notes(changed).into_iter().for_each(|note| folder.note(note));
    let (steps, path) = (state.steps, checkpoint.path().display());
    folder.note(match (&candidate.place, verdict.config.train.steps == steps) {
        (DataPlace::Memory(_), _) => format!("resuming after step {steps} from the memory of the hosts\n"),
        (DataPlace::Disk, true) => {
            format!("all {steps} steps are done in {path}; --set train.steps=... with more of them resumes\n")
        }
        (DataPlace::Disk, false) => format!("resuming after step {steps} from {path}\n"),
    });
    Ok(folder)
}

/// A run as it resumes from a checkpoint: its own run file with the changes of the command line.
struct Resumed {
    candidate: Candidate,
    verdict: Verdict,
    changed: Changed,
    /// Lines about keys that act, and that nobody answers for.
    left_out: Vec<String>,
    /// Whether a key of `[data]` is among them.
    changes_text: bool,
}

impl Resumed {
    /// Meets the other processes, which must resume from the same checkpoint, and does `work`.
    fn meet(&self, work: impl FnOnce(&Session<'_>) -> Result<(), Failure>) -> Result<(), Failure> {
        let path = self.candidate.checkpoint.path();
        let command = format!("train from {} after step {}", path.display(), self.candidate.found.steps);
        let manifest = file_hash(&path.join(MANIFEST))?;
        let inputs = BTreeMap::from([(format!("checkpoint {}", path.display()), manifest)]);
        Session::with(&self.verdict, &command, inputs, work)
    }

    /// Whether the data can be read: those in memory from the hosts that have them.
    fn find(&self, memory: Option<&PeerMemory>) -> Result<(), String> {
        match (&self.candidate.place, memory) {
            (DataPlace::Disk, _) => Ok(()),
            (DataPlace::Memory(files), Some(memory)) => memory.find(self.candidate.checkpoint.manifest(), files),
            (DataPlace::Memory(_), None) => Err("a checkpoint in memory needs the processes of its hosts".into()),
        }
    }

    /// Runs to the end; newer checkpoints that are `damaged` are set aside.
    fn run(
        &self,
        session: &Session<'_>,
        arguments: &TrainArguments,
        damaged: &mut Vec<(Found, DataPlace)>,
    ) -> Result<(), Failure> {
        let Resumed { candidate, verdict, changes_text, .. } = self;
        let checkpoint = &candidate.checkpoint;
        let mut changed = self.changed.clone();
        let now = session.text.hash();
        if let Some(before) = checkpoint.state().data_xxh3.filter(|before| *before != now) {
            if !changes_text {
                return Err(other_text(checkpoint, before, (now, &verdict.config.data)));
            }
            changed.insert(DATA_HASH.into(), [before, now].map(|hash| hash.to_string().into()));
        }
        let open = |verdict: &Verdict| reopened(verdict, self, &changed, std::mem::take(damaged));
        session.run(arguments, Start::Checkpoint(checkpoint), open)
    }

    /// Whether other processes have ranks of the run.
    fn is_shared(&self) -> Result<bool, Failure> {
        match Launched::of_runs(&[&self.verdict.config])? {
            Launched::Alone | Launched::InFirst => Ok(false),
            Launched::Several(_) => Ok(true),
        }
    }

    /// The run in the folder of `resuming`, which is that of an address where one was given.
    fn new(arguments: &TrainArguments, resuming: &Resuming, candidate: Candidate) -> Result<Resumed, Failure> {
        let (folder, address) = (resuming.folder.as_path(), resuming.address.as_deref());
        let checkpoint = &candidate.checkpoint;
        let state = checkpoint.state();
        let name = format!("the run file of {}", checkpoint.path().display());
        let mut overrides = input::overrides(&arguments.run);
        // At an address, the folder is where the run was brought.
        if address.is_some() {
            overrides.retain(|set| key_of(set) != "run.folder");
        }
        if let Some(set) = overrides.iter().find(|set| key_of(set) == "run.folder") {
            let way_out = WayOut::Copy;
            return Err(Failure::Input(format!("--set {set}: with --resume a run stays in its folder; {way_out}")));
        }
        let changes_text = overrides.iter().any(|set| key_of(set).starts_with("data."));
        let keeps_tokenizer = !overrides.iter().any(|set| key_of(set) == "data.tokenizer");
        // Other keys of the run were chosen for its own number of steps.
        let steps = overrides.iter().rev().find_map(|set| set.strip_prefix("train.steps=")?.trim().parse().ok());
        steps.map_or(Ok(()), |steps| check_steps(steps, state.steps))?;
        let asked = overrides.clone();
        overrides.push(format!("run.folder={}", serde_json::Value::from(folder.to_string_lossy())));
        if let Some(address) = address.filter(|_| !asked.iter().any(|set| key_of(set) == "run.store")) {
            overrides.push(format!("run.store={}", serde_json::Value::from(address)));
        }
        let (kept, judged) = with_changes(&state.run, &name, &overrides)?;
        let KeptRun { mut config, locations: places, left_out } = kept;
        let left_out = resuming.left_out.iter().cloned().chain(judged.lines(&name, &left_out)).collect();
        let tokenizer = folder.join(TOKENIZER_FILE);
        if changes_text && keeps_tokenizer && tokenizer.exists() {
            // Other text is read in the tokens that the model knows.
            config.data.tokenizer = TokenizerSpec::File(tokenizer);
        }
        check_steps(config.train.steps, state.steps)?;
        if config.train.steps == state.steps && !asked.is_empty() {
            // Else the run file would say of the weights what they were not trained with.
            return Err(Failure::Input(complete(folder, state.steps, &asked)));
        }
        check_tensors(checkpoint, &config.model, &config.train).map_err(|error| {
            let path = checkpoint.path().display();
            Failure::Input(format!("{path}: {error}; or begin a new run of the other model"))
        })?;
        other_model::check(checkpoint.path(), &changes(state.run.text(), &config.to_toml()), &asked)?;
        config.train.batch_origin = BatchOrigin { steps: state.steps, sequences: state.sequences };
        let limit = shared_limit(&config);
        let verdict: Verdict = judge(config, &places, limit, Planned::EveryBatch).map_err(Failure::Run)?;
        let changed = changes(state.run.text(), &verdict.config.to_toml());
        Ok(Resumed { candidate, verdict, changed, left_out, changes_text })
    }
}

/// That the run in `folder` has done all of its `steps`, with the way to continue; `asked` are the settings that came
/// with `--resume`.
fn complete(folder: &Path, steps: u32, asked: &[String]) -> String {
    let folder = folder.display();
    let others: Vec<String> =
        asked.iter().filter(|set| key_of(set) != "train.steps").map(|set| shown_setting(set)).collect();
    let unused = match others.as_slice() {
        [] => String::new(),
        others => format!(", so no step is left to train with {}", others.join(", ")),
    };
    format!(
        "the run in {folder} is complete at step {steps} of train.steps = {steps}{unused}; to continue, use --set train.steps={} or more",
        steps.saturating_add(1)
    )
}

/// Refuses fewer `steps` than are `done`.
fn check_steps(steps: u32, done: u32) -> Result<(), Failure> {
    match steps < done {
        true => Err(Failure::Input(format!(
            "train.steps = {steps} must be at least the {done} steps that are done; use {done} or more"
        ))),
        false => Ok(()),
    }
}

/// In addition to the keys of run files, what is recorded of text that is no longer the same.
const DATA_HASH: &str = "data.xxh3";

/// The files changed, and no option asks for other text.
fn other_text(checkpoint: &Checkpoint, before: Hash, (now, data): (Hash, &DataSpec)) -> Failure {
    Failure::Input(format!(
        "the text of [data] differs from that of {} (XXH3 {now} instead of {before}); restore it, or set a key of [data] to \
         resume with the new text, such as --set data.held_out={}",
        checkpoint.path().display(),
        data.held_out
    ))
}

/// The key of `section.key=value`.
pub fn key_of(set: &str) -> &str {
    set.split_once('=').map_or(set, |(key, _)| key.trim())
}

/// Keys that depend on the value of another key: where that is changed, they are left to their defaults.
const DEPENDENT: &[(&str, &[&str])] = &[
    (
        "parallelism.zero",
        &["parallelism.reduce", "parallelism.prefetch", "parallelism.reshard", "parallelism.shard_group"],
    ),
    ("parallelism.dp", &["parallelism.shard_group"]),
    ("parallelism.pp", &["parallelism.stage_layers"]),
    ("parallelism.schedule", DEPENDENT_ON_SCHEDULE),
    ("parallelism.schedule_file", DEPENDENT_ON_SCHEDULE),
    ("parallelism.recompute", &["parallelism.recompute_every", "parallelism.recompute_inputs"]),
    ("parallelism.sequence_parallel", &["parallelism.recompute_inputs"]),
    (
        "train.precision",
        &[
            "train.products",
            "train.initial_loss_scale",
            "train.loss_scale_window",
            "train.loss_scale_hysteresis",
            "train.min_loss_scale",
        ],
    ),
    ("data.path", &["data.sources"]),
    ("data.sources", &["data.path"]),
];

/// Keys that have no effect where another one is removed.
const OF_REMOVED: &[(&str, &str)] = &[("run.store", "run.store_seconds")];

const DEPENDENT_ON_SCHEDULE: &[&str] = &[
    "parallelism.schedule",
    "parallelism.schedule_file",
    "parallelism.stages_per_rank",
    "parallelism.schedule_memory_percent",
    "parallelism.stage_layers",
];

/// The run that the run file `kept`, called `name` in messages, is with the user's `overrides`, and its author.
///
/// # Errors
/// All that is wrong with the run.
pub fn with_changes(kept: &KeptRunFile, name: &str, overrides: &[String]) -> Result<(KeptRun, Judged), Failure> {
    let judged = author::judge(kept);
    let base = kept.edited(|run| base(run, overrides));
    let base = base.map_err(|reason| Failure::Input(format!("{name}: {reason}")))?;
    let run = base.load(name, judged.author, overrides, &Disk).map_err(Failure::Run)?;
    Ok((run, judged))
}

/// The run file `run` without what `overrides` replace or make meaningless. Ranks follow from the degrees, which are
/// all there.
pub fn base(run: &str, overrides: &[String]) -> Result<String, String> {
    let mut table: toml::Table = run.parse().map_err(|error: toml::de::Error| error.message().to_string())?;
    let changed: Vec<&str> = overrides.iter().map(|set| key_of(set)).collect();
    let dependent = DEPENDENT.iter().filter(|(key, _)| changed.contains(key)).flat_map(|(_, dependent)| *dependent);
    let removed: Vec<&str> =
        overrides.iter().filter(|set| set.trim_end().ends_with('=')).map(|set| key_of(set)).collect();
    let orphaned = OF_REMOVED.iter().filter(|(key, _)| removed.contains(key)).map(|(_, orphan)| orphan);
    for key in dependent.chain(orphaned).chain(&["run.ranks"]) {
        let (section, name) = key.split_once('.').unwrap_or(("", key));
        if let Some(section) = table.get_mut(section).and_then(toml::Value::as_table_mut) {
            section.remove(name);
        }
    }
    Ok(table.to_string())
}

/// Keys whose values differ, each with both; a secret is not shown. The folder is where it is.
pub fn changes(before: &str, after: &str) -> Changed {
    let [before, after] = [before, after].map(values);
    let keys = before.keys().chain(after.keys()).filter(|key| *key != "run.folder");
    let both = |key: &String| [&before, &after].map(|values| values.get(key).cloned().unwrap_or_default());
    let changed = keys.map(|key| (key.clone(), both(key))).filter(|(_, [before, after])| before != after);
    let shown = |value: serde_json::Value| if value.is_null() { value } else { HIDDEN.into() };
    changed.map(|(key, both)| if is_secret_key(&key) { (key, both.map(shown)) } else { (key, both) }).collect()
}

/// The values of a resolved run file by `section.key`.
fn values(run: &str) -> BTreeMap<String, serde_json::Value> {
    let table: toml::Table = run.parse().unwrap_or_default();
    let sections = table.iter().filter_map(|(section, keys)| Some((section, keys.as_table()?)));
    let of_section = |(section, keys): (&String, &toml::Table)| {
        let section = section.clone();
        keys.clone()
            .into_iter()
            .map(move |(key, value)| (format!("{section}.{key}"), serde_json::to_value(value).unwrap_or_default()))
    };
    sections.flat_map(of_section).collect()
}

#[cfg(test)]
mod tests {
    use config::RunConfig;

    use super::*;

    fn resumed(run: &str, overrides: &[&str]) -> RunConfig {
        let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
        let base = base(run, &overrides).expect("a run file");
        RunConfig::load("", &base, &overrides).unwrap_or_else(|problems| panic!("{problems:?}"))
    }

    #[test]
    fn a_run_leaves_its_store_by_one_key() {
        let run = resumed("", &["run.store=s3://bucket/a", "run.store_seconds=60"]).to_toml();
        assert_eq!(resumed(&run, &[]).run.store_seconds, 60.0);
        assert_eq!(resumed(&run, &["run.store=s3://bucket/b"]).run.store_seconds, 60.0);
        assert_eq!(resumed(&run, &["run.store="]).run.store, None);
    }

    #[test]
    fn nothing_changes_by_itself() {
        let run = RunConfig::quick_start().to_toml();
        assert_eq!(resumed(&run, &[]).to_toml(), run);
        assert_eq!(changes(&run, &run), BTreeMap::new());
    }

    #[test]
    fn another_layout_needs_its_own_keys_only() {
        let of = |overrides: &[&str]| {
            let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
            RunConfig::load("", "", &overrides).expect("legal").to_toml()
        };
        let sharded = of(&["parallelism.zero=3", "parallelism.shard_group=2", "parallelism.schedule=interleaved"]);
        let off = resumed(&sharded, &["parallelism.zero=0", "parallelism.schedule=zb-v"]);
        assert_eq!((off.parallelism.zero, off.parallelism.shard_group), (config::ZeroStage::Off, None));
        let one = resumed(&sharded, &["parallelism.dp=1", "parallelism.tp=1", "parallelism.pp=1"]);
        assert_eq!((one.run.ranks, one.parallelism.zero), (1, resumed(&sharded, &[]).parallelism.zero));
        let single = resumed(&of(&["train.precision=fp16"]), &["train.precision=fp32"]);
        assert_eq!(single.train.precision, config::Precision::Fp32(config::Products::Chained));
    }

    #[test]
    fn what_changes_is_recorded_with_both_values() {
        let run = RunConfig::quick_start().to_toml();
        let after =
            resumed(&run, &["train.learning_rate=0.5", "train.batch_ramp={ start = 4, increment = 4, sequences = 9 }"]);
        let changed = changes(&run, &after.to_toml());
        let record = serde_json::to_string(&changed).expect("JSON");
        assert_eq!(
            record,
            "{\"train.batch_ramp\":[null,{\"increment\":4,\"sequences\":9,\"start\":4}],\"train.learning_rate\":[0.003,0.5]}"
        );
    }
}
