//! A rank's end of a group: its calls as work of its streams, and what it hears from the hub.
//!
//! A call is two pieces of work: one reads the rank's memory and sends it, and one writes the result. The stream waits
//! between them for a promise, which ends when the result has come.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io::Error;
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use gpu::{DriverError, Gpu, StreamHandle};
use softgpu::{HostWork, Promise, SoftGpu};
use sync::lock;

use super::collective::{Call, Kind};
use super::wire::{FromRank, Known, ToRank};

/// The time between two looks at the GPU while a call is under way.
const PAUSE: Duration = Duration::from_micros(100);

/// Where a group is, as a rank sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Met,
    /// Some have not come yet, or have not finished.
    Continues,
    /// Another rank has left.
    PeerHasLeft,
    /// The calls of two ranks do not fit together, or a call comes when it must not.
    Misused,
}

/// Why calls were not submitted.
#[derive(Debug)]
pub enum Refusal {
    Group(State),
    Gpu(DriverError),
}

impl From<DriverError> for Refusal {
    fn from(error: DriverError) -> Refusal {
        Refusal::Gpu(error)
    }
}

/// A result that a stream waits for.
#[derive(Debug)]
struct Waiting {
    promise: Promise,
    bytes: Arc<Mutex<Vec<u8>>>,
}

#[derive(Debug, Default)]
struct Inside {
    has_met: bool,
    has_finished: bool,
    is_over: bool,
    has_left: bool,
    peer_has_left: bool,
    is_misused: bool,
    tickets: u64,
    waiting: HashMap<u64, Waiting>,
    /// Collectives so far.
    collectives: u64,
    /// Messages so far, by peer and direction.
    messages: HashMap<Kind, u64>,
}

/// The place of a call among all calls of a rank.
struct Reserved {
    ticket: u64,
    /// See [`FromRank::Call`].
    number: u64,
    promise: Promise,
    /// Where its result will be.
    result: Arc<Mutex<Vec<u8>>>,
}

/// The number of calls under way on a GPU, which continues by itself while there are some, as other GPUs do.
#[derive(Debug, Default)]
pub struct UnderWay {
    calls: Mutex<usize>,
    changed: Condvar,
}

impl UnderWay {
    /// Advances `gpu` while calls are under way.
    pub fn advance(&self, gpu: &SoftGpu) {
        loop {
            let mut calls = lock(&self.calls);
            while *calls == 0 {
                calls = self.changed.wait(calls).unwrap_or_else(PoisonError::into_inner);
            }
            drop(calls);
            gpu.advance();
            std::thread::sleep(PAUSE);
        }
    }

    fn begin(&self) {
        *lock(&self.calls) += 1;
        self.changed.notify_all();
    }

    fn end(&self, calls: usize) {
        let mut under_way = lock(&self.calls);
        *under_way = under_way.saturating_sub(calls);
    }
}

/// The order that results of other GPUs bring: whoever receives what was computed from a GPU's bytes comes after the
/// read of them, on whichever stream.
#[derive(Debug)]
pub struct Order {
    gpu: Arc<SoftGpu>,
    /// Its number among all.
    number: u64,
    /// Results come as points of this stream.
    stream: StreamHandle,
    inside: Mutex<Reads>,
}

#[derive(Debug, Default)]
struct Reads {
    /// Of all GPUs, as far as this one has heard.
    known: Known,
    /// Points after the reads of this one, in the order in which they were made.
    own: Vec<Promise>,
    /// Those that the stream has waited for.
    waited: usize,
}

impl Order {
    /// The order of a GPU.
    pub fn new(gpu: Arc<SoftGpu>) -> Result<Order, DriverError> {
        let stream = gpu.create_stream()?;
        let number = RandomState::new().hash_one(std::process::id());
        Ok(Order { gpu, number, stream, inside: Mutex::default() })
    }

    /// Notes a read that `after` follows; all that is known with it.
    fn read(&self, after: Promise) -> Known {
        let mut inside = lock(&self.inside);
        inside.own.push(after);
        let reads = inside.own.len() as u64;
        inside.known.insert(self.number, reads);
        inside.known.clone()
    }

