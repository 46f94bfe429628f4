//! Activations of rows: the bits of those of a dense layer, with the weight where its definition has it.

use config::Activation;
use cpu::activation::{ActivationBackward, ActivationForward};
use cpu::experts::{ExpertActivationBackward, expert_activation};
use cpu::instruction_set::InstructionSet;
use cpu::lanes::run;
use cpu::view::{MatMut, MatRef};

use super::rows::{Routed, Rows, grouped};
use crate::kernels::activation;
use crate::kernels::support::{ROUNDING, assert_gradient, assert_within, dot, double, random, same_on_all_sets};

/// `w <dy, activation(x)>` is the only term of a loss that a row is in.
#[test]
fn the_definition_agrees_with_differences() {
    for kind in Activation::ALL {
        let x = double(&random("x", 24, 3.0));
        let (dy, weight) = (double(&random("dy", 24 / kind.inputs_per_output(), 1.0)), 0.7);
        let loss = |x: &[f64], weight: f64| weight * dot(&activation::forward(kind, x), &dy);
        let weighted: Vec<f64> = dy.iter().map(|dy| weight * dy).collect();
        assert_gradient("dx", |x| loss(x, weight), &x, &activation::backward(kind, &x, &weighted));
        let dweight = dot(&activation::forward(kind, &x), &dy);
        assert_gradient("dweight", |weight| loss(&x, weight[0]), &[weight], &[dweight]);
    }
}

struct Case {
    rows: Rows,
    room: usize,
    tokens: usize,
    per_token: usize,
    outputs: usize,
    cols: usize,
    x: Vec<f32>,
    dy: Vec<f32>,
    weights: Vec<f32>,
}

impl Case {
    fn new(routed: &Routed, outputs: usize, kind: Activation) -> Case {
        let (room, cols) = (routed.choice.len() + 2, outputs * kind.inputs_per_output());
        let half = routed.experts / 2;
        let rows = grouped(routed, half, routed.experts - half, room);
        let mut case = Case {
            room,
            tokens: routed.tokens,
            per_token: routed.per_token,
            outputs,
            cols,
            x: random("x", room * cols, 4.0),
            dy: random("dy", room * outputs, 1.0),
            weights: random("weights", routed.choice.len(), 2.0),
            rows,
        };
        // Rows after the last are poison.
        let count = case.rows.slots.iter().filter(|slot| **slot >= 0).count();
        case.x[count * cols..].fill(f32::NAN);
        case.dy[count * outputs..].fill(f32::NAN);
        case
    }

