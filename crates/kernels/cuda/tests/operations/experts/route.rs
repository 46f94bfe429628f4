//! Choices of a router and the gradient of its weights.

use config::{ExpertGroups, RouterScores, RouterWeights, Routing};
use device::{Dtype, ExpertOp, Tensor};

use super::chosen::{Chosen, Spread};
use crate::operations::bench::{ARENA_BYTES, Bench, assert_same};
use crate::operations::case::{Case, Values};

/// Tokens, experts, experts of a token, and groups and those that are kept: none of 0.
const SIZES: [[usize; 5]; 13] = [
    [1, 1, 1, 0, 0],
    [3, 2, 2, 1, 1],
    [5, 8, 2, 0, 0],
    [9, 16, 16, 0, 0],
    [4, 17, 3, 0, 0],
    [7, 24, 4, 6, 2],
    [6, 33, 6, 11, 2],
    [2, 36, 9, 36, 9],
    [3, 60, 4, 2, 1],
    [1, 256, 8, 8, 4],
    [70, 8, 3, 4, 2],
    [5, 1100, 20, 22, 3],
    [2, 4096, 2, 64, 2],
];

/// Logits of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Logits {
    Drawn(Values),
    /// Of few values, so that many are equal.
    Few,
}

/// Every kind of scores and weights, with groups in some.
fn rules([.., groups, kept]: [usize; 5]) -> impl Iterator<Item = Routing> {
    let groups = (groups > 0).then_some(ExpertGroups { number: groups, kept });
    RouterScores::ALL.into_iter().flat_map(move |scores| {
        RouterWeights::ALL.into_iter().map(move |weights| Routing { scores, weights, scale: 2.5, groups })
    })
}

fn logits(case: &mut Case, kind: Logits, [tokens, experts]: [usize; 2], gap: usize) -> Tensor {
    const FEW: [f32; 6] = [0.0, -0.0, 1.0, -1.0, 30.0, f32::NAN];
    let tensor =
        case.reals(tokens, experts, gap, if let Logits::Drawn(values) = kind { values } else { Values::Plain });
    if kind == Logits::Few {
        for place in 0..tokens * experts {
            // NaN is rare: with one, all scores by softmax are.
            let value = FEW[case.words.below(5) + usize::from(case.words.below(40) == 0)];
            case.put(tensor, place / experts, place % experts, &value.to_le_bytes());
        }
    }
    tensor
}

#[needs::cuda]
#[test]
fn choices_and_their_weights_have_the_bits_of_the_cpu() {
    assert_same(&["route"], choices);
}

pub fn choices(bench: &Bench) {
    for (index, sizes) in SIZES.into_iter().enumerate() {
        let [tokens, experts, per_token, ..] = sizes;
        for (number, routing) in rules(sizes).enumerate() {
            for kind in [Logits::Drawn(Values::Plain), Logits::Few, Logits::Drawn(Values::Wild)] {
                let mut case = Case::new((index * 4 + number) as u64);
                let logits = logits(&mut case, kind, [tokens, experts], index % 3);
                let correction = (number + index) % 3 == 0;
                let correction = correction.then(|| case.vector(experts, Values::Plain));
                let choice = case.place(tokens, per_token, 0, Dtype::I32);
                let weights = case.reals(tokens, per_token, index % 2, Values::Plain);
                bench.compare(&case, &ExpertOp::Route { logits, correction, routing, choice, weights }.into());
            }
        }
    }
}

#[needs::cuda]
#[test]
fn gradients_of_logits_have_the_bits_of_the_cpu() {
    assert_same(&["route"], gradients);
}

pub fn gradients(bench: &Bench) {
    for (index, sizes) in SIZES.into_iter().enumerate() {
        for (number, routing) in rules(sizes).enumerate() {
            let mut case = Case::new((index * 4 + number) as u64);
            gradient(bench, &mut case, sizes, routing, index % 4);
        }
    }
}

fn gradient(
    bench: &Bench,
    case: &mut Case,
    [tokens, experts, per_token, ..]: [usize; 5],
    routing: Routing,
    gap: usize,
) {
    let chosen = Chosen::new(&mut case.words, Spread::Even, [tokens, experts, per_token], 0..experts);
    for kind in [Logits::Drawn(Values::Plain), Logits::Drawn(Values::Wild)] {
        let logits = logits(case, kind, [tokens, experts], gap);
        let choice = case.place(tokens, per_token, 0, Dtype::I32);
        for (slot, expert) in chosen.choice.iter().enumerate() {
            case.put(choice, slot / per_token, slot % per_token, &expert.to_le_bytes());
        }
        let dweights = case.reals(tokens, per_token, gap / 2, Values::Plain);
        let dlogits = case.reals(tokens, experts, gap % 2, Values::Plain);
        bench.compare(case, &ExpertOp::RouteBackward { logits, routing, choice, dweights, dlogits }.into());
    }
}

#[needs::cuda]
#[test]
fn logits_at_the_end_of_memory_are_read_to_their_end() {
    assert_same(&["route"], ends);
}

pub fn ends(bench: &Bench) {
    let sizes = [3, 24, 3, 4, 2];
    let [tokens, experts, per_token, ..] = sizes;
    for (last, routing) in (0..4).flat_map(|last| rules(sizes).map(move |routing| (last, routing))) {
        let mut case = Case::with_last(7, last, ARENA_BYTES);
        let logits = case.reals(tokens, experts, 0, Values::Plain);
        let correction = Some(case.vector(experts, Values::Plain));
        let choice = case.place(tokens, per_token, 0, Dtype::I32);
        let weights = case.reals(tokens, per_token, 0, Values::Plain);
        bench.compare(&case, &ExpertOp::Route { logits, correction, routing, choice, weights }.into());
        let mut case = Case::with_last(7, last, ARENA_BYTES);
        gradient(bench, &mut case, sizes, routing, 0);
    }
}
