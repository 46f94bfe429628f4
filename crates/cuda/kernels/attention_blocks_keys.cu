// Gradients of attention's keys and values with products in blocks: a block of threads per tile of keys and head of
// keys. A warp has sixteen keys, whose gradients are sums over the queries of one head after the other, ascending.

#include "attention_blocks_gradient.cuh"

using namespace attention_blocks;

constexpr u32 THREADS = 128;
constexpr u32 WARPS = THREADS / 32;
// Keys of a block of threads.
constexpr u32 KEYS = WARPS * ROWS;
// Queries that are staged at once.
constexpr u32 QUERIES = 32;
// Blocks of queries in which some are looked for at once that see a tile of keys.
constexpr u32 WINDOW = 32;

static_assert(WINDOW % WARPS == 0 && QUERIES == 32, "a warp looks at one block after the other, a lane at a query");

// What the scores of a block of queries need.
struct QueryRows {
    f32 log_sum_exp[QUERIES];
    f32 delta[QUERIES];
    i32 first[QUERIES];
    i32 last[QUERIES];
    i32 end[QUERIES];
};

// The blocks of queries that see some key of a tile, of one head after the other.
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
        u32 mine = 0;
#pragma unroll
        for (u32 index = 0; index < WINDOW / WARPS; index++) {
            const Interval interval = interval_of(problem, sequence, window + (first + index) * QUERIES + lane);
            const bool sees = min(interval.last, first_key + (i32)KEYS) > max(interval.first, first_key);
            mine |= __any_sync(ALL_LANES, sees) ? 1u << (first + index) : 0;
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

// What a block of queries needs besides its channels, by the first warp.
template <typename Element>
__device__ void stage_rows(QueryRows& rows, const Problem& problem, const Backward<Element>& tensors, u32 sequence,
                           const QueryBlocks& blocks) {
    if (threadIdx.x < QUERIES) {
        const u32 position = blocks.position + threadIdx.x;
        const Interval interval = interval_of(problem, sequence, position);
        QueryGradient gradient = {0.0f, 0.0f};
        if (position < problem.sequence_length) {
            const u64 token = (u64)sequence * problem.sequence_length + position;
            gradient = {tensors.log_sum_exp.row(token)[blocks.head],
                        stored_delta(tensors, token, blocks.head * problem.head_dim, problem.head_dim)};
        }
        rows.log_sum_exp[threadIdx.x] = gradient.log_sum_exp;
        rows.delta[threadIdx.x] = gradient.delta;
        rows.first[threadIdx.x] = interval.first;
        rows.last[threadIdx.x] = interval.last;
        rows.end[threadIdx.x] = interval.end;
    }
}

// Probabilities after dropout and gradients of scores of sixteen keys and sixteen queries, as left factors.
template <typename Element>
__device__ inline void score_gradients(u32 (&probabilities)[4], u32 (&left)[4], f32 (&scores)[2][4],
                                       f32 (&gradients)[2][4], const Problem& problem, const QueryRows& rows,
                                       u32 first_query, u32 token, u32 head, f32 slope, u32 first_key, bool sees_all) {
    const u32 key = first_key + threadIdx.x % 32 / 4;
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
        u32 words[4];
        if (problem.dropout.threshold != 0) {
            words_of_keys(words, problem, head, token + first_query + half * COLUMNS, first_key);
        }
#pragma unroll
        for (u32 index = 0; index < 4; index++) {
            const u32 query = first_query + half * COLUMNS + threadIdx.x % 4 * 2 + index % 2;
            const u32 place = key + index / 2 * 8;
            f32& score = scores[half][index];
            score *= problem.scale;
            score = problem.alibi_heads == 0 ? score : attention::biased(score, place, rows.end[query], slope);
            const f32 factor = problem.dropout.threshold == 0 ? 1.0f : problem.dropout.factor(words[index]);
            const bool visible = sees_all || attention::is_visible(place, rows.first[query], rows.last[query]);
            score_gradient(score, gradients[half][index], problem, {rows.log_sum_exp[query], rows.delta[query]}, factor,
                           visible);
        }
        probabilities[2 * half] = tensor_core::packed<Element>(scores[half][0], scores[half][1]);
        probabilities[2 * half + 1] = tensor_core::packed<Element>(scores[half][2], scores[half][3]);
        left[2 * half] = tensor_core::packed<Element>(gradients[half][0], gradients[half][1]);
        left[2 * half + 1] = tensor_core::packed<Element>(gradients[half][2], gradients[half][3]);
    }
}

