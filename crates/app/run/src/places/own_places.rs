//! The places of a run's files in its folder: nothing but files has their names when a run begins, and no output of any
//! command, nor another input of the run, has one of them.

use std::fs;
use std::path::{Component, Path, PathBuf};

use blame::FAILURES;
use checkpoint::{LATEST, LOCK, MANIFEST, named, named_steps};
use config::{KeptRunFile, RunConfig, ScheduleSpec};
use data::{BYTES_FILE, TOKENIZER_FILE, files_of};
use files::{Draft, InputKind, check_replaceable, same_file};

use crate::failure::Failure;
use crate::places::kept_run::Earlier;
use crate::places::names::{
    CHECKPOINTS, LOG, MEMORY, METRICS, RESUMES, RUN_FILE, RUN_FILES, STATUS, STORE_LOCK, TIMELINE, WEIGHTS,
};

/// The folders of a run in its folder, with all that is below them.
const FOLDERS: [&str; 3] = [CHECKPOINTS, MEMORY, FAILURES];
/// Files of which each, next to a run file, is the mark of a run: a run file alone may be one that somebody writes.
const MARKS: [&str; 6] = [METRICS, WEIGHTS, LOG, STATUS, RESUMES, TIMELINE];
/// Links that are followed from a name to its place.
const MOST_LINKS: usize = 40;

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

/// Refuses the place of an output that belongs to a run or a checkpoint, under any of its names, whether something is
/// there yet or not.
///
/// # Errors
/// Such a place.
pub fn check_free(option: &str, output: &Path) -> Result<(), Failure> {
    owner(output).map_or(Ok(()), |owner| Err(taken(option, output, &owner)))
}

/// The same for the run in `folder`, which may not have begun.
///
/// # Errors
/// Such a place.
pub fn check_outside(folder: &Path, option: &str, output: Option<&Path>) -> Result<(), Failure> {
    match output.filter(|output| names(output).iter().any(|place| is_within(&whole(folder), place))) {
        Some(output) => Err(taken(option, output, folder)),
        None => Ok(()),
    }
}

fn taken(option: &str, output: &Path, folder: &Path) -> Failure {
    let (output, folder) = (output.display(), folder.display());
    Failure::Input(format!("{option} {output} is a place of the run's own files in {folder}; name another place"))
}

/// The folder of the run, or of the checkpoints, to which `place` belongs.
fn owner(place: &Path) -> Option<PathBuf> {
    let names = names(place);
    let run =
        |name: &Path| name.ancestors().skip(1).find(|run| is_within(run, name) && is_run(run)).map(Path::to_path_buf);
    let checkpoints = |name: &Path| {
        let is_one = |folder: &&Path| is_checkpoint(folder) || is_of_checkpoints(folder);
        name.ancestors().skip(1).find(is_one).map(Path::to_path_buf)
    };
    names.iter().find_map(|name| run(name)).or_else(|| names.iter().find_map(|name| checkpoints(name)))
}

/// All files of the run in `folder` that are there.
pub fn files_in(folder: &Path) -> Vec<PathBuf> {
    let below = FOLDERS.iter().flat_map(|name| files_below(&folder.join(name)));
    RUN_FILES.iter().map(|name| folder.join(name)).filter(|file| file.exists()).chain(below).collect()
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = |entry: fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => files_below(&entry.path()),
        Ok(_) | Err(_) => vec![entry.path()],
    };
    entries.flat_map(files).collect()
}

/// Whether `folder` is that of a run: it has checkpoints or the lock of a run that writes some, or a run file with
/// another file of a run.
pub fn is_run(folder: &Path) -> bool {
    let checkpoints = folder.join(CHECKPOINTS);
    let has_checkpoints = || named(&checkpoints).is_ok_and(|all| all.iter().any(|found| is_checkpoint(&found.path)));
    let has_files = || folder.join(RUN_FILE).is_file() && MARKS.iter().any(|name| folder.join(name).is_file());
    checkpoints.join(LOCK).is_file() || has_files() || has_checkpoints()
}

/// Whether `folder` is a checkpoint, wherever it was copied to and also where its copy has not ended: it has two of
/// three marks, its name, a manifest and the file of a rank.
fn is_checkpoint(folder: &Path) -> bool {
    let is_rank = |entry: fs::DirEntry| {
        let name = entry.file_name();
        name.to_str().is_some_and(|name| name.starts_with("rank-") && name.ends_with(".safetensors"))
    };
    let has_ranks = || fs::read_dir(folder).is_ok_and(|entries| entries.flatten().any(is_rank));
    match (named_steps(folder).is_some(), folder.join(MANIFEST).is_file()) {
        (true, true) => true,
        (false, false) => false,
        (true, false) | (false, true) => has_ranks(),
    }
}

/// Whether `folder` has the checkpoints of a run, whose folder may have a link to it.
fn is_of_checkpoints(folder: &Path) -> bool {
    // As short as a token, whatever another program calls so.
    let newest = files::read_text_of_file(&folder.join(LATEST), InputKind::Token);
    newest.is_ok_and(|newest| is_checkpoint(&folder.join(newest.trim())))
}

