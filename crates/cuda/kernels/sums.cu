// Sums of a step as integers, which associate: as `cpu::squared_sum`, `cpu::loss_sum`, `cpu::clip_coefficient` and
// `cpu::rounded_sum`. Atomic additions are of integers, so their order changes no bit.

#include "fixed_point.cuh"
#include "row_sum.cuh"

constexpr u32 THREADS = 256;
constexpr u32 SHARD_BLOCK = 4096;
constexpr i32 IGNORED_LABEL = -100;

// Adds the sum of squares of `x[len] / loss_scale` to `sums`. Blocks of 4,096 elements are counted from the start of the
// flat buffer, in which `x` begins at `offset` of a block; sixteen threads take one, each a lane of f64.
extern "C" __global__ void __launch_bounds__(THREADS)
squared_sum(const f32* x, u64 len, u32 offset, f64 squared_loss_scale, i64* sums) {
    constexpr u32 PLACES = THREADS / LANES;
    __shared__ i64 words[PLACES][fixed_point::WORDS];
    const u32 lane = threadIdx.x % LANES;
    const u32 place = threadIdx.x / LANES;
    // Places in the flat buffer, counted from the start of `x`'s first block.
    const u64 border = (blockIdx.x * (u64)PLACES + place) * SHARD_BLOCK;
    const u64 first = max(border, (u64)offset);
    const u64 end = min(border + SHARD_BLOCK, offset + len);
    f64 sum = 0.0;
    for (u64 i = first + lane; i < end; i += LANES) {
        const f64 value = (f64)x[i - offset];
        sum += value * value;
    }
    sum = lane_tree(sum);
    if (lane == 0) {
        i64 own[fixed_point::WORDS] = {};
        fixed_point::add(own, sum / squared_loss_scale);
        for (u32 word = 0; word < fixed_point::WORDS; word++) {
            words[place][word] = own[word];
        }
    }
    __syncthreads();
    if (threadIdx.x < fixed_point::WORDS) {
        i64 total = 0;
        for (u32 index = 0; index < PLACES; index++) {
            total += words[index][threadIdx.x];
        }
        fixed_point::add_atomically(sums + threadIdx.x, total);
    }
}

// Adds the losses of a sequence of `length` tokens, in their order in f64, and the number of its valid labels to `sums`: a
// block of threads per sequence.
extern "C" __global__ void __launch_bounds__(THREADS)
loss_sum(const f32* loss, const i32* labels, u32 length, i64* sums) {
    __shared__ f32 values[THREADS];
    __shared__ u32 counts[THREADS];
    const u64 start = blockIdx.x * (u64)length;
    f64 sum = 0.0;
    u32 count = 0;
    for (u32 first = 0; first < length; first += THREADS) {
        const u32 token = first + threadIdx.x;
        const bool valid = token < length && labels[start + token] != IGNORED_LABEL;
        values[threadIdx.x] = valid ? loss[start + token] : 0.0f;
        count += valid;
        __syncthreads();
        if (threadIdx.x == 0) {
            // A zero in place of what is left out changes no bit of the words.
            for (u32 index = 0; index < THREADS; index++) {
                sum += (f64)values[index];
            }
        }
        __syncthreads();
    }
    counts[threadIdx.x] = count;
    __syncthreads();
    if (threadIdx.x == 0) {
        i64 words[fixed_point::WORDS] = {};
        fixed_point::add(words, sum);
        for (u32 index = 0; index < THREADS; index++) {
            words[fixed_point::COUNT] += counts[index];
        }
        for (u32 word = 0; word < fixed_point::WORDS; word++) {
            fixed_point::add_atomically(sums + word, words[word]);
        }
    }
}

__device__ inline bool is_finite(f64 value) {
    return ((u64)__double_as_longlong(value) >> 52 & 0x7ff) != 0x7ff;
}

// Rounded once; what is not a number becomes the same one everywhere.
__device__ inline f32 single(f64 value) {
    return value != value ? math::not_a_number() : (f32)value;
}

// `out[4]`: coefficient, norm, mean loss, and 1 if anything was not finite. `clip_norm` is infinite where nothing is clipped.
extern "C" __global__ void
clip_coefficient(const i64* norm_sums, const i64* loss_sums, f64 nominal_tokens, f32 loss_scale, f32 clip_norm, f32* out) {
    const i64 valid = loss_sums[fixed_point::COUNT];
    const f64 scale = valid > 0 ? nominal_tokens / (f64)valid : 0.0;
    const f64 norm = sqrt(fixed_point::to_f64(norm_sums)) * scale;
    const f64 loss = fixed_point::to_f64(loss_sums);
    const f64 mean_loss = valid > 0 ? loss / (f64)valid : loss * 0.0;
    const bool all_finite = is_finite(norm) && is_finite(mean_loss);
    const f64 clipped = norm > (f64)clip_norm ? scale * (f64)clip_norm / norm : scale;
    out[0] = all_finite ? (f32)(clipped / (f64)loss_scale) : 0.0f;
    out[1] = single(norm);
    out[2] = single(mean_loss);
    out[3] = all_finite ? 0.0f : 1.0f;
}

struct Assign {
    __device__ i64 operator()(i64, i64 whole) const {
        return whole;
    }
};

struct Accumulate {
    __device__ i64 operator()(i64 sum, i64 whole) const {
        return (i64)((u64)sum + (u64)whole);
    }
};

template <typename Write>
__device__ void add_rounded(const f32* x, u64 len, f32 per_unit, f32 limit, i64* into, i64* refusals, Write write) {
    const u64 i = blockIdx.x * (u64)THREADS + threadIdx.x;
    if (i >= len) {
        return;
    }
    const f32 value = x[i];
    const bool accepted = math::magnitude_of(value) < limit;
    const i64 whole = accepted ? __float2ll_rz(rintf(value * per_unit)) : 0;
    into[i] = write(into[i], whole);
    fixed_point::add_atomically(refusals + fixed_point::NOT_FINITE, accepted ? 0 : 1);
}

// `into` = the whole numbers nearest to `x / unit`, zero for a refused one, of which each is counted.
extern "C" __global__ void __launch_bounds__(THREADS)
add_rounded_assign(const f32* x, u64 len, f32 per_unit, f32 limit, i64* into, i64* refusals) {
    add_rounded(x, len, per_unit, limit, into, refusals, Assign());
}

// `into` += the same.
extern "C" __global__ void __launch_bounds__(THREADS)
add_rounded_accumulate(const f32* x, u64 len, f32 per_unit, f32 limit, i64* into, i64* refusals) {
    add_rounded(x, len, per_unit, limit, into, refusals, Accumulate());
}

// `sums[len]` become `unit * sums` in f32 at the start of their place, by one block of threads: what is overwritten has been
// read.
extern "C" __global__ void __launch_bounds__(THREADS)
rounded_to_single_first(i64* sums, u32 len, f32 unit) {
    f32* singles = (f32*)sums;
    for (u32 first = 0; first < len; first += THREADS) {
        const u32 i = first + threadIdx.x;
        const i64 sum = i < len ? sums[i] : 0;
        __syncthreads();
        if (i < len) {
            singles[i] = (f32)sum * unit;
        }
    }
}

// The same of elements `first..end` with `end <= 2 first`, by many blocks: what they overwrite lies before `first`.
extern "C" __global__ void __launch_bounds__(THREADS)
rounded_to_single_next(i64* sums, u64 first, u64 end, f32 unit) {
    const u64 i = first + blockIdx.x * (u64)THREADS + threadIdx.x;
    if (i < end) {
        ((f32*)sums)[i] = (f32)sums[i] * unit;
    }
}
