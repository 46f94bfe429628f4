//! Bytes of a collective by sender, inside its host and between hosts, as a formula. `docs/clusters.md` has it as a
//! table for equal hosts.

use super::COPY_LIMIT_BYTES;
use super::over_first::goes_over_first;
use super::runs::Runs;
use crate::host_map::GroupHosts;
use crate::operation::Operation;
use device::SumTree;
use mesh::even_split;
use std::iter::Sum;
use std::ops::Add;

/// Messages and bytes that leave one rank. A message to several ranks counts once for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The number of messages.
    pub messages: u64,
    /// Their length together.
    pub bytes: u64,
}

impl Add for Traffic {
    type Output = Traffic;

    fn add(self, other: Traffic) -> Traffic {
        Traffic { messages: self.messages + other.messages, bytes: self.bytes + other.bytes }
    }
}

impl Sum for Traffic {
    fn sum<I: Iterator<Item = Traffic>>(each: I) -> Traffic {
        each.fold(Traffic::default(), Traffic::add)
    }
}

/// Messages and bytes that leave one rank, by where they go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostTraffic {
    /// To ranks of its host.
    pub inside: Traffic,
    /// To ranks of other hosts: through the link of its host.
    pub between: Traffic,
}

impl HostTraffic {
    /// To all ranks.
    pub fn total(self) -> Traffic {
        self.inside + self.between
    }
}

impl Add for HostTraffic {
    type Output = HostTraffic;

    fn add(self, other: HostTraffic) -> HostTraffic {
        HostTraffic { inside: self.inside + other.inside, between: self.between + other.between }
    }
}

impl Sum for HostTraffic {
    fn sum<I: Iterator<Item = HostTraffic>>(each: I) -> HostTraffic {
        each.fold(HostTraffic::default(), HostTraffic::add)
    }
}

/// One call of a collective: what decides its traffic.
#[derive(Clone, Copy, Debug)]
pub struct CollectiveShape<'a> {
    /// The collective.
    pub operation: Operation,
    /// Elements of the whole argument, all slices together.
    pub len: usize,
    /// Bytes of an element.
    pub width_bytes: usize,
    /// The members, and where they are.
    pub hosts: &'a GroupHosts,
    /// The order in which a sum adds.
    pub tree: SumTree,
}

/// Messages and bytes that the member at `position` sends in one call.
///
/// A broadcast has its root at position 0. A point-to-point message is counted at its sender, as one between hosts
/// where the group has several. A [`Counting`](crate::Counting) transport counts the same.
pub fn traffic(shape: &CollectiveShape, position: usize) -> HostTraffic {
    let whole = shape.len * shape.width_bytes;
    match shape.operation {
        Operation::PointToPoint => match shape.hosts.hosts() {
            0 | 1 => HostTraffic { inside: message(whole), ..HostTraffic::default() },
            _ => HostTraffic { between: message(whole), ..HostTraffic::default() },
        },
        Operation::AllReduce if whole <= COPY_LIMIT_BYTES => shape.exchanged(position, whole),
        Operation::AllReduce => shape.reduced(position) + shape.gathered(position),
        Operation::ReduceScatter => shape.reduced(position),
        Operation::AllGather => shape.gathered(position),
        Operation::Shift if shape.hosts.members() == 1 => HostTraffic::default(),
        Operation::Shift => shape.sent_to(position, (position + 1) % shape.hosts.members(), whole),
        Operation::AllToAll => shape.sent_to_all(position, |receiver| shape.slice(receiver)),
        Operation::Broadcast if shape.goes_over_hosts(whole) => {
            let is_relay = shape.hosts.relay_for(0, position) == position;
            shape.passed_on(position, if is_relay { whole } else { 0 }, usize::from(is_relay))
                + shape.sent_to_relays(position, if position == 0 { Some(whole) } else { None })
        }
        Operation::Broadcast if position == 0 => shape.sent_to_all(0, |_| whole),
        Operation::Broadcast => HostTraffic::default(),
        Operation::Barrier => shape.exchanged(position, 0),
    }
}

fn message(bytes: usize) -> Traffic {
    Traffic { messages: 1, bytes: bytes as u64 }
}

