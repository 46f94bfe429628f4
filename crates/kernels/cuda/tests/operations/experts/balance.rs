//! The balance of experts: counts, loads, corrections and capacities, losses of routers and their gradients.

use config::{IGNORED_LABEL, RouterScores};
use device::{BalanceOp, BalanceTerm, Dtype, Op, RouterTerms, RouterValues, Tensor, Write};

use super::chosen::{Chosen, Spread};
use crate::operations::bench::{ARENA_BYTES, Bench, assert_same};
use crate::operations::case::{Case, Values};

/// Runs of equally many tokens, tokens of each, experts and experts of a token.
const SIZES: [[usize; 4]; 7] =
    [[1, 1, 1, 1], [2, 3, 8, 2], [1, 130, 5, 3], [3, 41, 17, 4], [2, 300, 4, 1], [4, 8, 64, 8], [1, 7, 1100, 2]];

const SPREADS: [Spread; 3] = [Spread::Even, Spread::Uneven, Spread::All(0)];

/// Every size with every spread.
fn cases() -> impl Iterator<Item = (usize, [usize; 4], Spread)> {
    SIZES.into_iter().flat_map(|sizes| SPREADS.map(|spread| (sizes, spread))).enumerate().map(|(i, (s, k))| (i, s, k))
}

/// Choices and labels, of which one in five does not count; in some cases none does.
fn choices(case: &mut Case, [runs, length, experts, per_token]: [usize; 4], spread: Spread) -> [Tensor; 2] {
    let chosen = Chosen::new(&mut case.words, spread, [runs * length, experts, per_token], 0..experts);
    let choice = case.ints(&chosen.choice);
    let most_counted = case.words.below(4);
    let labels: Vec<i32> = (0..runs * length)
        .map(|token| if most_counted == 0 || case.words.below(5) == 0 { IGNORED_LABEL } else { token as i32 })
        .collect();
    [Tensor { rows: runs * length, cols: per_token, row_stride: per_token, ..choice }, case.ints(&labels)]
}

/// `[R,E]` with these numbers in turns.
fn counts(case: &mut Case, [runs, experts]: [usize; 2], numbers: &[i64]) -> Tensor {
    let tensor = case.place(runs, experts, 0, Dtype::I64);
    for place in 0..runs * experts {
        let number = numbers[case.words.below(numbers.len())];
        case.put(tensor, place / experts, place % experts, &number.to_le_bytes());
    }
    tensor
}

#[needs::cuda]
#[test]
fn choices_are_counted_as_on_the_cpu() {
    assert_same(&["balance"], counted);
}

pub fn counted(bench: &Bench) {
    for (index, sizes, spread) in cases() {
        let mut case = Case::new(index as u64);
        let [choice, labels] = choices(&mut case, sizes, spread);
        for write in [Write::Assign, Write::Accumulate] {
            let counts = counts(&mut case, [sizes[0], sizes[2]], &[0, 7, 1 << 40]);
            bench.compare(&case, &BalanceOp::CountChoices { choice, labels, counts, write }.into());
        }
    }
}

#[needs::cuda]
#[test]
fn loads_and_corrections_have_the_bits_of_the_cpu() {
    assert_same(&["balance"], moved);
}

pub fn moved(bench: &Bench) {
    for (index, [runs, experts]) in [[1, 1], [2, 8], [3, 17], [2, 300], [1, 1100]].into_iter().enumerate() {
        for numbers in [&[0][..], &[0, 1, 2, 3], &[1 << 30, (1 << 30) + 1], &[5], &[0, 1 << 40, 12_345_678]] {
            let mut case = Case::new(index as u64);
            let counts = counts(&mut case, [runs, experts], numbers);
            let load = case.reals(runs, experts, index % 3, Values::Plain);
            bench.compare(&case, &BalanceOp::Load { counts, load }.into());
            let correction = case.reals(runs, experts, index % 2, Values::Plain);
            bench.compare(&case, &BalanceOp::Correct { counts, rate: 0.001, correction }.into());
        }
    }
}

#[needs::cuda]
#[test]
fn choices_beyond_a_capacity_are_those_of_the_cpu() {
    assert_same(&["balance"], limited);
}

/// Weights of few values, so that many are equal, of any sign and NaN; and drawn ones.
fn weights(case: &mut Case, [tokens, per_token]: [usize; 2], are_few: bool) -> Tensor {
    const FEW: [f32; 7] = [0.0, -0.0, 0.25, 0.5, -1.0, f32::NAN, f32::INFINITY];
    let tensor = case.reals(tokens, per_token, 0, Values::Wild);
    for place in (0..tokens * per_token).filter(|_| are_few) {
        let value = FEW[case.words.below(FEW.len())];
        case.put(tensor, place / per_token, place % per_token, &value.to_le_bytes());
    }
    tensor
}

