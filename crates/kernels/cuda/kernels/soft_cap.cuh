// A soft cap of scores or logits: `cpu::soft_cap`.
#pragma once

#include "math.cuh"

struct SoftCap {
    // 0 where there is none.
    f32 cap;
    f32 reciprocal;

    __device__ bool is_some() const {
        return cap != 0.0f;
    }

    // `cap tanh(x / cap)`
    __device__ f32 capped(f32 x) const {
        return cap * math::tanh(x * reciprocal);
    }

    // The slope where the output is `y`.
    __device__ f32 slope(f32 y) const {
        const f32 share = y * reciprocal;
        return fmaf(-share, share, 1.0f);
    }
};
