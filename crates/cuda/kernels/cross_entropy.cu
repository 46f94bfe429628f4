// Cross-entropy over logits that are sharded over the vocabulary, as `cpu::cross_entropy`: a block of threads per row.

#include "vectors.cuh"
#include "row_sum.cuh"

constexpr u32 THREADS = 256;
constexpr i32 IGNORED_LABEL = -100;
constexpr u32 NOWHERE = 0xffffffffu;

// Calls `body(number)` for the numbers of this thread's lane from `first` to `end`, in ascending order. Several are
// read before the first is used: a read takes longer than the work of one.
template <typename Body>
__device__ inline void for_each_of_lane(const f32* row, u32 first, u32 end, Body body) {
    constexpr u32 READS = 8;
    u32 i = first + team_lane();
    for (; i + (READS - 1) * TEAM < end; i += READS * TEAM) {
        f32 values[READS];
#pragma unroll
        for (u32 index = 0; index < READS; index++) {
            values[index] = row[i + index * TEAM];
        }
#pragma unroll
        for (u32 index = 0; index < READS; index++) {
            body(values[index]);
        }
    }
    for (; i < end; i += TEAM) {
        body(row[i]);
    }
}

// The sum of `term(number)` over a long row in the order of `row_sum`, by all teams of a block, which take a chunk each
// at a time. The result is that of thread 0.
template <typename Term>
__device__ f64 long_row_sum(const f32* row, u32 len, Term term) {
    constexpr u32 TEAMS = THREADS / TEAM;
    __shared__ f32 sums[TEAMS];
    const u32 team = threadIdx.x / TEAM;
    f64 total = 0.0;
    for (u32 first = 0; first < len; first += TEAMS * (u32)CHUNK) {
        const u32 chunk = first + team * (u32)CHUNK;
        const u32 end = min(len, chunk + (u32)CHUNK);
        f32 sum = 0.0f;
        for_each_of_lane(row, chunk, end, [&](f32 value) { sum = sum + term(value); });
        sum = team_sum(sum);
        if (team_lane() == 0) {
            sums[team] = sum;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            for (u32 index = 0; index < TEAMS; index++) {
                total = total + (f64)sums[index];
            }
        }
        __syncthreads();
    }
    return total;
}

// The same over a row whose fours are aligned: four threads have a chunk, each four neighbouring lanes.
template <typename Term>
__device__ f64 long_row_sum_in_fours(const f32* row, u32 len, Term term) {
    constexpr u32 QUAD = TEAM / FOUR;
    constexpr u32 CHUNKS = THREADS / QUAD;
    constexpr u32 READS = 4;
    __shared__ f32 sums[CHUNKS];
    f64 total = 0.0;
    for (u32 first = 0; first < len; first += CHUNKS * (u32)CHUNK) {
        const u32 chunk = first + threadIdx.x / QUAD * (u32)CHUNK;
        const u32 end = min(len, chunk + (u32)CHUNK);
        f32 lanes[FOUR] = {};
        u32 i = chunk + threadIdx.x % QUAD * FOUR;
        for (; i + (READS - 1) * TEAM + FOUR <= end; i += READS * TEAM) {
            f32 values[READS][FOUR];
#pragma unroll
            for (u32 index = 0; index < READS; index++) {
                load(values[index], row + i + index * TEAM);
            }
#pragma unroll
            for (u32 index = 0; index < READS; index++) {
#pragma unroll
                for (u32 lane = 0; lane < FOUR; lane++) {
                    lanes[lane] = lanes[lane] + term(values[index][lane]);
                }
            }
        }
        for (; i < end; i += TEAM) {
#pragma unroll
            for (u32 lane = 0; lane < FOUR; lane++) {
                if (i + lane < end) {
                    lanes[lane] = lanes[lane] + term(row[i + lane]);
                }
            }
        }
        // The tree 8, 4 between threads, and 2, 1 in each.
#pragma unroll
        for (u32 lane = 0; lane < FOUR; lane++) {
            lanes[lane] = lanes[lane] + __shfl_xor_sync(WHOLE_WARP, lanes[lane], 2, QUAD);
            lanes[lane] = lanes[lane] + __shfl_xor_sync(WHOLE_WARP, lanes[lane], 1, QUAD);
        }
        if (threadIdx.x % QUAD == 0) {
            sums[threadIdx.x / QUAD] = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            for (u32 index = 0; index < CHUNKS; index++) {
                total = total + (f64)sums[index];
            }
        }
        __syncthreads();
    }
    return total;
}

// The larger of two in the order of a row: of equal ones the later. A NaN restarts the maximum.
struct Largest {
    f32 value;
    bool restarts;
};

__device__ inline Largest then(Largest before, Largest after) {
    if (after.restarts) {
        return after;
    }
    return {math::larger(before.value, after.value), before.restarts};
}