    /// Lets streams continue that wait for `result`, after the reads that those who sent it have known.
    fn receive(&self, known: &Known, result: Promise) {
        let mut inside = lock(&self.inside);
        for (gpu, read) in known {
            let last = inside.known.entry(*gpu).or_default();
            *last = (*last).max(*read);
        }
        let until = known.get(&self.number).map_or(0, |read| *read as usize);
        let after: Vec<Promise> = inside.own.get(inside.waited..until).unwrap_or_default().to_vec();
        inside.waited = inside.waited.max(until);
        drop(inside);
        // A GPU that has failed has no streams that wait.
        for read in after {
            let _ = self.gpu.wait_for_promise(self.stream, read);
        }
        let _ = self.gpu.keep_promise(result, self.stream);
    }
}

/// See the top of the file.
#[derive(Debug)]
pub struct Member {
    /// The group, by its hub and its key there.
    port: u16,
    key: u64,
    ranks: usize,
    rank: usize,
    gpu: Arc<SoftGpu>,
    under_way: Arc<UnderWay>,
    order: Arc<Order>,
    connection: Mutex<TcpStream>,
    inside: Mutex<Inside>,
}

/// A call with its stream.
#[derive(Debug)]
pub struct Submission {
    /// Whose call.
    pub member: Arc<Member>,
    /// The name of the function.
    pub name: &'static str,
    /// The request.
    pub call: Call,
    pub stream: StreamHandle,
}

impl Member {
    /// Comes to a group at the hub of a port.
    pub fn take(
        (port, key): (u16, u64),
        (ranks, rank): (usize, usize),
        (under_way, order): (Arc<UnderWay>, Arc<Order>),
    ) -> Result<Arc<Member>, Error> {
        let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        connection.set_nodelay(true)?;
        FromRank::Hello { key, ranks, rank }.write(&mut connection)?;
        let mut from = connection.try_clone()?;
        let (connection, inside, gpu) = (Mutex::new(connection), Mutex::default(), Arc::clone(&order.gpu));
        let member = Arc::new(Member { port, key, ranks, rank, gpu, under_way, order, connection, inside });
        let own = Arc::clone(&member);
        std::thread::Builder::new().name("nccl rank".into()).spawn(move || own.handle_messages(&mut from))?;
        Ok(member)
    }

