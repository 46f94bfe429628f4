// The forward pass of attention with products in blocks by warpgroups, for compute capability 9.0 alone: two warpgroups
// with 64 queries each. While a warpgroup turns the scores of a tile into probabilities, the scores of the next one and
// the outputs of the last one are multiplied.
#pragma once

#include "attention_blocks_forward.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#include "warpgroup_registers.cuh"

namespace attention_blocks {

using warpgroup::Major;

// Memory of rows in panels of 64 channels: 128 bytes of each row, whose eight vectors change places by the row.
template <u32 CHANNELS, u32 COUNT>
struct Panels {
    static constexpr u32 PANEL_BYTES = COUNT * 128;
    static constexpr u32 BYTES = CHANNELS / 64 * PANEL_BYTES;

    static __device__ u32 place(u32 row, u32 channel) {
        const u32 vector = channel % 64 / VECTOR;
        return channel / 64 * PANEL_BYTES + row * 128 + (vector ^ row % 8) * 16 + channel % VECTOR * 2;
    }

    // As `attention_blocks::stage`.
    template <u32 THREADS, typename Element>
    static __device__ void stage(u8* target, const Rows<Element>& rows, u32 channels, bool vectors) {
        if (vectors) {
            constexpr u32 VECTORS = CHANNELS / VECTOR;
            const u32 to = tensor_core::shared_address(target);
#pragma unroll
            for (u32 first = 0; first < COUNT * VECTORS; first += THREADS) {
                const u32 index = first + threadIdx.x;
                const u32 row = index / VECTORS;
                const u32 channel = index % VECTORS * VECTOR;
                const bool exists = row < rows.count && channel < channels;
                const Element* from = exists ? rows.start + row * rows.stride + channel : rows.start;
                tensor_core::start_copy(to + place(row, channel), from, exists ? 16 : 0);
            }
            return;
        }
#pragma unroll 4
        for (u32 index = threadIdx.x; index < COUNT * CHANNELS; index += THREADS) {
            const u32 row = index / CHANNELS;
            const u32 channel = index % CHANNELS;
            const bool exists = row < rows.count && channel < channels;
            const u16 bits = exists ? rows.start[row * rows.stride + channel].bits : (u16)0;
            *reinterpret_cast<u16*>(target + place(row, channel)) = bits;
        }
    }
};

// Waits for the copies of all threads, which products of warpgroups then may read.
__device__ inline void publish_copies() {
    tensor_core::wait_for_copies<0>();
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
}

// Sums as the products of warpgroups have them.
template <u32 FRAGMENTS>
__device__ inline f32 (&all(f32 (&sums)[FRAGMENTS][4]))[FRAGMENTS * 4] {
    return reinterpret_cast<f32(&)[FRAGMENTS * 4]>(sums);
}

template <typename Element, u32 CHANNELS>
struct Warpgroup {
    static constexpr u32 THREADS = 256;
    static constexpr u32 QUERIES = THREADS / 32 * ROWS;
    using OfQueries = Panels<CHANNELS, QUERIES>;
    using OfKeys = Panels<CHANNELS, KEYS>;

    const Problem& problem;
    const Forward<Element>& tensors;
    u64 key_row;
    u32 kv_column;
    u64 left;
    // Of two tiles of keys, and of two of values.
    u8* keys;
    u8* values;

    __device__ Rows<Element> rows(const Matrix<const Element>& matrix, u32 number) const {
        return rows_of(matrix, key_row + number * KEYS, kv_column, min(KEYS, problem.keys - number * KEYS));
    }

    __device__ void copy_keys(u32 number, u32 place) const {
        OfKeys::template stage<THREADS>(keys + place * OfKeys::BYTES, rows(tensors.k, number), problem.head_dim,
                                        tensors.vectors);
    }

    __device__ void copy_values(u32 number, u32 place) const {
        OfKeys::template stage<THREADS>(values + place * OfKeys::BYTES, rows(tensors.v, number), problem.head_dim,
                                        tensors.vectors);
    }

    // Starts the products of queries and keys.
    __device__ void multiply_keys(f32 (&scores)[TILE][4], u32 place) const {
        const u64 right =
            warpgroup::descriptor(tensor_core::shared_address(keys + place * OfKeys::BYTES), 16);
        warpgroup::begin();
#pragma unroll
        for (u32 step = 0; step < CHANNELS / STEPS; step++) {
            const u64 within = step % 4 * warpgroup::next_block(Major::STEPS);
            warpgroup::Product<Element, Major::STEPS, Major::STEPS, KEYS>::add(
                all(scores), left + within + (step / 4 * OfQueries::PANEL_BYTES >> 4),
                right + within + (step / 4 * OfKeys::PANEL_BYTES >> 4), step == 0 ? 0 : 1);
        }
        warpgroup::end();
    }

