//! How far checkpoints in memory are: a process begins one once that before is decided, so that a host never holds
//! more than two.

use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use checkpoint::{Committer, Finished, PieceCollector, ProcessPieces};
use rendezvous::Control;
use sync::{lock, wait_timeout};

/// How often a process looks whether the run has failed.
const GLANCE: Duration = Duration::from_millis(200);
/// Time after which a checkpoint that is not decided fails the next one.
const PATIENCE: Duration = Duration::from_secs(300);

/// The checkpoints of an attempt that all processes know to be whole, or not to become whole.
pub struct Decisions {
    control: Arc<Control>,
    topic: String,
    known: Mutex<Known>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    /// Steps of the last one that is whole, or does not become whole.
    decided: u32,
    /// Steps of the last one that is whole; 0 for none.
    whole: u32,
}

impl std::fmt::Debug for Decisions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Decisions on {}", self.topic)
    }
}

impl Decisions {
    /// Of an attempt; the state after `whole` steps is whole. All processes give it the same `number`.
    pub fn new(control: &Arc<Control>, number: usize, whole: u32) -> Decisions {
        let topic = format!("checkpoints in memory {number}");
        let known = Mutex::new(Known { decided: whole, whole });
        Decisions { control: Arc::clone(control), topic, known, changed: Condvar::new() }
    }

    /// Steps of the last one that is whole; 0 for none.
    pub fn whole(&self) -> u32 {
        lock(&self.known).whole
    }

    /// Process 0 decides that of `steps`, and tells the others.
    fn decide(&self, steps: u32, finished: &Finished) {
        let known = {
            let mut known = lock(&self.known);
            known.decided = known.decided.max(steps);
            if finished.outcome.is_ok() {
                known.whole = known.whole.max(steps);
            }
            self.changed.notify_all();
            *known
        };
        let message: Vec<u8> = [known.decided, known.whole].into_iter().flat_map(u32::to_le_bytes).collect();
        for process in 1..self.control.directory().processes.len() {
            // A process that is not there ends the run by itself.
            let _ = self.control.send_to(process, &self.topic, message.clone());
        }
    }

    /// Waits until that of `steps` is decided.
    ///
    /// # Errors
    /// A run that has failed, and a checkpoint that is not decided in time.
    pub fn wait(&self, steps: u32) -> io::Result<()> {
        let until = Instant::now() + PATIENCE;
        let late = || {
            let text = format!("the checkpoint in memory after step {steps} is not whole after {PATIENCE:?}");
            io::Error::new(io::ErrorKind::TimedOut, text)
        };
        while lock(&self.known).decided < steps {
            if Instant::now() >= until {
                return Err(late());
            }
            if self.control.process() == 0 {
                if let Some(failure) = self.control.failure() {
                    return Err(io::Error::other(failure.to_string()));
                }
                let known = lock(&self.known);
                if known.decided < steps {
                    drop(wait_timeout(&self.changed, known, GLANCE));
                }
            } else if let Some((_, message)) = self.control.receive(&self.topic, GLANCE).map_err(io::Error::other)? {
                // Several ranks may wait, and each message reaches one of them.
                let (received, mut known) = (parsed(&message)?, lock(&self.known));
                known.decided = known.decided.max(received.decided);
                known.whole = known.whole.max(received.whole);
            }
        }
        Ok(())
    }
}

fn parsed(message: &[u8]) -> io::Result<Known> {
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "process 0 decided something else than a checkpoint");
    let (decided, whole) = message.split_first_chunk::<4>().ok_or_else(malformed)?;
    let whole = <[u8; 4]>::try_from(whole).map_err(|_| malformed())?;
    Ok(Known { decided: u32::from_le_bytes(*decided), whole: u32::from_le_bytes(whole) })
}

/// Commits checkpoints in memory, on process 0: the manifest goes to the folder of the run once every file is on
/// two hosts.
pub struct MemoryCommitter<'a> {
    committer: Committer<'a>,
    decisions: &'a Decisions,
}

impl<'a> MemoryCommitter<'a> {
    /// Commits with `committer`.
    pub fn new(committer: Committer<'a>, decisions: &'a Decisions) -> MemoryCommitter<'a> {
        MemoryCommitter { committer, decisions }
    }
}

impl PieceCollector for MemoryCommitter<'_> {
    fn deliver(&self, pieces: ProcessPieces) -> Option<Finished> {
        let steps = pieces.steps();
        let finished = self.committer.deliver(pieces)?;
        self.decisions.decide(steps, &finished);
        Some(finished)
    }
}
