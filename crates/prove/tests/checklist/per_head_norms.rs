//! N2: a parameter that all tensor-parallel ranks hold but apply to their own heads has its gradient summed over them.

use config::{AppliedTo, ModelSpec};
use prove::Replicas;
use prove::models::Style;
use train::Setup;

use crate::rig::*;

/// These gradients come through the softmax, whose backward pass subtracts a mean from each score's gradient and loses digits
/// by it: distances of 1.1e-6 were measured. The fault is of the order of one.
const BOUND: f64 = 1e-5;

fn check(spoil: &(dyn Fn(&mut Setup) + Sync)) -> (Verdict, Verdict) {
    let model = ModelSpec { qk_norm: true, ..small_model(Style::Llama, false) };
    let train = training(3);
    let one = Case::new(&model, degrees((1, 1, 1)), &train).outcome().expect("one rank");
    let replicas = Replicas::every(3);
    let two = Case::new(&model, degrees((1, 2, 1)), &train).spoilt(spoil).watched(&replicas).outcome();
    (two.and_then(|two| within(BOUND, &model, &one, &two)), replicas_agree(&replicas))
}

/// Declares the norm of queries to be applied to the residual stream, which is equal on all ranks.
fn declare_on_residual(setup: &mut Setup) {
    let segments = setup.layouts.values_mut().flat_map(|layout| &mut layout.segments);
    for segment in segments.filter(|segment| segment.param.name.contains("query_norm")) {
        segment.param.applied_to = AppliedTo::Residual;
    }
}

#[test]
fn gradients_of_norms_per_head_are_summed_over_tensor_parallelism() {
    let (near, equal) = check(&|_| ());
    assert_holds(near);
    assert_holds(equal);
    let (near, equal) = check(&declare_on_residual);
    assert_found(near, "query_norm");
    assert_found(equal, "query_norm");
}
