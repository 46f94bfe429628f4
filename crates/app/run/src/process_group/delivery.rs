//! Tensors and records of checkpoints on their way from the ranks of other processes to process 0, over the control
//! channel.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use checkpoint::{CheckpointError, Finished, PieceCollector, ProcessPieces};
use config::ModelSpec;
use rendezvous::{Control, ControlError};
use sync::lock;
use train::{GatheringSink, LogitsSink, Observer, SaveReport, TensorSink, take_logits};

use crate::failure::Failure;
use crate::process_group::group::ProcessGroup;
use crate::process_group::member::GroupMember;

/// How often an end looks whether the run has failed.
const GLANCE: Duration = Duration::from_millis(200);

/// The first byte of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A box of a weight.
    Weight = 0,
    /// Records of the pieces of a checkpoint.
    Pieces = 1,
    /// Nothing more comes from this process.
    End = 2,
    /// A box of a gradient.
    Gradient = 3,
    /// Rows of logits.
    Logits = 4,
}

impl Kind {
    const ALL: [Kind; 5] = [Kind::Weight, Kind::Pieces, Kind::End, Kind::Gradient, Kind::Logits];

    fn of(byte: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// Messages of a process that process 0 has not put to their place yet. More wait where they are made, so that neither
/// end holds a delivery in memory: messages of tensors have 4 MiB, or a row.
const WINDOW: usize = 8;

/// The sending end of a delivery, in a process other than 0.
pub struct Deliverer<'a> {
    control: &'a Control,
    topic: String,
    /// Number of messages that process 0 has not answered.
    unanswered: Mutex<usize>,
}

impl<'a> Deliverer<'a> {
    /// Begins the next delivery. Process 0 takes it with [`receive_while`].
    pub fn begin(member: &'a GroupMember) -> Deliverer<'a> {
        Deliverer { control: &member.control, topic: topic(member), unanswered: Mutex::new(0) }
    }

    fn send(&self, kind: Kind, mut message: Vec<u8>) -> Result<(), ControlError> {
        message.insert(0, kind as u8);
        let mut unanswered = lock(&self.unanswered);
        while *unanswered >= WINDOW {
            *unanswered -= usize::from(self.control.receive(&self.topic, GLANCE)?.is_some());
        }
        *unanswered += 1;
        self.control.send_to_first(&self.topic, message)
    }

    /// A box of a weight, as a [`train::ForwardingSink`] has it. A box that cannot be sent is a failure of the run.
    pub fn weight(&self, message: Vec<u8>) {
        self.sent(self.send(Kind::Weight, message));
    }

    /// Sends a gradient, as [`Deliverer::weight`] sends a weight.
    pub fn gradient(&self, message: Vec<u8>) {
        self.sent(self.send(Kind::Gradient, message));
    }

    /// Sends rows of logits, as [`Deliverer::weight`] sends a weight.
    pub fn logits(&self, message: Vec<u8>) {
        self.sent(self.send(Kind::Logits, message));
    }

    /// The end of this process's part of the delivery.
    ///
    /// # Errors
    /// A message that is too large.
    pub fn end(self) -> Result<(), Failure> {
        self.send(Kind::End, vec![]).map_err(|error| Failure::Work(error.to_string()))
    }

    fn sent<E: fmt::Display>(&self, result: Result<(), E>) {
        if let Err(error) = result {
            self.control.report(rendezvous::FailureReport { cause: error.to_string(), ..Default::default() });
        }
    }
}

impl PieceCollector for Deliverer<'_> {
    fn deliver(&self, pieces: ProcessPieces) -> Option<Finished> {
        self.sent(pieces.to_bytes().map(|bytes| self.sent(self.send(Kind::Pieces, bytes))));
        None
    }

    /// Rank 0, which measures for all, is in process 0.
    fn measured(&self, _steps: u32, _held_out_loss: f64) -> Result<(), CheckpointError> {
        Ok(())
    }
}

/// The name of the next delivery. Each has a name of its own: a process may begin one while process 0 still awaits the
/// end of the one before from another process.
fn topic(member: &GroupMember) -> String {
    format!("delivery {}", member.next_delivery())
}

/// Where process 0 puts the deliveries of the others. Without a place, a delivery is an error.
#[derive(Clone, Copy, Default)]
pub struct Destinations<'a> {
    /// Takes weights.
    pub weights: Option<&'a dyn TensorSink>,
    /// Takes gradients.
    pub gradients: Option<&'a dyn TensorSink>,
    /// Takes logits.
    pub logits: Option<&'a dyn LogitsSink>,
    /// Takes records of pieces.
    pub pieces: Option<PieceDestination<'a>>,
}

