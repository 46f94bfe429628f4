//! Sends and their receives.

use std::collections::BTreeMap;

use super::Event;
use crate::{Partner, Program, Rule, TransferDirection, Value, Violation};

/// Per event: the other end of its transfer.
#[derive(Clone, Debug)]
pub(super) struct Transfers {
    other_end: Vec<Vec<Other>>,
}

#[derive(Clone, Copy, Debug)]
enum Other {
    None,
    Send(Event),
    Receive(Event),
}

impl Transfers {
    pub(super) fn send_of(&self, receive: Event) -> Option<Event> {
        match self.other_end[receive.rank][receive.index] {
            Other::Send(send) => Some(send),
            Other::None | Other::Receive(_) => None,
        }
    }

    pub(super) fn receive_of(&self, send: Event) -> Option<Event> {
        match self.other_end[send.rank][send.index] {
            Other::Receive(receive) => Some(receive),
            Other::None | Other::Send(_) => None,
        }
    }
}

/// Everything that goes one way between two ranks, activations and gradients apart: each is one ordered sequence.
#[derive(Default)]
struct Channel {
    sends: Vec<(Event, Value)>,
    receives: Vec<(Event, Value)>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Act,
    Grad,
}

/// Pairs the n-th send of each channel with its n-th receive; they must name the same value.
pub(super) fn pair(programs: &[Program]) -> (Transfers, Vec<Violation>) {
    let mut channels: BTreeMap<(usize, usize, Kind), Channel> = BTreeMap::new();
    let mut violations = vec![];
    for (rank, program) in programs.iter().enumerate() {
        for (index, instr) in program.instrs.iter().enumerate() {
            let Some((value, way)) = instr.transfer() else { continue };
            let event = Event { rank, index };
            let kind = if matches!(value, Value::Output { .. }) { Kind::Act } else { Kind::Grad };
            match (instr.partner(&program.view), way) {
                (Partner::To(to), TransferDirection::Send) if to < programs.len() => {
                    channels.entry((rank, to, kind)).or_default().sends.push((event, value));
                }
                (Partner::From(from), TransferDirection::Receive) if from < programs.len() => {
                    channels.entry((from, rank, kind)).or_default().receives.push((event, value));
                }
                _ => violations.push(Violation::new(
                    Rule::Pairs,
                    format!("pipeline rank {rank}, instruction {index}, `{instr}`: no rank has the other end"),
                )),
            }
        }
    }
    let mut other_end: Vec<Vec<Other>> =
        programs.iter().map(|program| vec![Other::None; program.instrs.len()]).collect();
    for ((from, to, _), channel) in &channels {
        violations.extend(mismatch(*from, *to, channel));
        for ((send, _), (receive, _)) in channel.sends.iter().zip(&channel.receives) {
            other_end[send.rank][send.index] = Other::Receive(*receive);
            other_end[receive.rank][receive.index] = Other::Send(*send);
        }
    }
    (Transfers { other_end }, violations)
}

/// The first difference of a channel's two sides.
fn mismatch(from: usize, to: usize, channel: &Channel) -> Option<Violation> {
    let way = format!("from pipeline rank {from} to {to}");
    let (sends, receives) = (&channel.sends, &channel.receives);
    let different = sends.iter().zip(receives).position(|((_, sent), (_, received))| sent != received);
    let message = match different {
        Some(at) => {
            let ((send, sent), (receive, received)) = (sends[at], receives[at]);
            format!(
                "{way}, transfer {at}: instruction {} sends the {sent}, instruction {} receives the {received}",
                send.index, receive.index
            )
        }
        None if sends.len() == receives.len() => return None,
        None => {
            let odd = sends.iter().zip(receives).count();
            let (what, (event, value)) = match sends.get(odd) {
                Some(send) => ("is sent and never received", *send),
                None => ("is received and never sent", receives[odd]),
            };
            format!(
                "{way}: {} sends, {} receives; the {value} (instruction {}) {what}",
                sends.len(),
                receives.len(),
                event.index
            )
        }
    };
    Some(Violation::new(Rule::Pairs, message))
}
