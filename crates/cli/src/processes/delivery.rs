//! Weights and records of checkpoints on their way from the ranks of other processes to process 0, over the control channel.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use checkpoint::{Finished, PieceCollector, ProcessPieces};
use config::ModelSpec;
use rendezvous::{Control, ControlError};
use train::{GatheringSink, Observer, SaveReport, TensorSink};

use crate::failure::Failure;

const TOPIC: &str = "delivery";
/// How often process 0 looks whether its own ranks have failed.
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
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Weight, Kind::Pieces, Kind::End];

    fn of(byte: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// The sending end, in a process other than 0.
#[derive(Clone, Copy)]
pub struct Deliverer<'a> {
    control: &'a Control,
}

impl<'a> Deliverer<'a> {
    /// Sends over `control`.
    pub fn new(control: &'a Control) -> Deliverer<'a> {
        Deliverer { control }
    }

    fn send(&self, kind: Kind, mut message: Vec<u8>) -> Result<(), ControlError> {
        message.insert(0, kind as u8);
        self.control.send_to_first(TOPIC, message)
    }

    /// A box of a weight, as a [`train::ForwardingSink`] has it. A box that cannot be sent is a failure of the run.
    pub fn weight(&self, message: Vec<u8>) {
        self.sent(self.send(Kind::Weight, message));
    }

    /// The end of all deliveries of this process.
    ///
    /// # Errors
    /// A message that is too large.
    pub fn end(&self) -> Result<(), Failure> {
        self.send(Kind::End, vec![]).map_err(|error| Failure::Work(error.to_string()))
    }

    fn sent(&self, result: Result<(), ControlError>) {
        if let Err(error) = result {
            self.control.report(rendezvous::FailureReport { cause: error.to_string(), ..Default::default() });
        }
    }
}

impl PieceCollector for Deliverer<'_> {
    fn deliver(&self, pieces: ProcessPieces) -> Option<Finished> {
        match pieces.to_bytes() {
            Ok(bytes) => self.sent(self.send(Kind::Pieces, bytes)),
            Err(error) => {
                self.control.report(rendezvous::FailureReport { cause: error.to_string(), ..Default::default() })
            }
        }
        None
    }
}

/// Where process 0 puts the deliveries of the others.
#[derive(Clone, Copy)]
pub struct Destinations<'a> {
    /// The model of the weights.
    pub model: &'a ModelSpec,
    /// Takes weights.
    pub weights: &'a dyn TensorSink,
    /// Takes records of pieces.
    pub pieces: &'a dyn PieceCollector,
    /// Hears of checkpoints that a delivery completes.
    pub observer: &'a dyn Observer,
}

/// Receives until all `others` processes have sent their end, or until `is_over` and nothing more can come.
///
/// # Errors
/// A failure of the run, and messages that belong to another one.
pub fn receive(
    control: &Control,
    others: usize,
    to: Destinations<'_>,
    is_over: impl Fn() -> bool,
) -> Result<(), Failure> {
    let weights = GatheringSink::new(to.model, to.weights);
    let mut begun: BTreeMap<u32, Instant> = BTreeMap::new();
    let mut ended = 0;
    while ended < others {
        let received = control.receive(TOPIC, GLANCE).map_err(|error| Failure::Work(error.to_string()))?;
        let Some((process, message)) = received else {
            if is_over() {
                return Ok(());
            }
            continue;
        };
        let other = |reason: String| Failure::Work(format!("{}: {reason}", control.directory().named(process)));
        let (kind, content) =
            message.split_first().map_or((None, &message[..]), |(kind, rest)| (Kind::of(*kind), rest));
        match kind {
            Some(Kind::Weight) => weights.take(content).map_err(|error| other(error.to_string()))?,
            Some(Kind::End) => ended += 1,
            Some(Kind::Pieces) => {
                let pieces = ProcessPieces::from_bytes(content).map_err(|error| other(error.to_string()))?;
                let steps = pieces.steps();
                let started = *begun.entry(steps).or_insert_with(Instant::now);
                if let Some(finished) = to.pieces.deliver(pieces) {
                    begun.remove(&steps);
                    to.observer.saved(SaveReport { steps, finished, wall: started.elapsed() });
                }
            }
            None => {
                return Err(other(
                    "it sent a delivery of an unknown kind; start all processes with the same program".into(),
                ));
            }
        }
    }
    Ok(())
}
