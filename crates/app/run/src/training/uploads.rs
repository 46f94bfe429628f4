//! Checkpoints on their way to the store of a run, while it trains.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use checkpoint::{Mirror, StoredError, Uploaded};
use config::RunSpec;
use config::figures::bytes;
use stores::Unanswered;
use sync::{Condvar, Mutex, lock, wait, wait_timeout};

use crate::failure::Failure;
use crate::folder::run_folder::RunFolder;
use crate::messages::patience::announced_by;
use crate::messages::stderr::tell;
use crate::places::names::CHECKPOINTS;
use crate::store::stored;
use crate::store::unanswered::failing;

/// Time from one warning of uploads that fail to the next.
const BETWEEN_WARNINGS: Duration = Duration::from_secs(60);

/// Something that a run says of its uploads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// For people and the log.
    Note(String),
    /// For everyone.
    Warning(String),
}

/// The thread that brings checkpoints to the store. It begins when a checkpoint was committed, and after a failure with
/// the next one.
#[derive(Debug)]
pub struct Uploads {
    shared: Arc<Shared>,
    address: String,
    run: PathBuf,
    /// The longest wait at the end of a run that has done its steps, and of one that was ended.
    waits: [Duration; 2],
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The number of times that something was to be brought, and the one that was done last.
    asked: u64,
    done: u64,
    is_over: bool,
    messages: Vec<Message>,
    /// Why the last time failed.
    failed: Option<String>,
    /// The request that fails now, and when a warning of it was made last.
    failing: Option<String>,
    warned: Option<Instant>,
}

