// Rows of a head in shared memory as products of warpgroups read them, for compute capability 9.0 alone.
#pragma once

#include "attention_blocks.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#include "warpgroup_registers.cuh"

namespace attention_blocks {

using warpgroup::Major;

// Memory of a block of threads, from a place on where panels may begin: patterns of rows repeat after 1,024 bytes.
__device__ inline u8* first_panel(u16* shared) {
    const u32 unaligned = tensor_core::shared_address(shared) % 1024;
    return reinterpret_cast<u8*>(shared) + (unaligned == 0 ? 0 : 1024 - unaligned);
}

// The address, which is the same in all lanes: the compiler then keeps it, and descriptors, in registers of the warp.
__device__ inline u32 of_warp(u32 address) {
    return __shfl_sync(ALL_LANES, address, 0);
}

// Memory of rows in panels of 64 channels: 128 bytes of each row, whose eight vectors change places by the row.
template <u32 CHANNELS, u32 COUNT>
struct Panels {
    static constexpr u32 PANEL_BYTES = COUNT * 128;
    static constexpr u32 BYTES = CHANNELS / 64 * PANEL_BYTES;

    static __device__ u32 place(u32 row, u32 channel) {
        const u32 vector = channel % 64 / VECTOR;
        return channel / 64 * PANEL_BYTES + row * 128 + (vector ^ row % 8) * 16 + channel % VECTOR * 2;
    }

    // Of rows with this stride, the first number that this thread copies, from the start of the first row on.
    template <u32 THREADS>
    static __device__ u64 first_from(u64 stride) {
        constexpr u32 VECTORS = CHANNELS / VECTOR;
        return threadIdx.x / VECTORS * stride + threadIdx.x % VECTORS * VECTOR;
    }

    // Where it copies that to.
    template <u32 THREADS>
    static __device__ u32 first_to() {
        constexpr u32 VECTORS = CHANNELS / VECTOR;
        return place(threadIdx.x / VECTORS, threadIdx.x % VECTORS * VECTOR);
    }

    // Starts copies of whole rows, of which this thread has the vectors from here on.
    template <u32 THREADS, typename Element>
    static __device__ void stage_whole(u32 to, const Element* from, u64 stride) {
        constexpr u32 TOGETHER = THREADS / (CHANNELS / VECTOR);
#pragma unroll
        for (u32 first = 0; first < COUNT; first += TOGETHER) {
            tensor_core::start_copy(to + first * 128, from, 16);
            from += TOGETHER * stride;
        }
    }

    // As `attention_blocks::stage`.
    template <u32 THREADS, typename Element>
    static __device__ void stage(u8* target, const Rows<Element>& rows, u32 channels, bool vectors) {
        if (vectors) {
            constexpr u32 VECTORS = CHANNELS / VECTOR;
            // Rows that are copied at once, in which the vectors of each channel have the same places.
            constexpr u32 TOGETHER = THREADS / VECTORS;
            static_assert(TOGETHER % 8 == 0, "patterns of eight rows");
            const u32 row = threadIdx.x / VECTORS;
            const u32 to = tensor_core::shared_address(target) + first_to<THREADS>();
            const Element* from = rows.start + first_from<THREADS>(rows.stride);
            if (rows.count >= COUNT && channels == CHANNELS) {
                stage_whole<THREADS>(to, from, rows.stride);
                return;
            }
            const u32 count = threadIdx.x % VECTORS * VECTOR < channels ? rows.count : 0;
#pragma unroll
            for (u32 first = 0; first < COUNT; first += TOGETHER) {
                const bool exists = first + row < count;
                tensor_core::start_copy(to + first * 128, exists ? from : rows.start, exists ? 16 : 0);
                from += TOGETHER * rows.stride;
            }
            return;
        }
#pragma unroll 1
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

// A descriptor of rows that begin further on: addresses of shared memory do not leave the low word.
__device__ inline u64 further(u64 descriptor, u64 distance) {
    return descriptor >> 32 << 32 | (u32)descriptor + (u32)distance;
}

// `sums = left . right` over the channels, of rows that begin at these addresses. Starts the products.
template <typename Element, typename Left, typename Right, u32 CHANNELS, u32 FRAGMENTS>
__device__ inline void start_product(f32 (&sums)[FRAGMENTS][4], u32 left, u32 right) {
    const u64 left_descriptor = warpgroup::descriptor(left, 16);
    const u64 right_descriptor = warpgroup::descriptor(right, 16);
    warpgroup::FirstProduct<Element, Major::STEPS, Major::STEPS, FRAGMENTS * COLUMNS>::start(all(sums), left_descriptor,
                                                                                             right_descriptor);
#pragma unroll
    for (u32 step = 1; step < CHANNELS / STEPS; step++) {
        const u64 within = step % 4 * warpgroup::next_block(Major::STEPS);
        warpgroup::Product<Element, Major::STEPS, Major::STEPS, FRAGMENTS * COLUMNS>::add(
            all(sums), further(left_descriptor, within + (step / 4 * Left::PANEL_BYTES >> 4)),
            further(right_descriptor, within + (step / 4 * Right::PANEL_BYTES >> 4)), 1);
    }
}

// `sums += left . rows` of sixteen rows, over all channels. Starts the product.
template <typename Element, typename Right, u32 CHANNELS>
__device__ inline void start_addition(f32 (&sums)[CHANNELS / COLUMNS][4], const u32 (&left)[4], u32 rows, u32 block) {
    const u64 distance = block * warpgroup::next_block(Major::LANES);
    warpgroup::ProductOfRegisters<Element, Major::LANES, CHANNELS>::add(
        all(sums), left, further(warpgroup::descriptor(rows, Right::PANEL_BYTES), distance));
}

}  // namespace attention_blocks
#endif
