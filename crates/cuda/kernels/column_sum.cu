// Sums over rows: `cpu::column_sum`.
#include "groups.cuh"

// `out[N] += sum over rows of x[R,N]`
extern "C" __global__ void __launch_bounds__(1024, 1) column_sum(Matrix<const f32> x, Matrix<f32> out) {
    __shared__ GroupSums groups;
    const u64 col = (u64)blockIdx.x * GROUP_COLS + threadIdx.x;
    const bool is_inside = col < x.cols;
    const u64 count = (x.rows + GROUP_ROWS - 1) / GROUP_ROWS;
    for (u64 first = 0; first < count; first += blockDim.y) {
        const u64 row = (first + threadIdx.y) * GROUP_ROWS;
        const u64 end = row + GROUP_ROWS < x.rows ? row + GROUP_ROWS : x.rows;
        f32 sum = 0.0f;
        if (is_inside) {
#pragma unroll 8
            for (u64 r = row; r < end; r++) {
                sum = sum + x.row(r)[col];
            }
        }
        groups.sums[threadIdx.y][threadIdx.x] = sum;
        __syncthreads();
        if (threadIdx.y == 0 && is_inside) {
            add_groups(groups, groups_of_turn(first, count), out.start + col);
        }
        __syncthreads();
    }
}
