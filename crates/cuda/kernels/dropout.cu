// Dropout with bias and residual in one pass: `cpu::dropout`. A thread has the four channels of one block of random
// words.
#include "dropout_mask.cuh"
#include "element.cuh"
#include "elements.cuh"

// Calls `body(row, col, factor)` for every element once.
template <typename Body>
__device__ inline void for_each_factor(u64 rows, u64 cols, DropoutMask mask, Body body) {
    const u32 skipped = mask.first_channel % 4;
    const u64 blocks = (skipped + cols + 3) / 4;
    for_each_element(rows, blocks, [&](u64 row, u64 block) {
        const philox::Words words = mask.words(mask.first_token + (u32)row, mask.first_channel / 4 + (u32)block);
#pragma unroll
        for (u32 word = 0; word < 4; word++) {
            // Below the first column the difference wraps to more than any column.
            const u64 col = 4 * block + word - skipped;
            if (col < cols) {
                body(row, col, mask.factor(words.word[word]));
            }
        }
    });
}

template <typename E>
__device__ inline f32 with_residual(f32 value, Matrix<const E> residual, f32 scale, u64 row, u64 col) {
    return residual.is_there() ? fmaf(widen(residual.row(row)[col]), scale, value) : value;
}

template <typename E>
__device__ inline f32 with_bias(Matrix<const E> x, Matrix<const E> bias, u64 row, u64 col) {
    const f32 value = widen(x.row(row)[col]);
    return bias.is_there() ? value + widen(bias.start[col]) : value;
}

// `out = residual_scale * residual + (x + bias)`; `x` or `residual` may be `out`.
#define ADD_RESIDUAL(NAME, E)                                                                                          \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        NAME(Matrix<const E> x, Matrix<const E> bias, Matrix<const E> residual, f32 residual_scale, Matrix<E> out) {   \
        for_each_element(out.rows, out.cols, [&](u64 row, u64 col) {                                                   \
            const f32 value = with_bias(x, bias, row, col);                                                            \
            out.row(row)[col] = narrow<E>(with_residual(value, residual, residual_scale, row, col));                   \
        });                                                                                                            \
    }

ADD_RESIDUAL(add_residual_f32, f32)
ADD_RESIDUAL(add_residual_bf16, Bf16)
ADD_RESIDUAL(add_residual_f16, F16)

// `out = residual_scale * residual + (x + bias) * factor`; `x` or `residual` may be `out`.
#define DROPOUT_ADD(NAME, E)                                                                                           \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        NAME(Matrix<const E> x, Matrix<const E> bias, Matrix<const E> residual, f32 residual_scale, DropoutMask mask,  \
             Matrix<E> out) {                                                                                          \
        for_each_factor(out.rows, out.cols, mask, [&](u64 row, u64 col, f32 factor) {                                  \
            const f32 value = with_bias(x, bias, row, col) * factor;                                                   \
            out.row(row)[col] = narrow<E>(with_residual(value, residual, residual_scale, row, col));                   \
        });                                                                                                            \
    }

DROPOUT_ADD(dropout_add_f32, f32)
DROPOUT_ADD(dropout_add_bf16, Bf16)
DROPOUT_ADD(dropout_add_f16, F16)

// `dx = factor * dy`; `dy` may be `dx`.
#define DROPOUT_BACKWARD(NAME, E)                                                                                      \
    extern "C" __global__ void __launch_bounds__(256) NAME(Matrix<const E> dy, DropoutMask mask, Matrix<E> dx) {       \
        for_each_factor(dx.rows, dx.cols, mask, [&](u64 row, u64 col, f32 factor) {                                    \
            dx.row(row)[col] = narrow<E>(widen(dy.row(row)[col]) * factor);                                            \
        });                                                                                                            \
    }

DROPOUT_BACKWARD(dropout_backward_f32, f32)
DROPOUT_BACKWARD(dropout_backward_bf16, Bf16)
DROPOUT_BACKWARD(dropout_backward_f16, F16)
