//! Transports that misbehave, for tests: late, lossy, corrupting. The product holds no such switch;
//! a test wraps the transport of one rank or of all.

use crate::error::CommError;
use crate::tag::Tag;
use crate::transport::{Chunks, Loan, Message, SendHandle, Transport};
use device::Operation;
use mesh::Rank;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A fault, and when it strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Every operation starts after a pseudo-random delay below `below`, the same for one seed.
    Jitter {
        /// The delays derive from it and from the rank.
        seed: u64,
        /// No delay reaches this.
        below: Duration,
    },
    /// The message number `nth` (from 0) to `to` is never sent.
    Drop {
        /// The receiver.
        to: Rank,
        /// Which of the messages to it.
        nth: u64,
    },
    /// The lowest bit of byte `byte` of message number `nth` (from 0) to `to` is flipped. A byte
    /// past the end of the message leaves it whole.
    FlipBit {
        /// The receiver.
        to: Rank,
        /// Which of the messages to it.
        nth: u64,
        /// The index of the byte.
        byte: usize,
    },
}

/// A transport with one fault.
pub struct Faulty {
    inner: Arc<dyn Transport>,
    fault: Fault,
    /// The messages to the receiver of the fault, or the delays, so far.
    events: AtomicU64,
}

/// The treatment of a message to one receiver.
enum SendOutcome {
    Passes,
    IsDropped,
    IsChanged(usize),
}

impl Faulty {
    /// `inner` with `fault`.
    pub fn new(inner: Arc<dyn Transport>, fault: Fault) -> Faulty {
        let events = AtomicU64::new(0);
        Faulty { inner, fault, events }
    }

    fn delay(&self) {
        let Fault::Jitter { seed, below } = self.fault else {
            return;
        };
        let event = self.events.fetch_add(1, Ordering::Relaxed);
        let place = (self.inner.rank().0 as u64) << 40 | event;
        let below_ns = u64::try_from(below.as_nanos()).unwrap_or(u64::MAX).max(1);
        let delay_ns = mixed(seed ^ mixed(place)) % below_ns;
        std::thread::sleep(Duration::from_nanos(delay_ns));
    }

    fn outcome(&self, receiver: Rank) -> SendOutcome {
        let strikes = |to: Rank, nth: u64| receiver == to && self.events.fetch_add(1, Ordering::Relaxed) == nth;
        match self.fault {
            Fault::Drop { to, nth } if strikes(to, nth) => SendOutcome::IsDropped,
            Fault::FlipBit { to, nth, byte } if strikes(to, nth) => SendOutcome::IsChanged(byte),
            Fault::Jitter { .. } | Fault::Drop { .. } | Fault::FlipBit { .. } => SendOutcome::Passes,
        }
    }

    /// Applies the fault to `message`; the receivers that are to get it as it is.
    fn strike(&self, message: Message<'_>) -> Result<Vec<Rank>, CommError> {
        let mut untouched = Vec::with_capacity(message.to.len());
        for &to in message.to {
            match self.outcome(to) {
                SendOutcome::Passes => untouched.push(to),
                SendOutcome::IsDropped => {}
                SendOutcome::IsChanged(byte) => {
                    let bytes = &flipped(message.bytes, byte);
                    let to = &[to];
                    self.inner.post_copy(Message { to, bytes, ..message })?;
                }
            }
        }
        Ok(untouched)
    }
}

fn flipped(bytes: &[u8], byte: usize) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    if let Some(byte) = changed.get_mut(byte) {
        *byte ^= 1;
    }
    changed
}

/// A well-mixed function of its argument (the finalizer of SplitMix64).
fn mixed(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Transport for Faulty {
    forward_to_inner!();

    fn post_copy(&self, message: Message<'_>) -> Result<(), CommError> {
        self.delay();
        let to = &self.strike(message)?;
        self.inner.post_copy(Message { to, ..message })
    }

    fn post_loan(&self, to: Rank, tag: Tag, operation: Operation, loan: Loan) -> Result<SendHandle, CommError> {
        self.delay();
        match self.outcome(to) {
            SendOutcome::Passes => self.inner.post_loan(to, tag, operation, loan),
            // No transport gives this handle out, so it counts as waited for.
            SendOutcome::IsDropped => Ok(SendHandle(u64::MAX)),
            SendOutcome::IsChanged(byte) => {
                let changed = Arc::new(flipped((*loan).as_ref(), byte));
                self.inner.post_loan(to, tag, operation, changed)
            }
        }
    }

    fn wait_send(&self, send: SendHandle) -> Result<(), CommError> {
        self.delay();
        self.inner.wait_send(send)
    }

    fn lend<'a>(
        &self,
        messages: &mut dyn Iterator<Item = Message<'a>>,
        during: &mut dyn FnMut() -> Result<(), CommError>,
    ) -> Result<(), CommError> {
        self.delay();
        let mut whole = Vec::new();
        for message in messages {
            whole.push((self.strike(message)?, message));
        }
        let mut untouched = whole.iter().map(|(to, message)| Message { to, ..*message });
        self.inner.lend(&mut untouched, during)
    }

    fn receive(
        &self,
        from: &[Rank],
        tag: Tag,
        operation: Operation,
        len_bytes: usize,
        fold: &mut dyn FnMut(usize, &dyn Chunks),
    ) -> Result<(), CommError> {
        self.delay();
        self.inner.receive(from, tag, operation, len_bytes, fold)
    }

    fn receive_into(
        &self,
        from: &[Rank],
        tag: Tag,
        operation: Operation,
        into: &mut [&mut [u8]],
    ) -> Result<(), CommError> {
        self.delay();
        self.inner.receive_into(from, tag, operation, into)
    }
}
