use config::{Norm, NormKind};
use cpu::lanes::run;
use cpu::norm::{NormBackwardInput, NormBackwardWeight, NormForward};
use cpu::view::{MatMut, MatRef};
use device::Write;

use crate::kernels::support::*;

const KINDS: [NormKind; 3] = [NormKind::Layer, NormKind::Rms, NormKind::RmsPlusOne];
const EPSILON: f32 = 1e-5;

/// Mean, reciprocal standard deviation and normed row.
fn normed(kind: NormKind, x: &[f64]) -> (f64, f64, Vec<f64>) {
    let count = x.len() as f64;
    let mean = match kind {
        NormKind::Layer => x.iter().sum::<f64>() / count,
        NormKind::Rms | NormKind::RmsPlusOne => 0.0,
    };
    let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
    let rstd = 1.0 / (variance + f64::from(EPSILON)).sqrt();
    (mean, rstd, x.iter().map(|x| (x - mean) * rstd).collect())
}

/// The factors of normed values.
fn factors(kind: NormKind, weight: &[f32]) -> Vec<f64> {
    let shift = match kind {
        NormKind::Layer | NormKind::Rms => 0.0,
        NormKind::RmsPlusOne => 1.0,
    };
    weight.iter().map(|weight| f64::from(*weight) + shift).collect()
}

fn forward(kind: NormKind, x: &[f64], weight: &[f64], bias: &[f64]) -> Vec<f64> {
    let (_, _, hat) = normed(kind, x);
    (0..x.len()).map(|i| hat[i] * weight[i] + bias[i]).collect()
}

/// `dx` of one row, straight from the chain rule: `d xhat_j / d x_i = rstd (delta_ij - 1/C - xhat_i xhat_j / C)`.
fn backward_input(kind: NormKind, x: &[f64], weight: &[f64], dy: &[f64]) -> Vec<f64> {
    let (_, rstd, hat) = normed(kind, x);
    let count = x.len() as f64;
    let shift = match kind {
        NormKind::Layer => 1.0 / count,
        NormKind::Rms | NormKind::RmsPlusOne => 0.0,
    };
    (0..x.len())
        .map(|i| {
            let through = |j: usize| if i == j { 1.0 } else { 0.0 } - shift - hat[i] * hat[j] / count;
            (0..x.len()).map(|j| dy[j] * weight[j] * rstd * through(j)).sum()
        })
        .collect()
}

#[test]
fn reference_gradients_agree_with_differences() {
    for kind in KINDS {
        let [x, weight, bias, dy] = ["x", "weight", "bias", "dy"].map(|name| double(&random(name, 7, 1.0)));
        let loss = |x: &[f64]| dot(&forward(kind, x, &weight, &bias), &dy);
        assert_gradient("dx", loss, &x, &backward_input(kind, &x, &weight, &dy));
        let loss = |weight: &[f64]| dot(&forward(kind, &x, weight, &bias), &dy);
        let dweight: Vec<f64> = normed(kind, &x).2.iter().zip(&dy).map(|(hat, dy)| hat * dy).collect();
        assert_gradient("dweight", loss, &weight, &dweight);
    }
}

/// A case: `tokens` rows of `heads` norms of `width` elements, with a gap of `gap` between rows.
#[derive(Clone, Copy)]
struct Case {
    tokens: usize,
    heads: usize,
    width: usize,
    gap: usize,
}

const CASES: [Case; 6] = [
    Case { tokens: 5, heads: 1, width: 1, gap: 0 },
    Case { tokens: 3, heads: 4, width: 24, gap: 7 },
    Case { tokens: 37, heads: 2, width: 16, gap: 0 },
    Case { tokens: 70, heads: 1, width: 129, gap: 3 },
    Case { tokens: 2, heads: 1, width: 1024, gap: 0 },
    Case { tokens: 2, heads: 1, width: 2500, gap: 1 },
];

impl Case {
    fn cols(self) -> usize {
        self.heads * self.width
    }

    fn stride(self) -> usize {
        self.cols() + self.gap
    }

