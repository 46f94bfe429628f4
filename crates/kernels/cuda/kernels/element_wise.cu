// Sums, fills and copies of elements: `cpu::accumulate`, `cpu::fill`, `cpu::copy`.
#include "elements.cuh"
#include "vectors.cuh"

struct Accumulate {
    Matrix<const f32> x;
    Matrix<f32> into;

    template <u32 COUNT>
    __device__ void at(u64 row, u64 col) const {
        f32 terms[COUNT];
        f32 sums[COUNT];
        load(terms, x.row(row) + col);
        load(sums, into.row(row) + col);
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) {
            sums[i] = sums[i] + terms[i];
        }
        store(into.row(row) + col, sums);
    }
};

extern "C" __global__ void __launch_bounds__(256) accumulate_f32(Matrix<const f32> x, Matrix<f32> into) {
    const bool in_fours = has_vectors<FOUR>(x) && has_vectors<FOUR>(into);
    for_each_vector<FOUR>(into.rows, into.cols, in_fours, Accumulate{x, into});
}

// Modulo 2^64, as between ranks.
extern "C" __global__ void __launch_bounds__(256) accumulate_i64(Matrix<const u64> x, Matrix<u64> into) {
    for_each_element(into.rows, into.cols, [&](u64 row, u64 col) {
        into.row(row)[col] = into.row(row)[col] + x.row(row)[col];
    });
}

struct ScaledSum {
    Matrix<const f32> x;
    Matrix<f32> into;
    f32 factor;
    f32 keep;

    template <u32 COUNT>
    __device__ void at(u64 row, u64 col) const {
        f32 terms[COUNT];
        load(terms, x.row(row) + col);
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) {
            terms[i] = terms[i] * factor;
        }
        if (keep != 0.0f) {
            f32 sums[COUNT];
            load(sums, into.row(row) + col);
#pragma unroll
            for (u32 i = 0; i < COUNT; i++) {
                terms[i] = fmaf(sums[i], keep, terms[i]);
            }
        }
        store(into.row(row) + col, terms);
    }
};

// `into = keep * into + factor * x`, assigned where `keep` is 0.
extern "C" __global__ void __launch_bounds__(256)
scaled_sum(Matrix<const f32> x, Matrix<f32> into, f32 factor, f32 keep) {
    const bool in_fours = has_vectors<FOUR>(x) && has_vectors<FOUR>(into);
    for_each_vector<FOUR>(into.rows, into.cols, in_fours, ScaledSum{x, into, factor, keep});
}

template <typename E>
struct Fill {
    Matrix<E> out;
    f32 value;

    template <u32 COUNT>
    __device__ void at(u64 row, u64 col) const {
        f32 values[COUNT];
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) {
            values[i] = value;
        }
        store(out.row(row) + col, values);
    }
};

#define FILL(NAME, E)                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) NAME(Matrix<E> out, f32 value) {                                 \
        for_each_vector<IN_ACCESS<E>>(out.rows, out.cols, has_vectors<IN_ACCESS<E>>(out), Fill<E>{out, value});        \
    }

FILL(fill_f32, f32)
FILL(fill_bf16, Bf16)
FILL(fill_f16, F16)

extern "C" __global__ void __launch_bounds__(256) fill_i64(Matrix<i64> out, i64 value) {
    for_each_element(out.rows, out.cols, [&](u64 row, u64 col) { out.row(row)[col] = value; });
}

template <typename From, typename To>
struct Copy {
    Matrix<const From> from;
    Matrix<To> to;

    template <u32 COUNT>
    __device__ void at(u64 row, u64 col) const {
        f32 values[COUNT];
        load(values, from.row(row) + col);
        store(to.row(row) + col, values);
    }
};

#define COPY(NAME, FROM, TO)                                                                                           \
    extern "C" __global__ void __launch_bounds__(256) NAME(Matrix<const FROM> from, Matrix<TO> to) {                   \
        const bool in_eights = has_vectors<EIGHT>(from) && has_vectors<EIGHT>(to);                                     \
        for_each_vector<EIGHT>(to.rows, to.cols, in_eights, Copy<FROM, TO>{from, to});                                 \
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
