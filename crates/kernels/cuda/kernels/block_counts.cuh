// Counts over the threads of a block, in the order of threads: all threads of a block call these functions together.
#pragma once

#include "types.cuh"

constexpr u32 WARP = 32;
constexpr u32 ALL_OF_WARP = 0xffffffffu;
// Slots that a block looks at together, one to a thread.
constexpr u32 WINDOW = 256;
constexpr u32 WARPS = WINDOW / WARP;

// The number of threads of a block for which `holds` is true, and of those before this one.
struct Counted {
    u32 before;
    u32 all;
};

__device__ inline Counted count(bool holds) {
    __shared__ u32 counts[WARPS];
    const u32 warp = threadIdx.x / WARP;
    const u32 lane = threadIdx.x % WARP;
    const u32 votes = __ballot_sync(ALL_OF_WARP, holds);
    if (lane == 0) {
        counts[warp] = __popc(votes);
    }
    __syncthreads();
    Counted counted = {(u32)__popc(votes & ((1u << lane) - 1)), 0};
    for (u32 index = 0; index < WARPS; index++) {
        counted.before += index < warp ? counts[index] : 0;
        counted.all += counts[index];
    }
    // The counts are those of another call from here on.
    __syncthreads();
    return counted;
}

// The sum of a number of each thread of a block, in every thread.
__device__ inline u32 block_sum(u32 value) {
    __shared__ u32 sums[WARPS];
#pragma unroll
    for (u32 width = WARP / 2; width > 0; width /= 2) {
        value += __shfl_xor_sync(ALL_OF_WARP, value, width);
    }
    if (threadIdx.x % WARP == 0) {
        sums[threadIdx.x / WARP] = value;
    }
    __syncthreads();
    u32 total = 0;
    for (u32 warp = 0; warp < WARPS; warp++) {
        total += sums[warp];
    }
    __syncthreads();
    return total;
}
