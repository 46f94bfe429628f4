// Products of bf16 or fp16 matrices in blocks of 16 on compute capability 9.0: `cpu::gemm::tensor_cores` has the order,
// and `wgmma` computes it, with one accumulator that goes through ascending steps from zero.
//
// A block of threads has three warpgroups. Of the first one a thread copies stages of 64 steps to a ring in shared
// memory. Each of the other two multiplies 64 of the 128 rows of a tile. Blocks stay on their multiprocessors and take
// tile after tile; those of a cluster take tiles one below the other, and each copies a part of their columns for all.
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
// Rows of tiles of clusters whose tiles are taken one column after the other, so that they share what they read.
constexpr u32 ROWS_TOGETHER = 8;

// The steps of a launch.
struct Steps {
    u32 first;
    u32 count;
};

// The memory of a block.
template <u32 COLS>
struct Memory {
    static constexpr u32 A_BYTES = ROWS * STEPS * 2;
    static constexpr u32 B_BYTES = COLS * STEPS * 2;
    static constexpr u32 STAGE_BYTES = A_BYTES + B_BYTES;
    static constexpr u32 STAGES = 192 * 1024 / STAGE_BYTES;
    // Columns of a warp that pass to the output together. Rows of a fragment lie in different banks.
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

// The tiles that a cluster computes.
template <u32 COLS, u32 CLUSTER>
struct Tiles {
    u32 rows;
    u32 cols;
    u32 index;

    __device__ Tiles(AnyMatrix out) {
        rows = (u32)((out.rows + ROWS * CLUSTER - 1) / (ROWS * CLUSTER));
        cols = (u32)((out.cols + COLS - 1) / COLS);
        index = blockIdx.x / CLUSTER;
    }

    __device__ bool has_one() const {
        return index < rows * cols;
    }

    __device__ void next() {
        index += gridDim.x / CLUSTER;
    }

    // The first row of this block's tile, and its first column.
    __device__ void place(u32 &row, u32 &col) const {
        const u32 group = index / (ROWS_TOGETHER * cols);
        const u32 first = group * ROWS_TOGETHER;
        const u32 together = rows - first < ROWS_TOGETHER ? rows - first : ROWS_TOGETHER;
        const u32 within = index % (ROWS_TOGETHER * cols);
        row = ((first + within % together) * CLUSTER + (CLUSTER == 1 ? 0 : bulk::block_of_cluster())) * ROWS;
        col = within / together * COLS;
    }
};

// Starts the copies of a factor's lanes of one stage.
template <Major MAJOR, u32 LANES, u32 BLOCKS>
__device__ inline void copy_factor(u32 to, const TensorMap &map, u32 lane, u32 step, u32 barrier) {
    const auto start = [&](u32 place, u32 inner, u32 outer) {
        if constexpr (BLOCKS == 1) {
            bulk::start_copy(place, map, inner, outer, barrier);
        } else {
            bulk::start_shared_copy(place, map, inner, outer, barrier, (u16)((1u << BLOCKS) - 1));
        }
    };
    if constexpr (MAJOR == Major::STEPS) {
        start(to, step, lane);
    } else {
#pragma unroll
        for (u32 box = 0; box < LANES / BOX_LANES; box++) {
            start(to + box * BOX_BYTES, lane + box * BOX_LANES, step);
        }
    }
}

template <typename E, Major A, Major B, u32 COLS, u32 CLUSTER>
struct Kernel {
    using M = Memory<COLS>;
    static constexpr bool HAS_PIECES = A == Major::LANES && COLS <= 128;
    static constexpr u32 SUMS = COLS / 2;

