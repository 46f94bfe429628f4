// Two warpgroups of a block that multiply in turns.
//
// A warpgroup has a whole tile of 128 rows: two instructions for each 16 steps, with two sets of sums. It begins with
// the stages of its tile when the other one has asked for the last of its products, so the tensor cores always have
// work, and the stages of the ring are awaited in their order: without that, a barrier of a stage could be a whole ring
// behind, where its parity is the same.
#pragma once

#include "warpgroup_registers.cuh"
#include "warpgroup_ring.cuh"

// The memory of a block after the stages.
template <typename Stages>
struct MemoryOfTurns {
    Buffers output[CONSUMERS * WARPS_OF_WARPGROUP];
    typename Stages::Barriers barriers;
    // Of each warpgroup: the other one has asked for all products of its turn.
    u64 turns[CONSUMERS];
};

template <Major A, Major B, u32 COLS>
struct KernelOfTurns {
    using Stages = Ring<A, B, COLS>;
    using Place = typename Stages::Place;
    static constexpr u32 HALVES = ROWS / ROWS_OF_WARPGROUP;
    static constexpr u32 SUMS = COLS / 2;
    using Output = warpgroup::Output<COLS, HALVES * SUMS>;
    using Sums = f32[HALVES][SUMS];

    Stages ring;
    Output output;
    FactorType factor_type;
    MemoryOfTurns<Stages> *memory;

    __device__ u32 turn_of(u32 consumer) const {
        return tensor_core::shared_address(&memory->turns[consumer]);
    }

    // Copies all stages of all pairs, each piece of the first tile before that of the second one: one thread.
    __device__ void produce() const {
        Place turn = {0, 1};
        for (Tiles<COLS> pair(output.out); pair.has_one(); pair.next(), pair.next()) {
            for (u32 first = 0; first < ring.stages();) {
                const u32 count = ring.stages_of_piece(first);
                Tiles<COLS> tile = pair;
#pragma unroll 1
                for (u32 consumer = 0; consumer < CONSUMERS && tile.has_one(); consumer++) {
                    u32 row;
                    u32 col;
                    tile.place(row, col);
                    ring.copy_stages(turn, row, col, first, count);
                    tile.next();
                }
                first += count;
            }
        }
    }

    // Starts the products of a stage. Those of the first one begin the sums.
    template <typename E, Stage STAGE>
    __device__ void multiply(Sums &sums, const Place &turn) const {
        const u64 upper = ring.left(turn, 0);
        const u64 lower = ring.left(turn, 1);
        const u64 b = ring.right(turn);
        ring.await(turn);
        warpgroup::begin();
#pragma unroll
        for (u32 block = 0; block < STEPS / 16; block++) {
            const u64 of_a = block * warpgroup::next_block(A);
            const u64 of_b = b + block * warpgroup::next_block(B);
            if (STAGE == Stage::FIRST && block == 0) {
                warpgroup::FirstProduct<E, A, B, COLS>::start(sums[0], upper + of_a, of_b);
                warpgroup::FirstProduct<E, A, B, COLS>::start(sums[1], lower + of_a, of_b);
            } else {
                warpgroup::Product<E, A, B, COLS>::add(sums[0], upper + of_a, of_b, 1);
                warpgroup::Product<E, A, B, COLS>::add(sums[1], lower + of_a, of_b, 1);
            }
        }
        warpgroup::end();
    }

    // Waits until the other warpgroup has asked for all products of its turn.
    __device__ void begin_turn(u32 consumer, u32 parity) const {
        bulk::wait(turn_of(consumer), parity);
    }

    // The other warpgroup may begin its turn.
    __device__ void end_turn(u32 consumer) const {
        if (threadIdx.x % 32 == 0) {
            bulk::arrive(turn_of(consumer ^ 1));
        }
    }

