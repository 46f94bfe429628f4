// Dropout with bias and residual in one pass: `cpu::dropout`. With a mask, a thread has the four channels of one block
// of random words.
#include "dropout_mask.cuh"
#include "elements.cuh"
#include "vectors.cuh"

// Calls `body.at(row, col, factors)` with the factors of four elements from `col` on, where rows are aligned, and of
// one element elsewhere: each element once.
template <typename Body>
__device__ inline void for_each_factor(u64 rows, u64 cols, DropoutMask mask, bool in_fours, const Body &body) {
    const u32 skipped = mask.first_channel % 4;
    const u64 blocks = (skipped + cols + 3) / 4;
    for_each_element(rows, blocks, [&](u64 row, u64 block) {
        const philox::Words words = mask.words(mask.first_token + (u32)row, mask.first_channel / 4 + (u32)block);
        f32 factors[FOUR];
#pragma unroll
        for (u32 word = 0; word < FOUR; word++) {
            factors[word] = mask.factor(words.word[word]);
        }
        if (in_fours && skipped == 0 && FOUR * block + FOUR <= cols) {
            body.at(row, FOUR * block, factors);
            return;
        }
#pragma unroll
        for (u32 word = 0; word < FOUR; word++) {
            // Below the first column the difference wraps to more than any column.
            const u64 col = FOUR * block + word - skipped;
            if (col < cols) {
                const f32 factor[1] = {factors[word]};
                body.at(row, col, factor);
            }
        }
    });
}

// `out = residual_scale * residual + (x + bias) * factor`, or without a factor; `x` or `residual` may be `out`.
template <typename E>
struct Add {
    Matrix<const E> x;
    Matrix<const E> bias;
    Matrix<const E> residual;
    f32 residual_scale;
    Matrix<E> out;

    template <u32 COUNT>
    __device__ bool in_vectors() const {
        return has_vectors<COUNT>(x) && has_vectors<COUNT>(bias) && has_vectors<COUNT>(residual) &&
               has_vectors<COUNT>(out);
    }

    // `x + bias`
    template <u32 COUNT>
    __device__ void load_biased(f32 (&values)[COUNT], u64 row, u64 col) const {
        load(values, x.row(row) + col);
        if (bias.is_there()) {
            f32 biases[COUNT];
            load(biases, bias.start + col);
#pragma unroll
            for (u32 i = 0; i < COUNT; i++) {
                values[i] = values[i] + biases[i];
            }
        }
    }

    // Stores `residual_scale * residual + values`.
    template <u32 COUNT>
    __device__ void store_sum(f32 (&values)[COUNT], u64 row, u64 col) const {
        if (residual.is_there()) {
            f32 residuals[COUNT];
            load(residuals, residual.row(row) + col);
#pragma unroll
            for (u32 i = 0; i < COUNT; i++) {
                values[i] = fmaf(residuals[i], residual_scale, values[i]);
            }
        }
        store(out.row(row) + col, values);
    }

    template <u32 COUNT>
    __device__ void at(u64 row, u64 col) const {
        f32 values[COUNT];
        load_biased(values, row, col);
        store_sum(values, row, col);
    }

    template <u32 COUNT>
    __device__ void at(u64 row, u64 col, const f32 (&factors)[COUNT]) const {
        f32 values[COUNT];
        load_biased(values, row, col);
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) {
            values[i] = values[i] * factors[i];
        }
        store_sum(values, row, col);
    }
};

// Without a number of blocks, ptxas spills on sm_120a at 40 registers.
#define ADD_RESIDUAL(NAME, E)                                                                                          \
    extern "C" __global__ void __launch_bounds__(256, 4)                                                               \
        NAME(Matrix<const E> x, Matrix<const E> bias, Matrix<const E> residual, f32 residual_scale, Matrix<E> out) {   \
        const Add<E> add = {x, bias, residual, residual_scale, out};                                                   \
        for_each_vector<IN_ACCESS<E>>(out.rows, out.cols, add.template in_vectors<IN_ACCESS<E>>(), add);               \
    }

ADD_RESIDUAL(add_residual_f32, f32)
ADD_RESIDUAL(add_residual_bf16, Bf16)
ADD_RESIDUAL(add_residual_f16, F16)

#define DROPOUT_ADD(NAME, E)                                                                                           \
    extern "C" __global__ void __launch_bounds__(256, 4)                                                               \
        NAME(Matrix<const E> x, Matrix<const E> bias, Matrix<const E> residual, f32 residual_scale, DropoutMask mask,  \
             Matrix<E> out) {                                                                                          \
        const Add<E> add = {x, bias, residual, residual_scale, out};                                                   \
        for_each_factor(out.rows, out.cols, mask, add.template in_vectors<FOUR>(), add);                               \
    }

DROPOUT_ADD(dropout_add_f32, f32)
DROPOUT_ADD(dropout_add_bf16, Bf16)
DROPOUT_ADD(dropout_add_f16, F16)

// `dx = factor * dy`; `dy` may be `dx`.
template <typename E>
struct Backward {
    Matrix<const E> dy;
    Matrix<E> dx;

    template <u32 COUNT>
    __device__ void at(u64 row, u64 col, const f32 (&factors)[COUNT]) const {
        f32 values[COUNT];
        load(values, dy.row(row) + col);
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) {
            values[i] = values[i] * factors[i];
        }
        store(dx.row(row) + col, values);
    }
};

#define DROPOUT_BACKWARD(NAME, E)                                                                                      \
    extern "C" __global__ void __launch_bounds__(256, 4) NAME(Matrix<const E> dy, DropoutMask mask, Matrix<E> dx) {    \
        const bool in_fours = has_vectors<FOUR>(dy) && has_vectors<FOUR>(dx);                                          \
        for_each_factor(dx.rows, dx.cols, mask, in_fours, Backward<E>{dy, dx});                                        \
    }

DROPOUT_BACKWARD(dropout_backward_f32, f32)
DROPOUT_BACKWARD(dropout_backward_bf16, Bf16)
DROPOUT_BACKWARD(dropout_backward_f16, F16)
