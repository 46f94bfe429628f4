// Dropout with bias and residual in one pass: `cpu::dropout`. A thread has the four channels of one block of random
// words.
#include "dropout_mask.cuh"
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

__device__ inline f32 with_residual(f32 value, Matrix<const f32> residual, f32 scale, u64 row, u64 col) {
    return residual.is_there() ? fmaf(residual.row(row)[col], scale, value) : value;
}

__device__ inline f32 with_bias(Matrix<const f32> x, Matrix<const f32> bias, u64 row, u64 col) {
    const f32 value = x.row(row)[col];
    return bias.is_there() ? value + bias.start[col] : value;
}

// `out = residual_scale * residual + (x + bias)`; `x` or `residual` may be `out`.
extern "C" __global__ void __launch_bounds__(256)
    add_residual(Matrix<const f32> x, Matrix<const f32> bias, Matrix<const f32> residual, f32 residual_scale,
                 Matrix<f32> out) {
    for_each_element(out.rows, out.cols, [&](u64 row, u64 col) {
        out.row(row)[col] = with_residual(with_bias(x, bias, row, col), residual, residual_scale, row, col);
    });
}

// `out = residual_scale * residual + (x + bias) * factor`; `x` or `residual` may be `out`.
extern "C" __global__ void __launch_bounds__(256)
    dropout_add(Matrix<const f32> x, Matrix<const f32> bias, Matrix<const f32> residual, f32 residual_scale,
                DropoutMask mask, Matrix<f32> out) {
    for_each_factor(out.rows, out.cols, mask, [&](u64 row, u64 col, f32 factor) {
        const f32 value = with_bias(x, bias, row, col) * factor;
        out.row(row)[col] = with_residual(value, residual, residual_scale, row, col);
    });
}

// `dx = factor * dy`; `dy` may be `dx`.
extern "C" __global__ void __launch_bounds__(256)
    dropout_backward(Matrix<const f32> dy, DropoutMask mask, Matrix<f32> dx) {
    for_each_factor(dx.rows, dx.cols, mask, [&](u64 row, u64 col, f32 factor) {
        dx.row(row)[col] = dy.row(row)[col] * factor;
    });
}
