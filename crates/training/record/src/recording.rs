//! The operations, communication and memory of a unit: its own code, run on a device that only records.

use std::collections::BTreeMap;
use std::rc::Rc;

use comm::collectives::Traffic;
use comm::{CollectiveCall, MetaCommunicator, Operation};
use config::{
    GradientSums, LayerRecompute, ModelSpec, Products, SavedInputs, SequenceParallel, Tied, Unit, UnitLayout,
};
use device::{Communicator, DeviceError, Dtype, Frame, MetaDevice, Record, Stream, Write};
use mesh::{Axis, AxisSizes};
use model::{
    Accumulation, AdapterBuffers, Batch, BindError, CacheSize, Constants, Context, DropoutRun, Embedding,
    EmbeddingGradients, EmbeddingParams, Head, HeadGradients, HeadParams, KeyValueCache, Layer, LayerParams,
    MicrobatchShape, Residual, RouterRun, SavedFrames, TensorParallel, saved_input,
};
use program::{PassKind, Purpose};
use thiserror::Error;

use crate::streams::{Enqueued, Log, OrderedDevice, OrderedGroup};

/// Why a unit could not be recorded.
#[derive(Debug, Error)]
pub enum RecordError {
    /// See [`BindError`].
    #[error(transparent)]
    Bind(#[from] BindError),
    /// See [`DeviceError`].
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// The recorded case: one microbatch of a model on one tensor-parallel rank.
#[derive(Clone, Copy, Debug)]
pub struct RecordCase<'a> {
    pub model: &'a ModelSpec,
    /// The rank.
    pub tp: TensorParallel,
    /// Ranks that divide the experts of a layer.
    pub ep: usize,
    /// Sequences and tokens.
    pub shape: MicrobatchShape,
    /// The stored type of parameters and activations.
    pub stored: Dtype,
    /// The order in which products add their terms.
    pub products: Products,
    /// The data type in which gradients are summed.
    pub sums: GradientSums,
    /// Whether the group divides the tokens of the residual stream.
    pub sequence_parallel: SequenceParallel,
    /// The recomputed part of a layer; nothing, where the purpose is not training.
    pub recompute: LayerRecompute,
    /// Training, evaluation or generation.
    pub purpose: Purpose,
    /// Whether gradients are assigned, as on a step's first microbatch, or accumulated.
    pub write: Write,
}

/// The record of one function of a unit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnitRecord {
    /// Operations and their costs.
    pub record: Record,
    /// Traffic of this rank in the groups of its layers, by collective.
    pub sent: BTreeMap<Operation, Traffic>,
    /// The collectives of the groups of layers, in order.
    pub collectives: Vec<CollectiveCall>,
    /// The order of operations and collectives, where some of them are on other streams than the one that computes;
    /// empty elsewhere.
    pub order: Vec<Enqueued>,
    /// Bytes used of each section.
    pub saved_until_input_bytes: usize,
    /// See [`Footprint`].
    pub saved_until_weight_bytes: usize,
    /// See [`Footprint`].
    pub core_until_input_bytes: usize,
    /// See [`Footprint`].
    pub core_until_weight_bytes: usize,
    /// See [`Footprint`].
    pub saved_input_bytes: usize,
    /// See [`Footprint`].
    pub pending_bytes: usize,
    /// See [`Footprint`].
    pub scratch_bytes: usize,
}

/// Runs one function of a unit on a recording device. Functions that a unit does not have, or that `case.purpose` does
/// not call, do nothing.
///
/// # Errors
/// The declared parameters are not those that the layers read.
pub fn record_unit(case: &RecordCase, unit: Unit, phase: PassKind) -> Result<UnitRecord, RecordError> {
    let recorder = Recorder::new(case);
    match unit {
        Unit::Table | Unit::Adapters(_) | Unit::Experts(_) => {}
        Unit::Embedding => recorder.embedding(phase)?,
        Unit::Layer(number) => recorder.layer(number, phase)?,
        Unit::Head => recorder.head(phase)?,
    }
    Ok(recorder.finish())
}

/// A recording device with a frame for everything that a unit's functions are handed.
struct Recorder<'a> {
    case: &'a RecordCase<'a>,
    device: OrderedDevice,
    tp: OrderedGroup,
    cp: OrderedGroup,
    ep: Option<OrderedGroup>,
    log: Rc<Log>,
    /// Parameters, gradients, activations and constants: whatever is not measured.
    other: Frame,
    until_input: Frame,
    until_weight: Frame,
    core_until_input: Frame,
    core_until_weight: Frame,
    saved_input: Frame,
    pending: Frame,
    scratch: Frame,
}

