//! One rank: where it is, what it holds, and what it reaches the outside through.

pub mod batch;
pub mod bindings;
pub(crate) mod call_clock;
pub mod loss_scale;
pub(crate) mod memory;
pub mod ports;
pub mod position;
pub mod rank_state;
pub mod run_position;
pub(crate) mod save_stream;
pub mod spikes;
pub mod unit_state;

use std::time::Instant;

use checkpoint::SpikeState;
use config::Unit;
use device::{DeviceError, Frame, Stream};
use model::{Context, DropoutRun, EmbeddingParams, HeadParams, LayerParams, RouterRun};
use program::Purpose;

use crate::setup::WorkloadIndex;
use crate::worker::batch::TokenSource;
use crate::worker::bindings::Side;
use crate::worker::ports::RankPorts;
use crate::worker::rank_state::{Issued, RankState};
use crate::worker::run_position::RunPosition;

/// A rank between instructions.
pub struct Worker<'a> {
    /// Where it is in the run, in the mesh and in its program.
    pub position: RunPosition<'a>,
    /// Its tensors, and how far a step has filled them.
    pub state: RankState,
    /// Its device, its groups, its tokens and its storage.
    pub ports: RankPorts<'a>,
}

impl<'a> Worker<'a> {
    /// The losses and norms that a resumed run needs for the same decisions; none where no weight depends on them.
    pub fn spike_state(&self) -> Option<SpikeState> {
        self.position.setup.train.anomalies.depends_on_history().then(|| self.state.spikes.state())
    }

    /// Turns to another of the run's programs, and to other tokens. State stays as and where it is.
    pub fn take_up(&mut self, workload: WorkloadIndex, source: &'a dyn TokenSource) {
        self.position = self.position.taking_up(workload);
        self.ports.source = source;
        self.state.issued.clear();
        self.state.issued.resize(self.position.program.instrs.len(), None);
        let scratch = self.position.plan.scratch();
        self.state.scratch = Frame::new(scratch.offset_bytes, scratch.len_bytes);
    }

    /// When each instruction of the program ran, on the rank's own thread or on a stream's. Those that were not issued
    /// have no time.
    ///
    /// # Errors
    /// Failures of streams, which have ended everything when this returns.
    pub fn spans(&self) -> Result<Vec<Option<(Instant, Instant)>>, DeviceError> {
        self.ports.device.synchronize()?;
        let span = |issued: Issued| {
            let start = self.ports.device.reached(issued.start).map_or(issued.began, |before| before.max(issued.began));
            (start, self.ports.device.reached(issued.end).map_or(issued.returned, |end| end.max(start)))
        };
        Ok(self.state.issued.iter().map(|issued| issued.map(span)).collect())
    }

    /// Makes ready for step `step`: sums are zero, and every accumulator's first contribution will be assigned.
    ///
    /// # Errors
    /// The device's.
    pub fn begin_step(&mut self, step: u32) -> Result<(), DeviceError> {
        self.position.step = step;
        self.ports.communicators.begin_step();
        self.ports.calls.restart();
        self.state.begin_step(&*self.ports.device)
    }

    /// The context of a unit's functions, for the microbatch whose first sequence is `first_sequence`.
    ///
    /// # Errors
    /// An engine without a group that layers need.
    pub fn context(&self, first_sequence: u64) -> Result<Context<'_>, DeviceError> {
        let first_token = first_sequence * self.position.shape.sequence_length as u64;
        Ok(Context {
            device: &*self.ports.device,
            stream: Stream::Compute,
            tp: self.ports.communicators.over(self.position.setup.parallelism.tensor_axes())?,
            cp: self.ports.communicators.over(self.position.setup.parallelism.context_axes())?,
            ep: match self.position.setup.parallelism.ep {
                1 => None,
                _ => Some(self.ports.communicators.over(self.position.setup.parallelism.expert_axes())?),
            },
            model: &self.position.setup.model,
            shape: self.position.shape,
            sequence_parallel: self.position.sequence_parallel(),
            dropout: match self.position.program.view.purpose {
                Purpose::Train => {
                    Some(DropoutRun { seed: self.position.setup.train.seed, step: self.position.step, first_token })
                }
                Purpose::Evaluate | Purpose::Generate => None,
            },
            router_run: match self.position.program.view.purpose {
                Purpose::Train => Some(RouterRun { loss_scale: self.loss_scale_of_token() }),
                Purpose::Evaluate | Purpose::Generate => None,
            },
            stored: self.position.setup.stored(),
            products: self.position.setup.train.precision.products(),
            accumulation: self.position.accumulation(self.state.loss_scale.factor()),
            constants: self.state.constants,
            scratch: &self.state.scratch,
        })
    }

    /// Gradient of the objective with respect to one token's loss: the loss scale over the nominal number of tokens of
    /// a step.
    pub fn loss_scale_of_token(&self) -> f32 {
        (f64::from(self.state.loss_scale.factor()) / self.position.nominal_tokens()) as f32
    }

    /// The tables that the embedding reads, or adds gradients to, in the instruction that runs.
    pub fn embedding(&self, side: Side) -> &EmbeddingParams {
        self.state.bindings.embedding(side, self.position.offsets(Unit::Embedding, side))
    }

    /// The parameters of a layer; see [`Worker::embedding`].
    pub fn layer(&self, number: u32, side: Side) -> &LayerParams {
        self.state.bindings.layer(number, side, self.position.offsets(Unit::Layer(number), side))
    }

    /// The parameters of the head; see [`Worker::embedding`].
    pub fn head(&self, side: Side) -> &HeadParams {
        self.state.bindings.head(side, self.position.offsets(Unit::Head, side))
    }
}
