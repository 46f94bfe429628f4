// Scores and their gradients where a warp has sixteen queries and sums run over keys.
#pragma once

#include "attention_blocks_gradient.cuh"

namespace attention_blocks::of_queries {

// A thread's two queries.
struct Queries {
    Intervals intervals;
    QueryGradient gradients[2];
    // Of the call.
    u32 token;
    u32 head;
    f32 slope;
};

template <typename Element>
__device__ Queries queries_of(const Problem& problem, const Backward<Element>& tensors, const Intervals& intervals,
                              u32 sequence, u32 position, u32 head, Delta delta) {
    Queries queries;
    queries.intervals = intervals;
    queries.token = sequence * problem.sequence_length + position;
    queries.head = head;
    queries.slope = problem.alibi_heads == 0 ? 0.0f : attention::slope(problem, head);
#pragma unroll
    for (u32 row = 0; row < 2; row++) {
        queries.gradients[row] = {0.0f, 0.0f};
        if (position + 8 * row < problem.sequence_length) {
            const u64 token = queries.token + 8 * row;
            const u32 column = head * problem.head_dim;
            queries.gradients[row] = {
                shift_of_gradient(tensors.log_sum_exp.row(token)[head]),
                problem.scale *
                    (delta == Delta::Stored
                         ? stored_delta(tensors, token, column, problem.head_dim).joined()
                         : delta_of_channels(tensors.dout.row(token) + column, tensors.out.row(token) + column,
                                             problem.head_dim, tensors.vectors))};
        }
    }
    return queries;
}

// The gradients of the scores of sixteen keys from `key` on, as a left factor.
template <typename Element, typename Asked>
__device__ inline void score_gradients(u32 (&left)[4], f32 (&scores)[2][4], f32 (&gradients)[2][4],
                                       const Asked& problem, const Queries& queries, u32 key, bool sees_all) {
    const Scale scale = scale_of(problem);
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
        const u32 first = key + half * COLUMNS;
        u32 words[4];
        if (has_dropout(problem)) {
            words_of_queries(words, problem, queries.head, queries.token, first);
        }
#pragma unroll
        for (u32 index = 0; index < 4; index++) {
            const Interval& interval = queries.intervals[index / 2];
            const u32 place = first + threadIdx.x % 4 * 2 + index % 2;
            f32& score = scores[half][index];
            const f32 cap_slope = cap_score(score, problem, scale);
            score = !has_bias(problem) ? score : attention::biased(score, place, interval.end, queries.slope);
            const f32 factor = !has_dropout(problem) ? 1.0f : problem.dropout.factor(words[index]);
            const bool visible = sees_all || attention::is_visible(place, interval.first, interval.last);
            score_gradient(score, gradients[half][index], problem, queries.gradients[index / 2], scale.exponent, factor,
                           cap_slope, visible);
        }
        left[2 * half] = tensor_core::packed<Element>(gradients[half][0], gradients[half][1]);
        left[2 * half + 1] = tensor_core::packed<Element>(gradients[half][2], gradients[half][3]);
    }
}

// Stores the gradients of a warp's queries.
template <typename Element, u32 CHANNELS>
__device__ inline void store(const Backward<Element>& tensors, const Problem& problem, const Queries& queries,
                             const f32 (&sums)[CHANNELS / COLUMNS][4], u32 position, u32 first_channel) {
#pragma unroll
    for (u32 row = 0; row < 2; row++) {
        if (position + 8 * row < problem.sequence_length) {
            Element* dq = tensors.dq.row(queries.token + 8 * row) + queries.head * problem.head_dim;
#pragma unroll
            for (u32 column = 0; column < CHANNELS / COLUMNS; column++) {
                store_pair(dq, first_channel + column * COLUMNS + threadIdx.x % 4 * 2, problem.head_dim,
                           sums[column][2 * row], sums[column][2 * row + 1], tensors.vectors);
            }
        }
    }
}

}  // namespace attention_blocks::of_queries
