//! Routers between two steps: what a step has counted becomes the corrections and loads of the next one, and figures.

use config::{Balance, ExpertsSpec, Statistics};
use cpu::fixed_point;
use device::{BalanceOp, COUNT_WORD, Device, DeviceError, SUM_WORDS, Stream, Tensor};

use crate::worker::Worker;

/// The routers of a step, the same on every rank and in every layout: integers, and sums in fixed point.
#[derive(Clone, Debug, PartialEq)]
pub struct RouterReport {
    /// Counted from 1.
    pub step: u32,
    /// The routers of all layers together.
    pub figures: RouterFigures,
    /// The number of each layer with experts, and the choices of each of its experts.
    pub choices: Vec<(u32, Vec<i64>)>,
}

/// Figures of all routers of a step. Loads are relative to those of balanced routing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RouterFigures {
    /// The load of the expert with the most choices of its layer, the largest of all layers.
    pub largest_load: f64,
    /// The load of the expert with the fewest, the smallest of all layers.
    pub smallest_load: f64,
    /// Experts that no token has chosen, of all layers.
    pub idle_experts: u32,
    /// Share of choices that experts with a capacity have dropped.
    pub dropped: Option<f64>,
    /// Mean entropy of a token's scores in a layer, in nats.
    pub entropy: f64,
    /// Balance loss per token, the sum over layers, where there is one.
    pub balance_loss: Option<f64>,
    /// z-loss of routers per token, the sum over layers, where there is one.
    pub z_loss: Option<f64>,
    /// The smallest and the largest correction before the update of this step, where there are any.
    pub bias: Option<[f32; 2]>,
}

/// Takes the counts of a step that has updated weights into corrections and loads.
///
/// # Errors
/// The device's.
pub fn update(worker: &Worker<'_>) -> Result<(), DeviceError> {
    let Worker { position, state, ports } = worker;
    let (Some(routers), Some(experts)) = (state.constants.routers, &position.setup.model.experts) else {
        return Ok(());
    };
    let Some(counts) = routers.counts else { return Ok(()) };
    let submit = |op: BalanceOp| ports.device.submit(Stream::Compute, &op.into());
    if let (Some(correction), Some(bias)) = (routers.corrections, experts.balance.bias)
        && bias.rate > 0.0
    {
        submit(BalanceOp::Correct { counts, rate: bias.rate, correction })?;
    }
    routers.loads.map_or(Ok(()), |load| submit(BalanceOp::Load { counts, load }))
}

/// The report of the step that has just been done, before [`update`]; `None` without statistics.
///
/// # Errors
/// The device's.
pub fn report(worker: &Worker<'_>, step: u32) -> Result<Option<RouterReport>, DeviceError> {
    let Worker { position, state, ports } = worker;
    let (Some(routers), Some(experts)) = (state.constants.routers, &position.setup.model.experts) else {
        return Ok(None);
    };
    let ExpertsSpec { number, balance: Balance { statistics, .. }, .. } = *experts;
    let (Some(counts), Statistics::On) = (routers.counts, statistics) else { return Ok(None) };
    let device = &*ports.device;
    let layers: Vec<u32> = experts.layers(position.setup.model.num_layers).collect();
    let counts = longs(device, counts)?;
    let choices: Vec<(u32, Vec<i64>)> =
        layers.iter().copied().zip(counts.chunks(number).map(<[i64]>::to_vec)).collect();
    let mean = |sums: Option<Tensor>| -> Result<Option<(f64, i64)>, DeviceError> {
        let Some(sums) = sums else { return Ok(None) };
        let mut words = [0; SUM_WORDS];
        words.copy_from_slice(&longs(device, sums)?);
        Ok(Some((fixed_point::to_f64(&words), words[COUNT_WORD])))
    };
    let per = |(sum, count): (f64, i64)| if count > 0 { sum / count as f64 } else { 0.0 };
    let over_layers = |sum: Option<(f64, i64)>| sum.map(|sum| per(sum) * layers.len() as f64);
    let bias = routers.corrections.map(|corrections| device::read_floats(device, corrections)).transpose()?;
    let chosen: i64 = counts.iter().sum();
    let share = |dropped: &[i64]| if chosen > 0 { dropped[0] as f64 / chosen as f64 } else { 0.0 };
    let dropped = routers.dropped.map(|dropped| longs(device, dropped)).transpose()?;
    let figures = RouterFigures {
        dropped: dropped.as_deref().map(share),
        entropy: mean(routers.entropy_sums)?.map_or(0.0, per),
        balance_loss: over_layers(mean(routers.balance_sums)?),
        z_loss: over_layers(mean(routers.z_loss_sums)?),
        bias: bias.map(|values| {
            let [least, most] = [f32::INFINITY, f32::NEG_INFINITY];
            values.iter().fold([least, most], |[least, most], value| [least.min(*value), most.max(*value)])
        }),
        ..RouterFigures::of_choices(&choices)
    };
    Ok(Some(RouterReport { step, figures, choices }))
}

