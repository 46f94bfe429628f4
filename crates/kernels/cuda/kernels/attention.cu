// The forward pass of attention: a block of threads per block of queries, head and range of channels.

#include "attention.cuh"

using namespace attention;

constexpr u32 THREADS = 128;
constexpr u32 KEY_GROUPS = KEYS / 4;
constexpr u32 CHANNEL_GROUPS = CHUNK / 4;

static_assert(THREADS == KEY_GROUPS * (QUERIES / 4) && THREADS == CHANNEL_GROUPS * (QUERIES / 4), "four by four each");

template <typename Element>
struct Forward {
    Matrix<const Element> q;
    Matrix<const Element> k;
    Matrix<const Element> v;
    Matrix<Element> out;
    Matrix<f32> log_sum_exp;
};

// Shared memory of a block of threads.
struct Shared {
    // A chunk of keys and queries as columns, or of values as rows.
    union {
        Staged columns;
        f32 values[KEYS * CHUNK];
    } staged;
    // `[key][query]`
    f32 probabilities[KEYS * QUERY_STRIDE];
    // The largest score of each four keys.
    f32 largest[KEY_GROUPS][QUERIES];
    // Subtracted from a query's scores.
    f32 shift[QUERIES];
    // Factor of earlier sums; in the end the factor from sums to outputs.
    f32 factor[QUERIES];
};

// The running softmax of the query of a lane of the first warp.
struct Running {
    f32 max;
    f32 sum;
};

// Caps, biases and masks the thread's scores and leaves the largest of each query in `largest`.
__device__ inline void mask_scores(f32 (&sums)[4][4], Shared& shared, const Problem& problem, const QueryBlock& block,
                                   const Tile& tile, f32 slope) {
    const u32 key = threadIdx.x % KEY_GROUPS * 4;
    const u32 query = threadIdx.x / KEY_GROUPS * 4;
    // A tile that starts late ends before its 64th key; later keys are of the next tile.
    const i32 end = (i32)(tile.first + tile.count);
#pragma unroll
    for (u32 column = 0; column < 4; column++) {
        const i32 first = __shfl_sync(ALL_LANES, block.first, query + column);
        const i32 last = __shfl_sync(ALL_LANES, block.last, query + column);
        const i32 bias_end = __shfl_sync(ALL_LANES, block.end, query + column);
        f32 max = -math::infinity();
#pragma unroll
        for (u32 row = 0; row < 4; row++) {
            const u32 position = tile.first + key + row;
            f32 score = sums[row][column];
            score = problem.soft_cap.is_some() ? problem.soft_cap.capped(score) : score;
            score = problem.alibi_heads == 0 ? score : biased(score, position, bias_end, slope);
            score = is_visible(position, first, min(last, end)) ? score : -math::infinity();
            sums[row][column] = score;
            max = math::larger(max, score);
        }
        shared.largest[key / 4][query + column] = max;
    }
}

// Raises the maximum of a query by the scores of a tile; says what is subtracted from scores, and by what sums decay.
__device__ inline void raise_maximum(Running& running, Shared& shared) {
    const u32 query = threadIdx.x;
    const f32 old = running.max;
    f32 max = old;
#pragma unroll
    for (u32 group = 0; group < KEY_GROUPS; group++) {
        max = math::larger(max, shared.largest[group][query]);
    }
    running.max = max;
    // A query that has seen nothing yet subtracts zero, as minus infinity minus itself is not a number.
    const f32 shift = max < -3.40282347e38f ? 0.0f : max;
    shared.shift[query] = shift;
    shared.factor[query] = math::exp(old - shift);
}

// `exp(score - shift)` of the thread's scores, into `probabilities`.
__device__ inline void exponentiate(const f32 (&sums)[4][4], Shared& shared) {
    const u32 key = threadIdx.x % KEY_GROUPS * 4;
    const u32 query = threadIdx.x / KEY_GROUPS * 4;
    f32 shifts[4];
    Vector<4>::load(shifts, shared.shift + query);
#pragma unroll
    for (u32 row = 0; row < 4; row++) {
        float4 powers;
        powers.x = math::exp(sums[row][0] - shifts[0]);
        powers.y = math::exp(sums[row][1] - shifts[1]);
        powers.z = math::exp(sums[row][2] - shifts[2]);
        powers.w = math::exp(sums[row][3] - shifts[3]);
        *reinterpret_cast<float4*>(shared.probabilities + (key + row) * QUERY_STRIDE + query) = powers;
    }
}

// Makes zeros of the thread's probabilities that dropout does not keep.
__device__ inline void drop(Shared& shared, const Problem& problem, u32 head, const QueryBlock& block,
                            const Tile& tile) {
    const DropoutMask& dropout = problem.dropout;
    const u32 key = threadIdx.x % KEY_GROUPS * 4;
    const u32 query = threadIdx.x / KEY_GROUPS * 4;
#pragma unroll
    for (u32 column = 0; column < 4; column++) {
        const philox::Words words = random_words(problem, head, block.token + query + column, tile.first + key);
#pragma unroll
        for (u32 row = 0; row < 4; row++) {
            if (words.word[row] < dropout.threshold) {
                shared.probabilities[(key + row) * QUERY_STRIDE + query + column] = 0.0f;
            }
        }
    }
}

