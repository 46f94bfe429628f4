// Gradients of attention's queries by warpgroups, for compute capability 9.0 alone: a warpgroup has 64 queries.
// While a warpgroup computes gradients of scores, those before them are multiplied, and the other warpgroup's products.
#pragma once

#include "attention_blocks_depths.cuh"
#include "attention_blocks_of_queries.cuh"
#include "attention_blocks_panels.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

namespace attention_blocks::of_queries {

// Scores of keys from `first` on become depths below the log-sum-exps of their queries. Hidden keys are infinitely
// deep.
template <u32 FRAGMENTS>
__device__ inline Depths lower(f32 (&scores)[FRAGMENTS][4], const Scale& scale, const Queries& queries, i32 first,
                               bool sees_all) {
    multiply(scores, scale);
#pragma unroll
    for (u32 column = 0; column < FRAGMENTS; column++) {
#pragma unroll
        for (u32 index = 0; index < 4; index++) {
            f32& score = scores[column][index];
            score = fmaf(score, -scale.exponent, queries.gradients[index / 2].shift);
        }
    }
    const bool all_are_usual = __all_sync(ALL_LANES, are_usual(largest_bits(scores)));
    if (!sees_all) {
        hide(scores, queries.intervals, first, math::infinity());
    }
    return !all_are_usual ? Depths::Any : sees_all ? Depths::Usual : Depths::SomeDeep;
}

// The gradients of the scores of sixteen keys, which are depths, as a left factor.
template <typename Element>
__device__ inline void score_gradients(u32 (&left)[4], f32 (&scores)[2][4], f32 (&gradients)[2][4],
                                       const Queries& queries, f32 scale, Depths depths) {
    exponentiate(scores, depths);
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
#pragma unroll
        for (u32 index = 0; index < 4; index++) {
            f32& gradient = gradients[half][index];
            gradient = scores[half][index] * fmaf(gradient, scale, -queries.gradients[index / 2].delta);
        }
        left[2 * half] = tensor_core::packed<Element>(gradients[half][0], gradients[half][1]);
        left[2 * half + 1] = tensor_core::packed<Element>(gradients[half][2], gradients[half][3]);
    }
}

template <typename Element, u32 CHANNELS>
__device__ void backward_by_warpgroups(const PlainProblem& problem, const Backward<Element>& tensors) {
    constexpr u32 THREADS = CHANNELS == 64 ? 128 : 256;
    constexpr u32 QUERIES = THREADS / 32 * ROWS;
    constexpr u32 KEYS = 64;
    using OfQueries = Panels<CHANNELS, QUERIES>;
    using OfKeys = Panels<CHANNELS, KEYS>;
    using Tile = f32[KEYS / COLUMNS][4];
    extern __shared__ __align__(16) u16 shared[];
    __shared__ Span spans[THREADS / 32];
    __shared__ Interval intervals[QUERIES];
    // Queries, output gradients, and keys and values of two tiles.
    u8* const memory = first_panel(shared);
    u8* const keys = memory + 2 * OfQueries::BYTES;
    const u32 warp = threadIdx.x / 32;
    const u32 lane = threadIdx.x % 32;
    const u32 head_dim = problem.head_dim;
    const u32 head = blockIdx.x % problem.heads;
    const u32 sequence = blockIdx.x / problem.heads;
    // The last queries, which see most under a causal mask, begin first.
    const u32 first_query = (gridDim.y - 1 - blockIdx.y) * QUERIES;
    const u32 position = first_query + warp * ROWS + lane / 4;
    const u64 first_row = (u64)sequence * problem.sequence_length + first_query;
    const u32 there = problem.sequence_length - first_query;
    const u32 kv_column = head / problem.group() * head_dim;
    const u64 key_row = (u64)sequence * problem.keys;
    OfQueries::template stage<THREADS>(memory, rows_of(tensors.q, first_row, head * head_dim, there), head_dim,
                                       tensors.vectors);
    OfQueries::template stage<THREADS>(memory + OfQueries::BYTES,
                                       rows_of(tensors.dout, first_row, head * head_dim, there), head_dim,
                                       tensors.vectors);
    const Intervals seen = shared_intervals(intervals, problem, sequence, position);
    const Queries queries = queries_of(problem, tensors, seen, sequence, position, head, Delta::Stored);
    const Span span = joined<4, 16>(with(with(NOTHING, queries.intervals[0]), queries.intervals[1]));
    const Span seen_by_all = joined_all(queries.intervals[0], queries.intervals[1]);
    if (lane == 0) {
        spans[warp] = span;
    }
    __syncthreads();
    const Span of_lane = lane < THREADS / 32 ? spans[lane] : NOTHING;
    const Span of_block = joined<1, 16>(of_lane);
    const auto next = [&](u32 number) { return next_tile<KEYS>(number, of_block, of_lane); };
    const auto exists = [&](u32 number) { return (i32)(number * KEYS) < of_block.last; };
    const auto copy = [&](u32 number, u32 place) {
        const u32 count = min(KEYS, problem.keys - number * KEYS);
        u8* const to = keys + 2 * place * OfKeys::BYTES;
        OfKeys::template stage<THREADS>(to, rows_of(tensors.k, key_row + number * KEYS, kv_column, count), head_dim,
                                        tensors.vectors);
        OfKeys::template stage<THREADS>(to + OfKeys::BYTES,
                                        rows_of(tensors.v, key_row + number * KEYS, kv_column, count), head_dim,
                                        tensors.vectors);
        tensor_core::end_copies();
    };
    const u32 left = of_warp(tensor_core::shared_address(memory) + warp / 4 * 64 * 128);
    const Scale scale = scale_of(problem);
    f32 outputs[CHANNELS / COLUMNS][4] = {};
    u32 number = next(of_block.start() / KEYS);
    u32 place = 0;
    if (exists(number)) {
        copy(number, place);
    }
    while (exists(number)) {
        const i32 first = (i32)(number * KEYS);
        const u32 following = next(number + 1);
        publish_copies();
        const u32 right = of_warp(tensor_core::shared_address(keys + 2 * place * OfKeys::BYTES));
        Tile scores;
        Tile gradients;
        warpgroup::begin();
        start_product<Element, OfQueries, OfKeys, CHANNELS>(scores, left, right);
        warpgroup::end();
        start_product<Element, OfQueries, OfKeys, CHANNELS>(gradients, left + OfQueries::BYTES, right + OfKeys::BYTES);
        warpgroup::end();
        if (exists(following)) {
            copy(following, place ^ 1);
        }
        const bool sees_all = seen_by_all.first <= first && seen_by_all.last >= first + (i32)KEYS;
        warpgroup::wait<1>();
        warpgroup::pin(all(scores));
        const Depths depths = lower(scores, scale, queries, first, sees_all);
        warpgroup::wait<0>();
        warpgroup::pin(all(gradients));
#pragma unroll
        for (u32 block = 0; block < KEYS / STEPS; block++) {
            u32 a[4];
            score_gradients<Element>(a, reinterpret_cast<f32(&)[2][4]>(scores[2 * block]),
                                     reinterpret_cast<f32(&)[2][4]>(gradients[2 * block]), queries, problem.scale,
                                     depths);
            warpgroup::begin();
            start_addition<Element, OfKeys, CHANNELS>(outputs, a, right, block);
        }
        warpgroup::end();
        number = following;
        place ^= 1;
        warpgroup::wait<0>();
        warpgroup::pin(all(outputs));
    }
    tensor_core::wait_for_copies<0>();
    store<Element, CHANNELS>(tensors, problem, queries, outputs, position, 0);
}

}  // namespace attention_blocks::of_queries
#endif
