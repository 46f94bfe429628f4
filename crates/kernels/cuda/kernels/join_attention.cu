// Attention on two sets of keys, from attention on each of them: as `cpu::attention::JoinAttention`.
//
// A block of threads has a head of a row: all of them compute the factors, and each joins some channels.

#include "element.cuh"
#include "math.cuh"
#include "tensor.cuh"

constexpr u32 THREADS = 64;

// The larger of two log-sum-exps, or zero where both have seen nothing: minus infinity minus itself is not a number.
__device__ inline f32 shift_of(f32 own, f32 part) {
    const f32 larger = math::larger(own, part);
    return larger < -3.40282347e38f ? 0.0f : larger;
}

// `out` = the other set, which is all there is.
template <typename E>
__device__ inline void assign(Matrix<const E> part, Matrix<const f32> part_log_sum_exp, Matrix<f32> out,
                              Matrix<f32> log_sum_exp, u32 head_dim) {
    const u32 head = blockIdx.x;
    for (u64 row = blockIdx.y; row < out.rows; row += gridDim.y) {
        const u64 column = (u64)head * head_dim;
        const E* from = part.row(row) + column;
        f32* to = out.row(row) + column;
        for (u32 channel = threadIdx.x; channel < head_dim; channel += THREADS) {
            to[channel] = widen(from[channel]);
        }
        if (threadIdx.x == 0) {
            log_sum_exp.row(row)[head] = part_log_sum_exp.row(row)[head];
        }
    }
}

// `out` joined with the other set.
template <typename E>
__device__ inline void accumulate(Matrix<const E> part, Matrix<const f32> part_log_sum_exp, Matrix<f32> out,
                                  Matrix<f32> log_sum_exp, u32 head_dim) {
    const u32 head = blockIdx.x;
    for (u64 row = blockIdx.y; row < out.rows; row += gridDim.y) {
        const f32 own_sum = log_sum_exp.row(row)[head];
        const f32 part_sum = part_log_sum_exp.row(row)[head];
        const f32 shift = shift_of(own_sum, part_sum);
        const f32 own = math::exp(own_sum - shift);
        const f32 other = math::exp(part_sum - shift);
        const f32 sum = own + other;
        const bool is_seen = 0.0f < sum;
        const f32 own_share = is_seen ? own / sum : 0.0f;
        const f32 other_share = is_seen ? other / sum : 0.0f;
        const u64 column = (u64)head * head_dim;
        const E* from = part.row(row) + column;
        f32* to = out.row(row) + column;
        for (u32 channel = threadIdx.x; channel < head_dim; channel += THREADS) {
            to[channel] = fmaf(widen(from[channel]), other_share, to[channel] * own_share);
        }
        // All threads have read the log-sum-exp.
        __syncthreads();
        if (threadIdx.x == 0) {
            log_sum_exp.row(row)[head] = shift + math::log(sum);
        }
    }
}

#define JOIN_ATTENTION(NAME, E, WRITE)                                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                              \
        NAME(Matrix<const E> part, Matrix<const f32> part_log_sum_exp, Matrix<f32> out, Matrix<f32> log_sum_exp,       \
             u32 head_dim) {                                                                                           \
        WRITE(part, part_log_sum_exp, out, log_sum_exp, head_dim);                                                     \
    }

JOIN_ATTENTION(join_attention_assign_f32, f32, assign)
JOIN_ATTENTION(join_attention_assign_bf16, Bf16, assign)
JOIN_ATTENTION(join_attention_assign_f16, F16, assign)
JOIN_ATTENTION(join_attention_accumulate_f32, f32, accumulate)
JOIN_ATTENTION(join_attention_accumulate_bf16, Bf16, accumulate)
JOIN_ATTENTION(join_attention_accumulate_f16, F16, accumulate)
