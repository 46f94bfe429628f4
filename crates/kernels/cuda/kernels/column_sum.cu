// Sums over rows: `cpu::column_sum`.
#include "groups.cuh"

// Threads of a block.
constexpr u32 THREADS = 1024;

// Adds `BATCH` rows from `row` on to the sums of a vector of columns; all are read before the first is added.
template <u32 BATCH, u32 COUNT, typename E>
__device__ inline void add_rows(f32 (&sums)[COUNT], Matrix<const E> x, u64 row, u64 col) {
    f32 values[BATCH][COUNT];
#pragma unroll
    for (u32 index = 0; index < BATCH; index++) {
        load(values[index], x.row(row + index) + col);
    }
#pragma unroll
    for (u32 index = 0; index < BATCH; index++) {
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) {
            sums[i] = sums[i] + values[index][i];
        }
    }
}

// `out[N] += sum over rows of x[R,N]`
template <u32 COUNT, typename E>
__device__ inline void sum_columns(GroupSums<THREADS> &groups, Matrix<const E> x, Matrix<f32> out) {
    constexpr u32 BATCH = 8;
    const u64 col = global_thread() * COUNT;
    const u64 count = (x.rows + GROUP_ROWS - 1) / GROUP_ROWS;
    for (u64 first = 0; first < count; first += blockDim.y) {
        f32 sums[COUNT] = {};
        if (col < x.cols) {
            const Group group(first + threadIdx.y, x.rows);
            u64 row = group.first;
            for (; row + BATCH <= group.end; row += BATCH) {
                add_rows<BATCH>(sums, x, row, col);
            }
            for (; row < group.end; row++) {
                add_rows<1>(sums, x, row, col);
            }
        }
        groups.put(sums);
        __syncthreads();
        groups.add_to<COUNT>(out, groups_of_turn(first, count));
        __syncthreads();
    }
}

#define COLUMN_SUM(NAME, E)                                                                                            \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) NAME(Matrix<const E> x, Matrix<f32> out, u32 count) {     \
        __shared__ GroupSums<THREADS> groups;                                                                          \
        if (count == 1) {                                                                                              \
            sum_columns<1>(groups, x, out);                                                                            \
        } else {                                                                                                       \
            sum_columns<IN_ACCESS<E>>(groups, x, out);                                                                 \
        }                                                                                                              \
    }

COLUMN_SUM(column_sum_f32, f32)
COLUMN_SUM(column_sum_bf16, Bf16)
COLUMN_SUM(column_sum_f16, F16)
