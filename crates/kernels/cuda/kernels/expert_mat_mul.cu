// Products of groups of rows, each with a matrix of its own, in chains.
#include "expert_groups.cuh"
#include "product_chains.cuh"

__device__ inline u32 bytes_of(Type type) {
    return type == Type::F32 ? sizeof(f32) : sizeof(u16);
}

// `out[R,N]` of `a[R,K]` and a matrix of each group, which have the rows of `b` between them. A block of threads has a
// tile of one group.
template <Along RIGHT, u32 SIDE>
__device__ inline void multiply_rows(Types types, Any a, Any b, Matrix<void> out, u32 is_accumulated,
                                     const Groups &groups) {
    GroupTile tile;
    if (!find_tile<SIDE>(groups, blockIdx.x, tile)) {
        return;
    }
    const u64 of_group = b.rows / groups.count();
    const u64 count = tile.rows.count();
    multiply<Along::STEPS_IN_ROWS, RIGHT, SIDE>(
        types, rows_of(a, bytes_of(types.a), tile.rows.first, count),
        rows_of(b, bytes_of(types.b), tile.group * of_group, of_group), {},
        rows_of(out, bytes_of(types.out), tile.rows.first, count), is_accumulated,
        {tile.first, (u64)blockIdx.y * SIDE});
}

// `out[G N,K]`: for each group the sum over its rows of `a[R,N]` and `b[R,K]`.
template <u32 SIDE>
__device__ inline void multiply_groups(Types types, Any a, Any b, Matrix<void> out, u32 is_accumulated,
                                       const Groups &groups) {
    const u32 group = blockIdx.z;
    const RowRange rows = groups.rows(group);
    const u64 of_group = out.rows / groups.count();
    multiply<Along::LANES_IN_ROWS, Along::LANES_IN_ROWS, SIDE>(
        types, rows_of(a, bytes_of(types.a), rows.first, rows.count()),
        rows_of(b, bytes_of(types.b), rows.first, rows.count()), {},
        rows_of(out, bytes_of(types.out), group * of_group, of_group), is_accumulated,
        {(u64)blockIdx.x * SIDE, (u64)blockIdx.y * SIDE});
}

#define ROWS(NAME, RIGHT, SIDE)                                                                                        \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                              \
        NAME(Types types, Any a, Any b, Matrix<void> out, u32 is_accumulated, Matrix<const i32> offsets,               \
             Matrix<const i32> slots, SlotRange of_tokens) {                                                           \
        multiply_rows<Along::RIGHT, SIDE>(types, a, b, out, is_accumulated, {offsets, slots, of_tokens});              \
    }

#define GROUPS(NAME, SIDE)                                                                                             \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                              \
        NAME(Types types, Any a, Any b, Matrix<void> out, u32 is_accumulated, Matrix<const i32> offsets,               \
             Matrix<const i32> slots, SlotRange of_tokens) {                                                           \
        multiply_groups<SIDE>(types, a, b, out, is_accumulated, {offsets, slots, of_tokens});                          \
    }

// `out[R,N] = a[R,K] b[G N,K]^T`
ROWS(expert_mat_mul_nt_128, STEPS_IN_ROWS, 128)
ROWS(expert_mat_mul_nt_64, STEPS_IN_ROWS, 64)

// `out[R,N] = a[R,K] b[G K,N]`
ROWS(expert_mat_mul_nn_128, LANES_IN_ROWS, 128)
ROWS(expert_mat_mul_nn_64, LANES_IN_ROWS, 64)

// `out[G N,K] = a[R,N]^T b[R,K]`
GROUPS(expert_mat_mul_tn_128, 128)
GROUPS(expert_mat_mul_tn_64, 64)
