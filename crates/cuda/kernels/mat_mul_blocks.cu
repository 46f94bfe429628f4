// Products of bf16 or fp16 matrices in blocks: `cpu::gemm::tensor_cores` has the order, and `mma.sync` computes it. One
// accumulator goes through ascending steps from zero. In products of two matrices that have their steps along columns,
// K is cut into pieces of 8192 steps, whose sums are added in order.
//
// A block of threads computes a square tile of the output; each of its warps has 32 columns and half of the rows. Steps
// are staged in shared memory 32 at a time, three stages ahead of each other. In a stage, chunks of 16 bytes are
// exchanged within a row so that eight rows of `ldmatrix` are in different banks.
#include "product_output.cuh"
#include "tensor_core.cuh"

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
template <Along ALONG, typename E, u32 SIDE>
struct Strip {
    static constexpr bool IN_ROWS = ALONG == Along::STEPS_IN_ROWS;
    // Rows of a stage, and chunks of a row.
    static constexpr u32 ROWS = IN_ROWS ? SIDE : STEPS;
    static constexpr u32 CHUNKS = (IN_ROWS ? STEPS : SIDE) / CHUNK;
    static constexpr u32 THREADS = threads_of(SIDE);
    static constexpr u32 BYTES = SIDE * STEPS * sizeof(E);

    AnyMatrix matrix;
    u64 first_lane;
    Loading loading;

