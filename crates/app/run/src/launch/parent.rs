//! A process of a launch ends with its launcher, also where that was killed.

use launcher::variable;

/// Asks the system for SIGTERM when the launcher ends. Called once, before anything else; without effect for processes
/// that no `pleach launch` of this host started.
#[cfg(target_os = "linux")]
pub fn end_with_launcher() {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    let Some(launcher) = std::env::var(variable::PARENT).ok().and_then(|id| id.parse::<i32>().ok()) else { return };
    let is_parent = || getppid().is_some_and(|parent| parent.as_raw_nonzero().get() == launcher);
    if !is_parent() {
        return;
    }
    // A system that refuses leaves the other ways: the control channel, and the launcher itself.
    let _ = set_parent_process_death_signal(Some(Signal::TERM));
    // The launcher may have ended before the request.
    if !is_parent() {
        std::process::exit(143);
    }
}

/// Other systems have no such request; the control channel ends the process.
#[cfg(not(target_os = "linux"))]
pub fn end_with_launcher() {
    let _ = variable::PARENT;
}
