// Rows of a table that is sharded by rows: `cpu::embedding`.
#include "vectors.cuh"

constexpr u32 WHOLE_WARP = 0xffffffffu;
// Tokens that a block looks at together, one to a thread.
constexpr u32 WINDOW = 256;
constexpr u32 WARP = 32;

// The local row of `token`, or `rows` or more where another rank has it.
__device__ inline u64 local_row(i32 token, u64 first_row) {
    return token < 0 ? ~0ull : (u64)token - first_row;
}

// `out[T,D]` = or += `table[token - first_row]`, zeros for tokens of other ranks.
template <typename E>
struct Lookup {
    Matrix<const i32> tokens;
    Matrix<const E> table;
    u64 first_row;
    Matrix<E> out;
    u32 is_accumulated;

    template <u32 COUNT>
    __device__ void at(u64 row, u64 col) const {
        const u64 local = local_row(tokens.start[row], first_row);
        f32 values[COUNT] = {};
        if (local < table.rows) {
            load(values, table.row(local) + col);
        } else if (is_accumulated != 0) {
            return;
        }
        E *to = out.row(row) + col;
        if (is_accumulated != 0) {
            f32 sums[COUNT];
            load(sums, to);
#pragma unroll
            for (u32 i = 0; i < COUNT; i++) {
                values[i] = sums[i] + values[i];
            }
        }
        store(to, values);
    }

    __device__ void run() const {
        const bool in_vectors = has_vectors<IN_ACCESS<E>>(table) && has_vectors<IN_ACCESS<E>>(out);
        for_each_vector<IN_ACCESS<E>>(out.rows, out.cols, in_vectors, *this);
    }
};

// Without a number of blocks, ptxas spills on sm_100a at 40 registers.
#define EMBEDDING_LOOKUP(NAME, E)                                                                                      \
    extern "C" __global__ void __launch_bounds__(256, 4)                                                               \
        NAME(Matrix<const i32> tokens, Matrix<const E> table, u64 first_row, Matrix<E> out, u32 is_accumulated) {      \
        Lookup<E>{tokens, table, first_row, out, is_accumulated}.run();                                                \
    }

EMBEDDING_LOOKUP(embedding_lookup_f32, f32)
EMBEDDING_LOOKUP(embedding_lookup_bf16, Bf16)
EMBEDDING_LOOKUP(embedding_lookup_f16, F16)

// A token of this rank in a window.
struct Found {
    u32 place;
    u32 row;
};

// `dtable[token - first_row] += scale * dy[T,D]` in ascending order of the tokens' places, but for the token
// `untrained`.
//
// A block has every `gridDim.y`-th row of the table and 256 of its columns: it reads all tokens in order, a window at a
// time, lists those of its rows in order, and adds their gradients one after the other. So each element of the table is
// one thread's.
template <typename E>
__device__ inline void embedding_backward(Matrix<const i32> tokens, Matrix<const E> dy, f32 scale, u64 first_row,
                                          i32 untrained, Matrix<f32> dtable) {
    __shared__ Found found[WINDOW];
    __shared__ u32 counts[WINDOW / WARP];
    const u32 warp = threadIdx.x / WARP;
    const u32 lane = threadIdx.x % WARP;
    const u64 col = global_thread();
    const u64 count = tokens.cols * tokens.rows;
    for (u64 first = 0; first < count; first += WINDOW) {
        const u64 place = first + threadIdx.x;
        const i32 token = place < count ? tokens.start[place] : -1;
        const u64 local = local_row(token, first_row);
        const bool is_ours = local < dtable.rows && token != untrained && local % gridDim.y == blockIdx.y;
        const u32 votes = __ballot_sync(WHOLE_WARP, is_ours);
        if (lane == 0) {
            counts[warp] = __popc(votes);
        }
        __syncthreads();
        u32 before = __popc(votes & ((1u << lane) - 1));
        u32 all = 0;
        for (u32 w = 0; w < WINDOW / WARP; w++) {
            before += w < warp ? counts[w] : 0;
            all += counts[w];
        }
        if (is_ours) {
            found[before] = {threadIdx.x, (u32)local};
        }
        __syncthreads();
        if (col < dtable.cols) {
            for (u32 index = 0; index < all; index++) {
                f32 *into = dtable.row(found[index].row) + col;
                *into = fmaf(widen(dy.row(first + found[index].place)[col]), scale, *into);
            }
        }
    }
}

#define EMBEDDING_BACKWARD(NAME, E)                                                                                    \
    extern "C" __global__ void __launch_bounds__(WINDOW)                                                               \
        NAME(Matrix<const i32> tokens, Matrix<const E> dy, f32 scale, u64 first_row, i32 untrained,                    \
             Matrix<f32> dtable) {                                                                                     \
        embedding_backward(tokens, dy, scale, first_row, untrained, dtable);                                           \
    }

EMBEDDING_BACKWARD(embedding_backward_f32, f32)
EMBEDDING_BACKWARD(embedding_backward_bf16, Bf16)
EMBEDDING_BACKWARD(embedding_backward_f16, F16)
