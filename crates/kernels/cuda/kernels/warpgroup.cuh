// Products of matrices by warpgroups, for compute capability 9.0 alone: `wgmma` reads both factors from shared memory.
// Terms are added in blocks of 16, as by `mma.sync`.
#pragma once

#include "element.cuh"

namespace warpgroup {

// The layout of a factor in shared memory: its steps, or its rows (of the left factor) or columns (of the right one),
// next to each other.
enum class Major : u32 { STEPS, LANES };

// The descriptor of a factor in chunks that are exchanged within 128 bytes. Rows of 128 bytes have 64 steps or 64
// lanes; eight of them are next to each other, and so are the following eight. `block_bytes` is the distance of the
// next 64 lanes, where rows have lanes.
__device__ inline u64 descriptor(u32 address, u32 block_bytes) {
    constexpr u64 EIGHT_ROWS = 1024;
    constexpr u64 SWIZZLE_OF_128_BYTES = 1;
    return (u64)(address >> 4 & 0x3fff) | (u64)(block_bytes >> 4) << 16 | EIGHT_ROWS >> 4 << 32
        | SWIZZLE_OF_128_BYTES << 62;
}

// The distance of the next 16 steps, as a difference of descriptors.
__device__ constexpr u64 next_block(Major major) {
    return major == Major::STEPS ? 32 >> 4 : 2048 >> 4;
}

// Products that follow may read registers that this thread has written.
__device__ inline void begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// Ends a group of products.
__device__ inline void end() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits for all groups of products but the last `OPEN`.
template <u32 OPEN>
__device__ inline void wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(OPEN) : "memory");
}

// Keeps the compiler from moving accesses to sums across this place.
template <u32 COUNT>
__device__ inline void pin(f32 (&sums)[COUNT]) {
#pragma unroll
    for (u32 index = 0; index < COUNT; index++) {
        asm volatile("" : "+f"(sums[index])::"memory");
    }
}

// `sums[64,N]` become the product of `a[64,16]` and `b[16,N]`, or that is added to them. Of thread t, sums 4 i and
// 4 i + 1 are of row 16 (t / 32) + t % 32 / 4 and columns 8 i + 2 (t % 4) and the next one; the other two are 8 rows
// below.
template <typename E, Major A, Major B, u32 N>
struct Product;

#define SUMS_8(sums, i)                                                                                                \
    "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]), "+f"(sums[i + 5]),      \
        "+f"(sums[i + 6]), "+f"(sums[i + 7])
#define SUMS_32(sums, i) SUMS_8(sums, i), SUMS_8(sums, i + 8), SUMS_8(sums, i + 16), SUMS_8(sums, i + 24)

#define FIRST_32 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SECOND_32 \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define THIRD_16 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define THIRD_32 \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define FOURTH_32 \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// The instruction for one type and number of columns: `TEXT` names its registers, the operands at the end are its sums,
// and `X` to `V` are the numbers of the operands after them.
#define PRODUCT(E, TYPE, N, TEXT, X, Y, Z, U, V, ...)                                                                  \
    template <Major A, Major B>                                                                                        \
    struct Product<E, A, B, N> {                                                                                       \
        __device__ static void add(f32 (&sums)[N / 2], u64 a, u64 b, u32 is_added) {                                   \
            asm volatile("{\n.reg .pred is_added;\nsetp.ne.b32 is_added, %" Z ", 0;\n"                                 \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" TEXT "}, %" X ", %" Y    \
                         ", is_added, 1, 1, %" U ", %" V ";\n}"                                                        \
                         : __VA_ARGS__                                                                                 \
                         : "l"(a), "l"(b), "r"(is_added), "n"((u32)A), "n"((u32)B));                                   \
        }                                                                                                              \
    };

#define PRODUCTS(E, TYPE)                                                                                              \
    PRODUCT(E, TYPE, 64, FIRST_32, "32", "33", "34", "35", "36", SUMS_32(sums, 0))                                     \
    PRODUCT(E, TYPE, 128, FIRST_32 ", " SECOND_32, "64", "65", "66", "67", "68", SUMS_32(sums, 0), SUMS_32(sums, 32))  \
    PRODUCT(E, TYPE, 160, FIRST_32 ", " SECOND_32 ", " THIRD_16, "80", "81", "82", "83", "84", SUMS_32(sums, 0),        \
            SUMS_32(sums, 32), SUMS_8(sums, 64), SUMS_8(sums, 72))                                                     \
    PRODUCT(E, TYPE, 192, FIRST_32 ", " SECOND_32 ", " THIRD_32, "96", "97", "98", "99", "100", SUMS_32(sums, 0),       \
            SUMS_32(sums, 32), SUMS_32(sums, 64))                                                                      \
    PRODUCT(E, TYPE, 256, FIRST_32 ", " SECOND_32 ", " THIRD_32 ", " FOURTH_32, "128", "129", "130", "131", "132",     \
            SUMS_32(sums, 0), SUMS_32(sums, 32), SUMS_32(sums, 64), SUMS_32(sums, 96))

PRODUCTS(Bf16, "bf16")
PRODUCTS(F16, "f16")

}  // namespace warpgroup
