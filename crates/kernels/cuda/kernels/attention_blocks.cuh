// Shared parts of the kernels of attention with products in blocks: `cpu::attention::tensor_cores`, whose order of
// operations they keep.
//
// A warp has sixteen rows: queries, or keys where sums run over queries. A product of 16 steps follows the other, in
// ascending order, in the same sums, so no bit depends on the tiles that are staged. The softmax alone has tiles: of
// 128 keys from the first key of the sequence on.
#pragma once

#include "attention.cuh"
#include "tensor_core.cuh"

namespace attention_blocks {

using attention::Problem;
using attention::Sizes;

constexpr u32 ALL_LANES = 0xffffffffu;
// Rows of a warp, and steps of a product.
constexpr u32 ROWS = 16;
constexpr u32 STEPS = 16;
// Columns of a fragment of sums.
constexpr u32 COLUMNS = 8;
// Numbers that are copied at once.
constexpr u32 VECTOR = 8;
// The channels of a wide head that are multiplied at once.
constexpr u32 CHUNK = 128;

// Stride of staged rows of `CHANNELS`, in values: one vector more, so that eight rows at the same column are in
// different banks.
template <u32 CHANNELS>
constexpr u32 PITCH = CHANNELS + VECTOR;

// A problem without soft caps and biases of scores and without dropout, whose kernels are shorter.
struct PlainProblem : Problem {
    using Problem::Problem;
};

// Blocks of a kernel that are on a multiprocessor at once: three of narrow heads by warpgroups.
template <u32 CHANNELS, typename Asked>
constexpr u32 BLOCKS = 1;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
template <>
constexpr u32 BLOCKS<64, PlainProblem> = 3;
#endif

__device__ inline bool has_bias(const Problem& problem) {
    return problem.alibi_heads != 0;
}

__device__ constexpr bool has_bias(const PlainProblem&) {
    return false;
}

__device__ inline bool has_cap(const Problem& problem) {
    return problem.soft_cap.is_some();
}

__device__ constexpr bool has_cap(const PlainProblem&) {
    return false;
}

__device__ inline bool has_dropout(const Problem& problem) {
    return problem.dropout.threshold != 0;
}

__device__ constexpr bool has_dropout(const PlainProblem&) {
    return false;
}

// Rows of one head in memory.
template <typename Element>
struct Rows {
    const Element* start;
    u64 stride;
    u32 count;
};

template <typename Element>
__device__ inline Rows<Element> rows_of(Matrix<const Element> matrix, u64 row, u32 column, u32 count) {
    return {matrix.row(row) + column, matrix.stride, count};
}

// Stages `COUNT` rows; what is missing of the rows and of the channels becomes zero. The caller ends the group of
// copies and waits. `vectors` says that all rows begin at multiples of 16 bytes and have whole vectors.
template <u32 CHANNELS, u32 COUNT, u32 THREADS, typename Element>
__device__ void stage(u16* target, const Rows<Element>& rows, u32 channels, bool vectors) {
    if (vectors) {
        constexpr u32 VECTORS = CHANNELS / VECTOR;
        constexpr u32 TOGETHER = THREADS / VECTORS;
        const u32 row = threadIdx.x / VECTORS;
        const u32 channel = threadIdx.x % VECTORS * VECTOR;
        const u32 to = tensor_core::shared_address(target) + (row * PITCH<CHANNELS> + channel) * 2;
        const u32 count = channel < channels ? rows.count : 0;
        const Element* from = rows.start + row * rows.stride + channel;
#pragma unroll
        for (u32 first = 0; first < COUNT; first += TOGETHER) {
            const bool exists = first + row < count;
            tensor_core::start_copy(to + first * PITCH<CHANNELS> * 2, exists ? from : rows.start, exists ? 16 : 0);
            from += TOGETHER * rows.stride;
        }
        return;
    }
#pragma unroll 4
    for (u32 index = threadIdx.x; index < COUNT * CHANNELS; index += THREADS) {
        const u32 row = index / CHANNELS;
        const u32 channel = index % CHANNELS;
        const bool exists = row < rows.count && channel < channels;
        target[row * PITCH<CHANNELS> + channel] = exists ? rows.start[row * rows.stride + channel].bits : (u16)0;
    }
}

// Where this lane reads fragments of staged rows.
template <u32 CHANNELS>
struct Fragments {
    // Of 16 rows by 16 steps: rows are rows, channels are steps.
    static __device__ u32 left(const u16* rows) {
        const u32 lane = threadIdx.x % 32;
        return at(rows, lane % 16, lane / 16 * 8);
    }

