//! A whole model on one tensor-parallel rank: every section has exactly the size that `footprints` names.

use mesh::{Axis, AxisSizes, Coord, Mesh};
use std::collections::BTreeMap;
use std::ops::Range;

use config::{
    GradientSums, IGNORED_LABEL, LayerRecompute, LocalAttention, ModelSpec, ParamSpec, Products, SavedInputs,
    SequenceParallel, Tied, Unit, UnitClass, UnitLayout,
};
use device::{Communicator, Device, Dtype, Frame, Op, Stream, Tensor, Write};
use model::{
    Accumulation, Batch, Constants, Context, DropoutRun, Embedding, EmbeddingGradients, EmbeddingParams, Head,
    HeadGradients, HeadParams, Layer, LayerParams, MicrobatchShape, Residual, RouterRun, SavedFrames, TensorParallel,
    initialize, saved_input,
};
use program::{Footprints, Purpose};
use record::{RecordCase, footprints};

use crate::reference::{ReferenceCommunicator, ReferenceDevice, uniform};
use crate::tracer::{Sections, Tracer};

/// A section of the arena.
type Section = Range<usize>;

/// Whose flat buffer: a unit's, or the head's own accumulator for a tied table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Buffer {
    Of(Unit),
    TiedTable,
}

/// How a rank shares and keeps what it computes.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    pub sequence_parallel: SequenceParallel,
    pub recompute: LayerRecompute,
}

impl Manner {
    pub const PLAIN: Manner = Manner { sequence_parallel: SequenceParallel::Off, recompute: LayerRecompute::Nothing };
    pub const SEQUENCE_PARALLEL: Manner = Manner { sequence_parallel: SequenceParallel::On, ..Manner::PLAIN };

    pub fn recomputing(recompute: LayerRecompute) -> Manner {
        Manner { recompute, ..Manner::PLAIN }
    }
}

/// Sections of what one unit saves: until the input, until the weights; of the attention core the same; the saved
/// input.
struct SavedSections {
    kept: [Section; 2],
    core: [Section; 2],
    saved_input: Section,
}

/// Where everything of a rank is.
pub struct Rank {
    pub model: ModelSpec,
    pub tp: TensorParallel,
    pub shape: MicrobatchShape,
    pub manner: Manner,
    pub layouts: BTreeMap<Unit, UnitLayout>,
    pub params: BTreeMap<Unit, Tensor>,
    pub gradients: BTreeMap<Buffer, Tensor>,
    pub sections: Sections,
    constants: Constants,
    batch: Batch,
    /// Outputs of the embedding and the layers, and their gradients.
    activations: Vec<Tensor>,
    activation_gradients: Vec<Tensor>,
    logits: Tensor,
    saved: Vec<SavedSections>,
    pending: Vec<Section>,
    scratch: Section,
    pub arena_bytes: usize,
}

/// Gradients are scaled by this power of two.
pub const SCALE: f32 = 0.0625;

/// Microbatches of a step.
pub const MICROBATCHES: u64 = 2;

fn footprints_in(manner: Manner, model: &ModelSpec, tp: TensorParallel, shape: MicrobatchShape) -> Footprints {
    let Manner { sequence_parallel, recompute } = manner;
    let (stored, sums, purpose, write) = (Dtype::F32, GradientSums::Single, Purpose::Train, Write::Accumulate);
    footprints(&RecordCase {
        model,
        tp,
        ep: 1,
        shape,
        stored,
        sums,
        sequence_parallel,
        recompute,
        purpose,
        write,
        products: Products::Chained,
    })
    .unwrap()
}

