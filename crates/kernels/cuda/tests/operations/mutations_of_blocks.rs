//! Faults in products by warpgroups and in attention in blocks are found, on GPUs of 9.0: problems that have no code by
//! warpgroups there run that of all other GPUs.

use crate::operations::bench::{Cases, Order};
use crate::operations::mutations::{BOTH_ARE_EQUAL, Implied, assert_found_by, assert_found_in};
use crate::operations::{attention_blocks, fused, mat_mul_turns, mat_mul_wgmma};

/// At the end of a kernel.
const NO_COPIES: &str =
    "the loop has waited for all copies of tiles, and without tiles no group of copies is committed";

/// Of a tile or a block of keys.
const NONE_SEEN: &str = "no query sees a key of the additional ones, so they add nothing";

/// Of the rows that a block of threads shares.
const NOT_READ: &str = "one element more, which no thread reads";
/// Of the channels of a wide head.
const NO_CHANNELS: &str = "a range without channels adds 0 to sums that are never -0";
/// Of code for heads of one channel.
const MORE_CHANNELS: &str = "wide heads have more channels";

/// One of two fences that show barriers to copies of the same block.
const CLUSTER_FENCE: Implied = (
    "fence.mbarrier_init.release.cluster;\" ::: \"memory\");: left out",
    "the fence of proxies after it shows the barriers to copies of the same block, too",
);
/// The other one.
const PROXY_FENCE: Implied = (
    "bulk_copies.cuh: asm volatile(\"fence.proxy.async.shared::cta;\" ::: \"memory\");: left out",
    "the fence of barriers before it shows them to copies, too",
);
/// At the end of a store.
const NEXT_PRODUCTS: Implied = (
    "warpgroup_output.cuh: __syncwarp();: left out, place 7 of 9",
    "the products of the next tile wait for all lanes of the warp",
);
/// Of the barriers of a ring.
const ONE_BARRIER_MORE: Implied = ("warpgroup_ring.cuh: u64 filled[STAGES];: [STAGES] + 1 at column 10", NOT_READ);

const PRODUCTS: &[Implied] = &[
    CLUSTER_FENCE,
    PROXY_FENCE,
    (
        "warpgroup.cuh: asm volatile(\"\" : \"+f\"(sums[index])::\"memory\");: [index] + 1 at column 27",
        "it has no instruction, and pins another sum",
    ),
    (
        "warpgroup_output.cuh: const u32 parts = out.cols - first_col < COLS ? (u32)(out.cols - first_col) / PART : PARTS;: \
         <= for < at column 38",
        "both values are equal there",
    ),
    (
        "warpgroup_output.cuh: if (part + 1 < PARTS && part + 1 < parts) {: <= for < at column 12",
        "the other bound is not larger",
    ),
    (
        "warpgroup_output.cuh: constexpr u32 AHEAD = HELD > SUMS ? 1 : COLS > 192 || PARTS < 4 ? 2 : 4;: <= for < at column 59",
        "fewer parts are read ahead",
    ),
    (
        "warpgroup_output.cuh: if (part + 1 < PARTS) {: <= for < at column 12",
        "the part after the last one is not stored",
    ),
    NEXT_PRODUCTS,
    ONE_BARRIER_MORE,
    (
        "warpgroup_ring.cuh: return tensor_core::shared_address(&barriers->emptied[stage]);: [stage] + 1 at column 53",
        "all who initialize it, arrive and wait take the same other barrier, in memory that nothing else has",
    ),
    (
        "mat_mul_wgmma.cu: total[index] = -0.0f;: [index] + 1 at column 5",
        "the compiler takes 0 for the number that is not set, and no sum of blocks is -0",
    ),
];
/// Of the barriers of a ring that say which stages were read.
const ONE_READ_BARRIER_MORE: Implied =
    ("warpgroup_ring.cuh: u64 emptied[STAGES];: [STAGES] + 1 at column 11", NOT_READ);
/// Of the barriers of turns.
const OTHER_TURNS: Implied = (
    "warpgroup_turns.cuh: return tensor_core::shared_address(&memory->turns[consumer]);: [consumer] + 1 at column 49",
    "all who initialize it, arrive and wait take the same other barrier, in memory that nothing else has",
);
/// At the end of a sum.
const PINS: [Implied; 2] = [
    ("warpgroup_turns.cuh: warpgroup::pin(sums[0]);: [0] + 1 at column 19", "it has no instruction"),
    ("warpgroup_turns.cuh: warpgroup::pin(sums[1]);: [1] + 1 at column 19", "it has no instruction"),
];

