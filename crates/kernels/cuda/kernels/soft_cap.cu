// Soft caps of logits and their gradient: `cpu::soft_cap`.
#include "vectors.cuh"
#include "soft_cap.cuh"

struct Forward {
    Matrix<f32> x;
    SoftCap cap;

    template <u32 COUNT>
    __device__ void at(u64 row, u64 col) const {
        f32 values[COUNT];
        load(values, x.row(row) + col);
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) {
            values[i] = cap.capped(values[i]);
        }
        store(x.row(row) + col, values);
    }
};

// `x = cap tanh(x / cap)`
extern "C" __global__ void __launch_bounds__(256) soft_cap(Matrix<f32> x, SoftCap cap) {
    for_each_vector<FOUR>(x.rows, x.cols, has_vectors<FOUR>(x), Forward{x, cap});
}

struct Backward {
    Matrix<const f32> y;
    Matrix<f32> gradient;
    SoftCap cap;

    template <u32 COUNT>
    __device__ void at(u64 row, u64 col) const {
        f32 outputs[COUNT];
        f32 gradients[COUNT];
        load(outputs, y.row(row) + col);
        load(gradients, gradient.row(row) + col);
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) {
            gradients[i] = gradients[i] * cap.slope(outputs[i]);
        }
        store(gradient.row(row) + col, gradients);
    }
};

// `gradient = gradient (1 - (y / cap)^2)`
extern "C" __global__ void __launch_bounds__(256)
soft_cap_backward(Matrix<const f32> y, Matrix<f32> gradient, SoftCap cap) {
    const bool in_fours = has_vectors<FOUR>(y) && has_vectors<FOUR>(gradient);
    for_each_vector<FOUR>(y.rows, y.cols, in_fours, Backward{y, gradient, cap});
}
