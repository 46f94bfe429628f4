// Products of bf16 or fp16 matrices in blocks of 16 on compute capability 9.0: `cpu::gemm::tensor_cores` has the order,
// and `wgmma` computes it, with one accumulator that goes through ascending steps from zero.
//
// A block of threads has three warpgroups. Of the first one a thread copies stages of 64 steps to a ring in shared
// memory. Each of the other two multiplies 64 of the 128 rows of a tile. Blocks stay on their multiprocessors and take
// tile after tile.
#include "bulk_copies.cuh"
#include "tensor_core.cuh"
#include "warpgroup.cuh"
#include "warpgroup_output.cuh"
#include "warpgroup_registers.cuh"

using bulk::TensorMap;
using warpgroup::Major;
using warpgroup::WARP_ROWS;
using Buffers = warpgroup::PartBuffers;

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

// The memory of a block.
template <u32 COLS>
struct Memory {
    static constexpr u32 A_BYTES = ROWS * STEPS * 2;
    // In whole boxes.
    static constexpr u32 B_BYTES = boxes(COLS) * BOX_BYTES;
    static constexpr u32 STAGE_BYTES = A_BYTES + B_BYTES;
    static constexpr u32 STAGES = 192 * 1024 / STAGE_BYTES;

    Buffers output[CONSUMERS * 4];
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
        for (u32 box = 0; box < boxes(LANES); box++) {
            bulk::start_copy(to + box * BOX_BYTES, map, lane + box * BOX_LANES, step, barrier);
        }
    }
}

template <Major A, Major B, u32 COLS>
struct Kernel {
    using M = Memory<COLS>;
    // Sums over tokens have pieces. Where a thread has registers for two sums, pieces are added there, or else through
    // the output, which holds sums as they are.
    static constexpr bool HAS_PIECES = A == Major::LANES;
    static constexpr bool HAS_TWO_SUMS = COLS <= 160;
    static constexpr u32 SUMS = COLS / 2;

    const TensorMap &a;
    const TensorMap &b;
    warpgroup::Output<COLS> output;
    u32 steps;
    FactorType factor_type;
    u32 ring;
    M *memory;

    __device__ u32 filled(u32 stage) const {
        return tensor_core::shared_address(&memory->filled[stage]);
    }

    __device__ u32 emptied(u32 stage) const {
        return tensor_core::shared_address(&memory->emptied[stage]);
    }

    __device__ u32 stages() const {
        return (steps + STEPS - 1) / STEPS;
    }

