// Loops over the elements of a matrix: columns along x, rows along y, for grids of any shape.
#pragma once

#include "tensor.cuh"

// Calls `body(row, col)` for every element once.
template <typename Body>
__device__ inline void for_each_element(u64 rows, u64 cols, Body body) {
    for (u64 row = (u64)blockIdx.y * blockDim.y + threadIdx.y; row < rows; row += (u64)gridDim.y * blockDim.y) {
        for (u64 col = global_thread(); col < cols; col += grid_threads()) {
            body(row, col);
        }
    }
}
