//! One instruction on one rank: the match from what a program says to what the model, the communicators and the
//! optimizer do.
//!
//! Instructions are issued strictly in program order, never by readiness. Where streams have threads of their own, an
//! instruction has been issued when it has been handed to its stream; what it waits for is in [`program::Waits`].

pub(crate) mod gather;
pub(crate) mod group_call;
mod muon;
mod offload;
pub(crate) mod optimizer;
pub mod reduce;
pub mod routers;

use std::time::Instant;

use config::{LayerRecompute, Microbatch, SavedInputs, Unit};
use device::{DeviceError, Stream, Tensor, Write};
use mesh::Axis;
use model::{Embedding, EmbeddingGradients, Head, HeadGradients, Layer, Residual, saved_input};
use program::{Instr, Purpose};

use crate::worker::Worker;
use crate::worker::bindings::Side;
use crate::worker::rank_state::Issued;

impl Worker<'_> {
    /// Issues the instruction at [`RunPosition::at`](crate::RunPosition::at), which is `instr`, on its stream, after
    /// the waits that it needs.
    ///
    /// # Errors
    /// The errors of [`Worker::execute`], and failures of what it waits for.
    pub fn issue(&mut self, instr: Instr) -> Result<(), DeviceError> {
        let stream = instr.stream();
        for awaited in self.position.waits.of(self.position.at) {
            if let Some(issued) = self.state.issued[awaited] {
                self.ports.device.wait(stream, issued.end)?;
            }
        }
        let (began, start) = (Instant::now(), self.ports.device.record(stream));
        self.execute(instr)?;
        let end = self.ports.device.record(stream);
        let (returned, waited) = (Instant::now(), self.ports.calls.take_waited());
        self.state.issued[self.position.at] = Some(Issued { start, end, began, returned, waited });
        Ok(())
    }

    /// Executes `instr`.
    ///
    /// # Errors
    /// The device's and the communicators'.
    pub fn execute(&mut self, instr: Instr) -> Result<(), DeviceError> {
        let effects = instr.effects(&self.position.program.view);
        if let Some(saving) = &mut self.ports.saving {
            saving.wait_for_readers(&effects.assigns)?;
        }
        match instr {
            Instr::Load { microbatch } => self.load(microbatch),
            Instr::Forward { unit, microbatch } => self.forward(unit, microbatch),
            Instr::Recompute { unit, microbatch } => self.recompute(unit, microbatch),
            Instr::BackwardInput { unit, microbatch } => self.backward_input(unit, microbatch),
            Instr::BackwardWeight { unit, microbatch } => self.backward_weight(unit, microbatch),
            Instr::SendAct { unit, microbatch } => {
                let (x, to) = (self.position.activations().output(unit, microbatch), self.owner_of_next(unit));
                self.ports.communicators.over(Axis::Pp)?.send(
                    Stream::Transfer,
                    to,
                    activation_tag(unit, microbatch),
                    x.tensor(),
                )
            }
            Instr::RecvAct { unit, microbatch } => {
                let (x, from) = (self.position.activations().output(unit, microbatch), self.owner(unit));
                self.ports.communicators.over(Axis::Pp)?.receive(
                    Stream::Transfer,
                    from,
                    activation_tag(unit, microbatch),
                    x.tensor(),
                )
            }
            Instr::SendGrad { unit, microbatch } => {
                let (x, to) = (self.position.activations().output_grad(unit, microbatch), self.owner(unit));
                self.ports.communicators.over(Axis::Pp)?.send(
                    Stream::Transfer,
                    to,
                    gradient_tag(unit, microbatch),
                    x.tensor(),
                )
            }
            Instr::RecvGrad { unit, microbatch } => {
                let (x, from) = (self.position.activations().output_grad(unit, microbatch), self.owner_of_next(unit));
                self.ports.communicators.over(Axis::Pp)?.receive(
                    Stream::Transfer,
                    from,
                    gradient_tag(unit, microbatch),
                    x.tensor(),
                )
            }
            Instr::GatherParams { unit } => gather::parameters(&self.ports, &self.position, &self.state.units[&unit]),
            // From here on the plan has other values in their place.
            Instr::FreeParams { .. } => Ok(()),
            Instr::ReduceGrads { unit, by, axes } => reduce::gradients(self, unit, by, &axes),
            Instr::SumTied => reduce::tied(&self.ports, &self.position, &self.state.units[&Unit::Table]),
            Instr::GradNorm => reduce::norm(self),
            Instr::OptimizerStep { unit } => optimizer::step(&self.ports, &self.position, &self.state, unit),
            Instr::FetchState { unit } => {
                offload::copy(&self.ports, &self.position, &self.state.units[&unit], offload::CopyDirection::Fetch)
            }
            Instr::OffloadState { unit } => {
                offload::copy(&self.ports, &self.position, &self.state.units[&unit], offload::CopyDirection::Offload)
            }
            Instr::OffloadActs { unit, microbatch } => offload::copy_activations(
                &self.ports,
                &self.position,
                (unit, microbatch),
                offload::CopyDirection::Offload,
            ),
            Instr::FetchActs { unit, microbatch } => offload::copy_activations(
                &self.ports,
                &self.position,
                (unit, microbatch),
                offload::CopyDirection::Fetch,
            ),
            Instr::Save { unit } => {
                self.ports.saving.as_mut().map_or(Ok(()), |saving| saving.save(unit, effects.reads))
            }
        }
    }

    fn owner(&self, unit: Unit) -> usize {
        self.position.program.view.owner(unit).unwrap_or_default()
    }

    fn owner_of_next(&self, unit: Unit) -> usize {
        self.position.program.view.next(unit).map_or(0, |next| self.owner(next))
    }

    fn load(&mut self, microbatch: Microbatch) -> Result<(), DeviceError> {
        let batch = self.position.activations().batch(microbatch);
        let slice = (self.position.shape, self.position.rank.slice);
        let first_sequence = self.position.order.first_sequence(microbatch);
        let fetched = self.state.host_batch.fetch(self.ports.source, self.position.step, first_sequence, slice);
        fetched.map_err(|hidden| DeviceError::Shape { op: "load", what: hidden.to_string() })?;
        self.state.host_batch.write(&*self.ports.device, &batch)
    }

    fn forward(&mut self, unit: Unit, microbatch: Microbatch) -> Result<(), DeviceError> {
        let write = self.gradient_write_of_forward(unit);
        let (context, activations) =
            (&self.context(self.position.order.first_sequence(microbatch))?, self.position.activations());
        let batch = &activations.batch(microbatch);
        match unit {
            Unit::Table | Unit::Adapters(_) | Unit::Experts(_) => Ok(()),
            Unit::Embedding => {
                let params = self.embedding(Side::Parameters);
                let saved = activations.saved(unit, microbatch, LayerRecompute::Nothing);
                Embedding { context, batch }.forward(params, activations.output(unit, microbatch), saved.frames())
            }
            Unit::Layer(number) => {
                let (params, recompute) =
                    (self.layer(number, Side::Parameters), self.position.program.view.recomputes(unit));
                let saved = activations.saved(unit, microbatch, recompute);
                let (input, output) = (self.input(unit, microbatch), activations.output(unit, microbatch));
                let layer = Layer { context, batch, number };
                match self.position.cache(unit) {
                    None => layer.forward(params, input, output, saved.frames())?,
                    Some(cache) => layer.forward_cached(params, input, output, saved.frames(), &cache)?,
                }
                match recompute {
                    LayerRecompute::Everything(SavedInputs::Sharded) => {
                        let frame = activations.saved_input(unit, microbatch);
                        saved_input::keep(context, input, saved_input::lay_out(&frame, context))
                    }
                    LayerRecompute::Everything(SavedInputs::Whole) | LayerRecompute::Core | LayerRecompute::Nothing => {
                        Ok(())
                    }
                }
            }
            Unit::Head => self.head_forward(microbatch, write),
        }
    }

    fn head_forward(&self, microbatch: Microbatch, write: Write) -> Result<(), DeviceError> {
        let (context, activations) =
            (&self.context(self.position.order.first_sequence(microbatch))?, self.position.activations());
        let head = Head { context, batch: &activations.batch(microbatch) };
        let (params, input) = (self.head(Side::Parameters), self.input(Unit::Head, microbatch));
        match self.position.program.view.purpose {
            Purpose::Train => {
                let gradients = HeadGradients {
                    params: self.head(Side::Gradients),
                    write,
                    input: self.input_grad(Unit::Head, microbatch),
                    scale: self.loss_scale_of_token(),
                };
                head.train(params, input, &gradients)
            }
            Purpose::Evaluate => head.evaluate(params, input),
            Purpose::Generate => {
                head.logits(params, input, self.position.cache(Unit::Head).as_ref(), self.logits(microbatch))
            }
        }
    }

    /// Logits `[tp T, V/tp]` of a generating program's microbatch.
    pub fn logits(&self, microbatch: Microbatch) -> Tensor {
        let (rows, cols) =
            Head::logits_shape(&self.position.setup.model, self.position.rank.tensor.size, self.position.shape);
        self.position.activations().logits(microbatch, rows, cols)
    }

    /// The head accumulates gradients in its forward pass; other units' forward passes write none.
    fn gradient_write_of_forward(&mut self, unit: Unit) -> Write {
        match unit {
            Unit::Head => self.state.gradient_write(unit),
            Unit::Table | Unit::Embedding | Unit::Layer(_) | Unit::Adapters(_) | Unit::Experts(_) => Write::Accumulate,
        }
    }

    fn recompute(&mut self, unit: Unit, microbatch: Microbatch) -> Result<(), DeviceError> {
        let (context, activations) =
            (&self.context(self.position.order.first_sequence(microbatch))?, self.position.activations());
        let batch = &activations.batch(microbatch);
        match unit {
            Unit::Layer(number) => {
                let (params, recompute) =
                    (self.layer(number, Side::Parameters), self.position.program.view.recomputes(unit));
                let (layer, input) = (Layer { context, batch, number }, self.input(unit, microbatch));
                let saved = activations.saved(unit, microbatch, recompute);
                match recompute {
                    LayerRecompute::Nothing => return Ok(()),
                    LayerRecompute::Core => return layer.recompute_core(params, saved.frames()),
                    LayerRecompute::Everything(SavedInputs::Whole) => {}
                    LayerRecompute::Everything(SavedInputs::Sharded) => {
                        let frame = activations.saved_input(unit, microbatch);
                        saved_input::restore(context, saved_input::lay_out(&frame, context), input)?;
                    }
                }
                layer.recompute(params, input, saved.frames())
            }
            Unit::Table | Unit::Embedding | Unit::Head | Unit::Adapters(_) | Unit::Experts(_) => Ok(()),
        }
    }

    fn backward_input(&mut self, unit: Unit, microbatch: Microbatch) -> Result<(), DeviceError> {
        // The head's forward pass has written the gradient, and where the head is alone on a rank, its batch is gone.
        if unit.makes_gradients_forward() {
            return Ok(());
        }
        let (context, activations) =
            (&self.context(self.position.order.first_sequence(microbatch))?, self.position.activations());
        let batch = &activations.batch(microbatch);
        match unit {
            Unit::Embedding => {
                let saved = activations.saved(unit, microbatch, LayerRecompute::Nothing);
                let (dy, pending) = (activations.output_grad(unit, microbatch), activations.pending(unit, microbatch));
                Embedding { context, batch }.backward_input(dy, saved.frames(), &pending)
            }
            Unit::Layer(number) => {
                let recompute = self.position.program.view.recomputes(unit);
                let saved = activations.saved(unit, microbatch, recompute);
                let pending = activations.pending(unit, microbatch);
                let layer = Layer { context, batch, number };
                layer.backward_input(
                    self.layer(number, Side::Parameters),
                    self.input(unit, microbatch),
                    activations.output_grad(unit, microbatch),
                    self.input_grad(unit, microbatch),
                    saved.frames(),
                    &pending,
                )
            }
            Unit::Table | Unit::Head | Unit::Adapters(_) | Unit::Experts(_) => Ok(()),
        }
    }

    fn backward_weight(&mut self, unit: Unit, microbatch: Microbatch) -> Result<(), DeviceError> {
        if unit.makes_gradients_forward() {
            return Ok(());
        }
        let write = self.state.gradient_write(unit);
        let (context, activations) =
            (&self.context(self.position.order.first_sequence(microbatch))?, self.position.activations());
        let batch = &activations.batch(microbatch);
        let output_grad = activations.output_grad(unit, microbatch);
        match unit {
            Unit::Embedding => {
                let gradients = EmbeddingGradients {
                    params: self.embedding(Side::Gradients),
                    write,
                    table_scale: self.position.setup.train.embedding_gradient_scale,
                };
                let pending = activations.pending(unit, microbatch);
                let saved = activations.saved_until_weight(unit, microbatch, LayerRecompute::Nothing);
                Embedding { context, batch }.backward_weight(&gradients, output_grad, saved.frames(), &pending)
            }
            Unit::Layer(number) => {
                let recompute = self.position.program.view.recomputes(unit);
                let saved = activations.saved_until_weight(unit, microbatch, recompute);
                let pending = activations.pending(unit, microbatch);
                let (gradients, input) = (self.layer(number, Side::Gradients), self.input(unit, microbatch));
                let layer = Layer { context, batch, number };
                layer.backward_weight(gradients, input, output_grad, saved.frames(), &pending, write)
            }
            Unit::Table | Unit::Head | Unit::Adapters(_) | Unit::Experts(_) => Ok(()),
        }
    }

    fn input(&self, unit: Unit, microbatch: Microbatch) -> Residual {
        self.position.activations().output(self.previous(unit), microbatch)
    }

    fn input_grad(&self, unit: Unit, microbatch: Microbatch) -> Residual {
        self.position.activations().output_grad(self.previous(unit), microbatch)
    }

    /// The unit whose output `unit` reads. Only layers and the head are asked.
    fn previous(&self, unit: Unit) -> Unit {
        unit.previous(self.position.setup.model.num_layers).unwrap_or(Unit::Embedding)
    }
}

/// Message number of an activation: unique within a step and direction; messages of one number arrive in order.
fn activation_tag(unit: Unit, microbatch: Microbatch) -> u64 {
    2 * message_number(unit, microbatch)
}

/// The tag of a gradient, as [`activation_tag`] is that of an activation.
fn gradient_tag(unit: Unit, microbatch: Microbatch) -> u64 {
    2 * message_number(unit, microbatch) + 1
}

fn message_number(unit: Unit, microbatch: Microbatch) -> u64 {
    let unit = match unit {
        Unit::Table | Unit::Embedding | Unit::Adapters(_) | Unit::Experts(_) => 0,
        Unit::Layer(layer) => 1 + u64::from(layer),
        Unit::Head => u64::from(u32::MAX),
    };
    unit << 32 | u64::from(microbatch.0)
}
