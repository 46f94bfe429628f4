// The function between the two linear layers of the feed-forward block, row by row: `cpu::activation`.
#pragma once

#include "activation.cuh"
#include "vectors.cuh"

// `y[T,F] = f(x[T,F])`
template <typename Curve, typename E>
struct Plain {
    Matrix<const E> x;
    Matrix<E> y;

    template <u32 COUNT>
    __device__ void at(u64 row, u64 col) const {
        f32 values[COUNT];
        load(values, x.row(row) + col);
        activation::apply<Curve>(values);
        store(y.row(row) + col, values);
    }

    // Whether whole accesses have neighbours of every row.
    __device__ bool in_vectors() const {
        return has_vectors<IN_ACCESS<E>>(x) && has_vectors<IN_ACCESS<E>>(y);
    }

    __device__ void run() const {
        for_each_vector<IN_ACCESS<E>>(y.rows, y.cols, in_vectors(), *this);
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
        activation::apply_gated<Curve>(gates, ups);
        store(y.row(row) + col, gates);
    }

    __device__ bool in_vectors() const {
        return y.cols % IN_ACCESS<E> == 0 && has_vectors<IN_ACCESS<E>>(x) && has_vectors<IN_ACCESS<E>>(y);
    }

    __device__ void run() const {
        for_each_vector<IN_ACCESS<E>>(y.rows, y.cols, in_vectors(), *this);
    }
};