/// Refuses inputs that the run would write over: texts and schedules with the name of one of its files, and a run file
/// that it would replace by one with all keys. A run that replaces another may replace the run file.
///
/// # Errors
/// Such an input.
pub fn check_inputs(
    folder: &Path,
    run_file: Option<&Path>,
    config: &RunConfig,
    earlier: Earlier,
) -> Result<(), Failure> {
    let name = folder.display();
    if let Some(input) = read_by(config).into_iter().find(|input| is_replaced(folder, input)) {
        let input = input.display();
        return Err(Failure::Input(format!(
            "{input} is read by the run, which writes its own file of that name in {name}; move it, or use another folder: \
             --set run.folder=..."
        )));
    }
    let own = folder.join(RUN_FILE);
    let given = run_file.filter(|given| same_file(given, &own));
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

/// Whether `place` below `folder` has the name of a file of a run or of its draft, or is one of its folders or in one.
/// Some file systems know no case, so that it does not count.
fn is_within(folder: &Path, place: &Path) -> bool {
    let Ok(rest) = place.strip_prefix(folder) else { return false };
    let Some(first) = rest.iter().next().map(|name| name.to_string_lossy().to_ascii_lowercase()) else { return false };
    let is_file = |name: &&str| first == **name || first.strip_prefix('.').is_some_and(|draft| is_draft(draft, name));
    let is_in_folder = FOLDERS.contains(&first.as_str());
    is_in_folder || (rest.iter().count() == 1 && (RUN_FILES.iter().any(is_file) || first == STORE_LOCK))
}

/// Whether a hidden name, without its dot, is that of an unfinished file `name`.
fn is_draft(hidden: &str, name: &str) -> bool {
    hidden.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'))
}

/// The names by which `place` may belong to a run: as it is written, and without links and `..`.
fn names(place: &Path) -> [PathBuf; 2] {
    [std::path::absolute(place).unwrap_or_else(|_| place.into()), whole(place)]
}

/// `path` without links and `..`, also where nothing is there yet.
fn whole(path: &Path) -> PathBuf {
    let mut path = std::path::absolute(path).unwrap_or_else(|_| path.into());
    for _ in 0..MOST_LINKS {
        let Ok(next) = fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("/")).join(next);
    }
    let there = path.ancestors().find_map(|folder| Some((folder, folder.canonicalize().ok()?)));
    let Some((folder, mut whole)) = there else { return path };
    for part in path.strip_prefix(folder).unwrap_or(Path::new("")).components() {
        match part {
            Component::ParentDir => drop(whole.pop()),
            Component::Normal(name) => whole.push(name),
            Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
        }
    }
    whole
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
        assert!(
            refused("checkpoints/../metrics.jsonl") && refused("new/../Train.log") && refused(".run.toml.partial-7")
        );
        fs::remove_dir_all(&folder).expect("removed");
    }

    /// A folder is that of a run by its marks, and checkpoints stay a run's under other names and through links.
    #[test]
    fn places_belong_to_runs_by_their_marks() {
        let folder = std::env::temp_dir().join(format!("pleach-owners-{}", std::process::id()));
        let (run, disk, copied) = (folder.join("run"), folder.join("disk"), folder.join("mine"));
        let make = |path: &Path, text: &str| {
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        };
        make(&run.join(RUN_FILE), "");
        let owner = |place: &Path| owner(place).map(|owner| owner.canonicalize().expect("a folder"));
        assert_eq!(owner(&run.join(METRICS)), None, "a run file alone is nobody's");
        make(&run.join(METRICS), "");
        let run = run.canonicalize().expect("a folder");
        let own =
            [METRICS, "timeline.json", "checkpoints/a", "memory", ".store.lock", ".resumes.jsonl.store", "Train.LOG"];
        for name in own {
            assert_eq!(owner(&run.join(name)).as_ref(), Some(&run), "{name}");
        }
        for name in ["trace.json", "other/train.log", "report.html", ".trace.json.partial-1", "."] {
            assert_eq!(owner(&run.join(name)), None, "{name}");
        }
        // Checkpoints on another disk, at the end of a link of the run; one that was copied elsewhere, and one that was
        // not.
        make(&disk.join("step-00000002/manifest.json"), "{}");
        make(&disk.join("latest"), "step-00000002\n");
        std::os::unix::fs::symlink(&disk, run.join(CHECKPOINTS)).expect("a link");
        for place in
            [disk.join("step-00000002/manifest.json"), disk.join("new"), run.join("checkpoints/step-00000002/x")]
        {
            assert!(owner(&place).is_some(), "{}", place.display());
        }
        make(&copied.join("manifest.json"), "{}");
        assert_eq!(owner(&copied.join("x")), None, "other programs have manifests, too");
        make(&copied.join("rank-00003.safetensors"), "");
        assert_eq!(owner(&copied.join("x")), Some(copied.canonicalize().expect("a folder")));
        fs::remove_dir_all(&folder).expect("removed");
    }
}
