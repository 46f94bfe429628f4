//! How far checkpoints in memory are: a process begins one once that before is decided, so that a host never holds
//! more than two.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use checkpoint::Finished;
use rendezvous::Control;
use sync::lock;

/// How often a rank looks whether another one of its process has heard of a decision.
const GLANCE: Duration = Duration::from_millis(200);
/// Time after which a checkpoint that is not decided fails the next one.
const PATIENCE: Duration = Duration::from_secs(300);

/// The checkpoints of an attempt that all processes know to be whole, or not to become whole.
#[derive(Debug)]
pub struct Decisions {
    control: Arc<Control>,
    topic: String,
    known: Mutex<Known>,
}

/// The knowledge of a process, by steps of checkpoints.
#[derive(Debug)]
struct Known {
    /// The last one that this process began.
    begun: u32,
    /// The last one that is whole, or does not become whole.
    decided: u32,
    /// The last one that is whole.
    whole: u32,
}

impl Decisions {
    /// Of an attempt that begins after `start` steps. All processes give it the same `number`.
    pub fn new(control: &Arc<Control>, number: usize, start: u32) -> Decisions {
        let topic = format!("checkpoints in memory {number}");
        let known = Mutex::new(Known { begun: start, decided: start, whole: start });
        Decisions { control: Arc::clone(control), topic, known }
    }

    /// Process 0 tells that the checkpoint after `steps` steps has `finished`.
    pub fn decide(&self, steps: u32, finished: &Finished) {
        let message = [&steps.to_le_bytes()[..], &[u8::from(finished.outcome.is_ok())]].concat();
        // A process that is not there ends the run by itself. This one hears it as the others do.
        let _ = self.control.send_to_first(&self.topic, message.clone());
        for process in 1..self.control.directory().processes.len() {
            let _ = self.control.send_to(process, &self.topic, message.clone());
        }
    }

    /// Begins the checkpoint after `steps` steps, once that before is decided. No lock is held meanwhile: other ranks
    /// of this process may still finish that one. Returns the steps of the last whole one; 0 for none.
    ///
    /// # Errors
    /// A run that has failed, and a checkpoint that is not decided in time.
    pub fn begin(&self, steps: u32) -> io::Result<u32> {
        let until = Instant::now() + PATIENCE;
        loop {
            let before = {
                let mut known = lock(&self.known);
                if known.begun >= steps || known.decided >= known.begun {
                    known.begun = known.begun.max(steps);
                    return Ok(known.whole);
                }
                known.begun
            };
            if Instant::now() >= until {
                let text = format!("the checkpoint in memory after step {before} is not whole after {PATIENCE:?}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            let received = self.control.receive(&self.topic, GLANCE).map_err(io::Error::other)?;
            let Some((_, message)) = received else { continue };
            let Ok([steps @ .., is_whole]) = <[u8; 5]>::try_from(message) else {
                return Err(io::Error::other("process 0 decided something else than a checkpoint"));
            };
            let (steps, mut known) = (u32::from_le_bytes(steps), lock(&self.known));
            known.decided = known.decided.max(steps);
            if is_whole > 0 {
                known.whole = known.whole.max(steps);
            }
        }
    }
}
