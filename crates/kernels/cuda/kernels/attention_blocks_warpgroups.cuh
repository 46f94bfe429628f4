// The forward pass of attention with products in blocks by warpgroups, for compute capability 9.0 alone: a warpgroup
// has 64 queries. While a warpgroup turns scores into probabilities, probabilities before them are multiplied, and the
// other warpgroup's products.
#pragma once

#include "attention_blocks_depths.cuh"
#include "attention_blocks_forward.cuh"
#include "attention_blocks_panels.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

namespace attention_blocks {

template <typename Element, u32 CHANNELS>
struct Warpgroup {
    static constexpr u32 THREADS = CHANNELS == 64 ? 128 : 256;
    static constexpr u32 QUERIES = THREADS / 32 * ROWS;
    using OfQueries = Panels<CHANNELS, QUERIES>;
    using OfKeys = Panels<CHANNELS, KEYS>;

    const PlainProblem& problem;
    const Forward<Element>& tensors;
    u64 key_row;
    u32 kv_column;
    // The first query of the warpgroup.
    u32 left;
    // Of two tiles of keys, and of two of values.
    u8* keys;
    u8* values;

    __device__ Rows<Element> rows(const Matrix<const Element>& matrix, u32 number) const {
        return rows_of(matrix, key_row + number * KEYS, kv_column, min(KEYS, problem.keys - number * KEYS));
    }

    __device__ void copy(u32 number, u32 place) const {
        OfKeys::template stage<THREADS>(keys + place * OfKeys::BYTES, rows(tensors.k, number), problem.head_dim,
                                        tensors.vectors);
        OfKeys::template stage<THREADS>(values + place * OfKeys::BYTES, rows(tensors.v, number), problem.head_dim,
                                        tensors.vectors);
        tensor_core::end_copies();
    }

    // Starts the products of queries and keys.
    __device__ void multiply_keys(f32 (&scores)[TILE][4], u32 place) const {
        warpgroup::begin();
        start_product<Element, OfQueries, OfKeys, CHANNELS>(
            scores, left, of_warp(tensor_core::shared_address(keys + place * OfKeys::BYTES)));
        warpgroup::end();
    }

