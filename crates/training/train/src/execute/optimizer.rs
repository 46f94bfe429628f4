//! The update of a unit's parameters: one AdamW pass over each run of elements with one rule, Muon for the matrices
//! that have it, then the average of the weights.

use config::{MemoryKind, TrainSpec, Unit, UpdateMethod, UpdateRule};
use device::{AdamWUpdate, Device, DeviceError, Op, Stream};

use crate::execute::muon;
use crate::worker::ports::RankPorts;
use crate::worker::rank_state::RankState;
use crate::worker::run_position::RunPosition;
use crate::worker::unit_state::UnitState;

/// Updates the elements of `unit` that this rank holds moments for.
///
/// # Errors
/// The device's and the groups'.
pub fn step(
    ports: &RankPorts<'_>,
    position: &RunPosition<'_>,
    rank: &RankState,
    unit: Unit,
) -> Result<(), DeviceError> {
    let device = &*ports.device;
    let staged;
    let state = match position.setup.train.offload.optimizer_state() {
        MemoryKind::Arena => &rank.units[&unit],
        MemoryKind::Host => {
            staged = rank.units[&unit].staged(position);
            &staged
        }
    };
    let (Some(gradient), Some([first, second])) = (position.gradient(state), &state.moments) else { return Ok(()) };
    let train = &position.setup.train;
    for (run, UpdateRule { learning_rate_scale, weight_decay, method }) in &state.update_runs {
        match method {
            UpdateMethod::AdamW => {}
            UpdateMethod::Muon(_) => continue,
        }
        let elements = run.start.max(state.updated.start)..run.end.min(state.updated.end);
        if elements.is_empty() {
            continue;
        }
        let op = Op::AdamW {
            param: state.weights().part(elements.clone()),
            copy: state.masters.is_some().then(|| state.params.part(elements.clone())),
            grad: gradient.part(elements.clone()),
            first_moment: first.part(elements.clone()),
            second_moment: second.part(elements),
            coefficient: rank.constants.coefficient,
            update: AdamWUpdate {
                learning_rate: learning_rate_scale * train.learning_rate_at(position.step),
                weight_decay: *weight_decay,
                beta1: train.beta1,
                beta2: train.beta2,
                epsilon: train.epsilon,
                update: position.step + 1 - rank.loss_scale.skipped_steps(),
            },
        };
        device.submit(Stream::Compute, &op)?;
    }
    muon::step(ports, position, rank, state)?;
    average(device, train, state)
}

/// Moves the average of the weights towards the updated ones.
fn average(device: &dyn Device, train: &TrainSpec, state: &UnitState) -> Result<(), DeviceError> {
    let (Some(decay), Some(average)) = (train.ema_decay, &state.average) else { return Ok(()) };
    if average.elements.is_empty() {
        return Ok(());
    }
    let (x, into) = (state.weights().part(average.elements.clone()), average.tensor);
    device.submit(Stream::Compute, &Op::ScaledSum { x, factor: 1.0 - decay, into, keep: decay })
}
