// The forward pass of attention with products in blocks: a block of threads per block of queries and head of up to 128
// channels. A warp has sixteen queries.

#include "attention_blocks_forward.cuh"
#include "attention_blocks_warpgroups.cuh"

using namespace attention_blocks;

template <u32 CHANNELS>
constexpr u32 THREADS = CHANNELS == 64 ? 128 : 256;

// A tile of scores from what is staged of heads of up to `CHANNELS` channels, whose queries are in registers.
template <typename Element, u32 CHANNELS>
struct Whole {
    u32 queries[CHANNELS / STEPS][4];

    // Stages the block's queries where the keys will be.
    __device__ void begin(u16* keys, const Rows<Element>& rows, const Problem& problem, bool vectors) {
        stage<CHANNELS, THREADS<CHANNELS> / 32 * ROWS, THREADS<CHANNELS>>(keys, rows, problem.head_dim, vectors);
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
        stage<CHANNELS, KEYS, THREADS<CHANNELS>>(keys, rows, problem.head_dim, vectors);
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

// Whether a query sees all keys of the tile that begins here.
__device__ inline bool sees_tile(const Interval& interval, i32 first) {
    return interval.first <= first && interval.last >= first + (i32)KEYS;
}

template <typename Element, u32 CHANNELS, typename Asked>
__device__ void forward(const Asked& problem, const Forward<Element>& tensors) {
    extern __shared__ __align__(16) u16 shared[];
    __shared__ Span spans[THREADS<CHANNELS> / 32];
    __shared__ Interval intervals[THREADS<CHANNELS> / 32 * ROWS];
    u16* const keys = shared;
    u16* const values = shared + KEYS * PITCH<CHANNELS>;
    const u32 warp = threadIdx.x / 32;
    const u32 head_dim = problem.head_dim;
    const u32 head = blockIdx.x % problem.heads;
    const u32 sequence = blockIdx.x / problem.heads;
    // The last queries, which see most under a causal mask, begin first.
    const u32 first_query = (gridDim.y - 1 - blockIdx.y) * (THREADS<CHANNELS> / 32 * ROWS);
    const u32 position = first_query + warp * ROWS + threadIdx.x % 32 / 4;
    const u64 first_token = (u64)sequence * problem.sequence_length;
    const u32 kv_column = head / problem.group() * head_dim;
    const u64 key_row = (u64)sequence * problem.keys;

    Whole<Element, CHANNELS> tile;
    tile.begin(keys, rows_of(tensors.q, first_token + first_query, head * head_dim, problem.sequence_length - first_query),
               problem, tensors.vectors);
    Queries queries;
    queries.intervals = shared_intervals(intervals, problem, sequence, position);
    queries.token = (u32)first_token + position;
    queries.head = head;
    queries.slope = !has_bias(problem) ? 0.0f : attention::slope(problem, head);
    const Span span = joined<4, 16>(with(with(NOTHING, queries.intervals[0]), queries.intervals[1]));
    if (threadIdx.x % 32 == 0) {
        spans[warp] = span;
    }
    __syncthreads();
    const Span of_lane = threadIdx.x % 32 < THREADS<CHANNELS> / 32 ? spans[threadIdx.x % 32] : NOTHING;
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
        const bool sees_all =
            __all_sync(ALL_LANES, sees_tile(queries.intervals[0], first) && sees_tile(queries.intervals[1], first));
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
            f32 decay[2];
            raise_maxima(shift, decay, running, scores, scale_of(problem));
            decay_outputs(outputs, decay);
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

// Any problem.
template <typename Element, u32 CHANNELS>
__device__ void chosen(const Problem& problem, const Forward<Element>& tensors) {
    forward<Element, CHANNELS>(problem, tensors);
}

// Without caps, biases and dropout: by warpgroups where the GPU has their products.
template <typename Element, u32 CHANNELS>
__device__ void chosen(const PlainProblem& problem, const Forward<Element>& tensors) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    forward_by_warpgroups<Element, CHANNELS>(problem, tensors);
#else
    forward<Element, CHANNELS>(problem, tensors);
#endif
}

#define ATTENTION(NAME, ELEMENT, CHANNELS, PROBLEM)                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS<CHANNELS>, BLOCKS<CHANNELS, PROBLEM>)                         \
    NAME(Sizes sizes, Matrix<const i32> visible, DropoutMask dropout, Matrix<const ELEMENT> q, Matrix<const ELEMENT> k, \
         Matrix<const ELEMENT> v, Matrix<ELEMENT> out, Matrix<f32> log_sum_exp, u32 vectors) {                         \
        chosen<ELEMENT, CHANNELS>(PROBLEM(sizes, visible, dropout), {q, k, v, out, log_sum_exp, vectors != 0});      \
    }
ATTENTION(attention_blocks_64_bf16, Bf16, 64, PlainProblem)
ATTENTION(attention_blocks_64_f16, F16, 64, PlainProblem)
ATTENTION(attention_blocks_128_bf16, Bf16, 128, PlainProblem)
ATTENTION(attention_blocks_128_f16, F16, 128, PlainProblem)
ATTENTION(attention_blocks_any_64_bf16, Bf16, 64, Problem)
ATTENTION(attention_blocks_any_64_f16, F16, 64, Problem)
ATTENTION(attention_blocks_any_128_bf16, Bf16, 128, Problem)
ATTENTION(attention_blocks_any_128_f16, F16, 128, Problem)
