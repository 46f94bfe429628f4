// The output of a product in blocks: a matrix of any type of real numbers, which is known by a parameter alone.
#pragma once

#include "element.cuh"
#include "tensor.cuh"

// The type of the output's elements, and of the bias.
enum class OutputType : u32 { SINGLE, BF16, F16 };

// A matrix of a type that is known by a parameter alone.
using AnyMatrix = Matrix<void>;

// Element `index` behind `start`, widened.
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

// Rounds `value` to element `index` behind `start`.
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
