//! N30: what narrow runs must not keep narrow: sums of gradients over microbatches, and the weights that small updates
//! add up in.

use config::{LearningRateSchedule, Precision, Products, TrainSpec};
use device::{Dtype, Op, Orientation};
use prove::{Outcome, Tensors};
use testkit::intercepted::intercept_ops;
use testkit::models::{Style, plain_layout};
use testkit::wrapped_engine::WrapRank;

use crate::checklist::rig::*;

/// Whether eight microbatches of a bf16 run give the gradient of one: activations are the same bits, sums are single.
fn sums_are_single(wrap: &WrapRank<'_>) -> Verdict {
    let model = small_model(Style::Gpt2, true);
    let train = TrainSpec { precision: Precision::Bf16(Products::Chained), ..training(1) };
    let run =
        |microbatch_size| Case::new(&model, plain_layout(1, 1, 1, microbatch_size), &train).wrapped(wrap).outcome();
    let (one, eight) = (run(8)?, run(1)?);
    // Updated weights are a matter of their own.
    let gradients = |outcome: Outcome| Outcome { gradients: outcome.gradients, ..Outcome::default() };
    within_bounds(&model, &gradients(one), &gradients(eight))
}

#[test]
fn gradients_are_summed_in_single_precision() {
    assert_holds(sums_are_single(&untouched));
    let narrow_sums = |_, rank| {
        intercept_ops(rank, |device, stream, op| {
            device.submit(stream, op)?;
            let Op::MatMul { orientation: Orientation::Tn, out, .. } = op else { return Ok(()) };
            let rounded: Vec<f32> = device::read_floats(device, *out)?
                .into_iter()
                .map(|sum| f32::from_bits(sum.to_bits() & 0xffff_0000))
                .collect();
            device::write_floats(device, *out, &rounded)
        })
    };
    assert_found(sums_are_single(&narrow_sums), "the gradient of");
}

fn distance(a: &Tensors, b: &Tensors) -> f64 {
    let pairs =
        a.iter().filter(|(name, _)| name.ends_with("weight")).flat_map(|(name, values)| values.iter().zip(&b[name]));
    pairs.map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum::<f64>().sqrt()
}

/// Whether a bf16 run moves weights as far as one in single precision, by updates of a hundredth of a last place.
fn small_updates_add_up(wrap: &WrapRank<'_>) -> Verdict {
    let model = still_model(Style::Llama, true);
    let rate = 2e-6;
    let train = |steps, precision| TrainSpec {
        precision,
        learning_rate: rate,
        min_learning_rate: rate,
        schedule: LearningRateSchedule::Constant,
        weight_decay: 0.0,
        ..training(steps)
    };
    let run = |steps, precision, wrap: &WrapRank<'_>| {
        let outcome = Case::new(&model, degrees((1, 1, 1)), &train(steps, precision)).wrapped(wrap).outcome()?;
        Ok::<Tensors, String>(outcome.weights)
    };
    let moved = |precision, wrap: &WrapRank<'_>| {
        Ok::<f64, String>(distance(&run(1, precision, wrap)?, &run(8, precision, wrap)?))
    };
    let (single, narrow) =
        (moved(Precision::Fp32(Products::Chained), &untouched)?, moved(Precision::Bf16(Products::Chained), wrap)?);
    let share = narrow / single;
    verdict((!(0.9..1.1).contains(&share)).then(|| format!("weights moved {share:.2} times as far as they should")))
}

#[test]
fn small_updates_add_up_in_master_weights() {
    assert_holds(small_updates_add_up(&untouched));
    let rounded_masters = |_, rank| {
        intercept_ops(rank, |device, stream, op| {
            device.submit(stream, op)?;
            let Op::AdamW { param, copy: Some(copy), .. } = op else { return Ok(()) };
            assert_eq!((param.dtype, copy.dtype), (Dtype::F32, Dtype::Bf16));
            device.submit(stream, &Op::Copy { from: *copy, to: *param })
        })
    };
    assert_found(small_updates_add_up(&rounded_masters), "weights moved 0.");
}
