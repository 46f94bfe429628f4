// Attention with products in blocks of heads of more than 128 channels: a block of threads per range of 128 channels of
// what it computes. Channels are staged chunk by chunk, and scores are computed for each range.

#include "attention_blocks_forward.cuh"
#include "attention_blocks_of_keys.cuh"
#include "attention_blocks_of_queries.cuh"

using namespace attention_blocks;

namespace wide {

constexpr u32 THREADS = 128;
constexpr u32 WARPS = THREADS / 32;
// Queries of a block of threads where sums run over keys.
constexpr u32 QUERIES = WARPS * ROWS;

// The range of a block of threads, and what it shares with the blocks of other ranges.
struct Range {
    // Of all heads of all sequences.
    u32 head;
    u32 first_channel;
};

__device__ inline Range range_of(const Problem& problem) {
    const u32 ranges = (problem.head_dim + CHUNK - 1) / CHUNK;
    return {blockIdx.x / ranges, blockIdx.x % ranges * CHUNK};
}

// Channels of a chunk.
__device__ inline u32 channels_of(const Problem& problem, u32 first) {
    return min(CHUNK, problem.head_dim - first);
}

// The same rows from another channel on.
template <typename Element>
__device__ inline Rows<Element> from(const Rows<Element>& rows, u32 channel) {
    return {rows.start + channel, rows.stride, rows.count};
}

// Waits for all copies of the block.
__device__ inline void finish_copies() {
    tensor_core::end_copies();
    tensor_core::wait_for_copies<0>();
    __syncthreads();
}

// The span of each warp of a block, and of the lanes' warps together.
struct Spans {
    Span of_lane;
    Span of_block;
};

__device__ inline Spans spans_of(Span (&spans)[WARPS], const Span& span) {
    const u32 lane = threadIdx.x % 32;
    if (lane == 0) {
        spans[threadIdx.x / 32] = span;
    }
    __syncthreads();
    const Span of_lane = lane < WARPS ? spans[lane] : NOTHING;
    return {of_lane, joined<1, 16>(of_lane)};
}

template <typename Element>
__device__ void forward(const Problem& problem, const Forward<Element>& tensors) {
    extern __shared__ __align__(16) u16 shared[];
    __shared__ Span spans[WARPS];
    __shared__ Interval intervals[QUERIES];
    // Chunks of keys or values, and of queries.
    u16* const keys = shared;
    u16* const left = shared + KEYS * PITCH<CHUNK>;
    const Range range = range_of(problem);
    const u32 head = range.head % problem.heads;
    const u32 sequence = range.head / problem.heads;
    const u32 first_query = (gridDim.y - 1 - blockIdx.y) * QUERIES;
    const u32 position = first_query + threadIdx.x / 32 * ROWS + threadIdx.x % 32 / 4;
    const u64 first_token = (u64)sequence * problem.sequence_length;
    const u32 kv_column = head / problem.group() * problem.head_dim;
    const Rows<Element> rows = rows_of(tensors.q, first_token + first_query, head * problem.head_dim,
                                       problem.sequence_length - first_query);
    Queries queries;
    queries.intervals = shared_intervals(intervals, problem, sequence, position);
    queries.token = (u32)first_token + position;
    queries.head = head;
    queries.slope = problem.alibi_heads == 0 ? 0.0f : attention::slope(problem, head);
    const Span span = joined<4, 16>(with(with(NOTHING, queries.intervals[0]), queries.intervals[1]));
    const Spans all = spans_of(spans, span);
    Running running = {{-math::infinity(), -math::infinity()}, {0.0f, 0.0f}};
    f32 outputs[CHUNK / COLUMNS][4] = {};
    u32 number = next_tile<KEYS>(all.of_block.start() / KEYS, all.of_block, all.of_lane);
    for (; (i32)(number * KEYS) < all.of_block.last;
         number = next_tile<KEYS>(number + 1, all.of_block, all.of_lane)) {
        const i32 first = (i32)(number * KEYS);
        const u32 begin = span.begin(first);
        const u32 end = span.end(first, KEYS);
        const u64 key_row = (u64)sequence * problem.keys + number * KEYS;
        const u32 count = min(KEYS, problem.keys - number * KEYS);
        f32 scores[TILE][4] = {};
        for (u32 chunk = 0; chunk < problem.head_dim; chunk += CHUNK) {
            const u32 channels = channels_of(problem, chunk);
            __syncthreads();
            stage<CHUNK, KEYS, THREADS>(keys, rows_of(tensors.k, key_row, kv_column + chunk, count), channels,
                                        tensors.vectors);
            stage<CHUNK, QUERIES, THREADS>(left, from(rows, chunk), channels, tensors.vectors);
            finish_copies();
            const u32 fragments = Fragments<CHUNK>::left(left + threadIdx.x / 32 * ROWS * PITCH<CHUNK>);
            multiply_keys<Element, CHUNK, false>(scores, keys, begin, end, [&](u32(&a)[4], u32 step) {
                tensor_core::load_rows(a, fragments + Fragments<CHUNK>::step(0, step * STEPS));
            });
        }
        __syncthreads();
        stage<CHUNK, KEYS, THREADS>(keys, rows_of(tensors.v, key_row, kv_column + range.first_channel, count),
                                    channels_of(problem, range.first_channel), tensors.vectors);
        finish_copies();
        if (begin < end) {
            f32 shift[2];
            f32 decay[2];
            finish_scores(scores, problem, queries, first, false);
            raise_maxima(shift, decay, running, scores, scale_of(problem));
            decay_outputs(outputs, decay);
            multiply_values<Element, CHUNK, false>(outputs, running, scores, keys, begin, end, shift, problem, queries,
                                                   (u32)first);
        }
    }
    finish<Element, CHUNK>(tensors, problem, running, outputs, queries, position, range.first_channel);
}

// Keys that are staged at once where gradients of queries are summed.
constexpr u32 FEW_KEYS = 64;

template <typename Element>
__device__ void backward_of_queries(const Problem& problem, const Backward<Element>& tensors) {
    extern __shared__ __align__(16) u16 shared[];
    __shared__ Span spans[WARPS];
    __shared__ Interval intervals[QUERIES];
    constexpr u32 PART = FEW_KEYS * PITCH<CHUNK>;
    static_assert(FEW_KEYS == QUERIES, "a part has chunks of queries, of output gradients, of keys or of values");
    u16* const parts[4] = {shared, shared + PART, shared + 2 * PART, shared + 3 * PART};
    const u32 warp = threadIdx.x / 32;
    const Range range = range_of(problem);
    const u32 head = range.head % problem.heads;
    const u32 sequence = range.head / problem.heads;
    const u32 first_query = (gridDim.y - 1 - blockIdx.y) * QUERIES;
    const u32 position = first_query + warp * ROWS + threadIdx.x % 32 / 4;
    const u64 first_row = (u64)sequence * problem.sequence_length + first_query;
    const u32 there = problem.sequence_length - first_query;
    const u32 column = head * problem.head_dim;
    const u32 kv_column = head / problem.group() * problem.head_dim;
    // The blocks of other ranges write where `dout . out` was.
    const of_queries::Queries queries =
        of_queries::queries_of(problem, tensors, shared_intervals(intervals, problem, sequence, position), sequence,
                               position, head, Delta::Computed);
    const Span span = joined<4, 16>(with(with(NOTHING, queries.intervals[0]), queries.intervals[1]));
    const Spans all = spans_of(spans, span);
    f32 outputs[CHUNK / COLUMNS][4] = {};
    u32 number = next_tile<FEW_KEYS>(all.of_block.start() / FEW_KEYS, all.of_block, all.of_lane);
    for (; (i32)(number * FEW_KEYS) < all.of_block.last;
         number = next_tile<FEW_KEYS>(number + 1, all.of_block, all.of_lane)) {
        const i32 first = (i32)(number * FEW_KEYS);
        const u64 key_row = (u64)sequence * problem.keys + number * FEW_KEYS;
        const u32 count = min(FEW_KEYS, problem.keys - number * FEW_KEYS);
        f32 scores[FEW_KEYS / STEPS][2][4] = {};
        f32 gradients[FEW_KEYS / STEPS][2][4] = {};
        for (u32 chunk = 0; chunk < problem.head_dim; chunk += CHUNK) {
            const u32 channels = channels_of(problem, chunk);
            __syncthreads();
            stage<CHUNK, QUERIES, THREADS>(parts[0], rows_of(tensors.q, first_row, column + chunk, there), channels,
                                           tensors.vectors);
            stage<CHUNK, QUERIES, THREADS>(parts[1], rows_of(tensors.dout, first_row, column + chunk, there), channels,
                                           tensors.vectors);
            stage<CHUNK, FEW_KEYS, THREADS>(parts[2], rows_of(tensors.k, key_row, kv_column + chunk, count), channels,
                                            tensors.vectors);
            stage<CHUNK, FEW_KEYS, THREADS>(parts[3], rows_of(tensors.v, key_row, kv_column + chunk, count), channels,
                                            tensors.vectors);
            finish_copies();
#pragma unroll
            for (u32 block = 0; block < FEW_KEYS / STEPS; block++) {
                const u32 row = Fragments<CHUNK>::step(block * STEPS, 0);
                const u16* of_warp = parts[0] + warp * ROWS * PITCH<CHUNK>;
                multiply_rows<Element, CHUNK>(scores[block], Fragments<CHUNK>::left(of_warp),
                                              Fragments<CHUNK>::right(parts[2]) + row);
                multiply_rows<Element, CHUNK>(gradients[block], Fragments<CHUNK>::left(of_warp + PART),
                                              Fragments<CHUNK>::right(parts[3]) + row);
            }
        }
        __syncthreads();
        stage<CHUNK, FEW_KEYS, THREADS>(parts[2], rows_of(tensors.k, key_row, kv_column + range.first_channel, count),
                                        channels_of(problem, range.first_channel), tensors.vectors);
        finish_copies();
#pragma unroll
        for (u32 block = 0; block < FEW_KEYS / STEPS; block++) {
            u32 a[4];
            of_queries::score_gradients<Element>(a, scores[block], gradients[block], problem, queries,
                                                 (u32)first + block * STEPS, false);
            add_product<Element, CHUNK>(outputs, a,
                                        Fragments<CHUNK>::right_columns(parts[2]) +
                                            Fragments<CHUNK>::step(block * STEPS, 0));
        }
    }
    of_queries::store<Element, CHUNK>(tensors, problem, queries, outputs, position, range.first_channel);
}

// Queries that are staged at once where gradients of keys are summed.
constexpr u32 FEW_QUERIES = 32;

template <typename Element>
__device__ void backward_of_keys(const Problem& problem, const Backward<Element>& tensors, const Matrix<Element>& dk,
                                 const Matrix<Element>& dv) {
    extern __shared__ __align__(16) u16 shared[];
    __shared__ of_keys::QueryRows<FEW_QUERIES> rows;
    __shared__ u32 found[of_keys::WARPS];
    constexpr u32 KEY_PART = of_keys::KEYS * PITCH<CHUNK>;
    constexpr u32 QUERY_PART = FEW_QUERIES * PITCH<CHUNK>;
    u16* const keys = shared;
    u16* const queries = shared + 2 * KEY_PART;
    const u32 warp = threadIdx.x / 32;
    const Range range = range_of(problem);
    const u32 kv_head = range.head % problem.kv_heads;
    const u32 sequence = range.head / problem.kv_heads;
    const u32 first_key = blockIdx.y * of_keys::KEYS;
    const u64 key_row = (u64)sequence * problem.keys + first_key;
    const u32 count = min(of_keys::KEYS, problem.keys - first_key);
    const u32 kv_column = kv_head * problem.head_dim;
    const u32 group = problem.group();
    f32 dk_sums[CHUNK / COLUMNS][4] = {};
    f32 dv_sums[CHUNK / COLUMNS][4] = {};
    of_keys::QueryBlocks<FEW_QUERIES> blocks = of_keys::first_blocks<FEW_QUERIES>(kv_head * group, group);
    while (blocks.next(found, problem, sequence, (i32)first_key)) {
        const u64 row = (u64)sequence * problem.sequence_length + blocks.position;
        const u32 there = problem.sequence_length - blocks.position;
        const u32 column = blocks.head * problem.head_dim;
        const f32 slope = problem.alibi_heads == 0 ? 0.0f : attention::slope(problem, blocks.head);
        f32 scores[FEW_QUERIES / STEPS][2][4] = {};
        f32 gradients[FEW_QUERIES / STEPS][2][4] = {};
        auto stage_queries = [&](u32 first) {
            stage<CHUNK, FEW_QUERIES, THREADS>(queries, rows_of(tensors.q, row, column + first, there),
                                                    channels_of(problem, first), tensors.vectors);
            stage<CHUNK, FEW_QUERIES, THREADS>(queries + QUERY_PART,
                                                    rows_of(tensors.dout, row, column + first, there),
                                                    channels_of(problem, first), tensors.vectors);
        };
        // Of sixteen queries.
        const auto multiply = [&](f32(&of_scores)[2][4], f32(&of_gradients)[2][4], u32 block) {
            const u32 step = Fragments<CHUNK>::step(block * STEPS, 0);
            const u16* of_warp = keys + warp * ROWS * PITCH<CHUNK>;
            multiply_rows<Element, CHUNK>(of_scores, Fragments<CHUNK>::left(of_warp),
                                          Fragments<CHUNK>::right(queries) + step);
            multiply_rows<Element, CHUNK>(of_gradients, Fragments<CHUNK>::left(of_warp + KEY_PART),
                                          Fragments<CHUNK>::right(queries + QUERY_PART) + step);
        };
        const auto add = [&](f32(&of_scores)[2][4], f32(&of_gradients)[2][4], u32 block) {
            const u32 step = Fragments<CHUNK>::step(block * STEPS, 0);
            u32 probabilities[4];
            u32 left[4];
            of_keys::score_gradients<Element>(probabilities, left, of_scores, of_gradients, problem, rows,
                                              block * STEPS, (u32)row, blocks.head, slope, first_key + warp * ROWS,
                                              false);
            add_product<Element, CHUNK>(dv_sums, probabilities,
                                        Fragments<CHUNK>::right_columns(queries + QUERY_PART) + step);
            add_product<Element, CHUNK>(dk_sums, left, Fragments<CHUNK>::right_columns(queries) + step);
        };
        static_assert(FEW_QUERIES == 2 * STEPS, "two blocks of sixteen");
        for (u32 chunk = 0; chunk < problem.head_dim; chunk += CHUNK) {
            const u32 channels = channels_of(problem, chunk);
            __syncthreads();
            stage<CHUNK, of_keys::KEYS, THREADS>(keys, rows_of(tensors.k, key_row, kv_column + chunk, count), channels,
                                                 tensors.vectors);
            stage<CHUNK, of_keys::KEYS, THREADS>(keys + KEY_PART, rows_of(tensors.v, key_row, kv_column + chunk, count),
                                                 channels, tensors.vectors);
            stage_queries(chunk);
            if (chunk == 0) {
                of_keys::write_row(rows, problem, of_keys::read_row(problem, tensors, sequence, blocks));
            }
            finish_copies();
            multiply(scores[0], gradients[0], 0);
            multiply(scores[1], gradients[1], 1);
        }
        __syncthreads();
        stage_queries(range.first_channel);
        finish_copies();
        add(scores[0], gradients[0], 0);
        add(scores[1], gradients[1], 1);
    }
    const u32 key = warp * ROWS + threadIdx.x % 32 / 4;
    const u32 stored = key < count ? count - key : 0;
    of_keys::store<Element, CHUNK>(dk, dk_sums, key_row + key, stored, kv_column, range.first_channel,
                                   problem.head_dim, tensors.vectors);
    of_keys::store<Element, CHUNK>(dv, dv_sums, key_row + key, stored, kv_column, range.first_channel,
                                   problem.head_dim, tensors.vectors);
}

}  // namespace wide

