//! Hosts that answer, and those that do not.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use launcher::Host;
use sync::NoThread;

use crate::launch::job::Shell;
use crate::launch::supervisor::Order;

/// Longest wait for the answer of a host.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time from one question to the next, to hosts that did not answer.
pub const PAUSE: Duration = Duration::from_secs(2);
const GLANCE: Duration = Duration::from_millis(10);
/// The signal that ends a run with a checkpoint.
const TERM: i32 = 15;

/// The hosts among `hosts` on which pleach cannot be started, in their order. All are asked at the same time.
///
/// # Errors
/// A thread that cannot be started.
pub fn silent(shell: &Shell, hosts: &[Host]) -> Result<Vec<Host>, NoThread> {
    std::thread::scope(|scope| {
        let ask = |host: &Host| {
            let question = shell.question(host);
            sync::start_scoped(scope, "question", move || question.is_none_or(answers))
        };
        let asked = hosts.iter().map(ask).collect::<Result<Vec<_>, NoThread>>()?;
        let silent =
            hosts.iter().zip(asked).filter_map(|(host, answer)| (!answer.join().unwrap_or(false)).then_some(host));
        Ok(silent.cloned().collect())
    })
}

/// Whether a command succeeds within [`PATIENCE`].
fn answers(mut question: Command) -> bool {
    question.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = question.spawn() else { return false };
    let since = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if since.elapsed() < PATIENCE => std::thread::sleep(GLANCE),
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    }
}

/// Waits for hosts to come back, on a thread of its own, and asks the run to end once all have.
pub struct ReturnWatch {
    are_back: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
    has_ordered: bool,
}

impl ReturnWatch {
    /// Begins to ask `hosts`.
    ///
    /// # Errors
    /// A thread that cannot be started.
    pub fn start(shell: &Shell, hosts: &[Host]) -> Result<ReturnWatch, NoThread> {
        let (are_back, is_over) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (shell, hosts) = (shell.clone(), hosts.to_vec());
        let (back, over) = (Arc::clone(&are_back), Arc::clone(&is_over));
        sync::start("hosts", move || {
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(PAUSE);
                if silent(&shell, &hosts).is_ok_and(|silent| silent.is_empty()) {
                    back.store(true, Ordering::Relaxed);
                    return;
                }
            }
        })?;
        Ok(ReturnWatch { are_back, is_over, has_ordered: false })
    }

    /// The order to end the run with a checkpoint, once.
    pub fn order(&mut self) -> Option<Order> {
        let is_due = !self.has_ordered && self.are_back.load(Ordering::Relaxed);
        self.has_ordered |= is_due;
        is_due.then_some(Order::Signal(TERM))
    }

    /// Whether the run was asked to end.
    pub fn has_ordered(&self) -> bool {
        self.has_ordered
    }
}

impl Drop for ReturnWatch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