const TURNS: &[Implied] = &[
    CLUSTER_FENCE,
    PROXY_FENCE,
    NEXT_PRODUCTS,
    ONE_BARRIER_MORE,
    ONE_READ_BARRIER_MORE,
    OTHER_TURNS,
    PINS[0],
    PINS[1],
    (
        "warpgroup_turns.cuh: for (u32 consumer = 0; consumer < CONSUMERS; consumer++) {: <= for < at column 31",
        "one barrier more, at which nobody waits",
    ),
];
const FUSED: &[Implied] = &[
    CLUSTER_FENCE,
    PROXY_FENCE,
    ONE_BARRIER_MORE,
    ONE_READ_BARRIER_MORE,
    OTHER_TURNS,
    PINS[0],
    PINS[1],
    (
        "warpgroup_ring.cuh: return index < rows * cols;: <= for < at column 12",
        "nothing of the tile after the last one is in the output",
    ),
    (
        "warpgroup_turns.cuh: end_turn(consumer);: left out, place 2 of 2",
        "without pieces no turn comes after that of a tile that is not there",
    ),
];
/// Of factors.
const NONE_IS_ROUNDED: &str = "factors have the narrow type of the output";
/// In sums before the first product.
const ONLY_ZEROS: &str =
    "zeros are put there: a GPU in software has zeros in registers without a value, so it finds none of these";
const FUSED_BY_WARPS: &[Implied] = &[
    ("product_blocks.cuh: const u32 count = left < CHUNK ? (u32)left : CHUNK;: <= for < at column 22", BOTH_ARE_EQUAL),
    (
        "product_blocks.cuh: const bool is_inside = row < matrix.rows && col < matrix.cols;: <= for < at column 47",
        "nothing is left there",
    ),
    ("product_blocks.cuh: if (stage < count) {: <= for < at column 9", "the stage after the last one is empty"),
    (
        "product_blocks.cuh: for (u32 stage = 0; stage < STAGES - 1; stage++) {: <= for < at column 25",
        "a stage is loaded twice",
    ),
    ("place + 1 < count ? from[1] : 0.0f);: <= for < at column 42", NONE_IS_ROUNDED),
    ("place + 1 < count ? from[1] : 0.0f);: <= for < at column 78", NONE_IS_ROUNDED),
    ("place + 1 < count ? from[1] : 0.0f);: [word] + 1 at column 5", NONE_IS_ROUNDED),
    ("place + 1 < count ? from[1] : 0.0f);: [0] + 1 at column 57", NONE_IS_ROUNDED),
    ("place + 1 < count ? from[1] : 0.0f);: [1] + 1 at column 93", NONE_IS_ROUNDED),
    (
        "const bool is_there = round < Own::ROUNDS && own.is_in(sums);: <= for < at column 27",
        "the chunk after the last one is loaded and not taken",
    ),
    ("body(values[row_tile][index / 4][index % 4], row, col);: [row_tile] + 1 at column 11", ONLY_ZEROS),
    ("body(values[row_tile][index / 4][index % 4], row, col);: [index / 4] + 1 at column 21", ONLY_ZEROS),
    ("body(values[row_tile][index / 4][index % 4], row, col);: [index % 4] + 1 at column 32", ONLY_ZEROS),
];
const FORWARD: &[Implied] = &[
    ("attention_blocks_warpgroups.cuh: tensor_core::wait_for_copies<0>();: left out", NO_COPIES),
    ("attention_blocks_warpgroups.cuh: tensor_core::wait_for_copies<0>();: one more open", NO_COPIES),
    (
        "attention_blocks.cu: __syncthreads();: left out, place 2 of 5",
        "the barrier before spans are read comes before keys are staged, too",
    ),
];
const QUERIES: &[Implied] = &[
    ("attention_blocks_queries_warpgroups.cuh: tensor_core::wait_for_copies<0>();: left out", NO_COPIES),
    ("attention_blocks_queries_warpgroups.cuh: tensor_core::wait_for_copies<0>();: one more open", NO_COPIES),
];
const KEYS: &[Implied] = &[
    ("attention_blocks_keys.cu: tensor_core::wait_for_copies<0>();: left out, place 2 of 2", NO_COPIES),
    ("attention_blocks_keys.cu: tensor_core::wait_for_copies<0>();: one more open, place 2 of 2", NO_COPIES),
    ("attention_blocks_keys_warpgroups.cuh: tensor_core::wait_for_copies<0>();: left out", NO_COPIES),
    ("attention_blocks_keys_warpgroups.cuh: tensor_core::wait_for_copies<0>();: one more open", NO_COPIES),
];
const WIDE: &[Implied] = &[
    ("return first < start + (i32)count && last > start;: <= for < at column 12", NONE_SEEN),
    (
        "!__any_sync(ALL_LANES, of_lane.meets((i32)(number * KEYS), KEYS))) {: <= for < at column 27",
        "the loop over tiles ends at the number of the last tile and at any larger one",
    ),
    ("if (ALL || (block >= begin && block < end)) {: <= for < at column 35, place 1 of 2", NONE_SEEN),
    ("if (ALL || (block >= begin && block < end)) {: <= for < at column 35, place 2 of 2", NONE_SEEN),
    ("problem.dropout.threshold ? 0.0f : powers[index];: <= for < at column 28", "only one word of 2^32 shows it"),
    ("attention_blocks_gradient.cuh: if (head_dim < 2) {: <= for < at column 12", MORE_CHANNELS),
    ("widen(tensors.out.row(token)[column]), 0.0f));: [column] + 1 at column 34", MORE_CHANNELS),
    ("widen(tensors.out.row(token)[column]), 0.0f));: [column] + 1 at column 73", MORE_CHANNELS),
    ("widen(tensors.out.row(token)[column]), 0.0f));: row(token) + 1 at column 27", MORE_CHANNELS),
    ("widen(tensors.out.row(token)[column]), 0.0f));: row(token) + 1 at column 66", MORE_CHANNELS),
    ("attention_blocks_of_keys.cuh: i32 first[QUERIES];: [QUERIES] + 1 at column 9", NOT_READ),
    ("attention_blocks_of_keys.cuh: i32 last[QUERIES];: [QUERIES] + 1 at column 8", NOT_READ),
    ("attention_blocks_of_keys.cuh: i32 end[QUERIES];: [QUERIES] + 1 at column 7", NOT_READ),
    (
        "const Span of_lane = lane < WARPS ? spans[lane] : NOTHING;: <= for < at column 25",
        "the interval of the first query comes after the spans, and that of its warp contains it",
    ),
    ("(number * KEYS) < all.of_block.last;: <= for < at column 27", NONE_SEEN),
    ("(number * FEW_KEYS) < all.of_block.last;: <= for < at column 31", NONE_SEEN),
    ("chunk < problem.head_dim; chunk += CHUNK) {: <= for < at column 25, place 1 of 3", NO_CHANNELS),
    ("chunk < problem.head_dim; chunk += CHUNK) {: <= for < at column 25, place 2 of 3", NO_CHANNELS),
    ("chunk < problem.head_dim; chunk += CHUNK) {: <= for < at column 25, place 3 of 3", NO_CHANNELS),
    ("if (begin < end) {: <= for < at column 9", NONE_SEEN),
];