pub fn limited(bench: &Bench) {
    for (index, sizes, spread) in cases() {
        let [runs, length, experts, per_token] = sizes;
        let tokens = runs * length;
        for (number, capacity) in [1, 2, length.div_ceil(2), length].into_iter().enumerate() {
            let mut case = Case::new((4 * index + number) as u64);
            let [choice, labels] = choices(&mut case, sizes, spread);
            let weights = weights(&mut case, [tokens, per_token], (index + number) % 2 == 0);
            let kept = case.place(tokens, per_token, 0, Dtype::I32);
            let dropped = (number != 1).then(|| counts(&mut case, [1, 1], &[3]));
            bench.compare(&case, &limit([choice, weights, labels, kept], dropped, [runs, experts, capacity]));
        }
    }
}

fn limit(
    [choice, weights, labels, kept]: [Tensor; 4],
    dropped: Option<Tensor>,
    [sequences, experts, capacity]: [usize; 3],
) -> Op {
    BalanceOp::LimitChoices { choice, weights, labels, sequences, experts, capacity, kept, dropped }.into()
}

#[needs::cuda]
#[test]
fn counts_at_the_end_of_memory_are_used_to_their_end() {
    assert_same(&["balance"], ends);
}

pub fn ends(bench: &Bench) {
    let sizes = [2, 9, 6, 2];
    for last in 0..4 {
        let mut case = Case::with_last(5, last, ARENA_BYTES);
        let choice = case.place(18, 2, 0, Dtype::I32);
        for slot in 0..36 {
            case.put(choice, slot / 2, slot % 2, &((slot % 2 * 3 + slot % 3) as i32).to_le_bytes());
        }
        let weights = weights(&mut case, [18, 2], true);
        let labels = case.place(1, 18, 0, Dtype::I32);
        (0..18).for_each(|token| case.put(labels, 0, token, &(token as i32).to_le_bytes()));
        let kept = case.place(18, 2, 0, Dtype::I32);
        bench.compare(&case, &limit([choice, weights, labels, kept], None, [sizes[0], sizes[2], 2]));
        let counts = case.place(2, 6, 0, Dtype::I64);
        let write = Write::Assign;
        bench.compare(&case, &BalanceOp::CountChoices { choice, labels, counts, write }.into());
    }
}

/// Both losses, each alone, and none, by the scores of each kind.
fn terms(load: Tensor) -> impl Iterator<Item = (RouterScores, RouterTerms)> {
    let balance = Some(BalanceTerm { coefficient: 0.3, load });
    let both = [(balance, Some(0.1)), (balance, None), (None, Some(0.1)), (None, None)];
    RouterScores::ALL.into_iter().flat_map(move |scores| {
        both.into_iter().map(move |(balance, z_loss)| (scores, RouterTerms { balance, z_loss }))
    })
}

#[needs::cuda]
#[test]
fn losses_of_routers_have_the_bits_of_the_cpu() {
    assert_same(&["router_losses"], losses);
}

pub fn losses(bench: &Bench) {
    for (index, [runs, length, experts, _]) in SIZES.into_iter().enumerate() {
        for values in [Values::Plain, Values::Wild] {
            let mut case = Case::new(index as u64);
            let tokens = runs * length;
            let logits = case.reals(tokens, experts, index % 3, values);
            let load = case.reals(runs, experts, index % 2, Values::Plain);
            for (number, (scores, terms)) in terms(load).enumerate() {
                let mut place = |is_there: bool| is_there.then(|| case.vector(tokens, Values::Plain));
                let (balance, z_loss, entropy) =
                    (place(number % 3 != 0), place(number % 3 != 1), place(number % 5 != 2));
                let values = RouterValues { balance, z_loss, entropy };
                bench.compare(&case, &BalanceOp::RouterLosses { logits, scores, terms, values }.into());
            }
        }
    }
}

#[needs::cuda]
#[test]
fn gradients_of_losses_of_routers_have_the_bits_of_the_cpu() {
    assert_same(&["router_losses"], gradients);
}

pub fn gradients(bench: &Bench) {
    for (index, sizes) in SIZES.into_iter().enumerate() {
        let [runs, length, experts, _] = sizes;
        for values in [Values::Plain, Values::Wild] {
            let mut case = Case::new(index as u64);
            let [_, labels] = choices(&mut case, sizes, Spread::Even);
            let logits = case.reals(runs * length, experts, index % 3, values);
            let load = case.reals(runs, experts, index % 2, Values::Plain);
            for (scores, terms) in terms(load) {
                let dlogits = case.reals(runs * length, experts, index % 4, Values::Plain);
                let scale = 0.125;
                let op = BalanceOp::RouterLossesBackward { logits, labels, scores, terms, scale, dlogits };
                bench.compare(&case, &op.into());
            }
        }
    }
}
