//! All operations of a layer of experts, forward and backward: the same bits in all of memory, whoever computes them.

use config::{Activation, RouterScores, RouterWeights, Routing};
use cpu::instruction_set::InstructionSet;
use device::{Dtype, ExpertOp, Orientation, TokenRange, Write};

use super::machine::{Machine, Way};
use super::rows::Routed;

const HIDDEN: usize = 48;
const WIDTH: usize = 70;

/// The memory after a layer of which this rank has the experts from the third on.
fn layer(way: Way, tokens: usize, per_token: usize, experts: usize) -> Vec<u8> {
    let on = Machine::new(way);
    let routing = Routing { scores: RouterScores::Softmax, weights: RouterWeights::Scores, scale: 1.0, groups: None };
    let (x, dy) = (on.stored(tokens, HIDDEN), on.stored(tokens, HIDDEN));
    let (logits, dlogits) = (on.of_type(tokens, experts, Dtype::F32), on.poison(tokens, experts, Dtype::F32));
    let choice = on.ints(tokens, &vec![-9; tokens * per_token]);
    let [weights, dweights] = [(); 2].map(|()| on.poison(tokens, per_token, Dtype::F32));
    on.submit(ExpertOp::Route { logits, correction: None, routing, choice, weights });

    let (first, groups) = (2, experts - 2);
    let routed = Routed { choice: vec![0; tokens * per_token], tokens, per_token, experts };
    let rows = on.rows(choice, &routed, first, groups);
    let room = rows.slots.cols;
    let (up, down) = (on.stored(groups * 2 * WIDTH, HIDDEN), on.stored(groups * HIDDEN, WIDTH));
    let [gathered, out_rows] = [(); 2].map(|()| on.stored_poison(room, HIDDEN));
    let [hidden, dhidden] = [(); 2].map(|()| on.stored_poison(room, 2 * WIDTH));
    let [y, dy_rows] = [(); 2].map(|()| on.stored_poison(room, WIDTH));
    let (activation, product) = (Activation::SwiGlu, |orientation, a, b, out, write| {
        on.submit(ExpertOp::MatMul { orientation, a, b, out, rows, tokens: None, write });
    });
    on.submit(ExpertOp::GatherRows { from: x, rows, to: gathered });
    product(Orientation::Nt, gathered, up, hidden, Write::Assign);
    on.submit(ExpertOp::Activation { activation, x: hidden, y, rows });
    product(Orientation::Nt, y, down, out_rows, Write::Assign);
    let sum = on.stored_poison(tokens, HIDDEN);
    on.submit(ExpertOp::CombineRows { y: out_rows, weights: Some(weights), rows, out: sum, write: Write::Assign });

    on.submit(ExpertOp::GatherRows { from: dy, rows, to: out_rows });
    product(Orientation::Nn, out_rows, down, dy_rows, Write::Assign);
    on.submit(ExpertOp::ActivationBackward {
        activation,
        x: hidden,
        dy: dy_rows,
        weights,
        dx: dhidden,
        y,
        dweights,
        rows,
    });
    on.submit(ExpertOp::RouteBackward { logits, routing, choice, dweights, dlogits });
    let (dx_rows, dx) = (on.stored_poison(room, HIDDEN), on.stored_poison(tokens, HIDDEN));
    product(Orientation::Nn, dhidden, up, dx_rows, Write::Assign);
    on.submit(ExpertOp::CombineRows { y: dx_rows, weights: None, rows, out: dx, write: Write::Assign });
    let dup = on.poison(groups * 2 * WIDTH, HIDDEN, Dtype::F32);
    let ddown = on.poison(groups * HIDDEN, WIDTH, Dtype::F32);
    product(Orientation::Tn, dhidden, gathered, dup, Write::Assign);
    let tokens_of = |start, end| Some(TokenRange { start, end });
    for (range, write) in
        [(tokens_of(0, tokens / 2), Write::Assign), (tokens_of(tokens / 2, tokens), Write::Accumulate)]
    {
        let (orientation, a, b, out) = (Orientation::Tn, out_rows, y, ddown);
        on.submit(ExpertOp::MatMul { orientation, a, b, out, rows, tokens: range, write });
    }
    for tensor in [sum, dx, dup, ddown, dlogits, dweights] {
        assert!(on.read(tensor).iter().all(|value| value.is_finite()), "{way:?}: poison has spread to {tensor:?}");
    }
    on.bytes()
}

#[test]
fn a_layer_leaves_the_same_memory_on_all_sets_and_threads() {
    for way in Way::all() {
        for (tokens, per_token, experts) in [(93, 2, 6), (1, 1, 3), (40, 5, 5)] {
            let expected = layer(Way { set: InstructionSet::Scalar, ..way }, tokens, per_token, experts);
            for set in InstructionSet::available() {
                for threads in [1, 2, 4] {
                    let way = Way { set, threads, ..way };
                    assert!(layer(way, tokens, per_token, experts) == expected, "{way:?}, {tokens} tokens");
                }
            }
        }
    }
}

/// Bits of a token do not depend on the tokens around it.
#[test]
fn a_token_alone_has_the_bits_that_it_has_among_others() {
    for way in Way::all() {
        let on = Machine::new(way);
        let routed = Routed::drawn(64, 3, 8);
        let (x, up) = (on.stored(64, HIDDEN), on.stored(8 * WIDTH, HIDDEN));
        let weights = on.of_type(64, 3, Dtype::F32);
        let run = |tokens: std::ops::Range<usize>| {
            let choice = routed.choice[tokens.start * 3..tokens.end * 3].to_vec();
            let some = Routed { choice, tokens: tokens.len(), ..Routed::drawn(1, 3, 8) };
            let rows = on.rows(on.ints(some.tokens, &some.choice), &some, 0, 8);
            let (to, out_rows) = (on.stored_poison(rows.slots.cols, HIDDEN), on.stored_poison(rows.slots.cols, WIDTH));
            on.submit(ExpertOp::GatherRows { from: x.rows_of(tokens.clone()), rows, to });
            let (orientation, write) = (Orientation::Nt, Write::Assign);
            on.submit(ExpertOp::MatMul { orientation, a: to, b: up, out: out_rows, rows, tokens: None, write });
            let (out, weights) = (on.stored_poison(some.tokens, WIDTH), Some(weights.rows_of(tokens)));
            on.submit(ExpertOp::CombineRows { y: out_rows, weights, rows, out, write });
            on.read(out)
        };
        let all = run(0..64);
        for token in [0, 17, 63] {
            let alone = run(token..token + 1);
            let among = &all[token * WIDTH..(token + 1) * WIDTH];
            assert!(alone.iter().zip(among).all(|(a, b)| a.to_bits() == b.to_bits()), "{way:?}, token {token}");
        }
    }
}
