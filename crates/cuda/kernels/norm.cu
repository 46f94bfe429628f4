// Layer norm and RMS norm: `cpu::norm` has the formulas and the order of sums.
//
// A row of the norm has `width` elements; a row of the matrix has `heads` rows of the norm.
#include "element.cuh"
#include "groups.cuh"
#include "row_sum.cuh"

// A row of the norm for each team, until all are done. `body(index, row, col, is_last_turn_inside)`: rows past the last
// repeat the last one, because teams of a warp sum together, and are not stored.
template <typename Body>
__device__ inline void for_each_norm_row(u64 rows, u64 heads, u64 width, Body body) {
    const u64 teams = grid_threads() / TEAM;
    const u64 team_of_warp = threadIdx.x / TEAM % 2;
    const u64 count = rows * heads;
    for (u64 first = global_team() - team_of_warp; first < count; first += teams) {
        const bool is_stored = first + team_of_warp < count;
        const u64 index = is_stored ? first + team_of_warp : count - 1;
        body(index, index / heads, index % heads * width, is_stored);
    }
}

// Stores `value(i)` of each element of a row of the norm, four of a thread at a time: they are all read before the
// first is written, which the compiler cannot know to change nothing.
template <typename E, typename Value>
__device__ inline void store_row(E *to, u64 width, Value value) {
    constexpr u32 COUNT = 4;
    for (u64 first = team_lane(); first < width; first += COUNT * TEAM) {
        f32 values[COUNT];
#pragma unroll
        for (u32 index = 0; index < COUNT; index++) {
            const u64 i = first + index * TEAM;
            values[index] = i < width ? value(i) : 0.0f;
        }
#pragma unroll
        for (u32 index = 0; index < COUNT; index++) {
            const u64 i = first + index * TEAM;
            if (i < width) {
                to[i] = narrow<E>(values[index]);
            }
        }
    }
}

// The factor of normed values: the weight, or one more.
template <bool PLUS_ONE>
__device__ inline f32 norm_factor(f32 weight) {
    return PLUS_ONE ? weight + 1.0f : weight;
}

// `y = norm(x) * weight + bias`; `stats` = mean, reciprocal standard deviation.
template <bool LAYER, bool PLUS_ONE, typename E>
__device__ inline void norm_forward(Matrix<const E> x, Matrix<const E> weight, Matrix<const E> bias, Matrix<E> y,
                                    Matrix<f32> stats, f32 epsilon) {
    const u64 width = weight.cols;
    const f64 count = (f64)width;
    for_each_norm_row(x.rows, x.cols / width, width, [&](u64 index, u64 row, u64 col, bool is_stored) {
        const E *from = x.row(row) + col;
        f32 mean = 0.0f;
        if (LAYER) {
            mean = (f32)(row_sum(width, [&](u64 i) { return widen(from[i]); }) / count);
        }
        const f64 squares = row_sum(width, [&](u64 i) {
            const f32 centred = widen(from[i]) - mean;
            return centred * centred;
        });
        const f32 rstd = (f32)(1.0 / sqrt(squares / count + (f64)epsilon));
        if (!is_stored) {
            return;
        }
        if (team_lane() == 0) {
            stats.start[2 * index] = mean;
            stats.start[2 * index + 1] = rstd;
        }
        E *to = y.row(row) + col;
        store_row(to, width, [&](u64 i) {
            const f32 normed = (widen(from[i]) - mean) * rstd;
            const f32 factor = norm_factor<PLUS_ONE>(widen(weight.start[i]));
            return bias.is_there() ? fmaf(normed, factor, widen(bias.start[i])) : normed * factor;
        });
    });
}

// Without a number of blocks, ptxas spills on sm_120a at 56 registers.
#define NORM(NAME, E, LAYER, PLUS_ONE)                                                                                 \
    extern "C" __global__ void __launch_bounds__(128, 8)                                                               \
        NAME(Matrix<const E> x, Matrix<const E> weight, Matrix<const E> bias, Matrix<E> y, Matrix<f32> stats,          \
             f32 epsilon) {                                                                                            \
        norm_forward<LAYER, PLUS_ONE>(x, weight, bias, y, stats, epsilon);                                             \
    }

NORM(norm_layer_f32, f32, true, false)
NORM(norm_layer_bf16, Bf16, true, false)
NORM(norm_layer_f16, F16, true, false)
NORM(norm_rms_f32, f32, false, false)
NORM(norm_rms_bf16, Bf16, false, false)
NORM(norm_rms_f16, F16, false, false)
NORM(norm_rms_plus_one_f32, f32, false, true)
NORM(norm_rms_plus_one_bf16, Bf16, false, true)
NORM(norm_rms_plus_one_f16, F16, false, true)

