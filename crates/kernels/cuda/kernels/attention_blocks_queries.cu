// Gradients of attention's queries with products in blocks: a block of threads per block of queries and head. A warp
// has sixteen queries, whose gradients are sums over ascending keys. Before, `dout . out` of all queries.

#include "attention_blocks_of_queries.cuh"
#include "attention_blocks_queries_warpgroups.cuh"

using namespace attention_blocks;
using namespace attention_blocks::of_queries;

// Keys that are staged at once.
constexpr u32 KEYS = 64;
template <u32 CHANNELS>
constexpr u32 THREADS = CHANNELS == 64 ? 128 : 256;
// Threads of a block that sums `dout . out`.
constexpr u32 THREADS_OF_DELTA = 256;

// Left factors of a warp in registers.
template <u32 CHANNELS>
struct Left {
    u32 steps[CHANNELS / STEPS][4];

    __device__ void load(const u16* rows) {
        const u32 left = Fragments<CHANNELS>::left(rows + threadIdx.x / 32 * ROWS * PITCH<CHANNELS>);
#pragma unroll
        for (u32 step = 0; step < CHANNELS / STEPS; step++) {
            tensor_core::load_rows(steps[step], left + Fragments<CHANNELS>::step(0, step * STEPS));
        }
    }
};

// `sums += left . rows` over the channels, of sixteen of the rows.
template <typename Element, u32 CHANNELS>
__device__ inline void multiply_left(f32 (&sums)[2][4], const Left<CHANNELS>& left, u32 rows) {
#pragma unroll
    for (u32 step = 0; step < CHANNELS / STEPS; step++) {
        u32 b[4];
        tensor_core::load_rows(b, rows + Fragments<CHANNELS>::step(0, step * STEPS));
        tensor_core::multiply<Element>(sums[0], left.steps[step], b[0], b[1]);
        tensor_core::multiply<Element>(sums[1], left.steps[step], b[2], b[3]);
    }
}

template <typename Element, u32 CHANNELS, typename Asked>
__device__ void backward(const Asked& problem, const Backward<Element>& tensors) {
    // Queries of a block of threads.
    constexpr u32 QUERIES = THREADS<CHANNELS> / 32 * ROWS;
    static_assert(QUERIES <= 2 * KEYS, "queries are staged where two tiles of keys or values are");
    extern __shared__ __align__(16) u16 shared[];
    __shared__ Span spans[THREADS<CHANNELS> / 32];
    __shared__ Interval intervals[QUERIES];
    // Keys and values of two tiles in turns.
    constexpr u32 PART = KEYS * PITCH<CHANNELS>;
    const u32 warp = threadIdx.x / 32;
    const u32 lane = threadIdx.x % 32;
    const u32 head_dim = problem.head_dim;
    const u32 head = blockIdx.x % problem.heads;
    const u32 sequence = blockIdx.x / problem.heads;
    // The last queries, which see most under a causal mask, begin first.
    const u32 first_query = (gridDim.y - 1 - blockIdx.y) * QUERIES;
    const u32 position = first_query + warp * ROWS + lane / 4;
    const u64 first_row = (u64)sequence * problem.sequence_length + first_query;
    const u32 count = min(QUERIES, problem.sequence_length - first_query);
    const u32 column = head * head_dim;
    const u32 kv_column = head / problem.group() * head_dim;
    const u64 key_row = (u64)sequence * problem.keys;

    stage<CHANNELS, QUERIES, THREADS<CHANNELS>>(shared, rows_of(tensors.q, first_row, column, count), head_dim, tensors.vectors);
    stage<CHANNELS, QUERIES, THREADS<CHANNELS>>(shared + 2 * PART, rows_of(tensors.dout, first_row, column, count), head_dim,
                                      tensors.vectors);
    tensor_core::end_copies();
    const Queries queries = queries_of(problem, tensors, shared_intervals(intervals, problem, sequence, position), sequence,
                                       position, head, Delta::Stored);
    const Span span = joined<4, 16>(with(with(NOTHING, queries.intervals[0]), queries.intervals[1]));
    const Span all = joined_all(queries.intervals[0], queries.intervals[1]);
    if (lane == 0) {
        spans[warp] = span;
    }
    tensor_core::wait_for_copies<0>();
    __syncthreads();
    Left<CHANNELS> query;
    Left<CHANNELS> dout;
    query.load(shared);
    dout.load(shared + 2 * PART);
    const Span of_lane = lane < THREADS<CHANNELS> / 32 ? spans[lane] : NOTHING;
    const Span of_block = joined<1, 16>(of_lane);
    __syncthreads();
    auto start = [&](u32 number, u32 place) {
        const u32 first = number * KEYS;
        const u32 rows = min(KEYS, problem.keys - first);
        u16* const keys = shared + 2 * place * PART;
        stage<CHANNELS, KEYS, THREADS<CHANNELS>>(keys, rows_of(tensors.k, key_row + first, kv_column, rows), head_dim,
                                       tensors.vectors);
        stage<CHANNELS, KEYS, THREADS<CHANNELS>>(keys + PART, rows_of(tensors.v, key_row + first, kv_column, rows), head_dim,
                                       tensors.vectors);
        tensor_core::end_copies();
    };

    f32 outputs[CHANNELS / COLUMNS][4] = {};
    u32 number = next_tile<KEYS>(of_block.start() / KEYS, of_block, of_lane);
    u32 place = 0;
    if ((i32)(number * KEYS) < of_block.last) {
        start(number, place);
    }
    while ((i32)(number * KEYS) < of_block.last) {
        const i32 first = (i32)(number * KEYS);
        tensor_core::wait_for_copies<0>();
        __syncthreads();
        const u32 following = next_tile<KEYS>(number + 1, of_block, of_lane);
        if ((i32)(following * KEYS) < of_block.last) {
            start(following, place ^ 1);
        }
        const u16* keys = shared + 2 * place * PART;
        const u32 right_keys = Fragments<CHANNELS>::right(keys);
        const u32 right_values = Fragments<CHANNELS>::right(keys + PART);
        const u32 columns = Fragments<CHANNELS>::right_columns(keys);
        const u32 end = span.end(first, KEYS);
        const bool sees_all = all.first <= first && all.last >= first + (i32)KEYS;
        for (u32 block = span.begin(first); block < end; block++) {
            f32 scores[2][4] = {};
            f32 gradients[2][4] = {};
            u32 a[4];
            multiply_left<Element, CHANNELS>(scores, query, right_keys + Fragments<CHANNELS>::step(block * STEPS, 0));
            multiply_left<Element, CHANNELS>(gradients, dout,
                                             right_values + Fragments<CHANNELS>::step(block * STEPS, 0));
            score_gradients<Element>(a, scores, gradients, problem, queries, (u32)first + block * STEPS, sees_all);
            add_product<Element, CHANNELS>(outputs, a, columns + Fragments<CHANNELS>::step(block * STEPS, 0));
        }
        number = following;
        place ^= 1;
    }
    store<Element, CHANNELS>(tensors, problem, queries, outputs, position, 0);
}

