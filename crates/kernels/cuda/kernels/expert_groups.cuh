// The rows of experts: `device::ExpertRows`. Each expert has a group of them, whose number is in memory of the GPU.
#pragma once

#include "tensor.cuh"

constexpr u32 GROUP_WARP = 32;
constexpr u32 ALL_LANES = 0xffffffffu;

// Rows `first` to `end`.
struct RowRange {
    u32 first;
    u32 end;

    __device__ u32 count() const {
        return end - first;
    }
};

// Slots `first` to `end`: those of the tokens that take part.
struct SlotRange {
    i32 first;
    i32 end;
};

// The groups of all rows, or of the rows of some tokens.
struct Groups {
    // The first row of each group, then the number of rows.
    Matrix<const i32> offsets;
    // The slot of each row, ascending in a group; null where all tokens take part.
    Matrix<const i32> slots;
    SlotRange of_tokens;

    __device__ u32 count() const {
        return (u32)offsets.cols - 1;
    }

    // The rows of a group that take part.
    __device__ RowRange rows(u32 group) const {
        const RowRange all = {(u32)offsets.start[group], (u32)offsets.start[group + 1]};
        if (!slots.is_there()) {
            return all;
        }
        return {first_from(all, of_tokens.first), first_from(all, of_tokens.end)};
    }

    // The first of these rows whose slot is `slot` or a later one, or the end.
    __device__ u32 first_from(RowRange all, i32 slot) const {
        u32 first = all.first;
        u32 left = all.count();
        while (left > 0) {
            const u32 half = left / 2;
            if (slots.start[first + half] >= slot) {
                left = half;
            } else {
                first += half + 1;
                left -= half + 1;
            }
        }
        return first;
    }
};

// A tile of rows of one group.
struct GroupTile {
    u32 group;
    RowRange rows;
    // The first row of the tile, counted from the group's first.
    u32 first;
};

// Tile number `index` of `SIDE` rows, counted through all groups, of which each begins a tile. All lanes of a warp call
// it together and get the same one; false where there are fewer tiles.
template <u32 SIDE>
__device__ inline bool find_tile(const Groups &groups, u32 index, GroupTile &tile) {
    const u32 lane = threadIdx.x % GROUP_WARP;
    const u32 count = groups.count();
    // Tiles of the groups before.
    u32 before = 0;
    for (u32 first = 0; first < count; first += GROUP_WARP) {
        const u32 group = first + lane;
        const u32 own = group < count ? (groups.rows(group).count() + SIDE - 1) / SIDE : 0;
        // The sum over the lanes up to this one.
        u32 end = own;
#pragma unroll
        for (u32 width = 1; width < GROUP_WARP; width *= 2) {
            const u32 other = __shfl_up_sync(ALL_LANES, end, width);
            end += lane >= width ? other : 0;
        }
        const u32 ended = (u32)__popc(__ballot_sync(ALL_LANES, before + end <= index));
        if (ended < GROUP_WARP) {
            tile.group = first + ended;
            tile.rows = groups.rows(tile.group);
            tile.first = (index - before - __shfl_sync(ALL_LANES, end - own, ended)) * SIDE;
            return true;
        }
        before += __shfl_sync(ALL_LANES, end, GROUP_WARP - 1);
    }
    return false;
}

// Rows of a matrix whose elements have this many bytes.
template <typename E>
__device__ inline Matrix<E> rows_of(Matrix<E> matrix, u32 element_bytes, u64 first, u64 count) {
    return {(E *)((u64)matrix.start + first * matrix.stride * element_bytes), count, matrix.cols, matrix.stride};
}