impl Rank {
    pub fn new(model: &ModelSpec, tp: TensorParallel, shape: MicrobatchShape, manner: Manner) -> Rank {
        let sequence_parallel = manner.sequence_parallel;
        let footprints = footprints_in(manner, model, tp, shape);
        let arena = Frame::measuring();
        let mut sections: Sections = vec![];
        let mut section = |name: String, bytes: usize| {
            let start = arena.used_bytes();
            arena.tensor(1, bytes / 4, Dtype::I32);
            sections.push((name, start..start + bytes));
            start..start + bytes
        };
        let units: Vec<Unit> = std::iter::once(Unit::Table).chain(Unit::computing(model.num_layers)).collect();
        let experts = (0..model.num_layers as u32).map(Unit::Experts).filter(|unit| model.experts_of(*unit).is_some());
        let held: Vec<Unit> = units.iter().copied().chain(experts).collect();
        let layout = |unit| UnitLayout::new(config::params(model, unit), AxisSizes::only(Axis::Tp, tp.size), 1);
        let layouts: BTreeMap<Unit, UnitLayout> = held.iter().map(|unit| (*unit, layout(*unit))).collect();
        let mut flat = |name: String, unit| {
            let layout = &layouts[&unit];
            Tensor::new(section(name, layout.padded_len() * 4).start, 1, layout.padded_len(), Dtype::F32)
        };
        let params = held.iter().map(|unit| (*unit, flat(format!("{unit}"), *unit))).collect();
        let mut gradients: BTreeMap<Buffer, Tensor> =
            held.iter().map(|unit| (Buffer::Of(*unit), flat(format!("gradient of {unit}"), *unit))).collect();
        if model.tied_embeddings {
            gradients.insert(Buffer::TiedTable, flat("gradient of table by head".into(), Unit::Table));
        }
        let constants = section("constants".into(), footprints.constant_bytes);
        let sums = section("sums".into(), footprints.loss_sums_bytes);
        let batch = section("batch".into(), footprints.batch_bytes);
        let activation_bytes = footprints.units[UnitClass::Embedding].output_bytes;
        let (mut activations, mut activation_gradients, mut saved, mut pending) = (vec![], vec![], vec![], vec![]);
        for unit in &units[1..units.len() - 1] {
            let footprint = footprints.units.of(*unit);
            let activation =
                |start| Tensor::new(start, shape.tokens() / sequence_parallel.runs(tp.size), model.hidden, Dtype::F32);
            activations.push(activation(section(format!("output of {unit}"), activation_bytes).start));
            activation_gradients
                .push(activation(section(format!("output gradient of {unit}"), activation_bytes).start));
            saved.push(SavedSections {
                kept: [
                    section("until input".into(), footprint.saved_until_input_bytes),
                    section("until weight".into(), footprint.saved_until_weight_bytes),
                ],
                core: [
                    section("core until input".into(), footprint.core_until_input_bytes),
                    section("core until weight".into(), footprint.core_until_weight_bytes),
                ],
                saved_input: section("saved input".into(), footprint.saved_input_bytes),
            });
            pending.push(section("pending".into(), footprint.pending_bytes));
        }
        // Evaluation needs no more scratch than training.
        let scratch_bytes = footprints.units.iter().map(|(_, unit)| unit.scratch_bytes).max().unwrap();
        let scratch = section("scratch".into(), scratch_bytes);
        let (rows, cols) = Head::logits_shape(model, tp.size, shape);
        let logits = Tensor::new(section("logits".into(), rows * cols * 4).start, rows, cols, Dtype::F32);
        let frame = |section: &Section| Frame::new(section.start, section.len());
        Rank {
            model: model.clone(),
            tp,
            shape,
            manner,
            constants: Constants::lay_out(&frame(&constants), &frame(&sums), model),
            batch: Batch::lay_out(&frame(&batch), model, shape),
            layouts,
            params,
            gradients,
            activations,
            activation_gradients,
            logits,
            saved,
            pending,
            scratch,
            arena_bytes: arena.used_bytes(),
            sections,
        }
    }

    /// Initial values, made less regular: norms and biases are not constants in the tests.
    pub fn initialize(&self, device: &ReferenceDevice) {
        for (unit, layout) in &self.layouts {
            draw(device, layout, self.params[unit], self.tp);
            for segment in layout.segments.iter().filter(|segment| !segment.param.decay) {
                let tensor = self.params[unit].elements(segment.range());
                let (_, first) = segment.param.local_start(&coord(self.tp));
                let noise = |index: usize| uniform(&[segment.param.id(), (first + index) as u64]) - 0.5;
                let values: Vec<f64> =
                    device.values(tensor).iter().enumerate().map(|(index, value)| value + noise(index)).collect();
                device.assign(tensor, &values);
            }
        }
        self.constants.initialise(device, Stream::Compute, &self.model).unwrap();
        // Loads of the step before and corrections of another one.
        let routers =
            self.constants.routers.map(|routers| [(routers.loads, 0.0, 2.0), (routers.corrections, -0.1, 0.2)]);
        for (tensor, least, width) in routers.into_iter().flatten() {
            let drawn = |index: usize| least + width * uniform(&[17, index as u64]);
            tensor.iter().for_each(|tensor| device.assign(*tensor, &(0..tensor.len()).map(drawn).collect::<Vec<_>>()));
        }
        let sums = self.constants.all_loss_sums;
        device.assign(sums, &vec![0.0; sums.len()]);
    }

