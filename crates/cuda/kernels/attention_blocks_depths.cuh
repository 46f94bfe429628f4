// Exponentials of a tile of scores by warpgroups: of how far the scores are below what is subtracted from them.
#pragma once

#include "attention_blocks.cuh"

namespace attention_blocks {

// The factor of scores in two parts, of which one is 1. A power of two up to 1 multiplies exactly, so that the product
// needs no rounding of its own; where it is subnormal, the exponential is 1 whatever its last bits are.
struct Scale {
    // Multiplies and rounds.
    f32 rounding;
    // Multiplies within another operation.
    f32 exact;
};

__device__ inline Scale scale_of(const Problem& problem) {
    constexpr u32 ONE = 0x3f800000;
    constexpr u32 SIGN_AND_SIGNIFICAND = 0x807fffff;
    const u32 bits = __float_as_uint(problem.scale);
    const bool is_power = (bits & SIGN_AND_SIGNIFICAND) == 0 && bits != 0 && bits <= ONE;
    return {is_power ? 1.0f : problem.scale, is_power ? problem.scale : 1.0f};
}

template <u32 FRAGMENTS>
__device__ inline void multiply(f32 (&scores)[FRAGMENTS][4], const Scale& scale) {
    if (scale.rounding == 1.0f) {
        return;
    }
#pragma unroll
    for (u32 column = 0; column < FRAGMENTS; column++) {
#pragma unroll
        for (u32 index = 0; index < 4; index++) {
            scores[column][index] *= scale.rounding;
        }
    }
}

// How the exponentials of a warp's tile are computed.
enum class Depths {
    // By the usual steps alone.
    Usual,
    // Some are zeros, because a key is hidden or a score far below.
    SomeDeep,
    // Some may be infinite or not a number.
    Any,
};

// The depth from which on exponentials are 0.
constexpr f32 DEEPEST = -math::EXP_LOWEST;

// Of depths whose bits are at most these. Negative numbers and what is not a number have larger ones, so depths up to
// `DEEPEST` are usual ones.
__device__ inline bool are_usual(u32 bits) {
    return bits <= __float_as_uint(DEEPEST);
}

// The largest bits, by chains that do not wait for each other. A step is one instruction.
template <u32 FRAGMENTS>
__device__ inline u32 largest_bits(const f32 (&depths)[FRAGMENTS][4]) {
    u32 largest[4] = {0, 0, 0, 0};
#pragma unroll
    for (u32 column = 0; column < FRAGMENTS; column++) {
#pragma unroll
        for (u32 index = 0; index < 4; index += 2) {
            u32& chain = largest[column % 2 * 2 + index / 2];
            chain = max(max(chain, __float_as_uint(depths[column][index])), __float_as_uint(depths[column][index + 1]));
        }
    }
    return max(max(largest[0], largest[1]), max(largest[2], largest[3]));
}

// Depths of two fragments become exponentials of their opposites, with the bits of `math::exp`.
__device__ inline void exponentiate(f32 (&numbers)[2][4], Depths depths) {
    f32 powers[8];
#pragma unroll
    for (u32 index = 0; index < 8; index++) {
        powers[index] = exp_within(-numbers[index / 4][index % 4]);
    }
    if (depths == Depths::SomeDeep) {
#pragma unroll
        for (u32 index = 0; index < 8; index++) {
            powers[index] = numbers[index / 4][index % 4] > DEEPEST ? 0.0f : powers[index];
        }
    }
    if (depths == Depths::Any) {
#pragma unroll
        for (u32 index = 0; index < 8; index++) {
            powers[index] = exp_of_any(-numbers[index / 4][index % 4]);
        }
    }
#pragma unroll
    for (u32 index = 0; index < 8; index++) {
        numbers[index / 4][index % 4] = powers[index];
    }
}

// Numbers of keys from `first` on that a query does not see become `hidden`.
template <u32 FRAGMENTS>
__device__ inline void hide(f32 (&numbers)[FRAGMENTS][4], const Intervals& intervals, i32 first, f32 hidden) {
    const i32 key = first + (i32)(threadIdx.x % 4 * 2);
#pragma unroll
    for (u32 row = 0; row < 2; row++) {
        const Interval interval = intervals[row];
        const u32 begin = (u32)(interval.first - key);
        const u32 count = (u32)(interval.last - interval.first);
#pragma unroll
        for (u32 column = 0; column < FRAGMENTS; column++) {
#pragma unroll
            for (u32 index = 0; index < 2; index++) {
                f32& number = numbers[column][2 * row + index];
                number = column * COLUMNS + index - begin < count ? number : hidden;
            }
        }
    }
}

}  // namespace attention_blocks
