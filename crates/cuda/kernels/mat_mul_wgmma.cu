// Products of bf16 or fp16 matrices in blocks of 16 on compute capability 9.0: `cpu::gemm::tensor_cores` has the order,
// and `wgmma` computes it, with one accumulator that goes through ascending steps from zero.
//
// A block of threads has three warpgroups. Of the first one a thread copies stages of 64 steps to a ring in shared
// memory. Each of the other two multiplies 64 of the 128 rows of a tile. Blocks stay on their multiprocessors and take
// tile after tile.
#include "bulk_copies.cuh"
#include "product_output.cuh"
#include "tensor_core.cuh"
#include "warpgroup.cuh"

using bulk::TensorMap;
using warpgroup::Major;

constexpr u32 ROWS = 128;
constexpr u32 ROWS_OF_WARPGROUP = 64;
constexpr u32 WARPGROUP = 128;
constexpr u32 CONSUMERS = 2;
constexpr u32 THREADS = WARPGROUP * (CONSUMERS + 1);
// Steps of a stage, which are 128 bytes, and of a piece: `Products::PIECE`.
constexpr u32 STEPS = 64;
constexpr u32 STAGES_OF_PIECE = 8192 / STEPS;
// Lanes of a box whose rows have lanes.
constexpr u32 BOX_LANES = 64;
constexpr u32 BOX_BYTES = BOX_LANES * STEPS * 2;
// Rows of tiles, which are taken one column after the other, so that blocks share what they read.
constexpr u32 ROWS_TOGETHER = 8;

// The steps of a launch.
struct Steps {
    u32 first;
    u32 count;
};

// The type of both factors.
enum class FactorType : u32 { BF16, F16 };

// The memory of a block.
template <u32 COLS>
struct Memory {
    static constexpr u32 A_BYTES = ROWS * STEPS * 2;
    static constexpr u32 B_BYTES = COLS * STEPS * 2;
    static constexpr u32 STAGE_BYTES = A_BYTES + B_BYTES;
    static constexpr u32 STAGES = 192 * 1024 / STAGE_BYTES;
    // Columns of a warp that pass to the output together. Rows of a fragment are in different banks.
    static constexpr u32 OUTPUT_COLS = 32;
    static constexpr u32 OUTPUT_PITCH = OUTPUT_COLS + 8;
    static constexpr u32 OUTPUT_WORDS = 16 * OUTPUT_PITCH;

    f32 output[CONSUMERS * 4][OUTPUT_WORDS];
    u64 filled[STAGES];
    u64 emptied[STAGES];
};

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
        for (u32 box = 0; box < LANES / BOX_LANES; box++) {
            bulk::start_copy(to + box * BOX_BYTES, map, lane + box * BOX_LANES, step, barrier);
        }
    }
}

template <Major A, Major B, u32 COLS>
struct Kernel {
    using M = Memory<COLS>;
    static constexpr bool HAS_PIECES = A == Major::LANES && COLS <= 128;
    static constexpr u32 SUMS = COLS / 2;

    const TensorMap &a;
    const TensorMap &b;
    AnyMatrix bias;
    AnyMatrix out;
    Steps steps;
    FactorType factor_type;
    OutputType type;
    bool is_accumulated;
    u32 ring;
    M *memory;

    __device__ u32 filled(u32 stage) const {
        return tensor_core::shared_address(&memory->filled[stage]);
    }

    __device__ u32 emptied(u32 stage) const {
        return tensor_core::shared_address(&memory->emptied[stage]);
    }

    __device__ u32 stages() const {
        return (steps.count + STEPS - 1) / STEPS;
    }

    // Copies all stages of all tiles: one thread.
    __device__ void produce() const {
        const u32 count = stages();
        Turn<M::STAGES> turn = {0, 1};
        for (Tiles<COLS> tiles(out); tiles.has_one(); tiles.next()) {
            u32 row;
            u32 col;
            tiles.place(row, col);
            for (u32 stage = 0; stage < count; stage++) {
                bulk::wait(emptied(turn.stage), turn.parity);
                const u32 barrier = filled(turn.stage);
                bulk::expect_bytes(barrier, M::STAGE_BYTES);
                const u32 to = ring + turn.stage * M::STAGE_BYTES;
                const u32 step = steps.first + stage * STEPS;
                copy_factor<A, ROWS>(to, a, row, step, barrier);
                copy_factor<B, COLS>(to + M::A_BYTES, b, col, step, barrier);
                turn.next();
            }
        }
    }

