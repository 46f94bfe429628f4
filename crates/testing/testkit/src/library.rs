//! A library of collectives among "processes" that are threads: it adds in an order that a test gives, and may lose a
//! term.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use comm::{Library, LibraryCall, LibraryCommunicator, LibraryGroup, LibraryNumber, LibrarySums};
use mesh::{Group, Rank};
use sync::lock;

/// How long a process stops.
const STOPPED: Duration = Duration::from_secs(3);

/// How a library adds the parts of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adding {
    /// From the last process to the first.
    FromTheLast,
    /// Halves of the processes, each in the same way, then both.
    InHalves,
}

/// A term that is lost: that of the last process, in one call of every communicator of this size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostTerm {
    /// Processes of the communicator.
    pub processes: usize,
    /// The call, counted from 0.
    pub call: usize,
}

/// By lane and members.
type PendingByGroup = BTreeMap<(usize, Vec<Rank>), Arc<PendingCalls>>;

/// The library of a world of ranks in one process.
pub struct ThreadLibrary {
    /// By rank.
    process_of: Vec<usize>,
    adding: Adding,
    sums: LibrarySums,
    lost: Option<LostTerm>,
    stopped: Option<usize>,
    wait: Duration,
    pending: Mutex<PendingByGroup>,
}

impl ThreadLibrary {
    /// A library for ranks of these processes.
    pub fn new(process_of: Vec<usize>, adding: Adding, sums: LibrarySums) -> ThreadLibrary {
        let wait = Duration::from_secs(60);
        ThreadLibrary { process_of, adding, sums, lost: None, stopped: None, wait, pending: Mutex::default() }
    }

    /// The same, which loses a term.
    #[must_use]
    pub fn losing(self, lost: LostTerm) -> ThreadLibrary {
        ThreadLibrary { lost: Some(lost), ..self }
    }

    /// The same, in which this process of every communicator stops for three seconds as soon as it calls the library.
    #[must_use]
    pub fn stopping(self, process: usize) -> ThreadLibrary {
        ThreadLibrary { stopped: Some(process), ..self }
    }

    /// The same, with another deadline.
    #[must_use]
    pub fn with_wait(self, wait: Duration) -> ThreadLibrary {
        ThreadLibrary { wait, ..self }
    }
}

impl Library for ThreadLibrary {
    fn group(&self, lane: usize, group: &Group) -> Option<LibraryGroup> {
        let members: Vec<Rank> = group.members().to_vec();
        let mut by_process: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (position, rank) in members.iter().enumerate() {
            by_process.entry(self.process_of[rank.0]).or_default().push(position);
        }
        if by_process.len() < 2 {
            return None;
        }
        let own = by_process.keys().position(|process| *process == self.process_of[group.rank().0])?;
        let processes = by_process.len();
        let lost = self.lost.filter(|lost| lost.processes == processes).map(|lost| lost.call);
        let pending = || Arc::new(PendingCalls { adding: self.adding, lost, meetings: Mutex::default() });
        let pending = Arc::clone(lock(&self.pending).entry((lane, members)).or_insert_with(pending));
        let communicator =
            Arc::new(Communicator { pending, own, processes, stopped: self.stopped, calls: Mutex::default() });
        let by_process = by_process.into_values().collect();
        Some(LibraryGroup { communicator, by_process, sums: self.sums, wait: self.wait })
    }
}

/// The calls of one communicator that not all processes have joined.
struct PendingCalls {
    adding: Adding,
    lost: Option<usize>,
    /// By call: what each process has brought.
    meetings: Mutex<BTreeMap<usize, Vec<Contribution>>>,
}

struct Contribution {
    process: usize,
    collective: LibraryCall,
    memory: Vec<u64>,
    done: Sender<Vec<u64>>,
}

/// One process's end.
struct Communicator {
    pending: Arc<PendingCalls>,
    own: usize,
    processes: usize,
    stopped: Option<usize>,
    calls: Mutex<usize>,
}

impl LibraryCommunicator for Communicator {
    fn begin(&self, collective: LibraryCall, memory: Vec<u64>) -> Receiver<Vec<u64>> {
        let (done, ended) = channel();
        let call = {
            let mut calls = lock(&self.calls);
            *calls += 1;
            *calls - 1
        };
        if self.stopped == Some(self.own) {
            // Long enough for the others to say so.
            std::thread::sleep(STOPPED);
        }
        let mut meetings = lock(&self.pending.meetings);
        let meeting = meetings.entry(call).or_default();
        meeting.push(Contribution { process: self.own, collective, memory, done });
        if meeting.len() == self.processes {
            let mut all = meetings.remove(&call).unwrap_or_default();
            drop(meetings);
            all.sort_by_key(|brought| brought.process);
            self.pending.end(call, all);
        }
        ended
    }
}

