// Products in blocks, as in `mat_mul_blocks.cu`, with the activation that follows, or its gradient, before a tile is
// stored: while a block of threads computes them, another one of the same multiprocessor multiplies. The sums of a tile
// are rounded as the product stores them and pass through shared memory; from there a thread takes eight neighbours of
// a row at a time. Outputs have the type of the factors, and rows at multiples of 16 bytes. The bits are
// those of the product and of `activation.cu`, one after the other.
#include "product_activation.cuh"
#include "product_blocks.cuh"

// The sums of a tile, rounded in shared memory.
template <typename E, u32 SIDE>
struct RoundedTile {
    // Rows of a warp's fragment are in different banks.
    static constexpr u32 PITCH = SIDE + IN_CHUNK;
    static constexpr u32 BYTES = SIDE * PITCH * sizeof(E);

    // A warp rounds its sums, with the bias from column `first_col` on.
    __device__ static void round(const Sums<SIDE> &sums, const BlockTile &tile, AnyMatrix bias, u64 first_col) {
        using WarpSums = Sums<SIDE>;
        const u32 own = threadIdx.x % 32;
        E *to = (E *)tile.memory + (tile.warp_row + own / 4) * PITCH + tile.warp_col + own % 4 * 2;
#pragma unroll
        for (u32 col = 0; col < WarpSums::COL_TILES; col++) {
            const u64 col_of_bias = first_col + col * 8 + own % 4 * 2;
            f32 of_bias[2] = {};
            if (col_of_bias < bias.len()) {
                load(of_bias, (const E *)bias.start + col_of_bias);
            }
#pragma unroll
            for (u32 index = 0; index < WarpSums::ROW_TILES * 2; index++) {
                const f32(&four)[4] = sums.values[index / 2][col];
                f32 pair[2] = {four[index % 2 * 2], four[index % 2 * 2 + 1]};
                if (bias.is_there()) {
                    pair[0] = pair[0] + of_bias[0];
                    pair[1] = pair[1] + of_bias[1];
                }
                *(u32 *)(to + index * 8 * PITCH + col * 8) = tensor_core::packed<E>(pair[0], pair[1]);
            }
        }
    }

    __device__ static uint4 chunk(const BlockTile &tile, u32 row, u32 col) {
        return *(const uint4 *)((const E *)tile.memory + row * PITCH + col);
    }
};

// A chunk that a thread takes of a tile of `COLS` columns, in one of its rounds.
template <u32 SIDE, u32 COLS>
struct OwnChunk {
    static constexpr u32 CHUNKS = COLS / IN_CHUNK;
    static constexpr u32 ROUNDS = SIDE * CHUNKS / threads_of(SIDE);

    // Of the tile.
    u32 own_row;
    u32 own_col;
    // Of the output.
    u64 row;
    u64 col;

    __device__ static OwnChunk of(const BlockTile &tile, u32 round) {
        const u32 number = round * threads_of(SIDE) + threadIdx.x;
        const u32 own_row = number / CHUNKS;
        const u32 own_col = number % CHUNKS * IN_CHUNK;
        return {own_row, own_col, tile.first_row + own_row, tile.first_col + own_col};
    }

    // Whether a matrix has it.
    __device__ bool is_in(const AnyMatrix &matrix) const {
        return row < matrix.rows && col < matrix.cols;
    }
};

// `x = a b^T + bias` and `y = f(x)`
template <typename E, u32 SIDE>
struct ActivationOutput {
    using Rounded = RoundedTile<E, SIDE>;
    using Own = OwnChunk<SIDE, SIDE>;
    static constexpr u32 COLS = SIDE;
    static constexpr u32 BYTES = Rounded::BYTES;
    static constexpr Lanes LANES = Lanes::TOGETHER;

    AnyMatrix bias;
    AnyMatrix x;
    AnyMatrix y;
    CurveNumber curve;

    __device__ u64 second_col(u64) const {
        return 0;
    }

    template <typename Curve, typename>
    __device__ void finish(const BlockTile &tile) const {
#pragma unroll 1
        for (u32 round = 0; round < Own::ROUNDS; round++) {
            const Own own = Own::of(tile, round);
            if (own.is_in(y)) {
                const uint4 chunk = Rounded::chunk(tile, own.own_row, own.own_col);
                f32 values[IN_CHUNK];
                widen_chunk<E>(values, chunk);
                activation::apply<Curve>(values);
                *chunk_of(x, own.row, own.col) = chunk;
                *chunk_of(y, own.row, own.col) = round_chunk<E>(values);
            }
        }
    }

    __device__ void store(const Sums<SIDE> &sums, const BlockTile &tile, bool) const {
        __syncthreads();
        Rounded::round(sums, tile, bias, (u64)tile.first_col + tile.warp_col);
        __syncthreads();
        finish_plain<E>(*this, curve, tile);
    }
};

