//! Connections to process 0 before their process is known. Nothing of them is parsed before the token is right, their number and
//! lifetime are bounded.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use mio::net::TcpListener;
use mio::{Interest, Poll, Registry};

use crate::frame::{HEADER, MAX_INTRODUCTION_BYTES};
use crate::introduction::Introduction;
use crate::link::{Flow, Link};
use crate::message::Message;
use crate::token::Token;

/// Connections without a process at one time. Others wait in the queue of the system.
const MAX_GUESTS: usize = 64;
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
    from: String,
    has_token: bool,
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

    /// Accepts waiting connections while there is room, and drops those whose time is over.
    pub(crate) fn accept(&mut self, registry: &Registry, now: Instant) -> io::Result<()> {
        self.guests.retain(|_, guest| now.duration_since(guest.since) < LIFETIME);
        while self.guests.len() < MAX_GUESTS {
            let (stream, from) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // A connection that ended before it was accepted, or no more files for now: the next turn tries again.
                Err(_) => return Ok(()),
            };
            // Without it small messages wait for an acknowledgement of earlier ones.
            let _ = stream.set_nodelay(true);
            let mut link = Link::new(stream, vec![]);
            let id = self.next;
            self.next += 1;
            link.register(registry, id)?;
            self.guests.insert(id, Guest { link, since: now, from: from.ip().to_string(), has_token: false });
        }
        Ok(())
    }

    /// Reads from connection `id`. Returns it once its process is known; a connection with another token is closed.
    pub(crate) fn ready(&mut self, id: usize) -> Option<Arrival> {
        let guest = self.guests.get_mut(&id)?;
        let is_open = matches!(guest.link.read(Token::BYTES + HEADER + MAX_INTRODUCTION_BYTES), Ok(Flow::Open));
        let shown = guest.link.incoming().get(..Token::BYTES).filter(|_| !guest.has_token);
        match shown.map(|shown| self.token.matches(shown)) {
            None => {}
            Some(true) => {
                guest.has_token = true;
                guest.link.consume(Token::BYTES);
            }
            Some(false) => {
                if self.strangers.len() < MAX_STRANGERS {
                    self.strangers.insert(guest.from.clone());
                }
                self.guests.remove(&id);
                return None;
            }
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
            Ok(None) if is_open => return None,
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
