// Products of matrices in chains: `cpu::gemm` has the order. K is cut into blocks of 256 steps; a block's sum is one
// chain of fused multiply-adds from zero; the first block's sum is assigned or added to what was there, the others are
// added in order, and a bias is added at the end.
//
// A block of threads computes a square tile of the output, 16 x 16 threads with SIDE / 16 rows and columns each. Steps
// are staged in shared memory 16 at a time, twice: while one stage is multiplied, the next one is on its way in
// registers.
//
// Operands and the output are of any type of real numbers each: they are widened on their way into shared memory, all
// sums are in f32, and an element of the output is rounded once.
#pragma once

#include "element.cuh"
#include "tensor.cuh"

constexpr u32 K_BLOCK = 256;
// Steps of a stage.
constexpr u32 STEPS = 16;
// Threads along a side of the tile, and all.
constexpr u32 THREADS_OF_SIDE = 16;
constexpr u32 THREADS = THREADS_OF_SIDE * THREADS_OF_SIDE;
// Rows, or columns, that a thread reads at once.
constexpr u32 VECTOR = 4;

// A type of real numbers in memory: the number that `launch::mat_mul` gives.
enum class Type : u32 { F32, BF16, F16 };

// The types of a product; a bias is of the output's.
struct Types {
    Type a;
    Type b;
    Type out;
};

// A matrix of any type.
using Any = Matrix<const void>;

// The layout of an operand in memory: its steps along a row, or its rows (of the left operand) or columns (of the right
// one) along a row.
enum class Along { STEPS_IN_ROWS, LANES_IN_ROWS };

// A strip of an operand: `SIDE` lanes, which are rows of the left operand or columns of the right one, and all of its
// steps.
template <Along ALONG, u32 SIDE>
struct Strip {
    static constexpr u32 PER_THREAD = SIDE * STEPS / THREADS;

    // Room between steps, so that lanes of one step of threads that store together are in different banks.
    static constexpr u32 PITCH = SIDE + VECTOR;

    // The first element of this thread's part of the stage that is loaded next.
    const void *next;
    Type type;
    u64 stride;
    // Lanes that exist, at most those of the strip.
    u32 lanes;
    // Steps that are not loaded yet.
    u64 steps_left;
    // The value of steps past the last.
    f32 padding;
    f32 staged[PER_THREAD];

    __device__ Strip(Any matrix, Type type_, u64 first_lane, f32 padding_) {
        constexpr bool IN_ROWS = ALONG == Along::STEPS_IN_ROWS;
        type = type_;
        stride = matrix.stride;
        padding = padding_;
        const u64 lanes_left = (IN_ROWS ? matrix.rows : matrix.cols) - first_lane;
        lanes = lanes_left < SIDE ? (u32)lanes_left : SIDE;
        steps_left = IN_ROWS ? matrix.cols : matrix.rows;
        const u64 lane = first_lane + lane_of(0);
        const u64 first = IN_ROWS ? lane * stride + step_of(0) : step_of(0) * stride + lane;
        next = (const char *)matrix.start + first * (type == Type::F32 ? sizeof(f32) : sizeof(u16));
    }

    __device__ static u32 lane_of(u32 index) {
        return ALONG == Along::STEPS_IN_ROWS ? threadIdx.x / STEPS + index * (THREADS / STEPS) : threadIdx.x % SIDE;
    }

    __device__ static u32 step_of(u32 index) {
        return ALONG == Along::STEPS_IN_ROWS ? threadIdx.x % STEPS : threadIdx.x / SIDE + index * (THREADS / SIDE);
    }

    // Reads this thread's part of the next stage.
    __device__ void load() {
        if (type == Type::F32) {
            load_as<f32>();
        } else if (type == Type::BF16) {
            load_as<Bf16>();
        } else {
            load_as<F16>();
        }
    }

    template <typename E>
    __device__ void load_as() {
        const u32 steps = steps_left < STEPS ? (u32)steps_left : STEPS;
        constexpr bool IN_ROWS = ALONG == Along::STEPS_IN_ROWS;
        // Elements of this thread are as many rows apart as threads cover at once.
        const u64 apart = (IN_ROWS ? THREADS / STEPS : THREADS / SIDE) * stride;
        const E *from = (const E *)next;
#pragma unroll
        for (u32 index = 0; index < PER_THREAD; index++) {
            const bool is_inside = lane_of(index) < lanes && step_of(index) < steps;
            staged[index] = is_inside ? widen(from[index * apart]) : padding;
        }
        next = from + (IN_ROWS ? STEPS : STEPS * stride);
        steps_left -= steps;
    }