    // Copies all stages of all tiles: one thread.
    __device__ void produce() const {
        const u32 count = stages();
        Turn<M::STAGES> turn = {0, 1};
        for (Tiles<COLS> tiles(output.out); tiles.has_one(); tiles.next()) {
            u32 row;
            u32 col;
            tiles.place(row, col);
            for (u32 stage = 0; stage < count; stage++) {
                bulk::wait(emptied(turn.stage), turn.parity);
                const u32 barrier = filled(turn.stage);
                bulk::expect_bytes(barrier, M::STAGE_BYTES);
                const u32 to = ring + turn.stage * M::STAGE_BYTES;
                const u32 step = stage * STEPS;
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

    // Starts the products of a stage. Those of the first one begin the sums.
    template <typename E, Stage STAGE>
    __device__ void multiply(f32 (&sums)[SUMS], const Turn<M::STAGES> &turn, u32 consumer) const {
        constexpr u32 A_BLOCK = A == Major::STEPS ? 16 : BOX_BYTES;
        constexpr u32 B_BLOCK = B == Major::STEPS ? 16 : BOX_BYTES;
        const u64 place = turn.stage * (M::STAGE_BYTES >> 4);
        const u64 a = warpgroup::descriptor(ring + consumer * (M::A_BYTES / CONSUMERS), A_BLOCK) + place;
        const u64 b = warpgroup::descriptor(ring + M::A_BYTES, B_BLOCK) + place;
        bulk::wait(filled(turn.stage), turn.parity);
        warpgroup::begin();
#pragma unroll
        for (u32 block = 0; block < STEPS / 16; block++) {
            const u64 of_a = a + block * warpgroup::next_block(A);
            const u64 of_b = b + block * warpgroup::next_block(B);
            if (STAGE == Stage::FIRST && block == 0) {
                warpgroup::FirstProduct<E, A, B, COLS>::start(sums, of_a, of_b);
            } else {
                warpgroup::Product<E, A, B, COLS>::add(sums, of_a, of_b, 1);
            }
        }
        warpgroup::end();
    }

    // Sums the next `count` stages, of which there is one at least.
    template <typename E>
    __device__ void sum_of(f32 (&sums)[SUMS], Turn<M::STAGES> &turn, u32 count, u32 consumer) const {
        multiply<E, Stage::FIRST>(sums, turn, consumer);
        u32 last = turn.stage;
        turn.next();
        for (u32 stage = 1; stage < count; stage++) {
            multiply<E, Stage::NEXT>(sums, turn, consumer);
            warpgroup::wait<1>();
            release(last);
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

    // The stages of the piece that begins with stage `first`.
    __device__ u32 stages_of_piece(u32 first) const {
        const u32 left = stages() - first;
        return HAS_PIECES && left > STAGES_OF_PIECE ? STAGES_OF_PIECE : left;
    }

    // Multiplies a tile and stores it, each piece after the other.
    __device__ void store_pieces(Turn<M::STAGES> &turn, u32 row, u32 col, u32 consumer, Buffers &buffers) const {
        warpgroup::Output<COLS> of_piece = output;
        u32 of_bias[warpgroup::Output<COLS>::PAIRS];
        if constexpr (!HAS_PIECES) {
            output.load_bias(of_bias, row, col);
        }
        for (u32 first = 0; first < stages();) {
            const u32 count = stages_of_piece(first);
            f32 sums[SUMS];
            sum(sums, turn, count, consumer);
            first += count;
            if constexpr (HAS_PIECES) {
                of_piece.bias.start = first < stages() ? nullptr : output.bias.start;
                of_piece.load_bias(of_bias, row, col);
            }
            of_piece.store(sums, row, col, buffers, of_bias);
            of_piece.is_accumulated = true;
        }
    }

    // Multiplies a tile, adds its pieces in registers, and stores it.
    __device__ void store_total(Turn<M::STAGES> &turn, u32 row, u32 col, u32 consumer, Buffers &buffers) const {
        // -0 changes no sum.
        f32 total[SUMS];
#pragma unroll
        for (u32 index = 0; index < SUMS; index++) {
            total[index] = -0.0f;
        }
        if (output.is_accumulated) {
            output.load(total, row, col, buffers);
        }
        for (u32 first = 0; first < stages();) {
            const u32 count = stages_of_piece(first);
            f32 sums[SUMS];
            sum(sums, turn, count, consumer);
            first += count;
#pragma unroll
            for (u32 index = 0; index < SUMS; index++) {
                total[index] = total[index] + sums[index];
            }
        }
        warpgroup::Output<COLS> assigned = output;
        assigned.is_accumulated = false;
        u32 of_bias[warpgroup::Output<COLS>::PAIRS];
        assigned.load_bias(of_bias, row, col);
        assigned.store(total, row, col, buffers, of_bias);
    }

    // Multiplies and stores one half of all tiles: a warpgroup.
    __device__ void consume(u32 consumer) const {
        const u32 warp = threadIdx.x % WARPGROUP / 32;
        Buffers &buffers = memory->output[consumer * 4 + warp];
        Turn<M::STAGES> turn = {0, 0};
        for (Tiles<COLS> tiles(output.out); tiles.has_one(); tiles.next()) {
            u32 row;
            u32 col;
            tiles.place(row, col);
            row += consumer * ROWS_OF_WARPGROUP + warp * WARP_ROWS;
            if constexpr (HAS_PIECES && HAS_TWO_SUMS) {
                store_total(turn, row, col, consumer, buffers);
            } else {
                store_pieces(turn, row, col, consumer, buffers);
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

    __device__ void run() const {
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
__device__ inline void multiply(const TensorMap &a, const TensorMap &b, AnyMatrix bias, AnyMatrix out, u32 steps,
                                FactorType factor_type, OutputType type, u32 is_accumulated) {
    extern __shared__ __align__(16) u8 dynamic_memory[];
    // Boxes of 128 bytes begin at multiples of 1024.
    const u32 address = tensor_core::shared_address(dynamic_memory);
    const u32 ring = (address + 1023) / 1024 * 1024;
    using M = Memory<COLS>;
    M *memory = (M *)(dynamic_memory + (ring - address) + M::STAGES * M::STAGE_BYTES);
    const warpgroup::Output<COLS> output = {bias, out, type, is_accumulated != 0};
    Kernel<A, B, COLS>{a, b, output, steps, factor_type, ring, memory}.run();
}

// A kernel for factors of this layout, with tiles of `COLS` columns.
#define MAT_MUL(NAME, A, B, COLS)                                                                                      \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                           \
        NAME(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, AnyMatrix bias, AnyMatrix out,  \
             u32 steps, FactorType factor_type, OutputType type, u32 is_accumulated) {                               \
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
MAT_MUL(mat_mul_wgmma_tn_160, LANES, LANES, 160)
MAT_MUL(mat_mul_wgmma_tn_128, LANES, LANES, 128)
MAT_MUL(mat_mul_wgmma_tn_64, LANES, LANES, 64)
