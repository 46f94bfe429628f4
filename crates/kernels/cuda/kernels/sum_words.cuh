// The words of a sum that associates: `device::SUM_WORDS`.
#pragma once

#include "types.cuh"

namespace fixed_point {

// Words of a sum: eight limbs, how many numbers were not finite or too large, and a count that the caller keeps.
constexpr u32 WORDS = 10;
constexpr u32 LIMBS = 8;
constexpr u32 NOT_FINITE = 8;
constexpr u32 COUNT = 9;

// Adds to words that other threads add to, too.
__device__ inline void add_atomically(i64* word, i64 value) {
    if (value != 0) {
        atomicAdd((u64*)word, (u64)value);
    }
}

}  // namespace fixed_point
