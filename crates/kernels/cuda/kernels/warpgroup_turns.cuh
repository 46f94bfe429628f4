// Two warpgroups of a block that multiply in turns.
//
// A warpgroup has a whole tile of 128 rows: two instructions for each 16 steps, with two sets of sums. It begins with
// the stages of its tile when the other one has asked for the last of its products, so the tensor cores always have
// work, and the stages of the ring are awaited in their order: without that, a barrier of a stage could be in its turn
// before the last one, whose parity is the same.
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

// Halves of a tile's rows.
constexpr u32 HALVES = ROWS / ROWS_OF_WARPGROUP;

// A piece of a tile's sums.
struct Piece {
    u32 first;
    u32 count;
    u32 stages;

    __device__ bool is_first() const {
        return first == 0;
    }

    __device__ bool is_last() const {
        return first + count == stages;
    }
};

// Stores tiles as they are.
template <u32 OF_TILE>
struct PlainOutput {
    static constexpr u32 COLS = OF_TILE;
    using Output = warpgroup::Output<COLS, HALVES * COLS / 2>;

    Output output;

    // Its columns are those of the tiles.
    __device__ AnyMatrix tiled() const {
        return output.out;
    }

    // Stores a warp's sums of a piece. The last one adds the bias; those after the first one are added to what is
    // there.
    __device__ void store(const f32 (&sums)[COLS / 2], u32 row, u32 col, const Piece &piece, Buffers &buffers) const {
        Output of_piece = output;
        of_piece.is_accumulated = output.is_accumulated || !piece.is_first();
        of_piece.bias.start = piece.is_last() ? output.bias.start : nullptr;
        // For each half of a tile: a thread has no registers to keep them.
        u32 of_bias[Output::PAIRS];
        of_piece.load_bias(of_bias, row, col);
        of_piece.store(sums, row, col, buffers, of_bias);
    }
};

template <typename Stages, typename Output>
struct KernelOfTurns {
    using Place = typename Stages::Place;
    using TilesOf = Tiles<Output::COLS>;
    static constexpr Major A = Stages::A;
    static constexpr Major B = Stages::B;
    static constexpr u32 COLS = Stages::COLS;
    using Sums = f32[HALVES][COLS / 2];

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
        for (TilesOf pair(output.tiled()); pair.has_one(); pair.next(), pair.next()) {
            for (u32 first = 0; first < ring.stages();) {
                const u32 count = ring.stages_of_piece(first);
                TilesOf tile = pair;
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

    // Multiplies and stores one tile of each pair: a warpgroup. One without a tile ends its turns all the same.
    __device__ void consume(u32 consumer) const {
        const u32 warp = threadIdx.x % WARPGROUP / 32;
        Buffers &buffers = memory->output[consumer * WARPS_OF_WARPGROUP + warp];
        Place turn = {0, 0};
        u32 parity = consumer ^ 1;
        for (TilesOf pair(output.tiled()); pair.has_one(); pair.next(), pair.next()) {
            TilesOf own = pair;
            if (consumer == 1) {
                own.next();
            }
            TilesOf second = pair;
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
                    const Piece piece = {first, count, ring.stages()};
#pragma unroll
                    for (u32 half = 0; half < HALVES; half++) {
                        output.store(sums[half], row + half * ROWS_OF_WARPGROUP, col, piece, buffers);
                    }
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

// Multiplies all tiles of a block. The lanes of the right factor in a tile are together, or at this distance in halves.
template <typename Stages, typename Output>
__device__ inline void multiply_in_turns(const TensorMap &a, const TensorMap &b, u32 steps, u32 distance,
                                         FactorType factor_type, const Output &output) {
    extern __shared__ __align__(16) u8 dynamic_memory[];
    u32 start;
    auto *memory = memory_after<Stages, MemoryOfTurns<Stages>>(dynamic_memory, start);
    const Stages ring = {a, b, steps, start, &memory->barriers, distance};
    KernelOfTurns<Stages, Output>{ring, output, factor_type, memory}.run();
}