// `dx = rstd * (g - mean(g) - xhat * mean(g * xhat))` with `g = dy * weight`, assigned or accumulated.
template <bool LAYER, bool PLUS_ONE, typename E>
__device__ inline void norm_backward_input(Matrix<const E> x, Matrix<const E> weight, Matrix<const f32> stats,
                                           Matrix<const E> dy, Matrix<E> dx, u32 is_accumulated) {
    const u64 width = weight.cols;
    const f64 count = (f64)width;
    for_each_norm_row(x.rows, x.cols / width, width, [&](u64 index, u64 row, u64 col, bool is_stored) {
        const E *input = x.row(row) + col;
        const E *gradient = dy.row(row) + col;
        const f32 mean = stats.start[2 * index];
        const f32 rstd = stats.start[2 * index + 1];
        const auto normed = [&](u64 i) { return (widen(input[i]) - mean) * rstd; };
        const auto weighted = [&](u64 i) {
            return widen(gradient[i]) * norm_factor<PLUS_ONE>(widen(weight.start[i]));
        };
        const f64 along_sum = row_sum(width, [&](u64 i) { return normed(i) * weighted(i); });
        const f64 level_sum = LAYER ? row_sum(width, weighted) : 0.0;
        const f32 along = (f32)(along_sum / count);
        const f32 level = (f32)(level_sum / count);
        if (!is_stored) {
            return;
        }
        E *to = dx.row(row) + col;
        store_row(to, width, [&](u64 i) {
            const f32 result = fmaf(-normed(i), along, weighted(i) - level) * rstd;
            return is_accumulated != 0 ? widen(to[i]) + result : result;
        });
    });
}

#define NORM_BACKWARD_INPUT(NAME, E, LAYER, PLUS_ONE)                                                                  \
    extern "C" __global__ void __launch_bounds__(128)                                                                  \
        NAME(Matrix<const E> x, Matrix<const E> weight, Matrix<const f32> stats, Matrix<const E> dy, Matrix<E> dx,     \
             u32 is_accumulated) {                                                                                     \
        norm_backward_input<LAYER, PLUS_ONE>(x, weight, stats, dy, dx, is_accumulated);                                \
    }

NORM_BACKWARD_INPUT(norm_backward_input_layer_f32, f32, true, false)
NORM_BACKWARD_INPUT(norm_backward_input_layer_bf16, Bf16, true, false)
NORM_BACKWARD_INPUT(norm_backward_input_layer_f16, F16, true, false)
NORM_BACKWARD_INPUT(norm_backward_input_rms_f32, f32, false, false)
NORM_BACKWARD_INPUT(norm_backward_input_rms_bf16, Bf16, false, false)
NORM_BACKWARD_INPUT(norm_backward_input_rms_f16, F16, false, false)
NORM_BACKWARD_INPUT(norm_backward_input_rms_plus_one_f32, f32, false, true)
NORM_BACKWARD_INPUT(norm_backward_input_rms_plus_one_bf16, Bf16, false, true)
NORM_BACKWARD_INPUT(norm_backward_input_rms_plus_one_f16, F16, false, true)

// `dweight[C] += sum(dy * xhat)`, `dbias[C] += sum(dy)` over all rows of the norm.
template <typename E>
__device__ inline void norm_backward_weight(Matrix<const E> x, Matrix<const f32> stats, Matrix<const E> dy,
                                            Matrix<f32> dweight, Matrix<f32> dbias) {
    __shared__ GroupSums weight_groups;
    __shared__ GroupSums bias_groups;
    const u64 width = dweight.cols;
    const u64 heads = x.cols / width;
    const u64 col = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    const bool is_inside = col < width;
    const u64 count = (x.rows + GROUP_ROWS - 1) / GROUP_ROWS;
    for (u64 first = 0; first < count; first += blockDim.y) {
        const u64 row = (first + threadIdx.y) * GROUP_ROWS;
        const u64 end = row + GROUP_ROWS < x.rows ? row + GROUP_ROWS : x.rows;
        f32 weight_sum = 0.0f;
        f32 bias_sum = 0.0f;
        if (is_inside) {
#pragma unroll 4
            for (u64 r = row; r < end; r++) {
                for (u64 head = 0; head < heads; head++) {
                    const f32 mean = stats.start[2 * (r * heads + head)];
                    const f32 rstd = stats.start[2 * (r * heads + head) + 1];
                    const f32 gradient = widen(dy.row(r)[head * width + col]);
                    const f32 normed = (widen(x.row(r)[head * width + col]) - mean) * rstd;
                    weight_sum = fmaf(normed, gradient, weight_sum);
                    bias_sum = bias_sum + gradient;
                }
            }
        }
        weight_groups.own() = weight_sum;
        bias_groups.own() = bias_sum;
        __syncthreads();
        if (threadIdx.y == 0 && is_inside) {
            add_groups(weight_groups, groups_of_turn(first, count), dweight.start + col);
            if (dbias.is_there()) {
                add_groups(bias_groups, groups_of_turn(first, count), dbias.start + col);
            }
        }
        __syncthreads();
    }
}

#define NORM_BACKWARD_WEIGHT(NAME, E)                                                                                  \
    extern "C" __global__ void __launch_bounds__(1024, 1)                                                              \
        NAME(Matrix<const E> x, Matrix<const f32> stats, Matrix<const E> dy, Matrix<f32> dweight, Matrix<f32> dbias) { \
        norm_backward_weight(x, stats, dy, dweight, dbias);                                                            \
    }

NORM_BACKWARD_WEIGHT(norm_backward_weight_f32, f32)
NORM_BACKWARD_WEIGHT(norm_backward_weight_bf16, Bf16)
NORM_BACKWARD_WEIGHT(norm_backward_weight_f16, F16)
