// Sums, fills and copies of elements: `cpu::accumulate`, `cpu::fill`, `cpu::copy`.
#include "element.cuh"
#include "elements.cuh"

extern "C" __global__ void __launch_bounds__(256) accumulate_f32(Matrix<const f32> x, Matrix<f32> into) {
    for_each_element(into.rows, into.cols, [&](u64 row, u64 col) {
        into.row(row)[col] = into.row(row)[col] + x.row(row)[col];
    });
}

// Modulo 2^64, as between ranks.
extern "C" __global__ void __launch_bounds__(256) accumulate_i64(Matrix<const u64> x, Matrix<u64> into) {
    for_each_element(into.rows, into.cols, [&](u64 row, u64 col) {
        into.row(row)[col] = into.row(row)[col] + x.row(row)[col];
    });
}

template <typename E>
__device__ inline void fill(Matrix<E> out, E value) {
    for_each_element(out.rows, out.cols, [&](u64 row, u64 col) { out.row(row)[col] = value; });
}

extern "C" __global__ void __launch_bounds__(256) fill_f32(Matrix<f32> out, f32 value) {
    fill(out, value);
}

extern "C" __global__ void __launch_bounds__(256) fill_bf16(Matrix<Bf16> out, f32 value) {
    fill(out, narrow<Bf16>(value));
}

extern "C" __global__ void __launch_bounds__(256) fill_f16(Matrix<F16> out, f32 value) {
    fill(out, narrow<F16>(value));
}

extern "C" __global__ void __launch_bounds__(256) fill_i64(Matrix<i64> out, i64 value) {
    fill(out, value);
}

template <typename From, typename To>
__device__ inline void copy(Matrix<const From> from, Matrix<To> to) {
    for_each_element(to.rows, to.cols, [&](u64 row, u64 col) {
        to.row(row)[col] = narrow<To>(widen(from.row(row)[col]));
    });
}

extern "C" __global__ void __launch_bounds__(256) copy_f32_f32(Matrix<const f32> from, Matrix<f32> to) {
    copy(from, to);
}

extern "C" __global__ void __launch_bounds__(256) copy_f32_bf16(Matrix<const f32> from, Matrix<Bf16> to) {
    copy(from, to);
}

extern "C" __global__ void __launch_bounds__(256) copy_f32_f16(Matrix<const f32> from, Matrix<F16> to) {
    copy(from, to);
}

extern "C" __global__ void __launch_bounds__(256) copy_bf16_f32(Matrix<const Bf16> from, Matrix<f32> to) {
    copy(from, to);
}

extern "C" __global__ void __launch_bounds__(256) copy_bf16_bf16(Matrix<const Bf16> from, Matrix<Bf16> to) {
    copy(from, to);
}

extern "C" __global__ void __launch_bounds__(256) copy_bf16_f16(Matrix<const Bf16> from, Matrix<F16> to) {
    copy(from, to);
}

extern "C" __global__ void __launch_bounds__(256) copy_f16_f32(Matrix<const F16> from, Matrix<f32> to) {
    copy(from, to);
}

extern "C" __global__ void __launch_bounds__(256) copy_f16_bf16(Matrix<const F16> from, Matrix<Bf16> to) {
    copy(from, to);
}

extern "C" __global__ void __launch_bounds__(256) copy_f16_f16(Matrix<const F16> from, Matrix<F16> to) {
    copy(from, to);
}

extern "C" __global__ void __launch_bounds__(256) copy_i64(Matrix<const i64> from, Matrix<i64> to) {
    for_each_element(to.rows, to.cols, [&](u64 row, u64 col) { to.row(row)[col] = from.row(row)[col]; });
}
