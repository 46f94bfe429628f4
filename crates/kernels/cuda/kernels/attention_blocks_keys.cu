// Gradients of attention's keys and values with products in blocks: a block of threads per tile of keys and head of
// keys. A warp has sixteen keys, whose gradients are sums over the queries of one head after the other, ascending.

#include "attention_blocks_keys_warpgroups.cuh"
#include "attention_blocks_of_keys.cuh"

using namespace attention_blocks;
using namespace attention_blocks::of_keys;

template <typename Element, u32 CHANNELS, typename Asked>
__device__ void backward(const Asked& problem, const Backward<Element>& tensors, const Matrix<Element>& dk,
                         const Matrix<Element>& dv) {
    // Queries that are staged at once.
    constexpr u32 QUERIES = 32;
    extern __shared__ __align__(16) u16 shared[];
    __shared__ QueryRows<QUERIES> rows[2];
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
    auto start = [&](const QueryBlocks<QUERIES>& blocks, u32 place) {
        const u64 row = (u64)first_token + blocks.position;
        const u32 there = problem.sequence_length - blocks.position;
        const u32 column = blocks.head * head_dim;
        u16* const to = queries + 2 * place * QUERY_PART;
        stage<CHANNELS, QUERIES, THREADS>(to, rows_of(tensors.q, row, column, there), head_dim, tensors.vectors);
        stage<CHANNELS, QUERIES, THREADS>(to + QUERY_PART, rows_of(tensors.dout, row, column, there), head_dim,
                                          tensors.vectors);
        tensor_core::end_copies();
        write_row(rows[place], problem, read_row(problem, tensors, sequence, blocks));
    };

    f32 dk_sums[CHANNELS / COLUMNS][4] = {};
    f32 dv_sums[CHANNELS / COLUMNS][4] = {};
    QueryBlocks<QUERIES> blocks = first_blocks<QUERIES>(kv_head * group, group);
    bool is_there = blocks.next(found, problem, sequence, (i32)first_key);
    u32 place = 0;
    if (is_there) {
        start(blocks, place);
    }
    const u32 left_keys = Fragments<CHANNELS>::left(keys + warp * ROWS * PITCH<CHANNELS>);
    const u32 left_values = Fragments<CHANNELS>::left(values + warp * ROWS * PITCH<CHANNELS>);
    while (is_there) {
        const QueryBlocks<QUERIES> current = blocks;
        is_there = blocks.next(found, problem, sequence, (i32)first_key);
        tensor_core::wait_for_copies<0>();
        __syncthreads();
        if (is_there) {
            start(blocks, place ^ 1);
        }
        const QueryRows<QUERIES>& block_rows = rows[place];
        const u16* from = queries + 2 * place * QUERY_PART;
        const i32 first = block_rows.first[lane];
        const i32 last = block_rows.last[lane];
        const u32 seeing = __ballot_sync(ALL_LANES, min(last, (i32)(warp_key + ROWS)) > max(first, (i32)warp_key));
        const bool sees_all = __all_sync(ALL_LANES, first <= (i32)warp_key && last >= (i32)(warp_key + ROWS));
        const f32 slope = !has_bias(problem) ? 0.0f : attention::slope(problem, current.head);
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
    store<Element, CHANNELS>(dk, dk_sums, key_row + key, stored, kv_column, 0, head_dim, tensors.vectors);
    store<Element, CHANNELS>(dv, dv_sums, key_row + key, stored, kv_column, 0, head_dim, tensors.vectors);
}

// Any problem.
template <typename Element, u32 CHANNELS>
__device__ void chosen(const Problem& problem, const Backward<Element>& tensors, const Matrix<Element>& dk,
                       const Matrix<Element>& dv) {
    backward<Element, CHANNELS>(problem, tensors, dk, dv);
}

// Without caps, biases and dropout: by warpgroups where the GPU has their products.
template <typename Element, u32 CHANNELS>
__device__ void chosen(const PlainProblem& problem, const Backward<Element>& tensors, const Matrix<Element>& dk,
                       const Matrix<Element>& dv) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    backward_by_warpgroups<Element, CHANNELS>(problem, tensors, dk, dv);
#else
    backward<Element, CHANNELS>(problem, tensors, dk, dv);
#endif
}

#define KEYS_KERNEL(NAME, ELEMENT, CHANNELS, PROBLEM)                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS<CHANNELS, PROBLEM>)                                   \
    NAME(Sizes sizes, Matrix<const i32> visible, DropoutMask dropout, Matrix<const ELEMENT> q, Matrix<const ELEMENT> k, \
         Matrix<const ELEMENT> v, Matrix<const ELEMENT> out, Matrix<const f32> log_sum_exp,                            \
         Matrix<const ELEMENT> dout, Matrix<ELEMENT> dq, u32 vectors, Matrix<ELEMENT> dk, Matrix<ELEMENT> dv) {        \
        chosen<ELEMENT, CHANNELS>(PROBLEM(sizes, visible, dropout),                                                  \
                                  {q, k, v, out, log_sum_exp, dout, dq, vectors != 0}, dk, dv);                        \
    }
KEYS_KERNEL(attention_blocks_keys_64_bf16, Bf16, 64, PlainProblem)
KEYS_KERNEL(attention_blocks_keys_64_f16, F16, 64, PlainProblem)
KEYS_KERNEL(attention_blocks_keys_128_bf16, Bf16, 128, PlainProblem)
KEYS_KERNEL(attention_blocks_keys_128_f16, F16, 128, PlainProblem)
KEYS_KERNEL(attention_blocks_keys_any_64_bf16, Bf16, 64, Problem)
KEYS_KERNEL(attention_blocks_keys_any_64_f16, F16, 64, Problem)
KEYS_KERNEL(attention_blocks_keys_any_128_bf16, Bf16, 128, Problem)
KEYS_KERNEL(attention_blocks_keys_any_128_f16, F16, 128, Problem)
