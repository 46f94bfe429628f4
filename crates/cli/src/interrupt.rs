//! Ctrl-C, and the signal by which schedulers end a process: the first ends the work after the current step, the second ends the
//! process at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::Failure;

/// The exit code of an interrupted command: 128 + SIGINT.
pub const EXIT_CODE: u8 = 130;

/// Whether Ctrl-C was pressed.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    pressed: Arc<AtomicBool>,
}

impl Interrupt {
    /// Begins to listen.
    ///
    /// # Errors
    /// A system that does not let this process handle the signals.
    pub fn listen() -> Result<Interrupt, Failure> {
        let interrupt = Interrupt::default();
        // In this order: the first signal finds the flag not yet set, so that only the second one ends the process.
        let listening = end_where(&interrupt.pressed).and_then(|()| set(&interrupt.pressed));
        listening.map(|()| interrupt).map_err(not_handled)
    }

    /// Whether it was pressed.
    pub fn is_pressed(&self) -> bool {
        self.pressed.load(Ordering::Relaxed)
    }

    /// As if it were pressed.
    #[cfg(test)]
    pub fn press(&self) {
        self.pressed.store(true, Ordering::Relaxed);
    }
}

/// From now on an interrupt ends the process at once, with its exit code: for work that leaves nothing half done.
///
/// # Errors
/// A system that does not let this process handle the signals.
pub fn ends_at_once() -> Result<(), Failure> {
    end_where(&Arc::new(AtomicBool::new(true))).map_err(not_handled)
}

fn not_handled(error: io::Error) -> Failure {
    Failure::Work(format!("Ctrl-C cannot be handled: {error}"))
}

#[cfg(unix)]
const SIGNALS: [i32; 2] = [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM];

/// Signals end the process where `pressed` is set.
#[cfg(unix)]
fn end_where(pressed: &Arc<AtomicBool>) -> io::Result<()> {
    let end = |signal| {
        signal_hook::flag::register_conditional_shutdown(signal, i32::from(EXIT_CODE), Arc::clone(pressed)).map(drop)
    };
    SIGNALS.into_iter().try_for_each(end)
}

/// Signals set `pressed`.
#[cfg(unix)]
fn set(pressed: &Arc<AtomicBool>) -> io::Result<()> {
    SIGNALS.into_iter().try_for_each(|signal| signal_hook::flag::register(signal, Arc::clone(pressed)).map(drop))
}

/// Elsewhere Ctrl-C ends the process at once by itself.
#[cfg(not(unix))]
fn end_where(_: &Arc<AtomicBool>) -> io::Result<()> {
    Ok(())
}

/// As [`end_where`].
#[cfg(not(unix))]
fn set(_: &Arc<AtomicBool>) -> io::Result<()> {
    Ok(())
}
