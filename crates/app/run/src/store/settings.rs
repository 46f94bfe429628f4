//! The settings of requests to an object store.

use std::time::Duration;

use stores::{RetryLimit, Settings};

use crate::store::unanswered::{Deadline, on_screen};

/// Time in which requests are tried where no key gives it.
pub const SECONDS: f32 = 600.0;

/// How long requests of a command are tried, and whether attempts are reported meanwhile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RetryTime {
    /// For `run.store_seconds`.
    OfRun(f32),
    /// The same where nobody waits for an answer.
    InBackground(f32),
    /// For the time that no key changes.
    Fixed,
}

/// The settings of requests: variables and profiles of this process.
pub fn settings(patient: RetryTime) -> Settings {
    let variables = std::env::vars_os();
    let variables = variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let tried = |seconds| Settings::new(variables, RetryLimit { limit: Duration::from_secs_f32(seconds) });
    match patient {
        RetryTime::OfRun(seconds) => tried(seconds).with_on_unanswered(on_screen(Deadline::StoreSeconds)),
        RetryTime::InBackground(seconds) => tried(seconds),
        RetryTime::Fixed => tried(SECONDS).with_on_unanswered(on_screen(Deadline::Fixed)),
    }
}
