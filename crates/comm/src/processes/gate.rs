//! Where connections begin: those to processes of lower numbers, those from processes of higher ones, and strangers.
//!
//! A connection is worth nothing before its preamble has come whole and its token is right. Until then it is one of a
//! few, and it goes at its deadline. When there are too many, the oldest of the host that has most of them goes: a host
//! that opens many connections keeps only its own processes out.

use super::connection::Way;
use super::mpi_route::Tags;
use super::pieces::{Pieces, Window};
use super::preamble::{BadPreamble, PREAMBLE_BYTES, Preamble, Verdict};
use super::process_map::{Listeners, ProcessMap, WorldToken};
use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    SocketAddrAny, SocketFlags, acceptfrom_with, recvmsg, sendmsg, sockopt,
};
use std::collections::{BTreeMap, VecDeque};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Connections without a preamble that are kept.
const PENDING_LIMIT: usize = 128;
/// Connections that are accepted before anything else is done.
const ACCEPTED_AT_ONCE: usize = 32;
/// How long a connection may take for its preamble.
pub(super) const PREAMBLE_DEADLINE: Duration = Duration::from_secs(5);

/// How long a quiet connection goes unprobed, and how long until the next probe.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// Probes without an answer after which a connection is dead.
const KEEPALIVE_TRIES: u32 = 3;

/// Events of the listeners.
pub(super) const TCP_LISTENER: u64 = 1;
pub(super) const LOCAL_LISTENER: u64 = 2;
/// Events of connections without a preamble: this, and a number.
pub(super) const PENDING: u64 = 1 << 62;

/// Connections that were refused, so far.
#[derive(Debug, Default)]
pub struct Refusals {
    wrong: AtomicU64,
    late: AtomicU64,
    crowded: AtomicU64,
    not_expected: AtomicU64,
}

impl Refusals {
    /// Connections whose token was wrong, or that ended before it was whole.
    pub fn wrong(&self) -> u64 {
        self.wrong.load(Ordering::Relaxed)
    }

    /// Connections that took too long.
    pub fn late(&self) -> u64 {
        self.late.load(Ordering::Relaxed)
    }

    /// Connections that were dropped because newer ones waited.
    pub fn crowded(&self) -> u64 {
        self.crowded.load(Ordering::Relaxed)
    }

    /// Connections with the right token from another world, or from a process that is connected.
    pub fn not_expected(&self) -> u64 {
        self.not_expected.load(Ordering::Relaxed)
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.wrong() + self.late() + self.crowded() + self.not_expected()
    }
}

/// A connection that is part of the world.
pub(super) struct Admitted {
    pub(super) process: usize,
    pub(super) socket: OwnedFd,
    pub(super) way: Way,
}

/// Why a connection of this process to another is refused.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) process: usize,
    pub(super) reason: String,
}

#[derive(Clone, Copy)]
enum Origin {
    /// Somebody has connected to this process; the address of its host, if it is another one.
    Them(Option<IpAddr>),
    /// This process has connected to that one.
    Us(usize),
}

struct Pending {
    number: u64,
    socket: OwnedFd,
    origin: Origin,
    bytes: [u8; PREAMBLE_BYTES],
    filled: usize,
    file: Option<OwnedFd>,
    since: Instant,
}

/// The state of a preamble after a read.
enum Progress {
    More,
    Whole,
    Ended,
}

/// The gate of one process.
pub(super) struct Gate {
    own: usize,
    process_map: ProcessMap,
    token: WorldToken,
    fingerprint: u64,
    listeners: Listeners,
    pieces: Arc<Pieces>,
    /// For pieces over MPI.
    tags: Option<Tags>,
    refusals: Arc<Refusals>,
    pending: VecDeque<Pending>,
    next_number: u64,
    /// The processes that are connected.
    connected: Vec<bool>,
}

