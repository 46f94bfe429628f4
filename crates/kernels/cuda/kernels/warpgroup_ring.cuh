// The common parts of kernels of products by warpgroups: tiles of 128 rows, and the ring of stages in shared memory to
// which one thread copies both factors.
#pragma once

#include "bulk_copies.cuh"
#include "tensor_core.cuh"
#include "warpgroup.cuh"
#include "warpgroup_output.cuh"

using bulk::TensorMap;
using warpgroup::Major;
using warpgroup::WARP_ROWS;
using Buffers = warpgroup::PartBuffers;

constexpr u32 ROWS = 128;
// Rows of an instruction.
constexpr u32 ROWS_OF_WARPGROUP = 64;
constexpr u32 WARPGROUP = 128;
constexpr u32 WARPS_OF_WARPGROUP = WARPGROUP / 32;
constexpr u32 CONSUMERS = 2;
constexpr u32 THREADS = WARPGROUP * (CONSUMERS + 1);
// Steps of a stage, which are 128 bytes, and of a piece: `Products::PIECE`.
constexpr u32 STEPS = 64;
constexpr u32 STAGES_OF_PIECE = 8192 / STEPS;
// Lanes of a box whose rows have lanes.
constexpr u32 BOX_LANES = 64;
constexpr u32 BOX_BYTES = BOX_LANES * STEPS * 2;
// Boxes of this many lanes.
__device__ constexpr u32 boxes(u32 lanes) {
    return (lanes + BOX_LANES - 1) / BOX_LANES;
}
// Rows of tiles, which are taken one column after the other, so that blocks share what they read.
constexpr u32 ROWS_TOGETHER = 8;

// A stage of a sum.
enum class Stage { FIRST, NEXT };

// The type of both factors.
enum class FactorType : u32 { BF16, F16 };

// The place of a stage in the ring, and the parity of its turn.
template <u32 STAGES>
struct Turn {
    u32 stage;
    u32 parity;

    __device__ void next() {
        stage++;
        if (stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }

    // Goes past stages of somebody else.
    __device__ void skip(u32 count) {
        const u32 after = stage + count;
        stage = after % STAGES;
        parity ^= after / STAGES & 1;
    }
};

// The tiles that a block computes.
template <u32 COLS>
struct Tiles {
    u32 rows;
    u32 cols;
    u32 index;

    __device__ Tiles(AnyMatrix out) {
        rows = (u32)((out.rows + ROWS - 1) / ROWS);
        cols = (u32)((out.cols + COLS - 1) / COLS);
        index = blockIdx.x;
    }

    __device__ bool has_one() const {
        return index < rows * cols;
    }

    __device__ void next() {
        index += gridDim.x;
    }

    // The first row and column of the tile.
    __device__ void place(u32 &row, u32 &col) const {
        const u32 first = index / (ROWS_TOGETHER * cols) * ROWS_TOGETHER;
        const u32 together = rows - first < ROWS_TOGETHER ? rows - first : ROWS_TOGETHER;
        const u32 within = index % (ROWS_TOGETHER * cols);
        row = (first + within % together) * ROWS;
        col = within / together * COLS;
    }
};

// Starts the copies of a factor's lanes of one stage.
template <Major MAJOR, u32 LANES>
__device__ inline void copy_factor(u32 to, const TensorMap &map, u32 lane, u32 step, u32 barrier) {
    if constexpr (MAJOR == Major::STEPS) {
        bulk::start_copy(to, map, step, lane, barrier);
    } else {
#pragma unroll
        for (u32 box = 0; box < boxes(LANES); box++) {
            bulk::start_copy(to + box * BOX_BYTES, map, lane + box * BOX_LANES, step, barrier);
        }
    }
}

// The lanes of the right factor that a tile has: those that are next to each other, or two halves at a distance.
enum class Lanes { TOGETHER, IN_HALVES };

// The stages of a block: of the left factor 128 lanes, and of the right one `COLS`.
template <Major LEFT, Major RIGHT, u32 LANES, Lanes WHERE = Lanes::TOGETHER>
struct Ring {
    static constexpr Major A = LEFT;
    static constexpr Major B = RIGHT;
    static constexpr u32 COLS = LANES;
    static constexpr u32 A_BYTES = ROWS * STEPS * 2;
    // In whole boxes.
    static constexpr u32 B_BYTES = boxes(COLS) * BOX_BYTES;
    static constexpr u32 STAGE_BYTES = A_BYTES + B_BYTES;
    static constexpr u32 STAGES = 192 * 1024 / STAGE_BYTES;
    // The distance of the next 64 lanes.
    static constexpr u32 A_BLOCK = A == Major::STEPS ? 16 : BOX_BYTES;
    static constexpr u32 B_BLOCK = B == Major::STEPS ? 16 : BOX_BYTES;
    // Sums over tokens have pieces.
    static constexpr bool HAS_PIECES = A == Major::LANES;

