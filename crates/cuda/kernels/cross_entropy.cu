// Cross-entropy over logits that are sharded over the vocabulary, as `cpu::cross_entropy`: a block of threads per row.

#include "vectors.cuh"
#include "row_sum.cuh"

constexpr u32 THREADS = 256;
constexpr i32 IGNORED_LABEL = -100;
constexpr u32 NOWHERE = 0xffffffffu;

// The sum of `term(i)` over a long row in the order of `row_sum`, by all teams of a block, which take a chunk each at a
// time. The result is that of thread 0.
template <typename Term>
__device__ f64 long_row_sum(u32 len, Term term) {
    constexpr u32 TEAMS = THREADS / TEAM;
    __shared__ f32 sums[TEAMS];
    const u32 team = threadIdx.x / TEAM;
    f64 total = 0.0;
    for (u32 first = 0; first < len; first += TEAMS * (u32)CHUNK) {
        const u32 chunk = first + team * (u32)CHUNK;
        const u32 end = min(len, chunk + (u32)CHUNK);
        f32 sum = 0.0f;
        for (u32 i = chunk + team_lane(); i < end; i += TEAM) {
            sum = sum + term(i);
        }
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
    for (u32 i = first + team_lane(); i < end; i += TEAM) {
        const f32 value = row[i];
        largest = {math::larger(largest.value, value), largest.restarts || value != value};
    }
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
extern "C" __global__ void __launch_bounds__(THREADS)
sum_exp(Matrix<const f32> logits, u32 valid_columns, Matrix<const f32> max, Matrix<const i32> labels, u64 first_column,
        Matrix<f32> sums) {
    const f32* row = logits.row(blockIdx.x);
    const f32 largest = max.start[blockIdx.x];
    const f64 sum = long_row_sum(valid_columns, [=](u32 i) { return math::exp(row[i] - largest); });
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

// Probabilities of a row less the label's one, times the scale; zeros in a row of an ignored label and in padding.
struct LogitGradients {
    u32 valid_columns;
    u32 target;
    f32 largest;
    f32 factor;
    f32 scale;
    bool ignored;

    __device__ f32 of(f32 logit, u32 column) const {
        if (ignored || column >= valid_columns) {
            return 0.0f;
        }
        const f32 value = math::exp(logit - largest) * factor;
        return column == target ? value - scale : value;
    }
};

// The same, and `logits = (softmax - onehot) * scale`, zero in rows of ignored labels and in padded columns.
extern "C" __global__ void __launch_bounds__(THREADS)
cross_entropy_gradient(Matrix<f32> logits, u32 valid_columns, Matrix<const f32> max, Matrix<const f32> sums,
                       Matrix<const i32> labels, u64 first_column, f32 scale, Matrix<f32> loss,
                       Matrix<f32> z_losses, f32 z_coefficient) {
    __shared__ RowLoss shared;
    if (threadIdx.x == 0) {
        const ZLosses of_rows = {z_losses, z_coefficient};
        shared = row_loss(max, sums, labels, of_rows, blockIdx.x);
        store_losses(shared, loss, of_rows, blockIdx.x);
    }
    __syncthreads();
    f32* row = logits.row(blockIdx.x);
    const LogitGradients gradients = {valid_columns,
                                      local_column(shared.label, first_column, valid_columns),
                                      max.start[blockIdx.x],
                                      (f32)((f64)scale * shared.raised / shared.sum),
                                      scale,
                                      shared.label == IGNORED_LABEL};
    const u32 fours = has_vectors<FOUR>(logits) ? (u32)logits.cols / FOUR : 0;
    for (u32 four = threadIdx.x; four < fours; four += THREADS) {
        f32 values[FOUR];
        load(values, row + four * FOUR);
#pragma unroll
        for (u32 i = 0; i < FOUR; i++) {
            values[i] = gradients.of(values[i], four * FOUR + i);
        }
        store(row + four * FOUR, values);
    }
    for (u32 i = fours * FOUR + threadIdx.x; i < logits.cols; i += THREADS) {
        row[i] = gradients.of(row[i], i);
    }
}
