//! Faults in the kernels of attention, losses, sums and the optimizer are found.

use crate::operations::bench::Order;
use crate::operations::mutations::{Implied, assert_found, assert_found_in};
use crate::operations::{attention, cross_entropy, fixed_point, join_attention, optimizer, rounded_sum};

const REGISTERS: &str = "a step beyond an array in registers, which the compiler leaves out";
const UNSET: &str = "registers that are not set, for which the compiler takes zeros, or that are not read";
const PADDING: &str = "a zero in the padding of staged rows, or after them where nothing is staged";
const EMPTY: &str = "one more round in which there is nothing to do";
const EQUAL: &str = "both sides of the choice are 0";
const NOT_CALLED: &str = "the source does not call the function";

const ATTENTION: &[Implied] = &[
    ("clear(sums[chunk]);: [chunk] + 1 at column 10", UNSET),
    ("index < ROWS * CHUNK; index += THREADS) {: <= for < at column 35", PADDING),
    ("first < head_dim; first += CHUNK) {: <= for < at column 25", EMPTY),
    ("number * KEYS < block.seen_last; number++) {: <= for < at column 56", EMPTY),
    ("return first < head_dim ? min(CHUNK, head_dim - first) : 0;: <= for < at column 12", EQUAL),
    (
        "const f32 shift = max < -3.40282347e38f ? 0.0f : max;: <= for < at column 21",
        "a score would have to be the least number",
    ),
    ("if (words.word[row] < dropout.threshold) {: <= for < at column 19", "only one word of 2^32 shows it"),
];
const ATTENTION_BACKWARD: &[Implied] = &[
    ("clear(sums[chunk]);: [chunk] + 1 at column 10", UNSET),
    ("index < ROWS * CHUNK; index += THREADS) {: <= for < at column 35", PADDING),
    ("first < head_dim; first += CHUNK) {: <= for < at column 25", EMPTY),
    ("number * KEYS < block.seen_last; number++) {: <= for < at column 56", EMPTY),
    ("number * QUERIES < length; number++) {: <= for < at column 37", EMPTY),
    ("return first < head_dim ? min(CHUNK, head_dim - first) : 0;: <= for < at column 12", EQUAL),
    ("const u32 rows = key < count ? count - key : 0;: <= for < at column 20", EQUAL),
    (
        "first_key + row < tile.first + tile.count;: <= for < at column 67",
        "what is added is a zero, as no query sees the key",
    ),
];
const JOIN_ATTENTION: &[Implied] = &[(
    "return larger < -3.40282347e38f ? 0.0f : larger;: <= for < at column 13",
    "a score would have to be the least number",
)];
const CROSS_ENTROPY: &[Implied] = &[
    ("row_sum.cuh: for (u64 first = 0; first < len; first += CHUNK) {: <= for < at column 25", NOT_CALLED),
    ("row_sum.cuh: const u64 end = first + CHUNK < len ? first + CHUNK : len;: <= for < at column 29", NOT_CALLED),
    ("row_sum.cuh: for (u64 i = first + team_lane(); i < end; i += TEAM) {: <= for < at column 35", NOT_CALLED),
    ("cross_entropy.cu: for (u32 first = 0; first < len; first += TEAMS * (u32)CHUNK) {: <= for < at column 25", EMPTY),
    (
        "cross_entropy.cu: for (u32 first = 0; first < len; first += CHUNKS * (u32)CHUNK) {: <= for < at column 25",
        EMPTY,
    ),
    ("cross_entropy.cu: for (; i < end; i += TEAM) {: <= for < at column 8, place 2 of 2", EMPTY),
];
const FIXED_POINT: &[Implied] = &[
    ("row_sum.cuh: for (u64 first = 0; first < len; first += CHUNK) {: <= for < at column 25", NOT_CALLED),
    ("row_sum.cuh: const u64 end = first + CHUNK < len ? first + CHUNK : len;: <= for < at column 29", NOT_CALLED),
    ("row_sum.cuh: for (u64 i = first + team_lane(); i < end; i += TEAM) {: <= for < at column 35", NOT_CALLED),
    ("for (u32 word = 0; word < fixed_point::WORDS; word++) {: <= for < at column 23, place 1 of 2", REGISTERS),
    ("for (u32 first = 0; first < length; first += THREADS) {: <= for < at column 25", EMPTY),
    ("fixed_point.cu: for (u64 i = first + team_lane(); i < end; i += READS * TEAM) {: <= for < at column 35", EMPTY),
];
const ROUNDED_SUM: &[Implied] =
    &[("for (u32 first = 0; first < count; first += THREADS) {: <= for < at column 25", EMPTY)];
const INITIALIZE: &[Implied] = &[];
const ADAMW: &[Implied] = &[];

#[needs::cuda]
#[test]
fn faults_in_attention_are_found() {
    assert_found("attention", &[attention::forward, attention::forward_of_minus_zeros], ATTENTION);
}

#[needs::cuda]
#[test]
fn faults_in_gradients_of_attention_are_found() {
    let cases = [attention::backward, attention::backward_of_minus_zeros];
    assert_found_in(Order::CHAINED, "attention_backward", &["element_wise"], &cases, ATTENTION_BACKWARD);
}

#[needs::cuda]
#[test]
fn faults_in_joined_attention_are_found() {
    assert_found("join_attention", &[join_attention::joins], JOIN_ATTENTION);
}

#[needs::cuda]
#[test]
fn faults_in_losses_are_found() {
    let cases = [cross_entropy::edges, cross_entropy::maxima, cross_entropy::any_sums, cross_entropy::outermost_labels];
    assert_found("cross_entropy", &cases, CROSS_ENTROPY);
}

#[needs::cuda]
#[test]
fn faults_in_sums_of_steps_are_found() {
    let cases = [
        fixed_point::squares,
        fixed_point::any_squares,
        fixed_point::losses,
        fixed_point::coefficients,
        fixed_point::limits,
    ];
    assert_found("fixed_point", &cases, FIXED_POINT);
}

#[needs::cuda]
#[test]
fn faults_in_rounded_sums_are_found() {
    assert_found(
        "rounded_sum",
        &[rounded_sum::additions, rounded_sum::limits, rounded_sum::ties, rounded_sum::singles],
        ROUNDED_SUM,
    );
}

#[needs::cuda]
#[test]
fn faults_in_initial_weights_are_found() {
    assert_found("initialize", &[optimizer::weights, optimizer::huge_parameters], INITIALIZE);
}

#[needs::cuda]
#[test]
fn faults_in_adamw_are_found() {
    assert_found("adamw", &[optimizer::updates], ADAMW);
}
