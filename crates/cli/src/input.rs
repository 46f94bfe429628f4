//! From arguments to a legal run.

use std::collections::BTreeMap;
use std::path::Path;

use spec::{DataSpec, Files, Place, RunConfig};

use crate::arguments::RunArguments;
use crate::failure::Failure;
use crate::machine_memory::memory_limit;
use crate::presets;
use crate::verdict::{self, Planned, Verdict};

/// The run that the arguments mean, planned and found to fit.
///
/// # Errors
/// A run file that cannot be read, and all that is wrong with the run.
pub fn judged(arguments: &RunArguments, planned: Planned) -> Result<Verdict, Failure> {
    let (config, places) = placed(arguments.file.as_deref(), arguments)?;
    verdict::judge(config, &places, memory_limit(), planned).map_err(Failure::Run)
}

/// The run that the arguments mean.
///
/// # Errors
/// A run file that cannot be read, and all that is wrong with the run.
pub fn load(arguments: &RunArguments) -> Result<RunConfig, Failure> {
    placed(arguments.file.as_deref(), arguments).map(|(config, _)| config)
}

/// The run of `file` with the overrides of `arguments`, and where each key was written.
///
/// # Errors
/// A run file that cannot be read, and all that is wrong with the run.
pub fn placed(file: Option<&Path>, arguments: &RunArguments) -> Result<(RunConfig, BTreeMap<String, Place>), Failure> {
    let (name, text) = match file {
        None => (String::new(), String::new()),
        Some(path) => {
            let name = path.display().to_string();
            if let Some(preset) = presets::named(path)? {
                return run_of(&name, preset.text, arguments);
            }
            if path.is_dir() {
                return Err(Failure::Input(format!(
                    "{name} is a folder; {name}/run.toml would do if it is that of a run"
                )));
            }
            let text = std::fs::read_to_string(path)
                .map_err(|error| Failure::Input(format!("{name} cannot be read: {error}")))?;
            (name, text)
        }
    };
    run_of(&name, &text, arguments)
}

fn run_of(name: &str, text: &str, arguments: &RunArguments) -> Result<(RunConfig, BTreeMap<String, Place>), Failure> {
    RunConfig::load_with(name, text, &overrides(arguments), &Disk).map_err(Failure::Run)
}

/// What `--set` and `--data` say, as `section.key=value`.
pub fn overrides(arguments: &RunArguments) -> Vec<String> {
    // Quoted as JSON quotes, which TOML reads.
    let quoted = |path: &Path| serde_json::Value::from(path.to_string_lossy());
    let data = arguments.data.iter().map(|path| format!("data.path={}", quoted(path)));
    arguments.overrides.iter().cloned().chain(data).collect()
}

/// Files as they are named, from the folder that the command was started in.
#[derive(Debug)]
pub struct Disk;

impl Files for Disk {
    fn vocabulary(&self, data: &DataSpec) -> Result<usize, String> {
        data::vocabulary_of(data).map_err(|error| error.to_string())
    }

    fn text(&self, path: &Path) -> Result<String, String> {
        std::fs::read_to_string(path).map_err(|error| error.to_string())
    }
}
