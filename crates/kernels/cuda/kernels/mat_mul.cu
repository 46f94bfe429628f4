// Products of two matrices in chains.
#include "product_chains.cuh"

// A kernel for operands of this layout, with tiles of `SIDE` rows and columns.
#define MAT_MUL(NAME, LEFT, RIGHT, SIDE)                                                                               \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                              \
        NAME(Types types, Any a, Any b, Any bias, Matrix<void> out, u32 is_accumulated) {                              \
        const TileStart tile = {(u64)blockIdx.x * SIDE, (u64)blockIdx.y * SIDE};                                       \
        multiply<Along::LEFT, Along::RIGHT, SIDE>(types, a, b, bias, out, is_accumulated, tile);                       \
    }

// `out[M,N] = a[M,K] b[N,K]^T`
MAT_MUL(mat_mul_nt_128, STEPS_IN_ROWS, STEPS_IN_ROWS, 128)
MAT_MUL(mat_mul_nt_64, STEPS_IN_ROWS, STEPS_IN_ROWS, 64)

// `out[M,N] = a[M,K] b[K,N]`
MAT_MUL(mat_mul_nn_128, STEPS_IN_ROWS, LANES_IN_ROWS, 128)
MAT_MUL(mat_mul_nn_64, STEPS_IN_ROWS, LANES_IN_ROWS, 64)

// `out[M,N] = a[K,M]^T b[K,N]`
MAT_MUL(mat_mul_tn_128, LANES_IN_ROWS, LANES_IN_ROWS, 128)
MAT_MUL(mat_mul_tn_64, LANES_IN_ROWS, LANES_IN_ROWS, 64)