    const TensorMap &a;
    const TensorMap &b;
    AnyMatrix bias;
    AnyMatrix out;
    Steps steps;
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
        constexpr u32 SHARE = COLS / CLUSTER;
        const u32 block = CLUSTER == 1 ? 0 : bulk::block_of_cluster();
        const u32 count = stages();
        Turn<M::STAGES> turn = {0, 1};
        for (Tiles<COLS, CLUSTER> tiles(out); tiles.has_one(); tiles.next()) {
            u32 row;
            u32 col;
            tiles.place(row, col);
            for (u32 stage = 0; stage < count; stage++) {
                bulk::wait(emptied(turn.stage), turn.parity);
                const u32 barrier = filled(turn.stage);
                bulk::expect_bytes(barrier, M::STAGE_BYTES);
                const u32 to = ring + turn.stage * M::STAGE_BYTES;
                const u32 step = steps.first + stage * STEPS;
                copy_factor<A, ROWS, 1>(to, a, row, step, barrier);
                const u32 to_b = to + M::A_BYTES + block * (M::B_BYTES / CLUSTER);
                copy_factor<B, SHARE, CLUSTER>(to_b, b, col + block * SHARE, step, barrier);
                turn.next();
            }
        }
    }

    // A stage is read by this warp.
    __device__ void release(u32 stage) const {
        const u32 lane = threadIdx.x % 32;
        if constexpr (CLUSTER == 1) {
            if (lane == 0) {
                bulk::arrive(emptied(stage));
            }
        } else if (lane < CLUSTER) {
            bulk::arrive_at(emptied(stage), lane);
        }
    }

    // Sums the next `count` stages.
    __device__ void sum(f32 (&sums)[SUMS], Turn<M::STAGES> &turn, u32 count, u32 consumer) const {
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

    // Whether four elements of the output, and of the bias, can be accessed at once.
    __device__ bool is_wide() const {
        const u64 size = type == OutputType::SINGLE ? 4 : 2;
        return ((u64)out.start | out.stride * size | (u64)bias.start) % (4 * size) == 0;
    }

    // Stores four elements of the output from a column on.
    template <typename Out>
    __device__ void store(u64 row, u64 col, float4 four, bool is_wide) const {
        Out *to = (Out *)out.start + row * out.stride + col;
        const Out *added = (const Out *)bias.start + col;
        f32 values[4] = {four.x, four.y, four.z, four.w};
        if (is_wide && col + 4 <= out.cols) {
            if (is_accumulated) {
                add_four(values, to);
            }
            if (bias.is_there()) {
                add_four(values, added);
            }
            round_four(to, values);
            return;
        }
#pragma unroll 1
        for (u32 index = 0; col + index < out.cols && index < 4; index++) {
            f32 total = four.x;
            four = {four.y, four.z, four.w, 0.0f};
            if (is_accumulated) {
                total = widen(to[index]) + total;
            }
            if (bias.is_there()) {
                total = total + widen(added[index]);
            }
            to[index] = narrow<Out>(total);
        }
    }

    // Stores a warp's 16 rows, 32 columns at a time, through memory of its own: lanes that are next to each other access
    // elements that are.
    template <typename Out>
    __device__ void finish(const f32 (&sums)[SUMS], u32 first_row, u32 first_col, u32 warp) const {
        f32 *buffer = memory->output[warp];
        const u32 lane = threadIdx.x % 32;
        const bool wide = is_wide();
#pragma unroll
        for (u32 part = 0; part < COLS / M::OUTPUT_COLS; part++) {
            __syncwarp();
#pragma unroll
            for (u32 index = 0; index < M::OUTPUT_COLS / 8; index++) {
                const u32 sum = (part * M::OUTPUT_COLS / 8 + index) * 4;
                f32 *upper = buffer + lane / 4 * M::OUTPUT_PITCH + index * 8 + lane % 4 * 2;
                *(float2 *)upper = {sums[sum], sums[sum + 1]};
                *(float2 *)(upper + 8 * M::OUTPUT_PITCH) = {sums[sum + 2], sums[sum + 3]};
            }
            __syncwarp();
            const u32 col = first_col + part * M::OUTPUT_COLS + lane % 8 * 4;
#pragma unroll
            for (u32 rows = 0; rows < 16; rows += 4) {
                const u32 row = rows + lane / 8;
                const float4 four = *(const float4 *)(buffer + row * M::OUTPUT_PITCH + lane % 8 * 4);
                if (first_row + row < out.rows) {
                    store<Out>(first_row + row, col, four, wide);
                }
            }
        }
    }

    __device__ void finish(const f32 (&sums)[SUMS], u32 first_row, u32 first_col, u32 warp) const {
        switch (type) {
        case OutputType::SINGLE:
            return finish<f32>(sums, first_row, first_col, warp);
        case OutputType::BF16:
            return finish<Bf16>(sums, first_row, first_col, warp);
        case OutputType::F16:
            return finish<F16>(sums, first_row, first_col, warp);
        }
    }

    // What is in the output, as sums.
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
        for (Tiles<COLS, CLUSTER> tiles(out); tiles.has_one(); tiles.next()) {
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
                bulk::initialize_barrier(emptied(stage), CLUSTER * CONSUMERS * 4);
            }
            bulk::publish_barriers();
        }
        synchronize();
    }

    __device__ static void synchronize() {
        if constexpr (CLUSTER == 1) {
            __syncthreads();
        } else {
            bulk::synchronize_cluster();
        }
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
        // No block ends while another one arrives at its barriers, or copies to its memory.
        if constexpr (CLUSTER != 1) {
            __syncwarp();
            bulk::synchronize_cluster();
        }
    }
};

