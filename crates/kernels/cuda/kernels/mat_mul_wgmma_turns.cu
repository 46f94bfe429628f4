// Products of bf16 or fp16 matrices in blocks of 16 on compute capability 9.0, as in `mat_mul_wgmma.cu` and with the
// same bits, by two warpgroups in turns: each multiplies whole tiles, and while it stores one, the other multiplies the
// next one.
//
// A block's tiles are pairs: the first of a pair belongs to the first warpgroup, the other to the second. Pieces of a
// pair's sums come in turns, too, so that storing each is hidden.
#include "warpgroup_turns.cuh"

// A kernel for factors of this layout, with tiles of `COLS` columns.
#define TURNS(NAME, A, B, COLS)                                                                                        \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                           \
        NAME(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, AnyMatrix bias, AnyMatrix out,  \
             u32 steps, FactorType factor_type, OutputType type, u32 is_accumulated) {                                 \
        const PlainOutput<COLS> output = {{bias, out, type, is_accumulated != 0}};                                     \
        multiply_in_turns<Ring<Major::A, Major::B, COLS>>(a, b, steps, 0, factor_type, output);                        \
    }

// `out[M,N] = a[M,K] b[N,K]^T`
TURNS(mat_mul_wgmma_turns_nt_128, STEPS, STEPS, 128)

// `out[M,N] = a[M,K] b[K,N]`
TURNS(mat_mul_wgmma_turns_nn_128, STEPS, LANES, 128)

// `out[M,N] = a[K,M]^T b[K,N]`
TURNS(mat_mul_wgmma_turns_tn_128, LANES, LANES, 128)