    // Probabilities, and their products with values, block after block. Probabilities are added to the sums first.
    __device__ void multiply_values(f32 (&outputs)[CHANNELS / COLUMNS][4], Running& running, f32 (&scores)[TILE][4],
                                    u32 place, Depths depths) const {
        const u32 right = of_warp(tensor_core::shared_address(values + place * OfKeys::BYTES));
#pragma unroll
        for (u32 block = 0; block < KEYS / STEPS; block++) {
            f32(&powers)[2][4] = reinterpret_cast<f32(&)[2][4]>(scores[2 * block]);
            exponentiate(powers, depths);
            u32 a[4];
#pragma unroll
            for (u32 half = 0; half < 2; half++) {
#pragma unroll
                for (u32 index = 0; index < 4; index++) {
                    running.sum[index / 2] += powers[half][index];
                }
                a[2 * half] = tensor_core::packed<Element>(powers[half][0], powers[half][1]);
                a[2 * half + 1] = tensor_core::packed<Element>(powers[half][2], powers[half][3]);
            }
            warpgroup::begin();
            start_addition<Element, OfKeys, CHANNELS>(outputs, a, right, block);
        }
        warpgroup::end();
    }
};

// The largest of a row's scores, NaN if there is one, by chains that do not wait for each other.
__device__ inline f32 largest(const f32 (&scores)[TILE][4], u32 row) {
    constexpr u32 CHAINS = 4;
    f32 max[CHAINS];
#pragma unroll
    for (u32 chain = 0; chain < CHAINS; chain++) {
        max[chain] = tensor_core::larger_or_nan(scores[chain][2 * row], scores[chain][2 * row + 1]);
    }
#pragma unroll
    for (u32 column = CHAINS; column < TILE; column++) {
#pragma unroll
        for (u32 index = 0; index < 2; index++) {
            f32& chain = max[column % CHAINS];
            chain = tensor_core::larger_or_nan(chain, scores[column][2 * row + index]);
        }
    }
    f32 all = tensor_core::larger_or_nan(tensor_core::larger_or_nan(max[0], max[1]),
                                         tensor_core::larger_or_nan(max[2], max[3]));
    all = tensor_core::larger_or_nan(all, __shfl_xor_sync(ALL_LANES, all, 1));
    return tensor_core::larger_or_nan(all, __shfl_xor_sync(ALL_LANES, all, 2));
}

// Raises the maxima by a tile's scores, which become depths. Earlier sums decay, and outputs are to.
__device__ inline Depths lower(f32 (&scores)[TILE][4], f32 (&decay)[2], Running& running, const Scale& scale) {
#pragma unroll
    for (u32 row = 0; row < 2; row++) {
        const f32 old = running.max[row];
        running.max[row] = tensor_core::larger_or_nan(old, largest(scores, row) * scale.exponent);
        const f32 subtracted = shift_of(running.max[row]);
        const f32 shift = subtracted + NO_DEPTH;
        decay[row] = power_from_zero(subtracted - old + NO_DEPTH);
        running.sum[row] *= decay[row];
#pragma unroll
        for (u32 column = 0; column < TILE; column++) {
#pragma unroll
            for (u32 index = 0; index < 2; index++) {
                f32& score = scores[column][2 * row + index];
                score = fmaf(score, -scale.exponent, shift);
            }
        }
    }
    return __all_sync(ALL_LANES, are_usual(largest_bits(scores))) ? Depths::Usual : Depths::SomeDeep;
}

template <typename Element, u32 CHANNELS>
__device__ void forward_by_warpgroups(const PlainProblem& problem, const Forward<Element>& tensors) {
    using Group = Warpgroup<Element, CHANNELS>;
    extern __shared__ __align__(16) u16 shared[];
    // Of each warp: keys that some query sees, and those that all queries see.
    __shared__ Span spans[Group::THREADS / 32];
    __shared__ Span seen_by_all[Group::THREADS / 32];
    __shared__ Interval intervals[Group::QUERIES];
    u8* const memory = first_panel(shared);
    const u32 warp = threadIdx.x / 32;
    const u32 lane = threadIdx.x % 32;
    const u32 head_dim = problem.head_dim;
    const u32 head = blockIdx.x % problem.heads;
    const u32 sequence = blockIdx.x / problem.heads;
    // The last queries, which see most under a causal mask, begin first.
    const u32 first_query = (gridDim.y - 1 - blockIdx.y) * Group::QUERIES;
    const u32 position = first_query + warp * ROWS + lane / 4;
    const u64 first_token = (u64)sequence * problem.sequence_length;
    const u32 left = of_warp(tensor_core::shared_address(memory) + warp / 4 * 64 * 128);
    u8* const keys = memory + Group::OfQueries::BYTES;
    const Group group = {problem, tensors, (u64)sequence * problem.keys, head / problem.group() * head_dim, left, keys,
                         keys + 2 * Group::OfKeys::BYTES};

    Group::OfQueries::template stage<Group::THREADS>(
        memory,
        rows_of(tensors.q, first_token + first_query, head * head_dim, problem.sequence_length - first_query), head_dim,
        tensors.vectors);
    Queries queries;
    queries.intervals = shared_intervals(intervals, problem, sequence, position);
    queries.slope = 0.0f;
    const Span span = joined<4, 16>(with(with(NOTHING, queries.intervals[0]), queries.intervals[1]));
    const Span common = joined_all(queries.intervals[0], queries.intervals[1]);
    if (lane == 0) {
        spans[warp] = span;
        seen_by_all[warp] = common;
    }
    __syncthreads();
    const Span of_lane = lane < Group::THREADS / 32 ? spans[lane] : NOTHING;
    const Span of_block = joined<1, 16>(of_lane);
    const auto next = [&](u32 number) { return next_tile<KEYS>(number, of_block, of_lane); };
    const auto exists = [&](u32 number) { return (i32)(number * KEYS) < of_block.last; };

    Running running = {{-math::infinity(), -math::infinity()}, {0.0f, 0.0f}};
    f32 outputs[CHANNELS / COLUMNS][4] = {};
    u32 number = next(of_block.start() / KEYS);
    u32 place = 0;
    if (exists(number)) {
        group.copy(number, place);
    }
    while (exists(number)) {
        const i32 first = (i32)(number * KEYS);
        const u32 following = next(number + 1);
        publish_copies();
        f32 scores[TILE][4];
        group.multiply_keys(scores, place);
        if (exists(following)) {
            group.copy(following, place ^ 1);
        }
        const Span seen = seen_by_all[warp];
        const bool sees_all = seen.first <= first && seen.last >= first + (i32)KEYS;
        f32 decay[2];
        warpgroup::wait<0>();
        warpgroup::pin(all(scores));
        const Scale scale = scale_of(problem);
        multiply(scores, scale);
        if (!sees_all) {
            hide(scores, queries.intervals, first, -math::infinity());
        }
        const Depths depths = lower(scores, decay, running, scale);
        if (!__all_sync(ALL_LANES, decay[0] == 1.0f && decay[1] == 1.0f)) {
            decay_outputs(outputs, decay);
        }
        group.multiply_values(outputs, running, scores, place, depths);
        number = following;
        place ^= 1;
        warpgroup::wait<0>();
        warpgroup::pin(all(outputs));
    }
    tensor_core::wait_for_copies<0>();
    // Recomputed, so that no register holds it in the loop.
    u32 thread = threadIdx.x;
    u32 block = blockIdx.x;
    asm volatile("" : "+r"(thread), "+r"(block));
    queries.head = block % problem.heads;
    const u32 stored = first_query + thread / 32 * ROWS + thread % 32 / 4;
    queries.token = (u32)first_token + stored;
    finish<Element, CHANNELS>(tensors, problem, running, outputs, queries, stored, 0);
}

}  // namespace attention_blocks
#endif