    /// The same group without some ranks.
    pub fn without(&self, excluded: &[usize]) -> Result<Arc<Member>, Error> {
        let staying: Vec<usize> = (0..self.ranks).filter(|rank| !excluded.contains(rank)).collect();
        let place = staying.iter().filter(|rank| **rank < self.rank).count();
        let mix = |key: u64, rank: &usize| (key ^ *rank as u64 ^ 0x5bd1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let key = staying.iter().fold(self.key.rotate_left(17), mix);
        Member::take((self.port, key), (staying.len(), place), (Arc::clone(&self.under_way), Arc::clone(&self.order)))
    }

    /// How many ranks meet.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Which of them this is.
    pub fn rank(&self) -> usize {
        self.rank
    }

    fn handle_messages(&self, from: &mut TcpStream) {
        loop {
            let message = ToRank::read(from);
            let mut inside = lock(&self.inside);
            match message {
                Ok(ToRank::Met) => inside.has_met = true,
                Ok(ToRank::Over) => inside.is_over = true,
                Ok(ToRank::PeerHasLeft) => inside.peer_has_left = true,
                Ok(ToRank::Misused) => {
                    inside.is_misused = true;
                    self.let_go(inside.waiting.drain().map(|(_, waiting)| waiting).collect());
                }
                Ok(ToRank::Written { ticket, known, bytes }) => {
                    if let Some(waiting) = inside.waiting.remove(&ticket) {
                        *lock(&waiting.bytes) = bytes;
                        self.under_way.end(1);
                        self.order.receive(&known, waiting.promise);
                    }
                }
                Err(_) => {
                    // The hub's process has ended, or this rank has left.
                    inside.peer_has_left |= !inside.is_over;
                    return;
                }
            }
        }
    }

    /// Lets the streams of calls continue.
    fn let_go(&self, all: Vec<Waiting>) {
        self.under_way.end(all.len());
        for waiting in all {
            // A GPU that has failed has no streams that wait.
            let _ = self.gpu.break_promise(waiting.promise);
        }
    }

    /// The state, as this rank sees it.
    pub fn state(&self) -> State {
        lock(&self.inside).state()
    }

    /// The rank makes no more calls.
    pub fn finish(&self) -> State {
        let mut inside = lock(&self.inside);
        if !inside.has_finished && !inside.has_left {
            inside.has_finished = true;
            let _ = FromRank::Finish.write(&mut *lock(&self.connection));
        }
        inside.state()
    }

    /// Whether all ranks have finished, or this one has left.
    pub fn is_over(&self) -> bool {
        let inside = lock(&self.inside);
        inside.is_over || inside.has_left
    }

    /// The rank leaves: its streams continue, and its calls are made no more.
    pub fn leave(&self) {
        let mut inside = lock(&self.inside);
        let has_left = std::mem::replace(&mut inside.has_left, true);
        let waiting = inside.waiting.drain().map(|(_, waiting)| waiting).collect();
        drop(inside);
        self.let_go(waiting);
        if !has_left {
            let mut connection = lock(&self.connection);
            let _ = FromRank::Leave.write(&mut *connection);
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Reserves the place of a call among all calls.
    fn reserve(&self, call: &Call) -> Result<Reserved, Refusal> {
        let mut inside = lock(&self.inside);
        match inside.state() {
            State::Met if !inside.has_left && !inside.has_finished => {}
            State::Met => return Err(Refusal::Group(State::Misused)),
            refused @ (State::Continues | State::PeerHasLeft | State::Misused) => return Err(Refusal::Group(refused)),
        }
        let promise = self.gpu.promise()?;
        let count = match call.request.kind {
            Kind::Send(_) | Kind::Receive(_) => inside.messages.entry(call.request.kind).or_default(),
            Kind::AllReduce | Kind::ReduceScatter | Kind::AllGather | Kind::AllToAll | Kind::Broadcast(_) => {
                &mut inside.collectives
            }
        };
        let number = *count;
        *count += 1;
        inside.tickets += 1;
        let (ticket, result) = (inside.tickets, Arc::<Mutex<Vec<u8>>>::default());
        inside.waiting.insert(ticket, Waiting { promise, bytes: Arc::clone(&result) });
        self.under_way.begin();
        Ok(Reserved { ticket, number, promise, result })
    }
}

impl Inside {
    fn state(&self) -> State {
        if self.has_left {
            State::Met
        } else if self.is_misused {
            State::Misused
        } else if self.peer_has_left && !self.is_over {
            State::PeerHasLeft
        } else if !self.has_met || self.has_finished && !self.is_over {
            State::Continues
        } else {
            State::Met
        }
    }
}

/// Submits calls together: none of them waits for the end of another one.
pub fn submit(submissions: &[Submission]) -> Result<(), Refusal> {
    let mut waits = vec![];
    for Submission { member, name, call, stream } in submissions {
        let Reserved { ticket, number, promise, result } = member.reserve(call)?;
        let [read, written] = call.request.bytes(member.ranks, member.rank);
        let (own, request, after) = (Arc::clone(member), call.request, member.gpu.promise()?);
        let send = move |read: &[Vec<u8>]| -> Vec<Vec<u8>> {
            let bytes = read.first().cloned().unwrap_or_default();
            // A hub that is gone is reported by the thread that hears.
            let known = own.order.read(after);
            let _ = FromRank::Call { ticket, number, request, known, bytes }.write(&mut *lock(&own.connection));
            vec![]
        };
        let reads = if read > 0 { vec![(call.from, read)] } else { vec![] };
        let work = HostWork { call: name, reads, writes: vec![], compute: Box::new(send) };
        member.gpu.submit_host_work(*stream, work)?;
        member.gpu.keep_promise(after, *stream)?;
        waits.push((*stream, promise, written, call.to, result));
    }
    for ((stream, promise, written, to, result), Submission { member, name, .. }) in waits.into_iter().zip(submissions)
    {
        member.gpu.wait_for_promise(stream, promise)?;
        // Nothing is written where the call has come to nothing.
        let write = move |_: &[Vec<u8>]| -> Vec<Vec<u8>> {
            let bytes = std::mem::take(&mut *lock(&result));
            if bytes.len() == written { vec![bytes] } else { vec![] }
        };
        if written > 0 {
            let work = HostWork { call: name, reads: vec![], writes: vec![(to, written)], compute: Box::new(write) };
            member.gpu.submit_host_work(stream, work)?;
        }
    }
    Ok(())
}
