// Tensor cores and the copies that feed them: fragments of 16 x 16 and 16 x 8 values of 16 bits, which the lanes of a
// warp hold together.
//
// Lane 4 g + t has, of a 16 x 8 fragment of sums, columns 2 t and 2 t + 1 of rows g and g + 8. A product of 16 steps is
// one block of "blocks16" or two of "blocks8", as the GPU's tensor cores are.
#pragma once

#include "element.cuh"

namespace tensor_core {

// Adds the product of 16 x 16 and 16 x 8 numbers to 16 x 8 sums.
template <typename Element>
__device__ void multiply(f32 (&sums)[4], const u32 (&a)[4], u32 b0, u32 b1);

template <>
__device__ inline void multiply<Bf16>(f32 (&sums)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ inline void multiply<F16>(f32 (&sums)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two numbers, rounded to nearest, the first in the low half.
template <typename Element>
__device__ u32 packed(f32 first, f32 second);

template <>
__device__ inline u32 packed<Bf16>(f32 first, f32 second) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

template <>
__device__ inline u32 packed<F16>(f32 first, f32 second) {
    u32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

// Where a pointer to shared memory points.
__device__ inline u32 shared_address(const void* pointer) {
    return (u32)__cvta_generic_to_shared(pointer);
}

// Four matrices of 8 x 8 numbers: lane 8 m + r has the address of row r of matrix m. Register m of lane 4 g + t has
// columns 2 t and 2 t + 1 of row g of matrix m.
__device__ inline void load_rows(u32 (&registers)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(address)
                 : "memory");
}

// The same of the transposes.
__device__ inline void load_columns(u32 (&registers)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(address)
                 : "memory");
}

// Starts a copy of 16 bytes to shared memory, of which the last 16 - `bytes` become zero.
__device__ inline void start_copy(u32 to, const void* from, u32 bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(to), "l"(from), "r"(bytes) : "memory");
}

// Ends the group of the copies that this thread has started.
__device__ inline void end_copies() {
    asm volatile("cp.async.commit_group;" : : : "memory");
}

// Waits for all groups of this thread's copies but the last `OPEN`.
template <u32 OPEN>
__device__ inline void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" : : "n"(OPEN) : "memory");
}

// The larger one, and NaN if one of them is.
__device__ inline f32 larger_or_nan(f32 a, f32 b) {
    f32 result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
}

// The smaller one, and NaN if one of them is.
__device__ inline f32 smaller_or_nan(f32 a, f32 b) {
    f32 result;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
}

}  // namespace tensor_core
