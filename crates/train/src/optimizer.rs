//! The update of a unit's parameters: one AdamW pass over decayed elements, one over the rest.

use device::{AdamWUpdate, DeviceError, Op, Stream};
use spec::Unit;

use crate::rank::Rank;
use crate::state::Decay;

/// Updates the elements of `unit` that this rank holds moments for.
///
/// # Errors
/// The device's.
pub fn step(rank: &mut Rank, unit: Unit) -> Result<(), DeviceError> {
    let state = &rank.units[&unit];
    let (Some(gradient), Some((first, second))) = (rank.gradient(unit), state.moments) else { return Ok(()) };
    let train = &rank.setup.train;
    for (elements, decay) in state.decay_ranges(&state.updated) {
        if elements.is_empty() {
            continue;
        }
        // Moments are stored for the updated elements only, so they are counted from the first of those.
        let stored = elements.start - state.updated.start..elements.end - state.updated.start;
        let op = Op::AdamW {
            param: state.weights().part(elements.clone()),
            copy: state.masters.is_some().then(|| state.params.part(elements.clone())),
            grad: gradient.part(elements),
            first_moment: first.elements(stored.clone()),
            second_moment: second.elements(stored),
            coefficient: rank.constants.coefficient,
            update: AdamWUpdate {
                learning_rate: train.learning_rate_at(rank.step),
                weight_decay: match decay {
                    Decay::Yes => train.weight_decay,
                    Decay::No => 0.0,
                },
                beta1: train.beta1,
                beta2: train.beta2,
                epsilon: train.epsilon,
                update: rank.step + 1 - rank.loss_scale.skipped_steps(),
            },
        };
        rank.device.submit(Stream::Compute, &op)?;
    }
    Ok(())
}
