//! Experts: choice, rows, products of each expert, and the ways back.

use std::ops::Range;

use config::{ExpertGroups, RouterScores, RouterWeights, Routing};
use device::{ExpertOp, ExpertRows, Orientation, Tensor};

use super::Memory;
use super::activation::Point;
use super::dense::put;

pub fn run(memory: &mut Memory, op: &ExpertOp) {
    match *op {
        ExpertOp::Route { .. } => route(memory, op),
        ExpertOp::RouteBackward { logits, routing, choice, dweights, dlogits } => {
            for token in 0..logits.rows {
                let gradient = route_backward(memory, (logits, choice, dweights), token, routing);
                gradient.iter().enumerate().for_each(|(expert, value)| memory.set(dlogits, token, expert, *value));
            }
        }
        ExpertOp::GroupRows { choice, first_expert, rows } => group_rows(memory, choice, first_expert, rows),
        ExpertOp::GatherRows { from, rows, to } => {
            for (row, token) in tokens(memory, rows).into_iter().enumerate() {
                for col in 0..to.cols {
                    let value = memory.get(from, token, col);
                    memory.set(to, row, col, value);
                }
            }
        }
        ExpertOp::MatMul { orientation, a, b, out, rows, tokens: within, write } => {
            let tokens = tokens(memory, rows);
            let is_within = |row: &usize| within.is_none_or(|range| (range.start..range.end).contains(&tokens[*row]));
            for (group, range) in groups(memory, rows).into_iter().enumerate() {
                let of_group: Vec<usize> = range.filter(is_within).collect();
                for (place, value) in product(memory, orientation, (a, b), (group, rows.groups()), &of_group) {
                    put(memory, out, place, value, write);
                }
            }
        }
        ExpertOp::CombineRows { y, weights, rows, out, write } => {
            for token in 0..out.rows {
                for col in 0..out.cols {
                    let of_slot = |slot: usize| {
                        let row = usize::try_from(memory.integer(rows.places, token, slot)).ok()?;
                        let weight = weights.map_or(1.0, |weights| memory.get(weights, token, slot));
                        Some(weight * memory.get(y, row, col))
                    };
                    let sum = (0..rows.places.cols).filter_map(of_slot).sum();
                    put(memory, out, (token, col), sum, write);
                }
            }
        }
        ExpertOp::Activation { activation, x, y, rows } => {
            for row in 0..tokens(memory, rows).len() {
                for col in 0..y.cols {
                    let value = Point::of(memory, activation, x, (row, col)).value(activation);
                    memory.set(y, row, col, value);
                }
            }
        }
        ExpertOp::ActivationBackward { activation, x, dy, weights, dx, y, dweights, rows } => {
            memory.assign(dweights, &vec![0.0; dweights.len()]);
            for row in 0..tokens(memory, rows).len() {
                let slot = memory.integer(rows.slots, 0, row) as usize;
                let (token, slot) = (slot / weights.cols, slot % weights.cols);
                let weight = memory.get(weights, token, slot);
                for col in 0..y.cols {
                    let point = Point::of(memory, activation, x, (row, col));
                    let (value, gradient) = (point.value(activation), memory.get(dy, row, col));
                    let (first, second) = point.derivatives(activation);
                    memory.set(dx, row, col, weight * gradient * first);
                    if activation.inputs_per_output() == 2 {
                        memory.set(dx, row, y.cols + col, weight * gradient * second);
                    }
                    memory.set(y, row, col, weight * value);
                    memory.add(dweights, token, slot, gradient * value);
                }
            }
        }
    }
}

fn route(memory: &mut Memory, op: &ExpertOp) {
    let ExpertOp::Route { logits, correction, routing, choice, weights } = *op else { unreachable!("{op:?}") };
    for token in 0..logits.rows {
        let scores = scores(memory, logits, token, routing.scores);
        let added = |expert| correction.map_or(0.0, |bias: Tensor| memory.get(bias, 0, expert));
        let wanted: Vec<f64> = scores.iter().enumerate().map(|(at, score)| score + added(at)).collect();
        let chosen = chosen(&wanted, routing, choice.cols);
        let sum = weight_sum(&scores, &chosen, routing.weights);
        for (slot, expert) in chosen.iter().enumerate() {
            memory.set(choice, token, slot, *expert as f64);
            memory.set(weights, token, slot, f64::from(routing.scale) * scores[*expert] / sum);
        }
    }
}

pub fn scores(memory: &Memory, logits: Tensor, token: usize, scores: RouterScores) -> Vec<f64> {
    let logits: Vec<f64> = (0..logits.cols).map(|expert| memory.get(logits, token, expert)).collect();
    match scores {
        RouterScores::Sigmoid => logits.iter().map(|logit| 1.0 / (1.0 + (-logit).exp())).collect(),
        RouterScores::Softmax => {
            let sum: f64 = logits.iter().map(|logit| logit.exp()).sum();
            logits.iter().map(|logit| logit.exp() / sum).collect()
        }
    }
}

