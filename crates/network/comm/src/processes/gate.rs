//! Where connections begin: those to processes of lower numbers, those from processes of higher ones, and others.
//!
//! A connection is worth nothing before its proof of the secret is right. Until then it has a fixed number of bytes
//! here, is one of a few, and goes at its deadline. When there are too many, the oldest of the host that has most of
//! them goes: a host that opens many connections keeps only its own processes out.
//!
//! The end that connects sends a greeting, its proof and its preamble; the end that listens a challenge, which has its
//! proof, and a preamble with its verdict. With the preambles of two processes that share memory come the files of
//! their places for pieces, so nobody who has not proven the secret has such a file. A preamble has the number of the
//! file, which no two files of the machine share: another one in its place is refused.

use super::connection::PiecePath;
use super::mpi_route::Tags;
use super::pieces::{Pieces, Window};
use super::preamble::{PREAMBLE_BYTES, Preamble, Verdict};
use super::process_map::{Listeners, ProcessMap, WorldToken};
use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    SocketAddrAny, SocketFlags, acceptfrom_with, recvmsg, sendmsg, sockopt,
};
use session::{CHALLENGE_BYTES, Challenged, Connecting, GREETING_BYTES, HandshakeError, PROOF_BYTES, Service, Session};
use std::collections::{BTreeMap, VecDeque};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Connections without a preamble that are kept, apart from one of each process.
const PENDING_LIMIT: usize = 128;
/// Connections that are accepted before anything else is done.
const ACCEPTED_AT_ONCE: usize = 32;
/// How long a connection may take until its preamble is there.
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
    /// Connections whose proof was wrong, or that ended before it was whole.
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

    /// Connections with the right proof from another world, or from a process that is connected; other versions.
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
    pub(super) piece_path: PiecePath,
    pub(super) session: Session,
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

/// The bytes that are due on a connection.
enum Stage {
    /// Theirs: a greeting.
    Greeting,
    /// Theirs: a proof, and a preamble.
    Proof(Challenged),
    /// Ours: a challenge.
    Challenge(Connecting),
    /// Ours: a preamble with the verdict.
    Verdict(Session),
}

/// Bytes of the longest stage.
const STAGE_BYTES: usize = PROOF_BYTES + PREAMBLE_BYTES;
const _: () = assert!(STAGE_BYTES >= CHALLENGE_BYTES && STAGE_BYTES >= GREETING_BYTES);

impl Stage {
    fn len_bytes(&self) -> usize {
        match self {
            Stage::Greeting => GREETING_BYTES,
            Stage::Proof(_) => STAGE_BYTES,
            Stage::Challenge(_) => CHALLENGE_BYTES,
            Stage::Verdict(_) => PREAMBLE_BYTES,
        }
    }
}

struct Pending {
    number: u64,
    socket: OwnedFd,
    origin: Origin,
    stage: Stage,
    bytes: [u8; STAGE_BYTES],
    filled: usize,
    file: Option<OwnedFd>,
    since: Instant,
}

/// The decision about a connection after a stage.
enum Judged {
    Waits(Box<Pending>),
    Admitted(Admitted),
    Dropped,
}

