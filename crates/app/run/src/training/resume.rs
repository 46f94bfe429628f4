//! `pleach train --resume`: a run resumes from its newest valid checkpoint.

use std::collections::BTreeMap;
use std::path::Path;

use checkpoint::{Checkpoint, Found, Hash, MANIFEST, SavedIn};
use config::{BatchOrigin, DataSpec, KeptRun, TokenizerSpec, TrainSpec, shown_setting};
use data::TOKENIZER_FILE;
use serde_json::json;
use train::{Start, check_tensors};

use crate::failure::Failure;
use crate::folder::run_folder::{Remedy, RunFolder};
use crate::layout::changes::{Changed, changes, key_of, with_changes};
use crate::layout::other_model;
use crate::messages::stderr::tell;
use crate::peer_memory::PeerMemory;
use crate::places::checkpoint_path::run_around;
use crate::places::names::MEMORY;
use crate::process_group::place::{Launched, own_number};
use crate::process_group::shared_limit::shared_limit;
use crate::source::file_hash::file_hash;
use crate::store::stored::{Resuming, resuming};
use crate::training::candidates::{Candidate, Candidates, set_aside};
use crate::training::session::{RunRequest, Session};
use crate::training::train::train;
use crate::verdict::{Planned, Verdict, judge};

/// A run that resumes, before its processes have met.
pub struct Resume {
    is_first: bool,
    resuming: Resuming,
    candidates: Candidates,
}

impl Resume {
    /// Finds the checkpoints of the run in `folder`, or at that address, of which `overrides` change keys.
    ///
    /// # Errors
    /// A folder without a run, or one in which a run trains.
    pub fn open(folder: &Path, overrides: &[String]) -> Result<Resume, Failure> {
        if let Some(run) = run_around(folder) {
            let (folder, run) = (folder.display(), run.display());
            return Err(Failure::Input(format!(
                "{folder} is a part of the run in {run}; --resume {run} resumes it, from its newest valid checkpoint"
            )));
        }
        let is_first = own_number()? == 0;
        let resuming = resuming(folder, overrides, is_first)?;
        if is_first {
            RunFolder::check_unused(&resuming.folder)?;
        }
        let candidates = Candidates::of(&resuming.folder, is_first)?;
        Ok(Resume { is_first, resuming, candidates })
    }

