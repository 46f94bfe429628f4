use device::{AdamWUpdate, Op, Tensor};

use crate::vectors::file::{Case, File};
use crate::vectors::machine::*;

/// Parameters after every step, then both moments.
fn updates(machine: &Machine, case: Case) -> Vec<Vec<f32>> {
    let param = machine.input(case, "param");
    let (first_moment, second_moment) = (machine.full(1, param.cols, 0.0), machine.full(1, param.cols, 0.0));
    let (coefficient, gradients) = (machine.full(1, 1, 1.0), machine.input(case, "gradients"));
    let mut history = Vec::new();
    for (step, learning_rate) in case.floats("rates").into_iter().enumerate() {
        let update = AdamWUpdate {
            learning_rate,
            weight_decay: case.floats("decay")[0],
            beta1: 0.9,
            beta2: 0.95,
            epsilon: 1e-8,
            update: step as u32 + 1,
        };
        let grad = gradients.rows_of(step..step + 1);
        machine.submit(Op::AdamW { param, copy: None, grad, first_moment, second_moment, coefficient, update });
        history.extend(machine.read(param));
    }
    vec![history, machine.read(first_moment), machine.read(second_moment)]
}

/// An update rounds the decayed parameter and the sum. The subtracted value is the rate times at most sqrt(t) after t
/// updates (a mean over the root of a mean of squares, with weights that fall as 0.9^k and 0.95^k); its first moment is
/// off by 3 roundings per update, its second by 4, of which the root keeps half, and the quotient, the root and their
/// constants by 6 more. Moments are sums of terms of any sign, so their errors are relative to the largest gradient.
#[test]
fn adamw_over_six_steps() {
    let file = File::open(include_bytes!("adamw.safetensors"));
    for name in ["decayed", "plain"] {
        let case = file.case(name);
        let actual = on_all_sets(|machine| updates(machine, case));
        let (rates, len) = (case.floats("rates"), case.floats("param").len());
        let history = case.doubles("history");
        let largest = history.iter().chain(&case.widened("param")).fold(0.0, |size: f64, value| size.max(value.abs()));
        let step_error = |step: usize| {
            let updates = (step + 1) as f64;
            2.0 * largest + f64::from(rates[step]) * updates.sqrt() * (5.0 * updates + 6.0)
        };
        assert_within(&format!("{name} param"), &actual[0], &history, |at| {
            U * (0..=at / len).map(step_error).sum::<f64>()
        });
        let gradients = case.widened("gradients");
        let size = |at: usize| gradients.iter().skip(at).step_by(len).fold(0.0, |size: f64, g| size.max(g.abs()));
        let steps = rates.len() as f64;
        assert_within(&format!("{name} first moment"), &actual[1], &case.doubles("first_moment"), |at| {
            3.0 * steps * U * size(at)
        });
        assert_within(&format!("{name} second moment"), &actual[2], &case.doubles("second_moment"), |at| {
            4.0 * steps * U * size(at).powi(2)
        });
    }
}

/// PyTorch divides by the norm plus 1e-6, we by the norm.
const PYTORCH_OFFSET: f64 = 1e-6;

#[test]
fn clipping_by_the_global_norm() {
    let file = File::open(include_bytes!("clip.safetensors"));
    for name in ["above", "below"] {
        let case = file.case(name);
        let names: Vec<String> = (0..3).map(|index| format!("gradient_{index}")).collect();
        let limit = case.floats("limit")[0];
        let actual = on_all_sets(|machine| {
            let (norm_sums, loss_sums, out) = (machine.sums(), machine.sums(), machine.empty(1, 4));
            let gradients: Vec<Tensor> = names.iter().map(|name| machine.input(case, name)).collect();
            for &x in &gradients {
                machine.submit(Op::SquaredSum { x, first_element: 0, loss_scale: 1.0, sums: norm_sums });
            }
            // One valid label of one, so that the mean over labels changes nothing.
            let (loss, labels) = (machine.full(1, 1, 0.0), machine.put_ints(1, &[0]));
            machine.submit(Op::LossSum { loss, labels, sequences: 1, sums: loss_sums });
            machine.submit(Op::ClipCoefficient {
                loss_scale: 1.0,
                norm_sums,
                loss_sums,
                nominal_tokens: 1.0,
                clip_norm: Some(limit),
                out,
            });
            vec![machine.read(out)]
        });
        let (norm, coefficient) = (case.doubles("norm"), f64::from(actual[0][0]));
        // Squares are added in double precision; norm and coefficient are rounded once.
        assert_within(&format!("{name} norm"), &actual[0][1..2], &norm, |_| 2.0 * U * norm[0]);
        for (index, gradient) in names.iter().enumerate() {
            let clipped: Vec<f32> = case.widened(gradient).iter().map(|g| (g * coefficient) as f32).collect();
            let exact = case.doubles(&format!("clipped_{index}"));
            assert_within(&format!("{name} {gradient}"), &clipped, &exact, |at| {
                (3.0 * U + PYTORCH_OFFSET / norm[0]) * exact[at].abs()
            });
        }
    }
}