    // Probabilities, and their products with values, block after block.
    __device__ void multiply_values(f32 (&outputs)[CHANNELS / COLUMNS][4], Running& running,
                                    const f32 (&scores)[TILE][4], u32 place, const f32 (&shift)[2],
                                    const attention_blocks::Queries& queries, u32 first_key) const {
        const u64 right = warpgroup::descriptor(tensor_core::shared_address(values + place * OfKeys::BYTES),
                                                OfKeys::PANEL_BYTES);
#pragma unroll
        for (u32 block = 0; block < KEYS / STEPS; block++) {
            u32 a[4];
            exponentiate<Element>(a, running, scores, block, shift, problem, queries, first_key);
            warpgroup::begin();
            warpgroup::ProductOfRegisters<Element, Major::LANES, CHANNELS>::add(
                all(outputs), a, right + block * warpgroup::next_block(Major::LANES));
        }
        warpgroup::end();
    }
};

template <typename Element, u32 CHANNELS>
__device__ void forward_by_warpgroups(const Problem& problem, const Forward<Element>& tensors) {
    using Group = Warpgroup<Element, CHANNELS>;
    extern __shared__ __align__(16) u16 shared[];
    __shared__ Span spans[Group::THREADS / 32];
    // Panels repeat after 1,024 bytes.
    const u32 unaligned = tensor_core::shared_address(shared) % 1024;
    u8* const memory = reinterpret_cast<u8*>(shared) + (unaligned == 0 ? 0 : 1024 - unaligned);
    const u32 warp = threadIdx.x / 32;
    const u32 lane = threadIdx.x % 32;
    const u32 head_dim = problem.head_dim;
    const u32 head = blockIdx.x % problem.heads;
    const u32 sequence = blockIdx.x / problem.heads;
    // The last queries, which see most under a causal mask, begin first.
    const u32 first_query = (gridDim.y - 1 - blockIdx.y) * Group::QUERIES;
    const u32 position = first_query + warp * ROWS + lane / 4;
    const u64 first_token = (u64)sequence * problem.sequence_length;
    const u64 left = warpgroup::descriptor(tensor_core::shared_address(memory) + warp / 4 * 64 * 128, 16);
    u8* const keys = memory + Group::OfQueries::BYTES;
    const Group group = {problem, tensors, (u64)sequence * problem.keys, head / problem.group() * head_dim, left, keys,
                         keys + 2 * Group::OfKeys::BYTES};

    Group::OfQueries::template stage<Group::THREADS>(
        memory,
        rows_of(tensors.q, first_token + first_query, head * head_dim, problem.sequence_length - first_query), head_dim,
        tensors.vectors);
    Queries queries;
    queries.intervals[0] = interval_of(problem, sequence, position);
    queries.intervals[1] = interval_of(problem, sequence, position + 8);
    queries.token = (u32)first_token + position;
    queries.head = head;
    queries.slope = problem.alibi_heads == 0 ? 0.0f : attention::slope(problem, head);
    const Span span = joined<4, 16>(with(with(NOTHING, queries.intervals[0]), queries.intervals[1]));
    const Span seen_by_all = joined_all(queries.intervals[0], queries.intervals[1]);
    if (lane == 0) {
        spans[warp] = span;
    }
    __syncthreads();
    const Span of_lane = lane < Group::THREADS / 32 ? spans[lane] : NOTHING;
    const Span of_block = joined<1, 16>(of_lane);
    const auto next = [&](u32 number) { return next_tile<KEYS>(number, of_block, of_lane); };
    const auto exists = [&](u32 number) { return (i32)(number * KEYS) < of_block.last; };

    Running running = {{-math::infinity(), -math::infinity()}, {0.0f, 0.0f}};
    f32 outputs[CHANNELS / COLUMNS][4] = {};
    f32 scores[2][TILE][4];
    u32 number = next(of_block.start() / KEYS);
    u32 following = next(number + 1);
    // Of one tile, while those of the next one are multiplied.
    const auto step = [&](f32(&current)[TILE][4], f32(&coming)[TILE][4], u32 place) {
        const i32 first = (i32)(number * KEYS);
        const bool sees_all = seen_by_all.first <= first && seen_by_all.last >= first + (i32)KEYS;
        f32 shift[2];
        f32 decay[2];
        warpgroup::wait<1>();
        warpgroup::pin(all(current));
        finish_scores(current, problem, queries, first, sees_all);
        raise_maxima(shift, decay, running, current);
        warpgroup::wait<0>();
        warpgroup::pin(all(outputs));
        decay_outputs(outputs, decay);
        publish_copies();
        const u32 after = next(following + 1);
        if (exists(following)) {
            group.multiply_keys(coming, place ^ 1);
            group.copy_values(following, place ^ 1);
            if (exists(after)) {
                group.copy_keys(after, place);
            }
            tensor_core::end_copies();
        }
        group.multiply_values(outputs, running, current, place, shift, queries, (u32)first);
        number = following;
        following = after;
    };
    if (exists(number)) {
        group.copy_keys(number, 0);
        tensor_core::end_copies();
        publish_copies();
        group.multiply_keys(scores[0], 0);
        group.copy_values(number, 0);
        if (exists(following)) {
            group.copy_keys(following, 1);
        }
        tensor_core::end_copies();
        // In place of the outputs of an earlier tile.
        warpgroup::end();
    }
    while (exists(number)) {
        step(scores[0], scores[1], 0);
        if (exists(number)) {
            step(scores[1], scores[0], 1);
        }
    }
    warpgroup::wait<0>();
    warpgroup::pin(all(outputs));
    tensor_core::wait_for_copies<0>();
    finish<Element, CHANNELS>(tensors, problem, running, outputs, queries, position, 0);
}

}  // namespace attention_blocks
#endif
