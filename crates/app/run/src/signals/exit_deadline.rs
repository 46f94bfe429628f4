//! A run that must end ends in time, come what may.

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use crate::failure::Failure;
use crate::messages::stderr::tell;
use crate::signals::interrupt::Interrupt;
use crate::signals::watchdog::watch;

/// How long the last message may take: a pipe that is full and that nobody reads must not keep the process.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Ends the process that a signal has not ended within `run.grace_seconds`, unless this is dropped before.
#[derive(Debug)]
pub struct ExitDeadline {
    _running: Sender<()>,
}

impl ExitDeadline {
    /// Begins to watch `interrupt`.
    ///
    /// # Errors
    /// A thread that cannot be started.
    pub fn begin(seconds: f32, interrupt: &Interrupt) -> Result<ExitDeadline, Failure> {
        let (running, ended) = channel();
        let interrupt = interrupt.clone();
        sync::start("grace", move || {
            let message = || {
                let signal = interrupt.signal()?;
                Some(format!(
                    "{signal}: the run has not ended within run.grace_seconds = {seconds:?}; checkpoints that were committed before are valid\n"
                ))
            };
            if let Some(message) = watch(&ended, message, Duration::from_secs_f32(seconds)) {
                tell_in_time(message);
                std::process::exit(interrupt.signal().map_or(1, |signal| signal.exit_code().into()));
            }
        })?;
        Ok(ExitDeadline { _running: running })
    }
}

/// Tells people something, for as long as [`LAST_WORDS`].
fn tell_in_time(text: String) {
    let (telling, ended) = channel::<()>();
    let tell = move || {
        tell(&text);
        drop(telling);
    };
    // Without a thread more, the end is more than the message.
    let _ = std::thread::Builder::new().spawn(tell);
    let _ = ended.recv_timeout(LAST_WORDS);
}
