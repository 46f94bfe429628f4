// Cross-entropy over logits that are sharded over the vocabulary, as `cpu::cross_entropy`: a block of threads per row.

#include "vectors.cuh"
#include "row_sum.cuh"

constexpr u32 THREADS = 256;
constexpr i32 IGNORED_LABEL = -100;
constexpr u32 NOWHERE = 0xffffffffu;

// Calls `body(index, number)` for the numbers of this thread's lane from `first` to `end`, in ascending order. Several
// are read before the first is used: a read takes longer than the work of one.
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
            body(i + index * TEAM, values[index]);
        }
    }
    for (; i < end; i += TEAM) {
        body(i, row[i]);
    }
}

// The sum of `term(index, number)` over a long row in the order of `row_sum`, by all teams of a block of `BLOCK`
// threads, which take a chunk each at a time. The result is that of thread 0.
template <u32 BLOCK, typename Term>
__device__ f64 long_row_sum(const f32* row, u32 len, Term term) {
    constexpr u32 TEAMS = BLOCK / TEAM;
    __shared__ f32 sums[TEAMS];
    const u32 team = threadIdx.x / TEAM;
    f64 total = 0.0;
    for (u32 first = 0; first < len; first += TEAMS * (u32)CHUNK) {
        const u32 chunk = first + team * (u32)CHUNK;
        const u32 end = min(len, chunk + (u32)CHUNK);
        f32 sum = 0.0f;
        for_each_of_lane(row, chunk, end, [&](u32 i, f32 value) { sum = sum + term(i, value); });
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
                    lanes[lane] = lanes[lane] + term(i + index * TEAM + lane, values[index][lane]);
                }
            }
        }
        for (; i < end; i += TEAM) {
#pragma unroll
            for (u32 lane = 0; lane < FOUR; lane++) {
                if (i + lane < end) {
                    lanes[lane] = lanes[lane] + term(i + lane, row[i + lane]);
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

// The maximum of lanes `i % 16` in ascending order, then over the lanes by the tree 8, 4, 2, 1, in every thread of a
// block of `BLOCK`. Each team takes a part of the row.
template <u32 BLOCK>
__device__ f32 largest_of_row(const f32* row, u32 valid_columns) {
    constexpr u32 PARTS = BLOCK / TEAM;
    // Eight parts are joined by a team, and then the results.
    constexpr u32 TOGETHER = 8;
    __shared__ Largest parts[PARTS][TEAM];
    const u32 part = threadIdx.x / TEAM;
    const u32 steps = (valid_columns + BLOCK - 1) / BLOCK;
    const u32 first = part * steps * TEAM;
    const u32 end = min(valid_columns, first + steps * TEAM);
    Largest largest = {-math::infinity(), false};
    for_each_of_lane(row, first, end, [&](u32, f32 value) {
        largest = {math::larger(largest.value, value), largest.restarts || value != value};
    });
    parts[part][team_lane()] = largest;
    __syncthreads();
    const bool joins = part < PARTS / TOGETHER;
    if (joins) {
        largest = parts[part * TOGETHER][team_lane()];
        for (u32 index = 1; index < TOGETHER; index++) {
            largest = then(largest, parts[part * TOGETHER + index][team_lane()]);
        }
    }
    __syncthreads();
    if (joins) {
        parts[part][team_lane()] = largest;
    }
    __syncthreads();
    largest = parts[0][team_lane()];
    for (u32 index = 1; index < PARTS / TOGETHER; index++) {
        largest = then(largest, parts[index][team_lane()]);
    }
    return team_max(largest.value);
}

// `out[row]`: the maximum of a row.
extern "C" __global__ void __launch_bounds__(THREADS)
row_max(Matrix<const f32> logits, u32 valid_columns, Matrix<f32> out) {
    const f32 largest = largest_of_row<THREADS>(logits.row(blockIdx.x), valid_columns);
    if (threadIdx.x == 0) {
        out.start[blockIdx.x] = largest;
    }
}

// `sums[row]`: the sum of `exp(logit - max)` over the valid columns, and `logit - max` of the label.
extern "C" __global__ void __launch_bounds__(THREADS, 5)
sum_exp(Matrix<const f32> logits, u32 valid_columns, Matrix<const f32> max, Matrix<const i32> labels, u64 first_column,
        Matrix<f32> sums) {
    const f32* row = logits.row(blockIdx.x);
    const f32 largest = max.start[blockIdx.x];
    const auto term = [=](u32, f32 value) { return math::exp(value - largest); };
    const f64 sum = has_vectors<FOUR>(logits) ? long_row_sum_in_fours(row, valid_columns, term)
                                              : long_row_sum<THREADS>(row, valid_columns, term);
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

// Values of a row over all ranks: its maximum, the sum of powers, and the label's logit less the maximum.
struct RowStatistics {
    f32 largest;
    f32 sum;
    f32 target;
};

// Values of a row that all threads read.
struct RowLoss {
    i32 label;
    f64 sum;
    f32 loss;
    f32 z_loss;
    // Factor of softmax in the gradient of both.
    f64 raised;
};

__device__ inline RowLoss row_loss(const RowStatistics& statistics, i32 label, const ZLosses& z_losses) {
    const f64 sum = (f64)statistics.sum;
    const f64 log_sum = math::log_f64(sum);
    const bool ignored = label == IGNORED_LABEL;
    RowLoss result = {label, sum, ignored ? 0.0f : (f32)(log_sum - (f64)statistics.target), 0.0f, 1.0};
    if (z_losses.losses.is_there()) {
        const f64 coefficient = (f64)z_losses.coefficient;
        const f64 log_sum_exp = (f64)statistics.largest + log_sum;
        result.z_loss = ignored ? 0.0f : (f32)(coefficient * log_sum_exp * log_sum_exp);
        result.raised = 1.0 + 2.0 * coefficient * log_sum_exp;
    }
    return result;
}

// The same for statistics in memory.
__device__ inline RowLoss row_loss(Matrix<const f32> max, Matrix<const f32> sums, Matrix<const i32> labels,
                                   const ZLosses& z_losses, u32 row) {
    return row_loss({max.start[row], sums.start[2 * row], sums.start[2 * row + 1]}, labels.start[row], z_losses);
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

// The gradients of a row's logits: powers times the factor, of the label's one the scale is subtracted, and zeros in
// padding. A row with an ignored label is padding alone.
struct LogitGradients {
    u32 columns;
    u32 valid_columns;
    f32 factor;

    __device__ LogitGradients(const RowLoss& loss, u32 columns, u32 valid_columns, f32 scale)
        : columns(columns), valid_columns(loss.label == IGNORED_LABEL ? 0 : valid_columns),
          factor((f32)((f64)scale * loss.raised / loss.sum)) {}
};

// Stores the gradients of a row's fours `four + index * BLOCK`; all are read before the first is written.
template <u32 BLOCK, u32 BATCH, typename Power, typename E>
__device__ inline void store_batch(const f32* from, E* out, u32 four, f32 factor, Power power) {
    f32 values[BATCH][FOUR];
#pragma unroll
    for (u32 index = 0; index < BATCH; index++) {
        load(values[index], from + (four + index * BLOCK) * FOUR);
    }
#pragma unroll
    for (u32 index = 0; index < BATCH; index++) {
#pragma unroll
        for (u32 i = 0; i < FOUR; i++) {
            values[index][i] = power(values[index][i]) * factor;
        }
        store(out + (four + index * BLOCK) * FOUR, values[index]);
    }
}

// Stores the gradients of a row of which `power(from[i])` are the powers, but for what is subtracted of the label's
// one. `out` may be `from`.
template <u32 BLOCK, typename Power, typename E>
__device__ inline void store_gradients(const f32* from, E* out, bool in_vectors, const LogitGradients& gradients,
                                       Power power) {
    constexpr u32 BATCH = 4;
    const u32 fours = in_vectors ? gradients.valid_columns / FOUR : 0;
    u32 four = threadIdx.x;
    for (; four + (BATCH - 1) * BLOCK < fours; four += BATCH * BLOCK) {
        store_batch<BLOCK, BATCH>(from, out, four, gradients.factor, power);
    }
    for (; four < fours; four += BLOCK) {
        store_batch<BLOCK, 1>(from, out, four, gradients.factor, power);
    }
    for (u32 i = fours * FOUR + threadIdx.x; i < gradients.columns; i += BLOCK) {
        out[i] = narrow<E>(i < gradients.valid_columns ? power(from[i]) * gradients.factor : 0.0f);
    }
}

// Stores the label's gradient, after all others: thread 0.
template <typename E>
__device__ inline void store_target(E* out, u32 target, f32 power, f32 factor, f32 scale) {
    __syncthreads();
    if (threadIdx.x == 0 && target != NOWHERE) {
        out[target] = narrow<E>(power * factor - scale);
    }
}

// The same, and `out = (softmax - onehot) * scale`, zero in rows of ignored labels and in padded columns.
template <typename E>
__device__ inline void gradient_of_row(Matrix<const f32> logits, u32 valid_columns, Matrix<const f32> max,
                                       Matrix<const f32> sums, Matrix<const i32> labels, u64 first_column, f32 scale,
                                       Matrix<f32> loss, const ZLosses& z_losses, Matrix<E> out) {
    __shared__ RowLoss shared;
    const u32 target = local_column(labels.start[blockIdx.x], first_column, valid_columns);
    const f32* row = logits.row(blockIdx.x);
    const f32 largest = max.start[blockIdx.x];
    f32 of_target = 0.0f;
    if (threadIdx.x == 0) {
        shared = row_loss(max, sums, labels, z_losses, blockIdx.x);
        store_losses(shared, loss, z_losses, blockIdx.x);
        of_target = target == NOWHERE ? 0.0f : math::exp(row[target] - largest);
    }
    __syncthreads();
    const LogitGradients gradients(shared, (u32)logits.cols, valid_columns, scale);
    const auto power = [=](f32 logit) { return math::exp(logit - largest); };
    E* to = out.row(blockIdx.x);
    store_gradients<THREADS>(row, to, has_vectors<FOUR>(logits) && has_vectors<FOUR>(out), gradients, power);
    store_target(to, target, of_target, gradients.factor, scale);
}

#define GRADIENT(NAME, E)                                                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS, 4)                                                           \
        NAME(Matrix<const f32> logits, u32 valid_columns, Matrix<const f32> max, Matrix<const f32> sums,               \
             Matrix<const i32> labels, u64 first_column, f32 scale, Matrix<f32> loss, Matrix<f32> z_losses,            \
             f32 z_coefficient, Matrix<E> out) {                                                                       \
        gradient_of_row<E>(logits, valid_columns, max, sums, labels, first_column, scale, loss,                        \
                           {z_losses, z_coefficient}, out);                                                            \
    }

GRADIENT(cross_entropy_gradient_f32, f32)
GRADIENT(cross_entropy_gradient_bf16, Bf16)
GRADIENT(cross_entropy_gradient_f16, F16)

// Where a row is read again: in shared memory, which then has its powers, or in memory.
enum class Again : u32 { IN_SHARED, IN_MEMORY };

// The operands of a whole row's loss.
template <typename E>
struct WholeRow {
    Matrix<const f32> logits;
    u32 valid_columns;
    Matrix<const i32> labels;
    u64 first_column;
    f32 scale;
    Matrix<f32> loss;
    ZLosses z_losses;
    // Not there where no gradient is asked for.
    Matrix<E> out;

    // Copies the row to shared memory.
    template <u32 BLOCK>
    __device__ void stage(f32* to) const {
        const f32* row = logits.row(blockIdx.x);
        const u32 fours = has_vectors<FOUR>(logits) ? valid_columns / FOUR : 0;
        for (u32 four = threadIdx.x; four < fours; four += BLOCK) {
            *reinterpret_cast<float4*>(to + four * FOUR) = *reinterpret_cast<const float4*>(row + four * FOUR);
        }
        for (u32 i = fours * FOUR + threadIdx.x; i < valid_columns; i += BLOCK) {
            to[i] = row[i];
        }
        __syncthreads();
    }

    // The loss and the gradient of a row, which is at `from` as well.
    template <u32 BLOCK, Again AGAIN>
    __device__ void run(f32* staged) const {
        __shared__ RowLoss shared;
        const f32* from = logits.row(blockIdx.x);
        if constexpr (AGAIN == Again::IN_SHARED) {
            stage<BLOCK>(staged);
            from = staged;
        }
        const i32 label = labels.start[blockIdx.x];
        const u32 target = local_column(label, first_column, valid_columns);
        const f32 largest = largest_of_row<BLOCK>(from, valid_columns);
        const f32 of_target = target == NOWHERE ? largest : from[target];
        __syncthreads();
        const f64 sum = long_row_sum<BLOCK>(from, valid_columns, [=](u32 i, f32 logit) {
            const f32 power = math::exp(logit - largest);
            if constexpr (AGAIN == Again::IN_SHARED) {
                staged[i] = power;
            }
            return power;
        });
        if (threadIdx.x == 0) {
            const f32 distance = target == NOWHERE ? 0.0f : of_target - largest;
            shared = row_loss({largest, (f32)sum, distance}, label, z_losses);
            store_losses(shared, loss, z_losses, blockIdx.x);
        }
        __syncthreads();
        if (!out.is_there()) {
            return;
        }
        const LogitGradients gradients(shared, (u32)logits.cols, valid_columns, scale);
        E* to = out.row(blockIdx.x);
        const bool in_vectors = has_vectors<FOUR>(logits) && has_vectors<FOUR>(out);
        if constexpr (AGAIN == Again::IN_SHARED) {
            store_gradients<BLOCK>(from, to, in_vectors, gradients, [](f32 power) { return power; });
        } else {
            store_gradients<BLOCK>(from, to, in_vectors, gradients,
                                   [=](f32 logit) { return math::exp(logit - largest); });
        }
        store_target(to, target, math::exp(of_target - largest), gradients.factor, scale);
    }

    template <u32 BLOCK>
    __device__ void run(Again again) const {
        extern __shared__ __align__(16) f32 row_in_shared[];
        switch (again) {
        case Again::IN_SHARED:
            return run<BLOCK, Again::IN_SHARED>(row_in_shared);
        case Again::IN_MEMORY:
            return run<BLOCK, Again::IN_MEMORY>(nullptr);
        }
    }
};

// Losses of rows that have all columns of the vocabulary, and their gradients: a block of `BLOCK` threads per row.
#define WHOLE_ROWS(NAME, BLOCK, E)                                                                                     \
    extern "C" __global__ void __launch_bounds__(BLOCK)                                                                \
        NAME(Matrix<const f32> logits, u32 valid_columns, Matrix<const i32> labels, u64 first_column, f32 scale,       \
             Matrix<f32> loss, Matrix<f32> z_losses, f32 z_coefficient, Matrix<E> out, Again again) {                  \
        const WholeRow<E> row = {logits, valid_columns, labels, first_column, scale, loss, {z_losses, z_coefficient},  \
                                 out};                                                                                 \
        row.template run<BLOCK>(again);                                                                                \
    }

WHOLE_ROWS(cross_entropy_rows_256_f32, 256, f32)
WHOLE_ROWS(cross_entropy_rows_256_bf16, 256, Bf16)
WHOLE_ROWS(cross_entropy_rows_256_f16, 256, F16)
WHOLE_ROWS(cross_entropy_rows_1024_f32, 1024, f32)
WHOLE_ROWS(cross_entropy_rows_1024_bf16, 1024, Bf16)
WHOLE_ROWS(cross_entropy_rows_1024_f16, 1024, F16)
