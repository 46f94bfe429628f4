// Random numbers with the bits of crate `philox`: words are a function of a key and a counter.
#pragma once

#include "types.cuh"

namespace philox {

// Four words: a counter, or what Philox4x32-10 makes of it.
struct Words {
    u32 word[4];
};

struct Key {
    u32 low;
    u32 high;
};

__device__ inline Key key_of_seed(u64 seed) {
    return {(u32)seed, (u32)(seed >> 32)};
}

__device__ inline Words round(Words counter, Key key) {
    const u32 high0 = __umulhi(0xD2511F53u, counter.word[0]);
    const u32 low0 = 0xD2511F53u * counter.word[0];
    const u32 high1 = __umulhi(0xCD9E8D57u, counter.word[2]);
    const u32 low1 = 0xCD9E8D57u * counter.word[2];
    return {high1 ^ counter.word[1] ^ key.low, low1, high0 ^ counter.word[3] ^ key.high, low0};
}

// Philox4x32 with ten rounds.
__device__ inline Words block(Words counter, Key key) {
    Words words = round(counter, key);
#pragma unroll
    for (int index = 1; index < 10; index++) {
        key.low += 0x9E3779B9u;
        key.high += 0xBB67AE85u;
        words = round(words, key);
    }
    return words;
}

// Uniform in `[0, 1)`: the multiples of 2^-24.
__device__ inline f32 half_open(u32 word) {
    return (f32)(i32)(word >> 8) * (1.0f / 16777216.0f);
}

// Uniform in `(0, 1]`: `(word + 1/2) 2^-32`, the word rounded first.
__device__ inline f32 open_closed(u32 word) {
    constexpr f32 UNIT = 1.0f / 4294967296.0f;
    return (f32)word * UNIT + 0.5f * UNIT;
}

}  // namespace philox
