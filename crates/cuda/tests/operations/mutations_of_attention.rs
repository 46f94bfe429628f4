//! Faults in the kernels of attention, losses, sums and the optimizer are found.

use crate::mutations::{Implied, assert_found};
use crate::{attention, cross_entropy, fixed_point, optimizer, rounded_sum};

const ATTENTION: &[Implied] = &[];
const ATTENTION_BACKWARD: &[Implied] = &[];
const CROSS_ENTROPY: &[Implied] = &[];
const FIXED_POINT: &[Implied] = &[];
const ROUNDED_SUM: &[Implied] = &[];
const INITIALIZE: &[Implied] = &[];
const ADAMW: &[Implied] = &[];

#[test]
fn faults_in_attention_are_found() {
    assert_found("attention", &[attention::forward, attention::forward_of_minus_zeros], ATTENTION);
}

#[test]
fn faults_in_gradients_of_attention_are_found() {
    let cases = [attention::backward, attention::backward_of_minus_zeros];
    assert_found("attention_backward", &cases, ATTENTION_BACKWARD);
}

#[test]
fn faults_in_losses_are_found() {
    let cases = [cross_entropy::edges, cross_entropy::maxima, cross_entropy::any_sums];
    assert_found("cross_entropy", &cases, CROSS_ENTROPY);
}

#[test]
fn faults_in_sums_of_steps_are_found() {
    let cases = [fixed_point::squares, fixed_point::any_squares, fixed_point::losses, fixed_point::coefficients];
    assert_found("fixed_point", &cases, FIXED_POINT);
}

#[test]
fn faults_in_rounded_sums_are_found() {
    assert_found("rounded_sum", &[rounded_sum::additions, rounded_sum::ties, rounded_sum::singles], ROUNDED_SUM);
}

#[test]
fn faults_in_initial_weights_are_found() {
    assert_found("initialize", &[optimizer::weights, optimizer::huge_parameters], INITIALIZE);
}

#[test]
fn faults_in_adamw_are_found() {
    assert_found("adamw", &[optimizer::updates], ADAMW);
}