impl Uploads {
    /// Starts the thread for the run in `folder` that continues after `start` steps; nothing where it has no store.
    ///
    /// # Errors
    /// An address or settings that cannot be used.
    pub fn begin(run: &RunSpec, folder: &RunFolder, start: u32) -> Result<Option<Uploads>, Failure> {
        let shared = Arc::new(Shared::default());
        let hearing = Arc::clone(&shared);
        let on_unanswered = Arc::new(move |unanswered: &Unanswered<'_>| hearing.report(unanswered));
        let Some(stored) = stored::in_background(run, on_unanswered)? else { return Ok(None) };
        let address = stored.address().to_string();
        let rules = (folder.store.retention(), folder.store.holds());
        let checkpoints = run.folder.join(CHECKPOINTS);
        let mirror = Mirror::new(stored, &checkpoints, stored::files_of(&run.folder), rules, start);
        let of_thread = Arc::clone(&shared);
        sync::start("uploads", move || of_thread.work(mirror))?;
        let longest = Duration::from_secs_f32(run.store_seconds);
        let grace = Duration::from_secs_f32(run.grace_seconds);
        let uploads = Uploads { shared, address, run: run.folder.to_path_buf(), waits: [longest, longest.min(grace)] };
        // The folder may have checkpoints of an earlier start; those of an earlier run will be removed first.
        if start > 0 {
            uploads.ask();
        }
        Ok(Some(uploads))
    }

    /// A checkpoint was committed.
    pub fn ask(&self) {
        lock(&self.shared.state).asked += 1;
        self.shared.changed.notify_all();
    }

    /// Messages that were not heard yet.
    pub fn messages(&self) -> Vec<Message> {
        std::mem::take(&mut lock(&self.shared.state).messages)
    }

    /// Waits for the uploads of a run that has `ended`, up to a limit.
    ///
    /// # Errors
    /// The run's own, and checkpoints that are missing in the store.
    pub fn finish(self, folder: &RunFolder, ended: Result<(), Failure>) -> Result<(), Failure> {
        let [longest, short] = self.waits;
        let limit = if ended.is_ok() { longest } else { short };
        self.ask();
        let said = |elapsed| self.shared.waiting(&self.address, elapsed, limit);
        let in_time = announced_by(said, || self.shared.wait_until_done(limit));
        let told = |message| match message {
            Message::Note(text) => folder.log_line(&text),
            Message::Warning(text) => {
                folder.log_line(&text);
                tell(&format!("{text}\n"));
            }
        };
        self.messages().into_iter().for_each(told);
        let failed = {
            let state = lock(&self.shared.state);
            state.failing.clone().or_else(|| state.failed.clone())
        };
        let reason = match (in_time, failed) {
            (true, None) => {
                // Checkpoints that were held while they were uploaded may be removed now.
                let retired = folder.store.retire();
                return retired.map_err(Failure::from).and(ended);
            }
            (true, Some(reason)) => reason,
            (false, reason) => {
                let waited = format!("uploads have not ended within {} s", limit.as_secs_f32());
                reason.map_or(waited.clone(), |reason| format!("{waited}: {reason}"))
            }
        };
        let (address, run) = (&self.address, self.run.display());
        let text = format!(
            "not all checkpoints are in {address}: {reason}; they are in {run}, and `pleach train --resume {run}` uploads them"
        );
        folder.log_line(&text);
        match ended {
            Ok(()) => Err(Failure::Work(text)),
            Err(failure) => {
                tell(&format!("{text}\n"));
                Err(failure)
            }
        }
    }
}

impl Drop for Uploads {
    fn drop(&mut self) {
        lock(&self.shared.state).is_over = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn work(&self, mut mirror: Mirror) {
        while let Some(asked) = self.next() {
            let since = Instant::now();
            let brought = mirror.bring(|Uploaded { steps, data_bytes }| {
                let (size, seconds) = (bytes(data_bytes), since.elapsed().as_secs_f64());
                lock(&self.state).failing = None;
                self.say(Message::Note(format!("uploaded after step {steps}: {size} in {seconds:.2} s")));
            });
            let failed = brought.err().map(|error| not_uploaded(&mirror, &error));
            if let Some(reason) = &failed {
                self.say(Message::Warning(format!("{reason}; it is tried again with the next checkpoint")));
            }
            let mut state = lock(&self.state);
            (state.done, state.failed, state.failing, state.warned) = (asked, failed, None, None);
            self.changed.notify_all();
        }
    }

    /// Waits until something is to be brought; `None` where the run is over.
    fn next(&self) -> Option<u64> {
        let mut state = lock(&self.state);
        while state.asked == state.done && !state.is_over {
            state = wait(&self.changed, state);
        }
        (!state.is_over).then_some(state.asked)
    }

    /// A request has no answer yet: a warning of those that have failed, now and then.
    fn report(&self, unanswered: &Unanswered<'_>) {
        let mut state = lock(&self.state);
        state.failing = failing(unanswered);
        let Some(line) = state.failing.clone() else { return };
        if state.warned.is_none_or(|warned| warned.elapsed() >= BETWEEN_WARNINGS) {
            state.warned = Some(Instant::now());
            state.messages.push(Message::Warning(format!("uploads fail for now: {line}; the run continues")));
        }
    }

    /// How long the end of a run has waited, how long it still waits, and for what.
    fn waiting(&self, address: &str, elapsed: Duration, limit: Duration) -> String {
        let (so_far, left) = (elapsed.as_secs(), limit.saturating_sub(elapsed).as_secs());
        let state = lock(&self.state);
        let cause = state.failing.as_ref().or(state.failed.as_ref());
        let cause = cause.map_or(String::new(), |cause| format!(": {cause}"));
        format!("waiting for uploads to {address}: {so_far} s so far, {left} s left{cause}")
    }

    fn say(&self, message: Message) {
        lock(&self.state).messages.push(message);
    }

    /// Whether all that was asked for was done, or has failed, within `limit`.
    fn wait_until_done(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut state = lock(&self.state);
        while state.done < state.asked {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = wait_timeout(&self.changed, state, left);
        }
        true
    }
}

/// The checkpoints that are not in the store, with the reason.
fn not_uploaded(mirror: &Mirror, error: &StoredError) -> String {
    // Where the folder cannot be read, the error says so.
    let steps: Vec<String> = mirror.missing().unwrap_or_default().iter().map(ToString::to_string).collect();
    format!("not uploaded after step {}: {error}", steps.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uploads_that_fail_are_told_with_their_cause_and_the_time_that_is_left() {
        let (shared, address) = (Shared::default(), "s3://bucket/a");
        let left = Duration::from_secs(590);
        let first = Unanswered { address, reason: None, attempt: 1, left };
        shared.report(&first);
        assert_eq!(lock(&shared.state).messages, []);
        let failing = Unanswered { reason: Some("connection refused"), attempt: 3, ..first };
        shared.report(&failing);
        shared.report(&failing);
        let line = "s3://bucket/a: connection refused; attempt 3, 590 s left";
        let told = Message::Warning(format!("uploads fail for now: {line}; the run continues"));
        assert_eq!(lock(&shared.state).messages, [told], "once a minute");
        let waiting = shared.waiting(address, Duration::from_secs(10), Duration::from_secs(600));
        assert_eq!(waiting, format!("waiting for uploads to s3://bucket/a: 10 s so far, 590 s left: {line}"));
    }
}
