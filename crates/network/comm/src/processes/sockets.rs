//! The work of the thread that waits for the sockets of one process, or of a rank in its place ([`super::role`]):
//! whatever comes from other processes comes through here.

use super::connection::{Connection, Fault, credit_of};
use super::frame::{Announcement, Frame};
use super::gate::{Gate, LOCAL_LISTENER, PENDING, TCP_LISTENER};
use super::input::{Input, Read};
use super::network::Network;
use super::outbox::Flushed;
use crate::error::AbortCause;
use crate::threads::inbox::{Envelope, Payload};
use crate::threads::remote::{Address, Announced, Credit, MessageName, Remote};
use crate::threads::world::World;
use mesh::Rank;
use rustix::event::epoll;
use rustix::fd::AsFd;
use rustix::fs::Timespec;
use rustix::io::Errno;
use session::Opener;
use std::sync::Arc;
use std::time::Duration;

/// The event of the descriptor that wakes the thread.
pub(super) const WAKE: u64 = 0;
/// Events of connections: this, and the number of the process.
pub(super) const CONNECTION: u64 = 1 << 61;
/// Events that are taken at once.
const EVENTS: usize = 64;
/// Bytes that are thrown away at once.
const DRAIN_BYTES: usize = 16 << 10;

/// The state of the work.
pub(super) struct Sockets {
    gate: Gate,
    network: Arc<Network>,
    world: Arc<World>,
    /// By process; none where there is no connection, or no more.
    inputs: Vec<Option<Reader>>,
    /// Processes that have sent more than was read, or wait for more pieces than were written. No event reports them.
    more: Vec<usize>,
}

/// The use of the bytes that come over one connection.
enum Reader {
    /// They are frames.
    Frames(Box<Input>),
    /// They follow a fault and are thrown away until the peer closes the connection. A socket that is closed with
    /// unread bytes resets the connection, and the peer would lose the frame that says why the world failed.
    Drain,
}

/// The thread of the sockets: works until the last rank of this process has left.
pub(super) fn run(network: &Network, world: &Arc<World>) {
    let _end = EndOfThread(Arc::clone(world));
    let mut timeout = None;
    while !network.is_over() {
        match network.role.turn_of_thread(timeout) {
            Ok(next) => timeout = next,
            Err(error) => {
                network.role.set(None).iter().for_each(|sockets| sockets.fail_all(error));
                return;
            }
        }
        if network.is_leaving() {
            network.note_progress();
        }
    }
    network.role.set(None).iter().for_each(Sockets::close_all);
}

/// Waits for events, at most for `timeout`.
pub(super) fn wait(epoll: impl AsFd, timeout: Option<Duration>) -> Result<Vec<u64>, Errno> {
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let mut events = Vec::with_capacity(EVENTS);
    match epoll::wait(epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(events.iter().map(|event: &epoll::Event| event.data.u64()).collect()),
        Err(error) => Err(error),
    }
}

