//! A run that must end ends in time, come what may.

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use crate::failure::Failure;
use crate::messages::stderr::tell;
use crate::signal::Signal;
use crate::signals::interrupt::Interrupt;
use crate::signals::watchdog::watch;

/// How long the last record and message may take: a pipe that is full and that nobody reads must not keep the process.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Ends the process that a signal has not ended within `run.grace_seconds`, unless this is dropped before.
#[derive(Debug)]
pub struct ExitDeadline {
    _running: Sender<()>,
}

impl ExitDeadline {
    /// Begins to watch `interrupt`. `record` writes down which signal has not ended the process, with the message that
    /// is printed.
    ///
    /// # Errors
    /// A thread that cannot be started.
    pub fn begin(
        seconds: f32,
        interrupt: &Interrupt,
        record: impl FnOnce(Signal, &str) + Send + 'static,
    ) -> Result<ExitDeadline, Failure> {
        let (running, ended) = channel();
        let interrupt = interrupt.clone();
        sync::start("grace", move || {
            let message = || {
                let signal = interrupt.signal()?;
                Some(format!(
                    "{signal}: the run has not ended within run.grace_seconds = {seconds:?}; checkpoints that were \
                     committed before are valid"
                ))
            };
            if let Some(message) = watch(&ended, message, Duration::from_secs_f32(seconds)) {
                let signal = interrupt.signal();
                in_time(move || {
                    if let Some(signal) = signal {
                        record(signal, &message);
                    }
                    tell(&format!("{message}\n"));
                });
                std::process::exit(signal.map_or(1, |signal| signal.exit_code().into()));
            }
        })?;
        Ok(ExitDeadline { _running: running })
    }
}

/// Does the last work of a process, for as long as [`LAST_WORDS`].
fn in_time(work: impl FnOnce() + Send + 'static) {
    let (working, ended) = channel::<()>();
    let work = move || {
        work();
        drop(working);
    };
    // Without a thread more, the end is more than the message.
    let _ = std::thread::Builder::new().spawn(work);
    let _ = ended.recv_timeout(LAST_WORDS);
}