    // Of 16 steps by two fragments of columns: rows are columns, channels are steps.
    static __device__ u32 right(const u16* rows) {
        const u32 lane = threadIdx.x % 32;
        return at(rows, lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
    }

    // The same transposed: rows are steps, channels are columns.
    static __device__ u32 right_columns(const u16* rows) {
        const u32 lane = threadIdx.x % 32;
        return at(rows, lane % 16, lane / 16 * 8);
    }

    // So much further.
    static __device__ constexpr u32 step(u32 rows, u32 channels) {
        return (rows * PITCH<CHANNELS> + channels) * 2;
    }

private:
    static __device__ u32 at(const u16* rows, u32 row, u32 channel) {
        return tensor_core::shared_address(rows) + step(row, channel);
    }
};

// Keys that a query sees, from `first` up to `last`, and where biases count from. None for a query that is missing.
struct Interval {
    i32 first;
    i32 last;
    i32 end;
};

// From places of the sequence.
__device__ inline Interval interval_within(const Problem& problem, i32 first_place, i32 last_place) {
    const i32 first = first_place - (i32)problem.first_key;
    const i32 last = last_place - (i32)problem.first_key;
    const i32 there = min(max(last, 0), (i32)problem.keys);
    return {min(max(first, 0), there), there, problem.some_keys == 0 ? there : last};
}

__device__ inline Interval interval_of(const Problem& problem, u32 sequence, u32 position) {
    if (position >= problem.sequence_length) {
        return {0, 0, 0};
    }
    const u64 token = (u64)sequence * problem.sequence_length + position;
    return interval_within(problem, problem.visible[2 * token], problem.visible[2 * token + 1]);
}

// The intervals of a thread's two queries, `lane / 4` and 8 more of those of its warp, in shared memory.
struct Intervals {
    const Interval* first;

    __device__ const Interval& operator[](u32 row) const {
        return first[8 * row];
    }
};

template <u32 COUNT>
__device__ inline Intervals shared_intervals(Interval (&memory)[COUNT], const Problem& problem, u32 sequence,
                                             u32 position) {
    Interval* const first = memory + threadIdx.x / 32 * ROWS + threadIdx.x % 32 / 4;
    if (threadIdx.x % 4 == 0) {
        first[0] = interval_of(problem, sequence, position);
        first[8] = interval_of(problem, sequence, position + 8);
    }
    __syncwarp();
    return {first};
}

// From the first key that some query sees to one past the last.
struct Span {
    i32 first;
    i32 last;