// `sums += left . rows` of sixteen rows, over all channels.
template <typename Element, u32 CHANNELS>
__device__ inline void add_product(f32 (&sums)[CHANNELS / COLUMNS][4], const u32 (&left)[4], u32 rows) {
#pragma unroll
    for (u32 channel = 0; channel < CHANNELS / COLUMNS; channel += 2) {
        u32 b[4];
        tensor_core::load_columns(b, rows + Fragments<CHANNELS>::step(0, channel * COLUMNS));
        tensor_core::multiply<Element>(sums[channel], left, b[0], b[1]);
        tensor_core::multiply<Element>(sums[channel + 1], left, b[2], b[3]);
    }
}

// `sums += left . right` over the channels, of sixteen rows each.
template <typename Element, u32 CHANNELS>
__device__ inline void multiply_rows(f32 (&sums)[2][4], u32 left, u32 right) {
#pragma unroll
    for (u32 step = 0; step < CHANNELS / STEPS; step++) {
        u32 a[4];
        u32 b[4];
        tensor_core::load_rows(a, left + Fragments<CHANNELS>::step(0, step * STEPS));
        tensor_core::load_rows(b, right + Fragments<CHANNELS>::step(0, step * STEPS));
        tensor_core::multiply<Element>(sums[0], a, b[0], b[1]);
        tensor_core::multiply<Element>(sums[1], a, b[2], b[3]);
    }
}

template <typename Element>
__device__ void store(const Matrix<Element>& matrix, const f32 (&sums)[4], u64 row, u32 rows, u32 column, u32 channel,
                      u32 head_dim, bool vectors) {
#pragma unroll
    for (u32 index = 0; index < 2; index++) {
        if (8 * index < rows) {
            store_pair(matrix.row(row + 8 * index) + column, channel, head_dim, sums[2 * index], sums[2 * index + 1],
                       vectors);
        }
    }
}

