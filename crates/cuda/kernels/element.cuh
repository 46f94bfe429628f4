// Real numbers in memory: f32, and two narrow types with the conversions of `device::element`. Kernels compute in f32:
// a load widens, a store rounds once.
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
    const u32 sign = (u32)(value.bits & 0x8000) << 16;
    const u32 magnitude = value.bits & 0x7fff;
    if (magnitude >= 0x7c00) {
        return __uint_as_float(sign | INFINITE | (magnitude & 0x3ff) << 13);
    }
    // With the exponent in place of that of an f32 the number is 2^112 times too small, subnormal ones too.
    const f32 scale = __uint_as_float((127 + 112) << 23);
    return __uint_as_float(sign | __float_as_uint(__uint_as_float(magnitude << 13) * scale));
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
    const u32 bits = __float_as_uint(value);
    if ((bits & ~SIGN) > INFINITE) {
        return {(u16)(bits >> 16 | 0x40)};
    }
    const u32 odd = bits >> 16 & 1;
    return {(u16)((bits + 0x7fff + odd) >> 16)};
}

template <>
__device__ inline F16 narrow<F16>(f32 value) {
    const u32 bits = __float_as_uint(value);
    const u32 sign = bits >> 16 & 0x8000;
    const u32 magnitude = bits & ~SIGN;
    if (magnitude > INFINITE) {
        return {(u16)(sign | 0x7e00 | (magnitude >> 13 & 0x1ff))};
    }
    // Halfway between the largest number, 65504, and the one that would follow.
    if (magnitude >= 0x477ff000) {
        return {(u16)(sign | 0x7c00)};
    }
    // Below 2^-14 the addition rounds: the last place of numbers from 0.5 on is that of subnormal halves.
    if (magnitude < 0x38800000) {
        return {(u16)(sign | (__float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000u))};
    }
    const u32 odd = magnitude >> 13 & 1;
    return {(u16)(sign | (((magnitude + 0xfff + odd) >> 13) - (112 << 10)))};
}
