// Products of matrices in chains: `cpu::gemm` has the order. K is cut into blocks of 256 steps; a block's sum is one
// chain of fused multiply-adds from zero; the first block's sum is assigned or added to what was there, the others are
// added in order, and a bias is added at the end.
//
// A block of threads computes a square tile of the output, 16 x 16 threads with SIDE / 16 rows and columns each. Steps
// are staged in shared memory 16 at a time, twice: while one stage is multiplied, the next one is on its way in
// registers.
#include "tensor.cuh"

constexpr u32 K_BLOCK = 256;
// Steps of a stage.
constexpr u32 STEPS = 16;
// Threads along a side of the tile, and all.
constexpr u32 THREADS_OF_SIDE = 16;
constexpr u32 THREADS = THREADS_OF_SIDE * THREADS_OF_SIDE;
// Rows, or columns, that a thread reads at once.
constexpr u32 VECTOR = 4;

// How an operand lies in memory: its steps along a row, or its rows (of the left operand) or columns (of the right one)
// along a row.
enum class Along { STEPS_IN_ROWS, LANES_IN_ROWS };

// A strip of an operand: `SIDE` lanes, which are rows of the left operand or columns of the right one, and all of its
// steps.
template <Along ALONG, u32 SIDE>
struct Strip {
    static constexpr u32 PER_THREAD = SIDE * STEPS / THREADS;

    // Room between steps, so that lanes of one step of threads that store together lie in different banks.
    static constexpr u32 PITCH = SIDE + VECTOR;

    // The first element of this thread's part of the stage that is loaded next.
    const f32 *next;
    u64 stride;
    // Lanes that exist, at most those of the strip.
    u32 lanes;
    // Steps that are not loaded yet.
    u64 steps_left;
    // What stands for steps behind the last.
    f32 padding;
    f32 staged[PER_THREAD];

    __device__ Strip(Matrix<const f32> matrix, u64 first_lane, f32 padding_) {
        constexpr bool IN_ROWS = ALONG == Along::STEPS_IN_ROWS;
        stride = matrix.stride;
        padding = padding_;
        const u64 lanes_left = (IN_ROWS ? matrix.rows : matrix.cols) - first_lane;
        lanes = lanes_left < SIDE ? (u32)lanes_left : SIDE;
        steps_left = IN_ROWS ? matrix.cols : matrix.rows;
        const u64 lane = first_lane + lane_of(0);
        next = matrix.start + (IN_ROWS ? lane * stride + step_of(0) : step_of(0) * stride + lane);
    }

    __device__ static u32 lane_of(u32 index) {
        return ALONG == Along::STEPS_IN_ROWS ? threadIdx.x / STEPS + index * (THREADS / STEPS) : threadIdx.x % SIDE;
    }

    __device__ static u32 step_of(u32 index) {
        return ALONG == Along::STEPS_IN_ROWS ? threadIdx.x % STEPS : threadIdx.x / SIDE + index * (THREADS / SIDE);
    }

    // Reads this thread's part of the next stage.
    __device__ void load() {
        const u32 steps = steps_left < STEPS ? (u32)steps_left : STEPS;
        constexpr bool IN_ROWS = ALONG == Along::STEPS_IN_ROWS;
        // Elements of this thread lie as many rows apart as threads cover at once.
        const u64 apart = (IN_ROWS ? THREADS / STEPS : THREADS / SIDE) * stride;
#pragma unroll
        for (u32 index = 0; index < PER_THREAD; index++) {
            const bool is_inside = lane_of(index) < lanes && step_of(index) < steps;
            staged[index] = is_inside ? next[index * apart] : padding;
        }
        next += IN_ROWS ? STEPS : STEPS * stride;
        steps_left -= steps;
    }

    __device__ void store(f32 (&stage)[STEPS][PITCH]) const {
#pragma unroll
        for (u32 index = 0; index < PER_THREAD; index++) {
            stage[step_of(index)][lane_of(index)] = staged[index];
        }
    }
};

// The part of a step that a thread multiplies: `SIDE / 16` lanes in pieces of four that lie `64` lanes apart.
template <u32 SIDE>
__device__ inline void read_lanes(const f32 *step, u32 thread, f32 (&into)[SIDE / THREADS_OF_SIDE]) {
#pragma unroll
    for (u32 piece = 0; piece < SIDE / THREADS_OF_SIDE / VECTOR; piece++) {
        const float4 four = *reinterpret_cast<const float4 *>(step + (piece * THREADS_OF_SIDE + thread) * VECTOR);
        into[piece * VECTOR] = four.x;
        into[piece * VECTOR + 1] = four.y;
        into[piece * VECTOR + 2] = four.z;
        into[piece * VECTOR + 3] = four.w;
    }
}

// The lanes of the tile between a thread's first and the one with number `index`.
__device__ constexpr u32 lanes_behind(u32 index) {
    return index / VECTOR * THREADS_OF_SIDE * VECTOR + index % VECTOR;
}

