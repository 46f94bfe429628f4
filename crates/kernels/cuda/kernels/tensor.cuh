// Tensors as kernels see them, and indices of threads.
//
// The dialect of these files: C++17 without a standard library; every operation on real numbers is one IEEE operation,
// rounded to nearest, and a multiply-add is fused only where fmaf or fma is written; no approximate instruction and no
// atomic operation on real numbers; subnormal numbers are kept.
#pragma once

#include "types.cuh"

// A matrix [rows, cols] whose rows begin `stride` elements apart; `start` is null in place of a tensor that an
// operation does not have. `launch::parameters` writes the same bytes.
template <typename E>
struct Matrix {
    E *start;
    u64 rows;
    u64 cols;
    u64 stride;

    __device__ E *row(u64 index) const {
        return start + index * stride;
    }

    // Elements.
    __device__ u64 len() const {
        return rows * cols;
    }

    __device__ bool is_there() const {
        return start != nullptr;
    }
};

// The number of this thread in a grid of one dimension.
__device__ inline u64 global_thread() {
    return (u64)blockIdx.x * blockDim.x + threadIdx.x;
}

// The number of threads of a grid of one dimension.
__device__ inline u64 grid_threads() {
    return (u64)gridDim.x * blockDim.x;
}
