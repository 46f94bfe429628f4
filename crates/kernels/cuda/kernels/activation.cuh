// The functions between the two linear layers of the feed-forward block, and their gradients: `cpu::activation`.
#pragma once

#include "math.cuh"

namespace activation {

struct ValueAndSlope {
    f32 value;
    f32 slope;
};

// The factor of the value of a gate, and the gradient of `up` from that of this factor.
struct PlainFactor {
    __device__ static f32 factor(f32 up) {
        return up;
    }

    __device__ static f32 gradient_of_up(f32, f32 gradient) {
        return gradient;
    }
};

struct GeluTanh : PlainFactor {
    __device__ static ValueAndSlope at(f32 x) {
        constexpr f32 LINEAR = 1.595769f;
        constexpr f32 CUBIC = 0.071354814f;
        const f32 square = x * x;
        const f32 twice_u = x * fmaf(square, CUBIC, LINEAR);
        const f32 slope_of_twice_u = fmaf(square, 3.0f * CUBIC, LINEAR);
        const math::SigmoidAndComplement s = math::sigmoid_and_complement(twice_u);
        const f32 value = x * s.sigmoid;
        return {value, fmaf(value * s.complement, slope_of_twice_u, s.sigmoid)};
    }
};

struct GeluErf : PlainFactor {
    __device__ static ValueAndSlope at(f32 x) {
        const math::Normal normal = math::normal(x);
        return {x * normal.cumulative, fmaf(x, normal.density, normal.cumulative)};
    }
};

struct GeluSigmoid {
    __device__ static ValueAndSlope at(f32 x) {
        const f32 scaled = x * 1.702f;
        const math::SigmoidAndComplement s = math::sigmoid_and_complement(scaled);
        return {x * s.sigmoid, fmaf(scaled * s.sigmoid, s.complement, s.sigmoid)};
    }
};

struct Silu : PlainFactor {
    __device__ static ValueAndSlope at(f32 x) {
        const math::SigmoidAndComplement s = math::sigmoid_and_complement(x);
        const f32 value = x * s.sigmoid;
        return {value, fmaf(value, s.complement, s.sigmoid)};
    }
};

// NaN stays NaN: comparisons with it are false.
struct ClampedSilu {
    static constexpr f32 LIMIT = 7.0f;

    __device__ static ValueAndSlope at(f32 x) {
        const ValueAndSlope f = GeluSigmoid::at(LIMIT < x ? LIMIT : x);
        return {f.value, LIMIT < x ? 0.0f : f.slope};
    }

    __device__ static f32 factor(f32 up) {
        const f32 not_above = LIMIT < up ? LIMIT : up;
        return (-LIMIT > not_above ? -LIMIT : not_above) + 1.0f;
    }

    __device__ static f32 gradient_of_up(f32 up, f32 gradient) {
        return LIMIT < up || up < -LIMIT ? 0.0f : gradient;
    }
};

struct Relu {
    __device__ static ValueAndSlope at(f32 x) {
        return {math::larger(0.0f, x), 0.0f < x ? 1.0f : 0.0f};
    }
};

// Numbers become their values.
template <typename Curve, u32 COUNT>
__device__ inline void apply(f32 (&values)[COUNT]) {
#pragma unroll
    for (u32 i = 0; i < COUNT; i++) {
        values[i] = Curve::at(values[i]).value;
    }
}

// Gates become their values times what they let through.
template <typename Curve, u32 COUNT>
__device__ inline void apply_gated(f32 (&gates)[COUNT], const f32 (&ups)[COUNT]) {
#pragma unroll
    for (u32 i = 0; i < COUNT; i++) {
        gates[i] = Curve::at(gates[i]).value * Curve::factor(ups[i]);
    }
}

// Numbers become their values, and gradients of these become gradients of the numbers.
template <typename Curve, u32 COUNT>
__device__ inline void differentiate(f32 (&values)[COUNT], f32 (&gradients)[COUNT]) {
#pragma unroll
    for (u32 i = 0; i < COUNT; i++) {
        const ValueAndSlope f = Curve::at(values[i]);
        values[i] = f.value;
        gradients[i] = f.slope * gradients[i];
    }
}

// Gates and gradients of the values become the gradients of both factors, and what the gates let through becomes the
// values.
template <typename Curve, u32 COUNT>
__device__ inline void differentiate_gated(f32 (&gates)[COUNT], f32 (&ups)[COUNT], f32 (&gradients)[COUNT]) {
#pragma unroll
    for (u32 i = 0; i < COUNT; i++) {
        const ValueAndSlope f = Curve::at(gates[i]);
        const f32 factor = Curve::factor(ups[i]);
        gates[i] = gradients[i] * factor * f.slope;
        gradients[i] = Curve::gradient_of_up(ups[i], gradients[i] * f.value);
        ups[i] = f.value * factor;
    }
}

}  // namespace activation
