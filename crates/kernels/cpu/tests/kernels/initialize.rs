use cpu::initialize::InitializeNormal;
use cpu::lanes::run;
use cpu::view::MatMut;

use crate::kernels::support::*;

const SEED: u64 = 42;

/// The part `[rows, cols]` at `(first_row, first_col)` of a parameter with `global_cols` columns.
fn part(
    parameter: u64,
    (rows, cols): (usize, usize),
    (first_row, first_col): (usize, usize),
    global_cols: usize,
) -> Vec<f32> {
    same_on_all_sets(|set| {
        let mut out = vec![0.0; rows * cols];
        let matrix = MatMut::dense(&mut out, rows, cols);
        run(set, InitializeNormal { out: matrix, seed: SEED, parameter, std: 0.5, first_row, first_col, global_cols });
        out
    })
}

#[test]
fn shards_are_parts_of_the_whole() {
    for global_cols in [1, 64, 101] {
        let whole = part(3, (20, global_cols), (0, 0), global_cols);
        for (first_row, rows) in [(0, 7), (7, 13)] {
            for (first_col, cols) in [(0, global_cols), (global_cols / 3, global_cols / 2), (global_cols - 1, 1)] {
                let shard = part(3, (rows, cols), (first_row, first_col), global_cols);
                for (row, values) in shard.chunks(cols.max(1)).enumerate() {
                    let start = (first_row + row) * global_cols + first_col;
                    assert_eq!(values, &whole[start..start + cols]);
                }
            }
        }
    }
}

/// The contract, one element at a time in f64.
#[test]
fn elements_follow_the_contract() {
    let values = part(9, (10, 33), (1 << 20, 5), 40_000);
    let exact: Vec<f64> = (0..330)
        .map(|i| {
            let element = ((1 << 20) + i / 33) as u64 * 40_000 + 5 + (i % 33) as u64;
            let counter = [(element / 4) as u32, ((element / 4) >> 32) as u32, 9, 0];
            let words = philox::philox4x32_10(counter, philox::key_of_seed(SEED ^ 0x696e_6974_7761_6974));
            let pair = (element % 4 / 2) as usize;
            let radius = (-2.0 * f64::from(philox::open_closed_f32(words[2 * pair])).ln()).sqrt() * 0.5;
            let angle = f64::from(words[2 * pair + 1]) / 2f64.powi(32) * std::f64::consts::TAU;
            radius * if element.is_multiple_of(2) { angle.cos() } else { angle.sin() }
        })
        .collect();
    // The radius, at most 3.4, is off by 3 roundings, the sine or cosine by 1.5e-7.
    assert_within("normal", &values, &exact, |_| 3.4 * (4.0 * ROUNDING + 1.5e-7));
}

#[test]
fn the_distribution_is_normal() {
    let values = part(1, (400, 500), (0, 0), 500);
    let count = values.len() as f64;
    let moment = |power: i32| values.iter().map(|&x| (f64::from(x) * 2.0).powi(power)).sum::<f64>() / count;
    // Moments 0, 1, 0, 3 within five of their standard deviations sqrt(1, 2, 15, 96) / sqrt(200000).
    for (power, expected, variance) in [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0f64)] {
        let error = (moment(power) - expected).abs();
        assert!(error < 5.0 * (variance / count).sqrt(), "moment {power} is off by {error}");
    }
    let neighbours: f64 = values.windows(2).map(|pair| 4.0 * f64::from(pair[0]) * f64::from(pair[1])).sum();
    assert!((neighbours / count).abs() < 5.0 / count.sqrt(), "neighbours are correlated");
    assert_ne!(part(2, (1, 100), (0, 0), 100), part(1, (1, 100), (0, 0), 100));
}