#define FORWARD(NAME, ELEMENT)                                                                                         \
    extern "C" __global__ void __launch_bounds__(wide::THREADS)                                                        \
    NAME(Sizes sizes, Matrix<const i32> visible, DropoutMask dropout, Matrix<const ELEMENT> q, Matrix<const ELEMENT> k, \
         Matrix<const ELEMENT> v, Matrix<ELEMENT> out, Matrix<f32> log_sum_exp, u32 vectors) {                         \
        wide::forward<ELEMENT>({sizes, visible, dropout}, {q, k, v, out, log_sum_exp, vectors != 0});                  \
    }
FORWARD(attention_blocks_wide_bf16, Bf16)
FORWARD(attention_blocks_wide_f16, F16)

#define BACKWARD_PARAMETERS(ELEMENT)                                                                                   \
    Sizes sizes, Matrix<const i32> visible, DropoutMask dropout, Matrix<const ELEMENT> q, Matrix<const ELEMENT> k,     \
        Matrix<const ELEMENT> v, Matrix<const ELEMENT> out, Matrix<const f32> log_sum_exp,                             \
        Matrix<const ELEMENT> dout, Matrix<ELEMENT> dq, u32 vectors

#define QUERIES_KERNEL(NAME, ELEMENT)                                                                                  \
    extern "C" __global__ void __launch_bounds__(wide::THREADS) NAME(BACKWARD_PARAMETERS(ELEMENT)) {                   \
        wide::backward_of_queries<ELEMENT>({sizes, visible, dropout},                                                  \
                                           {q, k, v, out, log_sum_exp, dout, dq, vectors != 0});                       \
    }
QUERIES_KERNEL(attention_blocks_queries_wide_bf16, Bf16)
QUERIES_KERNEL(attention_blocks_queries_wide_f16, F16)

#define KEYS_KERNEL(NAME, ELEMENT)                                                                                     \
    extern "C" __global__ void __launch_bounds__(wide::THREADS)                                                        \
    NAME(BACKWARD_PARAMETERS(ELEMENT), Matrix<ELEMENT> dk, Matrix<ELEMENT> dv) {                                       \
        wide::backward_of_keys<ELEMENT>({sizes, visible, dropout},                                                     \
                                        {q, k, v, out, log_sum_exp, dout, dq, vectors != 0}, dk, dv);                  \
    }
KEYS_KERNEL(attention_blocks_keys_wide_bf16, Bf16)
KEYS_KERNEL(attention_blocks_keys_wide_f16, F16)
