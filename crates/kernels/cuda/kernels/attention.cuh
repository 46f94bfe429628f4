// Shared parts of the kernels of attention: `cpu::attention` with chained products, whose order of operations they
// keep.
//
// Blocks of 32 queries meet tiles of 64 keys; both are part of the numerics. A block of threads holds one block of
// queries (or one tile of keys) of one head in up to 128 channels, its range; wider heads have several ranges, and the
// scores are computed for each. Products are chains of fused multiply-adds in ascending order, whatever thread computes
// them.
#pragma once

#include "dropout_mask.cuh"
#include "element.cuh"
#include "math.cuh"
#include "soft_cap.cuh"
#include "tensor.cuh"

namespace attention {

constexpr u32 ALL_LANES = 0xffffffffu;
// Queries of a block.
constexpr u32 QUERIES = 32;
// Keys of a tile.
constexpr u32 KEYS = 64;
// Channels that are staged in shared memory at once.
constexpr u32 CHUNK = 64;
// Stride of rows of staged matrices, in values: whole vectors of four, in other banks than their neighbours.
constexpr u32 QUERY_STRIDE = QUERIES + 4;
constexpr u32 KEY_STRIDE = KEYS + 4;

// Sizes and scalars: `launch::attention` writes the same words.
struct Sizes {
    u32 sequence_length;
    // Per sequence.
    u32 keys;
    u32 heads;
    u32 kv_heads;
    u32 head_dim;
    f32 scale;
    // Of ALiBi; no heads mean no bias.
    u32 alibi_first_head;
    u32 alibi_heads;
    // Place in its sequence of the first key, from which intervals and masks count.
    u32 first_key;
    // Not zero where these are some keys of a sequence: biases then count from the ends of intervals, wherever the keys
    // end.
    u32 some_keys;
    // Of scores, before their biases.
    SoftCap soft_cap;
    // The factors of scores with products in blocks.
    f32 rounding;
    f32 exponent;

    // Query heads that share one key and value head.
    __device__ u32 group() const {
        return heads / kv_heads;
    }
};

// Inputs of both passes in addition to their matrices.
struct Problem : Sizes {
    // `[tokens][2]`: the interval of keys that a query sees.
    const i32* visible;
    // Channel 0 is head 0. Without dropout the threshold is 0 and the factor of what is kept is 1.
    DropoutMask dropout;