    // A stage is read by this warp.
    __device__ void release(u32 stage) const {
        if (threadIdx.x % 32 == 0) {
            bulk::arrive(emptied(stage));
        }
    }

    // Sums the next `count` stages.
    template <typename E>
    __device__ void sum_of(f32 (&sums)[SUMS], Turn<M::STAGES> &turn, u32 count, u32 consumer) const {
        constexpr u32 A_BLOCK = A == Major::STEPS ? 16 : BOX_BYTES;
        constexpr u32 B_BLOCK = B == Major::STEPS ? 16 : BOX_BYTES;
        const u64 first_a = warpgroup::descriptor(ring + consumer * (M::A_BYTES / CONSUMERS), A_BLOCK);
        const u64 first_b = warpgroup::descriptor(ring + M::A_BYTES, B_BLOCK);
        u32 last = 0;
        for (u32 stage = 0; stage < count; stage++) {
            bulk::wait(filled(turn.stage), turn.parity);
            const u64 place = turn.stage * (M::STAGE_BYTES >> 4);
            warpgroup::begin();
#pragma unroll
            for (u32 block = 0; block < STEPS / 16; block++) {
                warpgroup::Product<E, A, B, COLS>::add(sums, first_a + place + block * warpgroup::next_block(A),
                                                       first_b + place + block * warpgroup::next_block(B),
                                                       block == 0 ? stage : 1);
            }
            warpgroup::end();
            if (stage != 0) {
                warpgroup::wait<1>();
                release(last);
            }
            last = turn.stage;
            turn.next();
        }
        warpgroup::wait<0>();
        warpgroup::pin(sums);
        release(last);
    }

    __device__ void sum(f32 (&sums)[SUMS], Turn<M::STAGES> &turn, u32 count, u32 consumer) const {
        switch (factor_type) {
        case FactorType::BF16:
            return sum_of<Bf16>(sums, turn, count, consumer);
        case FactorType::F16:
            return sum_of<F16>(sums, turn, count, consumer);
        }
    }

    // Whether four elements of the output, and of the bias, can be accessed at once, and a warp's rows and columns are
    // all there.
    __device__ bool is_wide(u32 first_row, u32 first_col) const {
        const u64 size = type == OutputType::SINGLE ? 4 : 2;
        const bool begins = ((u64)out.start | out.stride * size | (u64)bias.start) % (4 * size) == 0;
        return begins && (u64)first_row + 16 <= out.rows && (u64)first_col + COLS <= out.cols;
    }

    // A warp passes its 16 rows of 32 columns to memory of its own, from where lanes that are next to each other take
    // elements that are.
    __device__ void pass(const f32 (&sums)[SUMS], u32 part, f32 *buffer) const {
        const u32 lane = threadIdx.x % 32;
        __syncwarp();
#pragma unroll
        for (u32 index = 0; index < M::OUTPUT_COLS / 8; index++) {
            const u32 sum = (part * M::OUTPUT_COLS / 8 + index) * 4;
            f32 *upper = buffer + lane / 4 * M::OUTPUT_PITCH + index * 8 + lane % 4 * 2;
            *(float2 *)upper = {sums[sum], sums[sum + 1]};
            *(float2 *)(upper + 8 * M::OUTPUT_PITCH) = {sums[sum + 2], sums[sum + 3]};
        }
        __syncwarp();
    }