    // The first key, or one past the last.
    __device__ u32 start() const {
        return (u32)min(first, last);
    }
    // Of `count` keys from `start` on, those from here on and up to there in whole blocks of 16: none if `begin` is not
    // below `end`.
    __device__ u32 begin(i32 start) const {
        return (u32)max(first - start, 0) / STEPS;
    }
    __device__ u32 end(i32 start, u32 count) const {
        return (u32)min(max(last - start + (i32)STEPS - 1, 0) / (i32)STEPS, (i32)(count / STEPS));
    }
    __device__ bool meets(i32 start, u32 count) const {
        return first < start + (i32)count && last > start;
    }
};

constexpr Span NOTHING = {0x7fffffff, 0};

__device__ inline Span with(const Span& span, const Interval& interval) {
    const bool is_empty = interval.first >= interval.last;
    return {is_empty ? span.first : min(span.first, interval.first), is_empty ? span.last : max(span.last, interval.last)};
}

// Of all lanes whose numbers differ in the bits from `FIRST` up to `LAST`.
template <u32 FIRST, u32 LAST>
__device__ inline Span joined(Span span) {
#pragma unroll
    for (u32 distance = FIRST; distance <= LAST; distance *= 2) {
        span.first = min(span.first, __shfl_xor_sync(ALL_LANES, span.first, distance));
        span.last = max(span.last, __shfl_xor_sync(ALL_LANES, span.last, distance));
    }
    return span;
}

// The intersection of two intervals, and of those of all lanes of the warp.
__device__ inline Span joined_all(const Interval& one, const Interval& other) {
    i32 first = max(one.first, other.first);
    i32 last = min(one.last, other.last);
#pragma unroll
    for (u32 distance = 4; distance <= 16; distance *= 2) {
        first = max(first, __shfl_xor_sync(ALL_LANES, first, distance));
        last = min(last, __shfl_xor_sync(ALL_LANES, last, distance));
    }
    return {first, last};
}

// The first tile of `KEYS` keys from `number` on that some warp of a block sees: a lane has the span of a warp. Past
// the block's last key if there is none.
template <u32 KEYS>
__device__ inline u32 next_tile(u32 number, const Span& of_block, const Span& of_lane) {
    while ((i32)(number * KEYS) < of_block.last && !__any_sync(ALL_LANES, of_lane.meets((i32)(number * KEYS), KEYS))) {
        number++;
    }
    return number;
}

// The factors of scores: one that rounds by itself, and one that multiplies within the subtraction and turns them into
// powers of two. Scores that nothing changes between the two need the second alone.
struct Scale {
    f32 rounding;
    f32 exponent;
};

__device__ inline Scale scale_of(const Problem& problem) {
    return {problem.rounding, problem.exponent};
}

template <u32 FRAGMENTS>
__device__ inline void multiply(f32 (&scores)[FRAGMENTS][4], const Scale& scale) {
    if (scale.rounding == 1.0f) {
        return;
    }
#pragma unroll
    for (u32 column = 0; column < FRAGMENTS; column++) {
#pragma unroll
        for (u32 index = 0; index < 4; index++) {
            scores[column][index] *= scale.rounding;
        }
    }
}

// Depths say how far a power of two is below 1, and are 1 more, so that roundings do not make them negative. From the
// deepest on powers are 0.
constexpr f32 NO_DEPTH = 1.0f;
constexpr f32 DEEPEST = 126.0f;

// Twice `2^rest` for half a unit to both sides: exactly twice the polynomial of `cpu::math::power_of_depth`. The 1 of
// depths is in this factor and not in the number by which they are rounded. That number must be even, so that halves
// become even whole numbers, as on CPUs.
__device__ inline f32 twice_power_of_rest(f32 rest) {
    return math::polynomial(
        rest, {2.0f, 2.0f * 0.6931242f, 2.0f * 0.24024099f, 2.0f * 0.055906426f, 2.0f * 0.009582853f});
}

// `2^(1 - depth)` of depths from zero to the deepest: the nearest whole number by an addition whose last place is 1,
// and the power of two added to the exponent. Of others it is anything.
__device__ inline f32 power_within(f32 depth) {
    const f32 shifted = math::WHOLE - depth;
    const f32 count = shifted - math::WHOLE;
    return __uint_as_float((__float_as_uint(shifted) << 23) + __float_as_uint(twice_power_of_rest(-depth - count)));
}

// The same of depths from zero on, which may be infinite. Of what is not a number it is anything.
__device__ inline f32 power_from_zero(f32 depth) {
    const f32 result = power_within(depth);
    return depth > DEEPEST ? 0.0f : result;
}

// The same of any depth, with the same bits.
__device__ inline f32 power_of_any(f32 depth) {
    // 126 more; an exponent is one more than that.
    constexpr f32 MAGIC = math::WHOLE + 126.0f;
    constexpr u32 ONE_MORE = 1u << 23;
    // From 127 on it is infinite.
    const f32 x = tensor_core::smaller_or_nan(-depth, 127.25f);
    const f32 shifted = x + MAGIC;
    const f32 count = shifted - MAGIC;
    const f32 result = twice_power_of_rest(x - count) * __uint_as_float((__float_as_uint(shifted) << 23) + ONE_MORE);
    return depth > DEEPEST ? 0.0f : result;
}

// The random words of a fragment whose rows are queries, of which the thread's first has this token, and whose columns
// are keys. Of four lanes with the same queries two have the same four keys: each draws the words of one query for
// both.
__device__ inline void words_of_queries(u32 (&words)[4], const Problem& problem, u32 head, u32 token, u32 first_key) {
    const u32 odd = threadIdx.x % 2;
    const philox::Words drawn =
        attention::random_words(problem, head, token + 8 * odd, first_key + threadIdx.x % 4 / 2 * 4);
#pragma unroll
    for (u32 column = 0; column < 2; column++) {
        const u32 mine = odd ? drawn.word[2 + column] : drawn.word[column];
        const u32 theirs = odd ? drawn.word[column] : drawn.word[2 + column];
        const u32 other = __shfl_xor_sync(ALL_LANES, theirs, 1);
        words[column] = odd ? other : mine;
        words[2 + column] = odd ? mine : other;
    }
}

// The random words of a fragment whose rows are keys from `first_key` on and whose columns are queries, of which the
// first has this token. Four lanes have four neighbouring keys and the same queries: each draws the words of one query
// and four keys for all, of which they exchange all but one.
__device__ inline void words_of_keys(u32 (&words)[4], const Problem& problem, u32 head, u32 token, u32 first_key) {
    const u32 lane = threadIdx.x % 32;
    const u32 key = lane / 4 % 4;
    const philox::Words drawn = attention::random_words(problem, head, token + lane % 4 * 2 + key % 2,
                                                        first_key + key / 2 * 8 + lane / 16 * 4);
    u32 half[4];
#pragma unroll
    for (u32 pair = 0; pair < 4; pair += 2) {
        const bool odd = key % 2 != 0;
        const u32 other = __shfl_xor_sync(ALL_LANES, odd ? drawn.word[pair] : drawn.word[pair + 1], 4);
        half[pair] = odd ? other : drawn.word[pair];
        half[pair + 1] = odd ? drawn.word[pair + 1] : other;
    }
#pragma unroll
    for (u32 column = 0; column < 2; column++) {
        const bool high = key / 2 != 0;
        const u32 other = __shfl_xor_sync(ALL_LANES, high ? half[column] : half[2 + column], 8);
        words[column] = high ? other : half[column];
        words[2 + column] = high ? half[2 + column] : other;
    }
}

// Stores two neighbouring numbers of a head, of which those past its last channel are left out.
template <typename Element>
__device__ inline void store_pair(Element* row, u32 channel, u32 head_dim, f32 first, f32 second, bool vectors) {
    if (vectors) {
        if (channel < head_dim) {
            *reinterpret_cast<u32*>(row + channel) = tensor_core::packed<Element>(first, second);
        }
        return;
    }
    if (channel < head_dim) {
        row[channel] = narrow<Element>(first);
    }
    if (channel + 1 < head_dim) {
        row[channel + 1] = narrow<Element>(second);
    }
}

}  // namespace attention_blocks
