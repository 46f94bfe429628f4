//! The run of all ranks to the end of a step.

use std::collections::VecDeque;

use super::calls::{Call, CallPartner};
use super::{NAMED, World, WorldStep};
use crate::peers::PeerGroup;
use crate::quick_hash::QuickMap;
use crate::{Instr, Rule, Value, Violation};

/// A direction between two ranks, activations and gradients apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct ChannelKey {
    from: usize,
    to: usize,
    is_activation: bool,
}

/// The values of a channel that were sent and not received.
#[derive(Debug, Default)]
struct Channel {
    /// Values with their bytes.
    sent: VecDeque<(Value, usize)>,
    /// Whether the receiver waits.
    waiting: Option<usize>,
}

/// The next collective of a group.
#[derive(Debug, Default)]
struct Joined {
    /// Who called it, in order.
    called: Vec<usize>,
}

/// How far each rank is.
pub(super) struct Run<'a> {
    world: &'a World,
    /// Per rank, index of its next call.
    next: Vec<usize>,
    channels: QuickMap<ChannelKey, Channel>,
    /// Per group.
    joined: Vec<Joined>,
    all: Joined,
    done: WorldStep,
}

/// The result of trying a rank's next call.
enum CallResult {
    /// It is done; these ranks may now continue.
    Done(Vec<usize>),
    Waits,
}