/// See [`Destinations::pieces`].
#[derive(Clone, Copy)]
pub struct PieceDestination<'a> {
    /// Takes records of pieces.
    pub collector: &'a dyn PieceCollector,
    /// Hears of checkpoints that a delivery completes.
    pub observer: &'a dyn Observer,
}

/// Does `work` with the ranks of process 0, while a thread takes the delivery of the others' ranks. `model` is that of
/// the tensors.
///
/// # Errors
/// The error of `work`, a failure of the run, and messages that belong to another one.
pub fn receive_while<T>(
    process_group: &ProcessGroup,
    model: &ModelSpec,
    to: Destinations<'_>,
    work: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let ProcessGroup::Several(member) = process_group else { return work() };
    let has_failed = AtomicBool::new(false);
    let mut receiver = Receiver::new(member, model, to);
    std::thread::scope(|scope| {
        let has_failed = &has_failed;
        let receiving =
            sync::start_scoped(scope, "delivery", move || receiver.receive(|| has_failed.load(Ordering::Acquire)))?;
        let worked = work();
        // The others of a run that returns to a checkpoint send their ends, after a checkpoint that is on its way.
        let is_over = worked.as_ref().is_err_and(|failure| !matches!(failure, Failure::RollBack { .. }));
        has_failed.store(is_over, Ordering::Release);
        let received =
            receiving.join().unwrap_or_else(|_| Err(Failure::Work("the thread that gathers tensors ended".into())));
        worked.and_then(|value| received.map(|()| value))
    })
}

/// The receiving end of a delivery.
struct Receiver<'a> {
    member: &'a GroupMember,
    topic: String,
    weights: Option<GatheringSink<'a>>,
    gradients: Option<GatheringSink<'a>>,
    to: Destinations<'a>,
    /// When the first record of a checkpoint came, by its step.
    begun: BTreeMap<u32, Instant>,
}

/// A message of another process: a part of its tensors, or the end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Received {
    Part,
    End,
}

impl<'a> Receiver<'a> {
    fn new(member: &'a GroupMember, model: &ModelSpec, to: Destinations<'a>) -> Receiver<'a> {
        let gathering = |sink: Option<&'a dyn TensorSink>| sink.map(|sink| GatheringSink::new(model, sink));
        Receiver {
            member,
            topic: topic(member),
            weights: gathering(to.weights),
            gradients: gathering(to.gradients),
            to,
            begun: BTreeMap::new(),
        }
    }

    /// Receives until all others have sent their end, or until `is_over` and nothing more can come.
    fn receive(&mut self, is_over: impl Fn() -> bool) -> Result<(), Failure> {
        let control = &self.member.control;
        let mut ended = 0;
        while ended + 1 < self.member.processes() {
            let received = control.receive(&self.topic, GLANCE).map_err(|error| Failure::Work(error.to_string()))?;
            let Some((process, message)) = received else {
                if is_over() {
                    return Ok(());
                }
                continue;
            };
            let received = self
                .take(&message)
                .map_err(|reason| Failure::Work(format!("{}: {reason}", control.directory().named(process))))?;
            match received {
                Received::End => ended += 1,
                Received::Part => {
                    let answered = control.send_to(process, &self.topic, vec![]);
                    answered.map_err(|error| Failure::Work(error.to_string()))?;
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, message: &[u8]) -> Result<Received, String> {
        let unknown = || "it sent a delivery of an unknown kind; start all processes with the same program".to_string();
        let (kind, content) = message.split_first().ok_or_else(unknown)?;
        match Kind::of(*kind).ok_or_else(unknown)? {
            Kind::End => return Ok(Received::End),
            Kind::Weight => {
                self.weights.as_ref().ok_or_else(unknown)?.take(content).map_err(|error| error.to_string())?;
            }
            Kind::Gradient => {
                self.gradients.as_ref().ok_or_else(unknown)?.take(content).map_err(|error| error.to_string())?;
            }
            Kind::Logits => {
                take_logits(content, self.to.logits.ok_or_else(unknown)?).map_err(|error| error.to_string())?;
            }
            Kind::Pieces => self.take_pieces(content, self.to.pieces.ok_or_else(unknown)?)?,
        }
        Ok(Received::Part)
    }

    fn take_pieces(&mut self, content: &[u8], to: PieceDestination<'_>) -> Result<(), String> {
        let pieces = ProcessPieces::from_bytes(content).map_err(|error| error.to_string())?;
        // A step has one checkpoint, on the disk or in memory.
        let (steps, data) = (pieces.steps(), pieces.data());
        let started = *self.begun.entry(steps).or_insert_with(Instant::now);
        if let Some(finished) = to.collector.deliver(pieces) {
            self.begun.remove(&steps);
            to.observer.saved(SaveReport { steps, data, finished, wall: started.elapsed() });
        }
        Ok(())
    }
}