// A thread per query and head.
template <typename Element>
__device__ void delta(const Problem& problem, const Backward<Element>& tensors) {
    const u64 index = global_thread();
    const u64 token = index / problem.heads;
    const u32 column = (u32)(index % problem.heads) * problem.head_dim;
    if (token < tensors.q.rows && problem.head_dim >= 2) {
        const u32 bits = __float_as_uint(delta_of_channels(tensors.dout.row(token) + column,
                                                           tensors.out.row(token) + column, problem.head_dim,
                                                           tensors.vectors));
        Element* place = tensors.dq.row(token) + column;
        place[0].bits = (u16)bits;
        place[1].bits = (u16)(bits >> 16);
    }
}

#define PARAMETERS(ELEMENT)                                                                                            \
    Sizes sizes, Matrix<const i32> visible, DropoutMask dropout, Matrix<const ELEMENT> q, Matrix<const ELEMENT> k,     \
        Matrix<const ELEMENT> v, Matrix<const ELEMENT> out, Matrix<const f32> log_sum_exp,                             \
        Matrix<const ELEMENT> dout, Matrix<ELEMENT> dq, u32 vectors

#define DELTA(NAME, ELEMENT)                                                                                           \
    extern "C" __global__ void __launch_bounds__(THREADS_OF_DELTA) NAME(PARAMETERS(ELEMENT)) {                                  \
        delta<ELEMENT>({sizes, visible, dropout}, {q, k, v, out, log_sum_exp, dout, dq, vectors != 0});                \
    }
DELTA(attention_blocks_delta_bf16, Bf16)
DELTA(attention_blocks_delta_f16, F16)

// Any problem.
template <typename Element, u32 CHANNELS>
__device__ void chosen(const Problem& problem, const Backward<Element>& tensors) {
    backward<Element, CHANNELS>(problem, tensors);
}

// Without caps, biases and dropout: by warpgroups where the GPU has their products.
template <typename Element, u32 CHANNELS>
__device__ void chosen(const PlainProblem& problem, const Backward<Element>& tensors) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    backward_by_warpgroups<Element, CHANNELS>(problem, tensors);
#else
    backward<Element, CHANNELS>(problem, tensors);
#endif
}

#define QUERIES_KERNEL(NAME, ELEMENT, CHANNELS, PROBLEM)                                                               \
    extern "C" __global__ void __launch_bounds__(THREADS<CHANNELS>, 1)                                                 \
    NAME(PARAMETERS(ELEMENT)) {                                                                                        \
        chosen<ELEMENT, CHANNELS>(PROBLEM(sizes, visible, dropout),                                                  \
                                  {q, k, v, out, log_sum_exp, dout, dq, vectors != 0});                                \
    }
QUERIES_KERNEL(attention_blocks_queries_64_bf16, Bf16, 64, PlainProblem)
QUERIES_KERNEL(attention_blocks_queries_64_f16, F16, 64, PlainProblem)
QUERIES_KERNEL(attention_blocks_queries_128_bf16, Bf16, 128, PlainProblem)
QUERIES_KERNEL(attention_blocks_queries_128_f16, F16, 128, PlainProblem)
QUERIES_KERNEL(attention_blocks_queries_any_64_bf16, Bf16, 64, Problem)
QUERIES_KERNEL(attention_blocks_queries_any_64_f16, F16, 64, Problem)
QUERIES_KERNEL(attention_blocks_queries_any_128_bf16, Bf16, 128, Problem)
QUERIES_KERNEL(attention_blocks_queries_any_128_f16, F16, 128, Problem)
