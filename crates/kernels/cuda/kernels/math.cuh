// Elementary functions with the bits of `cpu::math`, one number at a time: the same polynomials, the same order of
// operations, fused exactly where `fmaf` and `fma` say so. Errors and ranges are in that module's documentation.
//
// The file must be compiled without contraction of products and sums (`--fmad=false`).
#pragma once

#include "types.cuh"

namespace math {

constexpr f32 LN2_HIGH = 0.69314575f;
constexpr f32 LN2_LOW = 1.4286068e-6f;
constexpr f32 LOG2_E = 1.44269504088896340736f;
constexpr f32 LN2 = 0.693147180559945309417f;
constexpr f32 EXP_LOWEST = -86.643394f;
constexpr f32 EXP_HIGHEST = 88.72284f;
constexpr f32 MIN_POSITIVE = 1.17549435e-38f;
// The bits of sqrt(1/2), where the range of significands starts.
constexpr i32 SQRT_HALF_BITS = 0x3f3504f3;

__device__ inline f32 infinity() {
    return __uint_as_float(INFINITE);
}

__device__ inline f32 not_a_number() {
    return __uint_as_float(0x7fc00000u);
}

// `a > b ? a : b`, so `b` where one of them is not a number.
__device__ inline f32 larger(f32 a, f32 b) {
    return a > b ? a : b;
}

__device__ inline f32 with_sign_of(f32 magnitude, f32 sign) {
    return __uint_as_float((__float_as_uint(magnitude) & ~SIGN) | (__float_as_uint(sign) & SIGN));
}

__device__ inline f32 magnitude_of(f32 x) {
    return __uint_as_float(__float_as_uint(x) & ~SIGN);
}

// `c[0] + c[1] x + c[2] x^2 + ...` by Horner's rule, fused.
template <int N>
__device__ inline f32 polynomial(f32 x, const f32 (&c)[N]) {
    f32 sum = c[N - 1];
#pragma unroll
    for (int index = N - 2; index >= 0; index--) {
        sum = fmaf(sum, x, c[index]);
    }
    return sum;
}

// A number of this size has no fraction: adding it rounds to a whole number, ties to even, which is in the low bits of
// the sum.
constexpr f32 WHOLE = 12582912.0f;

// `e^x = power * 2^count`, with `count` in the low bits.
struct Scaled {
    f32 power;
    u32 count;
};

__device__ inline Scaled scaled_exp(f32 x) {
    const f32 shifted = x * LOG2_E + WHOLE;
    const f32 count = shifted - WHOLE;
    f32 rest = fmaf(count, -LN2_HIGH, x);
    rest = fmaf(count, -LN2_LOW, rest);
    const f32 tail = polynomial(rest, {0.49999994f, 0.16666515f, 0.041668456f, 0.008369419f, 0.001381318f});
    return {fmaf(tail, rest * rest, rest) + 1.0f, __float_as_uint(shifted)};
}

// The power of two is applied in two steps, because 2^128 is not an f32 but products just below it are. Everything is
// computed for every number: a branch would keep a thread's exponentials from running at once.
__device__ inline f32 exp(f32 x) {
    const Scaled scaled = scaled_exp(x);
    const f32 half = scaled.power * __uint_as_float((scaled.count + 126) << 23);
    const f32 whole = half + half;
    const f32 result = x < EXP_LOWEST ? 0.0f : whole;
    return EXP_HIGHEST < x ? infinity() : result;
}

// The same of numbers up to 80 or what is not a number: one step suffices, and no result is infinite.
__device__ inline f32 exp_up_to_80(f32 x) {
    const Scaled scaled = scaled_exp(x);
    const f32 whole = scaled.power * __uint_as_float((scaled.count + 127) << 23);
    return x < EXP_LOWEST ? 0.0f : whole;
}

// `1 / x`, rounded to nearest, for `x` from 1 to 2^116: a first guess by the bits, two steps that cube its error, and
// one that rounds. All steps scale with powers of two, so that 2^23 significands decide; a test tries each. The first
// guess is so that the last step rounds the largest significand up. Unlike a division it has no branch.
__device__ inline f32 reciprocal(f32 x) {
    f32 guess = __uint_as_float(0x7ef36bbbu - __float_as_uint(x));
#pragma unroll
    for (int step = 0; step < 2; step++) {
        const f32 error = fmaf(-x, guess, 1.0f);
        guess = fmaf(guess, fmaf(error, error, error), guess);
    }
    return fmaf(guess, fmaf(-x, guess, 1.0f), guess);
}

__device__ inline f32 log(f32 x) {
    const bool is_small = x < MIN_POSITIVE;
    const f32 normal = is_small ? x * 8388608.0f : x;
    const i32 bits = __float_as_int(normal);
    const i32 whole = (i32)((u32)bits - (u32)SQRT_HALF_BITS) >> 23;
    const f32 significand = __uint_as_float((u32)bits - ((u32)whole << 23));
    f32 exponent = (f32)whole;
    exponent = is_small ? exponent - 23.0f : exponent;
    const f32 f = significand - 1.0f;
    const f32 square = f * f;
    const f32 tail = polynomial(f, {0.33333313f, -0.2500001f, 0.20002119f, -0.16667996f, 0.14219552f, -0.1240559f,
                                    0.11888163f, -0.116756506f, 0.06746638f});
    f32 correction = (tail * f * square) + exponent * LN2_LOW;
    correction = fmaf(square, -0.5f, correction);
    f32 result = fmaf(exponent, LN2_HIGH, f + correction);
    const f32 at_most_zero = x < 0.0f ? not_a_number() : -infinity();
    result = 0.0f < x ? result : at_most_zero;
    // Infinity and what is not a number are their own logarithms.
    return x < infinity() ? result : x;
}

struct SigmoidAndComplement {
    f32 sigmoid;
    f32 complement;
};

__device__ inline SigmoidAndComplement sigmoid_and_complement(f32 x) {
    // NaN stays NaN.
    const f32 power = exp_up_to_80(80.0f < -x ? 80.0f : -x);
    const f32 sigmoid = reciprocal(1.0f + power);
    return {sigmoid, power * sigmoid};
}

__device__ inline f32 sigmoid(f32 x) {
    return sigmoid_and_complement(x).sigmoid;
}

__device__ inline f32 tanh(f32 x) {
    const f32 square = x * x;
    const f32 tail = polynomial(square, {-0.3333328f, 0.13331442f, -0.05373972f, 0.0206391f, -0.005704998f});
    const f32 small = fmaf(tail * square, x, x);
    const f32 magnitude = magnitude_of(x);
    const f32 twice = magnitude + magnitude;
    // NaN stays NaN. The result is 1 long before 80; twice a rounded reciprocal is the rounded quotient.
    const f32 power = exp_up_to_80(80.0f < twice ? 80.0f : twice) + 1.0f;
    const f32 large = with_sign_of(1.0f - 2.0f * reciprocal(power), x);
    return magnitude < 0.625f ? small : large;
}

// `erfc(magnitude)`, given `power = e^(-magnitude^2)`.
__device__ inline f32 complement_of_erf(f32 magnitude, f32 power) {
    const f32 t = 1.0f / fmaf(magnitude, 0.4f, 1.0f);
    const f32 scaled = polynomial(t, {0.22571066f, 0.22488007f, 0.21551068f, 0.12694511f, 0.2799096f, -0.29886964f,
                                      0.5647571f, -0.5117236f, 0.20347537f, -0.030595362f});
    return power * (t * scaled);
}

__device__ inline f32 erf(f32 x) {
    const f32 square = x * x;
    const f32 tail = polynomial(square, {0.12837917f, -0.37612626f, 0.112835854f, -0.02685381f, 0.005188327f,
                                         -0.00080101896f, 7.853848e-5f});
    const f32 small = fmaf(tail, x, x);
    const f32 magnitude = magnitude_of(x);
    const f32 large = with_sign_of(1.0f - complement_of_erf(magnitude, exp_up_to_80(-square)), x);
    return magnitude < 1.0f ? small : large;
}

struct Normal {
    f32 cumulative;
    f32 density;
};

__device__ inline Normal normal(f32 x) {
    const f32 power = exp_up_to_80(x * x * -0.5f);
    const f32 magnitude = magnitude_of(x) * 0.707106781186547524400844362104849039f;
    const f32 tail = complement_of_erf(magnitude, power) * 0.5f;
    return {x < 0.0f ? tail : 1.0f - tail, power * 0.3989423f};
}

struct SinCos {
    f32 sin;
    f32 cos;
};

// Of the angle `2 pi word / 2^32`.
__device__ inline SinCos sin_cos_of_turn(u32 word) {
    const u32 quarter = (word + (1u << 29)) >> 30;
    const f32 x = (f32)(i32)(word - (quarter << 30)) * (6.28318530717958647692528676655900577f / 4294967296.0f);
    const f32 sin_sign = 1.0f - (f32)(i32)(quarter & 2);
    const f32 cos_sign = 1.0f - (f32)(i32)((quarter + 1) & 2);
    const f32 square = x * x;
    const f32 sin_tail = polynomial(square, {-0.16666667f, 0.008333329f, -0.00019839313f, 2.7181213e-6f});
    const f32 cos_tail = polynomial(square, {0.041666646f, -0.0013887316f, 2.4433157e-5f});
    const f32 sin = fmaf(sin_tail * square, x, x);
    const f32 half = fmaf(square, -0.5f, 1.0f);
    const f32 cos = fmaf(cos_tail * square, square, half);
    const bool swap = (quarter & 1) != 0;
    return {(swap ? cos : sin) * sin_sign, (swap ? sin : cos) * cos_sign};
}

__device__ inline f64 double_of_bits(u64 bits) {
    return __longlong_as_double((i64)bits);
}

constexpr u64 DOUBLE_LN2_HIGH_BITS = 0x3FE62E42FEE00000ull;
constexpr u64 DOUBLE_LN2_LOW_BITS = 0x3DEA39EF35793C76ull;

__device__ inline f64 exp_f64(f64 x) {
    const f64 count = rint(x * 1.44269504088896340735992468100189214);
    f64 rest = fma(-count, double_of_bits(DOUBLE_LN2_HIGH_BITS), x);
    rest = fma(-count, double_of_bits(DOUBLE_LN2_LOW_BITS), rest);
    f64 sum = 1.0;
    for (int n = 14; n > 0; n--) {
        sum = 1.0 + rest / (f64)n * sum;
    }
    const i64 biased = __double2ll_rz(count) + 1023;
    const i64 clamped = biased < 0 ? 0 : biased > 2046 ? 2046 : biased;
    return sum * double_of_bits((u64)clamped << 52);
}

__device__ inline f64 log_f64(f64 x) {
    constexpr u64 SMALLEST_NORMAL = 1ull << 52;
    constexpr u64 DOUBLE_INFINITE = 0x7FF0000000000000ull;
    constexpr i64 DOUBLE_SQRT_HALF_BITS = 0x3FE6A09E667F3BCDll;
    const i64 bits = __double_as_longlong(x);
    if (!(x >= 0.0)) {
        return double_of_bits(0x7FF8000000000000ull);
    }
    if (x < double_of_bits(SMALLEST_NORMAL) || (u64)bits == DOUBLE_INFINITE) {
        return x > 1.0 ? x : -double_of_bits(DOUBLE_INFINITE);
    }
    const i64 whole = (bits - DOUBLE_SQRT_HALF_BITS) >> 52;
    const f64 significand = double_of_bits((u64)bits - ((u64)whole << 52));
    const f64 s = (significand - 1.0) / (significand + 1.0);
    const f64 square = s * s;
    f64 sum = 0.0;
    for (int n = 23; n > 1; n -= 2) {
        sum = (sum + 1.0 / (f64)n) * square;
    }
    const f64 exponent = (f64)whole;
    const f64 series = 2.0 * s;
    return fma(exponent, double_of_bits(DOUBLE_LN2_HIGH_BITS),
               series + fma(series, sum, exponent * double_of_bits(DOUBLE_LN2_LOW_BITS)));
}

// `first * (1 - s/((k+1)(k+2)) + ...)` with `s = square`, nine terms after the first.
__device__ inline f64 alternating_series(f64 first, f64 square, int k) {
    f64 sum = 1.0;
    for (int n = k + 18; n > k; n -= 2) {
        const f64 divisor = (f64)n * (f64)(n - 1);
        sum = 1.0 - square / divisor * sum;
    }
    return first * sum;
}

struct DoubleSinCos {
    f64 sin;
    f64 cos;
};

__device__ inline DoubleSinCos sin_cos_f64(f64 x) {
    const f64 quadrant = rint(x * 0.636619772367581343075535053490057448);
    f64 r = fma(-quadrant, double_of_bits(0x3FF921FB54400000ull), x);
    r = fma(-quadrant, double_of_bits(0x3DD0B4611A600000ull), r);
    r = fma(-quadrant, double_of_bits(0x3BA3198A2E037073ull), r);
    const f64 square = r * r;
    const f64 sin = alternating_series(r, square, 1);
    const f64 cos = alternating_series(1.0, square, 0);
    switch (__double2ll_rz(quadrant) & 3) {
    case 0:
        return {sin, cos};
    case 1:
        return {cos, -sin};
    case 2:
        return {-sin, -cos};
    default:
        return {-cos, sin};
    }
}

}  // namespace math