    /// Resumes the run. A checkpoint that is found damaged, at once or while ranks read it, is named and set aside, and
    /// the one before is taken. Several processes end when one of them finds damage in its part: they resume from the
    /// one before when they are started again.
    ///
    /// # Errors
    /// As a run that begins; and no checkpoint that is sound.
    pub fn train(self, request: RunRequest<'_>) -> Result<(), Failure> {
        let Resume { is_first, resuming, mut candidates } = self;
        let (folder, overrides) = (resuming.folder.as_path(), request.spec.run.overrides());
        loop {
            let beginning = candidates.beginning();
            let Some(first) = candidates.next(is_first)? else { return Err(candidates.none()) };
            let first = Resumed::new(&overrides, &resuming, first)?;
            // The one that the processes agree on, where the first is in the memory of hosts that are gone.
            let mut other = None;
            let ended = first.meet(request, |session| {
                let Verdict { config, setup, .. } = &first.verdict;
                let memory = PeerMemory::open(session.process_group, (config, setup), beginning)?;
                while let Err(reason) = other.as_ref().unwrap_or(&first).find(memory.as_ref()) {
                    if is_first {
                        tell(&format!("{reason}; an earlier one is used\n"));
                    }
                    let next = candidates.next(is_first)?.ok_or_else(|| gone(folder, is_first))?;
                    other = Some(Resumed::new(&overrides, &resuming, next)?);
                }
                let chosen = other.as_ref().unwrap_or(&first);
                let session = Session { verdict: &chosen.verdict, memory: memory.as_ref(), ..*session };
                chosen.train(&session, &mut candidates.damaged)
            });
            let used = other.unwrap_or(first);
            match (ended, used.candidate.checkpoint.damage()) {
                (Err(failure), Some(damage)) if used.is_shared()? => {
                    return Err(set_aside_for_next_start(folder, &used.candidate, damage).unwrap_or(failure));
                }
                (Err(_), Some(damage)) => {
                    tell(&format!("{damage}\n"));
                    candidates.damaged.push((used.candidate.found, used.candidate.data));
                }
                (ended, _) => return ended,
            }
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
    let Candidate { found, data, .. } = candidate;
    let aside = set_aside(folder, &(found.clone(), *data)).ok()?;
    let (path, aside) = (found.path.display(), aside.display());
    Some(Failure::Work(format!(
        "{damage}; {path} is damaged; renamed to {aside}; start the same command again to resume from the checkpoint before"
    )))
}

/// The folder of a run that resumes; newer checkpoints that are `damaged` are set aside.
fn reopened(
    verdict: &Verdict,
    Resumed { candidate, left_out, rate_note, .. }: &Resumed,
    changed: &Changed,
    damaged: Vec<(Found, SavedIn)>,
) -> Result<RunFolder, Failure> {
    let checkpoint = &candidate.checkpoint;
    let folder = RunFolder::open(&verdict.config.run, Remedy::Copy)?;
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
    folder.note(match (candidate.data, verdict.config.train.steps == steps) {
        (SavedIn::Memory, _) => format!("resuming after step {steps} from the memory of the hosts\n"),
        (SavedIn::Disk, true) => {
            format!("all {steps} steps are done in {path}; --set train.steps=... with more of them resumes\n")
        }
        (SavedIn::Disk, false) => format!("resuming after step {steps} from {path}\n"),
    });
    rate_note.iter().for_each(|note| folder.note(note.clone()));
    Ok(folder)
}

/// A run as it resumes from a checkpoint: its own run file with the changes of the command line.
struct Resumed {
    candidate: Candidate,
    verdict: Verdict,
    changed: Changed,
    /// Lines about keys that act, and that nobody answers for.
    left_out: Vec<String>,
    /// A warning of a learning rate that jumps.
    rate_note: Option<String>,
    /// Whether a key of `[data]` is among them.
    changes_text: bool,
}

impl Resumed {
    /// Meets the other processes, which must resume from the same checkpoint, and does `work`.
    fn meet(
        &self,
        request: RunRequest<'_>,
        work: impl FnOnce(&Session<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let path = self.candidate.checkpoint.path();
        let command = format!("train from {} after step {}", path.display(), self.candidate.found.steps);
        let manifest = file_hash(&path.join(MANIFEST))?;
        let inputs = BTreeMap::from([(format!("checkpoint {}", path.display()), manifest)]);
        Session::with(request, &self.verdict, &command, inputs, work)
    }

    /// Whether the data can be read: those in memory from the hosts that have them.
    fn find(&self, memory: Option<&PeerMemory>) -> Result<(), String> {
        match (self.candidate.data, memory) {
            (SavedIn::Disk, _) => Ok(()),
            (SavedIn::Memory, Some(memory)) => memory.find(&self.candidate.checkpoint),
            (SavedIn::Memory, None) => Err("a checkpoint in memory needs the processes of its hosts".into()),
        }
    }

    /// Trains to the end; newer checkpoints that are `damaged` are set aside.
    fn train(&self, session: &Session<'_>, damaged: &mut Vec<(Found, SavedIn)>) -> Result<(), Failure> {
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
        train(session, Start::Checkpoint(checkpoint), open)
    }

    /// Whether other processes have ranks of the run.
    fn is_shared(&self) -> Result<bool, Failure> {
        match Launched::of_runs(&[&self.verdict.config])? {
            Launched::Alone | Launched::InFirst => Ok(false),
            Launched::Several(_) => Ok(true),
        }
    }

    /// The run in the folder of `resuming`, which is that of an address where one was given.
    fn new(overrides: &[String], resuming: &Resuming, candidate: Candidate) -> Result<Resumed, Failure> {
        let (folder, address) = (resuming.folder.as_path(), resuming.address.as_deref());
        let checkpoint = &candidate.checkpoint;
        let state = checkpoint.state();
        let name = format!("the run file of {}", checkpoint.path().display());
        let mut overrides = overrides.to_vec();
        // At an address, the folder is where the run was brought.
        if address.is_some() {
            overrides.retain(|set| key_of(set) != "run.folder");
        }
        if let Some(set) = overrides.iter().find(|set| key_of(set) == "run.folder") {
            let remedy = Remedy::Copy;
            return Err(Failure::Input(format!("--set {set}: with --resume a run stays in its folder; {remedy}")));
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
        let before = with_changes(&state.run, &name, &[]).map(|(kept, _)| kept.config.train);
        let rate_note = before.ok().and_then(|before| rate_jump(&before, &verdict.config.train, state.steps));
        Ok(Resumed { candidate, verdict, changed, left_out, rate_note, changes_text })
    }
}

/// The ratio of the next learning rate to the last one, and to the next one of the schedule before, from which it
/// jumps.
const JUMP: f32 = 1.25;

/// A warning where the learning rate after `steps` steps is far above the last one, which the schedule `before` would
/// not be: of a run that was to end there, as a rule, whose rate has fallen.
fn rate_jump(before: &TrainSpec, now: &TrainSpec, steps: u32) -> Option<String> {
    let last = before.learning_rate_at(steps.checked_sub(1)?);
    let (planned, next) = (before.learning_rate_at(steps), now.learning_rate_at(steps));
    let is_jump = steps < now.steps && next > JUMP * planned.max(last);
    is_jump.then(|| {
        format!(
            "warning: the learning rate jumps from {last:.2e} in step {steps} to {next:.2e} in step {}: its schedule is that of \
             {} now; --set train.schedule_steps={} keeps the schedule of {} steps\n",
            steps + 1,
            match now.schedule_steps {
                Some(length) => format!("train.schedule_steps = {length}"),
                None => format!("train.steps = {}", now.steps),
            },
            before.schedule_length(),
            before.schedule_length(),
        )
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finished_run_whose_rate_jumps_is_warned_about_with_the_way_to_keep_it() {
        let ended = config::RunConfig::quick_start().train;
        let longer = TrainSpec { steps: 480, ..ended.clone() };
        let note = rate_jump(&ended, &longer, 240).expect("the rate rises");
        assert!(note.starts_with("warning: the learning rate jumps from 1.00e-4 in step 240 to "), "{note}");
        assert!(note.contains(" in step 241: its schedule is that of train.steps = 480 now; "), "{note}");
        assert_eq!(
            [rate_jump(&ended, &ended, 240), rate_jump(&ended, &ended, 7), rate_jump(&ended, &longer, 0)],
            [None, None, None]
        );
        assert!(note.ends_with("; --set train.schedule_steps=240 keeps the schedule of 240 steps\n"), "{note}");
        let kept = TrainSpec { schedule_steps: Some(240), ..longer };
        assert_eq!(rate_jump(&ended, &kept, 240), None);
    }
}
