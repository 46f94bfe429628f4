// Further products of matrices by warpgroups, for compute capability 9.0 alone: those that begin sums, and those whose
// left factor is in registers.
#pragma once

#include "warpgroup.cuh"

namespace warpgroup {

// Adds the product of `a[64,16]` and `b[16,N]` to `sums[64,N]`. A warp has sixteen rows of the left factor, as
// fragments of `tensor_core::multiply`.
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

// `sums[64,N]` become the product of `a[64,16]` and `b[16,N]`, whatever they were. The written variables of earlier
// sums are not operands, so products that are under way need not be waited for.
template <typename E, Major A, Major B, u32 N>
struct FirstProduct;

#define NEW_SUMS_8(sums, i)                                                                                            \
    "=f"(sums[i]), "=f"(sums[i + 1]), "=f"(sums[i + 2]), "=f"(sums[i + 3]), "=f"(sums[i + 4]), "=f"(sums[i + 5]),      \
        "=f"(sums[i + 6]), "=f"(sums[i + 7])
#define NEW_SUMS_32(sums, i)                                                                                           \
    NEW_SUMS_8(sums, i), NEW_SUMS_8(sums, i + 8), NEW_SUMS_8(sums, i + 16), NEW_SUMS_8(sums, i + 24)

#define FIRST_PRODUCT(E, TYPE, N, TEXT, X, Y, U, V, ...)                                                               \
    template <Major A, Major B>                                                                                        \
    struct FirstProduct<E, A, B, N> {                                                                                  \
        __device__ static void start(f32 (&sums)[N / 2], u64 a, u64 b) {                                               \
            asm volatile("{\n.reg .pred is_added;\nsetp.ne.b32 is_added, 0, 0;\n"                                     \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" TEXT "}, %" X ", %" Y    \
                         ", is_added, 1, 1, %" U ", %" V ";\n}"                                                        \
                         : __VA_ARGS__                                                                                 \
                         : "l"(a), "l"(b), "n"((u32)A), "n"((u32)B));                                                  \
        }                                                                                                              \
    };

#define FIRST_PRODUCTS(E, TYPE)                                                                                        \
    FIRST_PRODUCT(E, TYPE, 64, FIRST_32, "32", "33", "34", "35", NEW_SUMS_32(sums, 0))                                 \
    FIRST_PRODUCT(E, TYPE, 128, FIRST_32 ", " SECOND_32, "64", "65", "66", "67", NEW_SUMS_32(sums, 0),                 \
                  NEW_SUMS_32(sums, 32))                                                                               \
    FIRST_PRODUCT(E, TYPE, 160, FIRST_32 ", " SECOND_32 ", " THIRD_16, "80", "81", "82", "83", NEW_SUMS_32(sums, 0),   \
                  NEW_SUMS_32(sums, 32), NEW_SUMS_8(sums, 64), NEW_SUMS_8(sums, 72))                                   \
    FIRST_PRODUCT(E, TYPE, 192, FIRST_32 ", " SECOND_32 ", " THIRD_32, "96", "97", "98", "99", NEW_SUMS_32(sums, 0),   \
                  NEW_SUMS_32(sums, 32), NEW_SUMS_32(sums, 64))                                                        \
    FIRST_PRODUCT(E, TYPE, 256, FIRST_32 ", " SECOND_32 ", " THIRD_32 ", " FOURTH_32, "128", "129", "130", "131",      \
                  NEW_SUMS_32(sums, 0), NEW_SUMS_32(sums, 32), NEW_SUMS_32(sums, 64), NEW_SUMS_32(sums, 96))

FIRST_PRODUCTS(Bf16, "bf16")
FIRST_PRODUCTS(F16, "f16")
PRODUCTS_OF_REGISTERS(Bf16, "bf16")
PRODUCTS_OF_REGISTERS(F16, "f16")

}  // namespace warpgroup