    /// Tokens, labels (some ignored) and, in the second sequence of a microbatch, two documents.
    fn load(&self, device: &ReferenceDevice, microbatch: u64, labels: Labels) {
        let integers = |tensor: Tensor, value: &dyn Fn(usize) -> i32| {
            let bytes: Vec<u8> = (0..tensor.len()).flat_map(|index| value(index).to_le_bytes()).collect();
            device.write(tensor, &bytes).unwrap();
        };
        let draw =
            |what: u64, index: usize, below: usize| (uniform(&[what, microbatch, index as u64]) * below as f64) as i32;
        let length = self.shape.sequence_length;
        // The document of a token starts here in its sequence.
        let document = |token: usize| match (token / length % 2, token % length) {
            (1, place) if place >= length / 2 => length / 2,
            (_, _) => 0,
        };
        integers(self.batch.tokens, &|token| draw(1, token, self.model.vocabulary));
        integers(self.batch.labels, &|token| match (labels, draw(3, token, 4)) {
            (Labels::Ignored, _) | (Labels::Drawn, 0) => IGNORED_LABEL,
            (Labels::Drawn, _) => draw(2, token, self.model.vocabulary),
        });
        integers(self.batch.positions, &|token| (token % length - document(token)) as i32);
        integers(self.batch.visible.own, &|index| match (index / 2, index % 2) {
            (token, 0) => document(token) as i32,
            (token, _) => (token % length + 1) as i32,
        });
        let (Some(local), Some(LocalAttention { window, .. })) = (self.batch.local, &self.model.local_attention) else {
            return;
        };
        integers(local.own, &|index| match (index / 2, index % 2) {
            (token, 0) => document(token).max((token % length + 1).saturating_sub(*window)) as i32,
            (token, _) => (token % length + 1) as i32,
        });
    }

    /// Bound where `flat` finds the flat buffer of a unit.
    fn bound_layer(&self, layer: u32, flat: impl Fn(Unit) -> Tensor) -> LayerParams {
        let (own, experts) = (Unit::Layer(layer), Unit::Experts(layer));
        let none = UnitLayout::new(vec![], AxisSizes::ONE, 1);
        let experts = match self.layouts.get(&experts) {
            Some(layout) => (layout, flat(experts)),
            None => (&none, Tensor::new(0, 1, 0, Dtype::F32)),
        };
        LayerParams::bind(layer, (&self.layouts[&own], flat(own)), experts).unwrap()
    }

    fn layer_params(&self, layer: u32) -> LayerParams {
        self.bound_layer(layer, |unit| self.params[&unit])
    }

    fn embedding_params(&self, table: Tensor, flat: Tensor) -> EmbeddingParams {
        EmbeddingParams::bind((&self.layouts[&Unit::Table], table), (&self.layouts[&Unit::Embedding], flat)).unwrap()
    }

    fn head_params(&self, flat: Tensor, table: Option<Tensor>) -> HeadParams {
        let tied_table = table.map(|table| (&self.layouts[&Unit::Table], table));
        HeadParams::bind((&self.layouts[&Unit::Head], flat), tied_table).unwrap()
    }

    pub fn head(&self) -> HeadParams {
        let table = match self.model.tied() {
            Tied::Yes => Some(self.params[&Unit::Table]),
            Tied::No => None,
        };
        self.head_params(self.params[&Unit::Head], table)
    }

    fn head_gradients(&self) -> HeadParams {
        self.head_params(self.gradients[&Buffer::Of(Unit::Head)], self.gradients.get(&Buffer::TiedTable).copied())
    }

    /// All declared parameters with their units.
    pub fn declared(&self) -> impl Iterator<Item = (Unit, &ParamSpec, Range<usize>)> {
        self.layouts
            .iter()
            .flat_map(|(unit, layout)| layout.segments.iter().map(|segment| (*unit, &segment.param, segment.range())))
    }
}

/// A rank with its device and group, running.
pub struct Running<'a> {
    pub rank: &'a Rank,
    pub device: &'a ReferenceDevice,
    pub tracer: &'a Tracer<'a>,
    pub labels: Labels,
}

