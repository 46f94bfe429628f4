//! Counting what a rank sends.

use crate::collectives::Traffic;
use crate::error::CommError;
use crate::tag::Tag;
use crate::transport::{Chunks, Loan, Message, SendHandle, Transport};
use device::Operation;
use mesh::Rank;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Traffic that one rank has sent so far.
pub struct Counts {
    per_peer: Vec<[AtomicU64; 2]>,
}

impl Counts {
    /// Traffic to `peer`.
    pub fn to(&self, peer: Rank) -> Traffic {
        let [messages, bytes] = &self.per_peer[peer.0];
        Traffic { messages: messages.load(Ordering::Relaxed), bytes: bytes.load(Ordering::Relaxed) }
    }

    /// Traffic to all ranks together.
    pub fn total(&self) -> Traffic {
        (0..self.per_peer.len()).map(|peer| self.to(Rank(peer))).sum()
    }

    fn add(&self, to: &[Rank], len_bytes: usize) {
        for peer in to {
            let [messages, bytes] = &self.per_peer[peer.0];
            messages.fetch_add(1, Ordering::Relaxed);
            bytes.fetch_add(len_bytes as u64, Ordering::Relaxed);
        }
    }
}

/// A transport that counts what passes through it. A message to several ranks counts for each.
pub struct Counting {
    inner: Arc<dyn Transport>,
    counts: Arc<Counts>,
}

impl Counting {
    /// A counting transport around `inner`, and its counters.
    pub fn new(inner: Arc<dyn Transport>) -> (Counting, Arc<Counts>) {
        let per_peer = (0..inner.world_size()).map(|_| Default::default());
        let counts = Arc::new(Counts { per_peer: per_peer.collect() });
        let shared = Arc::clone(&counts);
        (Counting { inner, counts }, shared)
    }
}

impl Transport for Counting {
    forward_to_inner!();

    fn post_copy(&self, message: Message<'_>) -> Result<(), CommError> {
        self.counts.add(message.to, message.bytes.len());
        self.inner.post_copy(message)
    }

    fn post_loan(&self, to: Rank, tag: Tag, operation: Operation, loan: Loan) -> Result<SendHandle, CommError> {
        self.counts.add(&[to], (*loan).as_ref().len());
        self.inner.post_loan(to, tag, operation, loan)
    }

    fn wait_send(&self, send: SendHandle) -> Result<(), CommError> {
        self.inner.wait_send(send)
    }

    fn lend<'a>(
        &self,
        messages: &mut dyn Iterator<Item = Message<'a>>,
        during: &mut dyn FnMut() -> Result<(), CommError>,
    ) -> Result<(), CommError> {
        let mut counted = messages.inspect(|m| self.counts.add(m.to, m.bytes.len()));
        self.inner.lend(&mut counted, during)
    }

    fn receive(
        &self,
        from: &[Rank],
        tag: Tag,
        operation: Operation,
        len_bytes: usize,
        fold: &mut dyn FnMut(usize, &dyn Chunks),
    ) -> Result<(), CommError> {
        self.inner.receive(from, tag, operation, len_bytes, fold)
    }

    fn receive_into(
        &self,
        from: &[Rank],
        tag: Tag,
        operation: Operation,
        into: &mut [&mut [u8]],
    ) -> Result<(), CommError> {
        self.inner.receive_into(from, tag, operation, into)
    }
}