impl Sockets {
    /// Watches the connections of `network`, whose frames the `openers` open, in addition to the sockets of `gate`.
    pub(super) fn new(
        gate: Gate,
        network: Arc<Network>,
        world: Arc<World>,
        openers: Vec<Option<Opener>>,
    ) -> Result<Sockets, Errno> {
        let epoll = network.role.inner();
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        for process in 0..openers.len() {
            if let Some(connection) = network.connection(process) {
                let data = epoll::EventData::new_u64(CONNECTION | process as u64);
                epoll::add(epoll, connection.socket(), data, flags)?;
            }
        }
        let inputs = openers
            .into_iter()
            .map(|opener| opener.map(|opener| Reader::Frames(Box::new(Input::new(opener)))))
            .collect();
        epoll::add(epoll, network.role.waker(), epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        Ok(Sockets { gate, network, world, inputs, more: Vec::new() })
    }

    /// Waits for events, at most for `wait`, and handles them. Returns how long the next wait may be.
    pub(super) fn turn(&mut self, wait_for: Duration) -> Result<Option<Duration>, Errno> {
        let more = std::mem::take(&mut self.more);
        let limit = if more.is_empty() { wait_for } else { Duration::ZERO };
        let limit = self.gate.next_deadline().map_or(limit, |deadline| deadline.min(limit));
        more.into_iter().for_each(|process| self.work(process));
        let events = wait(self.network.role.inner(), Some(limit))?;
        events.into_iter().for_each(|event| self.handle(event));
        self.gate.expire();
        Ok(self.gate.next_deadline())
    }

    /// Whether there is work that no event reports.
    pub(super) fn has_more(&self) -> bool {
        !self.more.is_empty()
    }

    /// Whether a connection has to show by a deadline who it is.
    pub(super) fn has_deadline(&self) -> bool {
        self.gate.next_deadline().is_some()
    }

    fn handle(&mut self, event: u64) {
        let role = &self.network.role;
        match event {
            WAKE => {
                let _ = rustix::io::read(role.waker(), &mut [0; 8]);
            }
            TCP_LISTENER | LOCAL_LISTENER => self.gate.accept(role.inner(), event),
            event if event & PENDING != 0 => {
                // All processes are connected, so nothing that comes now is part of the world.
                let _ = self.gate.read(role.inner(), event);
            }
            event => self.work(usize::try_from(event & !CONNECTION).unwrap_or(usize::MAX)),
        }
    }

    /// Reads and writes what a connection has and takes: pieces of both ways in turns.
    fn work(&mut self, process: usize) {
        let Some(connection) = self.network.connection(process).map(Arc::clone) else { return };
        let Some(reader) = self.inputs.get_mut(process).and_then(Option::as_mut) else { return };
        let mut is_more = connection.flush_piece() == Flushed::Pieces;
        let read = match reader {
            Reader::Drain => {
                connection.end_output();
                drain(&connection)
            }
            Reader::Frames(input) => {
                let incoming = Incoming { connection: &connection, network: &self.network, world: &self.world };
                input.read(&connection, &mut |frame, payload| incoming.take(frame, payload))
            }
        };
        is_more |= connection.flush_piece() == Flushed::Pieces;
        match read {
            Ok(Read::Some) => self.note_more(process),
            Ok(Read::All) if is_more => self.note_more(process),
            Ok(Read::All) => {}
            Ok(Read::End) => self.end(process, &connection, &Fault::Closed),
            Err(fault @ (Fault::Closed | Fault::Socket(_))) => self.end(process, &connection, &fault),
            Err(fault @ (Fault::Frame(_) | Fault::Unexpected(_))) => {
                self.fail(process, &fault);
                self.inputs[process] = Some(Reader::Drain);
                // The bytes that are here already raise no event.
                self.work(process);
            }
        }
    }

    fn note_more(&mut self, process: usize) {
        if !self.more.contains(&process) {
            self.more.push(process);
        }
    }

    /// Forgets a connection from which nothing more comes, which is a failure without a goodbye.
    fn end(&mut self, process: usize, connection: &Connection, fault: &Fault) {
        self.inputs[process] = None;
        let _ = epoll::delete(self.network.role.inner(), connection.socket());
        if !connection.has_said_goodbye() && !self.network.is_leaving() {
            self.fail(process, fault);
        }
        connection.close();
    }

    /// Declares the world failed because of `process`.
    fn fail(&self, process: usize, fault: &Fault) {
        let process_map = self.network.process_map();
        let first = process_map.processes().get(process).and_then(|process| process.ranks.first());
        let description = format!("{} {fault}", process_map.name(process));
        self.world.abort(AbortCause { rank: first.copied().unwrap_or(Rank(0)), description });
    }

    /// Declares the world failed because this process cannot wait for its sockets.
    pub(super) fn fail_all(&self, error: Errno) {
        let description = format!("its process cannot wait for its connections: {error}");
        self.world.abort(AbortCause { rank: first_rank(&self.world), description });
        self.close_all();
    }

    fn close_all(&self) {
        for process in 0..self.inputs.len() {
            if let Some(connection) = self.network.connection(process) {
                connection.close();
            }
        }
    }
}

/// Reads all that has come and throws it away.
fn drain(connection: &Connection) -> Result<Read, Fault> {
    let mut buffer = [0; DRAIN_BYTES];
    loop {
        match rustix::io::read(connection.socket(), &mut buffer) {
            Ok(0) => return Ok(Read::End),
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(Read::All),
            Err(error) => return Err(Fault::Socket(error)),
        }
    }
}

/// The first rank of this process.
fn first_rank(world: &World) -> Rank {
    world.inboxes(0).next().map_or(Rank(0), |(rank, _)| rank)
}

/// Declares the world failed when the thread ends by a panic: nobody would hear from other processes any more.
struct EndOfThread(Arc<World>);

impl Drop for EndOfThread {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let description = "the thread of its process's connections panicked".to_owned();
            self.0.abort(AbortCause { rank: first_rank(&self.0), description });
        }
    }
}

