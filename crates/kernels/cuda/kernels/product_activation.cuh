// Activations, and their gradients, at the end of products: chunks of eight neighbours of bf16 or fp16.
#pragma once

#include "curves.cuh"
#include "product_output.cuh"
#include "vectors.cuh"

// Numbers of a chunk of 16 bytes.
constexpr u32 IN_CHUNK = 8;

// Eight numbers, widened, and rounded.
template <typename E>
__device__ inline void widen_chunk(f32 (&values)[IN_CHUNK], uint4 chunk) {
    unpack<E>(values[0], values[1], chunk.x);
    unpack<E>(values[2], values[3], chunk.y);
    unpack<E>(values[4], values[5], chunk.z);
    unpack<E>(values[6], values[7], chunk.w);
}

template <typename E>
__device__ inline uint4 round_chunk(const f32 (&values)[IN_CHUNK]) {
    return {tensor_core::packed<E>(values[0], values[1]), tensor_core::packed<E>(values[2], values[3]),
            tensor_core::packed<E>(values[4], values[5]), tensor_core::packed<E>(values[6], values[7])};
}

// A chunk of a matrix.
__device__ inline uint4 *chunk_of(const AnyMatrix &matrix, u64 row, u64 col) {
    return (uint4 *)((u8 *)matrix.start + (row * matrix.stride + col) * 2);
}