template <typename E, Major A, Major B, u32 COLS, u32 CLUSTER>
__device__ inline void multiply(const TensorMap &a, const TensorMap &b, AnyMatrix bias, AnyMatrix out, Steps steps,
                                OutputType type, u32 is_accumulated) {
    extern __shared__ __align__(16) u8 dynamic_memory[];
    // Boxes of 128 bytes begin at multiples of 1024.
    const u32 address = tensor_core::shared_address(dynamic_memory);
    const u32 ring = (address + 1023) / 1024 * 1024;
    using M = Memory<COLS>;
    M *memory = (M *)(dynamic_memory + (ring - address) + M::STAGES * M::STAGE_BYTES);
    Kernel<E, A, B, COLS, CLUSTER>{a, b, bias, out, steps, type, is_accumulated != 0, ring, memory}.run();
}

// A kernel for factors that lie so, with tiles of `COLS` columns and clusters of `CLUSTER` blocks.
#define MAT_MUL(NAME, E, A, B, COLS, CLUSTER)                                                                          \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) __cluster_dims__(CLUSTER, 1, 1)                             \
        NAME(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, AnyMatrix bias, AnyMatrix out,  \
             Steps steps, OutputType type, u32 is_accumulated) {                                                       \
        multiply<E, Major::A, Major::B, COLS, CLUSTER>(a, b, bias, out, steps, type, is_accumulated);                  \
    }
#define MAT_MULS(NAME, E, A, B)                                                                                        \
    MAT_MUL(NAME##_256_by_2, E, A, B, 256, 2)                                                                          \
    MAT_MUL(NAME##_256, E, A, B, 256, 1)                                                                               \
    MAT_MUL(NAME##_128_by_2, E, A, B, 128, 2)                                                                          \
    MAT_MUL(NAME##_128, E, A, B, 128, 1)                                                                               \
    MAT_MUL(NAME##_64, E, A, B, 64, 1)

// `out[M,N] = a[M,K] b[N,K]^T`
MAT_MULS(mat_mul_wgmma_nt_bf16, Bf16, STEPS, STEPS)
// `out[M,N] = a[M,K] b[K,N]`
MAT_MULS(mat_mul_wgmma_nn_bf16, Bf16, STEPS, LANES)
// `out[M,N] = a[K,M]^T b[K,N]`
MAT_MULS(mat_mul_wgmma_tn_bf16, Bf16, LANES, LANES)