    __device__ Problem(const Sizes& sizes, const Matrix<const i32>& visible, const DropoutMask& dropout)
        : Sizes(sizes), visible(visible.start), dropout(dropout) {}
};

// The slope of a head's bias: `device::Alibi::slope`, whose power of two is rounded from f64 once.
__device__ inline f32 slope(const Problem& problem, u32 local_head) {
    const u32 head = problem.alibi_first_head + local_head;
    const u32 power_of_two = 1u << (31 - __clz(problem.alibi_heads));
    const bool regular = head < power_of_two;
    const u32 number = regular ? head + 1 : 2 * (head - power_of_two) + 1;
    const u32 series = regular ? power_of_two : 2 * power_of_two;
    return (f32)math::exp_f64(-8.0 * (f64)number / (f64)series * 0.693147180559945309417232121458176568);
}

// A block of queries of one sequence. Each lane of a warp has the interval of its query; missing queries see nothing.
struct QueryBlock {
    // Token of the first query in the call.
    u32 token;
    u32 queries;
    i32 first;
    i32 last;
    // Where biases count from: the last key of the interval, or of the keys that there are.
    i32 end;
    // From the first key that any query sees to one past the last.
    i32 seen_first;
    i32 seen_last;
};

__device__ inline QueryBlock query_block(const Problem& problem, u32 sequence, u32 position) {
    const u32 lane = threadIdx.x % QUERIES;
    QueryBlock block;
    block.token = sequence * problem.sequence_length + position;
    block.queries = min(QUERIES, problem.sequence_length - position);
    block.first = 0;
    block.last = 0;
    block.end = 0;
    if (lane < block.queries) {
        const i32* interval = problem.visible + 2 * (u64)(block.token + lane);
        const i32 last = interval[1] - (i32)problem.first_key;
        block.last = min(max(last, 0), (i32)problem.keys);
        block.first = min(max(interval[0] - (i32)problem.first_key, 0), block.last);
        block.end = problem.some_keys == 0 ? block.last : last;
    }
    const bool empty = block.first == block.last;
    i32 seen_first = empty ? 0x7fffffff : block.first;
    i32 seen_last = empty ? 0 : block.last;
#pragma unroll
    for (u32 width = QUERIES / 2; width > 0; width /= 2) {
        seen_first = min(seen_first, __shfl_xor_sync(ALL_LANES, seen_first, width));
        seen_last = max(seen_last, __shfl_xor_sync(ALL_LANES, seen_last, width));
    }
    block.seen_first = seen_last == 0 ? 0 : seen_first;
    block.seen_last = seen_last;
    return block;
}

// Keys `first..first + count` of a sequence; none where no query of the block sees any of the tile.
struct Tile {
    u32 first;
    u32 count;
};

// The tile of this number as a block sees it: it starts at a smaller multiple of four if nothing before that is
// visible.
__device__ inline Tile tile_of(const QueryBlock& block, u32 number) {
    const i32 first = max((i32)(number * KEYS), block.seen_first / 4 * 4);
    const i32 end = min(block.seen_last, (i32)((number + 1) * KEYS));
    const bool sees = min(block.last, end) > max(block.first, first);
    const bool visible = __any_sync(ALL_LANES, sees);
    return {(u32)first, visible ? (u32)(end - first) : 0};
}

// Stages rows of a matrix times `factor` as columns: `target[channel][row]`. Missing rows and channels are zero.
template <u32 THREADS, u32 ROWS, u32 STRIDE, typename Element>
__device__ void stage_columns(f32* target, const Element* rows, u64 row_stride, u32 count, u32 channels, f32 factor) {
#pragma unroll 4
    for (u32 index = threadIdx.x; index < ROWS * CHUNK; index += THREADS) {
        const u32 row = index / CHUNK;
        const u32 channel = index % CHUNK;
        const bool exists = row < count && channel < channels;
        target[channel * STRIDE + row] = exists ? widen(rows[row * row_stride + channel]) * factor : 0.0f;
    }
}

// Stages rows as they are: `target[row][channel]`.
template <u32 THREADS, u32 ROWS, typename Element>
__device__ void stage_rows(f32* target, const Element* rows, u64 row_stride, u32 count, u32 channels) {
#pragma unroll 4
    for (u32 index = threadIdx.x; index < ROWS * CHUNK; index += THREADS) {
        const u32 row = index / CHUNK;
        const u32 channel = index % CHUNK;
        const bool exists = row < count && channel < channels;
        target[row * CHUNK + channel] = exists ? widen(rows[row * row_stride + channel]) : 0.0f;
    }
}

template <u32 COUNT>
struct Vector;

template <>
struct Vector<4> {
    __device__ static void load(f32 (&values)[4], const f32* from) {
        const float4 four = *reinterpret_cast<const float4*>(from);
        values[0] = four.x;
        values[1] = four.y;
        values[2] = four.z;
        values[3] = four.w;
    }
};

// `sums[row][column] += left[step][row] * right[step][column]` over ascending steps, fused.
template <u32 LEFT_STRIDE, u32 RIGHT_STRIDE, u32 COLUMNS>
__device__ void multiply(f32 (&sums)[4][COLUMNS], const f32* left, const f32* right, u32 steps) {
#pragma unroll 4
    for (u32 step = 0; step < steps; step++) {
        f32 rows[4];
        f32 columns[COLUMNS];
        Vector<4>::load(rows, left + step * LEFT_STRIDE);
        Vector<COLUMNS>::load(columns, right + step * RIGHT_STRIDE);
#pragma unroll
        for (u32 row = 0; row < 4; row++) {
#pragma unroll
            for (u32 column = 0; column < COLUMNS; column++) {
                sums[row][column] = fmaf(rows[row], columns[column], sums[row][column]);
            }
        }
    }
}

template <u32 COLUMNS>
__device__ void clear(f32 (&sums)[4][COLUMNS]) {
#pragma unroll
    for (u32 row = 0; row < 4; row++) {
#pragma unroll
        for (u32 column = 0; column < COLUMNS; column++) {
            sums[row][column] = 0.0f;
        }
    }
}

// Where chunks of the two factors of scores are staged.
struct Staged {
    // `[channel][key]`
    f32 keys[CHUNK * KEY_STRIDE];
    // `[channel][query]`
    f32 queries[CHUNK * QUERY_STRIDE];
};

// Rows of one head: their start, stride and number.
template <typename Element>
struct Rows {
    const Element* start;
    u64 stride;
    u32 count;
};

// Rows of a matrix from `row` on, and their channels from `column` on.
template <typename Element>
__device__ inline Rows<Element> rows_of(Matrix<const Element> matrix, u64 row, u32 column, u32 count) {
    return {matrix.row(row) + column, matrix.stride, count};
}

// Channels of a chunk that begins at `first`: none past the last channel.
__device__ inline u32 channels_of(u32 first, u32 head_dim) {
    return first < head_dim ? min(CHUNK, head_dim - first) : 0;
}

// Zeroes the sums of all chunks.
template <u32 CHUNKS, u32 COLUMNS>
__device__ inline void clear_all(f32 (&sums)[CHUNKS][4][COLUMNS]) {
#pragma unroll
    for (u32 chunk = 0; chunk < CHUNKS; chunk++) {
        clear(sums[chunk]);
    }
}

// `sums[key][query] = keys . (factor * queries)` over the channels, of the thread's four keys and `COLUMNS` queries.
// All threads must call it; it begins and ends with a barrier's worth of distance from other uses of `staged`.
template <u32 THREADS, u32 COLUMNS, typename Element>
__device__ void scores(f32 (&sums)[4][COLUMNS], Staged& staged, Rows<Element> keys, Rows<Element> queries, f32 factor,
                       u32 head_dim) {
    const u32 key = threadIdx.x % (KEYS / 4) * 4;
    const u32 query = threadIdx.x / (KEYS / 4) * COLUMNS;
    clear(sums);
    for (u32 first = 0; first < head_dim; first += CHUNK) {
        const u32 channels = min(CHUNK, head_dim - first);
        __syncthreads();
        stage_columns<THREADS, KEYS, KEY_STRIDE>(staged.keys, keys.start + first, keys.stride, keys.count, channels,
                                                 1.0f);
        stage_columns<THREADS, QUERIES, QUERY_STRIDE>(staged.queries, queries.start + first, queries.stride,
                                                      queries.count,
                                                      channels, factor);
        __syncthreads();
        multiply<KEY_STRIDE, QUERY_STRIDE>(sums, staged.keys + key, staged.queries + query, channels);
    }
}

// The random words of four keys from `key` on, a multiple of four, for a query.
__device__ inline philox::Words random_words(const Problem& problem, u32 head, u32 token, u32 key) {
    const DropoutMask& dropout = problem.dropout;
    const u32 block = (problem.first_key + key) / 4;
    return dropout.words(dropout.first_token + token, block | (dropout.first_channel + head) << 16);
}

// The bias of a score, which is 0 at the last key that the query sees.
__device__ inline f32 biased(f32 score, u32 key, i32 end, f32 slope) {
    return fmaf((f32)(key + 1) - (f32)end, slope, score);
}

__device__ inline bool is_visible(u32 key, i32 first, i32 last) {
    return (i32)key >= first && (i32)key < last;
}

}  // namespace attention
