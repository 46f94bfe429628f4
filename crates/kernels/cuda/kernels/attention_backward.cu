// The backward pass of attention, without atomic sums: one kernel has a block of threads per block of queries and sums
// over its keys, the other one per tile of keys and sums over the blocks of queries of one head after the other. Both
// compute the probabilities again.

#include "attention.cuh"

namespace attention {

template <>
struct Vector<2> {
    __device__ static void load(f32 (&values)[2], const f32* from) {
        const float2 two = *reinterpret_cast<const float2*>(from);
        values[0] = two.x;
        values[1] = two.y;
    }
};

// The log-sum-exp of a query, and `dout . out`.
struct QueryGradient {
    f32 log_sum_exp;
    f32 delta;
};

template <typename Element>
__device__ f32 dot(const Element* a, const Element* b, u32 head_dim) {
    f32 sum = 0.0f;
#pragma unroll 4
    for (u32 channel = 0; channel < head_dim; channel++) {
        sum = fmaf(widen(a[channel]), widen(b[channel]), sum);
    }
    return sum;
}

// Turns scores into probabilities after dropout, and gradients of these into `scale` times the gradients of the scores,
// of four keys from `first_key` on and `COLUMNS` queries from `query` of the block on.
template <u32 COLUMNS>
__device__ void softmax_backward(f32 (&scores)[4][COLUMNS], f32 (&gradients)[4][COLUMNS], const Problem& problem,
                                 const QueryBlock& block, const QueryGradient* queries, u32 head, f32 slope,
                                 u32 first_key, u32 query) {
    const DropoutMask& dropout = problem.dropout;
#pragma unroll
    for (u32 column = 0; column < COLUMNS; column++) {
        const i32 first = __shfl_sync(ALL_LANES, block.first, query + column);
        const i32 last = __shfl_sync(ALL_LANES, block.last, query + column);
        const i32 bias_end = __shfl_sync(ALL_LANES, block.end, query + column);
        const QueryGradient of_query = queries[query + column];
        f32 factors[4] = {1.0f, 1.0f, 1.0f, 1.0f};
        if (dropout.threshold != 0) {
            const philox::Words words = random_words(problem, head, block.token + query + column, first_key);
#pragma unroll
            for (u32 row = 0; row < 4; row++) {
                factors[row] = dropout.factor(words.word[row]);
            }
        }
#pragma unroll
        for (u32 row = 0; row < 4; row++) {
            const u32 key = first_key + row;
            f32 score = scores[row][column];
            f32 cap_slope = 1.0f;
            if (problem.soft_cap.is_some()) {
                score = problem.soft_cap.capped(score);
                cap_slope = problem.soft_cap.slope(score);
            }
            score = problem.alibi_heads == 0 ? score : biased(score, key, bias_end, slope);
            f32 probability = math::exp(score - of_query.log_sum_exp);
            probability = is_visible(key, first, last) ? probability : 0.0f;
            const f32 gradient = gradients[row][column] * factors[row];
            scores[row][column] = probability * factors[row];
            gradients[row][column] = probability * (gradient - of_query.delta) * cap_slope * problem.scale;
        }
    }
}

}  // namespace attention

using namespace attention;

constexpr u32 CHANNEL_GROUPS = CHUNK / 4;
constexpr u32 KEY_GROUPS = KEYS / 4;

template <typename Element>
struct Backward {
    Matrix<const Element> q;
    Matrix<const Element> k;
    Matrix<const Element> v;
    Matrix<const Element> out;
    Matrix<const f32> log_sum_exp;
    Matrix<const Element> dout;
};

// Inputs of the gradients of one query's scores; zeros for a missing query.
template <typename Element>
__device__ QueryGradient query_gradient(const Problem& problem, const Backward<Element>& tensors, u32 sequence,
                                        u32 position, u32 head) {
    if (position >= problem.sequence_length) {
        return {0.0f, 0.0f};
    }
    const u64 token = (u64)sequence * problem.sequence_length + position;
    const u32 column = head * problem.head_dim;
    return {tensors.log_sum_exp.row(token)[head],
            dot(tensors.dout.row(token) + column, tensors.out.row(token) + column, problem.head_dim)};
}

