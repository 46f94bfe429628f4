// Layer norm and RMS norm: `cpu::norm` has the formulas and the order of sums.
//
// A row of the norm has `width` elements; a row of the matrix has `heads` rows of the norm.
#include "element.cuh"
#include "groups.cuh"
#include "row_chunks.cuh"
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

// The same for rows of bf16 or fp16 values in shared memory, each chunk of `teams` by a team.
template <bool LAYER, bool PLUS_ONE, typename E>
__device__ inline void norm_forward_in_chunks(Matrix<const E> x, Matrix<const E> weight, Matrix<const E> bias,
                                                 Matrix<E> y, Matrix<f32> stats, f32 epsilon, u32 teams) {
    __shared__ SharedElements<E> chunks[TEAMS];
    const u32 width = (u32)weight.cols;
    const u32 heads = (u32)x.cols / width;
    const f64 count = (f64)width;
    const OwnChunk own(x.rows * heads, width, teams);
    const u64 row = heads == 1 ? own.row : own.row / heads;
    const u64 col = heads == 1 ? own.first : own.row % heads * width + own.first;
    SharedElements<E> &chunk = chunks[threadIdx.x / TEAM];
    chunk.fill(own, x.row(row) + col);
    __syncwarp();
    f32 mean = 0.0f;
    if (LAYER) {
        mean = (f32)(own.row_total(chunk.sum(own, [](f32 value) { return value; })) / count);
    }
    const f64 squares = own.row_total(chunk.sum(own, [=](f32 value) {
        const f32 centred = value - mean;
        return centred * centred;
    }));
    const f32 rstd = (f32)(1.0 / sqrt(squares / count + (f64)epsilon));
    if (team_lane() == 0 && own.len > 0 && own.first == 0) {
        stats.start[2 * own.row] = mean;
        stats.start[2 * own.row + 1] = rstd;
    }
    E *to = y.row(row) + col;
#pragma unroll
    for (u32 index = 0; index < VECTORS; index++) {
        if (own.has(index)) {
            const u32 place = own.place(index);
            f32 values[EIGHT];
            f32 weights[EIGHT];
            load(values, chunk.elements + place);
            load(weights, weight.start + own.first + place);
#pragma unroll
            for (u32 i = 0; i < EIGHT; i++) {
                values[i] = (values[i] - mean) * rstd;
                weights[i] = norm_factor<PLUS_ONE>(weights[i]);
            }
            if (bias.is_there()) {
                f32 biases[EIGHT];
                load(biases, bias.start + own.first + place);
#pragma unroll
                for (u32 i = 0; i < EIGHT; i++) {
                    values[i] = fmaf(values[i], weights[i], biases[i]);
                }
            } else {
#pragma unroll
                for (u32 i = 0; i < EIGHT; i++) {
                    values[i] = values[i] * weights[i];
                }
            }
            store(to + place, values);
        }
    }
}

