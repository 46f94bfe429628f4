// Exponentials of a tile of scores by warpgroups: powers of two of how far the scores are below what is subtracted.
#pragma once

#include "attention_blocks.cuh"

namespace attention_blocks {

// How the exponentials of a warp's tile are computed.
enum class Depths {
    // By the usual steps alone.
    Usual,
    // Some are zeros, because a key is hidden or a score far below.
    SomeDeep,
    // Some may be infinite or not a number.
    Any,
};

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

// Depths of two fragments become powers of two, with the bits of `cpu::math::power_of_depth`.
__device__ inline void exponentiate(f32 (&numbers)[2][4], Depths depths) {
    f32 powers[8];
#pragma unroll
    for (u32 index = 0; index < 8; index++) {
        powers[index] = power_within(numbers[index / 4][index % 4]);
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
            powers[index] = power_of_any(numbers[index / 4][index % 4]);
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