/// The experts of the largest scores, ascending; of equal ones the first.
fn chosen(wanted: &[f64], routing: Routing, per_token: usize) -> Vec<usize> {
    let best = |values: &[f64], count: usize| -> Vec<usize> {
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by(|one, two| values[*two].total_cmp(&values[*one]));
        order.truncate(count);
        order
    };
    let allowed: Vec<f64> = match routing.groups {
        None => wanted.to_vec(),
        Some(ExpertGroups { number, kept }) => {
            let size = wanted.len() / number;
            let summed = match routing.scores {
                RouterScores::Softmax => 1,
                RouterScores::Sigmoid => 2,
            };
            let of_group = |group: &[f64]| best(group, summed).iter().map(|at| group[*at]).sum();
            let kept = best(&wanted.chunks(size).map(of_group).collect::<Vec<f64>>(), kept);
            let is_kept = |expert: usize| kept.contains(&(expert / size));
            wanted.iter().enumerate().map(|(at, one)| if is_kept(at) { *one } else { f64::NEG_INFINITY }).collect()
        }
    };
    let mut chosen = best(&allowed, per_token);
    chosen.sort_unstable();
    chosen
}

fn weight_sum(scores: &[f64], chosen: &[usize], weights: RouterWeights) -> f64 {
    match weights {
        RouterWeights::Scores => 1.0,
        RouterWeights::Normalised => chosen.iter().map(|expert| scores[*expert]).sum(),
    }
}

fn route_backward(
    memory: &Memory,
    (logits, choice, dweights): (Tensor, Tensor, Tensor),
    token: usize,
    routing: Routing,
) -> Vec<f64> {
    let scores = scores(memory, logits, token, routing.scores);
    let chosen: Vec<usize> = (0..choice.cols).map(|slot| memory.integer(choice, token, slot) as usize).collect();
    let scaled = |slot: usize| f64::from(routing.scale) * memory.get(dweights, token, slot);
    let sum = weight_sum(&scores, &chosen, routing.weights);
    let through_sum: f64 = match routing.weights {
        RouterWeights::Scores => 0.0,
        RouterWeights::Normalised => (0..chosen.len()).map(|slot| scaled(slot) * scores[chosen[slot]] / sum).sum(),
    };
    let mut gradient = vec![0.0; scores.len()];
    for (slot, expert) in chosen.iter().enumerate() {
        gradient[*expert] = (scaled(slot) - through_sum) / sum;
    }
    let mean: f64 = match routing.scores {
        RouterScores::Softmax => gradient.iter().zip(&scores).map(|(gradient, score)| gradient * score).sum(),
        RouterScores::Sigmoid => 0.0,
    };
    let of_logit = |(gradient, score): (&f64, &f64)| match routing.scores {
        RouterScores::Softmax => score * (gradient - mean),
        RouterScores::Sigmoid => gradient * score * (1.0 - score),
    };
    gradient.iter().zip(&scores).map(of_logit).collect()
}

fn group_rows(memory: &mut Memory, choice: Tensor, first_expert: usize, rows: ExpertRows) {
    memory.assign(rows.places, &vec![-1.0; rows.places.len()]);
    memory.assign(rows.slots, &vec![-1.0; rows.slots.len()]);
    let mut row = 0;
    for group in 0..rows.groups() {
        memory.set(rows.offsets, 0, group, row as f64);
        for token in 0..choice.rows {
            for slot in 0..choice.cols {
                if memory.integer(choice, token, slot) == (first_expert + group) as i64 {
                    memory.set(rows.places, token, slot, row as f64);
                    memory.set(rows.slots, 0, row, (token * choice.cols + slot) as f64);
                    row += 1;
                }
            }
        }
    }
    memory.set(rows.offsets, 0, rows.groups(), row as f64);
}

/// The rows of each expert.
fn groups(memory: &Memory, rows: ExpertRows) -> Vec<Range<usize>> {
    let offset = |group: usize| memory.integer(rows.offsets, 0, group) as usize;
    (0..rows.groups()).map(|group| offset(group)..offset(group + 1)).collect()
}

/// The token of each row.
fn tokens(memory: &Memory, rows: ExpertRows) -> Vec<usize> {
    let number = memory.integer(rows.offsets, 0, rows.groups()) as usize;
    (0..number).map(|row| memory.integer(rows.slots, 0, row) as usize / rows.places.cols).collect()
}

/// Elements of the product of one group, with their places.
fn product(
    memory: &Memory,
    orientation: Orientation,
    (a, b): (Tensor, Tensor),
    (group, groups): (usize, usize),
    rows: &[usize],
) -> Vec<((usize, usize), f64)> {
    let get = |tensor: Tensor, row: usize, col: usize| memory.get(tensor, row, col);
    let of_group = b.rows / groups;
    let mut out = vec![];
    match orientation {
        Orientation::Nt | Orientation::Nn => {
            let cols = if orientation == Orientation::Nt { of_group } else { b.cols };
            for row in rows {
                for col in 0..cols {
                    let term = |k: usize| match orientation {
                        Orientation::Nt => get(a, *row, k) * get(b, group * of_group + col, k),
                        Orientation::Nn | Orientation::Tn => get(a, *row, k) * get(b, group * of_group + k, col),
                    };
                    out.push(((*row, col), (0..a.cols).map(term).sum()));
                }
            }
        }
        Orientation::Tn => {
            for n in 0..a.cols {
                for k in 0..b.cols {
                    let sum = rows.iter().map(|row| get(a, *row, n) * get(b, *row, k)).sum();
                    out.push(((group * a.cols + n, k), sum));
                }
            }
        }
    }
    out
}
