use device::{Dtype, Op, Orientation, Tensor, Write};

use crate::vectors::file::{Case, File};
use crate::vectors::machine::*;

/// A matrix in double precision.
struct Matrix {
    values: Vec<f64>,
    cols: usize,
}

impl Matrix {
    fn of(case: Case, name: &str) -> Matrix {
        Matrix { values: case.widened(name), cols: case.shape(name, Dtype::F32).1 }
    }

    fn at(&self, row: usize, col: usize) -> f64 {
        self.values[row * self.cols + col]
    }

    fn rows(&self) -> usize {
        self.values.len() / self.cols
    }
}

fn results(machine: &Machine, case: Case) -> Vec<Vec<f32>> {
    let [x, weight, bias, dy] = ["x", "weight", "bias", "dy"].map(|name| machine.input(case, name));
    let (y, dx) = (machine.empty(x.rows, weight.rows), machine.empty(x.rows, x.cols));
    let (dweight, added) = (machine.empty(weight.rows, weight.cols), machine.full(weight.rows, weight.cols, 1.0));
    let dbias = machine.full(1, bias.cols, 0.0);
    let product = |orientation, a: Tensor, b: Tensor, bias, out, write| {
        machine.submit(Op::MatMul { orientation, a, b, bias, out, write });
    };
    product(Orientation::Nt, x, weight, Some(bias), y, Write::Assign);
    product(Orientation::Nn, dy, weight, None, dx, Write::Assign);
    product(Orientation::Tn, dy, x, None, dweight, Write::Assign);
    product(Orientation::Tn, dy, x, None, added, Write::Accumulate);
    machine.submit(Op::ColumnSum { x: dy, out: dbias });
    [y, dx, dweight, added, dbias].map(|tensor| machine.read(tensor)).to_vec()
}

/// A chain of K fused multiply-adds, in blocks, rounds at most K + 2 partial sums; a bias, or what is added to, takes
/// part in the last. No partial sum is larger than the sum of magnitudes.
#[test]
fn linear_maps_and_their_gradients() {
    let file = File::open(include_bytes!("linear.safetensors"));
    for name in ["small", "wide"] {
        let case = file.case(name);
        let actual = on_all_sets(|machine| results(machine, case));
        let [x, weight, bias, dy] = ["x", "weight", "bias", "dy"].map(|name| Matrix::of(case, name));
        let (tokens, inputs, outputs) = (x.rows(), x.cols, weight.rows());

        let size = |t, o| (0..inputs).map(|i| (x.at(t, i) * weight.at(o, i)).abs()).sum::<f64>() + bias.at(0, o).abs();
        assert_within(&format!("{name} y"), &actual[0], &case.doubles("y"), |at| {
            (inputs as f64 + 2.0) * U * size(at / outputs, at % outputs)
        });
        let size = |t, i| (0..outputs).map(|o| (dy.at(t, o) * weight.at(o, i)).abs()).sum::<f64>();
        assert_within(&format!("{name} dx"), &actual[1], &case.doubles("dx"), |at| {
            (outputs as f64 + 2.0) * U * size(at / inputs, at % inputs)
        });
        let size = |o, i| (0..tokens).map(|t| (dy.at(t, o) * x.at(t, i)).abs()).sum::<f64>();
        let roundings = (tokens as f64 + 2.0) * U;
        let dweight = case.doubles("dweight");
        let added: Vec<f64> = dweight.iter().map(|value| value + 1.0).collect();
        assert_within(&format!("{name} dweight"), &actual[2], &dweight, |at| {
            roundings * size(at / inputs, at % inputs)
        });
        assert_within(&format!("{name} dweight, added"), &actual[3], &added, |at| {
            roundings * (size(at / inputs, at % inputs) + 1.0)
        });
        let size = |o| (0..tokens).map(|t| dy.at(t, o).abs()).sum::<f64>();
        assert_within(&format!("{name} dbias"), &actual[4], &case.doubles("dbias"), |o| roundings * size(o));
    }
}
