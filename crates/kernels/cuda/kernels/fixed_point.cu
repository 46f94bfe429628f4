// Sums of a step as integers, which associate, and what follows from them: as `cpu::squared_sum`, `cpu::loss_sum` and
// `cpu::clip_coefficient`. Atomic additions are of integers, so their order changes no bit.

#include "fixed_point.cuh"
#include "row_sum.cuh"

constexpr u32 THREADS = 256;
constexpr u32 SHARD_BLOCK = 4096;
constexpr i32 IGNORED_LABEL = -100;

// The sum of the lanes by the tree 8, 4, 2, 1, in every lane.
__device__ inline f64 team_sum(f64 value) {
#pragma unroll
    for (int width = TEAM / 2; width > 0; width /= 2) {
        value = value + __shfl_xor_sync(WHOLE_WARP, value, width, TEAM);
    }
    return value;
}

// Adds the sum of squares of `x / loss_scale` to `sums`. Blocks of 4,096 elements are counted from the start of the
// flat buffer, in which `x` begins at `offset` of a block; sixteen threads take one, each a lane of f64.
extern "C" __global__ void __launch_bounds__(THREADS, 4)
squared_sum(Matrix<const f32> x, u32 offset, f64 squared_loss_scale, Matrix<i64> sums) {
    constexpr u32 PLACES = THREADS / TEAM;
    __shared__ i64 words[PLACES][fixed_point::WORDS];
    const u32 place = threadIdx.x / TEAM;
    // Places in the flat buffer, counted from the start of `x`'s first block.
    const u64 border = (blockIdx.x * (u64)PLACES + place) * SHARD_BLOCK;
    const u64 first = max(border, (u64)offset);
    const u64 end = min(border + SHARD_BLOCK, offset + x.len());
    f64 sum = 0.0;
    // Several numbers are read before the first is added: a read takes longer than their sum. Zeros after the last one
    // change no bit of a sum of squares.
    constexpr u32 READS = 32;
    for (u64 i = first + team_lane(); i < end; i += READS * TEAM) {
        f32 values[READS];
#pragma unroll
        for (u32 index = 0; index < READS; index++) {
            const u64 place = i + index * TEAM;
            values[index] = place < end ? x.start[place - offset] : 0.0f;
        }
#pragma unroll
        for (u32 index = 0; index < READS; index++) {
            sum += (f64)values[index] * (f64)values[index];
        }
    }
    sum = team_sum(sum);
    if (team_lane() == 0) {
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
        fixed_point::add_atomically(sums.start + threadIdx.x, total);
    }
}

// Adds the losses of a sequence of `length` tokens, in their order in f64, and the number of its valid labels to
// `sums`: a block of threads per sequence.
extern "C" __global__ void __launch_bounds__(THREADS)
loss_sum(Matrix<const f32> loss, Matrix<const i32> labels, u32 length, Matrix<i64> sums) {
    __shared__ f32 values[THREADS];
    __shared__ u32 counts[THREADS];
    const u64 start = blockIdx.x * (u64)length;
    f64 sum = 0.0;
    u32 count = 0;
    for (u32 first = 0; first < length; first += THREADS) {
        const u32 token = first + threadIdx.x;
        const bool valid = token < length && labels.start[start + token] != IGNORED_LABEL;
        values[threadIdx.x] = valid ? loss.start[start + token] : 0.0f;
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
            fixed_point::add_atomically(sums.start + word, words[word]);
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

// `out[4]`: coefficient, norm, mean loss, and 1 if anything was not finite. `clip_norm` is infinite where nothing is
// clipped.
extern "C" __global__ void __launch_bounds__(32)
clip_coefficient(Matrix<const i64> norm_sums, Matrix<const i64> loss_sums, f64 nominal_tokens, f32 loss_scale,
                 f32 clip_norm,
                 Matrix<f32> out) {
    const i64 valid = loss_sums.start[fixed_point::COUNT];
    const f64 scale = valid > 0 ? nominal_tokens / (f64)valid : 0.0;
    const f64 norm = sqrt(fixed_point::to_f64(norm_sums.start)) * scale;
    const f64 loss = fixed_point::to_f64(loss_sums.start);
    const f64 mean_loss = valid > 0 ? loss / (f64)valid : loss * 0.0;
    const bool all_finite = is_finite(norm) && is_finite(mean_loss);
    const f64 clipped = norm > (f64)clip_norm ? scale * (f64)clip_norm / norm : scale;
    out.start[0] = all_finite ? (f32)(clipped / (f64)loss_scale) : 0.0f;
    out.start[1] = single(norm);
    out.start[2] = single(mean_loss);
    out.start[3] = all_finite ? 0.0f : 1.0f;
}
