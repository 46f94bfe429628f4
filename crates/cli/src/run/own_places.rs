//! The places of a run's files in its folder: nothing but files has their names when a run begins, and no other output
//! or input of the command has one of them.

use std::fs;
use std::path::{Path, PathBuf};

use blame::FAILURES;
use checkpoint::LATEST;
use config::{KeptRunFile, RunConfig, ScheduleSpec};
use data::{BYTES_FILE, TOKENIZER_FILE, files_of};
use files::{Draft, InputKind, check_replaceable, same_file};

use crate::arguments::TrainArguments;
use crate::failure::Failure;
use crate::run::kept_run::Earlier;
use crate::run::run_folder::{CHECKPOINTS, MEMORY, RUN_FILE, RUN_FILES, RunFolder};

/// Whether a run can write all of its files in `folder`: each name is free or a file's, and new files can be made.
///
/// # Errors
/// The place that cannot be written, with the reason.
pub fn check(folder: &Path) -> Result<(), String> {
    let refused =
        |path: &Path, reason: &dyn std::fmt::Display| format!("{} cannot be written: {reason}", path.display());
    for path in RUN_FILES.map(|name| folder.join(name)) {
        check_replaceable(&path).map_err(|error| refused(&path, &format!("it {error}")))?;
    }
    for path in [folder.join(RUN_FILE), folder.join(CHECKPOINTS).join(LATEST)] {
        // Dropped, it is gone.
        Draft::create(&path).map_err(|error| refused(&path, &error))?;
    }
    let (memory, failures) = (folder.join(MEMORY), folder.join(FAILURES));
    // The content of the folder of memory is removed, so it must be the run's.
    let memory = fs::symlink_metadata(&memory).ok().map(|found| (memory, found));
    let failures = fs::metadata(&failures).ok().map(|found| (failures, found));
    match memory.into_iter().chain(failures).find(|(_, found)| !found.is_dir()) {
        Some((path, _)) => {
            Err(refused(&path, &"it is not a folder, and a folder of that name is written here; remove it"))
        }
        None => Ok(()),
    }
}

/// Refuses the place of an output that is one of a run's files in `folder`, whether it is there yet or not.
///
/// # Errors
/// Such a place.
pub fn check_outside(folder: &Path, option: &str, output: Option<&Path>) -> Result<(), Failure> {
    // A link is followed where the output is written.
    let place = |output: &Path| output.canonicalize().unwrap_or_else(|_| output.to_path_buf());
    let Some(output) = output.filter(|output| is_within(folder, &place(output))) else { return Ok(()) };
    let (output, folder) = (output.display(), folder.display());
    Err(Failure::Input(format!("{option} {output} is a place of the run's own files in {folder}; name another file")))
}

/// Refuses inputs that the run would write over: texts and schedules with the name of one of its files, and a run file
/// that it would replace by one with all keys. A run that replaces another may replace the run file.
///
/// # Errors
/// Such an input.
pub fn check_inputs(
    folder: &RunFolder,
    arguments: &TrainArguments,
    config: &RunConfig,
    earlier: Earlier,
) -> Result<(), Failure> {
    let path = folder.path();
    let name = path.display();
    if let Some(input) = read_by(config).into_iter().find(|input| is_replaced(path, input)) {
        let input = input.display();
        return Err(Failure::Input(format!(
            "{input} is read by the run, which writes its own file of that name in {name}; move it, or use another folder: \
             --set run.folder=..."
        )));
    }
    let own = path.join(RUN_FILE);
    let given = arguments.run.file.as_deref().filter(|given| same_file(given, &own));
    let is_lost = |given: &Path| {
        let text = files::read_text_of_file(given, InputKind::RunFile).map(KeptRunFile::new);
        earlier == Earlier::Kept && text.is_ok_and(|kept| kept != KeptRunFile::of(config))
    };
    match given.filter(|given| is_lost(given)) {
        Some(given) => Err(Failure::Input(format!(
            "{} must not be in the folder of a new run, which writes its resolved run file there; give it another name, or \
             use another folder: --set run.folder=...",
            given.display()
        ))),
        None => Ok(()),
    }
}

/// The files that a run reads, without its run file and its tokenizer, which it writes again.
fn read_by(config: &RunConfig) -> Vec<PathBuf> {
    // One that cannot be listed is reported where it is read.
    let mut files: Vec<PathBuf> = config.data.texts().flat_map(|text| files_of(text).unwrap_or_default()).collect();
    if let ScheduleSpec::Given(given) = &config.parallelism.schedule {
        files.push(given.path.clone());
    }
    files
}

fn is_replaced(folder: &Path, input: &Path) -> bool {
    let is_tokenizer = |name: &str| [TOKENIZER_FILE, BYTES_FILE].contains(&name);
    RUN_FILES.iter().any(|name| !is_tokenizer(name) && same_file(input, &folder.join(name)))
}

/// Whether `place` has the name of a file of the run in `folder`, or is one of its folders or in one.
fn is_within(folder: &Path, place: &Path) -> bool {
    let whole =
        |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.into());
    let parent = place.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (parent, name) = (whole(parent), place.file_name().and_then(|name| name.to_str()).unwrap_or_default());
    let is_file = parent == whole(folder) && RUN_FILES.contains(&name);
    let place = parent.join(name);
    is_file || [CHECKPOINTS, MEMORY, FAILURES].iter().any(|own| place.starts_with(whole(&folder.join(own))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_a_run_are_known_before_it_has_a_folder() {
        let folder = std::env::temp_dir().join(format!("pleach-places-{}", std::process::id()));
        let refused = |place: &str| check_outside(&folder, "--trace", Some(&folder.join(place))).is_err();
        for there in [false, true] {
            if there {
                fs::create_dir_all(folder.join("checkpoints/step-00000001")).expect("a folder");
            }
            assert!(refused("metrics.jsonl") && refused("checkpoints/step-00000001/manifest.json"));
            assert!(refused("failures/0001.json") && refused("checkpoints/latest") && refused("checkpoints"));
            assert!(!refused("trace.json") && !refused("other/metrics.jsonl"));
        }
        assert!(refused("checkpoints/../metrics.jsonl"));
        fs::remove_dir_all(&folder).expect("removed");
    }
}