namespace of_queries {

constexpr u32 THREADS = 128;

static_assert(THREADS == KEY_GROUPS * (QUERIES / 4) && THREADS == CHANNEL_GROUPS * (QUERIES / 4), "four by four each");

struct Shared {
    union {
        Staged columns;
        f32 keys[KEYS * CHUNK];
    } staged;
    // `[key][query]`: gradients of scores.
    f32 gradients[KEYS * QUERY_STRIDE];
    QueryGradient queries[QUERIES];
};

// The gradients of a tile's scores, into `gradients`.
template <typename Element>
__device__ void score_gradients(Shared& shared, const Problem& problem, const QueryBlock& block, const Tile& tile,
                                u32 head, f32 slope, Rows<Element> keys, Rows<Element> values, Rows<Element> queries,
                                Rows<Element> douts) {
    const u32 key = threadIdx.x % KEY_GROUPS * 4;
    const u32 query = threadIdx.x / KEY_GROUPS * 4;
    f32 sums[4][4];
    f32 gradients[4][4];
    scores<THREADS>(sums, shared.staged.columns, keys, queries, problem.scale, problem.head_dim);
    scores<THREADS>(gradients, shared.staged.columns, values, douts, 1.0f, problem.head_dim);
    softmax_backward(sums, gradients, problem, block, shared.queries, head, slope, tile.first + key, query);
#pragma unroll
    for (u32 row = 0; row < 4; row++) {
        const float4 four = {gradients[row][0], gradients[row][1], gradients[row][2], gradients[row][3]};
        *reinterpret_cast<float4*>(shared.gradients + (key + row) * QUERY_STRIDE + query) = four;
    }
}

template <typename Element, u32 CHUNKS>
__device__ void backward(const Problem& problem, const Backward<Element>& tensors, const Matrix<Element>& dq) {
    __shared__ Shared shared;
    const u32 head_dim = problem.head_dim;
    const u32 ranges = (head_dim + CHUNKS * CHUNK - 1) / (CHUNKS * CHUNK);
    const u32 head = blockIdx.y / ranges;
    const u32 first_channel = blockIdx.y % ranges * (CHUNKS * CHUNK);
    const u32 sequence = blockIdx.z;
    // The last queries, which see most under a causal mask, begin first.
    const u32 position = (gridDim.x - 1 - blockIdx.x) * QUERIES;
    const QueryBlock block = query_block(problem, sequence, position);
    const u32 column = head * head_dim;
    const u32 kv_column = head / problem.group() * head_dim;
    const f32 bias_slope = problem.alibi_heads == 0 ? 0.0f : slope(problem, head);
    const Rows<Element> queries = rows_of(tensors.q, block.token, column, block.queries);
    const Rows<Element> douts = rows_of(tensors.dout, block.token, column, block.queries);
    if (threadIdx.x < QUERIES) {
        shared.queries[threadIdx.x] = query_gradient(problem, tensors, sequence, position + threadIdx.x, head);
    }

    const u32 query = threadIdx.x / CHANNEL_GROUPS * 4;
    const u32 channel = threadIdx.x % CHANNEL_GROUPS * 4;
    f32 outputs[CHUNKS][4][4];
    clear_all(outputs);
    bool is_first = true;
    for (u32 number = block.seen_first / KEYS; number * KEYS < block.seen_last; number++) {
        const Tile tile = tile_of(block, number);
        if (tile.count == 0) {
            continue;
        }
        const u64 key_row = (u64)sequence * problem.keys + tile.first;
        const Rows<Element> keys = rows_of(tensors.k, key_row, kv_column, tile.count);
        const Rows<Element> values = rows_of(tensors.v, key_row, kv_column, tile.count);
        score_gradients(shared, problem, block, tile, head, bias_slope, keys, values, queries, douts);
#pragma unroll
        for (u32 chunk = 0; chunk < CHUNKS; chunk++) {
            const u32 first = first_channel + chunk * CHUNK;
            const u32 channels = channels_of(first, head_dim);
            __syncthreads();
            stage_rows<THREADS, KEYS>(shared.staged.keys, keys.start + first, keys.stride, keys.count, channels);
            __syncthreads();
            f32 sums[4][4];
            clear(sums);
            multiply<QUERY_STRIDE, CHUNK>(sums, shared.gradients + query, shared.staged.keys + channel, tile.count);
#pragma unroll
            for (u32 row = 0; row < 4; row++) {
#pragma unroll
                for (u32 place = 0; place < 4; place++) {
                    const f32 earlier = outputs[chunk][row][place];
                    outputs[chunk][row][place] = is_first ? sums[row][place] : earlier + sums[row][place];
                }
            }
        }
        is_first = false;
    }

#pragma unroll
    for (u32 row = 0; row < 4; row++) {
        if (query + row >= block.queries) {
            break;
        }
        Element* out = dq.row(block.token + query + row) + column;
#pragma unroll
        for (u32 chunk = 0; chunk < CHUNKS; chunk++) {
#pragma unroll
            for (u32 index = 0; index < 4; index++) {
                const u32 place = first_channel + chunk * CHUNK + channel + index;
                if (place < head_dim) {
                    out[place] = narrow<Element>(outputs[chunk][row][index]);
                }
            }
        }
    }
}

}  // namespace of_queries

