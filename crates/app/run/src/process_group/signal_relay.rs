//! Signals that reach a process other than 0, on their way to all.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use crate::failure::Failure;
use crate::process_group::group::ProcessGroup;
use crate::process_group::member::GroupMember;
use crate::signals::interrupt::{AtOnce, Interrupt};

/// How often a signal is looked for.
const GLANCE: Duration = Duration::from_millis(50);

/// Does `work`, while a thread passes a signal that reaches this process on to process 0, which ends the work of all.
///
/// # Errors
/// A thread that cannot be started.
pub fn relay_while<T>(member: &GroupMember, interrupt: &Interrupt, work: impl FnOnce() -> T) -> Result<T, Failure> {
    std::thread::scope(|scope| {
        let (running, ended) = channel::<()>();
        sync::start_scoped(scope, "signals", move || {
            while ended.recv_timeout(GLANCE) == Err(RecvTimeoutError::Timeout) {
                if let Some(signal) = interrupt.signal() {
                    return member.control.stop(signal.number());
                }
            }
        })?;
        let result = work();
        drop(running);
        Ok(result)
    })
}

/// Does `work`, which leaves nothing half done, while a signal that reaches any process ends all of them at once with
/// its exit code.
///
/// # Errors
/// The errors of `work`, and a thread that cannot be started.
pub fn end_all_while<T>(
    process_group: &ProcessGroup,
    signals: &AtOnce,
    work: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let ProcessGroup::Several(member) = process_group else { return work() };
    signals.noted_while(|interrupt| {
        let result = std::thread::scope(|scope| {
            let (running, ended) = channel::<()>();
            sync::start_scoped(scope, "signals", move || {
                while ended.recv_timeout(GLANCE) == Err(RecvTimeoutError::Timeout) {
                    end_by_signal(member, interrupt);
                }
            })?;
            let result = work();
            drop(running);
            result
        });
        // The work of a process fails where another one has ended by the signal.
        end_by_signal(member, interrupt);
        result
    })
}

/// Ends this process where a signal has reached it or another one, which hears of it first.
fn end_by_signal(member: &GroupMember, interrupt: &Interrupt) {
    if let Some(signal) = interrupt.signal() {
        member.control.stop(signal.number());
    }
    member.note_signal(interrupt);
    if let Some(signal) = interrupt.signal() {
        // Process 0 passes the signal on meanwhile.
        std::thread::sleep(GLANCE);
        std::process::exit(signal.exit_code().into());
    }
}
