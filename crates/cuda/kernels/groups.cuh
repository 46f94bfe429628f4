// Sums over rows in the fixed order of `cpu::column_sum`: rows are cut into groups of 32; a group's sum starts from
// zero and goes over its rows in ascending order; groups are added to the output in ascending order.
//
// A block has 32 columns, one to a lane, and up to 32 warps, each of which sums a group of its own. The first warp adds
// the groups.
#pragma once

#include "tensor.cuh"

constexpr u64 GROUP_ROWS = 32;
constexpr u32 GROUP_COLS = 32;
constexpr u32 MOST_WARPS = 32;

// One sum of each group and column of a block's turn.
struct GroupSums {
    f32 sums[MOST_WARPS][GROUP_COLS];
};

// Adds the sums of the first `count` groups to `into[col]` in order. Called by the first warp.
__device__ inline void add_groups(const GroupSums &groups, u32 count, f32 *into) {
    f32 total = *into;
    for (u32 group = 0; group < count; group++) {
        total = total + groups.sums[group][threadIdx.x];
    }
    *into = total;
}

// The number of groups that a turn of the block has from group `first` on.
__device__ inline u32 groups_of_turn(u64 first, u64 groups) {
    const u64 left = groups - first;
    return left < blockDim.y ? (u32)left : blockDim.y;
}
