// The function between the two linear maps of the feed-forward block, and its gradient: `cpu::activation`.
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
template <typename Curve>
__device__ inline void plain(Matrix<const f32> x, Matrix<f32> y) {
    for_each_element(y.rows, y.cols, [&](u64 row, u64 col) { y.row(row)[col] = Curve::at(x.row(row)[col]).value; });
}

// `y[T,F] = f(gate) * up` of `x[T,2F]` = gate | up
template <typename Curve>
__device__ inline void gated(Matrix<const f32> x, Matrix<f32> y) {
    for_each_element(y.rows, y.cols, [&](u64 row, u64 col) {
        const f32 *gate = x.row(row) + col;
        y.row(row)[col] = Curve::at(*gate).value * gate[y.cols];
    });
}

template <typename Curve>
__device__ inline void plain_backward(Matrix<const f32> x, Matrix<const f32> dy, Matrix<f32> dx, Matrix<f32> y) {
    for_each_element(y.rows, y.cols, [&](u64 row, u64 col) {
        const ValueAndSlope f = Curve::at(x.row(row)[col]);
        const f32 gradient = dy.row(row)[col];
        y.row(row)[col] = f.value;
        dx.row(row)[col] = f.slope * gradient;
    });
}

template <typename Curve>
__device__ inline void gated_backward(Matrix<const f32> x, Matrix<const f32> dy, Matrix<f32> dx, Matrix<f32> y) {
    for_each_element(y.rows, y.cols, [&](u64 row, u64 col) {
        const f32 *gate = x.row(row) + col;
        const ValueAndSlope f = Curve::at(*gate);
        const f32 up = gate[y.cols];
        const f32 gradient = dy.row(row)[col];
        f32 *dgate = dx.row(row) + col;
        y.row(row)[col] = f.value * up;
        dgate[0] = gradient * up * f.slope;
        dgate[y.cols] = gradient * f.value;
    });
}

// A kernel of a function, and that of its gradient.
#define ACTIVATION(NAME, FORM, CURVE)                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) NAME(Matrix<const f32> x, Matrix<f32> y) {                       \
        FORM<CURVE>(x, y);                                                                                             \
    }
#define GRADIENT(NAME, FORM, CURVE)                                                                                    \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        NAME(Matrix<const f32> x, Matrix<const f32> dy, Matrix<f32> dx, Matrix<f32> y) {                               \
        FORM<CURVE>(x, dy, dx, y);                                                                                     \
    }

ACTIVATION(gelu_tanh, plain, GeluTanh)
ACTIVATION(gelu_erf, plain, GeluErf)
ACTIVATION(gelu_sigmoid, plain, GeluSigmoid)
ACTIVATION(relu, plain, Relu)
ACTIVATION(swiglu, gated, Silu)
ACTIVATION(geglu, gated, GeluErf)

GRADIENT(gelu_tanh_backward, plain_backward, GeluTanh)
GRADIENT(gelu_erf_backward, plain_backward, GeluErf)
GRADIENT(gelu_sigmoid_backward, plain_backward, GeluSigmoid)
GRADIENT(relu_backward, plain_backward, Relu)
GRADIENT(swiglu_backward, gated_backward, Silu)
GRADIENT(geglu_backward, gated_backward, GeluErf)