/// The labels of a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Labels {
    /// Some tokens, some ignored.
    Drawn,
    /// All ignored.
    Ignored,
}

impl<'a> Running<'a> {
    /// Runs `body` on a freshly initialised rank.
    pub fn scope<R>(
        rank: &Rank,
        device: &ReferenceDevice,
        exchange: &crate::reference::Exchange,
        body: impl FnOnce(&Running) -> R,
    ) -> R {
        let (size, position) = (rank.tp.size, rank.tp.position);
        let communicator = ReferenceCommunicator { exchange, device, size, position };
        let communicator: &dyn Communicator = &communicator;
        let tracer = Tracer::new(device, communicator, &rank.sections);
        body(&Running { rank, device, tracer: &tracer, labels: Labels::Drawn })
    }

    fn with_context<R>(&self, microbatch: u64, body: impl FnOnce(&Context) -> R) -> R {
        let rank = self.rank;
        let scratch = Frame::new(rank.scratch.start, rank.scratch.len());
        let dropout = DropoutRun { seed: 5, step: 3, first_token: microbatch * rank.shape.tokens() as u64 };
        let result = body(&Context {
            device: self.tracer,
            stream: Stream::Compute,
            tp: self.tracer,
            cp: &comm::MetaCommunicator::new(mesh::Axis::Cp.into(), 1, 0),
            ep: None,
            model: &rank.model,
            shape: rank.shape,
            sequence_parallel: rank.manner.sequence_parallel,
            dropout: Some(dropout),
            router_run: Some(RouterRun { loss_scale: SCALE }),
            stored: Dtype::F32,
            products: Products::Chained,
            accumulation: Accumulation::Single,
            constants: rank.constants,
            scratch: &scratch,
        });
        assert_eq!(scratch.used_bytes(), 0, "scratch is empty between functions");
        self.device.poison(rank.scratch.clone());
        result
    }

    fn take_loss(&self) -> f64 {
        let constants = &self.rank.constants;
        let of_routers = constants.routers.map(|routers| [routers.balance_sums, routers.z_loss_sums]);
        let sums = of_routers.into_iter().flatten().flatten().chain([constants.loss_sums]);
        let loss = sums.map(|sums| self.device.values(sums)[0]).sum();
        self.device.assign(constants.all_loss_sums, &vec![0.0; constants.all_loss_sums.len()]);
        loss
    }

    /// The objective of a step without gradients: no activation is kept.
    pub fn objective(&self) -> f64 {
        let rank = self.rank;
        for microbatch in 0..MICROBATCHES {
            rank.load(self.device, microbatch, self.labels);
            self.with_context(microbatch, |context| self.forward(context, Forward::Nothing));
            self.with_context(microbatch, |context| {
                let head = Head { context, batch: &rank.batch };
                head.evaluate(&rank.head(), Residual::new(*rank.activations.last().unwrap())).unwrap();
            });
        }
        self.take_loss() * f64::from(SCALE)
    }

    /// A step's forward and backward passes; gradients are in their buffers.
    pub fn step(&self) -> f64 {
        (0..MICROBATCHES).for_each(|microbatch| self.microbatch(microbatch));
        self.take_loss() * f64::from(SCALE)
    }

    /// Forward and backward passes of one microbatch. All gradients of inputs come before all gradients of weights, and
    /// what need not live until then is poisoned in between.
    pub fn microbatch(&self, microbatch: u64) {
        let rank = self.rank;
        rank.load(self.device, microbatch, self.labels);
        let write = if microbatch == 0 { Write::Assign } else { Write::Accumulate };
        self.with_context(microbatch, |context| self.forward(context, Forward::Keep));
        self.with_context(microbatch, |context| self.head(context, write));
        self.with_context(microbatch, |context| self.recompute(context));
        self.with_context(microbatch, |context| self.backward_input(context));
        self.with_context(microbatch, |context| self.backward_weight(context, write));
        (0..rank.saved.len()).for_each(|index| self.poison_saved(index));
        rank.pending.iter().for_each(|section| self.device.poison(section.clone()));
    }

    /// Logits of the first microbatch `[tp T, V/tp]`.
    pub fn logits(&self) -> Vec<f64> {
        let rank = self.rank;
        rank.load(self.device, 0, self.labels);
        self.with_context(0, |context| self.forward(context, Forward::Nothing));
        self.with_context(0, |context| {
            let head = Head { context, batch: &rank.batch };
            let input = Residual::new(*rank.activations.last().unwrap());
            head.logits(&rank.head(), input, None, rank.logits).unwrap();
            self.device.values(rank.logits)
        })
    }