    // Stores a warp's 16 rows, four elements at once: in turns of a lane's rows, so that accesses of each wait
    // together.
    template <typename Out>
    __device__ void store_wide(const f32 (&sums)[SUMS], u32 first_row, u32 first_col, f32 *buffer) const {
        constexpr u32 OWN_ROWS = 4;
        const u32 lane = threadIdx.x % 32;
        const u32 own_col = lane % 8 * 4;
        const f32 *own = buffer + lane / 8 * M::OUTPUT_PITCH + own_col;
        Out *to = (Out *)out.start + (first_row + lane / 8) * out.stride + first_col + own_col;
        const Out *added = (const Out *)bias.start + first_col + own_col;
        const u64 next_row = 4 * out.stride;
#pragma unroll
        for (u32 part = 0; part < COLS / M::OUTPUT_COLS; part++) {
            pass(sums, part, buffer);
            f32 values[OWN_ROWS][4];
#pragma unroll
            for (u32 row = 0; row < OWN_ROWS; row++) {
                four_of(own + row * 4 * M::OUTPUT_PITCH, values[row]);
            }
            if (is_accumulated) {
                f32 earlier[OWN_ROWS][4];
#pragma unroll
                for (u32 row = 0; row < OWN_ROWS; row++) {
                    four_of(to + row * next_row, earlier[row]);
                }
#pragma unroll
                for (u32 row = 0; row < OWN_ROWS; row++) {
                    add_four(values[row], earlier[row]);
                }
            }
            if (bias.is_there()) {
                f32 of_bias[4];
                four_of(added, of_bias);
#pragma unroll
                for (u32 row = 0; row < OWN_ROWS; row++) {
                    add_four(values[row], of_bias);
                }
            }
#pragma unroll
            for (u32 row = 0; row < OWN_ROWS; row++) {
                round_four(to + row * next_row, values[row]);
            }
            to += M::OUTPUT_COLS;
            added += M::OUTPUT_COLS;
        }
    }

    // Stores a warp's 16 rows element by element.
    __device__ void store_any(const f32 (&sums)[SUMS], u32 first_row, u32 first_col, f32 *buffer) const {
        const u32 lane = threadIdx.x % 32;
#pragma unroll
        for (u32 part = 0; part < COLS / M::OUTPUT_COLS; part++) {
            pass(sums, part, buffer);
            const u64 col = first_col + part * M::OUTPUT_COLS + lane;
#pragma unroll 1
            for (u32 row = 0; row < 16; row++) {
                if (first_row + row < out.rows && col < out.cols) {
                    const u64 element = (first_row + row) * out.stride + col;
                    f32 total = buffer[row * M::OUTPUT_PITCH + lane];
                    if (is_accumulated) {
                        total = element_of(type, out.start, element) + total;
                    }
                    if (bias.is_there()) {
                        total = total + element_of(type, bias.start, col);
                    }
                    round_to(type, out.start, element, total);
                }
            }
        }
    }

    __device__ void finish(const f32 (&sums)[SUMS], u32 first_row, u32 first_col, u32 warp) const {
        f32 *buffer = memory->output[warp];
        if (!is_wide(first_row, first_col)) {
            return store_any(sums, first_row, first_col, buffer);
        }
        switch (type) {
        case OutputType::SINGLE:
            return store_wide<f32>(sums, first_row, first_col, buffer);
        case OutputType::BF16:
            return store_wide<Bf16>(sums, first_row, first_col, buffer);
        case OutputType::F16:
            return store_wide<F16>(sums, first_row, first_col, buffer);
        }
    }

    // Loads the output as sums.
    __device__ void load(f32 (&sums)[SUMS], u32 first_row, u32 first_col) const {
        const u32 lane = threadIdx.x % 32;
#pragma unroll
        for (u32 sum = 0; sum < SUMS; sum++) {
            const u64 row = first_row + sum / 2 % 2 * 8 + lane / 4;
            const u64 col = first_col + sum / 4 * 8 + lane % 4 * 2 + sum % 2;
            if (row < out.rows && col < out.cols) {
                sums[sum] = element_of(type, out.start, row * out.stride + col);
            }
        }
    }