impl Gate {
    pub(super) fn new(
        own: usize,
        process_map: ProcessMap,
        token: WorldToken,
        num_lanes: usize,
        listeners: Listeners,
        (pieces, tags): (Arc<Pieces>, Option<Tags>),
    ) -> Gate {
        Gate {
            own,
            fingerprint: process_map.fingerprint(num_lanes),
            connected: vec![false; process_map.processes().len()],
            process_map,
            token,
            listeners,
            pieces,
            tags,
            refusals: Arc::default(),
            pending: VecDeque::new(),
            next_number: 0,
        }
    }

    pub(super) fn refusals(&self) -> Arc<Refusals> {
        Arc::clone(&self.refusals)
    }

    /// The other processes that are not connected.
    pub(super) fn missing(&self) -> impl Iterator<Item = usize> {
        (0..self.connected.len()).filter(|&process| process != self.own && !self.connected[process])
    }

    /// Watches the listeners.
    pub(super) fn register(&self, epoll: BorrowedFd<'_>) -> Result<(), Errno> {
        if let Some(tcp) = &self.listeners.tcp {
            rustix::io::ioctl_fionbio(tcp, true)?;
            epoll::add(epoll, tcp, epoll::EventData::new_u64(TCP_LISTENER), epoll::EventFlags::IN)?;
        }
        if let Some(local) = &self.listeners.local {
            rustix::io::ioctl_fionbio(local, true)?;
            epoll::add(epoll, local, epoll::EventData::new_u64(LOCAL_LISTENER), epoll::EventFlags::IN)?;
        }
        Ok(())
    }

    /// Begins the connection to `process` over a socket that is connected, and waits for its answer among the others.
    pub(super) fn introduce(&mut self, epoll: BorrowedFd<'_>, process: usize, socket: OwnedFd) -> Result<(), Errno> {
        self.send_preamble(&socket, process, Verdict::Welcome)?;
        self.add(epoll, socket, Origin::Us(process))
    }