// One tile up to its probabilities after dropout; the first chunk of its values is staged meanwhile.
template <typename Element>
__device__ void probabilities(Shared& shared, Running& running, const Problem& problem, const QueryBlock& block,
                              const Tile& tile, u32 head, f32 slope, Rows<Element> keys, Rows<Element> queries,
                              Rows<Element> values, u32 first_channels) {
    f32 sums[4][4];
    scores<THREADS>(sums, shared.staged.columns, keys, queries, problem.scale, problem.head_dim);
    mask_scores(sums, shared, problem, block, tile, slope);
    __syncthreads();
    if (threadIdx.x < QUERIES) {
        raise_maximum(running, shared);
    }
    __syncthreads();
    exponentiate(sums, shared);
    __syncthreads();
    if (threadIdx.x < QUERIES) {
        f32 sum = 0.0f;
        for (u32 key = 0; key < tile.count; key++) {
            sum += shared.probabilities[key * QUERY_STRIDE + threadIdx.x];
        }
        running.sum = fmaf(running.sum, shared.factor[threadIdx.x], sum);
    }
    stage_rows<THREADS, KEYS>(shared.staged.values, values.start, values.stride, values.count, first_channels);
    __syncthreads();
    if (problem.dropout.threshold != 0) {
        drop(shared, problem, head, block, tile);
        __syncthreads();
    }
}

template <typename Element, u32 CHUNKS>
__device__ void forward(const Problem& problem, const Forward<Element>& tensors) {
    __shared__ Shared shared;
    const u32 head_dim = problem.head_dim;
    const u32 ranges = (head_dim + CHUNKS * CHUNK - 1) / (CHUNKS * CHUNK);
    const u32 head = blockIdx.y / ranges;
    const u32 first_channel = blockIdx.y % ranges * (CHUNKS * CHUNK);
    const u32 sequence = blockIdx.z;
    // The last queries, which see most under a causal mask, begin first.
    const QueryBlock block = query_block(problem, sequence, (gridDim.x - 1 - blockIdx.x) * QUERIES);
    const u32 kv_column = head / problem.group() * head_dim;
    const f32 bias_slope = problem.alibi_heads == 0 ? 0.0f : slope(problem, head);
    const Rows<Element> queries = rows_of(tensors.q, block.token, head * head_dim, block.queries);

    const u32 query = threadIdx.x / CHANNEL_GROUPS * 4;
    const u32 channel = threadIdx.x % CHANNEL_GROUPS * 4;
    Running running = {-math::infinity(), 0.0f};
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
        const Rows<Element> values = {tensors.v.row(key_row) + kv_column + first_channel, tensors.v.stride, tile.count};
        probabilities(shared, running, problem, block, tile, head, bias_slope, keys, queries, values,
                      min(CHUNK, head_dim - first_channel));
        f32 decay[4];
        Vector<4>::load(decay, shared.factor + query);
#pragma unroll
        for (u32 chunk = 0; chunk < CHUNKS; chunk++) {
            const u32 first = first_channel + chunk * CHUNK;
            if (chunk > 0) {
                const u32 channels = channels_of(first, head_dim);
                __syncthreads();
                stage_rows<THREADS, KEYS>(shared.staged.values, values.start + chunk * CHUNK, values.stride,
                                          values.count, channels);
                __syncthreads();
            }
            f32 sums[4][4];
            clear(sums);
            multiply<QUERY_STRIDE, CHUNK>(sums, shared.probabilities + query, shared.staged.values + channel,
                                          tile.count);
#pragma unroll
            for (u32 row = 0; row < 4; row++) {
#pragma unroll
                for (u32 column = 0; column < 4; column++) {
                    const f32 earlier = outputs[chunk][row][column] * decay[row];
                    outputs[chunk][row][column] = is_first ? sums[row][column] : earlier + sums[row][column];
                }
            }
        }
        is_first = false;
    }

    __syncthreads();
    if (threadIdx.x < QUERIES) {
        const f32 sum = running.sum;
        shared.factor[threadIdx.x] = 0.0f < sum ? problem.dropout.kept / sum : 0.0f;
        if (first_channel == 0 && threadIdx.x < block.queries) {
            tensors.log_sum_exp.row(block.token + threadIdx.x)[head] = running.max + math::log(sum);
        }
    }
    __syncthreads();
#pragma unroll
    for (u32 row = 0; row < 4; row++) {
        if (query + row >= block.queries) {
            break;
        }
        Element* out = tensors.out.row(block.token + query + row) + head * head_dim;
        const f32 factor = shared.factor[query + row];
#pragma unroll
        for (u32 chunk = 0; chunk < CHUNKS; chunk++) {
#pragma unroll
            for (u32 column = 0; column < 4; column++) {
                const u32 place = first_channel + chunk * CHUNK + channel + column;
                if (place < head_dim) {
                    out[place] = narrow<Element>(outputs[chunk][row][column] * factor);
                }
            }
        }
    }
}

#define ATTENTION(NAME, E, CHUNKS, BLOCKS)                                                                             \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)                                                      \
        NAME(Sizes sizes, Matrix<const i32> visible, DropoutMask dropout, Matrix<const E> q, Matrix<const E> k,        \
             Matrix<const E> v, Matrix<E> out, Matrix<f32> log_sum_exp) {                                              \
        forward<E, CHUNKS>({sizes, visible, dropout}, {q, k, v, out, log_sum_exp});                                    \
    }

ATTENTION(attention_64_f32, f32, 1, 4)
ATTENTION(attention_64_bf16, Bf16, 1, 4)
ATTENTION(attention_64_f16, F16, 1, 4)
ATTENTION(attention_128_f32, f32, 2, 3)
ATTENTION(attention_128_bf16, Bf16, 2, 3)
ATTENTION(attention_128_f16, F16, 2, 3)
