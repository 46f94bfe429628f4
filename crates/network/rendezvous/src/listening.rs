//! Process 0 before the run: it listens, collects introductions and answers.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use launcher::Address;
use mio::net::TcpListener;
use mio::{Events, Poll};

use crate::Times;
use crate::admission::{Admission, Arrival, LISTENER, Queue};
use crate::control::Control;
use crate::error::{RendezvousError, resolved};
use crate::introduction::Introduction;
use crate::introductions::{Introductions, MissingProcesses};
use crate::link::{Flow, Link};
use crate::message::{Message, encode};
use crate::service::Peer;
use crate::token::Token;

/// Time that other processes have once a reason is known for which the run does not start, so that they hear it, too.
const SETTLE: Duration = Duration::from_secs(2);
/// Time for the last bytes of a refusal.
const FAREWELL: Duration = Duration::from_secs(1);
/// Connections that the system holds until they are accepted; it has a limit of its own, often 4,096.
const BACKLOG: i32 = 16_384;
/// Longest time without a look at lifetimes and deadlines.
const TICK: Duration = Duration::from_millis(100);

/// Process 0, listening.
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
    address: Address,
    local: SocketAddr,
}

/// A process that waits for the answer.
struct Waiting {
    link: Link,
    process: Option<usize>,
}

impl Listening {
    /// Listens at `address` and at no other one of this host.
    ///
    /// # Errors
    /// An address that this host does not have, or that is in use.
    pub fn bind(address: &Address) -> Result<Listening, RendezvousError> {
        let refused = |reason: String| RendezvousError::Listen { address: address.clone(), reason };
        let candidates = (address.host.as_str(), address.port).to_socket_addrs();
        let candidates = candidates.map_err(|error| refused(format!("the host is unknown: {error}")))?;
        let mut reason = "the host has no address".to_string();
        for candidate in candidates {
            match listen(candidate).and_then(|listener| Ok((listener.local_addr()?, listener))) {
                Ok((local, listener)) => return Ok(Listening { listener, address: address.clone(), local }),
                Err(error) => reason = error.to_string(),
            }
        }
        Err(refused(reason))
    }

    /// The address at which it listens.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Waits for all processes, and opens the control channel once they make a run.
    ///
    /// # Errors
    /// [`RendezvousError::Refused`] with the reasons that all processes hear; a system without sockets.
    pub fn meet(self, token: &Token, own: Introduction, times: Times) -> Result<Control, RendezvousError> {
        let started = Instant::now();
        let mut poll = Poll::new()?;
        let mut admission = Admission::new(self.listener, token.clone(), own.processes);
        admission.register(&poll)?;
        let mut introductions = Introductions::new(own.clone());
        let mut waiting: BTreeMap<usize, Waiting> = BTreeMap::new();
        let mut deadline = started + times.rendezvous;
        let mut events = Events::with_capacity(256);
        let mut queue = Queue::Empty;
        while !introductions.is_complete() && Instant::now() < deadline {
            poll_once(&mut poll, &mut events, if queue == Queue::Waiting { Duration::ZERO } else { TICK })?;
            for event in &events {
                let id = event.token().0;
                if id == LISTENER {
                    continue;
                }
                if let Some(waiting) = waiting.get_mut(&id) {
                    note_end(waiting, &mut introductions, &own);
                } else if let Some(arrival) = admission.ready(id) {
                    waiting.insert(id, arrived(arrival, &mut introductions));
                }
            }
            queue = admission.accept(poll.registry(), Instant::now());
            if introductions.has_problem() {
                deadline = deadline.min(Instant::now() + SETTLE).min(started + times.rendezvous);
            }
        }
        let waited = MissingProcesses {
            deadline: times.rendezvous,
            address: resolved(&self.address, Some(self.local)),
            rejections: admission.rejections().clone(),
            run: Token::random().map_err(io::Error::other)?.to_hex(),
        };
        match introductions.verdict(&waited) {
            Ok(directory) => {
                let answer: Arc<[u8]> = encode(&Message::Directory(directory.clone())).into();
                let peers = waiting.into_iter().filter_map(|(id, Waiting { mut link, process })| {
                    link.queue(Arc::clone(&answer));
                    process.map(|process| (id, Peer::new(process, link)))
                });
                Ok(Control::serve(directory, 0, peers.collect(), Some(admission), poll, times)?)
            }
            Err(reasons) => {
                refuse(&mut poll, waiting, &reasons);
                Err(RendezvousError::Refused(reasons))
            }
        }
    }
}

/// A listener with a queue for the processes of a large run, which connect at the same time: where it is full, the
/// system drops an attempt to connect, and the next one follows seconds later.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// Notes an arrival, and keeps its connection for the answer.
fn arrived(arrival: Arrival, introductions: &mut Introductions) -> Waiting {
    let Arrival { link, introduction } = arrival;
    let process = introduction.as_ref().ok().map(|introduction| introduction.entry.process);
    match introduction {
        Ok(introduction) => introductions.arrive(introduction),
        Err(reason) => introductions.problem(reason),
    }
    Waiting { link, process }
}

/// A process that waits sends nothing; an end of its connection is its own end.
fn note_end(waiting: &mut Waiting, introductions: &mut Introductions, own: &Introduction) {
    if matches!(waiting.link.read(1), Ok(Flow::Open | Flow::Full)) {
        return;
    }
    if let Some(process) = waiting.process.take() {
        introductions.problem(format!(
            "process {process} ended before all {} processes were there; see its messages",
            own.processes
        ));
    }
}

/// Sends the reasons to everyone who waits, and closes.
fn refuse(poll: &mut Poll, waiting: BTreeMap<usize, Waiting>, reasons: &[String]) {
    let answer: Arc<[u8]> = encode(&Message::Refusal(reasons.to_vec())).into();
    let mut links: Vec<Link> = waiting.into_values().map(|waiting| waiting.link).collect();
    links.iter_mut().for_each(|link| link.queue(Arc::clone(&answer)));
    let mut events = Events::with_capacity(256);
    let until = Instant::now() + FAREWELL;
    // A connection that fails needs no answer.
    links.retain_mut(|link| link.flush().is_ok() && !link.is_flushed());
    while !links.is_empty() && Instant::now() < until {
        if poll_once(poll, &mut events, TICK).is_err() {
            return;
        }
        links.retain_mut(|link| link.flush().is_ok() && !link.is_flushed());
    }
}

/// Waits for events; a signal ends the wait like a timeout.
pub(crate) fn poll_once(poll: &mut Poll, events: &mut Events, timeout: Duration) -> io::Result<()> {
    match poll.poll(events, Some(timeout)) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            events.clear();
            Ok(())
        }
        polled => polled,
    }
}
