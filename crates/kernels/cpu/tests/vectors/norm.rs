use config::{Norm, NormKind};
use device::{NormBackward, Op, Write};

use crate::vectors::file::{Case, File};
use crate::vectors::machine::*;

const EPSILON: f32 = 1e-5;

fn results(machine: &Machine, case: Case, kind: NormKind) -> Vec<Vec<f32>> {
    let norm = Norm { kind, epsilon: EPSILON };
    let [x, weight, dy] = ["x", "weight", "dy"].map(|name| machine.input(case, name));
    let has_bias = kind == NormKind::Layer;
    let bias = has_bias.then(|| machine.input(case, "bias"));
    let (y, stats, dx) = (machine.empty(x.rows, x.cols), machine.empty(x.rows, 2), machine.empty(x.rows, x.cols));
    let (dweight, dbias) = (machine.full(1, x.cols, 0.0), machine.full(1, x.cols, 0.0));
    machine.submit(Op::Norm { norm, x, weight, bias, y, stats });
    let tensors = NormBackward { norm, x, weight, stats, dy, dx };
    machine.submit(Op::NormBackwardInput { tensors, write: Write::Assign });
    let dbias = has_bias.then_some(dbias);
    machine.submit(Op::NormBackwardWeight { norm, x, stats, dy, dweight, dbias });
    [Some(y), Some(dx), Some(dweight), dbias].into_iter().flatten().map(|tensor| machine.read(tensor)).collect()
}

/// Inputs of bounds: sizes of one row.
struct Row {
    /// Normed values.
    hat: Vec<f64>,
    /// Reciprocal standard deviation.
    rstd: f64,
    /// Mean magnitude over the spread: by how much an error of the mean counts more than one of a normed value.
    magnification: f64,
}

fn row(kind: NormKind, x: &[f64]) -> Row {
    let count = x.len() as f64;
    let mean = match kind {
        NormKind::Layer => x.iter().sum::<f64>() / count,
        NormKind::Rms | NormKind::RmsPlusOne => 0.0,
    };
    let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
    let rstd = 1.0 / (variance + f64::from(EPSILON)).sqrt();
    let hat = x.iter().map(|x| (x - mean) * rstd).collect();
    Row { hat, rstd, magnification: rstd * x.iter().map(|x| x.abs()).sum::<f64>() / count }
}

/// The sum of a row of at most 100 values goes through at most 12 roundings: 7 additions per lane, a tree over 16
/// lanes, and the quotient. So the mean is off by 12 of the mean magnitude, `rstd` by half of 15 (a difference, its
/// square and the sum) and one, and a normed value by 10 of itself and 12 of the magnification; its product with the
/// weight, and the bias, add 2.
const STATISTICS: f64 = 12.0;
const NORMED: f64 = 12.0;

#[test]
fn norms_and_their_gradients() {
    let file = File::open(include_bytes!("norm.safetensors"));
    for (name, kind) in [("layer", NormKind::Layer), ("rms", NormKind::Rms)] {
        for width in ["narrow", "odd", "wide"] {
            let name = format!("{name}_{width}");
            check(&name, file.case(&name), kind);
        }
    }
}

fn check(name: &str, case: Case, kind: NormKind) {
    let actual = on_all_sets(|machine| results(machine, case, kind));
    let (x, weight, dy) = (case.widened("x"), case.widened("weight"), case.widened("dy"));
    let width = weight.len();
    let rows: Vec<Row> = x.chunks(width).map(|x| row(kind, x)).collect();
    let bias = if kind == NormKind::Layer { case.widened("bias") } else { vec![0.0; width] };
    let hat_error = |at: usize| {
        let row = &rows[at / width];
        NORMED * row.hat[at % width].abs() + STATISTICS * row.magnification
    };
    assert_within(&format!("{name} y"), &actual[0], &case.doubles("y"), |at| {
        U * (hat_error(at) * weight[at % width].abs() + bias[at % width].abs())
    });

    // dx = rstd * (g - mean(g) - hat * mean(g * hat)): each mean is off by its own roundings and by those of hat.
    let dx = case.doubles("dx");
    assert_within(&format!("{name} dx"), &actual[1], &dx, |at| {
        let (row, first) = (&rows[at / width], at / width * width);
        let mean = |of: &dyn Fn(usize) -> f64| (0..width).map(of).sum::<f64>() / width as f64;
        let weighted = |i: usize| (dy[first + i] * weight[i]).abs();
        let (level, along) = (mean(&weighted), mean(&|i| weighted(i) * row.hat[i].abs()));
        let along_error = mean(&|i| weighted(i) * hat_error(first + i)) + (STATISTICS + 2.0) * along;
        let hat = row.hat[at - first].abs();
        let inside = 2.0 * weighted(at - first)
            + (STATISTICS + 3.0) * level
            + hat * along_error
            + hat_error(at) * along
            + 3.0 * hat * along;
        U * (row.rstd * inside + 10.0 * dx[at].abs())
    });

    // Rows are few: as many additions, and a product.
    let sum = |of: &dyn Fn(usize) -> f64| (0..rows.len()).map(of).sum::<f64>();
    let additions = rows.len() as f64 + 1.0;
    assert_within(&format!("{name} dweight"), &actual[2], &case.doubles("dweight"), |i| {
        let at = |r: usize| r * width + i;
        U * sum(&|r| dy[at(r)].abs() * (hat_error(at(r)) + additions * rows[r].hat[i].abs()))
    });
    if kind == NormKind::Layer {
        assert_within(&format!("{name} dbias"), &actual[3], &case.doubles("dbias"), |i| {
            U * additions * sum(&|r| dy[r * width + i].abs())
        });
    }
}
