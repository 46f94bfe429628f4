// Sums over a row in the fixed order of `cpu::lanes::row_sum`: chunks of 1024 elements; in a chunk element i goes to
// lane i % 16 in ascending order, then the lanes are added by the tree 8, 4, 2, 1, all in f32; the chunks are added in
// order in f64.
//
// A team of 16 threads, half of a warp, stands for the 16 lanes. All threads of a warp call these functions together,
// so both of its teams sum rows of one length.
#pragma once

#include "math.cuh"
#include "tensor.cuh"

constexpr u32 TEAM = 16;
constexpr u32 WHOLE_WARP = 0xffffffffu;
constexpr u64 CHUNK = 1024;

__device__ inline u32 team_lane() {
    return threadIdx.x % TEAM;
}

// The number of this thread's team in a grid of one dimension.
__device__ inline u64 global_team() {
    return global_thread() / TEAM;
}

// The sum of the lanes by the tree 8, 4, 2, 1, in every lane: two terms have the same sum in either order.
__device__ inline f32 team_sum(f32 value) {
#pragma unroll
    for (int width = TEAM / 2; width > 0; width /= 2) {
        value = value + __shfl_xor_sync(WHOLE_WARP, value, width, TEAM);
    }
    return value;
}

// The largest lane by the same tree, in every lane. The order of two decides between zeros, and decides the result of a
// NaN.
__device__ inline f32 team_max(f32 value) {
#pragma unroll
    for (int width = TEAM / 2; width > 0; width /= 2) {
        const f32 other = __shfl_xor_sync(WHOLE_WARP, value, width, TEAM);
        value = (team_lane() & width) != 0 ? math::larger(other, value) : math::larger(value, other);
    }
    return value;
}

// The sum of `term(i)` over `i < len`, in every lane of the team.
template <typename Term>
__device__ inline f64 row_sum(u64 len, Term term) {
    f64 total = 0.0;
    for (u64 first = 0; first < len; first += CHUNK) {
        const u64 end = first + CHUNK < len ? first + CHUNK : len;
        f32 sum = 0.0f;
#pragma unroll 8
        for (u64 i = first + team_lane(); i < end; i += TEAM) {
            sum = sum + term(i);
        }
        total = total + (f64)team_sum(sum);
    }
    return total;
}