impl CollectiveShape<'_> {
    /// Whether some messages wait for others of the same call: partial sums for those of a run, what a relay passes on,
    /// and the result that the first member of a large group sends.
    pub fn waits_between(&self) -> bool {
        let slice = self.len.div_ceil(self.hosts.members().max(1)) * self.width_bytes;
        match self.operation {
            Operation::ReduceScatter => Runs::of(self.tree, self.hosts.members()).is_some(),
            Operation::AllGather => self.goes_over_hosts(slice),
            Operation::Broadcast => self.goes_over_hosts(self.len * self.width_bytes),
            Operation::AllReduce if self.len * self.width_bytes > COPY_LIMIT_BYTES => false,
            Operation::AllReduce | Operation::Barrier => goes_over_first(self.hosts.members()),
            Operation::AllToAll | Operation::Shift | Operation::PointToPoint => false,
        }
    }

    /// Bytes of a member's slice.
    fn slice(&self, member: usize) -> usize {
        even_split(self.len, self.hosts.members(), member).len() * self.width_bytes
    }

    fn goes_over_hosts(&self, longest_bytes: usize) -> bool {
        longest_bytes > COPY_LIMIT_BYTES && self.hosts.is_hierarchical()
    }

    /// One message.
    fn sent_to(&self, from: usize, to: usize, bytes: usize) -> HostTraffic {
        match self.hosts.share_host(from, to) {
            true => HostTraffic { inside: message(bytes), ..HostTraffic::default() },
            false => HostTraffic { between: message(bytes), ..HostTraffic::default() },
        }
    }

    /// A message to every other member.
    fn sent_to_all(&self, position: usize, bytes: impl Fn(usize) -> usize) -> HostTraffic {
        let others = (0..self.hosts.members()).filter(|&to| to != position);
        others.map(|to| self.sent_to(position, to, bytes(to))).sum()
    }

    /// A short message to every other member, or to the first one, which answers all.
    fn exchanged(&self, position: usize, bytes: usize) -> HostTraffic {
        match position > 0 && goes_over_first(self.hosts.members()) {
            true => self.sent_to(position, 0, bytes),
            false => self.sent_to_all(position, |_| bytes),
        }
    }

    /// A message to one member of each other host, if there is one to send.
    fn sent_to_relays(&self, position: usize, bytes: Option<usize>) -> HostTraffic {
        bytes.map_or_else(HostTraffic::default, |bytes| {
            self.hosts.relays_of(position).map(|relay| self.sent_to(position, relay, bytes)).sum()
        })
    }

    /// `messages` messages, of `bytes` together, to every other member of the host.
    fn passed_on(&self, position: usize, bytes: usize, messages: usize) -> HostTraffic {
        let mates = self.hosts.on_host_of(position).len() as u64 - 1;
        let inside = Traffic { messages: mates * messages as u64, bytes: mates * bytes as u64 };
        HostTraffic { inside, ..HostTraffic::default() }
    }

    /// The slices of others, from everybody to everybody.
    fn gathered(&self, position: usize) -> HostTraffic {
        let members = self.hosts.members();
        if !self.goes_over_hosts(self.slice(0)) {
            return self.sent_to_all(position, |_| self.slice(position));
        }
        let relayed = (0..members).filter(|&source| self.hosts.relay_for(source, position) == position);
        let (messages, bytes) = relayed.fold((0, 0), |(n, bytes), source| (n + 1, bytes + self.slice(source)));
        self.passed_on(position, bytes, messages) + self.sent_to_relays(position, Some(self.slice(position)))
    }

    /// The terms of a sum that each member has in its slice afterwards.
    fn reduced(&self, position: usize) -> HostTraffic {
        let members = self.hosts.members();
        let Some(runs) = Runs::of(self.tree, members) else {
            return self.sent_to_all(position, |owner| self.slice(owner));
        };
        let run = runs.of_member(position);
        let receiver = |owner: usize| match runs.reducer(owner, &run) {
            reducer if reducer == position => owner,
            reducer => reducer,
        };
        let sent = (0..members).filter(|&owner| owner != position);
        sent.map(|owner| self.sent_to(position, receiver(owner), self.slice(owner))).sum()
    }
}
