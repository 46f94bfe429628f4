// Scores and their gradients where a warp has sixteen keys and sums run over the queries of one head after the other.
#pragma once

#include "attention_blocks_gradient.cuh"

namespace attention_blocks::of_keys {

constexpr u32 THREADS = 128;
constexpr u32 WARPS = THREADS / 32;
// Keys of a block of threads.
constexpr u32 KEYS = WARPS * ROWS;
// Blocks of queries in which some are looked for at once that see a tile of keys.
constexpr u32 WINDOW = 32;

static_assert(WINDOW % WARPS == 0, "a warp looks at one block after the other");

// Inputs of the scores of a block of queries.
template <u32 QUERIES>
struct QueryRows {
    // As those of `QueryGradient`.
    f32 shift[QUERIES];
    f32 delta[QUERIES];
    i32 first[QUERIES];
    i32 last[QUERIES];
    i32 end[QUERIES];
};

// The blocks of queries that see some key of a tile, of one head after the other.
template <u32 QUERIES>
struct QueryBlocks {
    u32 head;
    u32 end_of_heads;
    // The first query of a window, and those of its blocks that are still to come.
    u32 window;
    u32 coming;
    // The first query of the block.
    u32 position;

    // The next block; false after the last. All threads must call it.
    __device__ bool next(u32 (&found)[WARPS], const Problem& problem, u32 sequence, i32 first_key) {
        while (coming == 0) {
            window += WINDOW * QUERIES;
            if (window >= problem.sequence_length) {
                window = 0;
                head++;
            }
            if (head >= end_of_heads) {
                return false;
            }
            look(found, problem, sequence, first_key);
        }
        position = window + (u32)(__ffs((i32)coming) - 1) * QUERIES;
        coming &= coming - 1;
        return true;
    }

private:
    __device__ void look(u32 (&found)[WARPS], const Problem& problem, u32 sequence, i32 first_key) {
        const u32 lane = threadIdx.x % 32;
        const u32 first = threadIdx.x / 32 * (WINDOW / WARPS);
        // Places of the sequence.
        const i32 begin = first_key + (i32)problem.first_key;
        const i32 end = min(first_key + (i32)KEYS, (i32)problem.keys) + (i32)problem.first_key;
        const u32 position = window + first * QUERIES + lane;
        const i32* interval = problem.visible + 2 * ((u64)sequence * problem.sequence_length + position);
        // All are read before the first is needed.
        constexpr u32 READS = WINDOW / WARPS * QUERIES / 32;
        i32 firsts[READS];
        i32 lasts[READS];
#pragma unroll
        for (u32 read = 0; read < READS; read++) {
            const bool exists = problem.sequence_length > position + 32 * read;
            firsts[read] = exists ? interval[64 * read] : 0;
            lasts[read] = exists ? interval[64 * read + 1] : 0;
        }
        u32 mine = 0;
#pragma unroll
        for (u32 read = 0; read < READS; read++) {
            const bool sees = min(lasts[read], end) > max(firsts[read], begin);
            mine |= __any_sync(ALL_LANES, sees) ? 1u << (first + read * 32 / QUERIES) : 0;
        }
        __syncthreads();
        if (lane == 0) {
            found[threadIdx.x / 32] = mine;
        }
        __syncthreads();
        coming = 0;
#pragma unroll
        for (u32 warp = 0; warp < WARPS; warp++) {
            coming |= found[warp];
        }
    }
};

// Inputs of the scores of a query as they were read.
struct QueryRow {
    f32 log_sum_exp;
    Halves delta;
    // Places of the sequence.
    i32 first;
    i32 last;
};

// Reads inputs of a block of queries other than its channels, one in each of the first threads. A query that is
// missing sees nothing.
template <u32 QUERIES, typename Element>
__device__ inline QueryRow read_row(const Problem& problem, const Backward<Element>& tensors, u32 sequence,
                                    const QueryBlocks<QUERIES>& blocks) {
    const u32 position = blocks.position + threadIdx.x;
    if (threadIdx.x >= QUERIES || position >= problem.sequence_length) {
        return {0.0f, {0, 0}, (i32)problem.first_key, (i32)problem.first_key};
    }
    const u64 token = (u64)sequence * problem.sequence_length + position;
    return {tensors.log_sum_exp.row(token)[blocks.head],
            stored_delta(tensors, token, blocks.head * problem.head_dim, problem.head_dim), problem.visible[2 * token],
            problem.visible[2 * token + 1]};
}

// Stages them.
template <u32 QUERIES>
__device__ inline void write_row(QueryRows<QUERIES>& rows, const Problem& problem, const QueryRow& row) {
    if (threadIdx.x < QUERIES) {
        const Interval interval = interval_within(problem, row.first, row.last);
        rows.shift[threadIdx.x] = shift_of_gradient(row.log_sum_exp);
        rows.delta[threadIdx.x] = row.delta.joined() * problem.scale;
        rows.first[threadIdx.x] = interval.first;
        rows.last[threadIdx.x] = interval.last;
        rows.end[threadIdx.x] = interval.end;
    }
}

// Probabilities after dropout and gradients of scores of sixteen keys and sixteen queries, as left factors.
template <typename Element, u32 QUERIES, typename Asked>
__device__ inline void score_gradients(u32 (&probabilities)[4], u32 (&left)[4], f32 (&scores)[2][4],
                                       f32 (&gradients)[2][4], const Asked& problem, const QueryRows<QUERIES>& rows,
                                       u32 first_query, u32 token, u32 head, f32 slope, u32 first_key, bool sees_all) {
    const u32 key = first_key + threadIdx.x % 32 / 4;
    const Scale scale = scale_of(problem);
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
        u32 words[4];
        if (has_dropout(problem)) {
            words_of_keys(words, problem, head, token + first_query + half * COLUMNS, first_key);
        }
#pragma unroll
        for (u32 index = 0; index < 4; index++) {
            const u32 query = first_query + half * COLUMNS + threadIdx.x % 4 * 2 + index % 2;
            const u32 place = key + index / 2 * 8;
            f32& score = scores[half][index];
            const f32 cap_slope = cap_score(score, problem, scale);
            score = !has_bias(problem) ? score : attention::biased(score, place, rows.end[query], slope);
            const f32 factor = !has_dropout(problem) ? 1.0f : problem.dropout.factor(words[index]);
            const bool visible = sees_all || attention::is_visible(place, rows.first[query], rows.last[query]);
            score_gradient(score, gradients[half][index], problem, {rows.shift[query], rows.delta[query]},
                           scale.exponent, factor, cap_slope, visible);
        }
        probabilities[2 * half] = tensor_core::packed<Element>(scores[half][0], scores[half][1]);
        probabilities[2 * half + 1] = tensor_core::packed<Element>(scores[half][2], scores[half][3]);
        left[2 * half] = tensor_core::packed<Element>(gradients[half][0], gradients[half][1]);
        left[2 * half + 1] = tensor_core::packed<Element>(gradients[half][2], gradients[half][3]);
    }
}

// Before the first block of the heads from `head` on.
template <u32 QUERIES>
__device__ inline QueryBlocks<QUERIES> first_blocks(u32 head, u32 heads) {
    return {head, head + heads, 0u - WINDOW * QUERIES, 0, 0};
}

// Stores the gradients of a warp's keys or values, of which the thread's first has `rows` before the end.
template <typename Element, u32 CHANNELS>
__device__ inline void store(const Matrix<Element>& matrix, const f32 (&sums)[CHANNELS / COLUMNS][4], u64 row, u32 rows,
                             u32 column, u32 first_channel, u32 head_dim, bool vectors) {
#pragma unroll
    for (u32 index = 0; index < 2; index++) {
        if (8 * index < rows) {
            Element* out = matrix.row(row + 8 * index) + column;
#pragma unroll
            for (u32 fragment = 0; fragment < CHANNELS / COLUMNS; fragment++) {
                store_pair(out, first_channel + fragment * COLUMNS + threadIdx.x % 4 * 2, head_dim,
                           sums[fragment][2 * index], sums[fragment][2 * index + 1], vectors);
            }
        }
    }
}

}  // namespace attention_blocks::of_keys
