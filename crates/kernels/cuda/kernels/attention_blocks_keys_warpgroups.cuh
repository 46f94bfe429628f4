// Gradients of attention's keys and values by warpgroups, for compute capability 9.0 alone: a warpgroup with 64 keys.
// Two blocks of threads are on a multiprocessor at once: one multiplies while the other one computes gradients of
// scores.
#pragma once

#include "attention_blocks_depths.cuh"
#include "attention_blocks_of_keys.cuh"
#include "attention_blocks_panels.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

namespace attention_blocks::of_keys {

// Scores of a warp's keys become depths below the log-sum-exps of their queries. Hidden keys are infinitely deep.
template <u32 QUERIES>
__device__ inline Depths lower(f32 (&scores)[QUERIES / COLUMNS][4], const Scale& scale, const QueryRows<QUERIES>& rows,
                               i32 first_key, bool sees_all) {
    const u32 query = threadIdx.x % 4 * 2;
    multiply(scores, scale);
#pragma unroll
    for (u32 column = 0; column < QUERIES / COLUMNS; column++) {
#pragma unroll
        for (u32 index = 0; index < 4; index++) {
            f32& score = scores[column][index];
            score = fmaf(score, -scale.exponent, rows.shift[query + column * COLUMNS + index % 2]);
        }
    }
    const bool all_are_usual = __all_sync(ALL_LANES, are_usual(largest_bits(scores)));
    if (!sees_all) {
        const i32 key = first_key + (i32)(threadIdx.x % 32 / 4);
#pragma unroll
        for (u32 column = 0; column < QUERIES / COLUMNS; column++) {
#pragma unroll
            for (u32 index = 0; index < 4; index++) {
                const u32 place = query + column * COLUMNS + index % 2;
                const bool visible =
                    attention::is_visible(key + index / 2 * 8, rows.first[place], rows.last[place]);
                scores[column][index] = visible ? scores[column][index] : math::infinity();
            }
        }
    }
    return !all_are_usual ? Depths::Any : sees_all ? Depths::Usual : Depths::SomeDeep;
}

template <typename Element, u32 CHANNELS>
__device__ void backward_by_warpgroups(const PlainProblem& problem, const Backward<Element>& tensors,
                                       const Matrix<Element>& dk, const Matrix<Element>& dv) {
    constexpr u32 QUERIES = 64;
    using Rows64 = Panels<CHANNELS, 64>;
    static_assert(KEYS == 64, "keys and queries have panels of one size");
    extern __shared__ __align__(16) u16 shared[];
    __shared__ QueryRows<QUERIES> rows[2];
    __shared__ u32 found[WARPS];
    // Keys, values, and queries and output gradients of two blocks in turns.
    u8* const memory = first_panel(shared);
    u8* const queries = memory + 2 * Rows64::BYTES;
    const u32 warp = threadIdx.x / 32;
    const u32 lane = threadIdx.x % 32;
    const u32 head_dim = problem.head_dim;
    const u32 kv_head = blockIdx.x % problem.kv_heads;
    const u32 sequence = blockIdx.x / problem.kv_heads;
    // The first keys, which most queries see under a causal mask, begin first.
    const u32 first_key = blockIdx.y * KEYS;
    const i32 warp_key = (i32)(first_key + warp * ROWS);
    const u64 key_row = (u64)sequence * problem.keys + first_key;
    const u32 count = min(KEYS, problem.keys - first_key);
    const u32 kv_column = kv_head * head_dim;
    const u32 first_token = sequence * problem.sequence_length;
    Rows64::template stage<THREADS>(memory, rows_of(tensors.k, key_row, kv_column, count), head_dim, tensors.vectors);
    Rows64::template stage<THREADS>(memory + Rows64::BYTES, rows_of(tensors.v, key_row, kv_column, count), head_dim,
                                    tensors.vectors);
    const bool is_whole = tensors.vectors && head_dim == CHANNELS;
    const Element* const first_query =
        tensors.q.row(first_token) + Rows64::template first_from<THREADS>(tensors.q.stride);
    const Element* const first_dout =
        tensors.dout.row(first_token) + Rows64::template first_from<THREADS>(tensors.dout.stride);
    const auto start = [&](const QueryBlocks<QUERIES>& blocks, u32 place) {
        const u32 there = problem.sequence_length - blocks.position;
        const u32 column = blocks.head * head_dim;
        u8* const to = queries + 2 * place * Rows64::BYTES;
        if (is_whole && there >= QUERIES) {
            const u32 shared_to = tensor_core::shared_address(to) + Rows64::template first_to<THREADS>();
            Rows64::template stage_whole<THREADS>(
                shared_to, first_query + (blocks.position * tensors.q.stride + column), tensors.q.stride);
            Rows64::template stage_whole<THREADS>(shared_to + Rows64::BYTES,
                                                  first_dout + (blocks.position * tensors.dout.stride + column),
                                                  tensors.dout.stride);
            tensor_core::end_copies();
            return;
        }
        const u64 row = (u64)first_token + blocks.position;
        Rows64::template stage<THREADS>(to, rows_of(tensors.q, row, column, there), head_dim, tensors.vectors);
        Rows64::template stage<THREADS>(to + Rows64::BYTES, rows_of(tensors.dout, row, column, there), head_dim,
                                        tensors.vectors);
        tensor_core::end_copies();
    };

    const Scale scale = scale_of(problem);
    f32 dk_sums[CHANNELS / COLUMNS][4] = {};
    f32 dv_sums[CHANNELS / COLUMNS][4] = {};
    QueryBlocks<QUERIES> blocks = first_blocks<QUERIES>(kv_head * problem.group(), problem.group());
    bool is_there = blocks.next(found, problem, sequence, (i32)first_key);
    u32 place = 0;
    QueryRow row;
    if (is_there) {
        start(blocks, place);
        row = read_row(problem, tensors, sequence, blocks);
    }
    const u32 left = of_warp(tensor_core::shared_address(memory));
    while (is_there) {
        write_row(rows[place], problem, row);
        is_there = blocks.next(found, problem, sequence, (i32)first_key);
        publish_copies();
        const u32 right = of_warp(tensor_core::shared_address(queries + 2 * place * Rows64::BYTES));
        f32 scores[QUERIES / COLUMNS][4];
        f32 gradients[QUERIES / COLUMNS][4];
        warpgroup::begin();
        start_product<Element, Rows64, Rows64, CHANNELS>(scores, left, right);
        warpgroup::end();
        start_product<Element, Rows64, Rows64, CHANNELS>(gradients, left + Rows64::BYTES, right + Rows64::BYTES);
        warpgroup::end();
        if (is_there) {
            start(blocks, place ^ 1);
            row = read_row(problem, tensors, sequence, blocks);
        }
        const QueryRows<QUERIES>& block_rows = rows[place];
        const bool sees_all =
            __all_sync(ALL_LANES, block_rows.first[lane] <= warp_key && block_rows.last[lane] >= warp_key + (i32)ROWS &&
                                      block_rows.first[lane + 32] <= warp_key &&
                                      block_rows.last[lane + 32] >= warp_key + (i32)ROWS);
        warpgroup::wait<1>();
        warpgroup::pin(all(scores));
        const Depths depths = lower(scores, scale, block_rows, warp_key, sees_all);
        warpgroup::wait<0>();
        warpgroup::pin(all(gradients));
#pragma unroll
        for (u32 block = 0; block < QUERIES / STEPS; block++) {
            f32(&powers)[2][4] = reinterpret_cast<f32(&)[2][4]>(scores[2 * block]);
            exponentiate(powers, depths);
            u32 probabilities[4];
            u32 a[4];
#pragma unroll
            for (u32 half = 0; half < 2; half++) {
                f32(&gradient)[4] = gradients[2 * block + half];
#pragma unroll
                for (u32 index = 0; index < 4; index++) {
                    const f32 delta =
                        block_rows.delta[(2 * block + half) * COLUMNS + threadIdx.x % 4 * 2 + index % 2];
                    gradient[index] = powers[half][index] * fmaf(gradient[index], problem.scale, -delta);
                }
                probabilities[2 * half] = tensor_core::packed<Element>(powers[half][0], powers[half][1]);
                probabilities[2 * half + 1] = tensor_core::packed<Element>(powers[half][2], powers[half][3]);
                a[2 * half] = tensor_core::packed<Element>(gradient[0], gradient[1]);
                a[2 * half + 1] = tensor_core::packed<Element>(gradient[2], gradient[3]);
            }
            warpgroup::begin();
            start_addition<Element, Rows64, CHANNELS>(dv_sums, probabilities, right + Rows64::BYTES, block);
            start_addition<Element, Rows64, CHANNELS>(dk_sums, a, right, block);
        }
        warpgroup::end();
        place ^= 1;
        warpgroup::wait<0>();
        warpgroup::pin(all(dk_sums));
        warpgroup::pin(all(dv_sums));
    }
    tensor_core::wait_for_copies<0>();
    const u32 key = warp * ROWS + lane / 4;
    const u32 stored = key < count ? count - key : 0;
    store<Element, CHANNELS>(dk, dk_sums, key_row + key, stored, kv_column, 0, head_dim, tensors.vectors);
    store<Element, CHANNELS>(dv, dv_sums, key_row + key, stored, kv_column, 0, head_dim, tensors.vectors);
}

}  // namespace attention_blocks::of_keys
#endif
