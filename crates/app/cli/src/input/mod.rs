//! From arguments to a legal run.

pub mod presets;
pub mod sequences;

use std::collections::BTreeMap;
use std::path::Path;

use config::{GivenWeights, Location, RunConfig};
use files::{InputKind, read_text};

use crate::arguments::run::RunArguments;
use crate::failure::Failure;
use crate::memory::machine::MemoryLimit;
use crate::places::disk::Disk;
use crate::places::names::RUN_FILE;
use crate::process_group::shared_limit::shared_limit;
use crate::verdict::{self, Planned, Verdict};

/// The run that the arguments mean, planned and found to fit.
///
/// # Errors
/// A run file that cannot be read, and all that is wrong with the run.
pub fn judged(arguments: &RunArguments, planned: Planned) -> Result<Verdict, Failure> {
    let (config, locations) = located(arguments.file.as_deref(), arguments)?;
    let limit = shared_limit(&config);
    verdict::judge(config, &locations, limit, planned).map_err(Failure::Run)
}

/// As [`judged`], within a memory `limit` that need not be that of this machine.
///
/// # Errors
/// As [`judged`].
pub fn judged_within(
    arguments: &RunArguments,
    limit: Option<MemoryLimit>,
    planned: Planned,
) -> Result<Verdict, Failure> {
    let (config, locations) = located(arguments.file.as_deref(), arguments)?;
    verdict::judge(config, &locations, limit, planned).map_err(Failure::Run)
}

/// As [`judged`], for a run that begins with given weights.
///
/// # Errors
/// As [`judged`], and a model that is not theirs.
pub fn judged_for(arguments: &RunArguments, given: &GivenWeights<'_>) -> Result<Verdict, Failure> {
    let (name, text) = written(arguments.file.as_deref())?;
    let loaded = RunConfig::load_for(given, &name, &text, &overrides(arguments), &Disk);
    let (config, locations) = loaded.map_err(Failure::Run)?;
    let limit = shared_limit(&config);
    verdict::judge(config, &locations, limit, Planned::EveryBatch).map_err(Failure::Run)
}

/// The run that the arguments mean.
///
/// # Errors
/// A run file that cannot be read, and all that is wrong with the run.
pub fn load(arguments: &RunArguments) -> Result<RunConfig, Failure> {
    located(arguments.file.as_deref(), arguments).map(|(config, _)| config)
}

/// As [`load`], for a command that replaces the layout: where the run is not legal as it is written, it is read with
/// another one.
///
/// # Errors
/// A run file that cannot be read, and all that is wrong with the run whatever its layout.
pub fn load_any_layout(arguments: &RunArguments) -> Result<RunConfig, Failure> {
    let written_layout = load(arguments);
    if !matches!(written_layout, Err(Failure::Run(_))) {
        return written_layout;
    }
    let (name, text) = written(arguments.file.as_deref())?;
    let one_rank = LAYOUT_KEYS.iter().map(|key| format!("{key}=")).chain(ONE_RANK.iter().map(ToString::to_string));
    let overrides: Vec<String> = overrides(arguments).into_iter().chain(one_rank).collect();
    RunConfig::load_with(&name, &text, &overrides, &Disk).map(|(config, _)| config).map_err(Failure::Run)
}

/// Keys of a layout that a search chooses.
const LAYOUT_KEYS: [&str; 18] = [
    "parallelism.cp",
    "parallelism.cp_kind",
    "parallelism.cp_chunks",
    "parallelism.sequence_parallel",
    "parallelism.zero",
    "parallelism.reduce",
    "parallelism.prefetch",
    "parallelism.reshard",
    "parallelism.shard_group",
    "parallelism.schedule",
    "parallelism.stages_per_rank",
    "parallelism.schedule_memory_percent",
    "parallelism.schedule_file",
    "parallelism.recompute",
    "parallelism.recompute_every",
    "parallelism.recompute_inputs",
    "parallelism.stage_layers",
    "run.ranks",
];

/// The layout with which every run is legal that is legal with any.
const ONE_RANK: [&str; 4] =
    ["parallelism.dp=1", "parallelism.tp=1", "parallelism.pp=1", "parallelism.microbatch_size=1"];

/// The run of `file` with the overrides of `arguments`, and where each key was written.
///
/// # Errors
/// A run file that cannot be read, and all that is wrong with the run.
pub fn located(
    file: Option<&Path>,
    arguments: &RunArguments,
) -> Result<(RunConfig, BTreeMap<String, Location>), Failure> {
    let (name, text) = written(file)?;
    RunConfig::load_with(&name, &text, &overrides(arguments), &Disk).map_err(Failure::Run)
}

/// The name of a run in titles: that of its preset, of its file or of its folder.
pub fn name(file: Option<&Path>) -> String {
    let Some(path) = file else { return "quick start".into() };
    if let Ok(Some(preset)) = presets::named(path) {
        return preset.name.into();
    }
    let is_of_folder = path.file_name().is_some_and(|name| name == RUN_FILE);
    let folder = path.parent().and_then(Path::file_name).filter(|_| is_of_folder);
    folder.or(path.file_stem()).map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

/// The name of `file` in messages, and what it says; nothing where there is none.
fn written(file: Option<&Path>) -> Result<(String, String), Failure> {
    let Some(path) = file else { return Ok((String::new(), String::new())) };
    let name = path.display().to_string();
    if let Some(preset) = presets::named(path)? {
        return Ok((name, preset.text.into()));
    }
    if path.is_dir() {
        return Err(Failure::Input(format!("{name} is a folder; use {name}/run.toml if it is the folder of a run")));
    }
    match read_text(path, InputKind::RunFile) {
        Ok(text) => Ok((name, text)),
        Err(error) => Err(Failure::Input(format!("{name} {error}"))),
    }
}

/// The options `--set` and `--data`, as `section.key=value`.
pub fn overrides(arguments: &RunArguments) -> Vec<String> {
    // Quoted as JSON quotes, which TOML reads.
    let quoted = |path: &Path| serde_json::Value::from(path.to_string_lossy());
    let data = arguments.data.iter().map(|path| format!("data.path={}", quoted(path)));
    arguments.overrides.iter().cloned().chain(data).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_named_by_preset_file_or_folder() {
        let of = |path: &str| name(Some(Path::new(path)));
        assert_eq!(name(None), "quick start");
        assert_eq!(of("preset:bloom-176b"), "bloom-176b");
        assert_eq!(of("examples/llama.toml"), "llama");
        assert_eq!((of("runs/mine/run.toml"), of("run.toml")), ("mine".into(), "run".into()));
    }
}
