use config::{Pairing, RotaryScaling};
use cpu::lanes::run;
use cpu::rotary::{Rotary, RotaryTable};
use cpu::view::{MatMut, MatRef};
use device::Direction;

use crate::kernels::support::*;

struct Tables {
    positions: usize,
    pairs: usize,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

fn tables(positions: usize, pairs: usize, base: f32, scaling: RotaryScaling) -> Tables {
    let both = same_on_all_sets(|set| {
        let (mut cos, mut sin) = (vec![0.0; positions * pairs], vec![0.0; positions * pairs]);
        let cos_out = MatMut::dense(&mut cos, positions, pairs);
        let sin_out = MatMut::dense(&mut sin, positions, pairs);
        run(set, RotaryTable { cos: cos_out, sin: sin_out, base, scaling });
        cos.extend(sin);
        cos
    });
    let (cos, sin) = both.split_at(positions * pairs);
    Tables { positions, pairs, cos: cos.to_vec(), sin: sin.to_vec() }
}

#[test]
fn tables_are_rounded_cosines_and_sines() {
    let (positions, pairs) = (3000, 5);
    let llama = RotaryScaling::Llama3 { factor: 8.0, low_turns: 1.0, high_turns: 4.0, original_context: 1000 };
    let yarn =
        RotaryScaling::Yarn { factor: 4.0, low_turns: 1.0, high_turns: 16.0, original_context: 1000, magnitude: 1.25 };
    let plain = [10_000.0f32, 500_000.0].map(|base| (base, RotaryScaling::Off));
    for (base, scaling) in plain.into_iter().chain([(100.0, llama), (100.0, yarn)]) {
        let tables = tables(positions, pairs, base, scaling);
        let frequency = |pair: usize| {
            scaling.of_pairs(base, pairs).scaled(pair, f64::from(base).powf(-(pair as f64) / pairs as f64))
        };
        let magnitude = f64::from(scaling.magnitude());
        let angle = |i: usize| (i / pairs) as f64 * frequency(i % pairs);
        let exact = |f: fn(f64) -> f64| (0..positions * pairs).map(|i| magnitude * f(angle(i))).collect::<Vec<_>>();
        // One rounding to f32, and the error of the angle in f64.
        assert_within("cos", &tables.cos, &exact(f64::cos), |i| 1.25 * ROUNDING + angle(i) * 2e-15);
        assert_within("sin", &tables.sin, &exact(f64::sin), |i| 1.25 * ROUNDING + angle(i) * 2e-15);
    }
}

/// The rotation of one head from its formula, as complex numbers.
fn rotate(x: &[f64], pairs: usize, pairing: Pairing, angle: impl Fn(usize) -> (f64, f64)) -> Vec<f64> {
    let mut y = x.to_vec();
    for i in 0..pairs {
        let (first, second) = match pairing {
            Pairing::Half => (i, i + pairs),
            Pairing::Interleaved => (2 * i, 2 * i + 1),
        };
        let (cos, sin) = angle(i);
        y[first] = x[first] * cos - x[second] * sin;
        y[second] = x[second] * cos + x[first] * sin;
    }
    y
}

fn turned(
    x: &[f32],
    heads: usize,
    head_dim: usize,
    gap: usize,
    how: (Pairing, Direction),
    tables: &Tables,
) -> Vec<f32> {
    let stride = heads * head_dim + gap;
    let rows = x.len() / stride;
    let positions: Vec<i32> = (0..rows).map(|row| ((row * 7) % tables.positions) as i32).collect();
    same_on_all_sets(|set| {
        let mut x = x.to_vec();
        let arguments = Rotary {
            x: MatMut::new(&mut x, rows, heads * head_dim, stride),
            head_dim,
            positions: &positions,
            cos: MatRef::dense(&tables.cos, tables.positions, tables.pairs),
            sin: MatRef::dense(&tables.sin, tables.positions, tables.pairs),
            pairing: how.0,
            direction: how.1,
        };
        run(set, arguments);
        x
    })
}

#[test]
fn heads_are_rotated_and_rotated_back() {
    for (heads, head_dim, pairs, gap) in [(1, 2, 1, 0), (3, 64, 32, 10), (2, 40, 10, 0), (2, 50, 25, 3)] {
        let tables = tables(20, pairs, 10_000.0, RotaryScaling::Off);
        let stride = heads * head_dim + gap;
        let x = random("x", 9 * stride, 2.0);
        for pairing in [Pairing::Half, Pairing::Interleaved] {
            let y = turned(&x, heads, head_dim, gap, (pairing, Direction::Forward), &tables);
            for (row, (x, y)) in x.chunks(stride).zip(y.chunks(stride)).enumerate() {
                assert_eq!(x[heads * head_dim..], y[heads * head_dim..], "the gap is untouched");
                let place = (row * 7) % tables.positions * pairs;
                let angle = |i: usize| (f64::from(tables.cos[place + i]), f64::from(tables.sin[place + i]));
                for (x, y) in x[..heads * head_dim].chunks(head_dim).zip(y.chunks(head_dim)) {
                    let exact = rotate(&double(x), pairs, pairing, angle);
                    // A product of at most 2 and a fused sum of at most 4 are rounded once each.
                    assert_within("y", y, &exact, |i| if i < 2 * pairs { 6.0 * ROUNDING } else { 0.0 });
                }
            }
            // The tables' cos^2 + sin^2 is 1 within 4 roundings, and the way back rounds like the way there.
            let back = turned(&y, heads, head_dim, gap, (pairing, Direction::Backward), &tables);
            assert_within("back", &back, &double(&x), |_| (8.0 + 2.0 * 6.0) * ROUNDING);
        }
    }
}

/// `<dy, R x> = <R^T dy, x>`: the backward direction is the transposed map.
#[test]
fn backward_is_the_transposed_map() {
    let tables = tables(20, 8, 10_000.0, RotaryScaling::Off);
    let (x, dy) = (random("x", 6 * 32, 1.0), random("dy", 6 * 32, 1.0));
    for pairing in [Pairing::Half, Pairing::Interleaved] {
        let y = double(&turned(&x, 2, 16, 0, (pairing, Direction::Forward), &tables));
        let dx = double(&turned(&dy, 2, 16, 0, (pairing, Direction::Backward), &tables));
        let difference = dot(&double(&dy), &y) - dot(&dx, &double(&x));
        assert!(difference.abs() < 6.0 * 32.0 * 2.0 * 3.0 * ROUNDING, "{difference:e}");
    }
}
