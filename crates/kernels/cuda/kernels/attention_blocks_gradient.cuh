// Shared parts of the kernels of attention's backward pass with products in blocks.
#pragma once

#include "attention_blocks.cuh"

namespace attention_blocks {

template <typename Element>
struct Backward {
    Matrix<const Element> q;
    Matrix<const Element> k;
    Matrix<const Element> v;
    Matrix<const Element> out;
    Matrix<const f32> log_sum_exp;
    Matrix<const Element> dout;
    // Until the gradients of queries are computed, their first two numbers are the bits of `delta`.
    Matrix<Element> dq;
    bool vectors;
};

// `dout . out` of a query: one chain over ascending channels.
template <typename Element>
__device__ inline f32 delta_of_channels(const Element* dout, const Element* out, u32 head_dim, bool vectors) {
    f32 sum = 0.0f;
    if (vectors) {
#pragma unroll 4
        for (u32 channel = 0; channel < head_dim; channel += VECTOR) {
            Element a[VECTOR];
            Element b[VECTOR];
            *reinterpret_cast<uint4*>(a) = *reinterpret_cast<const uint4*>(dout + channel);
            *reinterpret_cast<uint4*>(b) = *reinterpret_cast<const uint4*>(out + channel);
#pragma unroll
            for (u32 index = 0; index < VECTOR; index++) {
                sum = fmaf(widen(a[index]), widen(b[index]), sum);
            }
        }
        return sum;
    }
    for (u32 channel = 0; channel < head_dim; channel++) {
        sum = fmaf(widen(dout[channel]), widen(out[channel]), sum);
    }
    return sum;
}

// The two halves of a number as they were read, so that nothing waits for them yet.
struct Halves {
    u16 low;
    u16 high;

    __device__ f32 joined() const {
        return __uint_as_float((u32)low | (u32)high << 16);
    }
};

// The same, from the place of the query's gradient where it fits there.
template <typename Element>
__device__ inline Halves stored_delta(const Backward<Element>& tensors, u64 token, u32 column, u32 head_dim) {
    if (head_dim < 2) {
        const u32 bits = __float_as_uint(
            fmaf(widen(tensors.dout.row(token)[column]), widen(tensors.out.row(token)[column]), 0.0f));
        return {(u16)bits, (u16)(bits >> 16)};
    }
    const Element* place = tensors.dq.row(token) + column;
    return {place[0].bits, place[1].bits};
}

// Where `dout . out` of a query comes from.
enum class Delta {
    Stored,
    Computed,
};

// Values of a query that the gradient of a score reads.
struct QueryGradient {
    // The depth of a score of zero.
    f32 shift;
    // `scale` times `dout . out`.
    f32 delta;
};

__device__ inline f32 shift_of_gradient(f32 log_sum_exp) {
    return fmaf(log_sum_exp, math::LOG2_E, NO_DEPTH);
}

// Turns a product into its score below the soft cap, where there is one; the slope of the cap.
template <typename Asked>
__device__ inline f32 cap_score(f32& score, const Asked& problem, const Scale& scale) {
    score *= scale.rounding;
    if (!has_cap(problem)) {
        return 1.0f;
    }
    score = problem.soft_cap.capped(score);
    return problem.soft_cap.slope(score);
}

// Turns a score into a probability after dropout, and the gradient of that into `scale` times the gradient of the
// score. `exponent` is that of `Scale`, `factor` is that of dropout.
__device__ inline void score_gradient(f32& score, f32& gradient, const Problem& problem, const QueryGradient& query,
                                      f32 exponent, f32 factor, f32 cap_slope, bool visible) {
    f32 probability = power_of_any(fmaf(score, -exponent, query.shift));
    probability = visible ? probability : 0.0f;
    gradient = probability * fmaf(gradient * factor, problem.scale, -query.delta) * cap_slope;
    score = probability * factor;
}

// `sums += left . rows` of sixteen rows, over all channels.
template <typename Element, u32 CHANNELS>
__device__ inline void add_product(f32 (&sums)[CHANNELS / COLUMNS][4], const u32 (&left)[4], u32 rows) {
#pragma unroll
    for (u32 channel = 0; channel < CHANNELS / COLUMNS; channel += 2) {
        u32 b[4];
        tensor_core::load_columns(b, rows + Fragments<CHANNELS>::step(0, channel * COLUMNS));
        tensor_core::multiply<Element>(sums[channel], left, b[0], b[1]);
        tensor_core::multiply<Element>(sums[channel + 1], left, b[2], b[3]);
    }
}

// `sums += left . right` over the channels, of sixteen rows each.
template <typename Element, u32 CHANNELS>
__device__ inline void multiply_rows(f32 (&sums)[2][4], u32 left, u32 right) {
#pragma unroll
    for (u32 step = 0; step < CHANNELS / STEPS; step++) {
        u32 a[4];
        u32 b[4];
        tensor_core::load_rows(a, left + Fragments<CHANNELS>::step(0, step * STEPS));
        tensor_core::load_rows(b, right + Fragments<CHANNELS>::step(0, step * STEPS));
        tensor_core::multiply<Element>(sums[0], a, b[0], b[1]);
        tensor_core::multiply<Element>(sums[1], a, b[2], b[3]);
    }
}

}  // namespace attention_blocks