/// The state that frames of one connection change.
struct Incoming<'a> {
    connection: &'a Connection,
    network: &'a Arc<Network>,
    world: &'a World,
}

impl Incoming<'_> {
    fn take(&self, frame: Frame, payload: &[u8]) -> Result<(), Fault> {
        let connection = self.connection;
        match frame {
            Frame::Eager(address) => self.eager(address, payload),
            Frame::Announce(address, announcement) => self.announce(address, announcement),
            Frame::Memory(place) => connection.learn_memory(place),
            Frame::Grant(part) => connection.grant(part),
            Frame::Piece(..) => Err(Fault::Unexpected("a piece outside of a message")),
            Frame::Finish(message, ending) => connection.finished(message, ending),
            Frame::Withdraw(address, message) => {
                self.check(address)?;
                connection.withdraw(message)?;
                if let Some(inbox) = self.world.inbox(address.lane, address.destination) {
                    inbox.withdraw(address.source, message);
                }
                Ok(())
            }
            Frame::Credit(bytes) => connection.add_credit(bytes),
            Frame::Leave(rank, lane) => {
                let lane = lane as usize;
                self.check_source(rank, lane)?;
                self.world.set_left(lane, rank);
                Ok(())
            }
            Frame::Abort(rank) => {
                if rank.0 >= self.world.world_size() {
                    return Err(Fault::Unexpected("the failure of a rank that is not in the world"));
                }
                let description = String::from_utf8_lossy(payload).into_owned();
                self.world.abort(AbortCause { rank, description });
                Ok(())
            }
            Frame::Goodbye => {
                connection.heard_goodbye();
                Ok(())
            }
            Frame::GoodbyeSeen => {
                connection.goodbye_was_seen();
                Ok(())
            }
        }
    }

    fn eager(&self, address: Address, payload: &[u8]) -> Result<(), Fault> {
        self.check(address)?;
        self.connection.hold(payload.len())?;
        let remote: Arc<dyn Remote> = Arc::clone(self.network) as _;
        let credit = Credit::new(remote, self.connection.process, credit_of(payload.len()));
        // As long as the message is, so that the memory of all unread ones is what was counted.
        let bytes = Arc::new(payload.to_vec());
        self.deliver(address, Payload::Arrived { bytes, _credit: credit });
        Ok(())
    }

    fn announce(&self, address: Address, announcement: Announcement) -> Result<(), Fault> {
        self.check(address)?;
        self.connection.count_announced()?;
        let Announcement { message: number, len, at } = announcement;
        let len_bytes = usize::try_from(len).map_err(|_| Fault::Unexpected("a message longer than memory"))?;
        let remote: Arc<dyn Remote> = Arc::clone(self.network) as _;
        let (process, withdrawn) = (self.connection.process, self.connection.withdrawn_by_peer());
        let name = MessageName { process, number, len_bytes, at, withdrawn };
        self.deliver(address, Payload::Announced(Announced::new(remote, name)));
        Ok(())
    }

    fn deliver(&self, address: Address, payload: Payload) {
        let Address { source, destination, lane, tag, operation } = address;
        let envelope = Envelope { tag, operation, payload };
        if let Err(unread) = self.world.deliver(lane, source, destination, envelope) {
            unread.payload.lose();
        }
    }

    /// Whether a message may go this way.
    fn check(&self, address: Address) -> Result<(), Fault> {
        self.check_source(address.source, address.lane)?;
        if self.world.inbox(address.lane, address.destination).is_none() {
            return Err(Fault::Unexpected("a message for a rank that is not in this process"));
        }
        Ok(())
    }

    fn check_source(&self, rank: Rank, lane: usize) -> Result<(), Fault> {
        if self.network.process_map().process_of(rank) != Some(self.connection.process) {
            return Err(Fault::Unexpected("a message in the name of a rank of another process"));
        }
        if lane >= self.world.num_lanes() {
            return Err(Fault::Unexpected("a message on a lane that this world does not have"));
        }
        Ok(())
    }
}
