//! Messages under way, with the memory that they use.
//!
//! The argument: a message owns its [`Source`] or its [`Target`] from before the library learns of it until the library
//! has ended it. After a failure [`Mover::release`] drops all of them, and no call is made any more: a library moves
//! bytes within its calls only. A peer that reads this process's memory by itself may still read it; its world has
//! failed, too, and it uses nothing of that. A peer that writes by itself may still write to a target, so targets are
//! never freed. The same holds for the memory of a collective, which is read and written.

use std::ffi::c_int;
use std::sync::mpsc::Sender;

use crate::collective::{Collective, CommunicatorNumber};
use crate::functions::{Calls, Code, Done};

/// The tag that no message has. All standards have tags up to it.
pub const IDLE_TAG: u32 = 32_767;

/// Memory that is sent.
///
/// # Safety
/// `bytes` returns the same memory as long as the value lives, also after a move, and nobody changes that memory.
pub unsafe trait Source: Send {
    /// The message.
    fn bytes(&self) -> &[u8];
}

/// Memory in which a message arrives.
///
/// # Safety
/// `place` returns the same memory as long as the value lives, also after a move, and nobody else uses that memory.
pub unsafe trait Target: Send {
    /// The longest message that is expected.
    fn place(&mut self) -> &mut [u8];

    /// Takes the message, whose bytes are the first `len_bytes` of the place.
    ///
    /// # Errors
    /// Why no message of this length may come.
    fn arrived(self: Box<Self>, len_bytes: usize) -> Result<(), String>;
}

/// Why no message moves any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The process that is the cause, as far as it is known.
    pub peer: Option<usize>,
    /// The event, as a clause about that process.
    pub description: String,
}

enum Message {
    Sent { peer: usize, _source: Box<dyn Source> },
    Received { peer: usize, target: Box<dyn Target> },
    Joined(Joint),
}

/// A collective that all processes of a communicator make.
pub(crate) struct Joint {
    pub(crate) communicator: CommunicatorNumber,
    pub(crate) collective: Collective,
    /// As long as the collective says, or longer.
    pub(crate) memory: Vec<u64>,
    /// Takes the memory when the collective has ended.
    pub(crate) done: Sender<Vec<u64>>,
}

impl Message {
    fn peer(&self) -> Option<usize> {
        match self {
            Message::Sent { peer, .. } | Message::Received { peer, .. } => Some(*peer),
            Message::Joined(_) => None,
        }
    }
}

/// The messages of one library.
pub(crate) struct Mover {
    calls: Box<dyn Calls>,
    own: usize,
    /// In the order of the library's requests.
    messages: Vec<Message>,
    /// Reused by every test.
    done: Vec<Done>,
}

fn number(value: usize) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

impl Mover {
    /// Moves messages of process `own`.
    pub(crate) fn new(calls: Box<dyn Calls>, own: usize) -> Mover {
        Mover { calls, own, messages: vec![], done: vec![] }
    }

    pub(crate) fn calls(&self) -> &dyn Calls {
        &*self.calls
    }

