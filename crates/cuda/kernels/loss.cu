// Cross-entropy over logits that are sharded over the vocabulary, as `cpu::cross_entropy`: a block of threads per row.

#include "row_sum.cuh"
#include "math.cuh"

constexpr u32 THREADS = 256;
constexpr i32 IGNORED_LABEL = -100;
constexpr u32 NOWHERE = 0xffffffffu;

// The larger of two in the order of a row: of equal ones the later, and what comes after the last one that is no number.
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

// `out[row]`: the maximum of lanes `i % 16` in ascending order, then over the lanes by the tree 8, 4, 2, 1. Sixteen parts
// of a row are taken at once.
extern "C" __global__ void __launch_bounds__(THREADS)
row_max(const f32* logits, u64 row_stride, u32 valid_columns, f32* out) {
    __shared__ Largest parts[THREADS / LANES][LANES];
    const f32* row = logits + blockIdx.x * row_stride;
    const u32 lane = threadIdx.x % LANES;
    const u32 part = threadIdx.x / LANES;
    const u32 steps = (valid_columns + THREADS - 1) / THREADS;
    const u32 first = part * steps * LANES;
    const u32 end = min(valid_columns, first + steps * LANES);
    Largest largest = {-math::infinity(), false};
    for (u32 i = first + lane; i < end; i += LANES) {
        const f32 value = row[i];
        largest = {math::larger(largest.value, value), largest.restarts || value != value};
    }
    parts[part][lane] = largest;
    __syncthreads();
    if (threadIdx.x >= 32) {
        return;
    }
    largest = parts[0][lane];
    for (u32 index = 1; index < THREADS / LANES; index++) {
        largest = then(largest, parts[index][lane]);
    }
    f32 value = largest.value;
#pragma unroll
    for (u32 width = LANES / 2; width > 0; width /= 2) {
        value = math::larger(value, __shfl_down_sync(ALL_LANES, value, width));
    }
    if (threadIdx.x == 0) {
        out[blockIdx.x] = value;
    }
}

// `sums[row]`: the sum of `exp(logit - max)` over the valid columns, and `logit - max` of the label.
extern "C" __global__ void __launch_bounds__(THREADS)
sum_exp(const f32* logits, u64 row_stride, u32 valid_columns, const f32* max, const i32* labels, u64 first_column,
        f32* sums) {
    const f32* row = logits + blockIdx.x * row_stride;
    const f32 largest = max[blockIdx.x];
    const f64 sum = row_sum<THREADS>(valid_columns, [=](u32 i) { return math::exp(row[i] - largest); });
    if (threadIdx.x == 0) {
        const u32 column = local_column(labels[blockIdx.x], first_column, valid_columns);
        sums[2 * blockIdx.x] = (f32)sum;
        sums[2 * blockIdx.x + 1] = column == NOWHERE ? 0.0f : row[column] - largest;
    }
}

// What both kernels below need of a row.
struct RowLoss {
    i32 label;
    f64 sum;
    f32 loss;
};

__device__ inline RowLoss row_loss(const f32* sums, const i32* labels, u32 row) {
    const i32 label = labels[row];
    const f64 sum = (f64)sums[2 * row];
    const f64 target = (f64)sums[2 * row + 1];
    return {label, sum, label == IGNORED_LABEL ? 0.0f : (f32)(math::log_f64(sum) - target)};
}

// `loss[row]`: a thread per row.
extern "C" __global__ void __launch_bounds__(THREADS)
cross_entropy(u32 rows, const f32* sums, const i32* labels, f32* loss) {
    const u32 row = blockIdx.x * THREADS + threadIdx.x;
    if (row < rows) {
        loss[row] = row_loss(sums, labels, row).loss;
    }
}

// The same, and `logits = (softmax - onehot) * scale`, zero in rows of ignored labels and in padded columns.
extern "C" __global__ void __launch_bounds__(THREADS)
cross_entropy_gradient(f32* logits, u64 row_stride, u32 columns, u32 valid_columns, const f32* max, const f32* sums,
                       const i32* labels, u64 first_column, f32 scale, f32* loss) {
    __shared__ RowLoss shared;
    if (threadIdx.x == 0) {
        shared = row_loss(sums, labels, blockIdx.x);
        loss[blockIdx.x] = shared.loss;
    }
    __syncthreads();
    f32* row = logits + blockIdx.x * row_stride;
    const i32 label = shared.label;
    const bool ignored = label == IGNORED_LABEL;
    const u32 target = local_column(label, first_column, valid_columns);
    const f32 factor = (f32)((f64)scale / shared.sum);
    const f32 largest = max[blockIdx.x];
    for (u32 i = threadIdx.x; i < columns; i += THREADS) {
        f32 value = 0.0f;
        if (!ignored && i < valid_columns) {
            value = math::exp(row[i] - largest) * factor;
            value = i == target ? value - scale : value;
        }
        row[i] = value;
    }
}
