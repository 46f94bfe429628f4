// Initial weights and AdamW, as `cpu::initialize` and `cpu::adamw`.

#include "element.cuh"
#include "math.cuh"
#include "philox.cuh"

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

// `out[rows, cols]` is the part of a parameter with `global_cols` columns that starts at global element `first`. A thread
// makes the four numbers of one random block.
template <typename Element>
__device__ void initialize_normal(Element* out, u64 row_stride, u32 rows, u32 cols, u64 first, u64 global_cols,
                                  philox::Key key, u64 parameter, f32 std) {
    for (u32 row = blockIdx.y; row < rows; row += gridDim.y) {
        const u64 first_of_row = first + row * global_cols;
        const u64 block = first_of_row / 4 + blockIdx.x * (u64)THREADS + threadIdx.x;
        if (4 * block >= first_of_row + cols) {
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
            if (element >= first_of_row && element < first_of_row + cols) {
                out[row * row_stride + (element - first_of_row)] = narrow<Element>(numbers[number]);
            }
        }
    }
}

#define INITIALIZE_NORMAL(NAME, ELEMENT)                                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                             \
    NAME(ELEMENT* out, u64 row_stride, u32 rows, u32 cols, u64 first, u64 global_cols, u64 key, u64 parameter, f32 std) { \
        initialize_normal(out, row_stride, rows, cols, first, global_cols, philox::key_of_seed(key), parameter, std);  \
    }
INITIALIZE_NORMAL(initialize_normal_f32, f32)
INITIALIZE_NORMAL(initialize_normal_bf16, Bf16)
INITIALIZE_NORMAL(initialize_normal_f16, F16)

// Scalars of an update, each rounded once by the host: `device::AdamWFactors`.
struct Factors {
    f32 keep;
    f32 beta1_kept;
    f32 beta1_new;
    f32 beta2_kept;
    f32 beta2_new;
    f32 step;
    f32 root_correction;
    f32 epsilon;
};

// What the updated parameter is copied to.
struct NoCopy {
    __device__ void operator()(u64, f32) const {}
};

template <typename Element>
struct CopyTo {
    Element* copy;
    __device__ void operator()(u64 i, f32 value) const {
        copy[i] = narrow<Element>(value);
    }
};

template <typename Copy>
__device__ void update(u64 len, f32* param, const f32* grad, f32* first_moment, f32* second_moment,
                       const f32* coefficient, const Factors& factors, Copy copy) {
    const u64 i = blockIdx.x * (u64)THREADS + threadIdx.x;
    if (i >= len) {
        return;
    }
    const f32 gradient = grad[i] * coefficient[0];
    const f32 first = fmaf(first_moment[i], factors.beta1_kept, factors.beta1_new * gradient);
    const f32 square = gradient * gradient;
    const f32 second = fmaf(second_moment[i], factors.beta2_kept, factors.beta2_new * square);
    const f32 denominator = fmaf(sqrtf(second), factors.root_correction, factors.epsilon);
    const f32 kept = param[i] * factors.keep;
    const f32 updated = fmaf(first / denominator, factors.step, kept);
    first_moment[i] = first;
    second_moment[i] = second;
    param[i] = updated;
    copy(i, updated);
}

extern "C" __global__ void __launch_bounds__(THREADS)
adamw(u64 len, f32* param, const f32* grad, f32* first_moment, f32* second_moment, const f32* coefficient,
      Factors factors) {
    update(len, param, grad, first_moment, second_moment, coefficient, factors, NoCopy());
}

#define ADAMW_WITH_COPY(NAME, ELEMENT)                                                                        \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                     \
    NAME(u64 len, f32* param, const f32* grad, f32* first_moment, f32* second_moment, const f32* coefficient, \
         Factors factors, ELEMENT* copy) {                                                                    \
        update(len, param, grad, first_moment, second_moment, coefficient, factors, CopyTo<ELEMENT>{copy});   \
    }
ADAMW_WITH_COPY(adamw_copy_f32, f32)
ADAMW_WITH_COPY(adamw_copy_bf16, Bf16)
ADAMW_WITH_COPY(adamw_copy_f16, F16)