    __device__ void store(f32 (&stage)[STEPS][PITCH]) const {
#pragma unroll
        for (u32 index = 0; index < PER_THREAD; index++) {
            stage[step_of(index)][lane_of(index)] = staged[index];
        }
    }
};

// The part of a step that a thread multiplies: `SIDE / 16` lanes in pieces of four that are `64` lanes apart.
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

// The elements of the output that a thread computes: `PER_SIDE` rows and columns from the first on.
template <u32 PER_SIDE>
struct Outputs {
    Matrix<void> matrix;
    Type type;
    u64 row;
    u64 col;
    // From the first on; none or fewer where the first is outside.
    i64 rows_left;
    i64 cols_left;

    __device__ Outputs(Matrix<void> matrix_, Type type_, u64 row_, u64 col_)
        : matrix(matrix_), type(type_), row(row_), col(col_), rows_left((i64)(matrix_.rows - row_)),
          cols_left((i64)(matrix_.cols - col_)) {}

    __device__ bool has(u32 index_of_row, u32 index_of_col) const {
        return lanes_behind(index_of_row) < rows_left && lanes_behind(index_of_col) < cols_left;
    }

    template <typename E>
    __device__ E *row_of(u32 index) const {
        return (E *)matrix.start + (row + lanes_behind(index)) * matrix.stride + col;
    }

    template <typename E>
    __device__ void load_as(f32 (&totals)[PER_SIDE][PER_SIDE]) const {
#pragma unroll
        for (u32 row = 0; row < PER_SIDE; row++) {
            const E *from = row_of<E>(row);
#pragma unroll
            for (u32 col = 0; col < PER_SIDE; col++) {
                totals[row][col] = has(row, col) ? widen(from[lanes_behind(col)]) : 0.0f;
            }
        }
    }

    __device__ void load(f32 (&totals)[PER_SIDE][PER_SIDE]) const {
        if (type == Type::F32) {
            load_as<f32>(totals);
        } else if (type == Type::BF16) {
            load_as<Bf16>(totals);
        } else {
            load_as<F16>(totals);
        }
    }

    template <typename E>
    __device__ void store_as(const f32 (&totals)[PER_SIDE][PER_SIDE], Any bias) const {
        const E *biases = (const E *)bias.start + col;
#pragma unroll
        for (u32 row = 0; row < PER_SIDE; row++) {
            E *to = row_of<E>(row);
#pragma unroll
            for (u32 col = 0; col < PER_SIDE; col++) {
                if (has(row, col)) {
                    const f32 total = totals[row][col];
                    to[lanes_behind(col)] =
                        narrow<E>(bias.is_there() ? total + widen(biases[lanes_behind(col)]) : total);
                }
            }
        }
    }

    // Stores the sums plus the bias, if there is one.
    __device__ void store(const f32 (&totals)[PER_SIDE][PER_SIDE], Any bias) const {
        if (type == Type::F32) {
            store_as<f32>(totals, bias);
        } else if (type == Type::BF16) {
            store_as<Bf16>(totals, bias);
        } else {
            store_as<F16>(totals, bias);
        }
    }
};

// The first row and column of a tile.
struct TileStart {
    u64 row;
    u64 col;
};

// Multiplies the rows and columns of a tile.
template <Along LEFT, Along RIGHT, u32 SIDE>
__device__ inline void multiply(Types types, Any a, Any b, Any bias, Matrix<void> out, u32 is_accumulated,
                                TileStart tile) {
    constexpr u32 PER_SIDE = SIDE / THREADS_OF_SIDE;
    using Left = Strip<LEFT, SIDE>;
    using Right = Strip<RIGHT, SIDE>;
    __shared__ __align__(16) f32 left_stages[2][STEPS][Left::PITCH];
    __shared__ __align__(16) f32 right_stages[2][STEPS][Right::PITCH];
    const u32 thread_row = threadIdx.x / THREADS_OF_SIDE;
    const u32 thread_col = threadIdx.x % THREADS_OF_SIDE;
    // Steps past the last add -0 * 0 = -0, which changes no sum, -0 included.
    Left left(a, types.a, tile.row, -0.0f);
    Right right(b, types.b, tile.col, 0.0f);
    const u64 steps = left.steps_left;

    const Outputs<PER_SIDE> outputs(out, types.out, tile.row + thread_row * VECTOR, tile.col + thread_col * VECTOR);
    f32 totals[PER_SIDE][PER_SIDE];
    if (is_accumulated != 0) {
        outputs.load(totals);
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
    outputs.store(totals, bias);
}
