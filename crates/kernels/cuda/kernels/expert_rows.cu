// From tokens to rows of experts and back: `cpu::experts`.
#include "block_counts.cuh"
#include "vectors.cuh"

// The rows of experts, sorted by expert, then by slot. Ranks that divide the experts have a row of `offsets` and an
// equal part of `slots` each. A block has an expert: it counts the choices of the experts of its rank before it, which
// are the rows before its own, and goes through all choices once more in order, a window at a time. No block waits for
// another one.
//
// A kernel stops where a rank has more rows than room.
extern "C" __global__ void __launch_bounds__(WINDOW)
group_rows(Matrix<const i32> choice, u32 first_expert, Matrix<i32> places, Matrix<i32> slots, Matrix<i32> offsets) {
    const u32 group = blockIdx.x;
    const u32 groups = gridDim.x;
    const u32 of_rank = (u32)offsets.cols - 1;
    const u32 rank = group / of_rank;
    const u32 first_of_rank = rank * of_rank;
    const u32 room = (u32)(slots.cols / offsets.rows);
    const u64 choices = choice.cols;
    // Negative numbers and experts before the first are of no group.
    const auto group_of = [=](i32 expert) { return (u32)expert - first_expert; };
    u32 smaller = 0;
    u32 equal = 0;
    for (u64 slot = threadIdx.x; slot < choices; slot += WINDOW) {
        const u32 other = group_of(choice.start[slot]);
        smaller += other >= first_of_rank && other < group ? 1 : 0;
        equal += other == group ? 1 : 0;
    }
    u32 row = block_sum(smaller);
    const u32 end = row + block_sum(equal);
    if (end > room) {
        __trap();
    }
    const bool is_last = group + 1 == groups;
    const bool is_last_of_rank = group + 1 == first_of_rank + of_rank;
    if (threadIdx.x == 0) {
        i32 *own = offsets.row(rank);
        own[group - first_of_rank] = (i32)row;
        if (is_last_of_rank) {
            own[of_rank] = (i32)end;
        }
    }
    const u32 first_row = rank * room;
    row += first_row;
    for (u64 first = 0; first < choices; first += WINDOW) {
        const u64 slot = first + threadIdx.x;
        const u32 own = slot < choices ? group_of(choice.start[slot]) : groups;
        const Counted counted = count(own == group);
        if (own == group) {
            const u32 place = row + counted.before;
            places.start[slot] = (i32)place;
            slots.start[place] = (i32)slot;
        } else if (is_last && own >= groups && slot < choices) {
            places.start[slot] = -1;
        }
        row += counted.all;
    }
    if (is_last_of_rank) {
        for (u64 place = end + threadIdx.x; place < room; place += WINDOW) {
            slots.start[first_row + place] = -1;
        }
    }
}

// `to[R,D]`: at each of a token's places the row of the token in `from[T,D]`, bit by bit.
template <typename E>
struct Gather {
    Matrix<const E> from;
    Matrix<const i32> places;
    Matrix<E> to;

    template <u32 COUNT>
    __device__ void at(u64 slot, u64 col) const {
        const i32 place = places.start[slot];
        if (place < 0) {
            return;
        }
        const E *own = from.row((u32)slot / (u32)places.cols) + col;
        E *into = to.row((u64)place) + col;
        if constexpr (COUNT == 1) {
            *into = *own;
        } else {
            static_assert(COUNT == IN_ACCESS<E>, "whole accesses");
            *reinterpret_cast<uint4 *>(into) = *reinterpret_cast<const uint4 *>(own);
        }
    }

    __device__ void run() const {
        const bool in_vectors = has_vectors<IN_ACCESS<E>>(from) && has_vectors<IN_ACCESS<E>>(to);
        for_each_vector<IN_ACCESS<E>>(places.len(), to.cols, in_vectors, *this);
    }
};

#define GATHER_ROWS(NAME, E)                                                                                           \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        NAME(Matrix<const E> from, Matrix<const i32> places, Matrix<E> to) {                                           \
        Gather<E>{from, places, to}.run();                                                                             \
    }

GATHER_ROWS(gather_rows_f32, f32)
GATHER_ROWS(gather_rows_bf16, Bf16)
GATHER_ROWS(gather_rows_f16, F16)

// `out[T,D]` = or += the sum of the rows of `y[R,D]` at a token's places, each times its weight: one chain of fused
// multiply-adds in ascending order of slots.
template <typename E>
struct Combine {
    Matrix<const E> y;
    // `[T,k]`, or none in place of ones.
    Matrix<const f32> weights;
    Matrix<const i32> places;
    Matrix<E> out;
    u32 is_accumulated;

    template <u32 COUNT>
    __device__ void at(u64 token, u64 col) const {
        f32 sums[COUNT] = {};
        E *to = out.row(token) + col;
        if (is_accumulated != 0) {
            load(sums, to);
        }
        for (u64 slot = 0; slot < places.cols; slot++) {
            const i32 place = places.row(token)[slot];
            if (place < 0) {
                continue;
            }
            const f32 weight = weights.is_there() ? weights.row(token)[slot] : 1.0f;
            f32 terms[COUNT];
            load(terms, y.row((u64)place) + col);
#pragma unroll
            for (u32 i = 0; i < COUNT; i++) {
                sums[i] = fmaf(terms[i], weight, sums[i]);
            }
        }
        store(to, sums);
    }

    __device__ void run() const {
        const bool in_vectors = has_vectors<IN_ACCESS<E>>(y) && has_vectors<IN_ACCESS<E>>(out);
        for_each_vector<IN_ACCESS<E>>(out.rows, out.cols, in_vectors, *this);
    }
};

// Without a number of blocks, ptxas spills on sm_80 at 40 registers.
#define COMBINE_ROWS(NAME, E)                                                                                          \
    extern "C" __global__ void __launch_bounds__(256, 4)                                                               \
        NAME(Matrix<const E> y, Matrix<const f32> weights, Matrix<const i32> places, Matrix<E> out,                    \
             u32 is_accumulated) {                                                                                     \
        Combine<E>{y, weights, places, out, is_accumulated}.run();                                                     \
    }

COMBINE_ROWS(combine_rows_f32, f32)
COMBINE_ROWS(combine_rows_bf16, Bf16)
COMBINE_ROWS(combine_rows_f16, F16)
