// Rotary positions: `cpu::rotary`.
#include "math.cuh"
#include "vectors.cuh"

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

// Turns neighbouring pairs `(a, b)`.
template <u32 PAIRS>
__device__ inline void turn(f32 (&a)[PAIRS], f32 (&b)[PAIRS], const f32 *cosines, const f32 *sines, f32 sign) {
    f32 cosine[PAIRS];
    f32 sine[PAIRS];
    load(cosine, cosines);
    load(sine, sines);
#pragma unroll
    for (u32 i = 0; i < PAIRS; i++) {
        const f32 first = a[i];
        const f32 second = b[i];
        const f32 signed_sine = sine[i] * sign;
        a[i] = fmaf(first, cosine[i], -(second * signed_sine));
        b[i] = fmaf(second, cosine[i], first * signed_sine);
    }
}

// Pairs of elements that are `pairs` apart.
template <u32 PAIRS>
struct Half {
    template <typename E>
    __device__ static void at(E *head, u64 pair, u64 pairs, const f32 *cosines, const f32 *sines, f32 sign) {
        f32 a[PAIRS];
        f32 b[PAIRS];
        load(a, head + pair);
        load(b, head + pair + pairs);
        turn(a, b, cosines + pair, sines + pair, sign);
        store(head + pair, a);
        store(head + pair + pairs, b);
    }
};

// Pairs of neighbours.
template <u32 PAIRS>
struct Interleaved {
    template <typename E>
    __device__ static void at(E *head, u64 pair, u64, const f32 *cosines, const f32 *sines, f32 sign) {
        f32 a[PAIRS];
        f32 b[PAIRS];
        f32 both[2 * PAIRS];
        load(both, head + 2 * pair);
#pragma unroll
        for (u32 i = 0; i < PAIRS; i++) {
            a[i] = both[2 * i];
            b[i] = both[2 * i + 1];
        }
        turn(a, b, cosines + pair, sines + pair, sign);
#pragma unroll
        for (u32 i = 0; i < PAIRS; i++) {
            both[2 * i] = a[i];
            both[2 * i + 1] = b[i];
        }
        store(head + 2 * pair, both);
    }
};

// Turns `x[T, heads * head_dim]` in place by `positions[T]`: `PAIRS` pairs at a time, those of all heads along x,
// tokens along y.
template <u32 PAIRS, typename Pairing, typename E>
__device__ inline void rotary(Matrix<E> x, u64 head_dim, Matrix<const i32> positions, Matrix<const f32> cos,
                              Matrix<const f32> sin, f32 sign) {
    const u32 of_head = (u32)cos.cols / PAIRS;
    const u32 of_row = (u32)(x.cols / head_dim) * of_head;
    for (u64 row = (u64)blockIdx.y * blockDim.y + threadIdx.y; row < x.rows; row += (u64)gridDim.y * blockDim.y) {
        const i32 position = positions.start[row];
        if (position < 0 || (u64)position >= cos.rows || (u64)position >= sin.rows) {
            __trap();
        }
        for (u32 index = (u32)global_thread(); index < of_row; index += (u32)grid_threads()) {
            E *head = x.row(row) + index / of_head * head_dim;
            const u64 pair = index % of_head * PAIRS;
            Pairing::at(head, pair, cos.cols, cos.row(position), sin.row(position), sign);
        }
    }
}

// A thread has `count` pairs: one, or those of two accesses of 16 bytes of bf16 or fp16 values, or of one where pairs
// are neighbours.
#define ROTARY(NAME, E, PAIRING, PAIRS)                                                                                \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        NAME(Matrix<E> x, u64 head_dim, Matrix<const i32> positions, Matrix<const f32> cos, Matrix<const f32> sin,     \
             f32 sign, u32 count) {                                                                                    \
        if (count == 1) {                                                                                              \
            rotary<1, PAIRING<1>>(x, head_dim, positions, cos, sin, sign);                                             \
        } else {                                                                                                       \
            rotary<PAIRS, PAIRING<PAIRS>>(x, head_dim, positions, cos, sin, sign);                                     \
        }                                                                                                              \
    }

ROTARY(rotary_half_f32, f32, Half, EIGHT)
ROTARY(rotary_half_bf16, Bf16, Half, EIGHT)
ROTARY(rotary_half_f16, F16, Half, EIGHT)
ROTARY(rotary_interleaved_f32, f32, Interleaved, FOUR)
ROTARY(rotary_interleaved_bf16, Bf16, Interleaved, FOUR)
ROTARY(rotary_interleaved_f16, F16, Interleaved, FOUR)
