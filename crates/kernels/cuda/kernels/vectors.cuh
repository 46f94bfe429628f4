// Loops over the elements of matrices of real numbers, several neighbours to a thread where rows are aligned so that
// they are whole accesses of 8 or 16 bytes.
#pragma once

#include "element.cuh"
#include "tensor.cuh"

constexpr u32 FOUR = 4;
constexpr u32 EIGHT = 8;

// Elements of one type in an access of 16 bytes, the largest of a thread.
template <typename E>
constexpr u32 IN_ACCESS = 16 / sizeof(E);

// Reads one number.
template <typename E>
__device__ inline void load(f32 (&values)[1], const E *from) {
    values[0] = widen(*from);
}

template <typename E>
__device__ inline void store(E *to, const f32 (&values)[1]) {
    *to = narrow<E>(values[0]);
}

// Reads two numbers that need not be aligned together.
template <typename E>
__device__ inline void load(f32 (&values)[2], const E *from) {
    values[0] = widen(from[0]);
    values[1] = widen(from[1]);
}

template <typename E>
__device__ inline void store(E *to, const f32 (&values)[2]) {
    to[0] = narrow<E>(values[0]);
    to[1] = narrow<E>(values[1]);
}

// Numbers that one word has, and the word of two numbers.
template <typename E>
__device__ inline void unpack(f32 &low, f32 &high, u32 word) {
    low = widen(E{(u16)word});
    high = widen(E{(u16)(word >> 16)});
}

template <typename E>
__device__ inline u32 pair_of(f32 low, f32 high) {
    return (u32)narrow<E>(low).bits | (u32)narrow<E>(high).bits << 16;
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
    const uint2 words = *reinterpret_cast<const uint2 *>(from);
    unpack<E>(values[0], values[1], words.x);
    unpack<E>(values[2], values[3], words.y);
}

__device__ inline void store(f32 *to, const f32 (&values)[FOUR]) {
    *reinterpret_cast<float4 *>(to) = {values[0], values[1], values[2], values[3]};
}

template <typename E>
__device__ inline void store(E *to, const f32 (&values)[FOUR]) {
    *reinterpret_cast<uint2 *>(to) = {pair_of<E>(values[0], values[1]), pair_of<E>(values[2], values[3])};
}

// Reads eight numbers: one access of narrow ones, two of others.
__device__ inline void load(f32 (&values)[EIGHT], const f32 *from) {
    const float4 low = reinterpret_cast<const float4 *>(from)[0];
    const float4 high = reinterpret_cast<const float4 *>(from)[1];
    values[0] = low.x;
    values[1] = low.y;
    values[2] = low.z;
    values[3] = low.w;
    values[4] = high.x;
    values[5] = high.y;
    values[6] = high.z;
    values[7] = high.w;
}

template <typename E>
__device__ inline void load(f32 (&values)[EIGHT], const E *from) {
    const uint4 words = *reinterpret_cast<const uint4 *>(from);
    unpack<E>(values[0], values[1], words.x);
    unpack<E>(values[2], values[3], words.y);
    unpack<E>(values[4], values[5], words.z);
    unpack<E>(values[6], values[7], words.w);
}

__device__ inline void store(f32 *to, const f32 (&values)[EIGHT]) {
    reinterpret_cast<float4 *>(to)[0] = {values[0], values[1], values[2], values[3]};
    reinterpret_cast<float4 *>(to)[1] = {values[4], values[5], values[6], values[7]};
}

template <typename E>
__device__ inline void store(E *to, const f32 (&values)[EIGHT]) {
    *reinterpret_cast<uint4 *>(to) = {pair_of<E>(values[0], values[1]), pair_of<E>(values[2], values[3]),
                                      pair_of<E>(values[4], values[5]), pair_of<E>(values[6], values[7])};
}

// Whether `COUNT` elements from a multiple of `COUNT` on are whole accesses in every row. True of a tensor that is not
// there.
template <u32 COUNT, typename E>
__device__ inline bool has_vectors(Matrix<E> matrix) {
    constexpr u64 BYTES = COUNT * sizeof(E) > 16 ? 16 : COUNT * sizeof(E);
    const u64 distance = matrix.rows > 1 ? matrix.stride * sizeof(E) : 0;
    return ((u64)matrix.start | distance) % BYTES == 0;
}

// Calls `body.at<COUNT>(row, col)` for `COUNT` elements from `col` on, where rows are aligned, and
// `body.at<1>(row, col)` for the others: each element once.
template <u32 COUNT, typename Body>
__device__ inline void for_each_vector(u64 rows, u64 cols, bool in_vectors, const Body &body) {
    const u64 vectors = in_vectors ? cols / COUNT : 0;
    for (u64 row = (u64)blockIdx.y * blockDim.y + threadIdx.y; row < rows; row += (u64)gridDim.y * blockDim.y) {
        for (u64 vector = global_thread(); vector < vectors; vector += grid_threads()) {
            body.template at<COUNT>(row, vector * COUNT);
        }
        for (u64 col = vectors * COUNT + global_thread(); col < cols; col += grid_threads()) {
            body.template at<1>(row, col);
        }
    }
}
