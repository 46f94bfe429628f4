// Products of bf16 or fp16 matrices in blocks of 16 on compute capability 9.0: `cpu::gemm::tensor_cores` has the order,
// and `wgmma` computes it, with one accumulator that goes through ascending steps from zero.
//
// A block of threads has three warpgroups. Of the first one a thread copies stages of 64 steps to a ring in shared
// memory. Each of the other two multiplies 64 of the 128 rows of a tile. Blocks stay on their multiprocessors and take
// tile after tile.
#include "warpgroup_registers.cuh"
#include "warpgroup_ring.cuh"

// The memory of a block after the stages.
template <typename Stages>
struct Memory {
    Buffers output[CONSUMERS * WARPS_OF_WARPGROUP];
    typename Stages::Barriers barriers;
};

template <Major A, Major B, u32 COLS>
struct Kernel {
    using Stages = Ring<A, B, COLS>;
    using Place = typename Stages::Place;
    static constexpr bool HAS_PIECES = Stages::HAS_PIECES;
    // Where a thread has registers for two sums, pieces are added there, or else through the output, which holds sums
    // as they are.
    static constexpr bool HAS_TWO_SUMS = COLS <= 160;
    static constexpr u32 SUMS = COLS / 2;

    Stages ring;
    warpgroup::Output<COLS> output;
    FactorType factor_type;
    Memory<Stages> *memory;

    // Copies all stages of all tiles: one thread.
    __device__ void produce() const {
        Place turn = {0, 1};
        for (Tiles<COLS> tiles(output.out); tiles.has_one(); tiles.next()) {
            u32 row;
            u32 col;
            tiles.place(row, col);
            ring.copy_stages(turn, row, col, 0, ring.stages());
        }
    }

    // Starts the products of a stage. Those of the first one begin the sums.
    template <typename E, Stage STAGE>
    __device__ void multiply(f32 (&sums)[SUMS], const Place &turn, u32 consumer) const {
        const u64 a = ring.left(turn, consumer);
        const u64 b = ring.right(turn);
        ring.await(turn);
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
    __device__ void sum_of(f32 (&sums)[SUMS], Place &turn, u32 count, u32 consumer) const {
        multiply<E, Stage::FIRST>(sums, turn, consumer);
        u32 last = turn.stage;
        turn.next();
        for (u32 stage = 1; stage < count; stage++) {
            multiply<E, Stage::NEXT>(sums, turn, consumer);
            warpgroup::wait<1>();
            ring.release(last);
            last = turn.stage;
            turn.next();
        }
        warpgroup::wait<0>();
        warpgroup::pin(sums);
        ring.release(last);
    }

    __device__ void sum(f32 (&sums)[SUMS], Place &turn, u32 count, u32 consumer) const {
        switch (factor_type) {
        case FactorType::BF16:
            return sum_of<Bf16>(sums, turn, count, consumer);
        case FactorType::F16:
            return sum_of<F16>(sums, turn, count, consumer);
        }
    }

    // Multiplies a tile and stores it, each piece after the other.
    __device__ void store_pieces(Place &turn, u32 row, u32 col, u32 consumer, Buffers &buffers) const {
        warpgroup::Output<COLS> of_piece = output;
        u32 of_bias[warpgroup::Output<COLS>::PAIRS];
        if constexpr (!HAS_PIECES) {
            output.load_bias(of_bias, row, col);
        }
        for (u32 first = 0; first < ring.stages();) {
            const u32 count = ring.stages_of_piece(first);
            f32 sums[SUMS];
            sum(sums, turn, count, consumer);
            first += count;
            if constexpr (HAS_PIECES) {
                of_piece.bias.start = first < ring.stages() ? nullptr : output.bias.start;
                of_piece.load_bias(of_bias, row, col);
            }
            of_piece.store(sums, row, col, buffers, of_bias);
            of_piece.is_accumulated = true;
        }
    }

    // Multiplies a tile, adds its pieces in registers, and stores it.
    __device__ void store_total(Place &turn, u32 row, u32 col, u32 consumer, Buffers &buffers) const {
        // -0 changes no sum.
        f32 total[SUMS];
#pragma unroll
        for (u32 index = 0; index < SUMS; index++) {
            total[index] = -0.0f;
        }
        if (output.is_accumulated) {
            output.load(total, row, col, buffers);
        }
        for (u32 first = 0; first < ring.stages();) {
            const u32 count = ring.stages_of_piece(first);
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
        Buffers &buffers = memory->output[consumer * WARPS_OF_WARPGROUP + warp];
        Place turn = {0, 0};
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
            ring.initialize(CONSUMERS * WARPS_OF_WARPGROUP);
            bulk::publish_barriers();
        }
        __syncthreads();
    }

    __device__ void run() const {
        initialize();
        const u32 warpgroup = number_of_warpgroup();
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
    using Stages = Ring<A, B, COLS>;
    u32 start;
    auto *memory = memory_after<Stages, Memory<Stages>>(dynamic_memory, start);
    const Stages ring = {a, b, steps, start, &memory->barriers, 0};
    const warpgroup::Output<COLS> output = {bias, out, type, is_accumulated != 0};
    Kernel<A, B, COLS>{ring, output, factor_type, memory}.run();
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
