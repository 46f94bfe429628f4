//! Soft caps of logits and of scores against their definitions, on every instruction set.

#![allow(clippy::unwrap_used, reason = "a test ends where something fails")]

use cpu::attention::{
    Attention, AttentionBuffers, AttentionShape, Backward, Forward, attention_backward, attention_forward,
};
use cpu::instruction_set::InstructionSet;
use cpu::lanes::run;
use cpu::meter::Meter;
use cpu::soft_cap::{SoftCap, SoftCapBackward};
use cpu::view::{MatMut, MatRef};

/// The definition is exact; `tanh` is within two units in the last place, and is then scaled.
const NEAR: f64 = 6.0 * f32::EPSILON as f64;

/// Numbers around zero, of both signs, the same each time.
fn numbers(count: usize, size: f32, seed: usize) -> Vec<f32> {
    let fraction = |index: usize| ((index * 7919 + seed * 104_729) % 1999) as f32 / 999.5 - 1.0;
    (0..count).map(|index| size * fraction(index)).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn capped_numbers_and_their_gradients_follow_the_definition() {
    let (rows, cols, cap) = (3, 37, 2.5f32);
    let (x, dy) = (numbers(rows * cols, 12.0, 1), numbers(rows * cols, 1.0, 2));
    let mut before: Option<[Vec<u32>; 2]> = None;
    for set in InstructionSet::available() {
        let (mut y, mut gradient) = (x.clone(), dy.clone());
        run(set, SoftCap { x: MatMut::dense(&mut y, rows, cols), cap });
        let target = MatMut::dense(&mut gradient, rows, cols);
        run(set, SoftCapBackward { y: MatRef::dense(&y, rows, cols), cap, gradient: target });
        for index in 0..x.len() {
            let tanh = (f64::from(x[index]) / f64::from(cap)).tanh();
            let (exact, slope) = (f64::from(cap) * tanh, 1.0 - tanh * tanh);
            assert!((f64::from(y[index]) - exact).abs() <= NEAR * exact.abs(), "{} of {}", y[index], x[index]);
            let error = (f64::from(gradient[index]) - slope * f64::from(dy[index])).abs();
            assert!(error <= 3.0 * NEAR * f64::from(dy[index]).abs(), "{} of {}", gradient[index], x[index]);
        }
        let bits = [bits(&y), bits(&gradient)];
        assert!(before.as_ref().is_none_or(|before| *before == bits), "{set:?}");
        before = Some(bits);
    }
}

const SHAPE: AttentionShape = AttentionShape { sequences: 1, sequence_length: 70, heads: 2, kv_heads: 1, head_dim: 5 };
const CAP: f64 = 1.5;
const SCALE: f64 = 0.7;

/// The keys that each query sees: a window.
fn intervals() -> Vec<[i32; 2]> {
    (0..70).map(|place| [(place - 40).max(0), place + 1]).collect()
}

/// Outputs from the definition.
fn outputs(q: &[f64], k: &[f64], v: &[f64]) -> Vec<f64> {
    let AttentionShape { sequence_length: length, heads, head_dim: dims, .. } = SHAPE;
    let mut out = vec![0.0; length * heads * dims];
    for (query, [first, last]) in intervals().into_iter().enumerate() {
        for head in 0..heads {
            let row = (query * heads + head) * dims;
            let score = |key: usize| {
                let product: f64 = (0..dims).map(|dim| q[row + dim] * k[key * dims + dim]).sum();
                CAP * (SCALE * product / CAP).tanh()
            };
            let keys = first as usize..last as usize;
            let powers: Vec<f64> = keys.clone().map(|key| score(key).exp()).collect();
            let sum: f64 = powers.iter().sum();
            for dim in 0..dims {
                out[row + dim] = keys.clone().zip(&powers).map(|(key, power)| power / sum * v[key * dims + dim]).sum();
            }
        }
    }
    out
}

fn matrix(values: &[f32], cols: usize) -> MatRef<'_> {
    MatRef::dense(values, SHAPE.sequence_length, cols)
}

