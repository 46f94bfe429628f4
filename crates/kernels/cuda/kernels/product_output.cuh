// The output of a product in blocks: a matrix of any type of real numbers, which is known by a parameter alone.
#pragma once

#include "element.cuh"
#include "tensor.cuh"
#include "tensor_core.cuh"

// The type of the output's elements, and of the bias.
enum class OutputType : u32 { SINGLE, BF16, F16 };

// A matrix of a type that is known by a parameter alone.
using AnyMatrix = Matrix<void>;

// Element `start[index]`, widened.
__device__ inline f32 element_of(OutputType type, const void *start, u64 index) {
    switch (type) {
    case OutputType::SINGLE:
        return ((const f32 *)start)[index];
    case OutputType::BF16:
        return widen(((const Bf16 *)start)[index]);
    case OutputType::F16:
        return widen(((const F16 *)start)[index]);
    }
    return 0.0f;
}

// Rounds `value` to element `start[index]`.
__device__ inline void round_to(OutputType type, void *start, u64 index, f32 value) {
    switch (type) {
    case OutputType::SINGLE:
        ((f32 *)start)[index] = value;
        break;
    case OutputType::BF16:
        ((Bf16 *)start)[index] = narrow<Bf16>(value);
        break;
    case OutputType::F16:
        ((F16 *)start)[index] = narrow<F16>(value);
        break;
    }
}

// Four elements that are next to each other, at a multiple of their size.
__device__ inline void four_of(const f32 *from, f32 (&values)[4]) {
    const float4 four = *(const float4 *)from;
    values[0] = four.x;
    values[1] = four.y;
    values[2] = four.z;
    values[3] = four.w;
}

template <typename Narrow>
__device__ inline void four_of(const Narrow *from, f32 (&values)[4]) {
    const uint2 pairs = *(const uint2 *)from;
    values[0] = widen(Narrow{(u16)pairs.x});
    values[1] = widen(Narrow{(u16)(pairs.x >> 16)});
    values[2] = widen(Narrow{(u16)pairs.y});
    values[3] = widen(Narrow{(u16)(pairs.y >> 16)});
}

// Adds four other values, before them.
__device__ inline void add_four(f32 (&values)[4], const f32 (&others)[4]) {
#pragma unroll
    for (u32 index = 0; index < 4; index++) {
        values[index] = others[index] + values[index];
    }
}

// Rounds four values to elements that are next to each other.
__device__ inline void round_four(f32 *to, const f32 (&values)[4]) {
    *(float4 *)to = {values[0], values[1], values[2], values[3]};
}

template <typename Narrow>
__device__ inline void round_four(Narrow *to, const f32 (&values)[4]) {
    const u32 low = tensor_core::packed<Narrow>(values[0], values[1]);
    *(uint2 *)to = {low, tensor_core::packed<Narrow>(values[2], values[3])};
}
