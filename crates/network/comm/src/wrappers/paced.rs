//! A link of a fixed rate between ranks that share memory: for measurements of what communication hides.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mesh::Rank;
use sync::lock;

use crate::error::CommError;
use crate::tag::Tag;
use crate::transport::{Chunks, Loan, Message, SendHandle, Transport};
use device::Operation;

/// The speed of a link between two ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Bytes that a rank sends in a second, over all its streams.
    pub bytes_per_second: f64,
    /// Time from the end of sending to the arrival.
    pub latency: Duration,
}

/// The links of a world: each rank sends one message after the other.
#[derive(Debug)]
pub struct PacedNetwork {
    pace: Pace,
    state: Mutex<State>,
}

/// A message under way: sender, receiver, tag.
type MessageKey = (Rank, Rank, Tag);

#[derive(Debug, Default)]
struct State {
    /// When each rank has sent what it was given.
    sent: HashMap<Rank, Instant>,
    /// When messages arrive, in the order in which they were posted.
    arrivals: HashMap<MessageKey, VecDeque<Instant>>,
}

impl PacedNetwork {
    /// The network of all ranks that are wrapped with it.
    pub fn new(pace: Pace) -> Arc<PacedNetwork> {
        Arc::new(PacedNetwork { pace, state: Mutex::default() })
    }

    fn post(&self, way: MessageKey, len_bytes: usize) {
        let mut state = lock(&self.state);
        let now = Instant::now();
        let begins = state.sent.get(&way.0).map_or(now, |sent| now.max(*sent));
        let sent = begins + Duration::from_secs_f64(len_bytes as f64 / self.pace.bytes_per_second);
        state.sent.insert(way.0, sent);
        state.arrivals.entry(way).or_default().push_back(sent + self.pace.latency);
    }

    fn arrival(&self, way: &MessageKey) -> Option<Instant> {
        lock(&self.state).arrivals.get_mut(way)?.pop_front()
    }
}

/// A rank's end of a paced network.
pub struct Paced {
    inner: Arc<dyn Transport>,
    network: Arc<PacedNetwork>,
}

impl Paced {
    /// `inner`, whose messages take their time.
    pub fn new(inner: Arc<dyn Transport>, network: Arc<PacedNetwork>) -> Paced {
        Paced { inner, network }
    }

    fn post(&self, message: &Message<'_>) {
        for to in message.to {
            self.network.post((self.inner.rank(), *to, message.tag), message.bytes.len());
        }
    }

    /// Returns when the last message of `tag` has arrived: the thread sleeps, and takes no core from ranks that
    /// compute.
    fn wait_for_arrivals(&self, from: &[Rank], tag: Tag) {
        let arrivals = from.iter().filter_map(|from| self.network.arrival(&(*from, self.inner.rank(), tag)));
        if let Some(last) = arrivals.max() {
            std::thread::sleep(last.saturating_duration_since(Instant::now()));
        }
    }
}

impl Transport for Paced {
    forward_to_inner!();

    fn post_copy(&self, message: Message<'_>) -> Result<(), CommError> {
        self.post(&message);
        self.inner.post_copy(message)
    }

    fn post_loan(&self, to: Rank, tag: Tag, operation: Operation, loan: Loan) -> Result<SendHandle, CommError> {
        self.network.post((self.inner.rank(), to, tag), (*loan).as_ref().len());
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
        self.inner.lend(&mut messages.inspect(|message| self.post(message)), during)
    }

    fn receive(
        &self,
        from: &[Rank],
        tag: Tag,
        operation: Operation,
        len_bytes: usize,
        fold: &mut dyn FnMut(usize, &dyn Chunks),
    ) -> Result<(), CommError> {
        self.inner.receive(from, tag, operation, len_bytes, fold)?;
        self.wait_for_arrivals(from, tag);
        Ok(())
    }

    fn receive_into(
        &self,
        from: &[Rank],
        tag: Tag,
        operation: Operation,
        into: &mut [&mut [u8]],
    ) -> Result<(), CommError> {
        self.inner.receive_into(from, tag, operation, into)?;
        self.wait_for_arrivals(from, tag);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use mesh::AxisSet;

    use super::*;
    use crate::tag::ChannelId;

    #[test]
    fn a_rank_sends_one_message_after_the_other() {
        let latency = Duration::from_secs(1);
        let network = PacedNetwork::new(Pace { bytes_per_second: 100.0, latency });
        let tag = Tag { channel: ChannelId::new(AxisSet::ALL, 0), number: 7 };
        let before = Instant::now();
        network.post((Rank(0), Rank(1), tag), 200);
        network.post((Rank(0), Rank(2), tag), 100);
        network.post((Rank(3), Rank(1), tag), 100);
        let after = Instant::now();
        let takes = |from: usize, to: usize, seconds: u64| {
            let arrival = network.arrival(&(Rank(from), Rank(to), tag)).expect("posted");
            let expected = Duration::from_secs(seconds) + latency;
            assert!(before + expected <= arrival && arrival <= after + expected, "from {from} to {to}");
        };
        takes(0, 1, 2);
        takes(0, 2, 3);
        takes(3, 1, 1);
        assert_eq!(network.arrival(&(Rank(0), Rank(1), tag)), None);
    }
}
