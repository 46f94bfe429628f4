// Sums over rows in the fixed order of `cpu::column_sum`: rows are cut into groups of 32; a group's sum starts from
// zero and goes over its rows in ascending order; groups are added to the output in ascending order.
//
// A block has `blockDim.x` vectors of `COUNT` columns, and `blockDim.y` groups at a time, each summed by a thread for
// each vector. A thread for each column adds the groups; so there are at least `COUNT` threads along y. A
// multiprocessor asks for 32 to 128 bytes of a row in the same time, so blocks have as few columns as leave one for
// each.
#pragma once

#include "vectors.cuh"

constexpr u64 GROUP_ROWS = 32;

// Rows `first` to `end` of a group.
struct Group {
    u64 first;
    u64 end;

    __device__ Group(u64 index, u64 rows) {
        first = min(index * GROUP_ROWS, rows);
        end = min(first + GROUP_ROWS, rows);
    }
};

// One sum of each group and column of a turn of a block of `THREADS` threads.
template <u32 THREADS>
struct GroupSums {
    f32 sums[THREADS * EIGHT];

    // Writes those of this thread's group and vector.
    template <u32 COUNT>
    __device__ void put(const f32 (&of_vector)[COUNT]) {
        f32 *own = sums + (threadIdx.y * blockDim.x + threadIdx.x) * COUNT;
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) {
            own[i] = of_vector[i];
        }
    }

    // Adds the sums of the first `count` groups to the block's columns of `into` in order, a thread for each column.
    template <u32 COUNT>
    __device__ void add_to(Matrix<f32> into, u32 count) const {
        const u32 columns = blockDim.x * COUNT;
        const u32 column = threadIdx.y * blockDim.x + threadIdx.x;
        const u64 col = (u64)blockIdx.x * columns + column;
        if (column < columns && col < into.cols) {
            f32 total = into.start[col];
#pragma unroll 16
            for (u32 group = 0; group < count; group++) {
                total = total + sums[group * columns + column];
            }
            into.start[col] = total;
        }
    }
};

// The number of groups that a turn of the block has from group `first` on.
__device__ inline u32 groups_of_turn(u64 first, u64 groups) {
    const u64 left = groups - first;
    return left < blockDim.y ? (u32)left : blockDim.y;
}
