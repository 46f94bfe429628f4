//! How often each expert was chosen in a run, and how many choices were between logits that nearly tie.

use std::sync::{Arc, Mutex};

use config::{ExpertGroups, Offload, Overlap, Parallelism, Recompute, RouterScores, Routing, TrainSpec};
use device::{Device, DeviceError, Dtype, ExpertOp, Op, Tensor};
use mesh::{Axis, Coord};
use prove::outcome_of;
use sync::lock;
use testkit::intercepted::intercept_ops;
use testkit::layout::Layout;
use testkit::text::ProofText;
use testkit::wrapped_engine::WrappedEngine;
use train::RankEngine;

/// Logits nearly tie where they are nearer than this share of the deviation of a token's logits: some hundred times the
/// distance that rounding leaves between the logits of two runs in single precision.
const NEARLY: f64 = 1e-4;

/// The choices of all tokens, layers and steps of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// How often each expert was chosen.
    pub of_expert: Vec<u64>,
    /// Choices with a chosen and another expert, or group, that nearly tie.
    pub near: u64,
}

impl Chosen {
    /// Tokens that must have chosen otherwise, at least, for the counts to differ as they do.
    pub fn differing(&self, other: &Chosen) -> u64 {
        let pairs = self.of_expert.iter().zip(&other.of_expert);
        pairs.map(|(a, b)| a.abs_diff(*b)).sum::<u64>().div_ceil(2)
    }

    fn add(&mut self, routing: &Routing, logits: &[f32], choice: &[i32]) {
        self.of_expert.resize(logits.len(), 0);
        for expert in choice {
            self.of_expert[*expert as usize] += 1;
        }
        let nearest = nearest(routing, logits, choice.len());
        // Logits that are all equal have no deviation.
        self.near += u64::from(nearest.is_nan() || nearest < NEARLY);
    }
}

/// The choices of the run of `layout`. It runs without recomputation, which would count twice, and without what
/// overlaps or is offloaded; none of these changes a bit.
///
/// # Errors
/// A run that fails, in words.
pub fn chosen(layout: &Layout, text: &ProofText) -> Result<Chosen, String> {
    let parallelism =
        Parallelism { recompute: Recompute::None, overlap: Some(Overlap::Off), ..layout.parallelism.clone() };
    let train = TrainSpec { offload: Offload::None, ..layout.train.clone() };
    let layout = Layout { parallelism, train, model: layout.model.clone() };
    let setup = layout.setup().map_err(|error| error.to_string())?;
    let counted = Arc::new(Mutex::new(Chosen::default()));
    let wrap = |coord: Coord, rank: RankEngine| {
        // Tensor-parallel ranks route the same tokens.
        if coord.along(Axis::Tp) > 0 { rank } else { counting(rank, Arc::clone(&counted)) }
    };
    outcome_of(&setup, &WrappedEngine::new(&setup, &wrap), text).map_err(|error| error.to_string())?;
    let chosen = lock(&counted).clone();
    Ok(chosen)
}

/// The same rank, whose choices are added to `counted`.
fn counting(rank: RankEngine, counted: Arc<Mutex<Chosen>>) -> RankEngine {
    intercept_ops(rank, move |device, stream, op| {
        device.submit(stream, op)?;
        // The gate of a shared expert is a router of one expert.
        if let Op::Experts(ExpertOp::Route { logits, routing, choice, .. }) = op
            && logits.cols > 1
        {
            let (values, slots) = (read(device, *logits)?, read(device, *choice)?);
            let values: Vec<f32> = values.into_iter().map(f32::from_bits).collect();
            let slots: Vec<i32> = slots.into_iter().map(u32::cast_signed).collect();
            let mut counted = lock(&counted);
            for (logits, choice) in values.chunks(logits.cols).zip(slots.chunks(choice.cols)) {
                counted.add(routing, logits, choice);
            }
        }
        Ok(())
    })
}

/// The words of a tensor of four bytes each.
fn read(device: &dyn Device, tensor: Tensor) -> Result<Vec<u32>, DeviceError> {
    assert!(matches!(tensor.dtype, Dtype::F32 | Dtype::I32), "routers have numbers of four bytes");
    let mut bytes = vec![0; 4 * tensor.len()];
    device.read(tensor, &mut bytes)?;
    Ok(bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect())
}

