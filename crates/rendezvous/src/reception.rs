//! Connections to process 0 before their process is known. Nothing of them is parsed before the token is right, their
//! number and lifetime are bounded.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use mio::net::TcpListener;
use mio::{Interest, Poll, Registry};

use crate::frame::{HEADER, MAX_INTRODUCTION_BYTES};
use crate::introduction::Introduction;
use crate::link::{Flow, Link};
use crate::message::Message;
use crate::token::Token;

/// Connections without a process at one time. A newer one takes the place of an older one.
const MAX_GUESTS: usize = 128;
/// Connections that are accepted before those that are there are read.
const ACCEPTED_AT_ONCE: usize = 32;
/// Time in which a connection must show the token and introduce its process.
const LIFETIME: Duration = Duration::from_secs(3);
/// Hosts with another token that are remembered for a message.
const MAX_STRANGERS: usize = 4;
/// Number of the listener among the sources of events.
pub(crate) const LISTENER: usize = 1;
/// First number of a connection.
const FIRST_LINK: usize = 2;

/// The listener and the connections that are not known.
#[derive(Debug)]
pub(crate) struct Reception {
    listener: TcpListener,
    token: Token,
    guests: BTreeMap<usize, Guest>,
    next: usize,
    strangers: BTreeSet<String>,
}

#[derive(Debug)]
struct Guest {
    link: Link,
    since: Instant,
    from: IpAddr,
    has_token: bool,
}

/// Whether connections may still wait in the queue of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// None waits.
    Empty,
    /// Some may wait: the next turn comes at once.
    Waiting,
}

/// A connection whose process is known, or that showed the token and cannot be understood.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) link: Link,
    pub(crate) introduction: Result<Introduction, String>,
}

impl Reception {
    pub(crate) fn new(listener: TcpListener, token: Token) -> Reception {
        Reception { listener, token, guests: BTreeMap::new(), next: FIRST_LINK, strangers: BTreeSet::new() }
    }

    pub(crate) fn register(&mut self, poll: &Poll) -> io::Result<()> {
        poll.registry().register(&mut self.listener, mio::Token(LISTENER), Interest::READABLE)
    }

    /// Hosts of connections with another token.
    pub(crate) fn strangers(&self) -> &BTreeSet<String> {
        &self.strangers
    }

    /// Accepts some of the waiting connections, and drops those whose time is over.
    pub(crate) fn accept(&mut self, registry: &Registry, now: Instant) -> Queue {
        self.guests.retain(|_, guest| now.duration_since(guest.since) < LIFETIME);
        for _ in 0..ACCEPTED_AT_ONCE {
            let (stream, from) = match self.listener.accept() {
                Ok(accepted) => accepted,
                // No more of them, one that ended before it was accepted, or no more files for now: the next turn tries
                // again.
                Err(_) => return Queue::Empty,
            };
            self.make_room();
            // Without it small messages wait for an acknowledgement of earlier ones.
            let _ = stream.set_nodelay(true);
            let mut link = Link::new(stream, vec![]);
            let id = self.next;
            self.next += 1;
            if link.register(registry, id).is_err() {
                continue;
            }
            self.guests.insert(id, Guest { link, since: now, from: from.ip(), has_token: false });
        }
        Queue::Waiting
    }

    /// Drops a connection if there are too many: the oldest without a token of the host that has most of these. So a
    /// host that opens many connections keeps only its own processes out.
    fn make_room(&mut self) {
        if self.guests.len() < MAX_GUESTS {
            return;
        }
        let unknown = || self.guests.iter().filter(|(_, guest)| !guest.has_token);
        let mut hosts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        unknown().for_each(|(_, guest)| *hosts.entry(guest.from).or_default() += 1);
        let most = hosts.into_iter().max_by_key(|(_, count)| *count).map(|(host, _)| host);
        let oldest = unknown().find(|(_, guest)| Some(guest.from) == most).map(|(id, _)| *id);
        if let Some(oldest) = oldest {
            self.guests.remove(&oldest);
        }
    }

    /// Reads from connection `id`. Returns it once its process is known; a connection with another token is closed.
    pub(crate) fn ready(&mut self, id: usize) -> Option<Arrival> {
        let guest = self.guests.get_mut(&id)?;
        let mut flow = Flow::Open;
        if !guest.has_token {
            flow = guest.link.read(Token::BYTES).unwrap_or(Flow::Closed);
            let shown = guest.link.incoming().get(..Token::BYTES);
            match shown.map(|shown| self.token.matches(shown)) {
                None => {}
                Some(true) => {
                    guest.has_token = true;
                    guest.link.consume(Token::BYTES);
                }
                Some(false) => {
                    if self.strangers.len() < MAX_STRANGERS {
                        self.strangers.insert(guest.from.to_string());
                    }
                    self.guests.remove(&id);
                    return None;
                }
            }
        }
        if guest.has_token {
            flow = guest.link.read(HEADER + MAX_INTRODUCTION_BYTES).unwrap_or(Flow::Closed);
        }
        let introduction = match guest.has_token.then(|| guest.link.messages(MAX_INTRODUCTION_BYTES)) {
            None => Ok(None),
            Some(Ok(messages)) => match messages.into_iter().next() {
                None => Ok(None),
                Some(Message::Introduction(introduction)) => Ok(Some(introduction)),
                Some(_) => Err("it did not introduce itself".to_string()),
            },
            Some(Err(error)) => Err(error.to_string()),
        };
        let introduction = match introduction {
            Ok(Some(introduction)) => Ok(introduction),
            Ok(None) if flow == Flow::Open => return None,
            Ok(None) => {
                self.guests.remove(&id);
                return None;
            }
            Err(reason) => Err(format!("a process at {} cannot be understood: {reason}", guest.from)),
        };
        let Guest { link, .. } = self.guests.remove(&id)?;
        Some(Arrival { link, introduction })
    }
}