impl RouterReport {
    /// The load of the rank whose experts have the most choices, relative to that of balanced routing, where `ranks`
    /// divide the experts of each layer: the mean over layers. 1 where nothing was chosen.
    pub fn rank_load(&self, ranks: usize) -> f64 {
        let of_layer = |(_, counts): &(u32, Vec<i64>)| {
            let of_rank = |counts: &[i64]| counts.iter().sum::<i64>();
            let most = counts.chunks((counts.len() / ranks.max(1)).max(1)).map(of_rank).max().unwrap_or(0);
            match counts.iter().sum::<i64>() {
                0 => 1.0,
                all => (ranks as i64 * most) as f64 / all as f64,
            }
        };
        match self.choices.len() {
            0 => 1.0,
            layers => self.choices.iter().map(of_layer).sum::<f64>() / layers as f64,
        }
    }
}

impl RouterFigures {
    /// Loads and idle experts; 0 in place of all else.
    fn of_choices(choices: &[(u32, Vec<i64>)]) -> RouterFigures {
        let mut figures = RouterFigures { smallest_load: f64::INFINITY, ..RouterFigures::default() };
        for (_, counts) in choices {
            let sum: i64 = counts.iter().sum();
            let load = |count: i64| if sum > 0 { counts.len() as f64 * count as f64 / sum as f64 } else { 0.0 };
            let (least, most) = (counts.iter().min(), counts.iter().max());
            figures.largest_load = figures.largest_load.max(most.map_or(0.0, |most| load(*most)));
            figures.smallest_load = figures.smallest_load.min(least.map_or(0.0, |least| load(*least)));
            figures.idle_experts += counts.iter().filter(|count| **count == 0).count() as u32;
        }
        RouterFigures { smallest_load: if choices.is_empty() { 0.0 } else { figures.smallest_load }, ..figures }
    }
}

fn longs(device: &dyn Device, tensor: Tensor) -> Result<Vec<i64>, DeviceError> {
    let mut words = vec![0i64; tensor.len()];
    device.read(tensor.reshaped(1, tensor.len()), bytemuck::cast_slice_mut(&mut words))?;
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_relative_to_balanced_routing_and_the_extremes_are_those_of_a_layer() {
        let layers = [(0, vec![4, 4, 4, 4]), (2, vec![0, 6, 10, 0]), (4, vec![4, 0, 4, 4])];
        let figures = RouterFigures::of_choices(&layers);
        assert_eq!((figures.largest_load, figures.smallest_load, figures.idle_experts), (2.5, 0.0, 3));
        let even = RouterFigures::of_choices(&[(1, vec![3, 5])]);
        assert_eq!((even.largest_load, even.smallest_load, even.idle_experts), (1.25, 0.75, 0));
        assert_eq!(RouterFigures::of_choices(&[(1, vec![0, 0])]).largest_load, 0.0);
        assert_eq!(RouterFigures::of_choices(&[]), RouterFigures::default());
    }

    #[test]
    fn the_load_of_a_rank_is_that_of_all_its_experts() {
        let of = |choices: &[(u32, Vec<i64>)]| {
            let (figures, choices) = (RouterFigures::default(), choices.to_vec());
            RouterReport { step: 1, figures, choices }
        };
        // The ranks of the first layer have 8 and 8 choices, those of the second one 6 and 10.
        let report = of(&[(0, vec![8, 0, 4, 4]), (1, vec![6, 0, 10, 0])]);
        assert_eq!([1, 2, 4].map(|ranks| report.rank_load(ranks)), [1.0, 1.125, 2.25]);
        assert_eq!([of(&[]), of(&[(0, vec![0; 4])])].map(|report| report.rank_load(2)), [1.0, 1.0]);
    }
}
