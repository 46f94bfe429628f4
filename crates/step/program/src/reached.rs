//! How far the streams of one rank are: the measure of order within a rank.

use device::Stream;

use crate::Instr;

/// For each stream of a rank, how many instructions of the program are known to have ended on it: the index of the last
/// one, plus one.
///
/// Instructions of a stream end in program order, so one number per stream says it for all before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached([u32; Stream::COUNT]);

impl Reached {
    /// Nothing has ended.
    pub const NOTHING: Reached = Reached([0; Stream::COUNT]);

    /// The instruction with this index on `stream`, and what comes before it there.
    pub fn one(stream: Stream, index: usize) -> Reached {
        let mut reached = Reached::NOTHING;
        reached.add(stream, index);
        reached
    }

    /// Adds the instruction with this index on `stream`.
    pub fn add(&mut self, stream: Stream, index: usize) {
        let own = &mut self.0[stream.index()];
        *own = (*own).max(index as u32 + 1);
    }

    /// Adds all that `other` knows.
    pub fn join(&mut self, other: &Reached) {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            *own = (*own).max(other);
        }
    }

    /// Index of the last instruction of `stream` that has ended.
    pub fn last_on(&self, stream: Stream) -> Option<usize> {
        (self.0[stream.index()] as usize).checked_sub(1)
    }

    /// Whether the instruction with this index on `stream` has ended.
    pub fn has(&self, stream: Stream, index: usize) -> bool {
        self.0[stream.index()] as usize > index
    }

    /// The last instruction of each stream on which one has ended.
    pub fn each(&self) -> impl Iterator<Item = (Stream, usize)> + '_ {
        Stream::ALL.into_iter().filter_map(|stream| Some((stream, self.last_on(stream)?)))
    }

    /// The same without `stream`.
    pub fn without(mut self, stream: Stream) -> Reached {
        self.0[stream.index()] = 0;
        self
    }
}

/// The streams of a program in which nothing was waited for: a walk that knows, at each instruction, what has ended
/// before it.
pub(crate) struct Order<'a> {
    instrs: &'a [Instr],
    /// The order that is known at the end of each stream.
    fronts: [Reached; Stream::COUNT],
    /// The order that is known once each instruction has ended.
    after: Vec<Reached>,
}

impl<'a> Order<'a> {
    pub(crate) fn new(instrs: &'a [Instr]) -> Order<'a> {
        Order { instrs, fronts: [Reached::NOTHING; Stream::COUNT], after: Vec::with_capacity(instrs.len()) }
    }

    /// The order that is known on the stream of the next instruction without a wait.
    pub(crate) fn before(&self) -> Reached {
        self.fronts[self.instrs[self.after.len()].stream().index()]
    }

    /// The order that is known once the instruction with this index has ended, which must be before the next one.
    pub(crate) fn after(&self, index: usize) -> Reached {
        self.after[index]
    }

    /// The next instruction waits for these and ends.
    pub(crate) fn step(&mut self, waits: impl Iterator<Item = usize>) {
        let (index, stream) = (self.after.len(), self.instrs[self.after.len()].stream());
        let mut front = self.fronts[stream.index()];
        waits.for_each(|awaited| front.join(&self.after[awaited]));
        front.add(stream, index);
        self.fronts[stream.index()] = front;
        self.after.push(front);
    }
}
