// Outputs of products that the gradient of an activation follows: see `warpgroup_activation.cuh`. The product, which is
// the gradient of the activation's values, is stored nowhere.
#pragma once

#include "warpgroup_activation.cuh"

// Chunks of a matrix that a lane needs in addition to the sums, loaded two rounds before they are used.
struct LoadedAhead {
    static constexpr u32 ROUNDS = 2 * Chunk::ROUNDS_OF_PART;

    AnyMatrix matrix;
    // Columns after that of the sums.
    u64 distance;
    uint4 next;
    uint4 second;

    __device__ LoadedAhead(const AnyMatrix &matrix, u64 distance, u32 first_row, u32 first_col, const AnyMatrix &sums)
        : matrix(matrix), distance(distance) {
        next = of_round(0, first_row, first_col, sums);
        second = of_round(1, first_row, first_col, sums);
    }

    __device__ uint4 of_round(u32 round, u32 first_row, u32 first_col, const AnyMatrix &sums) const {
        const Chunk own = Chunk::of(round, first_row, first_col);
        return round < ROUNDS && own.is_in(sums) ? *chunk_of(matrix, own.row, distance + own.col) : uint4{};
    }

    // Takes the chunk of a round, and loads that of the second one after it.
    __device__ uint4 take(u32 round, u32 first_row, u32 first_col, const AnyMatrix &sums) {
        const uint4 taken = next;
        next = second;
        second = of_round(round + 2, first_row, first_col, sums);
        return taken;
    }
};

// `dx = f'(x) * (a b)` and `y = f(x)`
struct GradientOutput {
    static constexpr u32 COLS = RoundedTile::COLS;

    RoundedTile rounded;
    AnyMatrix x;
    AnyMatrix dx;
    AnyMatrix y;
    FactorType type;
    CurveNumber curve;

    __device__ AnyMatrix tiled() const {
        return y;
    }

    template <typename Curve, typename E>
    __device__ void finish(const f32 (&sums)[COLS / 2], u32 first_row, u32 first_col, Buffers &buffers) const {
        LoadedAhead numbers(x, 0, first_row, first_col, y);
        rounded.round<E>(sums, first_col, NARROW_PART, buffers);
#pragma unroll 1
        for (u32 round = 0; round < LoadedAhead::ROUNDS; round++) {
            const Chunk own = Chunk::of(round, first_row, first_col);
            f32 values[IN_CHUNK];
            f32 gradients[IN_CHUNK];
            widen_chunk<E>(values, numbers.take(round, first_row, first_col, y));
            widen_chunk<E>(gradients, own.of_part<E>(buffers, own.part));
            activation::differentiate<Curve>(values, gradients);
            if (own.is_in(y)) {
                *chunk_of(y, own.row, own.col) = round_chunk<E>(values);
                *chunk_of(dx, own.row, own.col) = round_chunk<E>(gradients);
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

// The gradients of `x`, which is gate | up, and `y = f(gate) * up`, where `a b` is the gradient of `y`.
struct GatedGradientOutput {
    static constexpr u32 COLS = RoundedTile::COLS;

    RoundedTile rounded;
    AnyMatrix x;
    AnyMatrix dx;
    AnyMatrix y;
    FactorType type;
    CurveNumber curve;

    __device__ AnyMatrix tiled() const {
        return y;
    }

    template <typename Curve, typename E>
    __device__ void finish(const f32 (&sums)[COLS / 2], u32 first_row, u32 first_col, Buffers &buffers) const {
        LoadedAhead gate(x, 0, first_row, first_col, y);
        LoadedAhead up(x, y.cols, first_row, first_col, y);
        rounded.round<E>(sums, first_col, NARROW_PART, buffers);
#pragma unroll 1
        for (u32 round = 0; round < LoadedAhead::ROUNDS; round++) {
            const Chunk own = Chunk::of(round, first_row, first_col);
            f32 gates[IN_CHUNK];
            f32 ups[IN_CHUNK];
            f32 gradients[IN_CHUNK];
            widen_chunk<E>(gates, gate.take(round, first_row, first_col, y));
            widen_chunk<E>(ups, up.take(round, first_row, first_col, y));
            widen_chunk<E>(gradients, own.of_part<E>(buffers, own.part));
            activation::differentiate_gated<Curve>(gates, ups, gradients);
            if (own.is_in(y)) {
                *chunk_of(y, own.row, own.col) = round_chunk<E>(ups);
                *chunk_of(dx, own.row, own.col) = round_chunk<E>(gates);
                *chunk_of(dx, own.row, y.cols + own.col) = round_chunk<E>(gradients);
            }
        }
    }

    __device__ void store(const f32 (&sums)[COLS / 2], u32 row, u32 col, const Piece &, Buffers &buffers) const {
        switch (type) {
        case FactorType::BF16:
            return finish_gated<Bf16>(*this, curve, sums, row, col, buffers);
        case FactorType::F16:
            return finish_gated<F16>(*this, curve, sums, row, col, buffers);
        }
    }
};