    /// Takes what waits at a listener.
    pub(super) fn accept(&mut self, epoll: BorrowedFd<'_>, listener: u64) {
        for _ in 0..ACCEPTED_AT_ONCE {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let accepted = match (listener, &self.listeners) {
                (TCP_LISTENER, Listeners { tcp: Some(tcp), .. }) => acceptfrom_with(tcp, flags),
                (LOCAL_LISTENER, Listeners { local: Some(local), .. }) => acceptfrom_with(local, flags),
                _ => return,
            };
            match accepted {
                Ok((socket, from)) => {
                    let _ = self.add(epoll, socket, Origin::Them(host(from)));
                }
                Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
                    // Strangers may have used them up: theirs are the first to go.
                    self.drop_strangers(0);
                    return;
                }
                Err(_) => return,
            }
        }
    }

    fn add(&mut self, epoll: BorrowedFd<'_>, socket: OwnedFd, origin: Origin) -> Result<(), Errno> {
        self.drop_strangers(PENDING_LIMIT - 1);
        let number = self.next_number;
        self.next_number += 1;
        epoll::add(epoll, &socket, epoll::EventData::new_u64(PENDING | number), epoll::EventFlags::IN)?;
        let bytes = [0; PREAMBLE_BYTES];
        self.pending.push_back(Pending { number, socket, origin, bytes, filled: 0, file: None, since: Instant::now() });
        Ok(())
    }

    /// Drops strangers until at most `kept` are left: each time the oldest of the host that has most.
    fn drop_strangers(&mut self, kept: usize) {
        loop {
            let strangers =
                || self.pending.iter().enumerate().filter_map(|(at, pending)| Some((at, pending.stranger()?)));
            if strangers().count() <= kept {
                return;
            }
            let mut hosts: BTreeMap<Option<IpAddr>, usize> = BTreeMap::new();
            strangers().for_each(|(_, host)| *hosts.entry(host).or_default() += 1);
            let most = hosts.into_iter().max_by_key(|(_, count)| *count).map(|(host, _)| host);
            let Some((oldest, _)) = strangers().find(|(_, host)| Some(*host) == most) else { return };
            self.pending.remove(oldest);
            self.refusals.crowded.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Drops strangers whose preamble is late. The answers of this world have the deadline of the world.
    pub(super) fn expire(&mut self) {
        let is_late = |pending: &Pending| pending.stranger().is_some() && pending.since.elapsed() >= PREAMBLE_DEADLINE;
        let before = self.pending.len();
        self.pending.retain(|pending| !is_late(pending));
        self.refusals.late.fetch_add((before - self.pending.len()) as u64, Ordering::Relaxed);
    }

    /// How long until a stranger is late.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        let oldest = self.pending.iter().find(|pending| pending.stranger().is_some())?;
        Some(PREAMBLE_DEADLINE.saturating_sub(oldest.since.elapsed()))
    }

    /// Reads more of a preamble; returns the connection when it is part of the world.
    ///
    /// # Errors
    /// A process of this world refuses a connection of this one.
    pub(super) fn read(&mut self, epoll: BorrowedFd<'_>, event: u64) -> Result<Option<Admitted>, Refused> {
        let number = event & !PENDING;
        let Some(index) = self.pending.iter().position(|pending| pending.number == number) else { return Ok(None) };
        let progress = self.pending[index].read();
        if matches!(progress, Progress::More) {
            return Ok(None);
        }
        let Some(pending) = self.pending.remove(index) else { return Ok(None) };
        let _ = epoll::delete(epoll, &pending.socket);
        match (progress, pending.origin) {
            (Progress::Whole, Origin::Them(_)) => Ok(self.judge(pending)),
            (Progress::Whole, Origin::Us(process)) => self.answered(pending, process).map(Some),
            (Progress::More | Progress::Ended, Origin::Them(_)) => {
                self.refusals.wrong.fetch_add(1, Ordering::Relaxed);
                Ok(None)
            }
            (Progress::More | Progress::Ended, Origin::Us(process)) => {
                let reason = "closed the connection: it is of another world, or its token differs".into();
                Err(Refused { process, reason })
            }
        }
    }

    /// Decides about a connection from outside.
    fn judge(&mut self, pending: Pending) -> Option<Admitted> {
        let preamble = match Preamble::decode(&pending.bytes, &self.token) {
            Ok(preamble) => preamble,
            Err(BadPreamble::WorldToken) => {
                self.refusals.wrong.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            Err(BadPreamble::Version) => {
                self.refusals.not_expected.fetch_add(1, Ordering::Relaxed);
                let _ = self.send_preamble(&pending.socket, usize::MAX, Verdict::OtherVersion);
                return None;
            }
        };
        let process = preamble.from as usize;
        let may_connect = process > self.own && self.connected.get(process) == Some(&false);
        let verdict = if preamble.fingerprint != self.fingerprint || preamble.to as usize != self.own {
            Verdict::OtherWorld
        } else if !may_connect {
            Verdict::NotExpected
        } else {
            Verdict::Welcome
        };
        let admitted = match verdict {
            Verdict::Welcome => self.admit(pending.socket, process, pending.file).ok(),
            Verdict::OtherVersion | Verdict::OtherWorld | Verdict::NotExpected => {
                let _ = self.send_preamble(&pending.socket, process, verdict);
                None
            }
        };
        let admitted = admitted.filter(|admitted| self.send_preamble(&admitted.socket, process, verdict).is_ok());
        match &admitted {
            Some(admitted) => self.connected[admitted.process] = true,
            None => _ = self.refusals.not_expected.fetch_add(1, Ordering::Relaxed),
        }
        admitted
    }

    /// Reads the answer of a process to which this one has connected.
    fn answered(&mut self, pending: Pending, process: usize) -> Result<Admitted, Refused> {
        let refused = |reason: &str| Refused { process, reason: reason.to_owned() };
        let preamble = match Preamble::decode(&pending.bytes, &self.token) {
            Ok(preamble) => preamble,
            Err(BadPreamble::WorldToken) => return Err(refused("answers with another token")),
            Err(BadPreamble::Version) => return Err(refused(Verdict::OtherVersion.reason())),
        };
        match preamble.verdict {
            Verdict::Welcome
                if preamble.from as usize == process
                    && preamble.to as usize == self.own
                    && preamble.fingerprint == self.fingerprint => {}
            Verdict::Welcome => return Err(refused("is another process than the process map says")),
            verdict @ (Verdict::OtherVersion | Verdict::OtherWorld | Verdict::NotExpected) => {
                return Err(refused(verdict.reason()));
            }
        }
        let admitted = self.admit(pending.socket, process, pending.file);
        let admitted = admitted.map_err(|error| refused(&format!("shares no memory: {error}")))?;
        self.connected[process] = true;
        Ok(admitted)
    }

    fn admit(&self, socket: OwnedFd, process: usize, file: Option<OwnedFd>) -> std::io::Result<Admitted> {
        let way = match (self.maps_memory_of(process), file) {
            (true, Some(file)) => Way::Memory(Window::map(&file)?),
            (false, None) => self.tags.as_ref().map_or(Way::Socket, |tags| Way::Mpi(tags.route_to(process))),
            (true, None) => return Err(std::io::Error::other("its preamble came without memory")),
            (false, Some(_)) => return Err(std::io::Error::other("it sends memory that this process does not map")),
        };
        // Buffers are left to the system: it fits those of TCP to the connection, and only as long as nobody sets them.
        if !self.process_map.share_memory(self.own, process) {
            sockopt::set_tcp_nodelay(&socket, true)?;
            // A host that is gone closes nothing.
            sockopt::set_socket_keepalive(&socket, true)?;
            sockopt::set_tcp_keepidle(&socket, KEEPALIVE)?;
            sockopt::set_tcp_keepintvl(&socket, KEEPALIVE)?;
            sockopt::set_tcp_keepcnt(&socket, KEEPALIVE_TRIES)?;
        }
        Ok(Admitted { process, socket, way })
    }

    /// Whether pieces of `process` go through memory that both have mapped.
    fn maps_memory_of(&self, process: usize) -> bool {
        self.tags.is_none() && self.process_map.share_memory(self.own, process)
    }

    /// Sends a preamble to `process`, with the memory for pieces where the two share a machine.
    fn send_preamble(&self, socket: &OwnedFd, process: usize, verdict: Verdict) -> Result<(), Errno> {
        let number = |process: usize| u32::try_from(process).unwrap_or(u32::MAX);
        let (from, to) = (number(self.own), number(process));
        let preamble = Preamble { verdict, from, to, fingerprint: self.fingerprint }.encode(&self.token);
        let shares = process < self.connected.len() && self.maps_memory_of(process);
        let file = [self.pieces.file()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if shares && verdict == Verdict::Welcome {
            control.push(SendAncillaryMessage::ScmRights(&file));
        }
        // A fresh socket takes so few bytes at once.
        let sent = sendmsg(socket, &[IoSlice::new(&preamble)], &mut control, SendFlags::NOSIGNAL)?;
        if sent == PREAMBLE_BYTES { Ok(()) } else { Err(Errno::AGAIN) }
    }
}

/// The address of the host of a connection over TCP.
fn host(from: Option<SocketAddrAny>) -> Option<IpAddr> {
    from.and_then(|from| SocketAddr::try_from(from).ok()).map(|from| from.ip())
}

impl Pending {
    /// The host of a stranger; none for a connection of this process.
    fn stranger(&self) -> Option<Option<IpAddr>> {
        match self.origin {
            Origin::Them(host) => Some(host),
            Origin::Us(_) => None,
        }
    }

    fn read(&mut self) -> Progress {
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut rest = [IoSliceMut::new(&mut self.bytes[self.filled..])];
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            match recvmsg(self.socket.as_fd(), &mut rest, &mut control, flags) {
                Ok(message) if message.bytes == 0 => return Progress::Ended,
                Ok(message) => self.filled += message.bytes,
                Err(Errno::AGAIN) => return Progress::More,
                Err(Errno::INTR) => continue,
                Err(_) => return Progress::Ended,
            }
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(files) = message {
                    self.file = files.last().or(self.file.take());
                }
            }
            if self.filled == PREAMBLE_BYTES {
                return Progress::Whole;
            }
        }
    }
}