/// The least distance between logits that decides a choice, in deviations of the token's logits.
fn nearest(routing: &Routing, logits: &[f32], per_token: usize) -> f64 {
    let logits: Vec<f64> = logits.iter().map(|logit| f64::from(*logit)).collect();
    let mean = logits.iter().sum::<f64>() / logits.len() as f64;
    let deviation = (logits.iter().map(|logit| (logit - mean).powi(2)).sum::<f64>() / logits.len() as f64).sqrt();
    let between = match routing.groups {
        None => gap(logits, per_token),
        Some(ExpertGroups { number, kept }) => {
            let groups: Vec<&[f64]> = logits.chunks(logits.len() / number).collect();
            let of_groups = groups.iter().map(|group| score(routing.scores, group)).collect::<Vec<f64>>();
            let mut order: Vec<usize> = (0..number).collect();
            order.sort_by(|a, b| of_groups[*b].total_cmp(&of_groups[*a]));
            let members = order[..kept].iter().flat_map(|group| groups[*group].to_vec()).collect();
            gap(of_groups, kept).min(gap(members, per_token))
        }
    };
    between / deviation
}

/// The score of a group, in a measure in which logits a distance apart move it by no more than that distance.
fn score(scores: RouterScores, group: &[f64]) -> f64 {
    let mut sorted = group.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    match scores {
        RouterScores::Softmax => sorted[0],
        // Each sigmoid has a slope of a quarter at most.
        RouterScores::Sigmoid => 2.0 * sorted.iter().take(2).map(|logit| 1.0 / (1.0 + (-logit).exp())).sum::<f64>(),
    }
}

/// The distance between value `best` and the next one in descending order; infinite where all are among the best.
fn gap(mut values: Vec<f64>, best: usize) -> f64 {
    values.sort_by(|a, b| b.total_cmp(a));
    values.get(best).map_or(f64::INFINITY, |next| values[best - 1] - next)
}

#[cfg(test)]
mod tests {
    use config::RouterWeights;

    use super::*;

    fn routing(scores: RouterScores, groups: Option<ExpertGroups>) -> Routing {
        Routing { scores, weights: RouterWeights::Scores, scale: 1.0, groups }
    }

    #[test]
    fn the_last_chosen_and_the_first_other_decide() {
        let plain = routing(RouterScores::Softmax, None);
        let logits = [3.0, 1.0, 1.0 + 1e-6, -1.0];
        let near = |per_token| nearest(&plain, &logits, per_token) < NEARLY;
        assert_eq!([near(1), near(2), near(3), near(4)], [false, true, false, false]);
        // The groups' best are 3 and 2.9999999; within the better group nothing ties.
        let groups = Some(ExpertGroups { number: 2, kept: 1 });
        let of_groups = [3.0, 0.0, 2.999_999_9, 1.0];
        assert!(nearest(&routing(RouterScores::Softmax, groups), &of_groups, 1) < NEARLY);
        // Sums of two sigmoids are far apart.
        assert!(nearest(&routing(RouterScores::Sigmoid, groups), &of_groups, 1) > 0.01);
        assert!(nearest(&routing(RouterScores::Softmax, None), &of_groups, 2) > 0.01);
    }

    #[test]
    fn counts_tell_how_many_tokens_chose_otherwise_at_least() {
        let of = |choices: &[[i32; 2]]| {
            let mut chosen = Chosen::default();
            let plain = routing(RouterScores::Softmax, None);
            choices.iter().for_each(|choice| chosen.add(&plain, &[4.0, 3.0, 2.0, 1.0], choice));
            chosen
        };
        let [first, second] = [of(&[[0, 1], [0, 1]]), of(&[[0, 2], [0, 1]])];
        assert_eq!((&first.of_expert[..], first.near), (&[2, 2, 0, 0][..], 0));
        assert_eq!((first.differing(&second), first.differing(&first)), (1, 0));
    }
}