    fn matrix(self, data: &[f32]) -> MatRef<'_> {
        MatRef::new(data, self.tokens, self.cols(), self.stride())
    }

    fn data(self, name: &str, scale: f32, shift: f32) -> Vec<f32> {
        random(name, self.tokens * self.stride(), scale).iter().map(|x| x + shift).collect()
    }

    /// The rows of the norm, in f64.
    fn rows(self, data: &[f32]) -> Vec<Vec<f64>> {
        let matrix = self.matrix(data);
        (0..self.tokens).flat_map(|t| matrix.row(t).chunks(self.width)).map(double).collect()
    }

    fn stats(self, kind: NormKind, x: &[f32]) -> Vec<f32> {
        let mut y = vec![0.0; x.len()];
        let mut stats = vec![0.0; self.tokens * self.heads * 2];
        let weight = vec![1.0; self.width];
        let norm = Norm { kind, epsilon: EPSILON };
        let y = MatMut::new(&mut y, self.tokens, self.cols(), self.stride());
        let set = cpu::instruction_set::InstructionSet::detect();
        run(set, NormForward { norm, x: self.matrix(x), weight: &weight, bias: None, y, stats: &mut stats });
        stats
    }
}

/// How much larger than the spread a row's values are: `rstd * mean |x|`, by which errors of the mean are magnified.
fn magnification(rstd: f64, row: &[f64]) -> f64 {
    rstd * row.iter().map(|x| x.abs()).sum::<f64>() / row.len() as f64
}

#[test]
fn forward_is_within_its_bound() {
    for (kind, case) in KINDS.into_iter().flat_map(|kind| CASES.map(|case| (kind, case))) {
        let x = case.data("x", 2.0, 0.5);
        let (weight, bias) = (random("weight", case.width, 1.5), random("bias", case.width, 1.0));
        let bias = if kind == NormKind::Layer { Some(&bias[..]) } else { None };
        let rows = case.rows(&x);
        let result = same_on_all_sets(|set| {
            let mut y = vec![9.0; x.len()];
            let mut stats = vec![0.0; rows.len() * 2];
            let norm = Norm { kind, epsilon: EPSILON };
            let out = MatMut::new(&mut y, case.tokens, case.cols(), case.stride());
            run(set, NormForward { norm, x: case.matrix(&x), weight: &weight, bias, y: out, stats: &mut stats });
            let gap_is_untouched = y.chunks(case.stride()).all(|row| row[case.cols()..].iter().all(|&v| v == 9.0));
            assert!(gap_is_untouched);
            let mut dense: Vec<f32> = y.chunks(case.stride()).flat_map(|row| &row[..case.cols()]).copied().collect();
            dense.extend(stats);
            dense
        });
        let (y, stats) = result.split_at(rows.len() * case.width);
        let weight = factors(kind, &weight);
        let bias = bias.map_or(vec![0.0; case.width], double);
        for (r, row) in rows.iter().enumerate() {
            let (mean, rstd, hat) = normed(kind, row);
            let magnification = magnification(rstd, row);
            let mean_size = magnification / rstd;
            // A row's sum of one sign has at most 67 roundings; the mean one more, the variance three more and, under
            // the root, half of them.
            assert_within("mean, rstd", &stats[2 * r..2 * r + 2], &[mean, rstd], |i| match i {
                0 => 68.0 * ROUNDING * mean_size,
                _ => (37.0 + 68.0 * magnification * magnification * 68.0 * ROUNDING) * ROUNDING * rstd,
            });
            // Then: subtract, scale, multiply-add.
            let y = &y[r * case.width..(r + 1) * case.width];
            assert_within("y", y, &forward(kind, row, &weight, &bias), |i| {
                let scaled = (40.0 * hat[i].abs() + 70.0 * magnification) * weight[i].abs();
                (scaled + bias[i].abs()) * ROUNDING
            });
        }
    }
}