#[needs::cuda]
#[test]
fn faults_in_products_by_warpgroups_are_found() {
    let of_few: [Cases; 3] = [mat_mul_wgmma::edges, mat_mul_wgmma::pieces, mat_mul_wgmma::ends];
    let mut cases: Vec<(Order, Cases)> = of_few.map(|cases| (Order::BLOCKS16_OF_90, cases)).into();
    cases.push((Order::BLOCKS16_OF_ONE_90, mat_mul_wgmma::single_sums));
    assert_found_by("mat_mul_wgmma", &["mat_mul_blocks"], &cases, PRODUCTS);
}

#[needs::cuda]
#[test]
fn faults_in_products_in_turns_are_found() {
    let cases: [(Order, Cases); 4] = [
        (Order::IN_TURNS_OF_ONE, mat_mul_turns::tiles),
        (Order::IN_TURNS_OF_ONE, mat_mul_turns::pieces),
        (Order::IN_TURNS, mat_mul_wgmma::edges),
        (Order::IN_TURNS_OF_ONE, mat_mul_wgmma::single_sums),
    ];
    assert_found_by("mat_mul_wgmma_turns", &["mat_mul_wgmma", "mat_mul_blocks"], &cases, TURNS);
}

#[needs::cuda]
#[test]
fn faults_in_products_with_activations_are_found() {
    let cases: [(Order, Cases); 2] = [(Order::FUSED, fused::one_kernel), (Order::FUSED_OF_ONE, fused::one_kernel)];
    assert_found_by("mat_mul_wgmma_activation", &[], &cases, FUSED);
}

#[needs::cuda]
#[test]
fn faults_in_products_by_warps_with_activations_are_found() {
    let cases: [(Order, Cases); 3] = [
        (Order::FUSED_BY_WARPS, fused::one_kernel),
        (Order::FUSED_BY_WARPS_OF_ONE, fused::one_kernel),
        (Order::FUSED_BY_WARPS, fused::any_factors),
    ];
    assert_found_by("mat_mul_blocks_activation", &[], &cases, FUSED_BY_WARPS);
}

#[needs::cuda]
#[test]
fn faults_in_attention_in_blocks_are_found() {
    let cases: [Cases; 1] = [attention_blocks::forward_of_narrow_heads];
    assert_found_in(Order::BLOCKS16_OF_90, "attention_blocks", &[], &cases, FORWARD);
}

#[needs::cuda]
#[test]
fn faults_in_gradients_of_queries_in_blocks_are_found() {
    let others = ["attention_blocks_keys", "element_wise"];
    let cases: [Cases; 1] = [attention_blocks::backward_of_narrow_heads];
    assert_found_in(Order::BLOCKS16_OF_90, "attention_blocks_queries", &others, &cases, QUERIES);
}

#[needs::cuda]
#[test]
fn faults_in_gradients_of_keys_in_blocks_are_found() {
    let others = ["attention_blocks_queries", "element_wise"];
    let cases: [Cases; 1] = [attention_blocks::backward_of_narrow_heads];
    assert_found_in(Order::BLOCKS16_OF_90, "attention_blocks_keys", &others, &cases, KEYS);
}

#[needs::cuda]
#[test]
fn faults_in_attention_of_wide_heads_in_blocks_are_found() {
    let others = ["attention_blocks_queries", "element_wise"];
    let cases: [Cases; 2] = [attention_blocks::forward_of_wide_heads, attention_blocks::backward_of_wide_heads];
    assert_found_in(Order::BLOCKS16, "attention_blocks_wide", &others, &cases, WIDE);
}