    fn forward(&self, context: &Context, forward: Forward) {
        let rank = self.rank;
        let params = rank.embedding_params(rank.params[&Unit::Table], rank.params[&Unit::Embedding]);
        let embedding = Embedding { context, batch: &rank.batch };
        let frames = self.frames(0);
        embedding.forward(&params, Residual::new(rank.activations[0]), frames.saved()).unwrap();
        if forward == Forward::Nothing {
            self.poison_saved(0);
        }
        for number in 0..rank.model.num_layers as u32 {
            let params = rank.layer_params(number);
            let layer = Layer { context, batch: &rank.batch, number };
            let index = number as usize;
            let [input, output] = [index, index + 1].map(|index| Residual::new(rank.activations[index]));
            let frames = self.frames(index + 1);
            layer.forward(&params, input, output, frames.saved()).unwrap();
            self.device.poison(rank.scratch.clone());
            match forward {
                Forward::Keep => self.give_up(context, index),
                Forward::Nothing => self.poison_saved(index + 1),
            }
        }
    }

    /// Activations that a recomputing layer does not keep are poisoned.
    fn give_up(&self, context: &Context, index: usize) {
        let (rank, frames) = (self.rank, self.frames(index + 1));
        match rank.manner.recompute {
            LayerRecompute::Nothing => {}
            LayerRecompute::Core => self.poison(&rank.saved[index + 1].core),
            LayerRecompute::Everything(inputs) => {
                self.poison_saved(index + 1);
                let input = rank.activations[index];
                match inputs {
                    SavedInputs::Whole => {}
                    SavedInputs::Sharded => {
                        let shard = saved_input::lay_out(&frames.saved_input, context);
                        saved_input::keep(context, Residual::new(input), shard).unwrap();
                        self.device.poison(input.bytes());
                    }
                }
            }
        }
    }

    fn recompute(&self, context: &Context) {
        let rank = self.rank;
        for number in 0..rank.model.num_layers as u32 {
            let params = rank.layer_params(number);
            let layer = Layer { context, batch: &rank.batch, number };
            let (input, frames) = (Residual::new(rank.activations[number as usize]), self.frames(number as usize + 1));
            match rank.manner.recompute {
                LayerRecompute::Nothing => {}
                LayerRecompute::Core => layer.recompute_core(&params, frames.saved()).unwrap(),
                LayerRecompute::Everything(inputs) => {
                    if inputs == SavedInputs::Sharded {
                        let shard = saved_input::lay_out(&frames.saved_input, context);
                        saved_input::restore(context, shard, input).unwrap();
                    }
                    layer.recompute(&params, input, frames.saved()).unwrap();
                }
            }
            self.device.poison(rank.scratch.clone());
        }
    }

    fn poison_saved(&self, index: usize) {
        self.poison(&self.rank.saved[index].kept);
        self.poison(&self.rank.saved[index].core);
    }

    fn poison(&self, sections: &[Section]) {
        sections.iter().for_each(|section| self.device.poison(section.clone()));
    }

    fn head(&self, context: &Context, write: Write) {
        let rank = self.rank;
        let [input, gradient] =
            [&rank.activations, &rank.activation_gradients].map(|list| Residual::new(*list.last().unwrap()));
        let gradients = HeadGradients { params: &rank.head_gradients(), write, input: gradient, scale: SCALE };
        Head { context, batch: &rank.batch }.train(&rank.head(), input, &gradients).unwrap();
    }

    fn backward_input(&self, context: &Context) {
        let rank = self.rank;
        for number in (0..rank.model.num_layers as u32).rev() {
            let params = rank.layer_params(number);
            let layer = Layer { context, batch: &rank.batch, number };
            let index = number as usize;
            let [input_gradient, output_gradient] =
                [index, index + 1].map(|index| Residual::new(rank.activation_gradients[index]));
            let (frames, pending) = (self.frames(index + 1), self.pending(index + 1));
            let input = Residual::new(rank.activations[index]);
            layer.backward_input(&params, input, output_gradient, input_gradient, frames.saved(), &pending).unwrap();
            self.device.poison(rank.saved[index + 1].kept[0].clone());
            self.device.poison(rank.saved[index + 1].core[0].clone());
            self.device.poison(rank.scratch.clone());
        }
        let embedding = Embedding { context, batch: &rank.batch };
        let (gradient, frames) = (Residual::new(rank.activation_gradients[0]), self.frames(0));
        embedding.backward_input(gradient, frames.saved(), &self.pending(0)).unwrap();
        self.device.poison(rank.saved[0].kept[0].clone());
    }

