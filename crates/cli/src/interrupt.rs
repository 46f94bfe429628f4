//! Ctrl-C: the first ends the run after the current step, the second ends the process at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
    /// A system that does not let this process handle the signal.
    #[cfg(unix)]
    pub fn listen() -> std::io::Result<Interrupt> {
        use signal_hook::consts::SIGINT;
        let interrupt = Interrupt::default();
        // In this order: the first signal finds the flag not yet set, so that only the second one ends the process.
        signal_hook::flag::register_conditional_shutdown(SIGINT, i32::from(EXIT_CODE), Arc::clone(&interrupt.pressed))?;
        signal_hook::flag::register(SIGINT, Arc::clone(&interrupt.pressed))?;
        Ok(interrupt)
    }

    /// Elsewhere Ctrl-C ends the process at once.
    ///
    /// # Errors
    /// None.
    #[cfg(not(unix))]
    pub fn listen() -> std::io::Result<Interrupt> {
        Ok(Interrupt::default())
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