impl<'a> Run<'a> {
    pub(super) fn new(world: &'a World) -> Run<'a> {
        let joined = world.groups.iter().map(|_| Joined::default()).collect();
        let instructions = (0..world.ranks.len()).map(|rank| world.program(rank).program.instrs.len() as u64).sum();
        let done = WorldStep { instructions, programs: world.programs.len() as u64, ..WorldStep::default() };
        let (next, channels, all) = (vec![0; world.ranks.len()], QuickMap::default(), Joined::default());
        Run { world, next, channels, joined, all, done }
    }

    /// Runs all ranks.
    ///
    /// # Errors
    /// The first thing that keeps them from the end, or that is left over there.
    pub(super) fn finish(mut self) -> Result<WorldStep, Violation> {
        let mut ready: Vec<usize> = (0..self.next.len()).rev().collect();
        while let Some(rank) = ready.pop() {
            while let Some(call) = self.call(rank) {
                match self.try_call(rank, call)? {
                    CallResult::Done(others) => ready.extend(others),
                    CallResult::Waits => break,
                }
            }
        }
        let stuck = (0..self.next.len()).filter_map(|rank| Some((rank, self.call(rank)?)));
        let stuck: Vec<String> = stuck
            .take(NAMED)
            .map(|(rank, call)| {
                format!("rank {rank} waits at instruction {}, `{}`", call.index, self.instr(rank, call))
            })
            .collect();
        if !stuck.is_empty() {
            return Err(Violation::new(Rule::Progress, format!("for ever {}", stuck.join(", and "))));
        }
        let left = self.channels.iter().find_map(|(partner, channel)| Some((partner, channel.sent.front()?.0)));
        match left {
            Some((ChannelKey { from, to, .. }, value)) => Err(Violation::new(
                Rule::Pairs,
                format!("rank {from} sends rank {to} the {value}, which is never received"),
            )),
            None => Ok(self.done),
        }
    }

    fn call(&self, rank: usize) -> Option<Call> {
        self.world.program(rank).calls.list.get(self.next[rank]).copied()
    }

    fn instr(&self, rank: usize, call: Call) -> Instr {
        self.world.program(rank).program.instrs[call.index]
    }

    fn bytes(&self, rank: usize, call: Call) -> usize {
        self.world.ranks[rank].sizes.bytes(call.value)
    }

    fn try_call(&mut self, rank: usize, call: Call) -> Result<CallResult, Violation> {
        match call.what {
            CallPartner::Send(to) => self.send(rank, self.along_pipeline(rank, to, call)?, call),
            CallPartner::Receive(from) => self.receive(self.along_pipeline(rank, from, call)?, rank, call),
            CallPartner::Join(group) => {
                let Some((id, _)) = self.world.membership(rank, group) else {
                    let message = format!("rank {rank}, `{}`: it has no {group}", self.instr(rank, call));
                    return Err(Violation::new(Rule::Collectives, message));
                };
                self.join(Some(id), self.world.members(rank, group).len(), rank, call)
            }
            CallPartner::World => self.join(None, self.next.len(), rank, call),
        }
    }

    fn along_pipeline(&self, rank: usize, position: usize, call: Call) -> Result<usize, Violation> {
        self.world.members(rank, PeerGroup::PIPELINE).get(position).map(|other| other.0).ok_or_else(|| {
            let instr = self.instr(rank, call);
            Violation::new(Rule::Pairs, format!("rank {rank}, `{instr}`: its pipeline has no rank {position}"))
        })
    }

    fn channel(&mut self, from: usize, to: usize, value: Value) -> &mut Channel {
        let is_activation = matches!(value, Value::Output { .. });
        self.channels.entry(ChannelKey { from, to, is_activation }).or_default()
    }

    fn send(&mut self, from: usize, to: usize, call: Call) -> Result<CallResult, Violation> {
        let bytes = self.bytes(from, call);
        let channel = self.channel(from, to, call.value);
        channel.sent.push_back((call.value, bytes));
        let woken = channel.waiting.take();
        self.done.transfers += 1;
        self.next[from] += 1;
        Ok(CallResult::Done(woken.into_iter().collect()))
    }

    fn receive(&mut self, from: usize, to: usize, call: Call) -> Result<CallResult, Violation> {
        let (value, bytes) = (call.value, self.bytes(to, call));
        let channel = self.channel(from, to, value);
        match channel.sent.pop_front() {
            None => {
                channel.waiting = Some(to);
                Ok(CallResult::Waits)
            }
            Some(sent) if sent == (value, bytes) => {
                self.next[to] += 1;
                Ok(CallResult::Done(vec![]))
            }
            Some((sent, sent_bytes)) => Err(Violation::new(
                Rule::Pairs,
                match sent == value {
                    false => format!("rank {from} sends the {sent} where rank {to} receives the {value}"),
                    true => format!(
                        "rank {from} sends {sent_bytes} bytes of the {sent} where rank {to} receives {bytes} bytes"
                    ),
                },
            )),
        }
    }

    /// A collective of `size` ranks: of a group, or of the world.
    fn join(&mut self, group: Option<usize>, size: usize, rank: usize, call: Call) -> Result<CallResult, Violation> {
        let joined = match group {
            Some(group) => &mut self.joined[group],
            None => &mut self.all,
        };
        joined.called.push(rank);
        let first = joined.called[0];
        let called = if joined.called.len() == size { std::mem::take(&mut joined.called) } else { vec![] };
        if first != rank {
            self.same(first, rank, call)?;
        }
        if called.is_empty() {
            return Ok(CallResult::Waits);
        }
        self.done.collectives += u64::from(size > 1);
        called.iter().for_each(|member| self.next[*member] += 1);
        Ok(CallResult::Done(called.into_iter().filter(|member| *member != rank).collect()))
    }

    /// The calls of `rank` and of `first`, of the same group, must be equal.
    fn same(&self, first: usize, rank: usize, call: Call) -> Result<(), Violation> {
        let Some(other) = self.call(first) else { return Ok(()) };
        let (instr, other_instr) = (self.instr(rank, call), self.instr(first, other));
        if instr != other_instr {
            let message =
                format!("rank {rank} calls `{instr:#}`, and rank {first}, of the same group, `{other_instr:#}`");
            return Err(Violation::new(Rule::Collectives, message));
        }
        let (bytes, other_bytes) = (self.bytes(rank, call), self.bytes(first, other));
        if bytes != other_bytes {
            let message = format!(
                "rank {rank} calls `{instr}` with {bytes} bytes, and rank {first}, of the same group, with {other_bytes}"
            );
            return Err(Violation::new(Rule::Collectives, message));
        }
        Ok(())
    }
}
