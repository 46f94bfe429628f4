// Activations, and their gradients, at the end of products: the function of a launch, and chunks of eight neighbours of
// bf16 or fp16.
#pragma once

#include "activation.cuh"
#include "product_output.cuh"
#include "vectors.cuh"

// The function of an activation.
enum class CurveNumber : u32 { GELU_TANH, GELU_ERF, GELU_SIGMOID, RELU, SILU };

// Numbers of a chunk of 16 bytes.
constexpr u32 IN_CHUNK = 8;

// Calls `form.finish<Curve, E>(..)` with the curve and the type of these numbers.
template <typename E, typename Form, typename... Arguments>
__device__ inline void finish_plain(const Form &form, CurveNumber curve, Arguments &&...arguments) {
    switch (curve) {
    case CurveNumber::GELU_TANH:
        return form.template finish<activation::GeluTanh, E>(arguments...);
    case CurveNumber::GELU_ERF:
        return form.template finish<activation::GeluErf, E>(arguments...);
    case CurveNumber::GELU_SIGMOID:
        return form.template finish<activation::GeluSigmoid, E>(arguments...);
    case CurveNumber::RELU:
        return form.template finish<activation::Relu, E>(arguments...);
    case CurveNumber::SILU:
        return;
    }
}

// The same with those of gates.
template <typename E, typename Form, typename... Arguments>
__device__ inline void finish_gated(const Form &form, CurveNumber curve, Arguments &&...arguments) {
    switch (curve) {
    case CurveNumber::GELU_TANH:
        return form.template finish<activation::GeluTanh, E>(arguments...);
    case CurveNumber::GELU_ERF:
        return form.template finish<activation::GeluErf, E>(arguments...);
    case CurveNumber::SILU:
        return form.template finish<activation::Silu, E>(arguments...);
    case CurveNumber::GELU_SIGMOID:
    case CurveNumber::RELU:
        return;
    }
}

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
