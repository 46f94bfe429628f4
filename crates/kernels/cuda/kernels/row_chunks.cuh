// Rows of bf16 or fp16 values that are read once: each chunk of 1,024 elements of a row belongs to a team of 16
// threads. A thread has vectors of eight neighbours; for the sums of `row_sum.cuh` the team exchanges elements through
// shared memory, so that each thread adds those of its lane. Rows are aligned vectors, and multiples of 64 elements
// long.
#pragma once

#include "row_sum.cuh"
#include "vectors.cuh"

// Teams of a block, and the longest row of one block.
constexpr u32 TEAMS = 8;
constexpr u32 VECTORS = CHUNK / (TEAM * EIGHT);
// Elements of a lane between two tests of the length.
constexpr u32 STEPS = 4;

// The chunk of this thread's team: `teams` neighbouring teams have a row.
struct OwnChunk {
    u64 row;
    // In the row of the norm.
    u32 first;
    // Zero for teams without a chunk.
    u32 len;
    // The team that has the row's first chunk.
    u32 first_team;
    u32 teams;

    __device__ OwnChunk(u64 rows, u32 width, u32 teams_of_row) {
        const u32 team = threadIdx.x / TEAM;
        const u32 rows_of_block = TEAMS / teams_of_row;
        const u32 row_of_block = team / teams_of_row;
        const u32 chunk = team % teams_of_row;
        teams = teams_of_row;
        row = (u64)blockIdx.x * rows_of_block + row_of_block;
        first = chunk * (u32)CHUNK;
        first_team = team - chunk;
        const u32 left = width - first;
        len = row_of_block < rows_of_block && row < rows ? min(left, (u32)CHUNK) : 0;
    }

    // Whether this thread has its vector number `index`, and where that begins in the chunk.
    __device__ bool has(u32 index) const {
        return place(index) < len;
    }

    __device__ u32 place(u32 index) const {
        return (index * TEAM + team_lane()) * EIGHT;
    }

    // The row's sum of the teams' sums, in the order of chunks. All threads of a block call it together.
    __device__ f64 row_total(f32 sum) const {
        if (teams == 1) {
            return 0.0 + (f64)sum;
        }
        __shared__ f32 sums[TEAMS];
        if (team_lane() == 0) {
            sums[threadIdx.x / TEAM] = sum;
        }
        __syncthreads();
        f64 total = 0.0;
        for (u32 team = first_team; team < first_team + teams; team++) {
            total = total + (f64)sums[min(team, TEAMS - 1)];
        }
        __syncthreads();
        return total;
    }
};

// Calls `body(index)` for the elements `lane + 16 * index` of a lane of a chunk.
template <typename Body>
__device__ inline void for_each_of_lane(u32 len, Body body) {
#pragma unroll
    for (u32 first = 0; first < CHUNK / TEAM; first += STEPS) {
        if (first * TEAM < len) {
#pragma unroll
            for (u32 step = 0; step < STEPS; step++) {
                body(first + step);
            }
        }
    }
}

// The vectors of a thread as they are in memory.
template <typename E>
struct Vectors {
    uint4 words[VECTORS];

    __device__ void read(const OwnChunk &own, const E *chunk) {
#pragma unroll
        for (u32 index = 0; index < VECTORS; index++) {
            if (own.has(index)) {
                words[index] = *reinterpret_cast<const uint4 *>(chunk + own.place(index));
            }
        }
    }
};

// A chunk's elements in shared memory. The chunks of a warp's two teams are in different banks.
template <typename E>
struct alignas(16) SharedElements {
    E elements[CHUNK + TEAM];

    __device__ void write(const OwnChunk &own, const Vectors<E> &vectors) {
#pragma unroll
        for (u32 index = 0; index < VECTORS; index++) {
            if (own.has(index)) {
                *reinterpret_cast<uint4 *>(elements + own.place(index)) = vectors.words[index];
            }
        }
    }

    // Fills it with a chunk in memory, whose vectors are all read before the first is written.
    __device__ void fill(const OwnChunk &own, const E *chunk) {
        Vectors<E> vectors;
        vectors.read(own, chunk);
        write(own, vectors);
    }

    // The sum of `term(element)` in the order of a chunk.
    template <typename Term>
    __device__ f32 sum(const OwnChunk &own, Term term) const {
        const E *lane = elements + team_lane();
        f32 sum = 0.0f;
        for_each_of_lane(own.len, [&](u32 index) { sum = sum + term(widen(lane[index * TEAM])); });
        return team_sum(sum);
    }
};

// Fills two with chunks in memory, whose vectors are all read before the first is written.
template <typename E>
__device__ inline void fill_both(const OwnChunk &own, SharedElements<E> &first, const E *chunk,
                                 SharedElements<E> &second, const E *other) {
    Vectors<E> vectors;
    Vectors<E> others;
    vectors.read(own, chunk);
    others.read(own, other);
    first.write(own, vectors);
    second.write(own, others);
}