#[test]
fn backward_input_is_within_its_bound() {
    for (kind, case) in KINDS.into_iter().flat_map(|kind| CASES.map(|case| (kind, case))) {
        let (x, dy) = (case.data("x", 2.0, 0.5), case.data("dy", 1.0, 0.1));
        let weight = random("weight", case.width, 1.5);
        let stats = case.stats(kind, &x);
        for write in [Write::Assign, Write::Accumulate] {
            let before = if write == Write::Assign { 0.0 } else { 0.25 };
            let dx = same_on_all_sets(|set| {
                let mut dx = vec![0.25; x.len()];
                let norm = Norm { kind, epsilon: EPSILON };
                let out = MatMut::new(&mut dx, case.tokens, case.cols(), case.stride());
                let (x, dy) = (case.matrix(&x), case.matrix(&dy));
                run(set, NormBackwardInput { norm, x, weight: &weight, stats: &stats, dy, dx: out, write });
                dx
            });
            let dx = case.rows(&dx);
            let weight = factors(kind, &weight);
            for ((row, dy), dx) in case.rows(&x).iter().zip(case.rows(&dy)).zip(&dx) {
                let (_, rstd, hat) = normed(kind, row);
                let exact: Vec<f64> = backward_input(kind, row, &weight, &dy).iter().map(|dx| dx + before).collect();
                let count = row.len() as f64;
                let weighted: Vec<f64> = dy.iter().zip(&weight).map(|(dy, weight)| (dy * weight).abs()).collect();
                let level = weighted.iter().sum::<f64>() / count;
                let along = weighted.iter().zip(&hat).map(|(g, hat)| g * hat.abs()).sum::<f64>() / count;
                let magnification = magnification(rstd, row);
                // rstd is off by 37 roundings, xhat by 40 of itself and 70 of the magnification, each mean by 68 more.
                let actual: Vec<f32> = dx.iter().map(|&dx| dx as f32).collect();
                assert_within("dx", &actual, &exact, |i| {
                    let own = 40.0 * weighted[i] + 108.0 * level + 190.0 * hat[i].abs() * along;
                    let shifted = 70.0 * magnification * (along + level * hat[i].abs());
                    (rstd * (own + shifted) + exact[i].abs()) * ROUNDING
                });
            }
        }
    }
}

#[test]
fn backward_weight_is_within_its_bound() {
    for (kind, case) in KINDS.into_iter().flat_map(|kind| CASES.map(|case| (kind, case))) {
        let (x, dy) = (case.data("x", 2.0, 0.5), case.data("dy", 1.0, 0.1));
        let stats = case.stats(kind, &x);
        let result = same_on_all_sets(|set| {
            let (mut dweight, mut dbias) = (vec![0.5; case.width], vec![0.25; case.width]);
            let (x, dy) = (case.matrix(&x), case.matrix(&dy));
            let dbias_out = (kind == NormKind::Layer).then_some(&mut dbias[..]);
            run(set, NormBackwardWeight { x, stats: &stats, dy, dweight: &mut dweight, dbias: dbias_out });
            dweight.extend(dbias);
            dweight
        });
        let (mut dweight, mut dbias) = (vec![0.5; case.width], vec![0.25; case.width]);
        let (mut weight_size, mut bias_size) = (dweight.clone(), dbias.clone());
        for (row, dy) in case.rows(&x).iter().zip(case.rows(&dy)) {
            let (_, rstd, hat) = normed(kind, row);
            for i in 0..case.width {
                dweight[i] += hat[i] * dy[i];
                weight_size[i] += (hat[i].abs() * 40.0 + magnification(rstd, row) * 70.0) * dy[i].abs();
                if kind == NormKind::Layer {
                    dbias[i] += dy[i];
                    bias_size[i] += dy[i].abs();
                }
            }
        }
        // Groups of 32 rows (of `heads` terms) and then one addition per group.
        let roundings = (32 * case.heads + case.tokens.div_ceil(32)) as f64;
        let (actual_weight, actual_bias) = result.split_at(case.width);
        assert_within("dweight", actual_weight, &dweight, |i| (roundings + 1.0) * weight_size[i] * ROUNDING);
        assert_within("dbias", actual_bias, &dbias, |i| roundings * bias_size[i] * ROUNDING);
    }
}