// Where a label is among the valid columns of this rank, if it is.
__device__ inline u32 local_column(i32 label, u64 first_column, u32 valid_columns) {
    if (label < 0 || (u64)label < first_column || (u64)label - first_column >= valid_columns) {
        return NOWHERE;
    }
    return (u32)((u64)label - first_column);
}

// `out[row]`: the maximum of lanes `i % 16` in ascending order, then over the lanes by the tree 8, 4, 2, 1. Sixteen
// parts of a row are taken at once.
extern "C" __global__ void __launch_bounds__(THREADS)
row_max(Matrix<const f32> logits, u32 valid_columns, Matrix<f32> out) {
    __shared__ Largest parts[THREADS / TEAM][TEAM];
    const f32* row = logits.row(blockIdx.x);
    const u32 part = threadIdx.x / TEAM;
    const u32 steps = (valid_columns + THREADS - 1) / THREADS;
    const u32 first = part * steps * TEAM;
    const u32 end = min(valid_columns, first + steps * TEAM);
    Largest largest = {-math::infinity(), false};
    for_each_of_lane(row, first, end, [&](f32 value) {
        largest = {math::larger(largest.value, value), largest.restarts || value != value};
    });
    parts[part][team_lane()] = largest;
    __syncthreads();
    if (threadIdx.x >= 32) {
        return;
    }
    largest = parts[0][team_lane()];
    for (u32 index = 1; index < THREADS / TEAM; index++) {
        largest = then(largest, parts[index][team_lane()]);
    }
    const f32 value = team_max(largest.value);
    if (threadIdx.x == 0) {
        out.start[blockIdx.x] = value;
    }
}

// `sums[row]`: the sum of `exp(logit - max)` over the valid columns, and `logit - max` of the label.
extern "C" __global__ void __launch_bounds__(THREADS, 5)
sum_exp(Matrix<const f32> logits, u32 valid_columns, Matrix<const f32> max, Matrix<const i32> labels, u64 first_column,
        Matrix<f32> sums) {
    const f32* row = logits.row(blockIdx.x);
    const f32 largest = max.start[blockIdx.x];
    const auto term = [=](f32 value) { return math::exp(value - largest); };
    const f64 sum = has_vectors<FOUR>(logits) ? long_row_sum_in_fours(row, valid_columns, term)
                                              : long_row_sum(row, valid_columns, term);
    if (threadIdx.x == 0) {
        const u32 column = local_column(labels.start[blockIdx.x], first_column, valid_columns);
        sums.start[2 * blockIdx.x] = (f32)sum;
        sums.start[2 * blockIdx.x + 1] = column == NOWHERE ? 0.0f : row[column] - largest;
    }
}

// The z-losses of rows, where there are any.
struct ZLosses {
    Matrix<f32> losses;
    f32 coefficient;
};

// Values of a row that both kernels below read.
struct RowLoss {
    i32 label;
    f64 sum;
    f32 loss;
    f32 z_loss;
    // Factor of softmax in the gradient of both.
    f64 raised;
};

__device__ inline RowLoss row_loss(Matrix<const f32> max, Matrix<const f32> sums, Matrix<const i32> labels,
                                   const ZLosses& z_losses, u32 row) {
    const i32 label = labels.start[row];
    const f64 sum = (f64)sums.start[2 * row];
    const f64 target = (f64)sums.start[2 * row + 1];
    const f64 log_sum = math::log_f64(sum);
    const bool ignored = label == IGNORED_LABEL;
    RowLoss result = {label, sum, ignored ? 0.0f : (f32)(log_sum - target), 0.0f, 1.0};
    if (z_losses.losses.is_there()) {
        const f64 coefficient = (f64)z_losses.coefficient;
        const f64 log_sum_exp = (f64)max.start[row] + log_sum;
        result.z_loss = ignored ? 0.0f : (f32)(coefficient * log_sum_exp * log_sum_exp);
        result.raised = 1.0 + 2.0 * coefficient * log_sum_exp;
    }
    return result;
}

__device__ inline void store_losses(const RowLoss& result, Matrix<f32> loss, const ZLosses& z_losses, u32 row) {
    loss.start[row] = result.loss;
    if (z_losses.losses.is_there()) {
        z_losses.losses.start[row] = result.z_loss;
    }
}

// `loss[row]` and the z-loss: a thread per row.
extern "C" __global__ void __launch_bounds__(THREADS)
cross_entropy(Matrix<const f32> max, Matrix<const f32> sums, Matrix<const i32> labels, Matrix<f32> loss,
              Matrix<f32> z_losses, f32 z_coefficient) {
    const u32 row = blockIdx.x * THREADS + threadIdx.x;
    if (row < loss.len()) {
        const ZLosses of_rows = {z_losses, z_coefficient};
        store_losses(row_loss(max, sums, labels, of_rows, row), loss, of_rows, row);
    }
}

