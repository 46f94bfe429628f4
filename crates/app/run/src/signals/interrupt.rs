//! Ctrl-C, and the signals by which schedulers announce the end of a process: the first one ends the work after the
//! current step. Ctrl-C more than [`SAME_REQUEST`] after it ends the process at once; a scheduler that sends two
//! signals means the same end by both.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::failure::Failure;
use crate::signal::{SAME_REQUEST, Signal};

/// How often the first signal is looked for.
const GLANCE: Duration = Duration::from_millis(50);

/// Whether one of the signals came, and which.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    /// Whether this process received one itself.
    is_received: Arc<AtomicBool>,
    /// Whether the next Ctrl-C is another request.
    is_repeatable: Arc<AtomicBool>,
    /// The number of the latest signal; 0 before the first.
    latest: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Begins to listen.
    ///
    /// # Errors
    /// A system that does not let this process handle the signals.
    pub fn listen() -> Result<Interrupt, Failure> {
        let interrupt = Interrupt::default();
        let listening = set(&interrupt).and_then(|()| end_at_second(&interrupt));
        listening.map(|()| interrupt).map_err(not_handled)
    }

    /// The signal that came, the latest of several.
    pub fn signal(&self) -> Option<Signal> {
        let latest = self.latest.load(Ordering::Relaxed);
        Signal::ALL.into_iter().find(|signal| signal.number() as usize == latest)
    }

    /// Takes the signal of this number, which another process received; others count as Ctrl-C.
    pub fn note(&self, number: i32) {
        let signal = Signal::ALL.into_iter().find(|signal| signal.number() == number).unwrap_or(Signal::Interrupt);
        self.latest.store(signal.number() as usize, Ordering::Relaxed);
    }

    /// Whether one came.
    pub fn is_pressed(&self) -> bool {
        self.signal().is_some()
    }

    /// As if Ctrl-C were pressed.
    #[cfg(test)]
    pub fn press(&self) {
        self.latest.store(Signal::Interrupt.number() as usize, Ordering::Relaxed);
    }
}

/// Signals during work that leaves nothing half done: each ends the process at once.
pub struct AtOnce {
    /// Whether they do so now.
    is_end: Arc<AtomicBool>,
    interrupt: Interrupt,
}

/// From now on until [`AtOnce::noted`], Ctrl-C and SIGTERM end the process at once, with their exit codes: nothing is
/// there yet that could be kept.
///
/// # Errors
/// A system that does not let this process handle the signals.
pub fn ends_until_heard() -> Result<AtOnce, Failure> {
    let at_once = AtOnce { is_end: Arc::new(AtomicBool::new(true)), interrupt: Interrupt::default() };
    let ending = end_where(&at_once.is_end, &[Signal::Interrupt, Signal::Terminate]);
    let listening = ending.and_then(|()| set(&at_once.interrupt)).and_then(|()| end_at_second(&at_once.interrupt));
    listening.map(|()| at_once).map_err(not_handled)
}

/// From now on Ctrl-C and SIGTERM end the process at once, with their exit codes: for work that leaves nothing half
/// done. SIGUSR1 warns of an end, and there is nothing to save, so the work continues: the mpiexec of MPICH sends it to
/// all others when a process has ended, also at the end of a run that is whole.
///
/// # Errors
/// A system that does not let this process handle the signals.
pub fn ends_at_once() -> Result<AtOnce, Failure> {
    let at_once = AtOnce { is_end: Arc::new(AtomicBool::new(true)), interrupt: Interrupt::default() };
    let ending = end_where(&at_once.is_end, &[Signal::Interrupt, Signal::Terminate]);
    let listening = ending.and_then(|()| survive_warnings()).and_then(|()| set(&at_once.interrupt));
    listening.map(|()| at_once).map_err(not_handled)
}

impl AtOnce {
    /// From now on signals are noted, for work that looks for them by itself. One that came before and only warns is
    /// among them.
    pub fn noted(&self) -> Interrupt {
        self.is_end.store(false, Ordering::Relaxed);
        self.interrupt.clone()
    }

    /// Does `work`, which looks for the signals by itself: until it is done they are noted and do not end the process.
    pub fn noted_while<T>(&self, work: impl FnOnce(&Interrupt) -> T) -> T {
        self.is_end.store(false, Ordering::Relaxed);
        let done = work(&self.interrupt);
        self.is_end.store(true, Ordering::Relaxed);
        done
    }
}

/// SIGUSR1 changes nothing.
fn survive_warnings() -> io::Result<()> {
    signal_hook::flag::register(Signal::User1.number(), Arc::default()).map(drop)
}

/// From now on a terminal that hangs up, as after a lost connection, ends only the screen of a run: SIGHUP changes
/// nothing. The programs that this one starts hear it as ever.
///
/// # Errors
/// A system that does not let this process handle the signal.
pub fn survive_hangups() -> Result<(), Failure> {
    signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::default()).map(drop).map_err(not_handled)
}

/// From now on a file that grows beyond the limit of the process is a write that fails, answered as on a full disk, and
/// not the end of the process.
///
/// # Errors
/// A system that does not let this process handle the signal.
pub fn survive_file_limits() -> Result<(), Failure> {
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default()).map(drop).map_err(not_handled)
}

fn not_handled(error: io::Error) -> Failure {
    Failure::Work(format!("signals cannot be handled: {error}"))
}

/// Each of `signals` ends the process where `is_end` is set.
fn end_where(is_end: &Arc<AtomicBool>, signals: &[Signal]) -> io::Result<()> {
    let end = |signal: &Signal| {
        let code = i32::from(signal.exit_code());
        signal_hook::flag::register_conditional_shutdown(signal.number(), code, Arc::clone(is_end)).map(drop)
    };
    signals.iter().try_for_each(end)
}

/// Every signal is noted.
fn set(interrupt: &Interrupt) -> io::Result<()> {
    Signal::ALL.into_iter().try_for_each(|signal| {
        let number = signal.number();
        signal_hook::flag::register_usize(number, Arc::clone(&interrupt.latest), number as usize)?;
        signal_hook::flag::register(number, Arc::clone(&interrupt.is_received)).map(drop)
    })
}

/// Ctrl-C ends the process once the first signal that it received is older than [`SAME_REQUEST`].
fn end_at_second(interrupt: &Interrupt) -> io::Result<()> {
    end_where(&interrupt.is_repeatable, &[Signal::Interrupt])?;
    let Interrupt { is_received, is_repeatable, .. } = interrupt.clone();
    let wait = move || {
        while !is_received.load(Ordering::Relaxed) {
            std::thread::sleep(GLANCE);
        }
        std::thread::sleep(SAME_REQUEST);
        is_repeatable.store(true, Ordering::Relaxed);
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).map(drop)
}
