// The function between the two linear layers of the feed-forward block, and its gradient: `cpu::activation`.
#include "activation_rows.cuh"

template <typename Curve, typename E>
struct PlainBackward {
    Matrix<const E> x;
    Matrix<const E> dy;
    Matrix<E> dx;
    Matrix<E> y;

    template <u32 COUNT>
    __device__ void at(u64 row, u64 col) const {
        f32 values[COUNT];
        f32 gradients[COUNT];
        load(values, x.row(row) + col);
        load(gradients, dy.row(row) + col);
        activation::differentiate<Curve>(values, gradients);
        store(y.row(row) + col, values);
        store(dx.row(row) + col, gradients);
    }

    __device__ void run() const {
        const bool in_vectors = has_vectors<IN_ACCESS<E>>(x) && has_vectors<IN_ACCESS<E>>(dy) &&
                                has_vectors<IN_ACCESS<E>>(dx) && has_vectors<IN_ACCESS<E>>(y);
        for_each_vector<IN_ACCESS<E>>(y.rows, y.cols, in_vectors, *this);
    }
};

template <typename Curve, typename E>
struct GatedBackward {
    Matrix<const E> x;
    Matrix<const E> dy;
    Matrix<E> dx;
    Matrix<E> y;

    template <u32 COUNT>
    __device__ void at(u64 row, u64 col) const {
        f32 gates[COUNT];
        f32 ups[COUNT];
        f32 gradients[COUNT];
        load(gates, x.row(row) + col);
        load(ups, x.row(row) + y.cols + col);
        load(gradients, dy.row(row) + col);
        activation::differentiate_gated<Curve>(gates, ups, gradients);
        store(y.row(row) + col, ups);
        store(dx.row(row) + col, gates);
        store(dx.row(row) + y.cols + col, gradients);
    }

    __device__ void run() const {
        const bool in_vectors = has_vectors<IN_ACCESS<E>>(x) && has_vectors<IN_ACCESS<E>>(dy) &&
                                has_vectors<IN_ACCESS<E>>(dx) && has_vectors<IN_ACCESS<E>>(y);
        for_each_vector<IN_ACCESS<E>>(y.rows, y.cols, y.cols % IN_ACCESS<E> == 0 && in_vectors, *this);
    }
};

// A kernel of a function, and that of its gradient.
#define ACTIVATION(NAME, E, FORM, CURVE)                                                                               \
    extern "C" __global__ void __launch_bounds__(256) NAME(Matrix<const E> x, Matrix<E> y) {                           \
        FORM<CURVE, E>{x, y}.run();                                                                                    \
    }
#define GRADIENT(NAME, E, FORM, CURVE)                                                                                 \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        NAME(Matrix<const E> x, Matrix<const E> dy, Matrix<E> dx, Matrix<E> y) {                                       \
        FORM<CURVE, E>{x, dy, dx, y}.run();                                                                            \
    }

ACTIVATION(gelu_tanh_f32, f32, Plain, activation::GeluTanh)
ACTIVATION(gelu_tanh_bf16, Bf16, Plain, activation::GeluTanh)
ACTIVATION(gelu_tanh_f16, F16, Plain, activation::GeluTanh)
ACTIVATION(gelu_erf_f32, f32, Plain, activation::GeluErf)
ACTIVATION(gelu_erf_bf16, Bf16, Plain, activation::GeluErf)
ACTIVATION(gelu_erf_f16, F16, Plain, activation::GeluErf)
ACTIVATION(gelu_sigmoid_f32, f32, Plain, activation::GeluSigmoid)
ACTIVATION(gelu_sigmoid_bf16, Bf16, Plain, activation::GeluSigmoid)
ACTIVATION(gelu_sigmoid_f16, F16, Plain, activation::GeluSigmoid)
ACTIVATION(relu_f32, f32, Plain, activation::Relu)
ACTIVATION(relu_bf16, Bf16, Plain, activation::Relu)
ACTIVATION(relu_f16, F16, Plain, activation::Relu)
ACTIVATION(swiglu_f32, f32, Gated, activation::Silu)
ACTIVATION(swiglu_bf16, Bf16, Gated, activation::Silu)
ACTIVATION(swiglu_f16, F16, Gated, activation::Silu)
ACTIVATION(geglu_f32, f32, Gated, activation::GeluErf)
ACTIVATION(geglu_bf16, Bf16, Gated, activation::GeluErf)
ACTIVATION(geglu_f16, F16, Gated, activation::GeluErf)
ACTIVATION(geglu_tanh_f32, f32, Gated, activation::GeluTanh)
ACTIVATION(geglu_tanh_bf16, Bf16, Gated, activation::GeluTanh)
ACTIVATION(geglu_tanh_f16, F16, Gated, activation::GeluTanh)
ACTIVATION(swiglu_clamped_f32, f32, Gated, activation::ClampedSilu)
ACTIVATION(swiglu_clamped_bf16, Bf16, Gated, activation::ClampedSilu)
ACTIVATION(swiglu_clamped_f16, F16, Gated, activation::ClampedSilu)

GRADIENT(gelu_tanh_backward_f32, f32, PlainBackward, activation::GeluTanh)
GRADIENT(gelu_tanh_backward_bf16, Bf16, PlainBackward, activation::GeluTanh)
GRADIENT(gelu_tanh_backward_f16, F16, PlainBackward, activation::GeluTanh)
GRADIENT(gelu_erf_backward_f32, f32, PlainBackward, activation::GeluErf)
GRADIENT(gelu_erf_backward_bf16, Bf16, PlainBackward, activation::GeluErf)
GRADIENT(gelu_erf_backward_f16, F16, PlainBackward, activation::GeluErf)
GRADIENT(gelu_sigmoid_backward_f32, f32, PlainBackward, activation::GeluSigmoid)
GRADIENT(gelu_sigmoid_backward_bf16, Bf16, PlainBackward, activation::GeluSigmoid)
GRADIENT(gelu_sigmoid_backward_f16, F16, PlainBackward, activation::GeluSigmoid)
GRADIENT(relu_backward_f32, f32, PlainBackward, activation::Relu)
GRADIENT(relu_backward_bf16, Bf16, PlainBackward, activation::Relu)
GRADIENT(relu_backward_f16, F16, PlainBackward, activation::Relu)
GRADIENT(swiglu_backward_f32, f32, GatedBackward, activation::Silu)
GRADIENT(swiglu_backward_bf16, Bf16, GatedBackward, activation::Silu)
GRADIENT(swiglu_backward_f16, F16, GatedBackward, activation::Silu)
GRADIENT(geglu_backward_f32, f32, GatedBackward, activation::GeluErf)
GRADIENT(geglu_backward_bf16, Bf16, GatedBackward, activation::GeluErf)
GRADIENT(geglu_backward_f16, F16, GatedBackward, activation::GeluErf)
GRADIENT(geglu_tanh_backward_f32, f32, GatedBackward, activation::GeluTanh)
GRADIENT(geglu_tanh_backward_bf16, Bf16, GatedBackward, activation::GeluTanh)
GRADIENT(geglu_tanh_backward_f16, F16, GatedBackward, activation::GeluTanh)
GRADIENT(swiglu_clamped_backward_f32, f32, GatedBackward, activation::ClampedSilu)
GRADIENT(swiglu_clamped_backward_bf16, Bf16, GatedBackward, activation::ClampedSilu)
GRADIENT(swiglu_clamped_backward_f16, F16, GatedBackward, activation::ClampedSilu)
