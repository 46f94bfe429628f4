//! A rank's end of a group: its calls as work of its streams, and what it hears from the hub.
//!
//! A call is two pieces of work: one reads the rank's memory and sends it, and one writes the result. The stream waits
//! between them for a promise, which ends when the result has come, as for a kernel that runs.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io::Error;
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use gpu::{DriverError, StreamHandle};
use softgpu::{Promise, SoftGpu};
use sync::lock;

use super::collective::{Call, Kind};
use super::launches::{Counts, Launches};
use super::wire::{FromRank, Known, ToRank};

/// The time between two looks at the GPU while a call is under way.
const PAUSE: Duration = Duration::from_micros(100);

/// Memory of a GPU that a communicator takes for each channel and peer when it connects, at its first call.
const BYTES_OF_A_CHANNEL: u64 = 10 << 20;
const CHANNELS: u64 = 2;

/// Where a group is, as a rank sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Met,
    /// Some have not come yet, or have not finished, or the last call is being launched.
    Continues,
    /// A call could not be launched.
    Failed,
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
    /// A call that must not be made now.
    Misused,
    /// The system starts no thread.
    Threads,
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
    /// The last call has not been launched.
    is_launching: bool,
    has_failed: bool,
    /// Of messages, and of collectives.
    is_connected: [bool; 2],
    taken_bytes: u64,
    tickets: u64,
    waiting: HashMap<u64, Waiting>,
    /// Collectives so far.
    collectives: u64,
    /// Messages so far, by peer and direction.
    messages: HashMap<Kind, u64>,
}

/// The place of a call among all calls of a rank.
#[derive(Debug)]
pub struct Reserved {
    pub ticket: u64,
    /// See [`FromRank::Call`].
    pub number: u64,
    pub promise: Promise,
    /// Where its result will be.
    pub result: Arc<Mutex<Vec<u8>>>,
    /// See [`FromRank::Call`].
    pub launched: Counts,
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
        let stream = gpu.create_outside_stream()?;
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
    /// The key of the group at its hub.
    key: u64,
    ranks: usize,
    rank: usize,
    gpu: Arc<SoftGpu>,
    under_way: Arc<UnderWay>,
    order: Arc<Order>,
    launches: Arc<Launches>,
    connection: Mutex<TcpStream>,
    inside: Mutex<Inside>,
    /// Threads that are in calls on it.
    users: AtomicUsize,
}

/// A thread in a call on a communicator.
pub struct InCall<'a>(&'a AtomicUsize);

impl Drop for InCall<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The state that all ranks of a GPU share: the calls under way, with the thread that advances the GPU meanwhile, the
/// order of its reads, and its launches.
#[derive(Clone, Debug)]
pub struct Ends {
    pub under_way: Arc<UnderWay>,
    pub order: Arc<Order>,
    pub launches: Arc<Launches>,
}

impl Member {
    /// Comes to a group at the hub of a port.
    pub fn take((port, key): (u16, u64), (ranks, rank): (usize, usize), ends: Ends) -> Result<Arc<Member>, Error> {
        let Ends { under_way, order, launches } = ends;
        launches.enter(key);
        let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        connection.set_nodelay(true)?;
        FromRank::Hello { key, ranks, rank }.write(&mut connection)?;
        let mut from = connection.try_clone()?;
        let (connection, inside, gpu) = (Mutex::new(connection), Mutex::default(), Arc::clone(&order.gpu));
        let users = AtomicUsize::new(0);
        let member = Arc::new(Member { key, ranks, rank, gpu, under_way, order, launches, connection, inside, users });
        let own = Arc::clone(&member);
        std::thread::Builder::new().name("nccl rank".into()).spawn(move || own.handle_messages(&mut from))?;
        Ok(member)
    }

    /// How many ranks meet.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Its GPU.
    pub fn gpu(&self) -> Arc<SoftGpu> {
        Arc::clone(&self.gpu)
    }

    /// Whether both are of one GPU.
    pub fn shares_gpu(&self, other: &Member) -> bool {
        Arc::ptr_eq(&self.gpu, &other.gpu)
    }

    /// The launches of its GPU.
    pub fn launches(&self) -> &Arc<Launches> {
        &self.launches
    }

