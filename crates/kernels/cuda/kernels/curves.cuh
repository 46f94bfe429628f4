// The function of a launch, which an argument names.
#pragma once

#include "activation.cuh"

// The function of an activation.
enum class CurveNumber : u32 { GELU_TANH, GELU_ERF, GELU_SIGMOID, RELU, SILU, CLAMPED_SILU };

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
    case CurveNumber::CLAMPED_SILU:
        return;
    }
}

// The same with those of gates that products are fused with.
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
    case CurveNumber::CLAMPED_SILU:
        return;
    }
}

// The same with those of all gates.
template <typename E, typename Form, typename... Arguments>
__device__ inline void finish_any_gated(const Form &form, CurveNumber curve, Arguments &&...arguments) {
    if (curve == CurveNumber::CLAMPED_SILU) {
        form.template finish<activation::ClampedSilu, E>(arguments...);
    } else {
        finish_gated<E>(form, curve, arguments...);
    }
}
