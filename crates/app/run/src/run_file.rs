//! A run as a user names it: from a run file and changes of its keys to a legal run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use config::{GivenWeights, Location, RunConfig};
use files::{InputKind, read_text};

use crate::failure::Failure;
use crate::memory::machine::MemoryLimit;
use crate::places::disk::Disk;
use crate::places::names::RUN_FILE;
use crate::presets;
use crate::process_group::shared_limit::shared_limit;
use crate::verdict::{self, Planned, Verdict};

/// A run file, and changes of its keys. All values are those of the user who names it: they may make a command run,
/// listen, send and write.
#[derive(Clone, Debug, Default)]
pub struct RunFile {
    /// The file, or `preset:NAME`; without it every key has its default.
    pub file: Option<PathBuf>,
    /// Keys that are set, as `section.key=value`; the last value counts.
    pub overrides: Vec<String>,
    /// The text, instead of that of the file.
    pub text: Option<PathBuf>,
}

impl RunFile {
    /// Files that it names, which an output must not replace.
    pub fn inputs(&self) -> Vec<PathBuf> {
        self.file.iter().chain(&self.text).cloned().collect()
    }

    /// All changed keys, as `section.key=value`.
    pub fn overrides(&self) -> Vec<String> {
        // Quoted as JSON quotes, which TOML reads.
        let quoted = |path: &Path| serde_json::Value::from(path.to_string_lossy());
        let text = self.text.iter().map(|path| format!("data.path={}", quoted(path)));
        self.overrides.iter().cloned().chain(text).collect()
    }

    /// The run, planned and found to fit.
    ///
    /// # Errors
    /// A run file that cannot be read, and all that is wrong with the run.
    pub fn judged(&self, planned: Planned) -> Result<Verdict, Failure> {
        let (config, locations) = self.located()?;
        let limit = shared_limit(&config);
        verdict::judge(config, &locations, limit, planned).map_err(Failure::Run)
    }

    /// Returns the same as [`RunFile::judged`], within a memory `limit` that need not be that of this machine.
    ///
    /// # Errors
    /// The errors of [`RunFile::judged`].
    pub fn judged_within(&self, limit: Option<MemoryLimit>, planned: Planned) -> Result<Verdict, Failure> {
        let (config, locations) = self.located()?;
        verdict::judge(config, &locations, limit, planned).map_err(Failure::Run)
    }

    /// Returns the same as [`RunFile::judged`], for a run that begins with given weights.
    ///
    /// # Errors
    /// The errors of [`RunFile::judged`], and a model that is not theirs.
    pub fn judged_for(&self, given: &GivenWeights<'_>) -> Result<Verdict, Failure> {
        let (name, text) = self.written()?;
        let loaded = RunConfig::load_for(given, &name, &text, &self.overrides(), &Disk);
        let (config, locations) = loaded.map_err(Failure::Run)?;
        let limit = shared_limit(&config);
        verdict::judge(config, &locations, limit, Planned::EveryBatch).map_err(Failure::Run)
    }

    /// The run.
    ///
    /// # Errors
    /// A run file that cannot be read, and all that is wrong with the run.
    pub fn load(&self) -> Result<RunConfig, Failure> {
        self.located().map(|(config, _)| config)
    }

    /// Returns the same as [`RunFile::load`], for a command that replaces the layout: where the run is not legal as it
    /// is written, it is read with another one.
    ///
    /// # Errors
    /// A run file that cannot be read, and all that is wrong with the run whatever its layout.
    pub fn load_any_layout(&self) -> Result<RunConfig, Failure> {
        let written_layout = self.load();
        if !matches!(written_layout, Err(Failure::Run(_))) {
            return written_layout;
        }
        let (name, text) = self.written()?;
        let one_rank = LAYOUT_KEYS.iter().map(|key| format!("{key}=")).chain(ONE_RANK.iter().map(ToString::to_string));
        let overrides: Vec<String> = self.overrides().into_iter().chain(one_rank).collect();
        RunConfig::load_with(&name, &text, &overrides, &Disk).map(|(config, _)| config).map_err(Failure::Run)
    }

    /// The run, and where each key was written.
    ///
    /// # Errors
    /// The errors of [`RunFile::load`].
    pub fn located(&self) -> Result<(RunConfig, BTreeMap<String, Location>), Failure> {
        let (name, text) = self.written()?;
        RunConfig::load_with(&name, &text, &self.overrides(), &Disk).map_err(Failure::Run)
    }

    /// The name of the run in titles: that of its preset, of its file or of its folder.
    pub fn title(&self) -> String {
        let Some(path) = &self.file else { return "quick start".into() };
        if let Ok(Some(preset)) = presets::named(path) {
            return preset.name.into();
        }
        let is_of_folder = path.file_name().is_some_and(|name| name == RUN_FILE);
        let folder = path.parent().and_then(Path::file_name).filter(|_| is_of_folder);
        let name = folder.or(path.file_stem());
        name.map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
    }

    /// The name of the file in messages, and its text; nothing without a file.
    fn written(&self) -> Result<(String, String), Failure> {
        let Some(path) = &self.file else { return Ok((String::new(), String::new())) };
        let name = path.display().to_string();
        if let Some(preset) = presets::named(path)? {
            return Ok((name, preset.text.into()));
        }
        if path.is_dir() {
            return Err(Failure::Input(format!(
                "{name} is a folder; use {name}/run.toml if it is the folder of a run"
            )));
        }
        match read_text(path, InputKind::RunFile) {
            Ok(text) if text.trim_start().starts_with('{') => Err(Failure::Input(format!(
                "{name} is JSON, and a run file is TOML; use --from FOLDER if it is the config.json of a model"
            ))),
            Ok(text) => Ok((name, text)),
            Err(error) => Err(Failure::Input(format!("{name} {error}"))),
        }
    }
}

/// Keys of a layout that a search chooses.
const LAYOUT_KEYS: [&str; 19] = [
    "parallelism.cp",
    "parallelism.cp_kind",
    "parallelism.cp_chunks",
    "parallelism.ep",
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
const ONE_RANK: [&str; 5] =
    ["parallelism.dp=1", "parallelism.ep=1", "parallelism.tp=1", "parallelism.pp=1", "parallelism.microbatch_size=1"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_named_by_preset_file_or_folder() {
        let of = |path: &str| RunFile { file: Some(path.into()), ..RunFile::default() }.title();
        assert_eq!(RunFile::default().title(), "quick start");
        assert_eq!(of("preset:bloom-176b"), "bloom-176b");
        assert_eq!(of("examples/llama.toml"), "llama");
        assert_eq!((of("runs/mine/run.toml"), of("run.toml")), ("mine".into(), "run".into()));
    }
}
