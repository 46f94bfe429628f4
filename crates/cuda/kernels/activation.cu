// The function between the two linear layers of the feed-forward block, and its gradient: `cpu::activation`.
#include "vectors.cuh"
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
struct Plain {
    Matrix<const E> x;
    Matrix<E> y;

    template <u32 COUNT>
    __device__ void at(u64 row, u64 col) const {
        f32 values[COUNT];
        load(values, x.row(row) + col);
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) {
            values[i] = Curve::at(values[i]).value;
        }
        store(y.row(row) + col, values);
    }

    __device__ void run() const {
        const bool in_vectors = has_vectors<IN_ACCESS<E>>(x) && has_vectors<IN_ACCESS<E>>(y);
        for_each_vector<IN_ACCESS<E>>(y.rows, y.cols, in_vectors, *this);
    }
};

// `y[T,F] = f(gate) * up` of `x[T,2F]` = gate | up
template <typename Curve, typename E>
struct Gated {
    Matrix<const E> x;
    Matrix<E> y;

    template <u32 COUNT>
    __device__ void at(u64 row, u64 col) const {
        f32 gates[COUNT];
        f32 ups[COUNT];
        load(gates, x.row(row) + col);
        load(ups, x.row(row) + y.cols + col);
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) {
            gates[i] = Curve::at(gates[i]).value * ups[i];
        }
        store(y.row(row) + col, gates);
    }

    __device__ void run() const {
        const bool in_vectors = has_vectors<IN_ACCESS<E>>(x) && has_vectors<IN_ACCESS<E>>(y);
        for_each_vector<IN_ACCESS<E>>(y.rows, y.cols, y.cols % IN_ACCESS<E> == 0 && in_vectors, *this);
    }
};

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
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) {
            const ValueAndSlope f = Curve::at(values[i]);
            values[i] = f.value;
            gradients[i] = f.slope * gradients[i];
        }
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
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) {
            const ValueAndSlope f = Curve::at(gates[i]);
            gates[i] = gradients[i] * ups[i] * f.slope;
            gradients[i] = gradients[i] * f.value;
            ups[i] = f.value * ups[i];
        }
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

ACTIVATION(gelu_tanh_f32, f32, Plain, GeluTanh)
ACTIVATION(gelu_tanh_bf16, Bf16, Plain, GeluTanh)
ACTIVATION(gelu_tanh_f16, F16, Plain, GeluTanh)
ACTIVATION(gelu_erf_f32, f32, Plain, GeluErf)
ACTIVATION(gelu_erf_bf16, Bf16, Plain, GeluErf)
ACTIVATION(gelu_erf_f16, F16, Plain, GeluErf)
ACTIVATION(gelu_sigmoid_f32, f32, Plain, GeluSigmoid)
ACTIVATION(gelu_sigmoid_bf16, Bf16, Plain, GeluSigmoid)
ACTIVATION(gelu_sigmoid_f16, F16, Plain, GeluSigmoid)
ACTIVATION(relu_f32, f32, Plain, Relu)
ACTIVATION(relu_bf16, Bf16, Plain, Relu)
ACTIVATION(relu_f16, F16, Plain, Relu)
ACTIVATION(swiglu_f32, f32, Gated, Silu)
ACTIVATION(swiglu_bf16, Bf16, Gated, Silu)
ACTIVATION(swiglu_f16, F16, Gated, Silu)
ACTIVATION(geglu_f32, f32, Gated, GeluErf)
ACTIVATION(geglu_bf16, Bf16, Gated, GeluErf)
ACTIVATION(geglu_f16, F16, Gated, GeluErf)
ACTIVATION(geglu_tanh_f32, f32, Gated, GeluTanh)
ACTIVATION(geglu_tanh_bf16, Bf16, Gated, GeluTanh)
ACTIVATION(geglu_tanh_f16, F16, Gated, GeluTanh)

GRADIENT(gelu_tanh_backward_f32, f32, PlainBackward, GeluTanh)
GRADIENT(gelu_tanh_backward_bf16, Bf16, PlainBackward, GeluTanh)
GRADIENT(gelu_tanh_backward_f16, F16, PlainBackward, GeluTanh)
GRADIENT(gelu_erf_backward_f32, f32, PlainBackward, GeluErf)
GRADIENT(gelu_erf_backward_bf16, Bf16, PlainBackward, GeluErf)
GRADIENT(gelu_erf_backward_f16, F16, PlainBackward, GeluErf)
GRADIENT(gelu_sigmoid_backward_f32, f32, PlainBackward, GeluSigmoid)
GRADIENT(gelu_sigmoid_backward_bf16, Bf16, PlainBackward, GeluSigmoid)
GRADIENT(gelu_sigmoid_backward_f16, F16, PlainBackward, GeluSigmoid)
GRADIENT(relu_backward_f32, f32, PlainBackward, Relu)
GRADIENT(relu_backward_bf16, Bf16, PlainBackward, Relu)
GRADIENT(relu_backward_f16, F16, PlainBackward, Relu)
GRADIENT(swiglu_backward_f32, f32, GatedBackward, Silu)
GRADIENT(swiglu_backward_bf16, Bf16, GatedBackward, Silu)
GRADIENT(swiglu_backward_f16, F16, GatedBackward, Silu)
GRADIENT(geglu_backward_f32, f32, GatedBackward, GeluErf)
GRADIENT(geglu_backward_bf16, Bf16, GatedBackward, GeluErf)
GRADIENT(geglu_backward_f16, F16, GatedBackward, GeluErf)
GRADIENT(geglu_tanh_backward_f32, f32, GatedBackward, GeluTanh)
GRADIENT(geglu_tanh_backward_bf16, Bf16, GatedBackward, GeluTanh)
GRADIENT(geglu_tanh_backward_f16, F16, GatedBackward, GeluTanh)
