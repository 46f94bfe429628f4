// Sums over rows in the fixed order of `cpu::column_sum`: rows are cut into groups of 32; a group's sum starts from
// zero and goes over its rows in ascending order; groups are added to the output in ascending order.
//
// A block has `blockDim.x` columns, 8 to 32, and `blockDim.y` groups at a time, each summed by a thread for each
// column. The threads of the first group add the groups. Few columns make many blocks of a narrow matrix.
#pragma once

#include "tensor.cuh"

constexpr u64 GROUP_ROWS = 32;
constexpr u32 MOST_SUMS = 1024;

// One sum of each group and column of a block's turn.
struct GroupSums {
    f32 sums[MOST_SUMS];

    // That of this thread's group and column.
    __device__ f32 &own() {
        return sums[threadIdx.y * blockDim.x + threadIdx.x];
    }
};

// Adds the sums of the first `count` groups to `into[col]` in order. Called by the threads of the first group.
__device__ inline void add_groups(const GroupSums &groups, u32 count, f32 *into) {
    f32 total = *into;
    for (u32 group = 0; group < count; group++) {
        total = total + groups.sums[group * blockDim.x + threadIdx.x];
    }
    *into = total;
}

// The number of groups that a turn of the block has from group `first` on.
__device__ inline u32 groups_of_turn(u64 first, u64 groups) {
    const u64 left = groups - first;
    return left < blockDim.y ? (u32)left : blockDim.y;
}
