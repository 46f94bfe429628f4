// Sums over rows: `cpu::column_sum`.
#include "element.cuh"
#include "groups.cuh"

// `out[N] += sum over rows of x[R,N]`
template <typename E>
__device__ inline void sum_columns(Matrix<const E> x, Matrix<f32> out) {
    __shared__ GroupSums groups;
    const u64 col = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    const bool is_inside = col < x.cols;
    const u64 count = (x.rows + GROUP_ROWS - 1) / GROUP_ROWS;
    for (u64 first = 0; first < count; first += blockDim.y) {
        const u64 row = (first + threadIdx.y) * GROUP_ROWS;
        const u64 end = row + GROUP_ROWS < x.rows ? row + GROUP_ROWS : x.rows;
        f32 sum = 0.0f;
        if (is_inside) {
#pragma unroll 8
            for (u64 r = row; r < end; r++) {
                sum = sum + widen(x.row(r)[col]);
            }
        }
        groups.own() = sum;
        __syncthreads();
        if (threadIdx.y == 0 && is_inside) {
            add_groups(groups, groups_of_turn(first, count), out.start + col);
        }
        __syncthreads();
    }
}

#define COLUMN_SUM(NAME, E)                                                                                            \
    extern "C" __global__ void __launch_bounds__(1024, 1) NAME(Matrix<const E> x, Matrix<f32> out) {                   \
        sum_columns(x, out);                                                                                           \
    }

COLUMN_SUM(column_sum_f32, f32)
COLUMN_SUM(column_sum_bf16, Bf16)
COLUMN_SUM(column_sum_f16, F16)
