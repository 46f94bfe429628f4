//! The surroundings of a layer: the device, the tensor-parallel group, the model and the microbatch's sizes.

use std::ops::Range;

use config::{ContextKind, ModelSpec, Products, SequenceParallel, SequenceSlices};
use device::{Communicator, Device, DeviceError, DropoutKey, Dtype, Frame, Op, Reduction, Stream, SumTree, Tensor};

use crate::constants::Constants;
use crate::dropout::ResidualDropout;
use crate::gradient_sums::Accumulation;

/// Sequences and tokens of one microbatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MicrobatchShape {
    /// Sequences `B`.
    pub sequences: usize,
    /// Tokens `S` of each sequence, on all ranks that share it.
    pub sequence_length: usize,
    /// Which of them this rank has.
    pub slices: SequenceSlices,
}

impl MicrobatchShape {
    /// Whole sequences.
    pub const fn whole(sequences: usize, sequence_length: usize) -> MicrobatchShape {
        MicrobatchShape { sequences, sequence_length, slices: SequenceSlices::WHOLE }
    }

    /// Tokens that a rank has of a sequence: `S / cp`.
    pub fn tokens_of_sequence(self) -> usize {
        self.slices.tokens(self.sequence_length)
    }

    /// Rows `T = B * S / cp` of every activation.
    pub fn tokens(self) -> usize {
        self.sequences * self.tokens_of_sequence()
    }
}

/// Which random numbers the dropout masks of this microbatch take. The probabilities are the model's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropoutRun {
    /// Seed of the run.
    pub seed: u64,
    /// Optimizer step.
    pub step: u32,
    /// Index within the step of the first token of the microbatch: global sequence index times sequence length.
    pub first_token: u64,
}

/// How routers are trained in this step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouterRun {
    /// Gradient of the objective with respect to one token's loss, as that of the head: the loss scale over the nominal
    /// number of tokens of a step.
    pub loss_scale: f32,
}

/// One dropout of the model; distinct sites draw distinct masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropoutSite(u32);

impl DropoutSite {
    /// After the sum of token and position embedding.
    pub const EMBEDDING: DropoutSite = DropoutSite(u32::MAX);

    /// Attention probabilities of `layer`.
    pub fn attention_probabilities(layer: u32) -> DropoutSite {
        DropoutSite(layer * 4)
    }

    /// Output of the attention block of `layer`.
    pub fn attention_output(layer: u32) -> DropoutSite {
        DropoutSite(layer * 4 + 1)
    }

    /// Output of the feed-forward block of `layer`.
    pub fn feed_forward_output(layer: u32) -> DropoutSite {
        DropoutSite(layer * 4 + 2)
    }
}

/// Everything that a unit's functions share. A layer finds here neither its stage, nor the microbatch's number, nor
/// ZeRO.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Executes operations.
    pub device: &'a dyn Device,
    /// Where they are enqueued.
    pub stream: Stream,
    /// The tensor-parallel group; a group of one is not a special case.
    pub tp: &'a dyn Communicator,
    /// The ranks that share the tokens of every sequence, in the order of [`config::SequenceSlices`].
    pub cp: &'a dyn Communicator,
    /// The ranks that divide the experts of a layer, in the order of these; `None` where each has all that its
    /// tensor-parallel rank has.
    pub ep: Option<&'a dyn Communicator>,
    /// Global sizes and kinds.
    pub model: &'a ModelSpec,
    /// Rows of the activations.
    pub shape: MicrobatchShape,
    /// Whether the group divides the rows of the residual stream.
    pub sequence_parallel: SequenceParallel,
    /// `None` leaves every value in place: evaluation and generation. The same in a unit's forward and backward passes.
    pub dropout: Option<DropoutRun>,
    /// `None` neither counts choices nor trains routers by losses of their own: evaluation and generation.
    pub router_run: Option<RouterRun>,
    /// The type in which activations and their gradients are stored; parameters have the type of their own tensors.
    pub stored: Dtype,
    /// The order in which products add their terms.
    pub products: Products,
    /// The type of accumulators of gradients.
    pub accumulation: Accumulation,
    /// Rotary tables and the step's sums.
    pub constants: Constants,
    /// Temporary memory: empty before and after each function of a unit.
    pub scratch: &'a Frame,
}