template <Along LEFT, Along RIGHT, u32 SIDE>
__device__ inline void multiply(Matrix<const f32> a, Matrix<const f32> b, Matrix<const f32> bias, Matrix<f32> out,
                                u32 is_accumulated) {
    constexpr u32 PER_SIDE = SIDE / THREADS_OF_SIDE;
    using Left = Strip<LEFT, SIDE>;
    using Right = Strip<RIGHT, SIDE>;
    __shared__ __align__(16) f32 left_stages[2][STEPS][Left::PITCH];
    __shared__ __align__(16) f32 right_stages[2][STEPS][Right::PITCH];
    const u64 first_row = (u64)blockIdx.x * SIDE;
    const u64 first_col = (u64)blockIdx.y * SIDE;
    const u32 thread_row = threadIdx.x / THREADS_OF_SIDE;
    const u32 thread_col = threadIdx.x % THREADS_OF_SIDE;
    // Steps behind the last add -0 * 0 = -0, which changes no sum, -0 included.
    Left left(a, first_row, -0.0f);
    Right right(b, first_col, 0.0f);
    const u64 steps = left.steps_left;

    // This thread's first row and column, and how many there are from them on.
    const u64 row_of_thread = first_row + thread_row * VECTOR;
    const u64 col_of_thread = first_col + thread_col * VECTOR;
    const i64 rows_left = (i64)(out.rows - row_of_thread);
    const i64 cols_left = (i64)(out.cols - col_of_thread);
    f32 *tile = out.row(row_of_thread) + col_of_thread;

    f32 totals[PER_SIDE][PER_SIDE];
    if (is_accumulated != 0) {
#pragma unroll
        for (u32 row = 0; row < PER_SIDE; row++) {
            const f32 *from = tile + lanes_behind(row) * out.stride;
#pragma unroll
            for (u32 col = 0; col < PER_SIDE; col++) {
                const bool is_inside = lanes_behind(row) < rows_left && lanes_behind(col) < cols_left;
                totals[row][col] = is_inside ? from[lanes_behind(col)] : 0.0f;
            }
        }
    }

    left.load();
    right.load();
    left.store(left_stages[0]);
    right.store(right_stages[0]);
    __syncthreads();
    u32 current = 0;
    bool is_assigned = is_accumulated == 0;
    u64 block = 0;
    do {
        f32 sums[PER_SIDE][PER_SIDE] = {};
        const u64 end = block + K_BLOCK < steps ? block + K_BLOCK : steps;
        for (u64 step = block; step < end; step += STEPS) {
            const bool is_last = step + STEPS >= steps;
            if (!is_last) {
                left.load();
                right.load();
            }
#pragma unroll
            for (u32 k = 0; k < STEPS; k++) {
                f32 rows[PER_SIDE];
                f32 cols[PER_SIDE];
                read_lanes<SIDE>(left_stages[current][k], thread_row, rows);
                read_lanes<SIDE>(right_stages[current][k], thread_col, cols);
#pragma unroll
                for (u32 row = 0; row < PER_SIDE; row++) {
#pragma unroll
                    for (u32 col = 0; col < PER_SIDE; col++) {
                        sums[row][col] = fmaf(rows[row], cols[col], sums[row][col]);
                    }
                }
            }
            if (!is_last) {
                current ^= 1;
                left.store(left_stages[current]);
                right.store(right_stages[current]);
                __syncthreads();
            }
        }
#pragma unroll
        for (u32 row = 0; row < PER_SIDE; row++) {
#pragma unroll
            for (u32 col = 0; col < PER_SIDE; col++) {
                totals[row][col] = is_assigned ? sums[row][col] : totals[row][col] + sums[row][col];
            }
        }
        is_assigned = false;
        block += K_BLOCK;
    } while (block < steps);

#pragma unroll
    for (u32 row = 0; row < PER_SIDE; row++) {
        f32 *to = tile + lanes_behind(row) * out.stride;
#pragma unroll
        for (u32 col = 0; col < PER_SIDE; col++) {
            if (lanes_behind(row) < rows_left && lanes_behind(col) < cols_left) {
                const f32 total = totals[row][col];
                to[lanes_behind(col)] = bias.is_there() ? total + bias.start[col_of_thread + lanes_behind(col)] : total;
            }
        }
    }
}

// A kernel for operands that lie so, with tiles of `SIDE` rows and columns.
#define MAT_MUL(NAME, LEFT, RIGHT, SIDE)                                                                               \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                              \
        NAME(Matrix<const f32> a, Matrix<const f32> b, Matrix<const f32> bias, Matrix<f32> out, u32 is_accumulated) {  \
        multiply<Along::LEFT, Along::RIGHT, SIDE>(a, b, bias, out, is_accumulated);                                    \
    }

// `out[M,N] = a[M,K] b[N,K]^T`
MAT_MUL(mat_mul_nt_128, STEPS_IN_ROWS, STEPS_IN_ROWS, 128)
MAT_MUL(mat_mul_nt_64, STEPS_IN_ROWS, STEPS_IN_ROWS, 64)

// `out[M,N] = a[M,K] b[K,N]`
MAT_MUL(mat_mul_nn_128, STEPS_IN_ROWS, LANES_IN_ROWS, 128)
MAT_MUL(mat_mul_nn_64, STEPS_IN_ROWS, LANES_IN_ROWS, 64)

// `out[M,N] = a[K,M]^T b[K,N]`
MAT_MUL(mat_mul_tn_128, LANES_IN_ROWS, LANES_IN_ROWS, 128)
MAT_MUL(mat_mul_tn_64, LANES_IN_ROWS, LANES_IN_ROWS, 64)
