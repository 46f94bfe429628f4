// Products of groups of rows of bf16 or fp16, each with a matrix of its own, in blocks.
#include "expert_groups.cuh"
#include "product_blocks_output.cuh"

template <typename E>
__device__ inline u32 bytes_of(Loading loading) {
    return loading == Loading::ROUNDED ? sizeof(f32) : sizeof(E);
}

__device__ inline u32 bytes_of(OutputType type) {
    return type == OutputType::SINGLE ? sizeof(f32) : sizeof(u16);
}

template <typename E>
__device__ inline Operand rows_of(Operand operand, u64 first, u64 count) {
    return {rows_of(operand.matrix, bytes_of<E>(operand.loading), first, count), operand.loading};
}

template <u32 SIDE>
__device__ inline ProductOutput<SIDE> rows_of(ProductOutput<SIDE> out, u64 first, u64 count) {
    return {out.bias, rows_of(out.matrix, bytes_of(out.type), first, count), out.type, out.is_accumulated};
}

// `out[R,N]` of `a[R,K]` and a matrix of each group, which have the rows of `b` between them. A block of threads has a
// tile of one group.
template <Along RIGHT, typename E, u32 SIDE>
__device__ inline void multiply_rows(Operand a, Operand b, ProductOutput<SIDE> out, const Groups &groups) {
    GroupTile tile;
    if (!find_tile<SIDE>(groups, blockIdx.x, tile)) {
        return;
    }
    const u64 of_group = b.matrix.rows / groups.count();
    const u64 count = tile.rows.count();
    multiply<Along::STEPS_IN_ROWS, RIGHT, E, SIDE>(
        rows_of<E>(a, tile.rows.first, count), rows_of<E>(b, tile.group * of_group, of_group),
        rows_of(out, tile.rows.first, count), {tile.first, blockIdx.y * SIDE});
}

// `out[G N,K]`: for each group the sum over its rows of `a[R,N]` and `b[R,K]`.
template <typename E, u32 SIDE>
__device__ inline void multiply_groups(Operand a, Operand b, ProductOutput<SIDE> out, const Groups &groups) {
    const u32 group = blockIdx.z;
    const RowRange rows = groups.rows(group);
    const u64 of_group = out.matrix.rows / groups.count();
    multiply<Along::LANES_IN_ROWS, Along::LANES_IN_ROWS, E, SIDE>(
        rows_of<E>(a, rows.first, rows.count()), rows_of<E>(b, rows.first, rows.count()),
        rows_of(out, group * of_group, of_group));
}

#define ROWS(NAME, RIGHT, E, SIDE)                                                                                     \
    extern "C" __global__ void __launch_bounds__(threads_of(SIDE))                                                     \
        NAME(AnyMatrix a, Loading a_loading, AnyMatrix b, Loading b_loading, AnyMatrix out, OutputType type,           \
             u32 is_accumulated, Matrix<const i32> offsets, Matrix<const i32> slots, SlotRange of_tokens) {            \
        const ProductOutput<SIDE> output = {{}, out, type, is_accumulated};                                            \
        multiply_rows<Along::RIGHT, E, SIDE>({a, a_loading}, {b, b_loading}, output, {offsets, slots, of_tokens});     \
    }

#define GROUPS(NAME, E, SIDE)                                                                                          \
    extern "C" __global__ void __launch_bounds__(threads_of(SIDE))                                                     \
        NAME(AnyMatrix a, Loading a_loading, AnyMatrix b, Loading b_loading, AnyMatrix out, OutputType type,           \
             u32 is_accumulated, Matrix<const i32> offsets, Matrix<const i32> slots, SlotRange of_tokens) {            \
        const ProductOutput<SIDE> output = {{}, out, type, is_accumulated};                                            \
        multiply_groups<E, SIDE>({a, a_loading}, {b, b_loading}, output, {offsets, slots, of_tokens});                 \
    }

// `out[R,N] = a[R,K] b[G N,K]^T`
ROWS(expert_mat_mul_blocks_nt_bf16_128, STEPS_IN_ROWS, Bf16, 128)
ROWS(expert_mat_mul_blocks_nt_bf16_64, STEPS_IN_ROWS, Bf16, 64)
ROWS(expert_mat_mul_blocks_nt_f16_128, STEPS_IN_ROWS, F16, 128)
ROWS(expert_mat_mul_blocks_nt_f16_64, STEPS_IN_ROWS, F16, 64)

// `out[R,N] = a[R,K] b[G K,N]`
ROWS(expert_mat_mul_blocks_nn_bf16_128, LANES_IN_ROWS, Bf16, 128)
ROWS(expert_mat_mul_blocks_nn_bf16_64, LANES_IN_ROWS, Bf16, 64)
ROWS(expert_mat_mul_blocks_nn_f16_128, LANES_IN_ROWS, F16, 128)
ROWS(expert_mat_mul_blocks_nn_f16_64, LANES_IN_ROWS, F16, 64)

// `out[G N,K] = a[R,N]^T b[R,K]`
GROUPS(expert_mat_mul_blocks_tn_bf16_128, Bf16, 128)
GROUPS(expert_mat_mul_blocks_tn_bf16_64, Bf16, 64)
GROUPS(expert_mat_mul_blocks_tn_f16_128, F16, 128)
GROUPS(expert_mat_mul_blocks_tn_f16_64, F16, 64)
