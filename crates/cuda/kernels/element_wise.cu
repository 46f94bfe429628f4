// Sums, fills and copies of elements: `cpu::accumulate`, `cpu::fill`, `cpu::copy`.
#include "element.cuh"
#include "elements.cuh"

template <typename E>
__device__ inline void accumulate(Matrix<const E> x, Matrix<E> into) {
    for_each_element(into.rows, into.cols, [&](u64 row, u64 col) {
        into.row(row)[col] = into.row(row)[col] + x.row(row)[col];
    });
}

#define ACCUMULATE(NAME, E)                                                                                            \
    extern "C" __global__ void __launch_bounds__(256) NAME(Matrix<const E> x, Matrix<E> into) {                        \
        accumulate(x, into);                                                                                           \
    }

ACCUMULATE(accumulate_f32, f32)
// Modulo 2^64, as between ranks.
ACCUMULATE(accumulate_i64, u64)

// `into = keep * into + factor * x`, assigned where `keep` is 0.
extern "C" __global__ void __launch_bounds__(256)
scaled_sum(Matrix<const f32> x, Matrix<f32> into, f32 factor, f32 keep) {
    for_each_element(into.rows, into.cols, [&](u64 row, u64 col) {
        const f32 term = x.row(row)[col] * factor;
        f32 *element = into.row(row) + col;
        *element = keep == 0.0f ? term : fmaf(*element, keep, term);
    });
}

template <typename E>
__device__ inline void fill(Matrix<E> out, E value) {
    for_each_element(out.rows, out.cols, [&](u64 row, u64 col) { out.row(row)[col] = value; });
}

// A kernel that fills with `VALUE`, which it makes of its argument `value` of type `FROM`.
#define FILL(NAME, E, FROM, VALUE)                                                                                     \
    extern "C" __global__ void __launch_bounds__(256) NAME(Matrix<E> out, FROM value) {                                \
        fill<E>(out, VALUE);                                                                                           \
    }

FILL(fill_f32, f32, f32, value)
FILL(fill_bf16, Bf16, f32, narrow<Bf16>(value))
FILL(fill_f16, F16, f32, narrow<F16>(value))
FILL(fill_i64, i64, i64, value)

template <typename From, typename To>
__device__ inline void copy(Matrix<const From> from, Matrix<To> to) {
    for_each_element(to.rows, to.cols, [&](u64 row, u64 col) {
        to.row(row)[col] = narrow<To>(widen(from.row(row)[col]));
    });
}

#define COPY(NAME, FROM, TO)                                                                                           \
    extern "C" __global__ void __launch_bounds__(256) NAME(Matrix<const FROM> from, Matrix<TO> to) {                   \
        copy(from, to);                                                                                                \
    }

COPY(copy_f32_f32, f32, f32)
COPY(copy_f32_bf16, f32, Bf16)
COPY(copy_f32_f16, f32, F16)
COPY(copy_bf16_f32, Bf16, f32)
COPY(copy_bf16_bf16, Bf16, Bf16)
COPY(copy_bf16_f16, Bf16, F16)
COPY(copy_f16_f32, F16, f32)
COPY(copy_f16_bf16, F16, Bf16)
COPY(copy_f16_f16, F16, F16)

extern "C" __global__ void __launch_bounds__(256) copy_i64(Matrix<const i64> from, Matrix<i64> to) {
    for_each_element(to.rows, to.cols, [&](u64 row, u64 col) { to.row(row)[col] = from.row(row)[col]; });
}
