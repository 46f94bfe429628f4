// Shared parts of the kernels of attention's forward pass with products in blocks. Scores of a tile, and then
// probabilities, stay in the registers of a warp.
#pragma once

#include "attention_blocks.cuh"

namespace attention_blocks {

// Keys of a tile. Part of the numerics.
constexpr u32 KEYS = 128;
// Fragments of a tile's scores.
constexpr u32 TILE = KEYS / COLUMNS;

template <typename Element>
struct Forward {
    Matrix<const Element> q;
    Matrix<const Element> k;
    Matrix<const Element> v;
    Matrix<Element> out;
    Matrix<f32> log_sum_exp;
    bool vectors;
};

// The running softmax of a thread's two queries: the largest score as a power of two, and the thread's share of sums.
struct Running {
    f32 max[2];
    f32 sum[2];
};

// A thread's two queries.
struct Queries {
    Intervals intervals;
    // Of the call.
    u32 token;
    u32 head;
    f32 slope;
};

// The value to subtract from scores whose maximum is `max`.
__device__ inline f32 shift_of(f32 max) {
    // A query that has seen nothing yet subtracts zero, as minus infinity minus itself is not a number.
    return max < -3.40282347e38f ? 0.0f : max;
}

// Turns products into scores: caps and biases them, and hides those of keys that a query does not see.
template <typename Asked>
__device__ inline void finish_scores(f32 (&scores)[TILE][4], const Asked& problem, const Queries& queries, i32 first,
                                     bool sees_all) {
    const i32 key = first + (i32)(threadIdx.x % 4 * 2);
    multiply(scores, scale_of(problem));
    if (has_cap(problem)) {
#pragma unroll
        for (u32 column = 0; column < TILE; column++) {
#pragma unroll
            for (u32 index = 0; index < 4; index++) {
                scores[column][index] = problem.soft_cap.capped(scores[column][index]);
            }
        }
    }
    if (has_bias(problem)) {
#pragma unroll
        for (u32 column = 0; column < TILE; column++) {
#pragma unroll
            for (u32 index = 0; index < 4; index++) {
                scores[column][index] = attention::biased(scores[column][index], key + column * COLUMNS + index % 2,
                                                          queries.intervals[index / 2].end, queries.slope);
            }
        }
    }
    if (!sees_all) {
#pragma unroll
        for (u32 column = 0; column < TILE; column++) {
#pragma unroll
            for (u32 index = 0; index < 4; index++) {
                const Interval& interval = queries.intervals[index / 2];
                const bool visible = attention::is_visible(key + column * COLUMNS + index % 2, interval.first,
                                                           interval.last);
                scores[column][index] = visible ? scores[column][index] : -math::infinity();
            }
        }
    }
}

// The largest of a row's scores, NaN if there is one.
__device__ inline f32 largest_of_row(const f32 (&scores)[TILE][4], u32 row) {
    f32 max = -math::infinity();
#pragma unroll
    for (u32 column = 0; column < TILE; column++) {
        max = tensor_core::larger_or_nan(max, scores[column][2 * row]);
        max = tensor_core::larger_or_nan(max, scores[column][2 * row + 1]);
    }
    max = tensor_core::larger_or_nan(max, __shfl_xor_sync(ALL_LANES, max, 1));
    return tensor_core::larger_or_nan(max, __shfl_xor_sync(ALL_LANES, max, 2));
}

// Probabilities of sixteen keys after dropout as the left factor of a product. Adds them to the sums first.
template <typename Element, typename Asked>
__device__ void exponentiate(u32 (&left)[4], Running& running, const f32 (&scores)[TILE][4], u32 block,
                             const f32 (&shift)[2], const Asked& problem, const Queries& queries, u32 first_key) {
    const Scale scale = scale_of(problem);
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
        f32 powers[4];
#pragma unroll
        for (u32 index = 0; index < 4; index++) {
            powers[index] =
                power_from_zero(fmaf(scores[2 * block + half][index], -scale.exponent, shift[index / 2]));
            running.sum[index / 2] += powers[index];
        }
        if (has_dropout(problem)) {
            u32 words[4];
            words_of_queries(words, problem, queries.head, queries.token, first_key + (2 * block + half) * COLUMNS);
#pragma unroll
            for (u32 index = 0; index < 4; index++) {
                powers[index] = words[index] < problem.dropout.threshold ? 0.0f : powers[index];
            }
        }
        left[2 * half] = tensor_core::packed<Element>(powers[0], powers[1]);
        left[2 * half + 1] = tensor_core::packed<Element>(powers[2], powers[3]);
    }
}