namespace of_keys {

constexpr u32 THREADS = 256;
// Queries per thread where scores are computed.
constexpr u32 COLUMNS = 2;
// Blocks of queries whose rows are prepared at once, by a warp each.
constexpr u32 PREPARED = THREADS / QUERIES;

static_assert(THREADS == KEY_GROUPS * (QUERIES / COLUMNS), "four keys and two queries each");
static_assert(THREADS == KEY_GROUPS * CHANNEL_GROUPS, "four keys and four channels each");

struct Shared {
    union {
        Staged columns;
        // `[query][channel]`: a chunk of output gradients, and of queries.
        struct {
            f32 douts[QUERIES * CHUNK];
            f32 queries[QUERIES * CHUNK];
        } rows;
    } staged;
    // `[query][key]`
    f32 probabilities[QUERIES * KEY_STRIDE];
    f32 gradients[QUERIES * KEY_STRIDE];
    QueryGradient queries[PREPARED][QUERIES];
};

// The probabilities of a block and a tile after dropout and the gradients of their scores, into shared memory.
template <typename Element>
__device__ void score_gradients(Shared& shared, const QueryGradient* of_block, const Problem& problem,
                                const QueryBlock& block, u32 first_key, u32 head, f32 slope, Rows<Element> keys,
                                Rows<Element> values, Rows<Element> queries, Rows<Element> douts) {
    const u32 key = threadIdx.x % KEY_GROUPS * 4;
    const u32 query = threadIdx.x / KEY_GROUPS * COLUMNS;
    f32 sums[4][COLUMNS];
    f32 gradients[4][COLUMNS];
    scores<THREADS>(sums, shared.staged.columns, keys, queries, problem.scale, problem.head_dim);
    scores<THREADS>(gradients, shared.staged.columns, values, douts, 1.0f, problem.head_dim);
    softmax_backward(sums, gradients, problem, block, of_block, head, slope, first_key + key, query);
#pragma unroll
    for (u32 column = 0; column < COLUMNS; column++) {
        const u32 place = (query + column) * KEY_STRIDE + key;
        *reinterpret_cast<float4*>(shared.probabilities + place) = {sums[0][column], sums[1][column], sums[2][column],
                                                                    sums[3][column]};
        *reinterpret_cast<float4*>(shared.gradients + place) = {gradients[0][column], gradients[1][column],
                                                                gradients[2][column], gradients[3][column]};
    }
}

// Adds the product of a block's probabilities and output gradients, or gradients of scores and queries, to the sums of
// the keys in the tile.
__device__ inline void add_product(f32 (&totals)[4][4], const f32* left, const f32* right, u32 queries, u32 first_key,
                                   const Tile& tile) {
    f32 sums[4][4];
    clear(sums);
    multiply<KEY_STRIDE, CHUNK>(sums, left, right, queries);
#pragma unroll
    for (u32 row = 0; row < 4; row++) {
        const bool is_in = first_key + row >= tile.first && first_key + row < tile.first + tile.count;
#pragma unroll
        for (u32 column = 0; column < 4; column++) {
            totals[row][column] = is_in ? totals[row][column] + sums[row][column] : totals[row][column];
        }
    }
}

template <typename Element>
__device__ void store(const Matrix<Element>& matrix, const f32 (&totals)[4][4], u64 row, u32 rows, u32 column,
                      u32 channel, u32 head_dim) {
#pragma unroll
    for (u32 index = 0; index < 4; index++) {
        if (index >= rows) {
            break;
        }
        Element* out = matrix.row(row + index) + column;
#pragma unroll
        for (u32 place = 0; place < 4; place++) {
            if (channel + place < head_dim) {
                out[channel + place] = narrow<Element>(totals[index][place]);
            }
        }
    }
}

template <typename Element, u32 CHUNKS>
__device__ void backward(const Problem& problem, const Backward<Element>& tensors, const Matrix<Element>& dk,
                         const Matrix<Element>& dv) {
    __shared__ Shared shared;
    const u32 head_dim = problem.head_dim;
    const u32 length = problem.sequence_length;
    const u32 ranges = (head_dim + CHUNKS * CHUNK - 1) / (CHUNKS * CHUNK);
    const u32 kv_head = blockIdx.y / ranges;
    const u32 first_channel = blockIdx.y % ranges * (CHUNKS * CHUNK);
    const u32 sequence = blockIdx.z;
    const u32 group = problem.group();
    const u32 first_key = blockIdx.x * KEYS;
    const u64 key_row = (u64)sequence * problem.keys + first_key;
    const u32 count = min(KEYS, problem.keys - first_key);
    const u32 kv_column = kv_head * head_dim;
    const Rows<Element> keys = rows_of(tensors.k, key_row, kv_column, count);
    const Rows<Element> values = rows_of(tensors.v, key_row, kv_column, count);

    // Of the products over queries: four keys and four channels of a thread.
    const u32 key = threadIdx.x / CHANNEL_GROUPS * 4;
    const u32 channel = threadIdx.x % CHANNEL_GROUPS * 4;
    f32 dk_sums[CHUNKS][4][4];
    f32 dv_sums[CHUNKS][4][4];
    clear_all(dk_sums);
    clear_all(dv_sums);
    for (u32 head = kv_head * group; head < (kv_head + 1) * group; head++) {
        const u32 column = head * head_dim;
        const f32 bias_slope = problem.alibi_heads == 0 ? 0.0f : slope(problem, head);
        for (u32 number = 0; number * QUERIES < length; number++) {
            const u32 prepared = number % PREPARED;
            if (prepared == 0) {
                // Earlier values were read before the last barrier.
                const u32 position = number * QUERIES + threadIdx.x;
                shared.queries[threadIdx.x / QUERIES][threadIdx.x % QUERIES] =
                    query_gradient(problem, tensors, sequence, position, head);
            }
            const QueryBlock block = query_block(problem, sequence, number * QUERIES);
            const Tile tile = tile_of(block, blockIdx.x);
            if (tile.count == 0) {
                continue;
            }
            const Rows<Element> queries = rows_of(tensors.q, block.token, column, block.queries);
            const Rows<Element> douts = rows_of(tensors.dout, block.token, column, block.queries);
            score_gradients(shared, shared.queries[prepared], problem, block, first_key, head, bias_slope, keys, values,
                            queries, douts);
#pragma unroll
            for (u32 chunk = 0; chunk < CHUNKS; chunk++) {
                const u32 first = first_channel + chunk * CHUNK;
                const u32 channels = channels_of(first, head_dim);
                __syncthreads();
                stage_rows<THREADS, QUERIES>(shared.staged.rows.douts, douts.start + first, douts.stride, douts.count,
                                             channels);
                stage_rows<THREADS, QUERIES>(shared.staged.rows.queries, queries.start + first, queries.stride,
                                             queries.count, channels);
                __syncthreads();
                add_product(dv_sums[chunk], shared.probabilities + key, shared.staged.rows.douts + channel,
                            block.queries,
                            first_key + key, tile);
                add_product(dk_sums[chunk], shared.gradients + key, shared.staged.rows.queries + channel, block.queries,
                            first_key + key, tile);
            }
        }
    }
    const u32 rows = key < count ? count - key : 0;
#pragma unroll
    for (u32 chunk = 0; chunk < CHUNKS; chunk++) {
        const u32 place = first_channel + chunk * CHUNK + channel;
        store(dk, dk_sums[chunk], key_row + key, rows, kv_column, place, head_dim);
        store(dv, dv_sums[chunk], key_row + key, rows, kv_column, place, head_dim);
    }
}

}  // namespace of_keys