// Each row is read once where `teams` is not 0. Without a number of blocks, ptxas spills on sm_120a at 56 registers.
#define NORM(NAME, E, LAYER, PLUS_ONE)                                                                                 \
    extern "C" __global__ void __launch_bounds__(128, 8)                                                               \
        NAME(Matrix<const E> x, Matrix<const E> weight, Matrix<const E> bias, Matrix<E> y, Matrix<f32> stats,          \
             f32 epsilon, u32 teams) {                                                                                 \
        if constexpr (sizeof(E) == 2) {                                                                                \
            if (teams != 0) {                                                                                          \
                norm_forward_in_chunks<LAYER, PLUS_ONE>(x, weight, bias, y, stats, epsilon, teams);                 \
                return;                                                                                                \
            }                                                                                                          \
        }                                                                                                              \
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

// The same for rows of bf16 or fp16 values in shared memory, each chunk of `teams` by a team.
template <bool LAYER, bool PLUS_ONE, typename E>
__device__ inline void norm_backward_input_in_chunks(Matrix<const E> x, Matrix<const E> weight,
                                                     Matrix<const f32> stats, Matrix<const E> dy, Matrix<E> dx,
                                                     u32 is_accumulated, u32 teams) {
    __shared__ SharedElements<E> inputs[TEAMS];
    __shared__ SharedElements<E> gradients[TEAMS];
    const u32 width = (u32)weight.cols;
    const u32 heads = (u32)x.cols / width;
    const f64 count = (f64)width;
    const OwnChunk own(x.rows * heads, width, teams);
    const u64 row = heads == 1 ? own.row : own.row / heads;
    const u64 col = heads == 1 ? own.first : own.row % heads * width + own.first;
    SharedElements<E> &input = inputs[threadIdx.x / TEAM];
    SharedElements<E> &gradient = gradients[threadIdx.x / TEAM];
    const f32 mean = own.len > 0 ? stats.start[2 * own.row] : 0.0f;
    const f32 rstd = own.len > 0 ? stats.start[2 * own.row + 1] : 0.0f;
    const E *weights = weight.start + own.first;
    fill_both(own, input, x.row(row) + col, gradient, dy.row(row) + col);
    __syncwarp();
    f32 along_sum = 0.0f;
    f32 level_sum = 0.0f;
    for_each_of_lane(own.len, [&](u32 index) {
        const u32 place = team_lane() + index * TEAM;
        const f32 normed = (widen(input.elements[place]) - mean) * rstd;
        const f32 weighted = widen(gradient.elements[place]) * norm_factor<PLUS_ONE>(widen(weights[place]));
        along_sum = along_sum + normed * weighted;
        level_sum = level_sum + weighted;
    });
    const f32 along = (f32)(own.row_total(team_sum(along_sum)) / count);
    const f32 level = LAYER ? (f32)(own.row_total(team_sum(level_sum)) / count) : 0.0f;
    E *to = dx.row(row) + col;
#pragma unroll
    for (u32 index = 0; index < VECTORS; index++) {
        if (own.has(index)) {
            const u32 place = own.place(index);
            f32 normed[EIGHT];
            f32 results[EIGHT];
            f32 factors[EIGHT];
            load(normed, input.elements + place);
            load(results, gradient.elements + place);
            load(factors, weights + place);
#pragma unroll
            for (u32 i = 0; i < EIGHT; i++) {
                normed[i] = (normed[i] - mean) * rstd;
                results[i] = results[i] * norm_factor<PLUS_ONE>(factors[i]);
                results[i] = fmaf(-normed[i], along, results[i] - level) * rstd;
            }
            if (is_accumulated != 0) {
                f32 sums[EIGHT];
                load(sums, to + place);
#pragma unroll
                for (u32 i = 0; i < EIGHT; i++) {
                    results[i] = sums[i] + results[i];
                }
            }
            store(to + place, results);
        }
    }
}

#define NORM_BACKWARD_INPUT(NAME, E, LAYER, PLUS_ONE)                                                                  \
    extern "C" __global__ void __launch_bounds__(128, 5)                                                               \
        NAME(Matrix<const E> x, Matrix<const E> weight, Matrix<const f32> stats, Matrix<const E> dy, Matrix<E> dx,     \
             u32 is_accumulated, u32 teams) {                                                                          \
        if constexpr (sizeof(E) == 2) {                                                                                \
            if (teams != 0) {                                                                                          \
                norm_backward_input_in_chunks<LAYER, PLUS_ONE>(x, weight, stats, dy, dx, is_accumulated, teams);    \
                return;                                                                                                \
            }                                                                                                          \
        }                                                                                                              \
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

// Threads of a block of the gradient of weights.
constexpr u32 THREADS = 512;

// A vector of columns of the norm's rows of a group, which are added in ascending order.
template <u32 COUNT, typename E>
struct WeightTerms {
    Matrix<const E> x;
    Matrix<const f32> stats;
    Matrix<const E> dy;
    u32 heads;
    u32 width;
    u64 col;
    // The group's first row.
    u64 first_row;
    f32 weight_sums[COUNT];
    f32 bias_sums[COUNT];

    // Adds `BATCH` rows of the norm from number `first` of the group on; all are read before the first is added.
    template <u32 BATCH>
    __device__ void add(u32 first) {
        f32 inputs[BATCH][COUNT];
        f32 gradients[BATCH][COUNT];
        // Mean and reciprocal standard deviation of each.
        f32 of_rows[2 * BATCH];
        const f32 *from = stats.start + 2 * (first_row * heads + first);
        if constexpr (COUNT == 1) {
#pragma unroll
            for (u32 index = 0; index < 2 * BATCH; index++) {
                of_rows[index] = from[index];
            }
        } else {
            load(of_rows, from);
        }
#pragma unroll
        for (u32 index = 0; index < BATCH; index++) {
            const u32 number = first + index;
            const u32 row = heads == 1 ? number : number / heads;
            const u64 place = (u64)(number - row * heads) * width + col;
            load(inputs[index], x.row(first_row + row) + place);
            load(gradients[index], dy.row(first_row + row) + place);
        }
#pragma unroll
        for (u32 index = 0; index < BATCH; index++) {
#pragma unroll
            for (u32 i = 0; i < COUNT; i++) {
                const f32 normed = (inputs[index][i] - of_rows[2 * index]) * of_rows[2 * index + 1];
                weight_sums[i] = fmaf(normed, gradients[index][i], weight_sums[i]);
                bias_sums[i] = bias_sums[i] + gradients[index][i];
            }
        }
    }
};

// `dweight[C] += sum(dy * xhat)`, `dbias[C] += sum(dy)` over all rows of the norm.
template <u32 COUNT, typename E>
__device__ inline void norm_backward_weight(GroupSums<THREADS> &weight_groups, GroupSums<THREADS> &bias_groups,
                                            Matrix<const E> x, Matrix<const f32> stats, Matrix<const E> dy,
                                            Matrix<f32> dweight, Matrix<f32> dbias) {
    constexpr u32 BATCH = 4;
    const u32 width = (u32)dweight.cols;
    const u32 heads = (u32)x.cols / width;
    const u64 col = global_thread() * COUNT;
    const u64 count = (x.rows + GROUP_ROWS - 1) / GROUP_ROWS;
    for (u64 first = 0; first < count; first += blockDim.y) {
        const Group group(first + threadIdx.y, x.rows);
        WeightTerms<COUNT, E> terms = {x, stats, dy, heads, width, col, group.first, {}, {}};
        if (col < width) {
            const u32 rows = (u32)(group.end - group.first) * heads;
            u32 row = 0;
            for (; row + BATCH <= rows; row += BATCH) {
                terms.template add<BATCH>(row);
            }
            for (; row < rows; row++) {
                terms.template add<1>(row);
            }
        }
        weight_groups.put(terms.weight_sums);
        bias_groups.put(terms.bias_sums);
        __syncthreads();
        weight_groups.add_to<COUNT>(dweight, groups_of_turn(first, count));
        if (dbias.is_there()) {
            bias_groups.add_to<COUNT>(dbias, groups_of_turn(first, count));
        }
        __syncthreads();
    }
}

#define NORM_BACKWARD_WEIGHT(NAME, E)                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                           \
        NAME(Matrix<const E> x, Matrix<const f32> stats, Matrix<const E> dy, Matrix<f32> dweight, Matrix<f32> dbias,   \
             u32 count) {                                                                                              \
        __shared__ GroupSums<THREADS> weight_groups;                                                                   \
        __shared__ GroupSums<THREADS> bias_groups;                                                                     \
        if (count == 1) {                                                                                              \
            norm_backward_weight<1>(weight_groups, bias_groups, x, stats, dy, dweight, dbias);                         \
        } else {                                                                                                       \
            norm_backward_weight<IN_ACCESS<E>>(weight_groups, bias_groups, x, stats, dy, dweight, dbias);              \
        }                                                                                                              \
    }

NORM_BACKWARD_WEIGHT(norm_backward_weight_f32, f32)
NORM_BACKWARD_WEIGHT(norm_backward_weight_bf16, Bf16)
NORM_BACKWARD_WEIGHT(norm_backward_weight_f16, F16)
