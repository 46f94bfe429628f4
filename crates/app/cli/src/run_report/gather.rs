//! The content of the folders of runs, as a page needs it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use config::figures::counted;
use config::{KeptRunFile, RunConfig, TrainSpec, is_secret_key, shown_run_file, without_credentials};
use files::{InputError, InputKind};
use program::{Category, StepTimes};
use report::{Event, Fact, LeftOut, MemoryPlan, Metrics, Run, StageMemory, Timeline, record_of};
use run::description::run_lines::{run_line, sizes};
use run::failure::Failure;
use run::memory::need::{Need, largest_plan};
use run::places::checkpoint_path::check_local;
use run::places::kept_run_file::kept_run_file;
use run::places::names::{METRICS, RESUMES, RUN_FILE, TIMELINE};
use run::places::own_places;
use run::places::unfinished::tell_unfinished;
use run::records::timeline::planned;
use serde_json::Value;
use sim::Trace;
use sync::lock;
use train::Setup;

/// Lines of a file of metrics that a report takes: some 300 bytes of memory each.
const MOST_LINES: usize = 1 << 21;

/// Folders of runs, each with the plan of its run file.
pub struct Gathered {
    runs: Vec<Folder>,
}

struct Folder {
    path: PathBuf,
    name: String,
    /// A run that begins again may have another one.
    described: Mutex<Described>,
}

/// A run file, and what follows from it.
#[derive(Clone)]
struct Described {
    run_file: String,
    facts: Vec<Fact>,
    plan: Option<Plan>,
}

/// The plan of a run file.
#[derive(Clone)]
struct Plan {
    memory: MemoryPlan,
    timeline: Timeline,
}

impl Gathered {
    /// Reads and plans the run files of these folders.
    ///
    /// # Errors
    /// A folder without one.
    pub fn open(folders: &[PathBuf]) -> Result<Gathered, Failure> {
        let names = names(folders);
        let runs = folders.iter().zip(names).map(|(path, name)| Folder::open(path, name));
        Ok(Gathered { runs: runs.collect::<Result<_, _>>()? })
    }

    /// The files that change while runs continue.
    pub fn files(&self) -> Vec<PathBuf> {
        self.files_named(&[RUN_FILE, METRICS, RESUMES, TIMELINE])
    }

    /// The files that belong to runs, over which no output is written: also those of checkpoints.
    pub fn own_files(&self) -> Vec<PathBuf> {
        self.runs.iter().flat_map(|folder| own_places::files_in(&folder.path)).collect()
    }

    fn files_named(&self, names: &[&str]) -> Vec<PathBuf> {
        let of = |folder: &Folder| names.iter().map(|name| folder.path.join(name)).collect::<Vec<_>>();
        self.runs.iter().flat_map(of).collect()
    }

    /// Sentences about lines of metrics that `runs`, read from these folders, leave out.
    pub fn notes(&self, runs: &[Run]) -> Vec<String> {
        let left_out = self.runs.iter().zip(runs).filter(|(_, run)| run.metrics.left_out.lines > 0);
        let note = |(folder, run): (&Folder, &Run)| {
            let LeftOut { lines, first } = run.metrics.left_out;
            let (path, lines) = (folder.path.join(METRICS), counted(lines, "line"));
            format!("{}:{first} is not a record of a step; {lines} without one left out\n", path.display())
        };
        left_out.map(note).collect()
    }

    /// The runs as they are now.
    ///
    /// # Errors
    /// Metrics that are there and cannot be read.
    pub fn read(&self) -> Result<Vec<Run>, Failure> {
        self.runs.iter().map(Folder::read).collect()
    }
}

impl Folder {
    fn open(path: &Path, name: String) -> Result<Folder, Failure> {
        check_local(path)?;
        let run_file = kept_run_file(path).map_err(|error| {
            let path = path.display();
            Failure::Input(format!("{path} must be the folder of a run, with its {RUN_FILE}, which {error}"))
        })?;
        tell_unfinished(path);
        let described = Mutex::new(Described::of(path, &run_file));
        Ok(Folder { path: path.to_path_buf(), name, described })
    }