    // Sums the next `count` stages, of which there is one at least, and ends the turn before the last ones are summed.
    template <typename E>
    __device__ void sum_of(Sums &sums, Place &turn, u32 count, u32 consumer) const {
        multiply<E, Stage::FIRST>(sums, turn);
        u32 last = turn.stage;
        turn.next();
        for (u32 stage = 1; stage < count; stage++) {
            multiply<E, Stage::NEXT>(sums, turn);
            warpgroup::wait<1>();
            ring.release(last);
            last = turn.stage;
            turn.next();
        }
        end_turn(consumer);
        warpgroup::wait<0>();
        warpgroup::pin(sums[0]);
        warpgroup::pin(sums[1]);
        ring.release(last);
    }

    __device__ void sum(Sums &sums, Place &turn, u32 count, u32 consumer) const {
        switch (factor_type) {
        case FactorType::BF16:
            return sum_of<Bf16>(sums, turn, count, consumer);
        case FactorType::F16:
            return sum_of<F16>(sums, turn, count, consumer);
        }
    }

    // Stores the sums of a piece. The last one adds the bias; those after the first one are added to what is there.
    __device__ void store(const Sums &sums, u32 row, u32 col, u32 first, u32 count, Buffers &buffers) const {
        Output of_piece = output;
        of_piece.is_accumulated = output.is_accumulated || first > 0;
        of_piece.bias.start = first + count < ring.stages() ? nullptr : output.bias.start;
#pragma unroll
        for (u32 half = 0; half < HALVES; half++) {
            const u32 row_of_half = row + half * ROWS_OF_WARPGROUP;
            // Once for each half: a thread has no registers to keep them.
            u32 of_bias[Output::PAIRS];
            of_piece.load_bias(of_bias, row_of_half, col);
            of_piece.store(sums[half], row_of_half, col, buffers, of_bias);
        }
    }

    // Multiplies and stores one tile of each pair: a warpgroup. One without a tile ends its turns all the same.
    __device__ void consume(u32 consumer) const {
        const u32 warp = threadIdx.x % WARPGROUP / 32;
        Buffers &buffers = memory->output[consumer * WARPS_OF_WARPGROUP + warp];
        Place turn = {0, 0};
        u32 parity = consumer ^ 1;
        for (Tiles<COLS> pair(output.out); pair.has_one(); pair.next(), pair.next()) {
            Tiles<COLS> own = pair;
            if (consumer == 1) {
                own.next();
            }
            Tiles<COLS> second = pair;
            second.next();
            u32 row;
            u32 col;
            own.place(row, col);
            row += warp * WARP_ROWS;
            for (u32 first = 0; first < ring.stages();) {
                const u32 count = ring.stages_of_piece(first);
                if (consumer == 1) {
                    turn.skip(count);
                }
                begin_turn(consumer, parity);
                parity ^= 1;
                if (own.has_one()) {
                    Sums sums;
                    sum(sums, turn, count, consumer);
                    store(sums, row, col, first, count, buffers);
                } else {
                    end_turn(consumer);
                }
                if (consumer == 0 && second.has_one()) {
                    turn.skip(count);
                }
                first += count;
            }
        }
    }

    __device__ void initialize() const {
        if (threadIdx.x == 0) {
            ring.initialize(WARPS_OF_WARPGROUP);
            for (u32 consumer = 0; consumer < CONSUMERS; consumer++) {
                bulk::initialize_barrier(turn_of(consumer), WARPS_OF_WARPGROUP);
            }
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
__device__ inline void multiply_in_turns(const TensorMap &a, const TensorMap &b, AnyMatrix bias, AnyMatrix out,
                                         u32 steps, FactorType factor_type, OutputType type, u32 is_accumulated) {
    extern __shared__ __align__(16) u8 dynamic_memory[];
    using Stages = Ring<A, B, COLS>;
    u32 start;
    auto *memory = memory_after<Stages, MemoryOfTurns<Stages>>(dynamic_memory, start);
    const Stages ring = {a, b, steps, start, &memory->barriers};
    using Kernel = KernelOfTurns<A, B, COLS>;
    const typename Kernel::Output output = {bias, out, type, is_accumulated != 0};
    Kernel{ring, output, factor_type, memory}.run();
}