impl PendingCalls {
    fn end(&self, call: usize, mut all: Vec<Contribution>) {
        let collective = all[0].collective.clone();
        // The parts that processes exchange have as many bytes as each has members.
        let is_same = |other: &LibraryCall| match (&collective, other) {
            (LibraryCall::AllToAll { .. }, LibraryCall::AllToAll { .. }) => true,
            (one, other) => one == other,
        };
        assert!(all.iter().all(|brought| is_same(&brought.collective)), "all processes make the same call");
        match &collective {
            LibraryCall::AllReduce { number, len } => {
                let sums = self.sums(*number, *len, call, &all);
                all.iter_mut().for_each(|brought| brought.memory[..sums.len()].copy_from_slice(&sums));
            }
            LibraryCall::ReduceScatter { number, parts } => {
                let sums = self.sums(*number, parts.total(), call, &all);
                let width = number.size_bytes();
                let sums: &[u8] = bytemuck::cast_slice(&sums);
                for (process, brought) in all.iter_mut().enumerate() {
                    // MPI leaves the rest of the memory unspecified.
                    brought.memory.fill(u64::MAX);
                    let (start, len) = (parts.start_of(process) * width, parts.len_of(process) * width);
                    let memory: &mut [u8] = bytemuck::cast_slice_mut(&mut brought.memory);
                    memory[..len].copy_from_slice(&sums[start..start + len]);
                }
            }
            LibraryCall::AllGather { parts } => {
                let part = |(process, brought): (usize, &Contribution)| {
                    let bytes: &[u8] = bytemuck::cast_slice(&brought.memory);
                    bytes[parts.start_of(process)..][..parts.len_of(process)].to_vec()
                };
                let whole: Vec<u8> = all.iter().enumerate().flat_map(part).collect();
                for brought in &mut all {
                    let memory: &mut [u8] = bytemuck::cast_slice_mut(&mut brought.memory);
                    memory[..whole.len()].copy_from_slice(&whole);
                }
            }
            LibraryCall::AllToAll { .. } => exchange(&mut all),
            LibraryCall::Broadcast { root, len } => {
                let bytes: &[u8] = bytemuck::cast_slice(&all[*root].memory);
                let bytes = bytes[..*len].to_vec();
                for brought in &mut all {
                    let memory: &mut [u8] = bytemuck::cast_slice_mut(&mut brought.memory);
                    memory[..*len].copy_from_slice(&bytes);
                }
            }
            LibraryCall::Barrier => {}
        }
        // A rank that has failed meanwhile takes nothing.
        all.into_iter().for_each(|Contribution { memory, done, .. }| drop(done.send(memory)));
    }

    /// The sums of `len` numbers, as words.
    fn sums(&self, number: LibraryNumber, len: usize, call: usize, all: &[Contribution]) -> Vec<u64> {
        let kept = all.len() - usize::from(self.lost == Some(call));
        let terms = &all[..kept];
        let mut sums = vec![0u64; (len * number.size_bytes()).div_ceil(8)];
        match number {
            LibraryNumber::Single => {
                let of: Vec<&[f32]> = terms.iter().map(|brought| bytemuck::cast_slice(&brought.memory)).collect();
                let sums: &mut [f32] = bytemuck::cast_slice_mut(&mut sums);
                for (at, sum) in sums[..len].iter_mut().enumerate() {
                    *sum = self.added(&of.iter().map(|term| term[at]).collect::<Vec<_>>());
                }
            }
            LibraryNumber::Integer => {
                for (at, sum) in sums.iter_mut().enumerate() {
                    *sum = terms.iter().fold(0, |sum: u64, brought| sum.wrapping_add(brought.memory[at]));
                }
            }
        }
        sums
    }

    fn added(&self, terms: &[f32]) -> f32 {
        match (self.adding, terms) {
            (_, []) => 0.0,
            (_, [one]) => *one,
            (Adding::FromTheLast, [first, rest @ ..]) => self.added(rest) + first,
            (Adding::InHalves, terms) => {
                let (first, second) = terms.split_at(terms.len() / 2);
                self.added(first) + self.added(second)
            }
        }
    }
}

/// Part `p` of the second half of a process's memory becomes what process `p` has for it in the first.
fn exchange(all: &mut [Contribution]) {
    let sent: Vec<Vec<u8>> = all.iter().map(|brought| bytemuck::cast_slice(&brought.memory).to_vec()).collect();
    let parts = |brought: &Contribution| match &brought.collective {
        LibraryCall::AllToAll { parts } => Some(parts.clone()),
        LibraryCall::AllReduce { .. }
        | LibraryCall::ReduceScatter { .. }
        | LibraryCall::AllGather { .. }
        | LibraryCall::Broadcast { .. }
        | LibraryCall::Barrier => None,
    };
    let of_senders: Vec<_> = all.iter().filter_map(parts).collect();
    for (process, brought) in all.iter_mut().enumerate() {
        let own = &of_senders[process];
        let memory: &mut [u8] = bytemuck::cast_slice_mut(&mut brought.memory);
        for (sender, parts) in of_senders.iter().enumerate() {
            let len = own.len_of(sender);
            assert_eq!(len, parts.len_of(process), "two processes agree on what they exchange");
            let (from, to) = (parts.start_of(process), own.total() + own.start_of(sender));
            memory[to..to + len].copy_from_slice(&sent[sender][from..from + len]);
        }
    }
}