    // Multiplies and stores one half of all tiles: a warpgroup.
    __device__ void consume(u32 consumer) {
        const u32 warp = threadIdx.x % WARPGROUP / 32;
        const u32 count = stages();
        const bool has_pieces = HAS_PIECES && count > STAGES_OF_PIECE;
        const bool is_loaded_first = has_pieces && is_accumulated;
        is_accumulated = is_accumulated && !has_pieces;
        Turn<M::STAGES> turn = {0, 0};
        for (Tiles<COLS> tiles(out); tiles.has_one(); tiles.next()) {
            u32 row;
            u32 col;
            tiles.place(row, col);
            row += consumer * ROWS_OF_WARPGROUP + warp * 16;
            f32 sums[SUMS];
            if constexpr (HAS_PIECES) {
                // -0 changes no sum.
                f32 earlier[SUMS];
#pragma unroll
                for (u32 index = 0; index < SUMS; index++) {
                    earlier[index] = -0.0f;
                }
                if (is_loaded_first) {
                    load(earlier, row, col);
                }
                for (u32 first = 0; first < count; first += STAGES_OF_PIECE) {
                    sum(sums, turn, count - first < STAGES_OF_PIECE ? count - first : STAGES_OF_PIECE, consumer);
#pragma unroll
                    for (u32 index = 0; index < SUMS; index++) {
                        earlier[index] = earlier[index] + sums[index];
                    }
                }
                finish(earlier, row, col, consumer * 4 + warp);
            } else {
                sum(sums, turn, count, consumer);
                finish(sums, row, col, consumer * 4 + warp);
            }
        }
    }

    __device__ void initialize() const {
        if (threadIdx.x == 0) {
            for (u32 stage = 0; stage < M::STAGES; stage++) {
                bulk::initialize_barrier(filled(stage), 1);
                bulk::initialize_barrier(emptied(stage), CONSUMERS * 4);
            }
            bulk::publish_barriers();
        }
        __syncthreads();
    }

    __device__ void run() {
        initialize();
        // The same in all lanes, as the compiler sees then.
        const u32 warpgroup = __shfl_sync(0xffffffff, threadIdx.x / WARPGROUP, 0);
        if (warpgroup == 0) {
            bulk::give_registers<40>();
            if (threadIdx.x == 0) {
                produce();
            }
        } else {
            bulk::take_registers<232>();
            consume(warpgroup - 1);
        }
    }
};

template <Major A, Major B, u32 COLS>
__device__ inline void multiply(const TensorMap &a, const TensorMap &b, AnyMatrix bias, AnyMatrix out, Steps steps,
                                FactorType factor_type, OutputType type, u32 is_accumulated) {
    extern __shared__ __align__(16) u8 dynamic_memory[];
    // Boxes of 128 bytes begin at multiples of 1024.
    const u32 address = tensor_core::shared_address(dynamic_memory);
    const u32 ring = (address + 1023) / 1024 * 1024;
    using M = Memory<COLS>;
    M *memory = (M *)(dynamic_memory + (ring - address) + M::STAGES * M::STAGE_BYTES);
    Kernel<A, B, COLS>{a, b, bias, out, steps, factor_type, type, is_accumulated != 0, ring, memory}.run();
}

// A kernel for factors of this layout, with tiles of `COLS` columns.
#define MAT_MUL(NAME, A, B, COLS)                                                                                      \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                           \
        NAME(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, AnyMatrix bias, AnyMatrix out,  \
             Steps steps, FactorType factor_type, OutputType type, u32 is_accumulated) {                               \
        multiply<Major::A, Major::B, COLS>(a, b, bias, out, steps, factor_type, type, is_accumulated);                 \
    }

// `out[M,N] = a[M,K] b[N,K]^T`
MAT_MUL(mat_mul_wgmma_nt_256, STEPS, STEPS, 256)
MAT_MUL(mat_mul_wgmma_nt_192, STEPS, STEPS, 192)
MAT_MUL(mat_mul_wgmma_nt_128, STEPS, STEPS, 128)
MAT_MUL(mat_mul_wgmma_nt_64, STEPS, STEPS, 64)

// `out[M,N] = a[M,K] b[K,N]`
MAT_MUL(mat_mul_wgmma_nn_256, STEPS, LANES, 256)
MAT_MUL(mat_mul_wgmma_nn_192, STEPS, LANES, 192)
MAT_MUL(mat_mul_wgmma_nn_128, STEPS, LANES, 128)
MAT_MUL(mat_mul_wgmma_nn_64, STEPS, LANES, 64)

// `out[M,N] = a[K,M]^T b[K,N]`
MAT_MUL(mat_mul_wgmma_tn_256, LANES, LANES, 256)
MAT_MUL(mat_mul_wgmma_tn_192, LANES, LANES, 192)
MAT_MUL(mat_mul_wgmma_tn_128, LANES, LANES, 128)
MAT_MUL(mat_mul_wgmma_tn_64, LANES, LANES, 64)
