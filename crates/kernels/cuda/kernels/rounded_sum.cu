// Sums of real numbers that were rounded once to whole ones, which associate, and the way back: as `cpu::rounded_sum`.

#include "math.cuh"
#include "sum_words.cuh"
#include "tensor.cuh"

constexpr u32 THREADS = 256;

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
__device__ void add_rounded(Matrix<const f32> x, f32 per_unit, f32 limit, Matrix<i64> into, Matrix<i64> refusals,
                            Write write) {
    const u64 i = blockIdx.x * (u64)THREADS + threadIdx.x;
    if (i >= x.len()) {
        return;
    }
    const f32 value = x.start[i];
    const bool accepted = math::magnitude_of(value) < limit;
    const i64 whole = accepted ? __float2ll_rz(rintf(value * per_unit)) : 0;
    into.start[i] = write(into.start[i], whole);
    fixed_point::add_atomically(refusals.start + fixed_point::NOT_FINITE, accepted ? 0 : 1);
}

// `into` = the whole numbers nearest to `x / unit`, zero for a refused one, of which each is counted.
extern "C" __global__ void __launch_bounds__(THREADS)
add_rounded_assign(Matrix<const f32> x, f32 per_unit, f32 limit, Matrix<i64> into, Matrix<i64> refusals) {
    add_rounded(x, per_unit, limit, into, refusals, Assign());
}

// `into` += the same.
extern "C" __global__ void __launch_bounds__(THREADS)
add_rounded_accumulate(Matrix<const f32> x, f32 per_unit, f32 limit, Matrix<i64> into, Matrix<i64> refusals) {
    add_rounded(x, per_unit, limit, into, refusals, Accumulate());
}

// Writes one value; after the last of an odd count a zero fills the place of its sum.
__device__ inline void write_single(Matrix<i64> sums, u64 i, i64 sum, f32 unit) {
    f32* singles = (f32*)sums.start;
    singles[i] = (f32)sum * unit;
    if (i + 1 == sums.len() && i % 2 == 0) {
        singles[i + 1] = 0.0f;
    }
}

// The first `count` sums become `unit * sums` in f32 at the start of their place, by one block of threads: what is
// overwritten has been read.
extern "C" __global__ void __launch_bounds__(THREADS)
rounded_to_single_first(Matrix<i64> sums, u32 count, f32 unit) {
    for (u32 first = 0; first < count; first += THREADS) {
        const u32 i = first + threadIdx.x;
        const i64 sum = i < count ? sums.start[i] : 0;
        __syncthreads();
        if (i < count) {
            write_single(sums, i, sum, unit);
        }
    }
}

// The same of sums `first..end` with `end <= 2 first`, by many blocks: the overwritten sums are before `first`.
extern "C" __global__ void __launch_bounds__(THREADS)
rounded_to_single_next(Matrix<i64> sums, u64 first, u64 end, f32 unit) {
    const u64 i = first + blockIdx.x * (u64)THREADS + threadIdx.x;
    if (i < end) {
        write_single(sums, i, sums.start[i], unit);
    }
}
