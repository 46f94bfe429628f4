//! Ranks that meet, and calls that wait for those of the other ranks.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use gpu::{DriverError, StreamHandle};
use softgpu::{Promise, SoftGpu};

use super::collective::{Call, Kind, collective, message};

/// Why a call is refused, or where a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// All have met.
    Met,
    /// Some have not come yet, or have not finished.
    Continues,
    /// Another rank has left.
    PeerHasLeft,
    /// The calls of two ranks do not fit together, or a call comes when it must not.
    Misused,
}

/// A call of a rank that waits for others.
#[derive(Debug)]
struct Waiting {
    call: Call,
    /// The work of its stream before the call has ended.
    ready: Promise,
    /// The call has ended.
    done: Promise,
}

#[derive(Debug, Default)]
struct Inside {
    joined: BTreeSet<usize>,
    finished: BTreeSet<usize>,
    left: BTreeSet<usize>,
    is_misused: bool,
    /// Collectives by number, and the calls of ranks so far.
    collectives: BTreeMap<u64, BTreeMap<usize, Waiting>>,
    /// Messages by sender and receiver: sends, or receives, that wait.
    messages: HashMap<(usize, usize), VecDeque<Waiting>>,
    /// Groups without some ranks.
    smaller: HashMap<Vec<usize>, Arc<Group>>,
}

/// Ranks that meet.
#[derive(Debug)]
pub struct Group {
    ranks: usize,
    inside: Mutex<Inside>,
}

/// A rank's end of a group.
#[derive(Debug)]
pub struct Seat {
    /// The group.
    pub group: Arc<Group>,
    /// The rank.
    pub rank: usize,
    /// Collectives so far.
    pub collectives: u64,
}

/// A call with its stream.
#[derive(Debug)]
pub struct Submission {
    /// Whose call.
    pub seat: Arc<Mutex<Seat>>,
    /// The name of the function.
    pub name: &'static str,
    /// The request.
    pub call: Call,
    /// The stream.
    pub stream: StreamHandle,
}

/// Why calls were not submitted.
#[derive(Debug)]
pub enum Refusal {
    /// The group.
    Group(State),
    /// The GPU.
    Gpu(DriverError),
}

impl From<DriverError> for Refusal {
    fn from(error: DriverError) -> Refusal {
        Refusal::Gpu(error)
    }
}

impl Group {
    /// A group in which nobody is yet.
    pub fn new(ranks: usize) -> Group {
        Group { ranks, inside: Mutex::default() }
    }

    /// How many ranks meet.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// A rank comes; whether all are there then.
    pub fn join(&self, rank: usize) -> Result<bool, State> {
        let mut inside = sync::lock(&self.inside);
        let is_new = rank < self.ranks && inside.joined.insert(rank);
        if is_new { Ok(inside.joined.len() == self.ranks) } else { Err(State::Misused) }
    }

    /// The state, as a rank sees it.
    pub fn state(&self, rank: usize) -> State {
        self.state_inside(&sync::lock(&self.inside), rank)
    }

    fn state_inside(&self, inside: &Inside, rank: usize) -> State {
        let waits = inside.finished.contains(&rank) && inside.finished.len() < self.ranks;
        if inside.left.contains(&rank) {
            State::Met
        } else if inside.is_misused {
            State::Misused
        } else if !inside.left.is_empty() {
            State::PeerHasLeft
        } else if inside.joined.len() < self.ranks || waits {
            State::Continues
        } else {
            State::Met
        }
    }

    /// A rank makes no more calls.
    pub fn finish(&self, rank: usize) -> State {
        let mut inside = sync::lock(&self.inside);
        inside.finished.insert(rank);
        self.state_inside(&inside, rank)
    }

    /// Whether all ranks have finished, or this one has left.
    pub fn is_over(&self, rank: usize) -> bool {
        let inside = sync::lock(&self.inside);
        inside.finished.len() == self.ranks || inside.left.contains(&rank)
    }

    /// A rank leaves: its streams continue, and its calls are made no more.
    pub fn leave(&self, rank: usize, gpu: &SoftGpu) {
        let mut inside = sync::lock(&self.inside);
        inside.left.insert(rank);
        let mut own: Vec<Waiting> = inside.collectives.values_mut().filter_map(|calls| calls.remove(&rank)).collect();
        for ((sender, receiver), calls) in &mut inside.messages {
            let of_sender = |waiting: &Waiting| matches!(waiting.call.kind, Kind::Send(_));
            let (removed, kept): (VecDeque<Waiting>, VecDeque<Waiting>) =
                calls.drain(..).partition(|waiting| *(if of_sender(waiting) { sender } else { receiver }) == rank);
            *calls = kept;
            own.extend(removed);
        }
        for waiting in own {
            let _ = gpu.break_promise(waiting.done);
        }
    }

