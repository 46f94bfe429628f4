// Initial weights, as `cpu::initialize`.

#include "element.cuh"
#include "math.cuh"
#include "philox.cuh"
#include "tensor.cuh"

constexpr u32 THREADS = 256;

struct Pair {
    f32 first;
    f32 second;
};

// Two independent normal numbers of two words.
__device__ inline Pair normal_pair(u32 uniform, u32 turn, f32 std) {
    const f32 radius = sqrtf(-2.0f * math::log(philox::open_closed(uniform))) * std;
    const math::SinCos angle = math::sin_cos_of_turn(turn);
    return {radius * angle.cos, radius * angle.sin};
}

// `out` is the part of a parameter with `global_cols` columns that starts at global element `first`. A thread
// makes the four numbers of one random block.
template <typename Element>
__device__ void initialize(Matrix<Element> out, u64 first, u64 global_cols, philox::Key key, u64 parameter, f32 std) {
    for (u64 row = blockIdx.y; row < out.rows; row += gridDim.y) {
        const u64 first_of_row = first + row * global_cols;
        const u64 block = first_of_row / 4 + blockIdx.x * (u64)THREADS + threadIdx.x;
        if (4 * block >= first_of_row + out.cols) {
            continue;
        }
        const philox::Words counter = {(u32)block, (u32)(block >> 32), (u32)parameter, (u32)(parameter >> 32)};
        const philox::Words words = philox::block(counter, key);
        const Pair low = normal_pair(words.word[0], words.word[1], std);
        const Pair high = normal_pair(words.word[2], words.word[3], std);
        const f32 numbers[4] = {low.first, low.second, high.first, high.second};
#pragma unroll
        for (u32 number = 0; number < 4; number++) {
            const u64 element = 4 * block + number;
            if (element >= first_of_row && element < first_of_row + out.cols) {
                out.row(row)[element - first_of_row] = narrow<Element>(numbers[number]);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
initialize_normal_f32(Matrix<f32> out, u64 first, u64 global_cols, philox::Key key, u64 parameter, f32 std) {
    initialize(out, first, global_cols, key, parameter, std);
}

extern "C" __global__ void __launch_bounds__(THREADS)
initialize_normal_bf16(Matrix<Bf16> out, u64 first, u64 global_cols, philox::Key key, u64 parameter, f32 std) {
    initialize(out, first, global_cols, key, parameter, std);
}

extern "C" __global__ void __launch_bounds__(THREADS)
initialize_normal_f16(Matrix<F16> out, u64 first, u64 global_cols, philox::Key key, u64 parameter, f32 std) {
    initialize(out, first, global_cols, key, parameter, std);
}
