// Rows of a table that is sharded by rows: `cpu::embedding`.
#include "element.cuh"
#include "elements.cuh"

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
__device__ inline void embedding_lookup(Matrix<const i32> tokens, Matrix<const E> table, u64 first_row, Matrix<E> out,
                                        u32 is_accumulated) {
    for_each_element(out.rows, out.cols, [&](u64 row, u64 col) {
        const u64 local = local_row(tokens.start[row], first_row);
        E *to = out.row(row) + col;
        if (local < table.rows) {
            const E value = table.row(local)[col];
            *to = is_accumulated != 0 ? narrow<E>(widen(*to) + widen(value)) : value;
        } else if (is_accumulated == 0) {
            *to = narrow<E>(0.0f);
        }
    });
}

#define EMBEDDING_LOOKUP(NAME, E)                                                                                      \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        NAME(Matrix<const i32> tokens, Matrix<const E> table, u64 first_row, Matrix<E> out, u32 is_accumulated) {      \
        embedding_lookup(tokens, table, first_row, out, is_accumulated);                                               \
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