    /// Of each row, its slot.
    fn slots(&self) -> impl Iterator<Item = (usize, Option<usize>)> + '_ {
        self.rows.slots.iter().map(|slot| usize::try_from(*slot).ok()).enumerate()
    }

    fn backward(&self, kind: Activation, set: InstructionSet) -> [Vec<f32>; 3] {
        let (room, cols, outputs) = (self.room, self.cols, self.outputs);
        let (mut dx, mut y) = (vec![7.5; room * cols], vec![7.5; room * outputs]);
        let mut dweights = vec![7.5; self.weights.len()];
        let kernel = ExpertActivationBackward {
            activation: kind,
            x: MatRef::dense(&self.x, room, cols),
            dy: MatRef::dense(&self.dy, room, outputs),
            weights: MatRef::dense(&self.weights, self.tokens, self.per_token),
            dx: MatMut::dense(&mut dx, room, cols),
            y: MatMut::dense(&mut y, room, outputs),
            dweights: MatMut::dense(&mut dweights, self.tokens, self.per_token),
            places: &self.rows.places,
        };
        run(set, kernel);
        [dx, y, dweights]
    }

    fn forward(&self, kind: Activation, set: InstructionSet) -> Vec<f32> {
        let mut y = vec![7.5; self.room * self.outputs];
        let (x, to) = (MatRef::dense(&self.x, self.room, self.cols), MatMut::dense(&mut y, self.room, self.outputs));
        expert_activation(kind, x, to, &self.rows.places, set);
        y
    }

    /// Outputs of [`ActivationForward`], and of [`ActivationBackward`] for weighted gradients; 7.5 where no row is.
    fn dense(&self, kind: Activation, set: InstructionSet) -> [Vec<f32>; 2] {
        let (room, cols, outputs) = (self.room, self.cols, self.outputs);
        let mut dy = vec![0.0; self.dy.len()];
        for (row, slot) in self.slots() {
            let weight = slot.map_or(0.0, |slot| self.weights[slot]);
            for (to, from) in dy[row * outputs..].iter_mut().zip(&self.dy[row * outputs..(row + 1) * outputs]) {
                *to = weight * from;
            }
        }
        let (mut dx, mut y) = (vec![0.0; room * cols], vec![0.0; room * outputs]);
        let (x, to) = (MatRef::dense(&self.x, room, cols), MatMut::dense(&mut y, room, outputs));
        run(set, ActivationForward { activation: kind, x, y: to });
        let mut again = y.clone();
        let kernel = ActivationBackward {
            activation: kind,
            x,
            dy: MatRef::dense(&dy, room, outputs),
            dx: MatMut::dense(&mut dx, room, cols),
            y: MatMut::dense(&mut again, room, outputs),
        };
        run(set, kernel);
        for (row, _) in self.slots().filter(|(_, slot)| slot.is_none()) {
            dx[row * cols..(row + 1) * cols].fill(7.5);
            y[row * outputs..(row + 1) * outputs].fill(7.5);
        }
        [y, dx]
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// A gradient of a weight is a sum of `F` products: one rounding each, and at most `min(F, 1024) / 16 + 5` of sums.
#[test]
fn rows_have_the_bits_of_a_dense_layer_and_weights_their_gradient() {
    for kind in Activation::ALL {
        for (routed, outputs) in Routed::cases().iter().zip([1, 16, 33, 70, 5, 1100, 3]) {
            let case = Case::new(routed, outputs, kind);
            let set = InstructionSet::detect();
            let [dense_y, dense_dx] = case.dense(kind, set);
            let forward = same_on_all_sets(|set| case.forward(kind, set));
            assert_eq!(bits(&forward), bits(&dense_y), "{kind:?}");
            same_on_all_sets(|set| case.backward(kind, set).concat());
            let [dx, y, dweights] = case.backward(kind, set);
            assert_eq!(bits(&dx), bits(&dense_dx), "{kind:?}");
            let mut exact = vec![0.0; dweights.len()];
            let mut sizes = exact.clone();
            for (row, slot) in case.slots() {
                let of_row = row * outputs..(row + 1) * outputs;
                let Some(slot) = slot else {
                    assert!(y[of_row].iter().all(|value| *value == 7.5), "a row after the last is written");
                    continue;
                };
                let terms = dense_y[of_row.clone()].iter().zip(&case.dy[of_row.clone()]);
                let terms: Vec<f64> = terms.map(|(y, dy)| f64::from(*y) * f64::from(*dy)).collect();
                exact[slot] = terms.iter().sum();
                sizes[slot] = terms.iter().map(|term| term.abs()).sum();
                for (weighted, y) in y[of_row.clone()].iter().zip(&dense_y[of_row]) {
                    assert_eq!(weighted.to_bits(), (case.weights[slot] * y).to_bits());
                }
            }
            let roundings = 8.0 + outputs.min(1024) as f64 / 16.0;
            // Underflow of a product is at most half the least number.
            let floor = outputs as f64 * f64::from(f32::from_bits(1));
            assert_within(&format!("{kind:?} dweights"), &dweights, &exact, |slot| {
                roundings * ROUNDING * sizes[slot] + if sizes[slot] > 0.0 { floor } else { 0.0 }
            });
        }
    }
}