#define OF_QUERIES(NAME, E, CHUNKS)                                                                                    \
    extern "C" __global__ void __launch_bounds__(of_queries::THREADS, 3)                                               \
        NAME(Sizes sizes, Matrix<const i32> visible, DropoutMask dropout, Matrix<const E> q, Matrix<const E> k,        \
             Matrix<const E> v, Matrix<const E> out, Matrix<const f32> log_sum_exp, Matrix<const E> dout,              \
             Matrix<E> dq) {                                                                                           \
        of_queries::backward<E, CHUNKS>({sizes, visible, dropout}, {q, k, v, out, log_sum_exp, dout}, dq);             \
    }
#define OF_KEYS(NAME, E, CHUNKS, BLOCKS)                                                                               \
    extern "C" __global__ void __launch_bounds__(of_keys::THREADS, BLOCKS)                                             \
        NAME(Sizes sizes, Matrix<const i32> visible, DropoutMask dropout, Matrix<const E> q, Matrix<const E> k,        \
             Matrix<const E> v, Matrix<const E> out, Matrix<const f32> log_sum_exp, Matrix<const E> dout,              \
             Matrix<E> dk, Matrix<E> dv) {                                                                             \
        of_keys::backward<E, CHUNKS>({sizes, visible, dropout}, {q, k, v, out, log_sum_exp, dout}, dk, dv);            \
    }

OF_QUERIES(attention_backward_queries_64_f32, f32, 1)
OF_QUERIES(attention_backward_queries_64_bf16, Bf16, 1)
OF_QUERIES(attention_backward_queries_64_f16, F16, 1)
OF_QUERIES(attention_backward_queries_128_f32, f32, 2)
OF_QUERIES(attention_backward_queries_128_bf16, Bf16, 2)
OF_QUERIES(attention_backward_queries_128_f16, F16, 2)
OF_KEYS(attention_backward_keys_64_f32, f32, 1, 2)
OF_KEYS(attention_backward_keys_64_bf16, Bf16, 1, 2)
OF_KEYS(attention_backward_keys_64_f16, F16, 1, 2)
OF_KEYS(attention_backward_keys_128_f32, f32, 2, 1)
OF_KEYS(attention_backward_keys_128_bf16, Bf16, 2, 1)
OF_KEYS(attention_backward_keys_128_f16, F16, 2, 1)
