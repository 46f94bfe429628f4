// The forward pass of attention with products in blocks: a block of threads per block of queries, head and range of
// channels. A warp has sixteen queries: scores of a tile, and then probabilities, stay in its registers.

#include "attention_blocks.cuh"

using namespace attention_blocks;

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

// The running softmax of a thread's two queries: the largest score, and the thread's share of the sum.
struct Running {
    f32 max[2];
    f32 sum[2];
};

// A thread's queries, `lane / 4` and 8 more of those of its warp.
struct Queries {
    Interval intervals[2];
    // Of the call.
    u32 token;
    u32 head;
    f32 slope;
};

// What is subtracted from scores whose maximum is `max`.
__device__ inline f32 shift_of(f32 max) {
    // A query that has seen nothing yet subtracts zero, as minus infinity minus itself is not a number.
    return max < -3.40282347e38f ? 0.0f : max;
}

// Turns products into scores: biases them, and hides those of keys that a query does not see.
__device__ inline void finish_scores(f32 (&scores)[TILE][4], const Problem& problem, const Queries& queries, i32 first,
                                     bool sees_all) {
    const i32 key = first + (i32)(threadIdx.x % 4 * 2);
#pragma unroll
    for (u32 column = 0; column < TILE; column++) {
#pragma unroll
        for (u32 index = 0; index < 4; index++) {
            scores[column][index] *= problem.scale;
        }
    }
    if (problem.alibi_heads != 0) {
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

// The largest of a row's scores and of `max`, NaN if there is one.
__device__ inline f32 raised(f32 max, const f32 (&scores)[TILE][4], u32 row) {
#pragma unroll
    for (u32 column = 0; column < TILE; column++) {
        max = tensor_core::larger_or_nan(max, scores[column][2 * row]);
        max = tensor_core::larger_or_nan(max, scores[column][2 * row + 1]);
    }
    max = tensor_core::larger_or_nan(max, __shfl_xor_sync(ALL_LANES, max, 1));
    return tensor_core::larger_or_nan(max, __shfl_xor_sync(ALL_LANES, max, 2));
}

// Probabilities of sixteen keys after dropout as the left factor of a product. Adds them to the sums first.
template <typename Element>
__device__ void exponentiate(u32 (&left)[4], Running& running, const f32 (&scores)[TILE][4], u32 block,
                             const f32 (&shift)[2], const Problem& problem, const Queries& queries, u32 first_key) {
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
        f32 powers[4];
#pragma unroll
        for (u32 index = 0; index < 4; index++) {
            powers[index] = exp_of_negative(scores[2 * block + half][index] - shift[index / 2]);
            running.sum[index / 2] += powers[index];
        }
        if (problem.dropout.threshold != 0) {
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
template <typename Element, u32 CHANNELS, bool ALL>
__device__ void multiply_values(f32 (&outputs)[CHANNELS / COLUMNS][4], Running& running, const f32 (&scores)[TILE][4],
                                const u16* values, u32 begin, u32 end, const f32 (&shift)[2], const Problem& problem,
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

// Raises the maxima by a tile's scores. Earlier sums and outputs decay; says what is subtracted from scores.
template <u32 FRAGMENTS>
__device__ inline void raise_maxima(f32 (&shift)[2], Running& running, f32 (&outputs)[FRAGMENTS][4],
                                    const f32 (&scores)[TILE][4]) {
    f32 decay[2];
#pragma unroll
    for (u32 row = 0; row < 2; row++) {
        const f32 old = running.max[row];
        running.max[row] = raised(old, scores, row);
        shift[row] = shift_of(running.max[row]);
        decay[row] = exp_of_negative(old - shift[row]);
        running.sum[row] *= decay[row];
    }
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
        f32 log_sum_exp = max + math::log(sum);
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

// A tile of scores from what is staged of heads of up to `CHANNELS` channels, whose queries are in registers.
template <typename Element, u32 CHANNELS, u32 THREADS>
struct Whole {
    u32 queries[CHANNELS / STEPS][4];

    // Stages the block's queries where the keys will be.
    __device__ void begin(u16* keys, const Rows<Element>& rows, const Problem& problem, bool vectors) {
        stage<CHANNELS, THREADS / 32 * ROWS, THREADS>(keys, rows, problem.head_dim, vectors);
        tensor_core::end_copies();
        tensor_core::wait_for_copies<0>();
        __syncthreads();
        const u32 left = Fragments<CHANNELS>::left(keys + threadIdx.x / 32 * ROWS * PITCH<CHANNELS>);
#pragma unroll
        for (u32 step = 0; step < CHANNELS / STEPS; step++) {
            tensor_core::load_rows(queries[step], left + Fragments<CHANNELS>::step(0, step * STEPS));
        }
        __syncthreads();
    }

    // Starts copies of a tile's keys.
    __device__ void start(u16* keys, const Rows<Element>& rows, const Problem& problem, bool vectors) const {
        stage<CHANNELS, KEYS, THREADS>(keys, rows, problem.head_dim, vectors);
        tensor_core::end_copies();
    }

    template <bool ALL>
    __device__ void multiply(f32 (&scores)[TILE][4], const u16* keys, u32 begin, u32 end) const {
        multiply_keys<Element, CHANNELS, ALL>(scores, keys, begin, end, [&](u32(&a)[4], u32 step) {
#pragma unroll
            for (u32 index = 0; index < 4; index++) {
                a[index] = queries[step][index];
            }
        });
    }
};

template <typename Element, u32 CHANNELS, u32 THREADS>
__device__ void forward(const Problem& problem, const Forward<Element>& tensors) {
    extern __shared__ __align__(16) u16 shared[];
    __shared__ Span spans[THREADS / 32];
    u16* const keys = shared;
    u16* const values = shared + KEYS * PITCH<CHANNELS>;
    const u32 warp = threadIdx.x / 32;
    const u32 head_dim = problem.head_dim;
    const u32 head = blockIdx.x % problem.heads;
    const u32 sequence = blockIdx.x / problem.heads;
    // The last queries, which see most under a causal mask, begin first.
    const u32 first_query = (gridDim.y - 1 - blockIdx.y) * (THREADS / 32 * ROWS);
    const u32 position = first_query + warp * ROWS + threadIdx.x % 32 / 4;
    const u64 first_token = (u64)sequence * problem.sequence_length;
    const u32 kv_column = head / problem.group() * head_dim;
    const u64 key_row = (u64)sequence * problem.keys;

    Whole<Element, CHANNELS, THREADS> tile;
    tile.begin(keys, rows_of(tensors.q, first_token + first_query, head * head_dim, problem.sequence_length - first_query),
               problem, tensors.vectors);
    Queries queries;
    queries.intervals[0] = interval_of(problem, sequence, position);
    queries.intervals[1] = interval_of(problem, sequence, position + 8);
    queries.token = (u32)first_token + position;
    queries.head = head;
    queries.slope = problem.alibi_heads == 0 ? 0.0f : attention::slope(problem, head);
    const Span span = joined<4, 16>(with(with(NOTHING, queries.intervals[0]), queries.intervals[1]));
    const Span all = joined_all(queries.intervals[0], queries.intervals[1]);
    if (threadIdx.x % 32 == 0) {
        spans[warp] = span;
    }
    __syncthreads();
    const Span of_lane = threadIdx.x % 32 < THREADS / 32 ? spans[threadIdx.x % 32] : NOTHING;
    const Span of_block = joined<1, 16>(of_lane);
    auto rows = [&](const Matrix<const Element>& matrix, u32 number) {
        return rows_of(matrix, key_row + number * KEYS, kv_column, min(KEYS, problem.keys - number * KEYS));
    };

    Running running = {{-math::infinity(), -math::infinity()}, {0.0f, 0.0f}};
    f32 outputs[CHANNELS / COLUMNS][4] = {};
    u32 number = next_tile<KEYS>(of_block.start() / KEYS, of_block, of_lane);
    if ((i32)(number * KEYS) < of_block.last) {
        tile.start(keys, rows(tensors.k, number), problem, tensors.vectors);
    }
    while ((i32)(number * KEYS) < of_block.last) {
        const i32 first = (i32)(number * KEYS);
        const u32 begin = span.begin(first);
        const u32 end = span.end(first, KEYS);
        const bool sees_all = all.first <= first && all.last >= first + (i32)KEYS;
        tensor_core::wait_for_copies<0>();
        __syncthreads();
        tile.start(values, rows(tensors.v, number), problem, tensors.vectors);
        f32 scores[TILE][4] = {};
        f32 shift[2] = {};
        if (begin < end) {
            if (sees_all) {
                tile.template multiply<true>(scores, keys, begin, end);
            } else {
                tile.template multiply<false>(scores, keys, begin, end);
            }
            finish_scores(scores, problem, queries, first, sees_all);
            raise_maxima(shift, running, outputs, scores);
        }
        tensor_core::wait_for_copies<0>();
        __syncthreads();
        number = next_tile<KEYS>(number + 1, of_block, of_lane);
        if ((i32)(number * KEYS) < of_block.last) {
            tile.start(keys, rows(tensors.k, number), problem, tensors.vectors);
        }
        if (begin < end) {
            if (sees_all) {
                multiply_values<Element, CHANNELS, true>(outputs, running, scores, values, begin, end, shift, problem,
                                                         queries, (u32)first);
            } else {
                multiply_values<Element, CHANNELS, false>(outputs, running, scores, values, begin, end, shift, problem,
                                                          queries, (u32)first);
            }
        }
    }
    finish<Element, CHANNELS>(tensors, problem, running, outputs, queries, position, 0);
}

#define ATTENTION(NAME, ELEMENT, CHANNELS)                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
    NAME(Sizes sizes, Matrix<const i32> visible, DropoutMask dropout, Matrix<const ELEMENT> q, Matrix<const ELEMENT> k, \
         Matrix<const ELEMENT> v, Matrix<ELEMENT> out, Matrix<f32> log_sum_exp, u32 vectors) {                         \
        forward<ELEMENT, CHANNELS, 256>({sizes, visible, dropout}, {q, k, v, out, log_sum_exp, vectors != 0});         \
    }
ATTENTION(attention_blocks_64_bf16, Bf16, 64)
ATTENTION(attention_blocks_64_f16, F16, 64)
ATTENTION(attention_blocks_128_bf16, Bf16, 128)
ATTENTION(attention_blocks_128_f16, F16, 128)