// `x = a b^T + bias`, which is gate | up, and `y = f(gate) * up`. Half of a tile's columns are gates.
template <typename E, u32 SIDE>
struct GatedOutput {
    using Rounded = RoundedTile<E, SIDE>;
    using Own = OwnChunk<SIDE, SIDE / 2>;
    static constexpr u32 COLS = SIDE / 2;
    static constexpr u32 BYTES = Rounded::BYTES;
    static constexpr Lanes LANES = Lanes::IN_HALVES;

    AnyMatrix bias;
    AnyMatrix x;
    AnyMatrix y;
    CurveNumber curve;

    __device__ u64 second_col(u64 first_col) const {
        return y.cols + first_col;
    }

    template <typename Curve, typename>
    __device__ void finish(const BlockTile &tile) const {
#pragma unroll 1
        for (u32 round = 0; round < Own::ROUNDS; round++) {
            const Own own = Own::of(tile, round);
            if (own.is_in(y)) {
                const uint4 gate = Rounded::chunk(tile, own.own_row, own.own_col);
                const uint4 up = Rounded::chunk(tile, own.own_row, COLS + own.own_col);
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

    __device__ void store(const Sums<SIDE> &sums, const BlockTile &tile, bool) const {
        const u64 first_col = tile.warp_col < COLS ? tile.first_col : y.cols + tile.first_col - COLS;
        __syncthreads();
        Rounded::round(sums, tile, bias, first_col + tile.warp_col);
        __syncthreads();
        finish_gated<E>(*this, curve, tile);
    }
};

// Chunks of a matrix that a thread needs in addition to the sums, loaded a round before they are used.
template <typename Own>
struct LoadedAhead {
    AnyMatrix matrix;
    // Columns after that of the sums.
    u64 distance;
    uint4 next;

    __device__ LoadedAhead(const AnyMatrix &matrix, u64 distance, const BlockTile &tile, const AnyMatrix &sums)
        : matrix(matrix), distance(distance) {
        next = of_round(0, tile, sums);
    }

    __device__ uint4 of_round(u32 round, const BlockTile &tile, const AnyMatrix &sums) const {
        const Own own = Own::of(tile, round);
        const bool is_there = round < Own::ROUNDS && own.is_in(sums);
        return is_there ? *chunk_of(matrix, own.row, distance + own.col) : uint4{};
    }

    // Takes the chunk of a round, and loads that of the one after it.
    __device__ uint4 take(u32 round, const BlockTile &tile, const AnyMatrix &sums) {
        const uint4 taken = next;
        next = of_round(round + 1, tile, sums);
        return taken;
    }
};

// `dx = f'(x) * (a b)` and `y = f(x)`. The product, which is the gradient of `y`, is stored nowhere.
template <typename E, u32 SIDE>
struct GradientOutput {
    using Rounded = RoundedTile<E, SIDE>;
    using Own = OwnChunk<SIDE, SIDE>;
    using Ahead = LoadedAhead<Own>;
    static constexpr u32 COLS = SIDE;
    static constexpr u32 BYTES = Rounded::BYTES;
    static constexpr Lanes LANES = Lanes::TOGETHER;

    AnyMatrix x;
    AnyMatrix dx;
    AnyMatrix y;
    CurveNumber curve;

    __device__ u64 second_col(u64) const {
        return 0;
    }

    template <typename Curve, typename>
    __device__ void finish(const BlockTile &tile, Ahead &numbers) const {
#pragma unroll 1
        for (u32 round = 0; round < Own::ROUNDS; round++) {
            const Own own = Own::of(tile, round);
            f32 values[IN_CHUNK];
            f32 gradients[IN_CHUNK];
            widen_chunk<E>(values, numbers.take(round, tile, y));
            widen_chunk<E>(gradients, Rounded::chunk(tile, own.own_row, own.own_col));
            activation::differentiate<Curve>(values, gradients);
            if (own.is_in(y)) {
                *chunk_of(y, own.row, own.col) = round_chunk<E>(values);
                *chunk_of(dx, own.row, own.col) = round_chunk<E>(gradients);
            }
        }
    }

    __device__ void store(const Sums<SIDE> &sums, const BlockTile &tile, bool) const {
        Ahead numbers(x, 0, tile, y);
        __syncthreads();
        Rounded::round(sums, tile, {}, 0);
        __syncthreads();
        finish_plain<E>(*this, curve, tile, numbers);
    }
};

// The gradients of `x`, which is gate | up, and `y = f(gate) * up`, where `a b` is the gradient of `y`.
template <typename E, u32 SIDE>
struct GatedGradientOutput {
    using Rounded = RoundedTile<E, SIDE>;
    using Own = OwnChunk<SIDE, SIDE>;
    using Ahead = LoadedAhead<Own>;
    static constexpr u32 COLS = SIDE;
    static constexpr u32 BYTES = Rounded::BYTES;
    static constexpr Lanes LANES = Lanes::TOGETHER;

    AnyMatrix x;
    AnyMatrix dx;
    AnyMatrix y;
    CurveNumber curve;

    __device__ u64 second_col(u64) const {
        return 0;
    }

    template <typename Curve, typename>
    __device__ void finish(const BlockTile &tile, Ahead &gate, Ahead &up) const {
#pragma unroll 1
        for (u32 round = 0; round < Own::ROUNDS; round++) {
            const Own own = Own::of(tile, round);
            f32 gates[IN_CHUNK];
            f32 ups[IN_CHUNK];
            f32 gradients[IN_CHUNK];
            widen_chunk<E>(gates, gate.take(round, tile, y));
            widen_chunk<E>(ups, up.take(round, tile, y));
            widen_chunk<E>(gradients, Rounded::chunk(tile, own.own_row, own.own_col));
            activation::differentiate_gated<Curve>(gates, ups, gradients);
            if (own.is_in(y)) {
                *chunk_of(y, own.row, own.col) = round_chunk<E>(ups);
                *chunk_of(dx, own.row, own.col) = round_chunk<E>(gates);
                *chunk_of(dx, own.row, y.cols + own.col) = round_chunk<E>(gradients);
            }
        }
    }

    __device__ void store(const Sums<SIDE> &sums, const BlockTile &tile, bool) const {
        Ahead gate(x, 0, tile, y);
        Ahead up(x, y.cols, tile, y);
        __syncthreads();
        Rounded::round(sums, tile, {}, 0);
        __syncthreads();
        finish_gated<E>(*this, curve, tile, gate, up);
    }
};

#define FUSED(NAME, FORM, E, SIDE)                                                                                     \
    extern "C" __global__ void __launch_bounds__(threads_of(SIDE))                                                     \
        NAME(AnyMatrix a, Loading a_loading, AnyMatrix b, Loading b_loading, AnyMatrix bias, AnyMatrix x, AnyMatrix y, \
             CurveNumber curve) {                                                                                      \
        const FORM<E, SIDE> output = {bias, x, y, curve};                                                              \
        multiply<Along::STEPS_IN_ROWS, Along::STEPS_IN_ROWS, E, SIDE>({a, a_loading}, {b, b_loading}, output);         \
    }

#define FUSED_GRADIENT(NAME, FORM, E, SIDE)                                                                            \
    extern "C" __global__ void __launch_bounds__(threads_of(SIDE))                                                     \
        NAME(AnyMatrix a, Loading a_loading, AnyMatrix b, Loading b_loading, AnyMatrix x, AnyMatrix dx, AnyMatrix y,   \
             CurveNumber curve) {                                                                                      \
        const FORM<E, SIDE> output = {x, dx, y, curve};                                                                \
        multiply<Along::STEPS_IN_ROWS, Along::LANES_IN_ROWS, E, SIDE>({a, a_loading}, {b, b_loading}, output);         \
    }

FUSED(mat_mul_blocks_activation_128_bf16, ActivationOutput, Bf16, 128)
FUSED(mat_mul_blocks_activation_64_bf16, ActivationOutput, Bf16, 64)
FUSED(mat_mul_blocks_activation_128_f16, ActivationOutput, F16, 128)
FUSED(mat_mul_blocks_activation_64_f16, ActivationOutput, F16, 64)
FUSED(mat_mul_blocks_gated_128_bf16, GatedOutput, Bf16, 128)
FUSED(mat_mul_blocks_gated_64_bf16, GatedOutput, Bf16, 64)
FUSED(mat_mul_blocks_gated_128_f16, GatedOutput, F16, 128)
FUSED(mat_mul_blocks_gated_64_f16, GatedOutput, F16, 64)
FUSED_GRADIENT(mat_mul_blocks_activation_backward_128_bf16, GradientOutput, Bf16, 128)
FUSED_GRADIENT(mat_mul_blocks_activation_backward_64_bf16, GradientOutput, Bf16, 64)
FUSED_GRADIENT(mat_mul_blocks_activation_backward_128_f16, GradientOutput, F16, 128)
FUSED_GRADIENT(mat_mul_blocks_activation_backward_64_f16, GradientOutput, F16, 64)
FUSED_GRADIENT(mat_mul_blocks_gated_backward_128_bf16, GatedGradientOutput, Bf16, 128)
FUSED_GRADIENT(mat_mul_blocks_gated_backward_64_bf16, GatedGradientOutput, Bf16, 64)
FUSED_GRADIENT(mat_mul_blocks_gated_backward_128_f16, GatedGradientOutput, F16, 128)
FUSED_GRADIENT(mat_mul_blocks_gated_backward_64_f16, GatedGradientOutput, F16, 64)