/// The state of a stage after a read.
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
        let connecting = Connecting::new(self.token.secret(), Service::World).map_err(|_| Errno::IO)?;
        send(&socket, connecting.greeting(), None)?;
        self.add(epoll, socket, Origin::Us(process), Stage::Challenge(connecting))
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
                    let _ = self.add(epoll, socket, Origin::Them(host(from)), Stage::Greeting);
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

    fn add(&mut self, epoll: BorrowedFd<'_>, socket: OwnedFd, origin: Origin, stage: Stage) -> Result<(), Errno> {
        self.drop_strangers(PENDING_LIMIT + self.connected.len() - 1);
        let number = self.next_number;
        self.next_number += 1;
        epoll::add(epoll, &socket, epoll::EventData::new_u64(PENDING | number), epoll::EventFlags::IN)?;
        let (bytes, since) = ([0; STAGE_BYTES], Instant::now());
        self.pending.push_back(Pending { number, socket, origin, stage, bytes, filled: 0, file: None, since });
        Ok(())
    }

    /// Drops connections without a proof until at most `kept` are left: each time the oldest of the host that has most.
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

    /// Drops connections whose preamble is late. The answers of this world have the deadline of the world.
    pub(super) fn expire(&mut self) {
        let is_late = |pending: &Pending| pending.stranger().is_some() && pending.since.elapsed() >= PREAMBLE_DEADLINE;
        let before = self.pending.len();
        self.pending.retain(|pending| !is_late(pending));
        self.refusals.late.fetch_add((before - self.pending.len()) as u64, Ordering::Relaxed);
    }

    /// How long until the preamble of a connection is late.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        let oldest = self.pending.iter().find(|pending| pending.stranger().is_some())?;
        Some(PREAMBLE_DEADLINE.saturating_sub(oldest.since.elapsed()))
    }

    /// Reads more of a stage; returns the connection when it is part of the world.
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
        let judged = match (progress, pending.origin) {
            (Progress::Whole, Origin::Them(_)) => self.judge(pending),
            (Progress::Whole, Origin::Us(process)) => {
                self.answered(pending, process).map_err(|reason| Refused { process, reason })?
            }
            (Progress::More | Progress::Ended, Origin::Them(_)) => self.wrong(),
            (Progress::More | Progress::Ended, Origin::Us(process)) => {
                let reason = "closed the connection: it is of another world, or its token differs".into();
                return Err(Refused { process, reason });
            }
        };
        match judged {
            // It keeps its age.
            Judged::Waits(pending) => self.pending.insert(index, *pending),
            Judged::Dropped => {}
            Judged::Admitted(admitted) => {
                let _ = epoll::delete(epoll, &admitted.socket);
                self.connected[admitted.process] = true;
                return Ok(Some(admitted));
            }
        }
        Ok(None)
    }

    fn wrong(&self) -> Judged {
        self.refusals.wrong.fetch_add(1, Ordering::Relaxed);
        Judged::Dropped
    }

    fn not_expected(&self) -> Judged {
        self.refusals.not_expected.fetch_add(1, Ordering::Relaxed);
        Judged::Dropped
    }

    /// Decides about a connection from outside.
    fn judge(&self, mut pending: Pending) -> Judged {
        match &pending.stage {
            Stage::Proof(challenged) => match challenged.admit(&pending.bytes[..PROOF_BYTES]) {
                Ok(session) => self.judge_preamble(pending, session),
                Err(_) => self.wrong(),
            },
            Stage::Greeting | Stage::Challenge(_) | Stage::Verdict(_) => {
                let greeting = pending.bytes.first_chunk().unwrap_or(&[0; GREETING_BYTES]);
                match Challenged::new(self.token.secret(), Service::World, greeting) {
                    Ok(challenged) if send(&pending.socket, &challenged.challenge(), None).is_ok() => {
                        (pending.stage, pending.filled) = (Stage::Proof(challenged), 0);
                        Judged::Waits(Box::new(pending))
                    }
                    Err(HandshakeError::Version(_)) => {
                        let _ = send(&pending.socket, &session::unproven_greeting(Service::World), None);
                        self.not_expected()
                    }
                    Ok(_) | Err(_) => self.wrong(),
                }
            }
        }
    }

    /// Decides about a connection from outside that has proven to be of a process of the run.
    fn judge_preamble(&self, mut pending: Pending, mut session: Session) -> Judged {
        let opened = session.opener.open_head(&mut pending.bytes[PROOF_BYTES..]);
        let Some(preamble) = opened.ok().and_then(|(fields, _)| Preamble::decode(fields)) else { return self.wrong() };
        let process = preamble.from as usize;
        let may_connect = process > self.own && self.connected.get(process) == Some(&false);
        let verdict = if preamble.fingerprint != self.fingerprint || preamble.to as usize != self.own {
            Verdict::OtherWorld
        } else if !may_connect {
            Verdict::NotExpected
        } else {
            Verdict::Welcome
        };
        if verdict != Verdict::Welcome {
            let _ = self.send_preamble(&pending.socket, &mut session, process, (verdict, &[]));
            return self.not_expected();
        }
        match self.admit(pending, process, session, preamble.file) {
            Ok(mut admitted) => {
                let sent =
                    self.send_preamble(&admitted.socket, &mut admitted.session, process, (Verdict::Welcome, &[]));
                if sent.is_ok() { Judged::Admitted(admitted) } else { self.not_expected() }
            }
            Err(_) => self.not_expected(),
        }
    }

    /// Reads the answer of a process to which this one has connected.
    fn answered(&self, mut pending: Pending, process: usize) -> Result<Judged, String> {
        let mut session = match pending.stage {
            Stage::Verdict(session) => session,
            Stage::Challenge(connecting) => {
                let bytes = &pending.bytes[..CHALLENGE_BYTES];
                let (proof, mut session) = match connecting.answer(bytes) {
                    Ok(Some(answered)) => answered,
                    Ok(None) | Err(HandshakeError::Proof) => {
                        return Err("shows a proof of another token: it is of another world, or not of the run".into());
                    }
                    Err(error) => return Err(format!("does not answer as a process of the world does: {error}")),
                };
                let sent = self.send_preamble(&pending.socket, &mut session, process, (Verdict::Welcome, &proof));
                sent.map_err(|error| format!("takes no answer: {error}"))?;
                (pending.stage, pending.filled) = (Stage::Verdict(session), 0);
                return Ok(Judged::Waits(Box::new(pending)));
            }
            Stage::Greeting | Stage::Proof(_) => return Err("has answered what it was not asked".into()),
        };
        let (fields, _) =
            session.opener.open_head(&mut pending.bytes[..PREAMBLE_BYTES]).map_err(|error| format!("sent {error}"))?;
        let preamble = Preamble::decode(fields).ok_or("sent a verdict that does not exist")?;
        match preamble.verdict {
            Verdict::Welcome
                if preamble.from as usize == process
                    && preamble.to as usize == self.own
                    && preamble.fingerprint == self.fingerprint => {}
            Verdict::Welcome => return Err("is another process than the process map says".into()),
            verdict @ (Verdict::OtherWorld | Verdict::NotExpected) => return Err(verdict.reason().into()),
        }
        let pending = Pending { stage: Stage::Greeting, ..pending };
        let admitted = self.admit(pending, process, session, preamble.file);
        admitted.map(Judged::Admitted).map_err(|error| format!("shares no memory: {error}"))
    }

    fn admit(&self, pending: Pending, process: usize, session: Session, number: u64) -> std::io::Result<Admitted> {
        let Pending { socket, file, .. } = pending;
        let piece_path = match (self.maps_memory_of(process), file) {
            (true, Some(file)) if fstat(&file)?.st_ino == number => PiecePath::Memory(Window::map(&file)?),
            (true, Some(_)) => return Err(std::io::Error::other("another file came in the place of its memory")),
            (false, None) => {
                self.tags.as_ref().map_or(PiecePath::Socket, |tags| PiecePath::Mpi(tags.route_to(process)))
            }
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
        Ok(Admitted { process, socket, piece_path, session })
    }

    /// Whether pieces of `process` go through memory that both have mapped.
    fn maps_memory_of(&self, process: usize) -> bool {
        self.tags.is_none() && self.process_map.share_memory(self.own, process)
    }

    /// Sends a preamble to `process`, after other bytes, with the memory for pieces where the two share a machine.
    fn send_preamble(
        &self,
        socket: &OwnedFd,
        session: &mut Session,
        process: usize,
        (verdict, before): (Verdict, &[u8]),
    ) -> Result<(), Errno> {
        let number = |process: usize| u32::try_from(process).unwrap_or(u32::MAX);
        let (from, to, fingerprint) = (number(self.own), number(process), self.fingerprint);
        let shares = process < self.connected.len() && self.maps_memory_of(process);
        let shared = (shares && verdict == Verdict::Welcome).then(|| self.pieces.file());
        let file = shared.map(fstat).transpose()?.map_or(0, |facts| facts.st_ino);
        let preamble = Preamble { verdict, from, to, fingerprint, file }.seal(&mut session.sealer);
        send(socket, &[before, &preamble].concat(), shared)
    }
}

/// Sends a few bytes, perhaps with a file: a fresh socket takes them at once.
pub(super) fn send(socket: &OwnedFd, bytes: &[u8], file: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = file.map(|file| [file]);
    if let Some(files) = &files {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    let sent = sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    if sent == bytes.len() { Ok(()) } else { Err(Errno::AGAIN) }
}

/// The address of the host of a connection over TCP.
fn host(from: Option<SocketAddrAny>) -> Option<IpAddr> {
    from.and_then(|from| SocketAddr::try_from(from).ok()).map(|from| from.ip())
}

impl Pending {
    /// The host that connected; none for a connection of this process.
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
            let due = self.stage.len_bytes();
            let mut rest = [IoSliceMut::new(&mut self.bytes[self.filled..due])];
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
            if self.filled == due {
                return Progress::Whole;
            }
        }
    }
}