    fn read(&self) -> Result<Run, Failure> {
        let text = self.metrics()?;
        let mut metrics = Metrics::parse(&text);
        self.check_records(&metrics, &text)?;
        metrics.events.extend(self.text(RESUMES)?.lines().filter_map(restarted));
        metrics.events.sort_by_key(|event| event.step);
        let measured: Option<Timeline> = serde_json::from_str(&self.text(TIMELINE)?).ok();
        // Where the last step was measured, one process had all ranks, and its memory is that of the run.
        let of_all = measured.is_some();
        let resident = metrics.steps.last().and_then(|row| row.values.get("resident_bytes")).filter(|_| of_all);
        let resident_bytes = resident.filter(|bytes| bytes.is_finite()).map(|bytes| bytes as u64);
        let Described { run_file, facts, plan } = self.described_now();
        let memory = plan.as_ref().map(|plan| MemoryPlan { resident_bytes, ..plan.memory.clone() });
        let timeline = measured.or_else(|| plan.map(|plan| plan.timeline));
        let run_file = shown_run_file(&run_file);
        Ok(Run { name: self.name.clone(), facts, run_file, metrics, memory, timeline })
    }

    /// Refuses a file with no record in any of its lines. A first line that was cut off is of a run that was killed.
    fn check_records(&self, metrics: &Metrics, text: &str) -> Result<(), Failure> {
        let is_begun = metrics.left_out.lines == 0 && text.trim_start().starts_with('{');
        if !metrics.is_empty() || is_begun || text.trim().is_empty() {
            return Ok(());
        }
        let (path, line) = (self.path.join(METRICS), metrics.left_out.first.max(1));
        Err(Failure::Input(format!(
            "{}:{line} is not a record of a step, and neither is another line; restore the file, or remove it for a report \
             without steps",
            path.display()
        )))
    }

    fn metrics(&self) -> Result<String, Failure> {
        let text = self.text(METRICS)?;
        let lines = text.bytes().filter(|byte| *byte == b'\n').count();
        if lines > MOST_LINES {
            let path = self.path.join(METRICS);
            return Err(Failure::Input(format!(
                "{} has {lines} lines, and {MOST_LINES} are the limit of a report; thin it out first",
                path.display()
            )));
        }
        Ok(text)
    }

    /// A file that may be missing; bytes in it that are not UTF-8, as after a disk has failed, are replaced.
    fn text(&self, name: &str) -> Result<String, Failure> {
        let path = self.path.join(name);
        match files::read(&path, InputKind::Records) {
            Ok(bytes) => {
                let lossy = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
                Ok(String::from_utf8(bytes).unwrap_or_else(|error| lossy(error.into_bytes())))
            }
            Err(InputError::System(error)) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(Failure::Input(format!("{} {error}", path.display()))),
        }
    }

    /// The run file as it is now; the last one while it is missing.
    fn described_now(&self) -> Described {
        let mut described = lock(&self.described);
        if let Ok(run_file) = kept_run_file(&self.path)
            && run_file.text() != described.run_file
        {
            *described = Described::of(&self.path, &run_file);
        }
        described.clone()
    }
}

impl Described {
    fn of(path: &Path, kept: &KeptRunFile) -> Described {
        let name = path.join(RUN_FILE).display().to_string();
        let config = kept.described(&name).ok();
        let facts = config.as_ref().map(facts).unwrap_or_default();
        Described { run_file: kept.text().into(), facts, plan: config.and_then(Plan::of) }
    }
}

impl Plan {
    /// `None` where the run cannot be planned any more.
    fn of(config: RunConfig) -> Option<Plan> {
        let parallelism = config.parallelism_on_device();
        let RunConfig { model, train, run, .. } = config;
        let train = TrainSpec { batch_ramp: None, ..train };
        let setup = Setup::of_run(model, parallelism, train, &run.samples).ok()?;
        let graph = setup.programs.programs().first()?.graph();
        let timeline = planned(&Trace::of_stages(graph, &StepTimes::new(graph, &setup.times)));
        Some(Plan { memory: memory(&setup), timeline })
    }
}

