// Products of bf16 or fp16 matrices in blocks: `cpu::gemm::tensor_cores` has the order, and `mma.sync` computes it. One
// accumulator goes through ascending steps from zero. In products of two matrices that have their steps along columns,
// K is cut into pieces of 8192 steps, whose sums are added in order.
//
// A block of threads computes a square tile; each of its warps has 32 columns and half of the rows. Steps are staged in
// shared memory 32 at a time, three stages ahead of each other. In a stage, chunks of 16 bytes are exchanged within a
// row so that eight rows of `ldmatrix` are in different banks. An output takes the sums of a tile.
#pragma once

#include "product_output.cuh"

// Steps of a stage, and stages.
constexpr u32 STEPS = 32;
constexpr u32 STAGES = 3;
// Steps of a piece: `Products::PIECE`.
constexpr u32 PIECE = 8192;
// Elements of 16 bytes.
constexpr u32 CHUNK = 8;
// Columns of a warp, and warps along the rows of a tile.
constexpr u32 WARP_COLS = 32;
constexpr u32 WARPS_OF_ROWS = 2;

// The columns of the right operand that a tile has: neighbours, or as many of the first half of all as of the second.
enum class Lanes { TOGETHER, IN_HALVES };

// The layout of an operand in memory: its steps along a row, or its rows (of the left operand) or columns (of the right
// one) along a row.
enum class Along { STEPS_IN_ROWS, LANES_IN_ROWS };

// How an operand gets to shared memory: copied, where its rows begin at multiples of 16 bytes; element by element; or
// rounded from single precision.
enum class Loading : u32 { COPIED, BY_ELEMENT, ROUNDED };

__device__ constexpr u32 threads_of(u32 side) {
    return side / WARP_COLS * WARPS_OF_ROWS * 32;
}

// A strip of an operand: `SIDE` lanes, which are rows of the left operand or columns of the right one, and all of its
// steps.
template <Along ALONG, typename E, u32 SIDE, Lanes LANES = Lanes::TOGETHER>
struct Strip {
    static constexpr bool IN_ROWS = ALONG == Along::STEPS_IN_ROWS;
    static_assert(IN_ROWS || LANES == Lanes::TOGETHER, "chunks of a row that are neighbours");
    // Rows of a stage, and chunks of a row.
    static constexpr u32 ROWS = IN_ROWS ? SIDE : STEPS;
    static constexpr u32 CHUNKS = (IN_ROWS ? STEPS : SIDE) / CHUNK;
    static constexpr u32 THREADS = threads_of(SIDE);
    static constexpr u32 BYTES = SIDE * STEPS * sizeof(E);

    AnyMatrix matrix;
    u64 first_lane;
    // The first one of the second half, where lanes are in halves.
    u64 second_lane;
    Loading loading;

    __device__ u64 steps() const {
        return IN_ROWS ? matrix.cols : matrix.rows;
    }

    __device__ u64 lane_of(u32 own) const {
        if constexpr (LANES == Lanes::IN_HALVES) {
            return own < SIDE / 2 ? first_lane + own : second_lane + own - SIDE / 2;
        }
        return first_lane + own;
    }

    // The place of a chunk in a stage.
    __device__ static u32 place(u32 row, u32 chunk) {
        // Two rows of four chunks share the banks.
        const u32 exchanged = CHUNKS == 4 ? chunk ^ (row >> 1 & 3) : chunk ^ (row & 7);
        return (row * CHUNKS + exchanged) * 16;
    }

    // Loads this thread's part of the stage whose first step is `step`.
    __device__ void load(u8 *stage, u64 step) const {
#pragma unroll
        for (u32 index = 0; index < ROWS * CHUNKS / THREADS; index++) {
            const u32 number = index * THREADS + threadIdx.x;
            const u32 chunk = number % CHUNKS;
            const u64 row = IN_ROWS ? lane_of(number / CHUNKS) : step + number / CHUNKS;
            const u64 col = (IN_ROWS ? step : first_lane) + chunk * CHUNK;
            const bool is_inside = row < matrix.rows && col < matrix.cols;
            const u64 left = is_inside ? matrix.cols - col : 0;
            const u32 count = left < CHUNK ? (u32)left : CHUNK;
            const u64 element = is_inside ? row * matrix.stride + col : 0;
            u8 *to = stage + place(number / CHUNKS, chunk);
            if (loading == Loading::COPIED) {
                tensor_core::start_copy(tensor_core::shared_address(to), (const E *)matrix.start + element, count * sizeof(E));
            } else {
                *reinterpret_cast<uint4 *>(to) = chunk_of(element, count);
            }
        }
    }

