// Loops over the elements of matrices of one type of real numbers, four neighbours to a thread where rows are aligned
// so that four are one access.
#pragma once

#include "element.cuh"
#include "tensor.cuh"

constexpr u32 FOUR = 4;

// Reads one number.
template <typename E>
__device__ inline void load(f32 (&values)[1], const E *from) {
    values[0] = widen(*from);
}

template <typename E>
__device__ inline void store(E *to, const f32 (&values)[1]) {
    *to = narrow<E>(values[0]);
}

// Reads four numbers in one access.
__device__ inline void load(f32 (&values)[FOUR], const f32 *from) {
    const float4 four = *reinterpret_cast<const float4 *>(from);
    values[0] = four.x;
    values[1] = four.y;
    values[2] = four.z;
    values[3] = four.w;
}

template <typename E>
__device__ inline void load(f32 (&values)[FOUR], const E *from) {
    const uint2 four = *reinterpret_cast<const uint2 *>(from);
    values[0] = widen(E{(u16)four.x});
    values[1] = widen(E{(u16)(four.x >> 16)});
    values[2] = widen(E{(u16)four.y});
    values[3] = widen(E{(u16)(four.y >> 16)});
}

__device__ inline void store(f32 *to, const f32 (&values)[FOUR]) {
    *reinterpret_cast<float4 *>(to) = {values[0], values[1], values[2], values[3]};
}

template <typename E>
__device__ inline u32 pair_of(f32 low, f32 high) {
    return (u32)narrow<E>(low).bits | (u32)narrow<E>(high).bits << 16;
}

template <typename E>
__device__ inline void store(E *to, const f32 (&values)[FOUR]) {
    *reinterpret_cast<uint2 *>(to) = {pair_of<E>(values[0], values[1]), pair_of<E>(values[2], values[3])};
}

// Whether four elements from a multiple of four on are one access in every row. True of a tensor that is not there.
template <typename E>
__device__ inline bool has_fours(Matrix<E> matrix) {
    const u64 distance = matrix.rows > 1 ? matrix.stride * sizeof(E) : 0;
    return ((u64)matrix.start | distance) % (FOUR * sizeof(E)) == 0;
}

// Calls `body.at<FOUR>(row, col)` for four elements from `col` on, where rows are aligned, and `body.at<1>(row, col)`
// for the others: each element once.
template <typename Body>
__device__ inline void for_each_four(u64 rows, u64 cols, bool in_fours, const Body &body) {
    const u64 fours = in_fours ? cols / FOUR : 0;
    for (u64 row = (u64)blockIdx.y * blockDim.y + threadIdx.y; row < rows; row += (u64)gridDim.y * blockDim.y) {
        for (u64 four = global_thread(); four < fours; four += grid_threads()) {
            body.template at<FOUR>(row, four * FOUR);
        }
        for (u64 col = fours * FOUR + global_thread(); col < cols; col += grid_threads()) {
            body.template at<1>(row, col);
        }
    }
}
