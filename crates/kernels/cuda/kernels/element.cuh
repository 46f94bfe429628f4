// Real numbers in memory: f32, and two narrow types with the conversions of `device::element`. Kernels compute in f32:
// a load widens, a store rounds once. The conversions are instructions, which C++ without a library cannot name.
#pragma once

#include "types.cuh"

struct Bf16 {
    u16 bits;
};

struct F16 {
    u16 bits;
};

__device__ inline f32 widen(f32 value) {
    return value;
}

__device__ inline f32 widen(Bf16 value) {
    return __uint_as_float((u32)value.bits << 16);
}

__device__ inline f32 widen(F16 value) {
#ifdef __HIP__
    return (f32)__builtin_bit_cast(_Float16, value.bits);
#else
    f32 wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
    return wide;
#endif
}

// The nearest number of a type, ties to even; NaN stays it.
template <typename Element>
__device__ Element narrow(f32 value);

template <>
__device__ inline f32 narrow<f32>(f32 value) {
    return value;
}

template <>
__device__ inline Bf16 narrow<Bf16>(f32 value) {
#ifdef __HIP__
    return Bf16{__builtin_bit_cast(u16, (__bf16)value)};
#else
    Bf16 narrowed;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrowed.bits) : "f"(value));
    return narrowed;
#endif
}

template <>
__device__ inline F16 narrow<F16>(f32 value) {
#ifdef __HIP__
    return F16{__builtin_bit_cast(u16, (_Float16)value)};
#else
    F16 narrowed;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrowed.bits) : "f"(value));
    return narrowed;
#endif
}