// `scores += queries . keys` over the channels that are staged, of the blocks of sixteen keys from `begin` to `end`.
template <typename Element, u32 CHANNELS, bool ALL, typename Left>
__device__ void multiply_keys(f32 (&scores)[TILE][4], const u16* keys, u32 begin, u32 end, Left left) {
    const u32 right = Fragments<CHANNELS>::right(keys);
#pragma unroll
    for (u32 step = 0; step < CHANNELS / STEPS; step++) {
        u32 a[4];
        left(a, step);
#pragma unroll
        for (u32 block = 0; block < TILE / 2; block++) {
            if (ALL || (block >= begin && block < end)) {
                u32 b[4];
                tensor_core::load_rows(b, right + Fragments<CHANNELS>::step(block * STEPS, step * STEPS));
                tensor_core::multiply<Element>(scores[2 * block], a, b[0], b[1]);
                tensor_core::multiply<Element>(scores[2 * block + 1], a, b[2], b[3]);
            }
        }
    }
}

// `outputs += probabilities . values` of the blocks of sixteen keys from `begin` to `end`.
template <typename Element, u32 CHANNELS, bool ALL, typename Asked>
__device__ void multiply_values(f32 (&outputs)[CHANNELS / COLUMNS][4], Running& running, const f32 (&scores)[TILE][4],
                                const u16* values, u32 begin, u32 end, const f32 (&shift)[2], const Asked& problem,
                                const Queries& queries, u32 first_key) {
    const u32 right = Fragments<CHANNELS>::right_columns(values);
#pragma unroll
    for (u32 block = 0; block < TILE / 2; block++) {
        if (ALL || (block >= begin && block < end)) {
            u32 a[4];
            exponentiate<Element>(a, running, scores, block, shift, problem, queries, first_key);
#pragma unroll
            for (u32 column = 0; column < CHANNELS / COLUMNS; column += 2) {
                u32 b[4];
                tensor_core::load_columns(b, right + Fragments<CHANNELS>::step(block * STEPS, column * COLUMNS));
                tensor_core::multiply<Element>(outputs[column], a, b[0], b[1]);
                tensor_core::multiply<Element>(outputs[column + 1], a, b[2], b[3]);
            }
        }
    }
}

// Raises the maxima by a tile's scores. Earlier sums decay, and outputs are to; says the depth of scores of zero.
__device__ inline void raise_maxima(f32 (&shift)[2], f32 (&decay)[2], Running& running, const f32 (&scores)[TILE][4],
                                    const Scale& scale) {
#pragma unroll
    for (u32 row = 0; row < 2; row++) {
        const f32 old = running.max[row];
        running.max[row] = tensor_core::larger_or_nan(old, largest_of_row(scores, row) * scale.exponent);
        const f32 subtracted = shift_of(running.max[row]);
        shift[row] = subtracted + NO_DEPTH;
        decay[row] = power_from_zero(subtracted - old + NO_DEPTH);
        running.sum[row] *= decay[row];
    }
}

template <u32 FRAGMENTS>
__device__ inline void decay_outputs(f32 (&outputs)[FRAGMENTS][4], const f32 (&decay)[2]) {
#pragma unroll
    for (u32 column = 0; column < FRAGMENTS; column++) {
#pragma unroll
        for (u32 index = 0; index < 4; index++) {
            outputs[column][index] *= decay[index / 2];
        }
    }
}

// Divides a warp's outputs by the sums of its queries, and stores them with the log-sum-exps.
template <typename Element, u32 CHANNELS>
__device__ void finish(const Forward<Element>& tensors, const Problem& problem, const Running& running,
                       const f32 (&outputs)[CHANNELS / COLUMNS][4], const Queries& queries, u32 position,
                       u32 first_channel) {
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (u32 row = 0; row < 2; row++) {
        // (0 + 1) + (2 + 3)
        f32 sum = running.sum[row];
        sum += __shfl_xor_sync(ALL_LANES, sum, 1);
        sum += __shfl_xor_sync(ALL_LANES, sum, 2);
        const f32 max = running.max[row];
        f32 factor = 0.0f < sum ? problem.dropout.kept / sum : 0.0f;
        f32 log_sum_exp = max * math::LN2 + math::log(sum);
        // A score was infinite or is not a number, and neither is a probability.
        if (!(max < math::infinity())) {
            factor = math::not_a_number();
            log_sum_exp = factor;
        }
        if (position + 8 * row >= problem.sequence_length) {
            continue;
        }
        const u64 token = queries.token + 8 * row;
        if (first_channel == 0 && lane % 4 == 0) {
            tensors.log_sum_exp.row(token)[queries.head] = log_sum_exp;
        }
        Element* out = tensors.out.row(token) + queries.head * problem.head_dim;
#pragma unroll
        for (u32 column = 0; column < CHANNELS / COLUMNS; column++) {
            store_pair(out, first_channel + column * COLUMNS + lane % 4 * 2, problem.head_dim,
                       outputs[column][2 * row] * factor, outputs[column][2 * row + 1] * factor, tensors.vectors);
        }
    }
}

}  // namespace attention_blocks
