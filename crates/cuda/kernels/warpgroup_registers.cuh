// Products of matrices by warpgroups whose left factor is in registers, for compute capability 9.0 alone.
#pragma once

#include "warpgroup.cuh"

namespace warpgroup {

// Adds the product of `a[64,16]` and `b[16,N]` to `sums[64,N]`. A warp has sixteen rows of the left factor, as fragments
// of `tensor_core::multiply`.
template <typename E, Major B, u32 N>
struct ProductOfRegisters;

#define PRODUCT_OF_REGISTERS(E, TYPE, N, TEXT, W, X, Y, Z, U, V, ...)                                                  \
    template <Major B>                                                                                                 \
    struct ProductOfRegisters<E, B, N> {                                                                               \
        __device__ static void add(f32 (&sums)[N / 2], const u32 (&a)[4], u64 b) {                                     \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" TEXT "}, {%" W ", %" X   \
                         ", %" Y ", %" Z "}, %" U ", 1, 1, 1, %" V ";"                                                 \
                         : __VA_ARGS__                                                                                 \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"((u32)B));                           \
        }                                                                                                              \
    };

#define PRODUCTS_OF_REGISTERS(E, TYPE)                                                                                 \
    PRODUCT_OF_REGISTERS(E, TYPE, 64, FIRST_32, "32", "33", "34", "35", "36", "37", SUMS_32(sums, 0))                  \
    PRODUCT_OF_REGISTERS(E, TYPE, 128, FIRST_32 ", " SECOND_32, "64", "65", "66", "67", "68", "69", SUMS_32(sums, 0),  \
                         SUMS_32(sums, 32))

PRODUCTS_OF_REGISTERS(Bf16, "bf16")
PRODUCTS_OF_REGISTERS(F16, "f16")

}  // namespace warpgroup