template <typename Element, u32 CHANNELS>
__device__ void backward(const Problem& problem, const Backward<Element>& tensors, const Matrix<Element>& dk,
                         const Matrix<Element>& dv) {
    extern __shared__ __align__(16) u16 shared[];
    __shared__ QueryRows rows[2];
    __shared__ u32 found[WARPS];
    constexpr u32 KEY_PART = KEYS * PITCH<CHANNELS>;
    constexpr u32 QUERY_PART = QUERIES * PITCH<CHANNELS>;
    u16* const keys = shared;
    u16* const values = shared + KEY_PART;
    // Queries and output gradients of two blocks in turns.
    u16* const queries = shared + 2 * KEY_PART;
    const u32 warp = threadIdx.x / 32;
    const u32 lane = threadIdx.x % 32;
    const u32 head_dim = problem.head_dim;
    const u32 kv_head = blockIdx.x % problem.kv_heads;
    const u32 sequence = blockIdx.x / problem.kv_heads;
    // The first keys, which most queries see under a causal mask, begin first.
    const u32 first_key = blockIdx.y * KEYS;
    const u32 warp_key = first_key + warp * ROWS;
    const u64 key_row = (u64)sequence * problem.keys + first_key;
    const u32 count = min(KEYS, problem.keys - first_key);
    const u32 kv_column = kv_head * head_dim;
    const u32 first_token = sequence * problem.sequence_length;
    const u32 group = problem.group();

    stage<CHANNELS, KEYS, THREADS>(keys, rows_of(tensors.k, key_row, kv_column, count), head_dim, tensors.vectors);
    stage<CHANNELS, KEYS, THREADS>(values, rows_of(tensors.v, key_row, kv_column, count), head_dim, tensors.vectors);
    auto start = [&](const QueryBlocks& blocks, u32 place) {
        const u64 row = (u64)first_token + blocks.position;
        const u32 there = problem.sequence_length - blocks.position;
        const u32 column = blocks.head * head_dim;
        u16* const to = queries + 2 * place * QUERY_PART;
        stage<CHANNELS, QUERIES, THREADS>(to, rows_of(tensors.q, row, column, there), head_dim, tensors.vectors);
        stage<CHANNELS, QUERIES, THREADS>(to + QUERY_PART, rows_of(tensors.dout, row, column, there), head_dim,
                                          tensors.vectors);
        tensor_core::end_copies();
        stage_rows(rows[place], problem, tensors, sequence, blocks);
    };

    f32 dk_sums[CHANNELS / COLUMNS][4] = {};
    f32 dv_sums[CHANNELS / COLUMNS][4] = {};
    QueryBlocks blocks = {kv_head * group, (kv_head + 1) * group, 0u - WINDOW * QUERIES, 0, 0};
    bool is_there = blocks.next(found, problem, sequence, (i32)first_key);
    u32 place = 0;
    if (is_there) {
        start(blocks, place);
    }
    const u32 left_keys = Fragments<CHANNELS>::left(keys + warp * ROWS * PITCH<CHANNELS>);
    const u32 left_values = Fragments<CHANNELS>::left(values + warp * ROWS * PITCH<CHANNELS>);
    while (is_there) {
        const QueryBlocks current = blocks;
        is_there = blocks.next(found, problem, sequence, (i32)first_key);
        tensor_core::wait_for_copies<0>();
        __syncthreads();
        if (is_there) {
            start(blocks, place ^ 1);
        }
        const QueryRows& block_rows = rows[place];
        const u16* from = queries + 2 * place * QUERY_PART;
        const i32 first = block_rows.first[lane];
        const i32 last = block_rows.last[lane];
        const u32 seeing = __ballot_sync(ALL_LANES, min(last, (i32)(warp_key + ROWS)) > max(first, (i32)warp_key));
        const bool sees_all = __all_sync(ALL_LANES, first <= (i32)warp_key && last >= (i32)(warp_key + ROWS));
        const f32 slope = problem.alibi_heads == 0 ? 0.0f : attention::slope(problem, current.head);
#pragma unroll
        for (u32 block = 0; block < QUERIES / STEPS; block++) {
            if ((seeing >> block * STEPS & 0xffff) == 0) {
                continue;
            }
            const u16* of_queries = from + block * STEPS * PITCH<CHANNELS>;
            const u16* of_douts = of_queries + QUERY_PART;
            f32 scores[2][4] = {};
            f32 gradients[2][4] = {};
            u32 probabilities[4];
            u32 left[4];
            multiply_rows<Element, CHANNELS>(scores, left_keys, Fragments<CHANNELS>::right(of_queries));
            multiply_rows<Element, CHANNELS>(gradients, left_values, Fragments<CHANNELS>::right(of_douts));
            score_gradients<Element>(probabilities, left, scores, gradients, problem, block_rows, block * STEPS,
                                     first_token + current.position, current.head, slope, warp_key, sees_all);
            add_product<Element, CHANNELS>(dv_sums, probabilities, Fragments<CHANNELS>::right_columns(of_douts));
            add_product<Element, CHANNELS>(dk_sums, left, Fragments<CHANNELS>::right_columns(of_queries));
        }
        place ^= 1;
    }
    tensor_core::wait_for_copies<0>();
    const u32 key = warp * ROWS + lane / 4;
    const u32 stored = key < count ? count - key : 0;
#pragma unroll
    for (u32 channel = 0; channel < CHANNELS / COLUMNS; channel++) {
        const u32 first = channel * COLUMNS + lane % 4 * 2;
        store(dk, dk_sums[channel], key_row + key, stored, kv_column, first, head_dim, tensors.vectors);
        store(dv, dv_sums[channel], key_row + key, stored, kv_column, first, head_dim, tensors.vectors);
    }
}

#define KEYS_KERNEL(NAME, ELEMENT, CHANNELS)                                                                           \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                              \
    NAME(Sizes sizes, Matrix<const i32> visible, DropoutMask dropout, Matrix<const ELEMENT> q, Matrix<const ELEMENT> k, \
         Matrix<const ELEMENT> v, Matrix<const ELEMENT> out, Matrix<const f32> log_sum_exp,                            \
         Matrix<const ELEMENT> dout, Matrix<ELEMENT> dq, u32 vectors, Matrix<ELEMENT> dk, Matrix<ELEMENT> dv) {        \
        backward<ELEMENT, CHANNELS>({sizes, visible, dropout}, {q, k, v, out, log_sum_exp, dout, dq, vectors != 0},    \
                                    dk, dv);                                                                           \
    }
KEYS_KERNEL(attention_blocks_keys_64_bf16, Bf16, 64)
KEYS_KERNEL(attention_blocks_keys_64_f16, F16, 64)
KEYS_KERNEL(attention_blocks_keys_128_bf16, Bf16, 128)
KEYS_KERNEL(attention_blocks_keys_128_f16, F16, 128)