    // Which stages have come, and which have been read.
    struct Barriers {
        u64 filled[STAGES];
        u64 emptied[STAGES];
    };

    using Place = Turn<STAGES>;

    const TensorMap &a;
    const TensorMap &b;
    u32 steps;
    // Where the stages are.
    u32 start;
    Barriers *barriers;
    // Lanes of the right factor from a half to the other one.
    u32 distance;

    __device__ u32 filled(u32 stage) const {
        return tensor_core::shared_address(&barriers->filled[stage]);
    }

    __device__ u32 emptied(u32 stage) const {
        return tensor_core::shared_address(&barriers->emptied[stage]);
    }

    // Of a whole sum.
    __device__ u32 stages() const {
        return (steps + STEPS - 1) / STEPS;
    }

    // The stages of the piece that begins with stage `first`.
    __device__ u32 stages_of_piece(u32 first) const {
        const u32 left = stages() - first;
        return HAS_PIECES && left > STAGES_OF_PIECE ? STAGES_OF_PIECE : left;
    }

    // One thread initializes the barriers of stages that `readers` warps read each.
    __device__ void initialize(u32 readers) const {
        for (u32 stage = 0; stage < STAGES; stage++) {
            bulk::initialize_barrier(filled(stage), 1);
            bulk::initialize_barrier(emptied(stage), readers);
        }
    }

    // Copies `count` stages of a tile, from stage `first` of its sums on: one thread.
    __device__ void copy_stages(Place &turn, u32 row, u32 col, u32 first, u32 count) const {
        for (u32 stage = 0; stage < count; stage++) {
            bulk::wait(emptied(turn.stage), turn.parity);
            const u32 barrier = filled(turn.stage);
            bulk::expect_bytes(barrier, STAGE_BYTES);
            const u32 to = start + turn.stage * STAGE_BYTES;
            const u32 step = (first + stage) * STEPS;
            copy_factor<A, ROWS>(to, a, row, step, barrier);
            if constexpr (WHERE == Lanes::TOGETHER) {
                copy_factor<B, COLS>(to + A_BYTES, b, col, step, barrier);
            } else {
                copy_factor<B, COLS / 2>(to + A_BYTES, b, col, step, barrier);
                copy_factor<B, COLS / 2>(to + A_BYTES + B_BYTES / 2, b, col + distance, step, barrier);
            }
            turn.next();
        }
    }

    // The left factor of a stage, `half` of its rows.
    __device__ u64 left(const Place &turn, u32 half) const {
        return warpgroup::descriptor(start + half * (A_BYTES / 2), A_BLOCK) + turn.stage * (STAGE_BYTES >> 4);
    }

    // The right factor of a stage.
    __device__ u64 right(const Place &turn) const {
        return warpgroup::descriptor(start + A_BYTES, B_BLOCK) + turn.stage * (STAGE_BYTES >> 4);
    }

    // Waits for the copies of a stage.
    __device__ void await(const Place &turn) const {
        bulk::wait(filled(turn.stage), turn.parity);
    }

    // A stage is read by this warp.
    __device__ void release(u32 stage) const {
        if (threadIdx.x % 32 == 0) {
            bulk::arrive(emptied(stage));
        }
    }
};

// The number of this thread's warpgroup: the same in all lanes, as the compiler sees then.
__device__ inline u32 number_of_warpgroup() {
    return __shfl_sync(0xffffffff, threadIdx.x / WARPGROUP, 0);
}

// Divides a block's dynamic memory into the stages, which begin at `start`, a multiple of 1024 as boxes of 128 bytes
// need it, and what is after them.
template <typename Stages, typename Memory>
__device__ inline Memory *memory_after(u8 *dynamic_memory, u32 &start) {
    const u32 address = tensor_core::shared_address(dynamic_memory);
    start = (address + 1023) / 1024 * 1024;
    return (Memory *)(dynamic_memory + (start - address) + Stages::STAGES * Stages::STAGE_BYTES);
}
