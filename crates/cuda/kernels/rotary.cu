// Rotary positions: `cpu::rotary`.
#include "element.cuh"
#include "math.cuh"
#include "tensor.cuh"

// `config::RotaryScaling`; `launch::rotary` writes the same numbers.
constexpr u32 SCALING_OFF = 0;
constexpr u32 SCALING_LINEAR = 1;
constexpr u32 SCALING_LLAMA = 2;

constexpr f64 TAU = 6.28318530717958647692528676655900577;

// `low` and `high` are numbers of turns; those of YaRN, the last kind, are the last fast pair and the first slow one.
__device__ inline f64 scaled(u64 pair, f64 frequency, u32 kind, f32 factor, f32 low, f32 high, f64 original_context) {
    if (kind == SCALING_OFF) {
        return frequency;
    }
    if (kind == SCALING_LINEAR) {
        return frequency / (f64)factor;
    }
    const f64 place = kind == SCALING_LLAMA ? original_context * frequency / TAU : (f64)pair;
    const f64 share = (place - (f64)low) / ((f64)high - (f64)low);
    const f64 part = share < 0.0 ? 0.0 : share > 1.0 ? 1.0 : share;
    const f64 kept = kind == SCALING_LLAMA ? part : 1.0 - part;
    return frequency * (kept + (1.0 - kept) / (f64)factor);
}

// `cos[P, R/2]`, `sin[P, R/2]`: pairs along x, positions along y.
extern "C" __global__ void __launch_bounds__(128)
    rotary_table(Matrix<f32> cos, Matrix<f32> sin, f32 base, u32 kind, f32 factor, f32 low, f32 high,
                 f64 original_context, f32 magnitude) {
    const f64 log_base = math::log_f64((f64)base);
    for (u64 pair = global_thread(); pair < cos.cols; pair += grid_threads()) {
        const f64 exponent = -(f64)pair / (f64)cos.cols * log_base;
        const f64 frequency = scaled(pair, math::exp_f64(exponent), kind, factor, low, high, original_context);
        for (u64 position = (u64)blockIdx.y * blockDim.y + threadIdx.y; position < cos.rows;
             position += (u64)gridDim.y * blockDim.y) {
            const math::DoubleSinCos angle = math::sin_cos_f64((f64)position * frequency);
            cos.row(position)[pair] = (f32)(angle.cos * (f64)magnitude);
            sin.row(position)[pair] = (f32)(angle.sin * (f64)magnitude);
        }
    }
}

// Turns `x[T, heads * head_dim]` in place by `positions[T]`: pairs of all heads along x, tokens along y.
template <bool INTERLEAVED, typename E>
__device__ inline void rotary(Matrix<E> x, u64 head_dim, Matrix<const i32> positions, Matrix<const f32> cos,
                              Matrix<const f32> sin, f32 sign) {
    const u64 pairs = cos.cols;
    const u64 heads = x.cols / head_dim;
    for (u64 row = (u64)blockIdx.y * blockDim.y + threadIdx.y; row < x.rows; row += (u64)gridDim.y * blockDim.y) {
        const i32 position = positions.start[row];
        if (position < 0 || (u64)position >= cos.rows || (u64)position >= sin.rows) {
            __trap();
        }
        for (u64 index = global_thread(); index < heads * pairs; index += grid_threads()) {
            const u64 pair = index % pairs;
            E *head = x.row(row) + index / pairs * head_dim;
            E *first = INTERLEAVED ? head + 2 * pair : head + pair;
            E *second = INTERLEAVED ? first + 1 : first + pairs;
            const f32 a = widen(*first);
            const f32 b = widen(*second);
            const f32 cosine = cos.row(position)[pair];
            const f32 sine = sin.row(position)[pair] * sign;
            *first = narrow<E>(fmaf(a, cosine, -(b * sine)));
            *second = narrow<E>(fmaf(b, cosine, a * sine));
        }
    }
}

#define ROTARY(NAME, E, INTERLEAVED)                                                                                   \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        NAME(Matrix<E> x, u64 head_dim, Matrix<const i32> positions, Matrix<const f32> cos, Matrix<const f32> sin,     \
             f32 sign) {                                                                                               \
        rotary<INTERLEAVED>(x, head_dim, positions, cos, sin, sign);                                                   \
    }

ROTARY(rotary_half_f32, f32, false)
ROTARY(rotary_half_bf16, Bf16, false)
ROTARY(rotary_half_f16, F16, false)
ROTARY(rotary_interleaved_f32, f32, true)
ROTARY(rotary_interleaved_bf16, Bf16, true)
ROTARY(rotary_interleaved_f16, F16, true)
