// Products of bf16 or fp16 matrices in blocks, to an output of any type of real numbers.
#include "product_blocks_output.cuh"

// A kernel for operands of this layout, with tiles of `SIDE` rows and columns.
#define MAT_MUL(NAME, LEFT, RIGHT, E, SIDE)                                                                            \
    extern "C" __global__ void __launch_bounds__(threads_of(SIDE))                                                     \
        NAME(AnyMatrix a, Loading a_loading, AnyMatrix b, Loading b_loading, AnyMatrix bias, AnyMatrix out,            \
             OutputType type, u32 is_accumulated) {                                                                    \
        const ProductOutput<SIDE> output = {bias, out, type, is_accumulated};                                          \
        multiply<Along::LEFT, Along::RIGHT, E, SIDE>({a, a_loading}, {b, b_loading}, output);                          \
    }

// `out[M,N] = a[M,K] b[N,K]^T`
MAT_MUL(mat_mul_blocks_nt_bf16_128, STEPS_IN_ROWS, STEPS_IN_ROWS, Bf16, 128)
MAT_MUL(mat_mul_blocks_nt_bf16_64, STEPS_IN_ROWS, STEPS_IN_ROWS, Bf16, 64)
MAT_MUL(mat_mul_blocks_nt_f16_128, STEPS_IN_ROWS, STEPS_IN_ROWS, F16, 128)
MAT_MUL(mat_mul_blocks_nt_f16_64, STEPS_IN_ROWS, STEPS_IN_ROWS, F16, 64)

// `out[M,N] = a[M,K] b[K,N]`
MAT_MUL(mat_mul_blocks_nn_bf16_128, STEPS_IN_ROWS, LANES_IN_ROWS, Bf16, 128)
MAT_MUL(mat_mul_blocks_nn_bf16_64, STEPS_IN_ROWS, LANES_IN_ROWS, Bf16, 64)
MAT_MUL(mat_mul_blocks_nn_f16_128, STEPS_IN_ROWS, LANES_IN_ROWS, F16, 128)
MAT_MUL(mat_mul_blocks_nn_f16_64, STEPS_IN_ROWS, LANES_IN_ROWS, F16, 64)

// `out[M,N] = a[K,M]^T b[K,N]`
MAT_MUL(mat_mul_blocks_tn_bf16_128, LANES_IN_ROWS, LANES_IN_ROWS, Bf16, 128)
MAT_MUL(mat_mul_blocks_tn_bf16_64, LANES_IN_ROWS, LANES_IN_ROWS, Bf16, 64)
MAT_MUL(mat_mul_blocks_tn_f16_128, LANES_IN_ROWS, LANES_IN_ROWS, F16, 128)
MAT_MUL(mat_mul_blocks_tn_f16_64, LANES_IN_ROWS, LANES_IN_ROWS, F16, 64)
