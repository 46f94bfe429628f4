//! Attention on narrow queries, keys and values, which are side by side.

use device::{AttentionGradients, AttentionOperands, AttentionShape, DropoutKey, Dtype, Op, Tensor};

use crate::narrow::machine::{Machine, assert_rounded_once};

const SHAPES: [AttentionShape; 3] = [
    AttentionShape { sequences: 2, sequence_length: 70, heads: 4, kv_heads: 2, head_dim: 20 },
    AttentionShape { sequences: 1, sequence_length: 5, heads: 1, kv_heads: 1, head_dim: 3 },
    AttentionShape { sequences: 1, sequence_length: 130, heads: 2, kv_heads: 1, head_dim: 64 },
];

fn dropout() -> Option<DropoutKey> {
    Some(DropoutKey { seed: 1, step: 2, site: 3, first_token: 4, first_channel: 5, probability: 0.2 })
}

fn visible(machine: &Machine, shape: &AttentionShape) -> Tensor {
    let tokens = shape.sequences * shape.sequence_length;
    let interval = |token: usize| {
        let place = (token % shape.sequence_length) as i32;
        [place / 3, place + 1]
    };
    machine.ints(tokens, &(0..tokens).flat_map(interval).collect::<Vec<_>>())
}

#[test]
fn attention_and_its_gradients_are_rounded_once() {
    for (shape, dropout) in SHAPES.into_iter().flat_map(|shape| [(shape, None), (shape, dropout())]) {
        assert_rounded_once(&format!("{shape:?}"), |machine| {
            let tokens = shape.sequences * shape.sequence_length;
            let (width, kv_width) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
            let (fused, gradients) =
                (machine.stored(tokens, width + 2 * kv_width), machine.stored(tokens, width + 2 * kv_width));
            let split = |fused: Tensor| {
                let (key, value) = (width + kv_width, width + 2 * kv_width);
                [fused.cols_of(0..width), fused.cols_of(width..key), fused.cols_of(key..value)]
            };
            let ([q, k, v], [dq, dk, dv]) = (split(fused), split(gradients));
            let (out, log_sum_exp) = (machine.stored(tokens, width), machine.single(tokens, shape.heads));
            let (visible, scale, alibi) = (visible(machine, &shape), 0.3, None);
            let operands = AttentionOperands {
                shape,
                places: None,
                q,
                k,
                v,
                visible,
                window: None,
                scale,
                soft_cap: None,
                alibi,
                dropout,
                out,
                log_sum_exp,
            };
            machine.submit(Op::Attention { operands });
            // The backward passes read what the forward passes stored: the same numbers, which only the narrow one
            // rounds.
            let (given, dout) = (machine.stored(tokens, width), machine.stored(tokens, width));
            let key_sums = machine.single(2 * tokens * shape.kv_heads, shape.head_dim);
            let operands = AttentionOperands { out: given, ..operands };
            let of_operands = AttentionGradients { dout, dq, dk, dv, key_sums };
            machine.submit(Op::AttentionBackward { operands, gradients: of_operands });
            assert_eq!(key_sums.dtype, Dtype::F32);
            vec![out, log_sum_exp, gradients]
        });
    }
}