    /// The group without some ranks, and the number of `rank` in it.
    pub fn without(&self, excluded: &[usize], rank: usize) -> Option<(Arc<Group>, usize)> {
        let staying: Vec<usize> = (0..self.ranks).filter(|rank| !excluded.contains(rank)).collect();
        let place = staying.iter().position(|other| *other == rank)?;
        let mut inside = sync::lock(&self.inside);
        let smaller = inside.smaller.entry(staying.clone()).or_insert_with(|| Arc::new(Group::new(staying.len())));
        Some((Arc::clone(smaller), place))
    }

    /// Adds a call. Where all others have called, its work is submitted; otherwise the promise of its end is returned.
    fn add(
        &self,
        gpu: &SoftGpu,
        (rank, number): (usize, u64),
        submission: &Submission,
        ready: Promise,
    ) -> Result<Option<Promise>, Refusal> {
        let Submission { call, stream, name, .. } = *submission;
        let mut inside = sync::lock(&self.inside);
        match self.state_inside(&inside, rank) {
            State::Met if !inside.left.contains(&rank) && !inside.finished.contains(&rank) => {}
            State::Met => return Err(Refusal::Group(State::Misused)),
            refused @ (State::Continues | State::PeerHasLeft | State::Misused) => return Err(Refusal::Group(refused)),
        }
        let others = match call.kind {
            Kind::Send(peer) | Kind::Receive(peer) => {
                let is_send = matches!(call.kind, Kind::Send(_));
                let key = if is_send { (rank, peer) } else { (peer, rank) };
                let waiting = inside.messages.entry(key).or_default();
                let is_match = waiting.front().is_some_and(|first| matches!(first.call.kind, Kind::Send(_)) != is_send);
                if is_match {
                    waiting.pop_front().map(|other| BTreeMap::from([(peer, other)]))
                } else {
                    let done = gpu.promise()?;
                    waiting.push_back(Waiting { call, ready, done });
                    return Ok(Some(done));
                }
            }
            Kind::AllReduce | Kind::ReduceScatter | Kind::AllGather | Kind::AllToAll | Kind::Broadcast(_) => {
                let calls = inside.collectives.entry(number).or_default();
                if calls.len() + 1 < self.ranks {
                    let done = gpu.promise()?;
                    calls.insert(rank, Waiting { call, ready, done });
                    return Ok(Some(done));
                }
                inside.collectives.remove(&number)
            }
        }
        .unwrap_or_default();
        if !others.values().all(|other| other.call.agrees(&call)) {
            inside.is_misused = true;
            break_all(gpu, &others);
            return Err(Refusal::Group(State::Misused));
        }
        let work = match call.kind {
            Kind::Send(peer) => others.get(&peer).map(|receive| message(&call, &receive.call)),
            Kind::Receive(peer) => others.get(&peer).map(|send| message(&send.call, &call)),
            Kind::AllReduce | Kind::ReduceScatter | Kind::AllGather | Kind::AllToAll | Kind::Broadcast(_) => {
                let mut calls: Vec<Call> = others.values().map(|other| other.call).collect();
                calls.insert(rank, call);
                collective(name, &calls)
            }
        };
        submit_for_all(gpu, stream, &others, work).inspect_err(|_| break_all(gpu, &others))?;
        Ok(None)
    }
}

/// Lets the streams of ranks continue whose call comes to nothing.
fn break_all(gpu: &SoftGpu, waiting: &BTreeMap<usize, Waiting>) {
    for waiting in waiting.values() {
        // One that was kept already has let its stream continue.
        let _ = gpu.break_promise(waiting.done);
    }
}

/// Submits work to `stream` after what the streams of the others have done, and lets them continue after it.
fn submit_for_all(
    gpu: &SoftGpu,
    stream: StreamHandle,
    others: &BTreeMap<usize, Waiting>,
    work: Option<softgpu::HostWork>,
) -> Result<(), DriverError> {
    for other in others.values() {
        gpu.wait_for_promise(stream, other.ready)?;
    }
    if let Some(work) = work {
        gpu.submit_host_work(stream, work)?;
    }
    others.values().try_for_each(|other| gpu.keep_promise(other.done, stream))
}

/// Submits calls together: none of them waits for the end of another one.
pub fn submit(gpu: &SoftGpu, submissions: &[Submission]) -> Result<(), Refusal> {
    let mut all_ready = vec![];
    for submission in submissions {
        let ready = gpu.promise()?;
        gpu.keep_promise(ready, submission.stream)?;
        all_ready.push(ready);
    }
    let mut waits = vec![];
    for (submission, ready) in submissions.iter().zip(all_ready) {
        let mut seat = sync::lock(&submission.seat);
        let number = seat.collectives;
        match submission.call.kind {
            Kind::Send(_) | Kind::Receive(_) => {}
            Kind::AllReduce | Kind::ReduceScatter | Kind::AllGather | Kind::AllToAll | Kind::Broadcast(_) => {
                seat.collectives += 1;
            }
        }
        let group = Arc::clone(&seat.group);
        let added = group.add(gpu, (seat.rank, number), submission, ready)?;
        waits.extend(added.map(|done| (submission.stream, done)));
    }
    for (stream, done) in waits {
        gpu.wait_for_promise(stream, done)?;
    }
    Ok(())
}
