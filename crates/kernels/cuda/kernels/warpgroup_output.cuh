// The output of a product by warpgroups: each warp stores 16 rows of a tile.
//
// Sums pass through shared memory, from where eight lanes that are next to each other take the 128 bytes of a row and
// store 16 bytes each. Rows of 128 bytes are a part of the tile's columns: 32 of single precision, or 64 narrow ones.
#pragma once

#include "product_output.cuh"

namespace warpgroup {

constexpr u32 PART_BYTES = 128;
constexpr u32 WARP_ROWS = 16;
// Of a row of a part.
constexpr u32 CHUNK_BYTES = 16;
constexpr u32 CHUNKS = PART_BYTES / CHUNK_BYTES;
// Rows of a part that a lane takes a chunk of.
constexpr u32 OWN_ROWS = WARP_ROWS * CHUNKS / 32;

// The terms that are added to sums before they are stored: none, the bias, or what the output has and then the bias, if
// there is one.
enum class Added { NOTHING, BIAS, OUTPUT };

// The memory through which the parts of a warp pass, in turns.
struct alignas(CHUNK_BYTES) PartBuffers {
    u8 bytes[2][WARP_ROWS * PART_BYTES];
};

// The number of this lane, as an instruction that stays where it is: places in memory that follow from it have no
// registers while sums are multiplied.
__device__ inline u32 number_of_lane() {
    u32 lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

// The bytes before a chunk of a part's row. Rows have their chunks in other orders, so that lanes that write fragments
// together write to different banks.
template <typename Out>
__device__ inline u32 place_of(u32 row, u32 chunk) {
    return row * PART_BYTES + (chunk ^ row * (sizeof(Out) / 2) % CHUNKS) * CHUNK_BYTES;
}

// Adds two bf16 or fp16 values to a pair, before it.
template <typename Narrow>
__device__ inline void add_pair(f32 (&pair)[2], u32 narrow) {
    pair[0] = widen(Narrow{(u16)narrow}) + pair[0];
    pair[1] = widen(Narrow{(u16)(narrow >> 16)}) + pair[1];
}

// The output of tiles of `COLS` columns. A thread has `COLS` / 2 sums of them, as `Product` places them, and holds
// `HELD` sums in all.
template <u32 COLS, u32 HELD = COLS / 2>
struct Output {
    static constexpr u32 SUMS = COLS / 2;
    // Pairs of bf16 or fp16 values of a row that a thread has.
    static constexpr u32 PAIRS = COLS / 8;

    AnyMatrix bias;
    AnyMatrix out;
    OutputType type;
    bool is_accumulated;

    // Bytes of an element.
    __device__ u32 size() const {
        return type == OutputType::SINGLE ? 4 : 2;
    }

    // Whether chunks of 16 bytes of the output, and of the bias, can be accessed at once, and a warp's rows and all
    // parts of its columns that begin are there.
    __device__ bool is_wide(u32 first_row, u32 first_col) const {
        const u64 cols_of_part = PART_BYTES / size();
        const bool begins = ((u64)out.start | out.stride * size() | (u64)bias.start) % CHUNK_BYTES == 0;
        if (COLS % cols_of_part != 0) {
            return false;
        }
        const bool ends = (u64)first_col + COLS <= out.cols || out.cols % cols_of_part == 0;
        return begins && ends && (u64)first_row + WARP_ROWS <= out.rows;
    }

    // A warp writes its sums of a part to its memory.
    __device__ static void pass(const f32 (&sums)[SUMS], u32 part, u8 *buffer) {
        const u32 lane = number_of_lane();
#pragma unroll
        for (u32 pair = 0; pair < CHUNKS / 2; pair++) {
            const u32 sum = (part * CHUNKS / 2 + pair) * 4;
            u8 *to = buffer + place_of<f32>(lane / 4, pair * 2 + lane % 4 / 2) + lane % 2 * 8;
            *(float2 *)to = {sums[sum], sums[sum + 1]};
            *(float2 *)(to + 8 * PART_BYTES) = {sums[sum + 2], sums[sum + 3]};
        }
    }

    // The same as bf16 or fp16 values, after what the output has at `from`, and the bias, is added.
    template <Added ADDED, typename Narrow>
    __device__ void pass(const f32 (&sums)[SUMS], u32 part, u8 *buffer, const Narrow *from,
                         const u32 (&of_bias)[PAIRS]) const {
        const u32 lane = number_of_lane();
        u32 earlier[CHUNKS][2];
        if constexpr (ADDED == Added::OUTPUT) {
#pragma unroll
            for (u32 chunk = 0; chunk < CHUNKS; chunk++) {
                earlier[chunk][0] = *(const u32 *)(from + chunk * 8);
                earlier[chunk][1] = *(const u32 *)(from + 8 * out.stride + chunk * 8);
            }
        }
#pragma unroll
        for (u32 chunk = 0; chunk < CHUNKS; chunk++) {
            u8 *to = buffer + place_of<Narrow>(lane / 4, chunk) + lane % 4 * 4;
#pragma unroll
            for (u32 half = 0; half < 2; half++) {
                const u32 sum = (part * CHUNKS + chunk) * 4 + half * 2;
                f32 pair[2] = {sums[sum], sums[sum + 1]};
                if constexpr (ADDED == Added::OUTPUT) {
                    add_pair<Narrow>(pair, earlier[chunk][half]);
                    if (bias.is_there()) {
                        add_pair<Narrow>(pair, of_bias[part * CHUNKS + chunk]);
                    }
                }
                if constexpr (ADDED == Added::BIAS) {
                    add_pair<Narrow>(pair, of_bias[part * CHUNKS + chunk]);
                }
                *(u32 *)(to + half * 8 * PART_BYTES) = tensor_core::packed<Narrow>(pair[0], pair[1]);
            }
        }
    }

    // A warp takes its sums of a part from its memory.
    __device__ static void take_sums(f32 (&sums)[SUMS], u32 part, const u8 *buffer) {
        const u32 lane = number_of_lane();
#pragma unroll
        for (u32 pair = 0; pair < CHUNKS / 2; pair++) {
            const u32 sum = (part * CHUNKS / 2 + pair) * 4;
            const u8 *from = buffer + place_of<f32>(lane / 4, pair * 2 + lane % 4 / 2) + lane % 2 * 8;
            const float2 upper = *(const float2 *)from;
            const float2 lower = *(const float2 *)(from + 8 * PART_BYTES);
            sums[sum] = upper.x;
            sums[sum + 1] = upper.y;
            sums[sum + 2] = lower.x;
            sums[sum + 3] = lower.y;
        }
    }

    // A lane's chunks of a part.
    template <typename Out>
    __device__ static void take(uint4 (&chunks)[OWN_ROWS], const u8 *buffer) {
        const u32 lane = number_of_lane();
#pragma unroll
        for (u32 own = 0; own < OWN_ROWS; own++) {
            chunks[own] = *(const uint4 *)(buffer + place_of<Out>(lane / CHUNKS + own * 4, lane % CHUNKS));
        }
    }

    // Stores bf16 or fp16 values.
    template <Added ADDED, typename Narrow>
    __device__ void store_narrow(const f32 (&sums)[SUMS], u32 first_row, u32 first_col, PartBuffers &buffers,
                                 const u32 (&of_bias)[PAIRS]) const {
        constexpr u32 PART = PART_BYTES / sizeof(Narrow);
        constexpr u32 PARTS = COLS / PART;
        const u32 lane = number_of_lane();
        const u32 parts = out.cols - first_col < COLS ? (u32)(out.cols - first_col) / PART : PARTS;
        const Narrow *from = (const Narrow *)out.start + (first_row + lane / 4) * out.stride + first_col + lane % 4 * 2;
        Narrow *to = (Narrow *)out.start + (first_row + lane / CHUNKS) * out.stride + first_col + lane % CHUNKS * 8;
        pass<ADDED>(sums, 0, buffers.bytes[0], from, of_bias);
        __syncwarp();
#pragma unroll
        for (u32 part = 0; part < PARTS; part++) {
            if (part >= parts) {
                return;
            }
            uint4 chunks[OWN_ROWS];
            take<Narrow>(chunks, buffers.bytes[part % 2]);
            if (part + 1 < PARTS && part + 1 < parts) {
                pass<ADDED>(sums, part + 1, buffers.bytes[(part + 1) % 2], from + (part + 1) * PART, of_bias);
            }
#pragma unroll
            for (u32 own = 0; own < OWN_ROWS; own++) {
                *(uint4 *)(to + own * 4 * out.stride + part * PART) = chunks[own];
            }
            __syncwarp();
        }
    }

    // Stores numbers of single precision. Those of the output are loaded `AHEAD` parts before they are added, as far as
    // registers last.
    template <Added ADDED>
    __device__ void store_single(const f32 (&sums)[SUMS], u32 first_row, u32 first_col, PartBuffers &buffers) const {
        constexpr u32 PART = PART_BYTES / sizeof(f32);
        constexpr u32 PARTS = COLS / PART;
        constexpr u32 AHEAD = HELD > SUMS ? 1 : COLS > 192 || PARTS < 4 ? 2 : 4;
        const u32 lane = number_of_lane();
        const u32 parts = out.cols - first_col < COLS ? (u32)(out.cols - first_col) / PART : PARTS;
        const u32 own_col = first_col + lane % CHUNKS * 4;
        f32 *to = (f32 *)out.start + (first_row + lane / CHUNKS) * out.stride + own_col;
        const f32 *added = (const f32 *)bias.start + own_col;
        f32 earlier[PARTS][OWN_ROWS][4];
        if constexpr (ADDED == Added::OUTPUT) {
#pragma unroll
            for (u32 part = 0; part < AHEAD; part++) {
                load_part(earlier[part], to + (part < parts ? part * PART : 0));
            }
        }
        pass(sums, 0, buffers.bytes[0]);
        __syncwarp();
#pragma unroll
        for (u32 part = 0; part < PARTS; part++) {
            if (part >= parts) {
                return;
            }
            if (part + 1 < PARTS) {
                pass(sums, part + 1, buffers.bytes[(part + 1) % 2]);
            }
            if constexpr (ADDED == Added::OUTPUT) {
                if (part + AHEAD < PARTS) {
                    load_part(earlier[part + AHEAD], to + (part + AHEAD < parts ? (part + AHEAD) * PART : 0));
                }
            }
            uint4 chunks[OWN_ROWS];
            take<f32>(chunks, buffers.bytes[part % 2]);
            store_part<ADDED>(chunks, earlier[part], to + part * PART, added + part * PART);
            __syncwarp();
        }
    }

    // Loads a lane's chunks of a part of the output.
    __device__ void load_part(f32 (&values)[OWN_ROWS][4], const f32 *from) const {
#pragma unroll
        for (u32 own = 0; own < OWN_ROWS; own++) {
            four_of(from + own * 4 * out.stride, values[own]);
        }
    }

    // Stores a lane's chunks of a part, with what is added to them.
    template <Added ADDED>
    __device__ void store_part(const uint4 (&chunks)[OWN_ROWS], const f32 (&earlier)[OWN_ROWS][4], f32 *to,
                               const f32 *added) const {
        const bool has_bias = ADDED != Added::NOTHING && bias.is_there();
        f32 of_bias[4] = {};
        if (has_bias) {
            four_of(added, of_bias);
        }
#pragma unroll
        for (u32 own = 0; own < OWN_ROWS; own++) {
            const uint4 chunk = chunks[own];
            f32 values[4] = {__uint_as_float(chunk.x), __uint_as_float(chunk.y), __uint_as_float(chunk.z),
                             __uint_as_float(chunk.w)};
            if constexpr (ADDED == Added::OUTPUT) {
                add_four(values, earlier[own]);
            }
            if (has_bias) {
                add_four(values, of_bias);
            }
            round_four(to + own * 4 * out.stride, values);
        }
    }

    // Stores a warp's 16 rows element by element.
    __device__ void store_any(const f32 (&sums)[SUMS], u32 first_row, u32 first_col, PartBuffers &buffers) const {
        constexpr u32 PART = PART_BYTES / sizeof(f32);
        const u32 lane = number_of_lane();
#pragma unroll
        for (u32 part = 0; part < COLS / PART; part++) {
            __syncwarp();
            pass(sums, part, buffers.bytes[0]);
            __syncwarp();
            const u64 col = first_col + part * PART + lane;
#pragma unroll 1
            for (u32 row = 0; row < WARP_ROWS; row++) {
                if (first_row + row < out.rows && col < out.cols) {
                    const u64 element = (first_row + row) * out.stride + col;
                    f32 total = *(const f32 *)(buffers.bytes[0] + place_of<f32>(row, lane / 4) + lane % 4 * 4);
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
        __syncwarp();
    }

    template <Added ADDED>
    __device__ void store_wide(const f32 (&sums)[SUMS], u32 first_row, u32 first_col, PartBuffers &buffers,
                               const u32 (&of_bias)[PAIRS]) const {
        switch (type) {
        case OutputType::SINGLE:
            return store_single<ADDED>(sums, first_row, first_col, buffers);
        case OutputType::BF16:
            return store_narrow<ADDED, Bf16>(sums, first_row, first_col, buffers, of_bias);
        case OutputType::F16:
            return store_narrow<ADDED, F16>(sums, first_row, first_col, buffers, of_bias);
        }
    }

    // Loads the pairs of a narrow bias that `store` adds, long before it: where it is not needed they are zeros.
    __device__ void load_bias(u32 (&pairs)[PAIRS], u32 first_row, u32 first_col) const {
        const bool is_there = bias.is_there() && type != OutputType::SINGLE && is_wide(first_row, first_col);
        const u16 *from = (const u16 *)bias.start + first_col + number_of_lane() % 4 * 2;
#pragma unroll
        for (u32 pair = 0; pair < PAIRS; pair++) {
            pairs[pair] = is_there && first_col + pair * 8 < out.cols ? *(const u32 *)(from + pair * 8) : 0;
        }
    }

    // Stores the sums of a warp: rows from `first_row` on, columns from `first_col` on.
    __device__ void store(const f32 (&sums)[SUMS], u32 first_row, u32 first_col, PartBuffers &buffers,
                          const u32 (&of_bias)[PAIRS]) const {
        if (!is_wide(first_row, first_col)) {
            return store_any(sums, first_row, first_col, buffers);
        }
        if (is_accumulated) {
            return store_wide<Added::OUTPUT>(sums, first_row, first_col, buffers, of_bias);
        }
        if (bias.is_there()) {
            return store_wide<Added::BIAS>(sums, first_row, first_col, buffers, of_bias);
        }
        store_wide<Added::NOTHING>(sums, first_row, first_col, buffers, of_bias);
    }

    // Loads the output as the sums of a warp.
    __device__ void load(f32 (&sums)[SUMS], u32 first_row, u32 first_col, PartBuffers &buffers) const {
        const u32 lane = number_of_lane();
        if (type == OutputType::SINGLE && is_wide(first_row, first_col)) {
            const f32 *from = (const f32 *)out.start + (first_row + lane / 4) * out.stride + first_col + lane % 4 * 2;
#pragma unroll
            for (u32 eight = 0; eight < COLS / 8; eight++) {
                if (first_col + eight * 8 < out.cols) {
                    const float2 upper = *(const float2 *)(from + eight * 8);
                    const float2 lower = *(const float2 *)(from + 8 * out.stride + eight * 8);
                    sums[eight * 4] = upper.x;
                    sums[eight * 4 + 1] = upper.y;
                    sums[eight * 4 + 2] = lower.x;
                    sums[eight * 4 + 3] = lower.y;
                }
            }
            return;
        }
        constexpr u32 PART = PART_BYTES / sizeof(f32);
#pragma unroll
        for (u32 part = 0; part < COLS / PART; part++) {
            const u64 col = first_col + part * PART + lane;
#pragma unroll 1
            for (u32 row = 0; row < WARP_ROWS; row++) {
                const bool is_there = first_row + row < out.rows && col < out.cols;
                const u64 element = (first_row + row) * out.stride + col;
                f32 *to = (f32 *)(buffers.bytes[0] + place_of<f32>(row, lane / 4) + lane % 4 * 4);
                *to = is_there ? element_of(type, out.start, element) : 0.0f;
            }
            __syncwarp();
            take_sums(sums, part, buffers.bytes[0]);
            __syncwarp();
        }
    }
};

}  // namespace warpgroup