impl<'a> Recorder<'a> {
    fn new(case: &'a RecordCase<'a>) -> Recorder<'a> {
        let log = Rc::<Log>::default();
        let group = |inner| OrderedGroup { inner, log: Rc::clone(&log) };
        Recorder {
            case,
            device: OrderedDevice { inner: MetaDevice::default(), log: Rc::clone(&log) },
            tp: group(MetaCommunicator::new(Axis::Tp.into(), case.tp.size, case.tp.position)),
            // With balanced chunks all ranks do as much as the first.
            cp: group(MetaCommunicator::new(Axis::Cp.into(), case.shape.slices.ranks, 0)),
            // With balanced routing, too.
            ep: (case.ep > 1).then(|| group(MetaCommunicator::new(Axis::Ep.into(), case.ep, 0))),
            other: Frame::measuring(),
            until_input: Frame::measuring(),
            until_weight: Frame::measuring(),
            core_until_input: Frame::measuring(),
            core_until_weight: Frame::measuring(),
            saved_input: Frame::measuring(),
            pending: Frame::measuring(),
            scratch: Frame::measuring(),
            log,
        }
    }

    fn finish(self) -> UnitRecord {
        let mut sent = self.tp.inner.take_sent();
        let others = std::iter::once(&self.cp).chain(&self.ep);
        for (operation, traffic) in others.flat_map(|group| group.inner.take_sent()) {
            let sum = sent.entry(operation).or_default();
            *sum = *sum + traffic;
        }
        let (collectives, order) = self.log.take();
        UnitRecord {
            record: self.device.inner.take_record(),
            sent,
            collectives,
            order,
            saved_until_input_bytes: self.until_input.peak_bytes(),
            saved_until_weight_bytes: self.until_weight.peak_bytes(),
            core_until_input_bytes: self.core_until_input.peak_bytes(),
            core_until_weight_bytes: self.core_until_weight.peak_bytes(),
            saved_input_bytes: self.saved_input.peak_bytes(),
            pending_bytes: self.pending.peak_bytes(),
            scratch_bytes: self.scratch.peak_bytes(),
        }
    }

    fn context(&self) -> Context<'_> {
        let dropout = match self.case.purpose {
            Purpose::Train => Some(DropoutRun { seed: 0, step: 0, first_token: 0 }),
            Purpose::Evaluate | Purpose::Generate => None,
        };
        Context {
            device: &self.device,
            stream: Stream::Compute,
            tp: &self.tp,
            cp: &self.cp,
            ep: self.ep.as_ref().map(|group| group as &dyn Communicator),
            model: self.case.model,
            shape: self.case.shape,
            sequence_parallel: self.case.sequence_parallel,
            dropout,
            router_run: dropout.map(|_| RouterRun { loss_scale: 1.0 }),
            stored: self.case.stored,
            products: self.case.products,
            accumulation: Accumulation::new(self.case.sums, self.case.shape.tokens(), 1.0),
            constants: Constants::lay_out(&self.other, &self.other, self.case.model),
            scratch: &self.scratch,
        }
    }

    fn saved(&self) -> SavedFrames<'_> {
        let all = SavedFrames::new(&self.until_input, &self.until_weight);
        match self.recompute() {
            LayerRecompute::Core => all.with_core(&self.core_until_input, &self.core_until_weight),
            LayerRecompute::Nothing | LayerRecompute::Everything(_) => all,
        }
    }

    fn recompute(&self) -> LayerRecompute {
        match self.case.purpose {
            Purpose::Train => self.case.recompute,
            Purpose::Evaluate | Purpose::Generate => LayerRecompute::Nothing,
        }
    }

    fn activation(&self) -> Residual {
        Residual::new(self.context().residual(&self.other))
    }

    /// The flat buffer of a unit: of parameters or of gradients.
    fn layout(&self, unit: Unit, dtype: Dtype) -> (UnitLayout, device::Tensor) {
        let sizes = AxisSizes { ep: self.case.ep, tp: self.case.tp.size, ..AxisSizes::ONE };
        let layout = UnitLayout::new(config::params(self.case.model, unit), sizes, 1);
        let flat = self.other.tensor(1, layout.padded_len(), dtype);
        (layout, flat)
    }

    /// No tokens before: its size is nobody's footprint.
    fn cache(&self) -> KeyValueCache {
        let MicrobatchShape { sequences, sequence_length, slices: _ } = self.case.shape;
        let cache_size = CacheSize { sequences, capacity: sequence_length, stored: self.case.stored };
        KeyValueCache::lay_out(&self.other, self.case.model, self.case.tp.size, cache_size, 0)
    }

    fn is_training(&self) -> bool {
        self.case.purpose == Purpose::Train
    }

    fn embedding(&self, phase: PassKind) -> Result<(), RecordError> {
        let (context, batch) = (self.context(), Batch::lay_out(&self.other, self.case.model, self.case.shape));
        let bound = |dtype| {
            let ((table, table_flat), (layout, flat)) =
                (self.layout(Unit::Table, dtype), self.layout(Unit::Embedding, dtype));
            EmbeddingParams::bind((&table, table_flat), (&layout, flat))
        };
        let (params, gradients) = (bound(self.case.stored)?, bound(self.case.sums.into())?);
        let embedding = Embedding { context: &context, batch: &batch };
        let frames = SavedFrames::new(&self.until_input, &self.until_weight);
        match phase {
            PassKind::Forward => embedding.forward(&params, self.activation(), frames)?,
            PassKind::BackwardInput if self.is_training() => {
                embedding.backward_input(self.activation(), frames, &self.pending)?;
            }
            PassKind::BackwardWeight if self.is_training() => {
                let gradients = EmbeddingGradients { params: &gradients, write: self.case.write, table_scale: 1.0 };
                embedding.backward_weight(&gradients, self.activation(), frames, &self.pending)?;
            }
            PassKind::Recompute | PassKind::BackwardInput | PassKind::BackwardWeight => {}
        }
        Ok(())
    }

    /// The parameters of a layer in `dtype`, with its adapters, and their gradients where `gradients` is their type.
    fn layer_params(&self, number: u32, dtype: Dtype, gradients: Option<Dtype>) -> Result<LayerParams, RecordError> {
        let (layout, flat) = self.layout(Unit::Layer(number), dtype);
        let (experts, flat_experts) = self.layout(Unit::Experts(number), dtype);
        let params = LayerParams::bind(number, (&layout, flat), (&experts, flat_experts))?;
        let (adapters, parameters) = self.layout(Unit::Adapters(number), self.case.stored);
        if adapters.is_empty() {
            return Ok(params);
        }
        let gradients = gradients.map(|dtype| self.layout(Unit::Adapters(number), dtype).1);
        Ok(params.with_adapters(number, &layout, &AdapterBuffers { layout: &adapters, parameters, gradients })?)
    }

    fn layer(&self, number: u32, phase: PassKind) -> Result<(), RecordError> {
        let (context, batch) = (self.context(), Batch::lay_out(&self.other, self.case.model, self.case.shape));
        let (stored, sums) = (self.case.stored, self.case.sums.into());
        let (params, gradients) =
            (self.layer_params(number, stored, None)?, self.layer_params(number, sums, Some(sums))?);
        let layer = Layer { context: &context, batch: &batch, number };
        let (input, output, saved) = (self.activation(), self.activation(), self.saved());
        match phase {
            PassKind::Forward => {
                match self.case.purpose {
                    Purpose::Train | Purpose::Evaluate => layer.forward(&params, input, output, saved)?,
                    Purpose::Generate => layer.forward_cached(&params, input, output, saved, &self.cache())?,
                }
                if self.recompute() == LayerRecompute::Everything(SavedInputs::Sharded) {
                    saved_input::keep(&context, input, saved_input::lay_out(&self.saved_input, &context))?;
                }
            }
            PassKind::Recompute => match self.recompute() {
                LayerRecompute::Nothing => {}
                LayerRecompute::Core => layer.recompute_core(&params, saved)?,
                LayerRecompute::Everything(inputs) => {
                    match inputs {
                        SavedInputs::Whole => {}
                        SavedInputs::Sharded => {
                            saved_input::restore(&context, saved_input::lay_out(&self.saved_input, &context), input)?;
                        }
                    }
                    layer.recompute(&params, input, saved)?;
                }
            },
            PassKind::BackwardInput if self.is_training() => {
                layer.backward_input(&params, input, output, self.activation(), saved, &self.pending)?;
            }
            PassKind::BackwardWeight if self.is_training() => {
                layer.backward_weight(&gradients, input, output, saved, &self.pending, self.case.write)?;
            }
            PassKind::BackwardInput | PassKind::BackwardWeight => {}
        }
        Ok(())
    }

    fn head(&self, phase: PassKind) -> Result<(), RecordError> {
        if phase != PassKind::Forward {
            return Ok(());
        }
        let (context, batch) = (self.context(), Batch::lay_out(&self.other, self.case.model, self.case.shape));
        let bound = |dtype| {
            let ((layout, flat), (table, table_flat)) =
                (self.layout(Unit::Head, dtype), self.layout(Unit::Table, dtype));
            let tied_table = match self.case.model.tied() {
                Tied::Yes => Some((&table, table_flat)),
                Tied::No => None,
            };
            HeadParams::bind((&layout, flat), tied_table)
        };
        let (params, gradients) = (bound(self.case.stored)?, bound(self.case.sums.into())?);
        let (head, input) = (Head { context: &context, batch: &batch }, self.activation());
        match self.case.purpose {
            Purpose::Train => {
                let (write, input_gradient) = (self.case.write, self.activation());
                let gradients = HeadGradients { params: &gradients, write, input: input_gradient, scale: 1.0 };
                head.train(&params, input, &gradients)?;
            }
            Purpose::Evaluate => head.evaluate(&params, input)?,
            Purpose::Generate => {
                let (rows, cols) = Head::logits_shape(self.case.model, self.case.tp.size, self.case.shape);
                head.logits(&params, input, Some(&self.cache()), self.other.floats(rows, cols))?;
            }
        }
        Ok(())
    }
}
