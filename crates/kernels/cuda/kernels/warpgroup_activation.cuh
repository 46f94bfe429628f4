// Outputs of products that an activation, or its gradient, follows: what a warp has of a tile is rounded as the product
// stores it, and passes through shared memory; from there a lane takes eight neighbours of a row at a time, loads what
// belongs to them, and stores all results. The bits are those of the product and of `activation.cu`, one after the
// other.
#pragma once

#include "product_activation.cuh"
#include "warpgroup_turns.cuh"

// Columns of a part of bf16 or fp16 numbers.
constexpr u32 NARROW_PART = warpgroup::PART_BYTES / 2;
// Rows that the lanes of a warp take at once.
constexpr u32 ROWS_AT_ONCE = 32 / warpgroup::CHUNKS;

// The sums of a warp in a tile of 128 columns, rounded in shared memory.
struct RoundedTile {
    static constexpr u32 COLS = 2 * NARROW_PART;
    using Output = warpgroup::Output<COLS, HALVES * COLS / 2>;
    static constexpr u32 PAIRS_OF_PART = Output::PAIRS / 2;

    AnyMatrix bias;

    // Loads the pairs of the bias of a part whose columns begin at `col`.
    template <u32 PART>
    __device__ void load_bias(u32 (&pairs)[Output::PAIRS], u32 col) const {
        const u32 own_col = col + warpgroup::number_of_lane() % 4 * 2;
#pragma unroll
        for (u32 pair = 0; pair < PAIRS_OF_PART; pair++) {
            const bool is_there = own_col + pair * 8 < bias.cols;
            pairs[PART * PAIRS_OF_PART + pair] = is_there ? *((const u32 *)bias.start + (own_col + pair * 8) / 2) : 0;
        }
    }

    // Rounds both parts of the sums, with the bias: that of the second part is `distance` columns after that of the
    // first one.
    template <typename E>
    __device__ void round(const f32 (&sums)[COLS / 2], u32 col, u32 distance, Buffers &buffers) const {
        const Output output = {bias, {}, OutputType::BF16, false};
        __syncwarp();
        u32 of_bias[Output::PAIRS];
        if (bias.is_there()) {
            load_bias<0>(of_bias, col);
            load_bias<1>(of_bias, col + distance);
            output.template pass<warpgroup::Added::BIAS, E>(sums, 0, buffers.bytes[0], nullptr, of_bias);
            output.template pass<warpgroup::Added::BIAS, E>(sums, 1, buffers.bytes[1], nullptr, of_bias);
        } else {
            output.template pass<warpgroup::Added::NOTHING, E>(sums, 0, buffers.bytes[0], nullptr, of_bias);
            output.template pass<warpgroup::Added::NOTHING, E>(sums, 1, buffers.bytes[1], nullptr, of_bias);
        }
        __syncwarp();
    }
};

// A chunk that a lane takes of a warp's rounded sums, in one of its rounds.
struct Chunk {
    static constexpr u32 ROUNDS_OF_PART = warpgroup::WARP_ROWS / ROWS_AT_ONCE;

    u32 part;
    // Of the part.
    u32 own_row;
    u32 number;
    // Of the output, where parts are next to each other.
    u32 row;
    u32 col;

    __device__ static Chunk of(u32 round, u32 first_row, u32 first_col) {
        const u32 lane = warpgroup::number_of_lane();
        const u32 part = round / ROUNDS_OF_PART;
        const u32 own_row = round % ROUNDS_OF_PART * ROWS_AT_ONCE + lane / warpgroup::CHUNKS;
        const u32 number = lane % warpgroup::CHUNKS;
        return {part, own_row, number, first_row + own_row, first_col + part * NARROW_PART + number * IN_CHUNK};
    }

    // Whether a matrix has it.
    __device__ bool is_in(const AnyMatrix &matrix) const {
        return row < matrix.rows && col < matrix.cols;
    }

    // The chunk of a part of the rounded sums in its place.
    template <typename E>
    __device__ uint4 of_part(const Buffers &buffers, u32 of) const {
        return *(const uint4 *)(buffers.bytes[of] + warpgroup::place_of<E>(own_row, number));
    }
};

// `x = a b^T + bias` and `y = f(x)`
struct ActivationOutput {
    static constexpr u32 COLS = RoundedTile::COLS;

    RoundedTile rounded;
    AnyMatrix x;
    AnyMatrix y;
    FactorType type;
    CurveNumber curve;

    __device__ AnyMatrix tiled() const {
        return y;
    }

    template <typename Curve, typename E>
    __device__ void finish(const f32 (&sums)[COLS / 2], u32 first_row, u32 first_col, Buffers &buffers) const {
        rounded.round<E>(sums, first_col, NARROW_PART, buffers);
#pragma unroll 1
        for (u32 round = 0; round < 2 * Chunk::ROUNDS_OF_PART; round++) {
            const Chunk own = Chunk::of(round, first_row, first_col);
            if (own.is_in(y)) {
                const uint4 chunk = own.of_part<E>(buffers, own.part);
                f32 values[IN_CHUNK];
                widen_chunk<E>(values, chunk);
                activation::apply<Curve>(values);
                *chunk_of(x, own.row, own.col) = chunk;
                *chunk_of(y, own.row, own.col) = round_chunk<E>(values);
            }
        }
    }

    __device__ void store(const f32 (&sums)[COLS / 2], u32 row, u32 col, const Piece &, Buffers &buffers) const {
        switch (type) {
        case FactorType::BF16:
            return finish_plain<Bf16>(*this, curve, sums, row, col, buffers);
        case FactorType::F16:
            return finish_plain<F16>(*this, curve, sums, row, col, buffers);
        }
    }
};

// `x = a b^T + bias`, which is gate | up, and `y = f(gate) * up`. A tile has 64 columns of both.
struct GatedOutput {
    static constexpr u32 COLS = NARROW_PART;

    RoundedTile rounded;
    AnyMatrix x;
    AnyMatrix y;
    FactorType type;
    CurveNumber curve;

    __device__ AnyMatrix tiled() const {
        return y;
    }

    template <typename Curve, typename E>
    __device__ void finish(const f32 (&sums)[COLS], u32 first_row, u32 first_col, Buffers &buffers) const {
        rounded.round<E>(sums, first_col, (u32)y.cols, buffers);
#pragma unroll 1
        for (u32 round = 0; round < Chunk::ROUNDS_OF_PART; round++) {
            const Chunk own = Chunk::of(round, first_row, first_col);
            if (own.is_in(y)) {
                const uint4 gate = own.of_part<E>(buffers, 0);
                const uint4 up = own.of_part<E>(buffers, 1);
                f32 gates[IN_CHUNK];
                f32 ups[IN_CHUNK];
                widen_chunk<E>(gates, gate);
                widen_chunk<E>(ups, up);
                activation::apply_gated<Curve>(gates, ups);
                *chunk_of(x, own.row, own.col) = gate;
                *chunk_of(x, own.row, y.cols + own.col) = up;
                *chunk_of(y, own.row, own.col) = round_chunk<E>(gates);
            }
        }
    }

    __device__ void store(const f32 (&sums)[COLS], u32 row, u32 col, const Piece &, Buffers &buffers) const {
        switch (type) {
        case FactorType::BF16:
            return finish_gated<Bf16>(*this, curve, sums, row, col, buffers);
        case FactorType::F16:
            return finish_gated<F16>(*this, curve, sums, row, col, buffers);
        }
    }
};
