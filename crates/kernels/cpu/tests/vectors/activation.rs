use config::Activation;
use device::Op;

use crate::vectors::file::File;
use crate::vectors::machine::*;

/// The argument of the exponential is off by at most 4 roundings of itself, of size x^2, which are as many of the
/// result; where x^2 exceeds 30 the result is below 1e-12 or has no slope. The functions themselves are off by at most
/// 6, and products follow.
fn roundings(x: f64) -> f64 {
    12.0 + 4.0 * x.powi(2).min(30.0)
}

/// Far below zero the tanh form cancels in PyTorch's double precision too, where its argument's slope is up to 2 + x^2.
fn double_error(x: f64) -> f64 {
    1e-15 * x.abs() * (2.0 + x.powi(2))
}

#[test]
fn activations_and_their_gradients() {
    let file = File::open(include_bytes!("activation.safetensors"));
    let all = [
        ("gelu_tanh", Activation::GeluTanh),
        ("gelu_erf", Activation::GeluErf),
        ("relu", Activation::Relu),
        ("swiglu", Activation::SwiGlu),
        ("geglu", Activation::GeGlu),
    ];
    for (name, activation) in all {
        let case = file.case(name);
        let actual = on_all_sets(|machine| {
            let (x, dy) = (machine.input(case, "x"), machine.input(case, "dy"));
            let (y, again) = (machine.empty(dy.rows, dy.cols), machine.empty(dy.rows, dy.cols));
            let dx = machine.empty(x.rows, x.cols);
            machine.submit(Op::Activation { activation, x, y });
            machine.submit(Op::ActivationBackward { activation, x, dy, dx, y: again });
            assert_eq!(machine.read(y), machine.read(again), "the backward pass writes the same output");
            [y, dx].map(|tensor| machine.read(tensor)).to_vec()
        });
        let (x, dy, y, dx) = (case.widened("x"), case.widened("dy"), case.doubles("y"), case.doubles("dx"));
        let outputs = case.shape("dy", device::Dtype::F32).1;
        let parts = activation.inputs_per_output();
        // Of output `at`: the argument of the curve, and the factor next to it.
        let gate = |at: usize| x[at / outputs * outputs * parts + at % outputs];
        let up =
            |at: usize| if parts == 2 { x[at / outputs * outputs * 2 + outputs + at % outputs].abs() } else { 1.0 };
        assert_within(&format!("{name} y"), &actual[0], &y, |at| {
            roundings(gate(at)) * U * y[at].abs() + double_error(gate(at)) * up(at)
        });
        assert_within(&format!("{name} dx"), &actual[1], &dx, |at| {
            let (row, col) = (at / (outputs * parts), at % (outputs * parts));
            let output = row * outputs + col % outputs;
            let x = gate(output);
            let error = double_error(x) * up(output) * dy[output].abs();
            // The slope's two terms, of which the second is like the value times its argument, have opposite signs
            // below zero.
            let terms = if col < outputs { 2.0 * (y[output] * dy[output]).abs() * (1.0 + x.abs()) } else { 0.0 };
            roundings(x) * U * (dx[at].abs() + terms) + error
        });
    }
}