impl Context<'_> {
    /// Whether gradients of all parameters are made, not of adapters alone.
    pub(crate) fn trains_all(&self) -> bool {
        self.model.lora.is_none()
    }

    /// The next `[rows, cols]` of `frame` for an activation or its gradient.
    pub(crate) fn activation(&self, frame: &Frame, rows: usize, cols: usize) -> Tensor {
        frame.tensor(rows, cols, self.stored)
    }

    /// Enqueues one operation on the context's stream.
    pub(crate) fn submit(&self, op: Op) -> Result<(), DeviceError> {
        self.device.submit(self.stream, &op)
    }

    /// Sums `counts`, in place, over the ranks that share sequences.
    pub(crate) fn sum_over_sequences(&self, counts: Tensor) -> Result<(), DeviceError> {
        if self.shape.slices.ranks == 1 {
            return Ok(());
        }
        self.cp.all_reduce(self.stream, counts, Reduction::Sum(SumTree::RANK_ORDER))
    }

    /// The rows of the microbatch that this rank holds of the residual stream: all, or its run of them.
    pub(crate) fn residual_rows(&self) -> Range<usize> {
        match self.sequence_parallel {
            SequenceParallel::Off => 0..self.shape.tokens(),
            SequenceParallel::On => self.run_of_rows(),
        }
    }

    /// This rank's run of rows, where the group shards them.
    pub(crate) fn run_of_rows(&self) -> Range<usize> {
        let rows = self.shape.tokens() / self.tp.size();
        let first = self.tp.position() * rows;
        first..first + rows
    }

    /// A tensor of the residual stream `[R, D]` from `frame`.
    pub fn residual(&self, frame: &Frame) -> Tensor {
        self.activation(frame, self.residual_rows().len(), self.model.hidden)
    }

    /// The mask of a dropout on the residual stream, or `None` where nothing is dropped.
    pub(crate) fn residual_dropout(&self, site: DropoutSite) -> Option<ResidualDropout> {
        self.dropout_key(site, self.model.dropout, 0).map(ResidualDropout::new)
    }

    /// A mask of the microbatch, from its token `token` on.
    pub(crate) fn key_at_token(&self, key: DropoutKey, token: usize) -> DropoutKey {
        DropoutKey { first_token: key.first_token + token as u64, ..key }
    }

    /// The mask of attention probabilities from the first token of the microbatch on; columns are heads, so that every
    /// rank draws those of its own.
    pub(crate) fn attention_dropout(&self, site: DropoutSite, first_head: usize) -> Option<DropoutKey> {
        self.dropout_key(site, self.model.attention_dropout, first_head as u32)
    }

    fn dropout_key(&self, site: DropoutSite, probability: f32, first_channel: u32) -> Option<DropoutKey> {
        let run = self.dropout.filter(|_| probability > 0.0)?;
        Some(DropoutKey {
            seed: run.seed,
            step: run.step,
            site: site.0,
            first_token: run.first_token,
            first_channel,
            probability,
        })
    }
}

/// The inputs of a microbatch: functions of the data index, so every stage loads them itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Batch {
    /// Token ids `[1, T]`.
    pub tokens: Tensor,
    /// The next token of each token `[1, T]`, or [`config::IGNORED_LABEL`].
    pub labels: Tensor,
    /// Place of each token in its sequence `[1, T]`, below the model's context.
    pub positions: Tensor,
    /// The keys that each query sees.
    pub visible: Visible,
    /// Those in its window, where the model has local layers.
    pub local: Option<Visible>,
    /// Labels of all tokens of the sequences `[1, B S]`, where ranks share them.
    pub labels_of_all: Option<Tensor>,
}

/// The interval `[first, last)` of keys that each query sees, counted within its sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Visible {
    /// Of this rank's queries `[T, 2]`.
    pub own: Tensor,
    /// Of all queries of the sequences `[B S, 2]`, where ranks share them and exchange heads.
    pub of_all: Option<Tensor>,
}

impl Batch {
    /// Lays out the inputs of one microbatch of `model` at the start of `frame`.
    pub fn lay_out(frame: &Frame, model: &ModelSpec, shape: MicrobatchShape) -> Batch {
        let (tokens, all) = (shape.tokens(), shape.sequences * shape.sequence_length);
        let exchanges_heads = shape.slices.ranks > 1 && shape.slices.kind == ContextKind::Heads;
        let visible = || Visible {
            own: frame.tensor(tokens, 2, Dtype::I32),
            of_all: exchanges_heads.then(|| frame.tensor(all, 2, Dtype::I32)),
        };
        Batch {
            tokens: frame.tensor(1, tokens, Dtype::I32),
            labels: frame.tensor(1, tokens, Dtype::I32),
            positions: frame.tensor(1, tokens, Dtype::I32),
            visible: visible(),
            local: model.local_attention.as_ref().map(|_| visible()),
            labels_of_all: (shape.slices.ranks > 1).then(|| frame.tensor(1, all, Dtype::I32)),
        }
    }

    /// The keys that queries of a layer with this window see.
    pub(crate) fn visible_in(&self, window: Option<usize>) -> Visible {
        self.local.filter(|_| window.is_some()).unwrap_or(self.visible)
    }
}