fn memory(setup: &Setup) -> MemoryPlan {
    let stage = |pp: usize| {
        let parts = largest_plan(setup, pp).categories().into_iter().filter(|(_, bytes)| *bytes > 0);
        let mut parts: Vec<(Category, usize)> = parts.collect();
        parts.sort_by_key(|(category, _)| *category);
        let parts = parts.into_iter().map(|(category, bytes)| (category.to_string(), bytes as u64)).collect();
        StageMemory { name: format!("pp {pp}"), parts }
    };
    MemoryPlan {
        stages: (0..setup.parallelism.degrees.pp).map(stage).collect(),
        arenas_bytes: Need::new(setup).together_bytes(),
        resident_bytes: None,
    }
}

/// The lines that describe a run, by subject. Its folder is where the page is.
fn facts(config: &RunConfig) -> Vec<Fact> {
    let fact = |line: &str| {
        let (subject, text) = line.split_once(' ')?;
        Some(Fact { subject: subject.into(), text: text.trim().into() })
    };
    [sizes(config), run_line(config)].concat().lines().filter_map(fact).collect()
}

/// A line of `resumes.jsonl`.
fn restarted(line: &str) -> Option<Event> {
    let record: Value = record_of(line)?;
    if let Some(from) = record["from"].as_str() {
        return Some(Event { step: 0, kind: "started".into(), text: format!("with the weights of {from}") });
    }
    let step = record["after_step"].as_u64()?;
    if let Some(left) = record["rolled_back_from_step"].as_u64() {
        let reason = record["reason"].as_str().unwrap_or("a step was not as usual");
        let text = format!("from step {left} to the checkpoint after step {step}: {reason}");
        return Some(Event { step, kind: "returned".into(), text });
    }
    let changed = record["changed"].as_object().into_iter().flatten();
    let change = |(key, values): (&String, &Value)| match is_secret_key(key) {
        true => format!("another {key}"),
        false => without_credentials(&format!("{key} from {} to {}", values[0], values[1])),
    };
    let changes: Vec<String> = changed.map(change).collect();
    let text = match changes.as_slice() {
        [] => format!("after step {step}, with the same run file"),
        changes => format!("after step {step}, with {}", changes.join(", ")),
    };
    Some(Event { step, kind: "resumed".into(), text })
}

/// The last parts of the folders' names that distinguish them. A link is named after the folder that it names.
fn names(folders: &[PathBuf]) -> Vec<String> {
    let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
    let last = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let short: Vec<String> =
        folders.iter().map(|path| last(&real(path)).unwrap_or_else(|| path.display().to_string())).collect();
    let is_unique = |name: &String| short.iter().filter(|other| *other == name).count() == 1;
    let name = |(path, name): (&PathBuf, &String)| match is_unique(name) {
        true => name.clone(),
        false => path.display().to_string(),
    };
    folders.iter().zip(&short).map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_named_by_what_distinguishes_them() {
        let folders = ["runs/a", "runs/b", "other/b"].map(PathBuf::from);
        assert_eq!(names(&folders), ["a", "runs/b", "other/b"]);
    }

    #[test]
    fn a_resumption_names_what_has_changed() {
        let line = "{\"after_step\":5,\"changed\":{\"parallelism.tp\":[1,2]},\"checkpoint\":\"a\"}";
        let event = restarted(line).expect("an event");
        assert_eq!((event.step, event.text.as_str()), (5, "after step 5, with parallelism.tp from 1 to 2"));
        assert_eq!(restarted("{\"from\":\"folder\"}").expect("an event").kind, "started");
        assert_eq!(restarted("{"), None);
        let returned = "{\"after_step\":4,\"rolled_back_from_step\":6,\"left_out_sequences\":8,\"reason\":\"a spike\"}";
        let event = restarted(returned).expect("an event");
        assert_eq!(
            (event.kind.as_str(), event.text.as_str()),
            ("returned", "from step 6 to the checkpoint after step 4: a spike")
        );
    }
}