    __device__ u64 steps() const {
        return IN_ROWS ? matrix.cols : matrix.rows;
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
            const u64 row = (IN_ROWS ? first_lane : step) + number / CHUNKS;
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

// A tile of the output, whose elements pass through shared memory, so that neighbouring threads access neighbouring
// elements: 64 rows at a time.
template <u32 SIDE>
struct OutputTile {
    static constexpr u32 ROWS = 64;
    // Rows of a warp's fragment are in different banks.
    static constexpr u32 PITCH = SIDE + 8;
    static constexpr u32 BYTES = ROWS * PITCH * sizeof(f32);

    AnyMatrix matrix;
    OutputType type;
    u32 first_row;
    u32 first_col;
    // This warp's first row and column in the tile.
    u32 warp_row;
    u32 warp_col;
    f32 *buffer;

    // Calls `body` with the place in the buffer, the row and the column of each element of 64 rows, and whether the
    // output has it.
    template <typename Body>
    __device__ void for_each(u32 row_of_tile, Body body) const {
#pragma unroll 1
        for (u32 element = threadIdx.x; element < ROWS * SIDE; element += threads_of(SIDE)) {
            const u64 row = first_row + row_of_tile + element / SIDE;
            const u64 col = first_col + element % SIDE;
            const bool is_inside = row < matrix.rows && col < matrix.cols;
            body(element / SIDE * PITCH + element % SIDE, row, col, is_inside);
        }
    }

    // Whether the warp's rows are among the 64 from this one on.
    __device__ bool has_warp(u32 row_of_tile) const {
        return warp_row / ROWS * ROWS == row_of_tile;
    }

    __device__ u32 place(u32 row, u32 col) const {
        return (warp_row % ROWS + row) * PITCH + warp_col + col;
    }

    // Reads what is in the output.
    __device__ void load(Sums<SIDE> &sums) const {
#pragma unroll 1
        for (u32 first = 0; first < SIDE; first += ROWS) {
            __syncthreads();
            for_each(first, [&](u32 place, u64 row, u64 col, bool is_inside) {
                const u64 element = row * matrix.stride + col;
                buffer[place] = is_inside ? element_of(type, matrix.start, element) : 0.0f;
            });
            __syncthreads();
            if (has_warp(first)) {
                sums.for_each([&](f32 &sum, u32 row, u32 col) { sum = buffer[place(row, col)]; });
            }
        }
    }

    // Stores sums, to which what is there is added if they are accumulated, and a bias where there is one.
    __device__ void store(Sums<SIDE> &sums, AnyMatrix bias, bool is_accumulated) const {
#pragma unroll 1
        for (u32 first = 0; first < SIDE; first += ROWS) {
            __syncthreads();
            if (has_warp(first)) {
                sums.for_each([&](f32 &sum, u32 row, u32 col) { buffer[place(row, col)] = sum; });
            }
            __syncthreads();
            for_each(first, [&](u32 place, u64 row, u64 col, bool is_inside) {
                if (!is_inside) {
                    return;
                }
                const u64 element = row * matrix.stride + col;
                f32 total = buffer[place];
                if (is_accumulated) {
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

// An operand of a launch.
struct Operand {
    AnyMatrix matrix;
    Loading loading;
};

template <Along LEFT, Along RIGHT, typename E, u32 SIDE>
__device__ inline void multiply(Operand a, Operand b, AnyMatrix bias, AnyMatrix out, OutputType type,
                                u32 is_accumulated) {
    using Left = Strip<LEFT, E, SIDE>;
    using Right = Strip<RIGHT, E, SIDE>;
    using WarpSums = Sums<SIDE>;
    // Only sums over tokens have pieces.
    constexpr bool HAS_PIECES = LEFT == Along::LANES_IN_ROWS;
    constexpr u32 STAGES_OF_PIECE = PIECE / STEPS;
    constexpr u32 STAGE_BYTES = Left::BYTES + Right::BYTES;
    // Once all stages are read, the output passes through their memory.
    __shared__ __align__(128) u8 memory[STAGES * STAGE_BYTES];
    static_assert(OutputTile<SIDE>::BYTES <= sizeof(memory), "room for the output");
    const Left left = {a.matrix, blockIdx.x * SIDE, a.loading};
    const Right right = {b.matrix, blockIdx.y * SIDE, b.loading};
    const u32 warp = threadIdx.x / 32;
    const u32 warp_row = warp % WARPS_OF_ROWS * (SIDE / WARPS_OF_ROWS);
    const u32 warp_col = warp / WARPS_OF_ROWS * WARP_COLS;
    const u32 first_row = blockIdx.x * SIDE;
    const u32 first_col = blockIdx.y * SIDE;
    const OutputTile<SIDE> tile = {out, type, first_row, first_col, warp_row, warp_col, (f32 *)memory};
    const u32 count = (u32)((left.steps() + STEPS - 1) / STEPS);

    // Sums of the pieces so far: -0, which changes no sum, or the output, to which those of several pieces are added.
    [[maybe_unused]] WarpSums earlier;
    const bool has_pieces = HAS_PIECES && count > STAGES_OF_PIECE;
    if constexpr (HAS_PIECES) {
        earlier.fill(-0.0f);
        if (has_pieces && is_accumulated != 0) {
            tile.load(earlier);
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
            for (u32 tile = 0; tile < WarpSums::ROW_TILES; tile++) {
                Left::left_fragment(left_stage, warp_row + tile * 16, step, rows[tile]);
            }
#pragma unroll
            for (u32 tile = 0; tile < WarpSums::COL_TILES / 2; tile++) {
                Right::right_fragment(right_stage, warp_col + tile * 16, step, cols[tile]);
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
    tile.store(sums, bias, is_accumulated != 0 && !has_pieces);
}

// A kernel for operands of this layout, with tiles of `SIDE` rows and columns.
#define MAT_MUL(NAME, LEFT, RIGHT, E, SIDE)                                                                            \
    extern "C" __global__ void __launch_bounds__(threads_of(SIDE))                                                     \
        NAME(AnyMatrix a, Loading a_loading, AnyMatrix b, Loading b_loading, AnyMatrix bias, AnyMatrix out,            \
             OutputType type, u32 is_accumulated) {                                                                    \
        multiply<Along::LEFT, Along::RIGHT, E, SIDE>({a, a_loading}, {b, b_loading}, bias, out, type, is_accumulated); \
    }

// `out[M,N] = a[M,K] b[N,K]^T`
MAT_MUL(mat_mul_blocks_nt_bf16_128, STEPS_IN_ROWS, STEPS_IN_ROWS, Bf16, 128)
MAT_MUL(mat_mul_blocks_nt_bf16_64, STEPS_IN_ROWS, STEPS_IN_ROWS, Bf16, 64)
MAT_MUL(mat_mul_blocks_nt_f16_128, STEPS_IN_ROWS, STEPS_IN_ROWS, F16, 128)
MAT_MUL(mat_mul_blocks_nt_f16_64, STEPS_IN_ROWS, STEPS_IN_ROWS, F16, 64)

// `out[M,N] = a[M,K] b[K,N]`
MAT_MUL(mat_mul_blocks_nn_bf16_128, STEPS_IN_ROWS, LANES_IN_ROWS, Bf16, 128)
MAT_MUL(mat_mul_blocks_nn_bf16_64, STEPS_IN_ROWS, LANES_IN_ROWS, Bf16, 64)
MAT_MUL(mat_mul_blocks_nn_f16_128, STEPS_IN_ROWS, LANES_IN_ROWS, F16, 128)
MAT_MUL(mat_mul_blocks_nn_f16_64, STEPS_IN_ROWS, LANES_IN_ROWS, F16, 64)

// `out[M,N] = a[K,M]^T b[K,N]`
MAT_MUL(mat_mul_blocks_tn_bf16_128, LANES_IN_ROWS, LANES_IN_ROWS, Bf16, 128)
MAT_MUL(mat_mul_blocks_tn_bf16_64, LANES_IN_ROWS, LANES_IN_ROWS, Bf16, 64)
MAT_MUL(mat_mul_blocks_tn_f16_128, LANES_IN_ROWS, LANES_IN_ROWS, F16, 128)
MAT_MUL(mat_mul_blocks_tn_f16_64, LANES_IN_ROWS, LANES_IN_ROWS, F16, 64)