#[test]
fn attention_with_a_cap_follows_the_definition() {
    let AttentionShape { sequence_length: length, heads, head_dim: dims, .. } = SHAPE;
    let (queries, keys) = (length * heads * dims, length * dims);
    let [q, k, v, dout] = [(queries, 2.0, 3), (keys, 2.0, 4), (keys, 1.0, 5), (queries, 1.0, 6)]
        .map(|(count, size, seed)| numbers(count, size, seed));
    let double = |values: &[f32]| values.iter().map(|value| f64::from(*value)).collect::<Vec<_>>();
    let exact = outputs(&double(&q), &double(&k), &double(&v));
    let visible = intervals();
    let attention = Attention {
        shape: SHAPE,
        visible: &visible,
        first_key: None,
        scale: SCALE as f32,
        soft_cap: Some(CAP as f32),
        alibi: None,
        dropout: None,
    };
    let (wide, narrow) = (heads * dims, dims);
    let mut before: Option<Vec<u32>> = None;
    for set in InstructionSet::available() {
        let (mut out, mut log_sum_exp) = (vec![0.0; queries], vec![0.0; length * heads]);
        let tensors = Forward {
            q: matrix(&q, wide),
            k: matrix(&k, narrow),
            v: matrix(&v, narrow),
            out: MatMut::dense(&mut out, length, wide),
            log_sum_exp: MatMut::dense(&mut log_sum_exp, length, heads),
        };
        attention_forward(&attention, tensors, &mut AttentionBuffers::new(), set, &Meter::default());
        let far = |found: &[f32], exact: &[f64]| {
            let square = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>();
            let apart = square(&mut found.iter().zip(exact).map(|(a, b)| f64::from(*a) - b));
            (apart / square(&mut exact.iter().copied())).sqrt()
        };
        assert!(far(&out, &exact) < 1e-6, "{}", far(&out, &exact));

        let (mut dq, mut dk, mut dv) = (vec![0.0; queries], vec![0.0; keys], vec![0.0; keys]);
        let mut key_sums = vec![0.0; 2 * keys];
        let tensors = Backward {
            q: matrix(&q, wide),
            k: matrix(&k, narrow),
            v: matrix(&v, narrow),
            out: matrix(&out, wide),
            log_sum_exp: matrix(&log_sum_exp, heads),
            dout: matrix(&dout, wide),
            dq: MatMut::dense(&mut dq, length, wide),
            dk: MatMut::dense(&mut dk, length, narrow),
            dv: MatMut::dense(&mut dv, length, narrow),
            key_sums: MatMut::dense(&mut key_sums, 2 * length, narrow),
        };
        attention_backward(&attention, tensors, &mut AttentionBuffers::new(), set, &Meter::default());
        // Central differences of the definition.
        let loss = |inputs: &[Vec<f64>; 3]| -> f64 {
            let [q, k, v] = inputs;
            outputs(q, k, v).iter().zip(&dout).map(|(out, dout)| out * f64::from(*dout)).sum()
        };
        for (index, found) in [&dq, &dk, &dv].into_iter().enumerate() {
            let places: Vec<usize> = (0..found.len()).step_by(13).collect();
            let exact: Vec<f64> = places
                .iter()
                .map(|place| {
                    let at = |step: f64| {
                        let mut inputs = [double(&q), double(&k), double(&v)];
                        inputs[index][*place] += step;
                        loss(&inputs)
                    };
                    (at(1e-4) - at(-1e-4)) / 2e-4
                })
                .collect();
            let found: Vec<f32> = places.iter().map(|place| found[*place]).collect();
            assert!(far(&found, &exact) < 3e-6, "{index}: {}", far(&found, &exact));
        }
        let bits = [bits(&out), bits(&dq), bits(&dk), bits(&dv)].concat();
        assert!(before.as_ref().is_none_or(|before| *before == bits), "{set:?}");
        before = Some(bits);
    }
}
