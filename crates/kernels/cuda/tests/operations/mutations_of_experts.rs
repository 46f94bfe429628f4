//! Faults in kernels of experts are found.

use crate::operations::bench::{Cases, Order};
use crate::operations::experts::{activation, balance, products, route, rows};
use crate::operations::mutations::{Implied, assert_found, assert_found_in};

const ROUTE: &[Implied] = &[(
    "route.cu: __syncwarp();: left out, place 5 of 5",
    "after the last sum over the team each thread reads its own places alone, which it alone writes again",
)];
const ROWS: &[Implied] = &[];
const CHAINS: &[Implied] = &[];
const BLOCKS: &[Implied] = &[(
    "product_blocks_output.cuh: __syncthreads();: left out, place 1 of 4",
    "sums that continue are in tiles of 64 here, which are read in one turn; products of whole matrices have larger ones",
)];
const ACTIVATION: &[Implied] = &[];
const BALANCE: &[Implied] = &[];
const LOSSES: &[Implied] = &[];

#[needs::cuda]
#[test]
fn faults_in_choices_of_experts_are_found() {
    assert_found("route", &[route::choices, route::gradients, route::ends], ROUTE);
}

#[needs::cuda]
#[test]
fn faults_in_rows_of_experts_are_found() {
    assert_found("expert_rows", &[rows::groups, rows::moved, rows::ends], ROWS);
}

#[needs::cuda]
#[test]
fn faults_in_products_of_experts_are_found() {
    let cases: [Cases; 4] =
        [products::unequal_in_chains, products::tokens_in_chains, products::large_in_chains, products::ends_in_chains];
    assert_found("expert_mat_mul", &cases, CHAINS);
}

#[needs::cuda]
#[test]
fn faults_in_products_of_experts_in_blocks_are_found() {
    let cases: [Cases; 5] = [
        products::unequal_in_blocks,
        products::tokens_in_blocks,
        products::large_in_blocks,
        products::ends_in_blocks,
        products::pieces,
    ];
    assert_found_in(Order::BLOCKS16, "expert_mat_mul_blocks", &[], &cases, BLOCKS);
}

#[needs::cuda]
#[test]
fn faults_in_activations_of_experts_are_found() {
    assert_found("expert_activation", &[activation::activations], ACTIVATION);
}

#[needs::cuda]
#[test]
fn faults_in_counts_and_capacities_are_found() {
    let cases: [Cases; 4] = [balance::counted, balance::moved, balance::limited, balance::ends];
    assert_found("balance", &cases, BALANCE);
}

#[needs::cuda]
#[test]
fn faults_in_losses_of_routers_are_found() {
    assert_found("router_losses", &[balance::losses, balance::gradients], LOSSES);
}
