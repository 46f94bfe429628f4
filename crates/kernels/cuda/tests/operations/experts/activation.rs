//! Activations of the rows of experts, and their gradients with those of the weights.

use device::ExpertOp;

use super::chosen::{Chosen, Spread};
use crate::operations::activation::ALL;
use crate::operations::bench::{Bench, assert_same};
use crate::operations::case::{Case, STORED, Values};

#[needs::cuda]
#[test]
fn activations_of_experts_have_the_bits_of_the_cpu() {
    assert_same(&["expert_activation"], activations);
}

pub fn activations(bench: &Bench) {
    let typed = STORED.into_iter().flat_map(|stored| ALL.map(|activation| (stored, activation)));
    for (index, (stored, activation)) in typed.enumerate() {
        for ([tokens, experts, per_token], own, cols, gaps, spread, values) in [
            ([1, 1, 1], 0..1, 1, [0; 4], Spread::Even, Values::Plain),
            ([7, 4, 2], 1..3, 33, [index % 3, index % 4, 1, index % 5], Spread::Even, Values::Wild),
            ([5, 4, 3], 0..4, 32, [0; 4], Spread::Uneven, Values::Wild),
            ([4, 4, 1], 2..4, 40, [8, 0, 8, 16], Spread::All(0), Values::Plain),
            // More than a chunk of a sum.
            ([3, 3, 1], 0..3, 1040, [0; 4], Spread::All(2), Values::Plain),
            ([41, 3, 2], 0..2, 5, [1, 0, 0, 3], Spread::Even, Values::Plain),
        ] {
            let mut case = Case::new(index as u64).storing(stored);
            let chosen = Chosen::new(&mut case.words, spread, [tokens, experts, per_token], own);
            let (room, inputs) = (chosen.room(), activation.inputs_per_output() * cols);
            let x = case.stored(room, inputs, gaps[0], values);
            let y = case.stored(room, cols, gaps[1], Values::Plain);
            let rows = chosen.placed(&mut case);
            chosen.poison(&mut case, x);
            bench.compare(&case, &ExpertOp::Activation { activation, x, y, rows }.into());
            let dy = case.stored(room, cols, gaps[2], values);
            chosen.poison(&mut case, dy);
            let dx = case.stored(room, inputs, gaps[3], Values::Plain);
            let weights = case.reals(tokens, per_token, index % 2, Values::Plain);
            let dweights = case.reals(tokens, per_token, index % 3, Values::Plain);
            let op = ExpertOp::ActivationBackward { activation, x, dy, weights, dx, y, dweights, rows };
            bench.compare(&case, &op.into());
        }
    }
}
