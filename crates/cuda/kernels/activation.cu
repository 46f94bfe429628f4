// The function between the two linear maps of the feed-forward block, and its gradient: `cpu::activation`.
#include "element.cuh"
#include "elements.cuh"
#include "math.cuh"

struct ValueAndSlope {
    f32 value;
    f32 slope;
};

struct GeluTanh {
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

struct GeluErf {
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

struct Silu {
    __device__ static ValueAndSlope at(f32 x) {
        const math::SigmoidAndComplement s = math::sigmoid_and_complement(x);
        const f32 value = x * s.sigmoid;
        return {value, fmaf(value, s.complement, s.sigmoid)};
    }
};

struct Relu {
    __device__ static ValueAndSlope at(f32 x) {
        return {math::larger(0.0f, x), 0.0f < x ? 1.0f : 0.0f};
    }
};

// `y[T,F] = f(x[T,F])`
template <typename Curve, typename E>
__device__ inline void plain(Matrix<const E> x, Matrix<E> y) {
    for_each_element(y.rows, y.cols, [&](u64 row, u64 col) {
        y.row(row)[col] = narrow<E>(Curve::at(widen(x.row(row)[col])).value);
    });
}

// `y[T,F] = f(gate) * up` of `x[T,2F]` = gate | up
template <typename Curve, typename E>
__device__ inline void gated(Matrix<const E> x, Matrix<E> y) {
    for_each_element(y.rows, y.cols, [&](u64 row, u64 col) {
        const E *gate = x.row(row) + col;
        y.row(row)[col] = narrow<E>(Curve::at(widen(*gate)).value * widen(gate[y.cols]));
    });
}

template <typename Curve, typename E>
__device__ inline void plain_backward(Matrix<const E> x, Matrix<const E> dy, Matrix<E> dx, Matrix<E> y) {
    for_each_element(y.rows, y.cols, [&](u64 row, u64 col) {
        const ValueAndSlope f = Curve::at(widen(x.row(row)[col]));
        const f32 gradient = widen(dy.row(row)[col]);
        y.row(row)[col] = narrow<E>(f.value);
        dx.row(row)[col] = narrow<E>(f.slope * gradient);
    });
}

template <typename Curve, typename E>
__device__ inline void gated_backward(Matrix<const E> x, Matrix<const E> dy, Matrix<E> dx, Matrix<E> y) {
    for_each_element(y.rows, y.cols, [&](u64 row, u64 col) {
        const E *gate = x.row(row) + col;
        const ValueAndSlope f = Curve::at(widen(*gate));
        const f32 up = widen(gate[y.cols]);
        const f32 gradient = widen(dy.row(row)[col]);
        E *dgate = dx.row(row) + col;
        y.row(row)[col] = narrow<E>(f.value * up);
        dgate[0] = narrow<E>(gradient * up * f.slope);
        dgate[y.cols] = narrow<E>(gradient * f.value);
    });
}

// A kernel of a function, and that of its gradient.
#define ACTIVATION(NAME, E, FORM, CURVE)                                                                               \
    extern "C" __global__ void __launch_bounds__(256) NAME(Matrix<const E> x, Matrix<E> y) {                           \
        FORM<CURVE>(x, y);                                                                                             \
    }
#define GRADIENT(NAME, E, FORM, CURVE)                                                                                 \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        NAME(Matrix<const E> x, Matrix<const E> dy, Matrix<E> dx, Matrix<E> y) {                                       \
        FORM<CURVE>(x, dy, dx, y);                                                                                     \
    }

ACTIVATION(gelu_tanh_f32, f32, plain, GeluTanh)
ACTIVATION(gelu_tanh_bf16, Bf16, plain, GeluTanh)
ACTIVATION(gelu_tanh_f16, F16, plain, GeluTanh)
ACTIVATION(gelu_erf_f32, f32, plain, GeluErf)
ACTIVATION(gelu_erf_bf16, Bf16, plain, GeluErf)
ACTIVATION(gelu_erf_f16, F16, plain, GeluErf)
ACTIVATION(gelu_sigmoid_f32, f32, plain, GeluSigmoid)
ACTIVATION(gelu_sigmoid_bf16, Bf16, plain, GeluSigmoid)
ACTIVATION(gelu_sigmoid_f16, F16, plain, GeluSigmoid)
ACTIVATION(relu_f32, f32, plain, Relu)
ACTIVATION(relu_bf16, Bf16, plain, Relu)
ACTIVATION(relu_f16, F16, plain, Relu)
ACTIVATION(swiglu_f32, f32, gated, Silu)
ACTIVATION(swiglu_bf16, Bf16, gated, Silu)
ACTIVATION(swiglu_f16, F16, gated, Silu)
ACTIVATION(geglu_f32, f32, gated, GeluErf)
ACTIVATION(geglu_bf16, Bf16, gated, GeluErf)
ACTIVATION(geglu_f16, F16, gated, GeluErf)

GRADIENT(gelu_tanh_backward_f32, f32, plain_backward, GeluTanh)
GRADIENT(gelu_tanh_backward_bf16, Bf16, plain_backward, GeluTanh)
GRADIENT(gelu_tanh_backward_f16, F16, plain_backward, GeluTanh)
GRADIENT(gelu_erf_backward_f32, f32, plain_backward, GeluErf)
GRADIENT(gelu_erf_backward_bf16, Bf16, plain_backward, GeluErf)
GRADIENT(gelu_erf_backward_f16, F16, plain_backward, GeluErf)
GRADIENT(gelu_sigmoid_backward_f32, f32, plain_backward, GeluSigmoid)
GRADIENT(gelu_sigmoid_backward_bf16, Bf16, plain_backward, GeluSigmoid)
GRADIENT(gelu_sigmoid_backward_f16, F16, plain_backward, GeluSigmoid)
GRADIENT(relu_backward_f32, f32, plain_backward, Relu)
GRADIENT(relu_backward_bf16, Bf16, plain_backward, Relu)
GRADIENT(relu_backward_f16, F16, plain_backward, Relu)
GRADIENT(swiglu_backward_f32, f32, gated_backward, Silu)
GRADIENT(swiglu_backward_bf16, Bf16, gated_backward, Silu)
GRADIENT(swiglu_backward_f16, F16, gated_backward, Silu)
GRADIENT(geglu_backward_f32, f32, gated_backward, GeluErf)
GRADIENT(geglu_backward_bf16, Bf16, gated_backward, GeluErf)
GRADIENT(geglu_backward_f16, F16, gated_backward, GeluErf)
