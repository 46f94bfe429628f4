// Sums that associate, with the words of `cpu::fixed_point`: a number is rounded once to a multiple of 2^-80 and added
// as limbs of 32 bits, without carries, so that any order gives the same words.
#pragma once

#include "math.cuh"
#include "sum_words.cuh"

namespace fixed_point {

constexpr i32 LIMB_BITS = 32;
constexpr i32 FRACTION_BITS = 80;
constexpr i32 LIMIT_BITS = 160;
constexpr i32 SIGNIFICAND_BITS = 53;

__device__ inline f64 power_of_two(i32 exponent) {
    return math::double_of_bits((u64)(1023 + exponent) << 52);
}

// Adds `value`, rounded to the nearest multiple of 2^-80, to the limbs of `words`.
__device__ inline void add(i64* words, f64 value) {
    const f64 magnitude = math::double_of_bits((u64)__double_as_longlong(value) & ~(1ull << 63));
    // False of what is not a number, too.
    if (!(magnitude < power_of_two(LIMIT_BITS))) {
        words[NOT_FINITE] += 1;
        return;
    }
    const f64 units = rint(value * power_of_two(FRACTION_BITS));
    const i32 exponent = (i32)((u64)__double_as_longlong(units) >> (SIGNIFICAND_BITS - 1) & 0x7ff) - 1023;
    const i32 excess = exponent + 1 - SIGNIFICAND_BITS;
    const i32 shift = excess > 0 ? excess : 0;
    const i64 whole = __double2ll_rz(units * power_of_two(-shift));
    const i32 within = shift % LIMB_BITS;
    const i32 first = shift / LIMB_BITS;
    // `whole << within` has up to 85 bits: its lowest limb, and the rest with the sign.
    const i64 lowest = (i64)((u64)whole << within & 0xffffffffull);
    const i64 rest = whole >> (LIMB_BITS - within);
#pragma unroll
    for (i32 limb = 0; limb < (i32)LIMBS; limb++) {
        // Constant places keep the words in registers.
        words[limb] += limb == first       ? lowest
                       : limb == first + 1 ? rest & 0xffffffffll
                       : limb == first + 2 ? rest >> 32
                                           : 0;
    }
}

// `sign` times the sum; false if that is negative.
__device__ inline bool magnitude(const i64* words, i64 sign, f64& result) {
    u32 limbs[LIMBS - 1];
    i64 carry = 0;
#pragma unroll
    for (u32 index = 0; index < LIMBS - 1; index++) {
        const i64 low = sign * (words[index] & 0xffffffffll) + carry;
        limbs[index] = (u32)low;
        carry = sign * (words[index] >> LIMB_BITS) + (low >> LIMB_BITS);
    }
    const i64 high = sign * words[LIMBS - 1] + carry;
    f64 sum = (f64)high;
#pragma unroll
    for (i32 index = LIMBS - 2; index >= 0; index--) {
        sum = sum * power_of_two(LIMB_BITS) + (f64)limbs[index];
    }
    result = sum * power_of_two(-FRACTION_BITS);
    return high >= 0;
}

// The sum as f64; not a number if a value was not finite.
__device__ inline f64 to_f64(const i64* words) {
    if (words[NOT_FINITE] != 0) {
        return math::double_of_bits(0x7FF8000000000000ull);
    }
    // The magnitude is converted, because the parts of a negative number would cancel.
    f64 result;
    if (magnitude(words, 1, result)) {
        return result;
    }
    return magnitude(words, -1, result) ? -result : 0.0;
}

}  // namespace fixed_point