    /// Tells the hub. One that is gone is reported by the thread that hears.
    pub fn tell(&self, message: &FromRank) {
        let _ = message.write(&mut *lock(&self.connection));
    }

    /// Notes a read of the GPU that `after` follows; all that is known with it.
    pub fn reads(&self, after: Promise) -> Known {
        self.order.read(after)
    }

    /// Begins a call of this thread. The library does not lock: where another thread is in one, the rank is in misuse.
    pub fn enter(&self) -> InCall<'_> {
        if self.users.fetch_add(1, Ordering::SeqCst) > 0 {
            self.misuse("two threads are in calls on one communicator");
        }
        InCall(&self.users)
    }

    /// Whether calls are under way.
    pub fn is_waiting(&self) -> bool {
        !lock(&self.inside).waiting.is_empty()
    }

    /// The calls of this rank are wrong, which all ranks hear.
    pub fn misuse(&self, text: &str) {
        eprintln!("NCCL in software: rank {} of {}: {text}", self.rank, self.ranks);
        self.tell(&FromRank::Misuse);
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
        self.disconnect();
    }

    /// Connects to the peers of a call, where none of its kind came before: takes memory for each channel and peer.
    pub fn connect(&self, call: &Call) -> Result<(), Refusal> {
        let ends = call.request.kind.ends(self.rank);
        let peers = if ends.is_some() { 1 } else { self.ranks.saturating_sub(1) as u64 };
        let mut inside = lock(&self.inside);
        if !std::mem::replace(&mut inside.is_connected[usize::from(ends.is_none())], true) {
            let bytes = peers * CHANNELS * BYTES_OF_A_CHANNEL;
            self.gpu.take_memory(bytes)?;
            inside.taken_bytes += bytes;
        }
        Ok(())
    }

    /// Gives back the memory of connections.
    pub fn disconnect(&self) {
        self.gpu.give_memory_back(std::mem::take(&mut lock(&self.inside).taken_bytes));
    }

    /// The last call has been launched, or could not be.
    pub fn end_progress(&self, refusal: Option<&Refusal>) {
        let mut inside = lock(&self.inside);
        inside.is_launching = false;
        if let Some(refusal) = refusal {
            eprintln!("NCCL in software: rank {} of {}: {refusal:?}", self.rank, self.ranks);
            inside.has_failed = true;
        }
    }

    /// Refuses a call where the group has not met or has failed, and where the last one is in progress.
    pub fn may_call(&self) -> Result<(), Refusal> {
        let inside = lock(&self.inside);
        match inside.state() {
            State::Met if !inside.has_left && !inside.has_finished => Ok(()),
            State::Met => Err(Refusal::Misused),
            refused @ (State::Continues | State::Failed | State::PeerHasLeft | State::Misused) => {
                Err(Refusal::Group(refused))
            }
        }
    }

    /// Reserves the place of a call among all calls.
    pub fn reserve(&self, call: &Call) -> Result<Reserved, Refusal> {
        let mut inside = lock(&self.inside);
        let promise = self.gpu.promise()?;
        let is_message = call.request.kind.ends(self.rank).is_some();
        let launched = if is_message { Counts::new() } else { self.launches.count(self.key) };
        let count = match call.request.kind.ends(self.rank) {
            Some(_) => inside.messages.entry(call.request.kind).or_default(),
            None => &mut inside.collectives,
        };
        let number = *count;
        *count += 1;
        inside.tickets += 1;
        let (ticket, result) = (inside.tickets, Arc::<Mutex<Vec<u8>>>::default());
        inside.waiting.insert(ticket, Waiting { promise, bytes: Arc::clone(&result) });
        inside.is_launching = true;
        self.under_way.begin();
        Ok(Reserved { ticket, number, promise, result, launched })
    }
}

impl Inside {
    fn state(&self) -> State {
        if self.has_left {
            State::Met
        } else if self.has_failed {
            State::Failed
        } else if self.is_misused {
            State::Misused
        } else if self.peer_has_left && !self.is_over {
            State::PeerHasLeft
        } else if !self.has_met || self.is_launching || self.has_finished && !self.is_over {
            State::Continues
        } else {
            State::Met
        }
    }
}