    // `count` elements from `element` on, and zeros after them.
    __device__ uint4 chunk_of(u64 element, u32 count) const {
        u32 words[CHUNK / 2];
#pragma unroll
        for (u32 word = 0; word < CHUNK / 2; word++) {
            const u32 place = word * 2;
            if (loading == Loading::ROUNDED) {
                const f32 *from = (const f32 *)matrix.start + element + place;
                words[word] = tensor_core::packed<E>(place < count ? from[0] : 0.0f, place + 1 < count ? from[1] : 0.0f);
            } else {
                const E *from = (const E *)matrix.start + element + place;
                words[word] = (place < count ? from[0].bits : 0) | (place + 1 < count ? from[1].bits : 0) << 16;
            }
        }
        return {words[0], words[1], words[2], words[3]};
    }

    // 16 rows and 16 steps of a stage, as `tensor_core::multiply` takes its left operand.
    __device__ static void left_fragment(u32 stage, u32 lane, u32 step, u32 (&into)[4]) {
        const u32 own = threadIdx.x % 32;
        if constexpr (IN_ROWS) {
            tensor_core::load_rows(into, stage + place(lane + own % 16, step / CHUNK + own / 16));
        } else {
            const u32 row = step + own % 8 + own / 16 * 8;
            tensor_core::load_columns(into, stage + place(row, lane / CHUNK + own / 8 % 2));
        }
    }

    // 16 steps and 16 columns of a stage, as `tensor_core::multiply` takes its right operand: the first 8 columns, and
    // the others.
    __device__ static void right_fragment(u32 stage, u32 lane, u32 step, u32 (&into)[4]) {
        const u32 own = threadIdx.x % 32;
        if constexpr (IN_ROWS) {
            const u32 row = lane + own % 8 + own / 16 * 8;
            tensor_core::load_rows(into, stage + place(row, step / CHUNK + own / 8 % 2));
        } else {
            tensor_core::load_columns(into, stage + place(step + own % 16, lane / CHUNK + own / 16));
        }
    }
};

// The sums of a thread: for each 16 rows and 8 columns of its warp two of a row and two of the row 8 below.
template <u32 SIDE>
struct Sums {
    static constexpr u32 ROW_TILES = SIDE / WARPS_OF_ROWS / 16;
    static constexpr u32 COL_TILES = WARP_COLS / 8;

    f32 values[ROW_TILES][COL_TILES][4];

    // Calls `body` with each sum and the number of its row and its column of the warp's.
    template <typename Body>
    __device__ void for_each(Body body) {
        const u32 own = threadIdx.x % 32;
#pragma unroll
        for (u32 row_tile = 0; row_tile < ROW_TILES; row_tile++) {
#pragma unroll
            for (u32 index = 0; index < COL_TILES * 4; index++) {
                const u32 row = row_tile * 16 + index / 2 % 2 * 8 + own / 4;
                const u32 col = index / 4 * 8 + own % 4 * 2 + index % 2;
                body(values[row_tile][index / 4][index % 4], row, col);
            }
        }
    }

    __device__ void fill(f32 value) {
        for_each([&](f32 &sum, u32, u32) { sum = value; });
    }

    // Adds those of the pieces before.
    __device__ void add(const Sums &earlier) {
#pragma unroll
        for (u32 row_tile = 0; row_tile < ROW_TILES; row_tile++) {
#pragma unroll
            for (u32 index = 0; index < COL_TILES * 4; index++) {
                f32 &sum = values[row_tile][index / 4][index % 4];
                sum = earlier.values[row_tile][index / 4][index % 4] + sum;
            }
        }
    }
};

// An operand of a launch.
struct Operand {
    AnyMatrix matrix;
    Loading loading;
};

// A block's tile: its first row and column of the output, this warp's first row and column in the tile, and the memory
// of all stages.
struct BlockTile {
    u32 first_row;
    u32 first_col;
    u32 warp_row;
    u32 warp_col;
    u8 *memory;
};

// The first row and column of a tile.
struct TileStart {
    u32 row;
    u32 col;
};

