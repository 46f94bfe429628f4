// The output of a product in blocks: a matrix of any type of real numbers, with a bias.
#pragma once

#include "product_blocks.cuh"

// The output, whose elements pass through shared memory, so that neighbouring threads access neighbouring elements: 64
// rows at a time.
template <u32 SIDE>
struct ProductOutput {
    static constexpr u32 COLS = SIDE;
    static constexpr Lanes LANES = Lanes::TOGETHER;
    static constexpr u32 ROWS = 64;
    // Rows of a warp's fragment are in different banks.
    static constexpr u32 PITCH = SIDE + 8;
    static constexpr u32 BYTES = ROWS * PITCH * sizeof(f32);

    AnyMatrix bias;
    AnyMatrix matrix;
    OutputType type;
    u32 is_accumulated;

    __device__ u64 second_col(u64) const {
        return 0;
    }

    __device__ bool is_added_to() const {
        return is_accumulated != 0;
    }

    // Calls `body` with the place in the buffer, the row and the column of each element of 64 rows, and whether the
    // output has it.
    template <typename Body>
    __device__ void for_each(const BlockTile &tile, u32 row_of_tile, Body body) const {
#pragma unroll 1
        for (u32 element = threadIdx.x; element < ROWS * SIDE; element += threads_of(SIDE)) {
            const u64 row = tile.first_row + row_of_tile + element / SIDE;
            const u64 col = tile.first_col + element % SIDE;
            const bool is_inside = row < matrix.rows && col < matrix.cols;
            body(element / SIDE * PITCH + element % SIDE, row, col, is_inside);
        }
    }

    // Whether the warp's rows are among the 64 from this one on.
    __device__ static bool has_warp(const BlockTile &tile, u32 row_of_tile) {
        return tile.warp_row / ROWS * ROWS == row_of_tile;
    }

    // Where a warp has an element.
    __device__ static f32 &place(const BlockTile &tile, u32 row, u32 col) {
        return ((f32 *)tile.memory)[(tile.warp_row % ROWS + row) * PITCH + tile.warp_col + col];
    }

    // Reads what is in the output.
    __device__ void load(Sums<SIDE> &sums, const BlockTile &tile) const {
        f32 *buffer = (f32 *)tile.memory;
#pragma unroll 1
        for (u32 first = 0; first < SIDE; first += ROWS) {
            __syncthreads();
            for_each(tile, first, [&](u32 place, u64 row, u64 col, bool is_inside) {
                const u64 element = row * matrix.stride + col;
                buffer[place] = is_inside ? element_of(type, matrix.start, element) : 0.0f;
            });
            __syncthreads();
            if (has_warp(tile, first)) {
                sums.for_each([&](f32 &sum, u32 row, u32 col) { sum = place(tile, row, col); });
            }
        }
    }

    // Stores sums, to which what is there is added if they are accumulated, and a bias where there is one.
    __device__ void store(Sums<SIDE> &sums, const BlockTile &tile, bool has_pieces) const {
        f32 *buffer = (f32 *)tile.memory;
        const bool is_added = is_accumulated != 0 && !has_pieces;
#pragma unroll 1
        for (u32 first = 0; first < SIDE; first += ROWS) {
            __syncthreads();
            if (has_warp(tile, first)) {
                sums.for_each([&](f32 &sum, u32 row, u32 col) { place(tile, row, col) = sum; });
            }
            __syncthreads();
            for_each(tile, first, [&](u32 place, u64 row, u64 col, bool is_inside) {
                if (!is_inside) {
                    return;
                }
                const u64 element = row * matrix.stride + col;
                f32 total = buffer[place];
                if (is_added) {
                    total = element_of(type, matrix.start, element) + total;
                }
                if (bias.is_there()) {
                    total = total + element_of(type, bias.start, col);
                }
                round_to(type, matrix.start, element, total);
            });
        }
    }
};