// Gradients of a row's logits: probabilities less the label's one, times the scale, and zeros in padding.
struct LogitGradients {
    u32 valid_columns;
    u32 target;
    f32 largest;
    f32 factor;
    f32 scale;

    __device__ f32 probability(f32 logit) const {
        return math::exp(logit - largest) * factor;
    }

    __device__ f32 of(f32 logit, u32 column) const {
        if (column >= valid_columns) {
            return 0.0f;
        }
        const f32 value = probability(logit);
        return column == target ? value - scale : value;
    }

};

// Writes the gradients of a row's fours `four + index * THREADS`; all are read before the first is written, since they
// may have the place of the logits.
template <u32 BATCH, typename E>
__device__ inline void write_batch(const f32* row, E* into, u32 four, const LogitGradients& gradients) {
    f32 values[BATCH][FOUR];
#pragma unroll
    for (u32 index = 0; index < BATCH; index++) {
        load(values[index], row + (four + index * THREADS) * FOUR);
    }
#pragma unroll
    for (u32 index = 0; index < BATCH; index++) {
#pragma unroll
        for (u32 i = 0; i < FOUR; i++) {
            values[index][i] = gradients.probability(values[index][i]);
        }
        store(into + (four + index * THREADS) * FOUR, values[index]);
    }
}

// Writes the gradients of the first fours of a row, none of them padding. The thread that has the label's one keeps its
// logit, and writes it last, rounded once.
template <typename E>
__device__ inline void write_fours(const f32* row, E* into, u32 fours, const LogitGradients& gradients) {
    constexpr u32 BATCH = 4;
    const bool has_target = gradients.target / FOUR < fours && gradients.target / FOUR % THREADS == threadIdx.x;
    const f32 logit = has_target ? row[gradients.target] : 0.0f;
    u32 four = threadIdx.x;
    for (; four + (BATCH - 1) * THREADS < fours; four += BATCH * THREADS) {
        write_batch<BATCH>(row, into, four, gradients);
    }
    for (; four < fours; four += THREADS) {
        write_batch<1>(row, into, four, gradients);
    }
    if (has_target) {
        into[gradients.target] = narrow<E>(gradients.probability(logit) - gradients.scale);
    }
}

// The same, and `gradient = (softmax - onehot) * scale`, zero in rows of ignored labels and in padded columns. In
// single precision it may have the place of the logits.
template <typename E>
__device__ inline void write_gradient(Matrix<const f32> logits, u32 valid_columns, Matrix<E> gradient,
                                      Matrix<const f32> max, Matrix<const f32> sums, Matrix<const i32> labels,
                                      u64 first_column, f32 scale, Matrix<f32> loss, const ZLosses& of_rows) {
    __shared__ RowLoss shared;
    if (threadIdx.x == 0) {
        shared = row_loss(max, sums, labels, of_rows, blockIdx.x);
        store_losses(shared, loss, of_rows, blockIdx.x);
    }
    __syncthreads();
    const f32* row = logits.row(blockIdx.x);
    E* into = gradient.row(blockIdx.x);
    const u32 columns = (u32)logits.cols;
    if (shared.label == IGNORED_LABEL) {
        for (u32 i = threadIdx.x; i < columns; i += THREADS) {
            into[i] = narrow<E>(0.0f);
        }
        return;
    }
    const LogitGradients gradients = {valid_columns,
                                      local_column(shared.label, first_column, valid_columns),
                                      max.start[blockIdx.x],
                                      (f32)((f64)scale * shared.raised / shared.sum),
                                      scale};
    const u32 fours = has_vectors<FOUR>(logits) && has_vectors<FOUR>(gradient) ? valid_columns / FOUR : 0;
    write_fours(row, into, fours, gradients);
    for (u32 i = fours * FOUR + threadIdx.x; i < columns; i += THREADS) {
        into[i] = narrow<E>(gradients.of(row[i], i));
    }
}

#define GRADIENT(NAME, E)                                                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS, 4)                                                           \
    NAME(Matrix<const f32> logits, u32 valid_columns, Matrix<E> gradient, Matrix<const f32> max,                       \
         Matrix<const f32> sums, Matrix<const i32> labels, u64 first_column, f32 scale, Matrix<f32> loss,              \
         Matrix<f32> z_losses, f32 z_coefficient) {                                                                    \
        write_gradient<E>(logits, valid_columns, gradient, max, sums, labels, first_column, scale, loss,               \
                          ZLosses{z_losses, z_coefficient});                                                           \
    }

GRADIENT(cross_entropy_gradient_f32, f32)
GRADIENT(cross_entropy_gradient_bf16, Bf16)
GRADIENT(cross_entropy_gradient_f16, F16)