// Multiplies the rows and columns of a tile. The output loads what the sums of pieces are added to, and stores the
// sums: through the memory of the stages, which are all read then.
template <Along LEFT, Along RIGHT, typename E, u32 SIDE, typename Output>
__device__ inline void multiply(Operand a, Operand b, const Output &output, TileStart start) {
    using Left = Strip<LEFT, E, SIDE>;
    using Right = Strip<RIGHT, E, SIDE, Output::LANES>;
    using WarpSums = Sums<SIDE>;
    // Only sums over tokens have pieces.
    constexpr bool HAS_PIECES = LEFT == Along::LANES_IN_ROWS;
    constexpr u32 STAGES_OF_PIECE = PIECE / STEPS;
    constexpr u32 STAGE_BYTES = Left::BYTES + Right::BYTES;
    __shared__ __align__(128) u8 memory[STAGES * STAGE_BYTES];
    static_assert(Output::BYTES <= sizeof(memory), "room for the output");
    const u32 warp = threadIdx.x / 32;
    const u32 warp_row = warp % WARPS_OF_ROWS * (SIDE / WARPS_OF_ROWS);
    const u32 warp_col = warp / WARPS_OF_ROWS * WARP_COLS;
    const BlockTile tile = {start.row, start.col, warp_row, warp_col, memory};
    const Left left = {a.matrix, tile.first_row, 0, a.loading};
    const Right right = {b.matrix, tile.first_col, output.second_col(tile.first_col), b.loading};
    const u32 count = (u32)((left.steps() + STEPS - 1) / STEPS);

    // Sums of the pieces so far: -0, which changes no sum, or the output, to which those of several pieces are added.
    [[maybe_unused]] WarpSums earlier;
    const bool has_pieces = HAS_PIECES && count > STAGES_OF_PIECE;
    if constexpr (HAS_PIECES) {
        earlier.fill(-0.0f);
        if (has_pieces && output.is_added_to()) {
            output.load(earlier, tile);
            __syncthreads();
        }
    }

    auto load = [&](u32 stage) {
        if (stage < count) {
            u8 *to = memory + stage % STAGES * STAGE_BYTES;
            left.load(to, (u64)stage * STEPS);
            right.load(to + Left::BYTES, (u64)stage * STEPS);
        }
        tensor_core::end_copies();
    };
#pragma unroll 1
    for (u32 stage = 0; stage < STAGES - 1; stage++) {
        load(stage);
    }

    WarpSums sums;
    sums.fill(0.0f);
    for (u32 stage = 0; stage < count; stage++) {
        tensor_core::wait_for_copies<STAGES - 2>();
        __syncthreads();
        load(stage + STAGES - 1);
        const u32 left_stage = tensor_core::shared_address(memory + stage % STAGES * STAGE_BYTES);
        const u32 right_stage = left_stage + Left::BYTES;
#pragma unroll
        for (u32 step = 0; step < STEPS; step += 16) {
            u32 rows[WarpSums::ROW_TILES][4];
            u32 cols[WarpSums::COL_TILES / 2][4];
#pragma unroll
            for (u32 row = 0; row < WarpSums::ROW_TILES; row++) {
                Left::left_fragment(left_stage, warp_row + row * 16, step, rows[row]);
            }
#pragma unroll
            for (u32 pair = 0; pair < WarpSums::COL_TILES / 2; pair++) {
                Right::right_fragment(right_stage, warp_col + pair * 16, step, cols[pair]);
            }
#pragma unroll
            for (u32 row = 0; row < WarpSums::ROW_TILES; row++) {
#pragma unroll
                for (u32 col = 0; col < WarpSums::COL_TILES; col++) {
                    const u32(&pair)[4] = cols[col / 2];
                    tensor_core::multiply<E>(sums.values[row][col], rows[row], pair[col % 2 * 2], pair[col % 2 * 2 + 1]);
                }
            }
        }
        if constexpr (HAS_PIECES) {
            if ((stage + 1) % STAGES_OF_PIECE == 0 && stage + 1 != count) {
                sums.add(earlier);
                earlier = sums;
                sums.fill(0.0f);
            }
        }
    }
    if constexpr (HAS_PIECES) {
        sums.add(earlier);
    }
    output.store(sums, tile, has_pieces);
}

// The same of this block's tile, where the output has a block for each.
template <Along LEFT, Along RIGHT, typename E, u32 SIDE, typename Output>
__device__ inline void multiply(Operand a, Operand b, const Output &output) {
    multiply<LEFT, RIGHT, E, SIDE>(a, b, output, {blockIdx.x * SIDE, blockIdx.y * Output::COLS});
}
