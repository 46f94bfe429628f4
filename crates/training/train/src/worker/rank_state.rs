//! The state of a worker between instructions: its tensors, and how far a step has filled them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use config::Unit;
use device::{Device, DeviceError, Frame, Op, Stream, StreamEvent, Tensor, Write};
use model::{BindError, Constants};

use crate::worker::batch::HostBatch;
use crate::worker::bindings::Bindings;
use crate::worker::loss_scale::LossScale;
use crate::worker::memory;
use crate::worker::run_position::RunPosition;
use crate::worker::spikes::SpikeWatch;
use crate::worker::unit_state::{UnitState, unit_states};

/// As many as most models sum in a step: more are set in several pieces.
const ZEROS: [i64; 512] = [0; 512];

/// Tensors in the arena, and what of them has been computed.
pub struct RankState {
    /// Units with parameters on this rank.
    pub units: BTreeMap<Unit, UnitState>,
    /// Tensors of the computing units of this rank.
    pub bindings: Bindings,
    /// Tables and sums.
    pub constants: Constants,
    /// Temporary memory of the compute stream.
    pub scratch: Frame,
    /// Host copy of a microbatch.
    pub host_batch: HostBatch,
    /// The factor of the loss, and the steps that it has cost.
    pub loss_scale: LossScale,
    /// The losses and norms that later ones are compared with.
    pub spikes: SpikeWatch,
    /// Steps that changed no weight, since the last that did.
    pub skipped_in_a_row: u32,
    /// The instructions of the program that were issued last, by their indices.
    pub issued: Vec<Option<Issued>>,
    /// Computing units that have contributed gradients in this step.
    pub contributed: Vec<Unit>,
    /// Gradients (of a unit's parameters, made by a computing unit) that were reduced to this rank's shard in this
    /// step.
    pub reduced: Vec<(Unit, Unit)>,
}

/// An instruction that was handed to its stream.
#[derive(Clone, Copy, Debug)]
pub struct Issued {
    /// The stream has ended what comes before.
    pub start: StreamEvent,
    /// The stream has ended the instruction.
    pub end: StreamEvent,
    /// The rank's own thread began to issue it.
    pub began: Instant,
    /// The call returned.
    pub returned: Instant,
    /// Time in calls of groups meanwhile.
    pub waited: Duration,
}

impl RankState {
    /// Places of everything that the rank at `position` keeps; nothing is filled.
    ///
    /// # Errors
    /// Parameters that no layer reads.
    pub fn new(position: &RunPosition<'_>) -> Result<RankState, BindError> {
        let RunPosition { setup, plan, rank, .. } = *position;
        let largest = setup
            .workloads
            .iter()
            .map(|workload| workload.shape.sequences * workload.shape.sequence_length)
            .max()
            .unwrap_or(0);
        Ok(RankState {
            units: unit_states(position),
            bindings: Bindings::new(setup, rank.stage)?,
            constants: memory::constants(plan, &setup.model),
            scratch: Frame::nowhere(),
            host_batch: HostBatch::new(largest, setup.model.local_attention.as_ref().map(|local| local.window)),
            loss_scale: LossScale::new(setup.train.precision),
            spikes: SpikeWatch::new(setup.train.anomalies.spike_score),
            skipped_in_a_row: 0,
            issued: vec![],
            contributed: Vec::with_capacity(setup.model.num_layers + 2),
            reduced: Vec::with_capacity(setup.model.num_layers + 4),
        })
    }

    /// Sets the step's sums to zero; every accumulator's first contribution will be assigned.
    ///
    /// Each sum is set on the stream that adds to it, after all work of the step before on every stream: programs have
    /// no waits for other steps. The host waits for nothing, so that it submits this step while the optimizer runs.
    ///
    /// # Errors
    /// The device's.
    pub fn begin_step(&mut self, device: &dyn Device) -> Result<(), DeviceError> {
        self.contributed.clear();
        self.reduced.clear();
        join_streams(device)?;
        zero_sums(device, Stream::Compute, self.constants.all_loss_sums)?;
        zero_sums(device, Stream::Reduce, self.constants.norm_sums)
    }

    /// Sets the moments of the optimizer to zero, whatever memory holds.
    ///
    /// # Errors
    /// The device's.
    pub fn clear_moments(&self, device: &dyn Device) -> Result<(), DeviceError> {
        let moments = self.units.values().filter_map(|state| state.held_moments());
        let mut filled = moments.flatten().map(|held| held.tensor).filter(|tensor| !tensor.is_empty());
        filled.try_for_each(|out| device.submit(Stream::Compute, &Op::Fill { out, value: 0.0 }))
    }

    /// Sets averages to the weights, which a run begins with.
    ///
    /// # Errors
    /// The device's.
    pub fn begin_averages(&self, device: &dyn Device) -> Result<(), DeviceError> {
        for state in self.units.values() {
            let Some(average) = state.average.as_ref().filter(|average| !average.elements.is_empty()) else { continue };
            let from = state.weights().part(average.elements.clone());
            device.submit(Stream::Compute, &Op::Copy { from, to: average.tensor })?;
        }
        Ok(())
    }

    /// Assign for the first contribution of `unit` in a step, accumulate afterwards.
    pub fn gradient_write(&mut self, unit: Unit) -> Write {
        if self.contributed.contains(&unit) {
            return Write::Accumulate;
        }
        self.contributed.push(unit);
        Write::Assign
    }

    /// Assign for the first reduction of a gradient to this rank's shard in a step, accumulate afterwards. The next
    /// contribution of `by` is assigned again.
    pub fn reduction_write(&mut self, unit: Unit, by: Unit) -> Write {
        self.contributed.retain(|contributed| *contributed != by);
        if self.reduced.contains(&(unit, by)) {
            return Write::Accumulate;
        }
        self.reduced.push((unit, by));
        Write::Assign
    }
}

/// Orders work that is submitted from here on, on any stream, after all that was submitted before on every stream.
fn join_streams(device: &dyn Device) -> Result<(), DeviceError> {
    let others = Stream::ALL.into_iter().filter(|stream| *stream != Stream::Compute);
    others.clone().try_for_each(|stream| device.wait(Stream::Compute, device.record(stream)))?;
    let joined = device.record(Stream::Compute);
    others.clone().try_for_each(|stream| device.wait(stream, joined))
}

/// Sets integer sums to zero, as work of `stream`.
///
/// # Errors
/// The device's.
pub fn zero_sums(device: &dyn Device, stream: Stream, sums: Tensor) -> Result<(), DeviceError> {
    let pieces = (0..sums.len()).step_by(ZEROS.len()).map(|start| start..sums.len().min(start + ZEROS.len()));
    let mut pieces = pieces.map(|piece| sums.elements(piece));
    pieces.try_for_each(|piece| device.upload(stream, piece, bytemuck::cast_slice(&ZEROS[..piece.len()])))
}
