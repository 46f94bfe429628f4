//! A run that was told to end ends in time, come what may.

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use crate::run::interrupt::Interrupt;
use crate::run::watchdog::watch;
use crate::screen::output::tell;

/// Ends the process where a signal came and this is still there when the grace is over.
#[derive(Debug)]
pub struct Grace {
    _running: Sender<()>,
}

impl Grace {
    /// Begins to watch `interrupt`.
    pub fn begin(seconds: f32, interrupt: &Interrupt) -> Grace {
        let (running, ended) = channel();
        let interrupt = interrupt.clone();
        std::thread::spawn(move || {
            let told = || {
                let signal = interrupt.signal()?;
                Some(format!(
                    "{signal}: the run has not ended within run.grace_seconds = {seconds:?}; what was committed before is whole\n"
                ))
            };
            if let Some(told) = watch(&ended, told, Duration::from_secs_f32(seconds)) {
                tell(&told);
                std::process::exit(interrupt.signal().map_or(1, |signal| signal.exit_code().into()));
            }
        });
        Grace { _running: running }
    }
}
