//! A run that returns to its newest checkpoint: the same processes load it, and continue with the data after that of
//! the step which was not as usual.

use std::collections::BTreeMap;

use checkpoint::{Checkpoint, Found, committed};
use config::BatchOrigin;
use serde_json::json;
use train::Start;

use crate::failure::Failure;
use crate::folder::run_folder::RunFolder;
use crate::process_group::group::ProcessGroup;
use crate::process_group::member::Part;
use crate::process_group::shared_limit::shared_limit;
use crate::training::session::Session;
use crate::verdict::{Planned, Verdict, judge};

/// Times that a run may return to the same checkpoint: each time it leaves out more data.
const MOST_RETURNS: usize = 3;

/// Topic of the checkpoint that all processes return to.
const TOPIC: &str = "checkpoint to return to";

/// Does `run` from `start`, and again from the newest checkpoint each time that it is to return there. Process 0 has
/// the `folder`.
///
/// # Errors
/// The errors of `run`, and a run that cannot return.
pub fn returning(
    session: &Session<'_>,
    folder: Option<&RunFolder>,
    start: Start<'_>,
    run: impl Fn(&Session<'_>, Start<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut result = run(session, start);
    let mut verdict: Option<Verdict> = None;
    let mut returns: Vec<u32> = vec![];
    while let Err(Failure::RollBack { step, kind, reason }) = result {
        // The anomaly remains the cause of a run that cannot return.
        let given_up = |why: String| Failure::RollBack { step, kind, reason: format!("{reason}; {why}") };
        let checkpoint = chosen(session, given_up)?;
        let steps = checkpoint.state().steps;
        returns.push(steps);
        if returns.iter().filter(|other| **other == steps).count() > MOST_RETURNS {
            return Err(given_up(format!(
                "the run has returned to the checkpoint after step {steps} {MOST_RETURNS} times, so it ends: find the cause, or resume \
                 with a lower train.learning_rate"
            )));
        }
        let before = verdict.as_ref().unwrap_or(session.verdict);
        let first_sequence = before.config.train.batches().at(step).first_sequence;
        let next = leaving_out(before, BatchOrigin { steps, sequences: first_sequence })?;
        if let Some(folder) = folder {
            let skipped = first_sequence - checkpoint.state().sequences;
            folder.note(format!(
                "{reason}; back to the checkpoint after step {steps}, without the {skipped} sequences that followed it\n"
            ));
            folder.record_start(&json!({
                "after_step": steps,
                "rolled_back_from_step": step,
                "left_out_sequences": skipped,
                "reason": reason,
                "build": env!("CARGO_PKG_VERSION"),
            }))?;
        }
        let again = Session { verdict: &next, ..*session };
        result = run(&again, Start::Checkpoint(&checkpoint));
        verdict = Some(next);
    }
    result
}

/// The newest checkpoint that process 0 finds sound, on all processes.
fn chosen(session: &Session<'_>, given_up: impl Fn(String) -> Failure) -> Result<Checkpoint, Failure> {
    let folder = session.checkpoints();
    let all = committed(folder.path())?;
    let open = |found: &Found| Checkpoint::open(&found.path).ok();
    let newest = || {
        let newest = all.iter().find_map(open);
        newest.ok_or_else(|| given_up("there is no checkpoint to return to; use a smaller run.save_every".into()))
    };
    match (session.process_group.once("the checkpoint", newest)?, session.process_group) {
        (Part::First(newest), ProcessGroup::Several(member)) => {
            member.broadcast(TOPIC, newest.state().steps.to_le_bytes().to_vec())?;
            Ok(newest)
        }
        (Part::First(newest), ProcessGroup::Alone) => Ok(newest),
        (Part::Other(member), _) => {
            let steps = member.broadcast(TOPIC, vec![])?;
            let steps = <[u8; 4]>::try_from(steps).map(u32::from_le_bytes).unwrap_or(0);
            let found = committed(folder.path())?.into_iter().find(|found| found.steps == steps);
            let found = found.and_then(|found| Checkpoint::open(&found.path).ok());
            found.ok_or_else(|| {
                given_up(format!("the checkpoint after step {steps} is not in the folder of this process"))
            })
        }
    }
}

/// The same run, whose data continues at `origin`.
fn leaving_out(before: &Verdict, origin: BatchOrigin) -> Result<Verdict, Failure> {
    let mut config = before.config.clone();
    config.train.batch_origin = origin;
    let limit = shared_limit(&config);
    judge(config, &BTreeMap::new(), limit, Planned::EveryBatch).map_err(Failure::Run)
}