    /// Whether no message is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.messages.is_empty()
    }

    /// Begins to send `source` to process `peer`.
    pub(crate) fn send(&mut self, peer: usize, tag: u32, source: Box<dyn Source>) -> Result<(), Failure> {
        let bytes: *const [u8] = source.bytes();
        // SAFETY: `source` keeps the memory (contract of `Source`) and is dropped when the message has ended, or when
        // no call follows (top of this file).
        let sent = unsafe { self.calls.send(number(peer), tag.cast_signed(), bytes) };
        self.messages.extend(sent.is_ok().then_some(Message::Sent { peer, _source: source }));
        sent.map_err(|code| self.failure(Some(peer), "MPI_Isend", code))
    }

    /// Begins to receive from process `peer` into `target`.
    pub(crate) fn receive(&mut self, peer: usize, tag: u32, mut target: Box<dyn Target>) -> Result<(), Failure> {
        let place: *mut [u8] = target.place();
        // SAFETY: `target` keeps the memory for this message alone (contract of `Target`) until it has ended, and for
        // ever where no call follows (top of this file).
        let asked = unsafe { self.calls.receive(number(peer), tag.cast_signed(), place) };
        match asked {
            Ok(()) => self.messages.push(Message::Received { peer, target }),
            Err(_) => std::mem::forget(target),
        }
        asked.map_err(|code| self.failure(Some(peer), "MPI_Irecv", code))
    }

    /// Opens a communicator of these processes of the world. It returns when all of them have called it.
    pub(crate) fn open_communicator(&mut self, processes: &[usize], tag: u32) -> Result<CommunicatorNumber, Code> {
        let processes: Vec<c_int> = processes.iter().map(|process| number(*process)).collect();
        self.calls.open_communicator(&processes, tag.cast_signed()).map(CommunicatorNumber)
    }

    /// Frees communicators, of which no collective is under way.
    pub(crate) fn free_communicators(&mut self, numbers: &[CommunicatorNumber]) -> Result<(), Failure> {
        for number in numbers {
            let freed = self.calls.free_communicator(number.0);
            freed.map_err(|code| self.failure(None, "MPI_Comm_free", code))?;
        }
        Ok(())
    }

    /// Begins a collective.
    pub(crate) fn join(&mut self, mut joint: Joint) -> Result<(), Failure> {
        let len_bytes = joint.collective.size_bytes();
        assert!(size_of_val(&joint.memory[..]) >= len_bytes, "the memory of a collective is as long as it says");
        let memory: *mut [u8] = std::ptr::slice_from_raw_parts_mut(joint.memory.as_mut_ptr().cast(), len_bytes);
        // SAFETY: `joint` keeps the memory, which stays in place when it moves, and the parts; nobody else has the
        // memory until the collective has ended, or for ever where no call follows (top of this file).
        let begun = unsafe { self.calls.begin(joint.communicator.0, &joint.collective, memory) };
        let function = joint.collective.function();
        match begun {
            Ok(()) => self.messages.push(Message::Joined(joint)),
            Err(_) => std::mem::forget((joint.memory, joint.collective)),
        }
        begun.map_err(|code| self.failure(None, function, code))
    }

    /// Takes the messages that have ended; returns how many.
    pub(crate) fn test(&mut self) -> Result<usize, Failure> {
        self.done.clear();
        self.calls.test(&mut self.done).map_err(|code| self.failure_of_any(code))?;
        for &Done { index, len_bytes } in &self.done {
            match self.messages.swap_remove(index) {
                Message::Sent { .. } => {}
                // The rank that waits for it may have failed meanwhile.
                Message::Joined(Joint { memory, done, .. }) => drop(done.send(memory)),
                Message::Received { peer, target } => {
                    let taken = target.arrived(len_bytes);
                    taken.map_err(|description| Failure { peer: Some(peer), description })?;
                }
            }
        }
        Ok(self.done.len())
    }

    /// Lets the library work while nothing is under way here: what a peer waits for may still be in its buffers.
    pub(crate) fn progress(&self) -> Result<(), Failure> {
        let worked = self.calls.progress(number(self.own), IDLE_TAG.cast_signed());
        worked.map_err(|code| self.failure(None, "MPI_Iprobe", code))
    }

    /// Lets go of all messages. No call may follow.
    pub(crate) fn release(self) {
        for message in self.messages {
            match message {
                Message::Sent { .. } => {}
                Message::Received { target, .. } => std::mem::forget(target),
                // A library may also read the parts.
                Message::Joined(joint) => std::mem::forget((joint.memory, joint.collective)),
            }
        }
    }

    fn failure(&self, peer: Option<usize>, function: &str, code: Code) -> Failure {
        let description = format!("is not reached over MPI: {function}: {}", self.calls.error_text(code));
        Failure { peer, description }
    }

    /// The library names no message, so the first one's peer stands for all.
    fn failure_of_any(&self, code: Code) -> Failure {
        self.failure(self.messages.iter().find_map(Message::peer), "MPI_Testsome", code)
    }
}
