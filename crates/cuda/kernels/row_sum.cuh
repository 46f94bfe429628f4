// The sum over a row in the order of `cpu::lanes::row_sum`: chunks of 1,024 elements; in a chunk, element `i` goes to lane
// `i % 16` in ascending order, then the lanes are added by the tree 8, 4, 2, 1, all in f32; chunks are added in ascending
// order in f64.
#pragma once

#include "types.cuh"

constexpr u32 ALL_LANES = 0xffffffffu;
constexpr u32 LANES = 16;
constexpr u32 ROW_CHUNK = 1024;

// The tree over the sixteen neighbouring threads that each have a lane; every one of them gets the sum. All threads of the
// warp must call it.
__device__ inline f32 lane_tree(f32 lane) {
#pragma unroll
    for (u32 width = LANES / 2; width > 0; width /= 2) {
        lane += __shfl_xor_sync(ALL_LANES, lane, width);
    }
    return lane;
}

__device__ inline f64 lane_tree(f64 lane) {
#pragma unroll
    for (u32 width = LANES / 2; width > 0; width /= 2) {
        lane += __shfl_xor_sync(ALL_LANES, lane, width);
    }
    return lane;
}

// The sum of `term(i)` over a row of `len` elements by a block of `THREADS` threads, of which each takes a lane of every
// sixteenth of its share of chunks. The result is that of thread 0. All threads must call it.
template <u32 THREADS, typename Term>
__device__ f64 row_sum(u32 len, Term term) {
    constexpr u32 CHUNKS = THREADS / LANES;
    __shared__ f32 sums[CHUNKS];
    const u32 lane = threadIdx.x % LANES;
    const u32 place = threadIdx.x / LANES;
    f64 total = 0.0;
    for (u32 first = 0; first < len; first += CHUNKS * ROW_CHUNK) {
        const u32 chunk = first + place * ROW_CHUNK;
        const u32 end = min(len, chunk + ROW_CHUNK);
        f32 sum = 0.0f;
        for (u32 i = chunk + lane; i < end; i += LANES) {
            sum += term(i);
        }
        sum = lane_tree(sum);
        if (lane == 0) {
            sums[place] = sum;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            for (u32 index = 0; index < CHUNKS; index++) {
                total += (f64)sums[index];
            }
        }
        __syncthreads();
    }
    return total;
}