    fn backward_weight(&self, context: &Context, write: Write) {
        let rank = self.rank;
        for number in 0..rank.model.num_layers as u32 {
            let gradients = rank.bound_layer(number, |unit| rank.gradients[&Buffer::Of(unit)]);
            let layer = Layer { context, batch: &rank.batch, number };
            let index = number as usize;
            let (frames, pending) = (self.frames(index + 1), self.pending(index + 1));
            let (input, gradient) = (rank.activations[index], rank.activation_gradients[index + 1]);
            let [input, gradient] = [input, gradient].map(Residual::new);
            layer.backward_weight(&gradients, input, gradient, frames.saved(), &pending, write).unwrap();
        }
        let [table, flat] = [Unit::Table, Unit::Embedding].map(|unit| rank.gradients[&Buffer::Of(unit)]);
        let gradients = rank.embedding_params(table, flat);
        let embedding = Embedding { context, batch: &rank.batch };
        let gradient = Residual::new(rank.activation_gradients[0]);
        let gradients = EmbeddingGradients { params: &gradients, write, table_scale: 1.0 };
        embedding.backward_weight(&gradients, gradient, self.frames(0).saved(), &self.pending(0)).unwrap();
    }

    fn frames(&self, index: usize) -> UnitFrames {
        let SavedSections { kept, core, saved_input } = &self.rank.saved[index];
        let frame = |section: &Section| Frame::new(section.start, section.len());
        let has_core = self.rank.manner.recompute == LayerRecompute::Core;
        UnitFrames {
            kept: kept.each_ref().map(frame),
            core: has_core.then(|| core.each_ref().map(frame)),
            saved_input: frame(saved_input),
        }
    }

    fn pending(&self, index: usize) -> Frame {
        let section = &self.rank.pending[index];
        Frame::new(section.start, section.len())
    }

    /// Gradient of a declared parameter's local part, over both uses of a tied table.
    pub fn gradient(&self, unit: Unit, range: Range<usize>) -> Vec<f64> {
        let own = self.device.values(self.rank.gradients[&Buffer::Of(unit)].elements(range.clone()));
        match self.rank.gradients.get(&Buffer::TiedTable).filter(|_| unit == Unit::Table) {
            None => own,
            Some(flat) => {
                own.iter().zip(self.device.values(flat.elements(range))).map(|(own, head)| own + head).collect()
            }
        }
    }
}

/// Frames of one unit's saved sections.
struct UnitFrames {
    kept: [Frame; 2],
    core: Option<[Frame; 2]>,
    saved_input: Frame,
}

impl UnitFrames {
    fn saved(&self) -> SavedFrames<'_> {
        let all = SavedFrames::new(&self.kept[0], &self.kept[1]);
        self.core.as_ref().map_or(all, |[until_input, until_weight]| all.with_core(until_input, until_weight))
    }
}

/// Whether a forward pass keeps what its manner keeps, or nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Forward {
    Keep,
    Nothing,
}

/// Initial values of a whole flat buffer, padding included, as ranks draw them piece by piece.
/// The place of a rank of a mesh with no other axis.
pub fn coord(tp: TensorParallel) -> Coord {
    let mesh = Mesh::new(AxisSizes::only(Axis::Tp, tp.size)).unwrap();
    mesh.coord(mesh::Rank(tp.position))
}

pub fn draw(device: &ReferenceDevice, layout: &UnitLayout, flat: Tensor, tp: TensorParallel) {
    device.submit(Stream::Compute, &Op::Fill { out: flat, value: 0.0 }).unwrap();
    for segment in &layout.segments {
        let (first_row, first_col) = segment.param.local_start(&coord(tp));
        let (global_rows, _) = segment.param.matrix_shape();
        let valid_rows = global_rows.saturating_sub(first_row).min(segment.rows);
        let out = flat.elements(segment.range()).reshaped(segment.rows, segment.cols).rows_of(0..valid_rows);
        if !out.is_empty() {
            initialize(device, Stream::Compute, &segment.param, (first_row, first_col), out, 7).unwrap();
        }
    }
}
