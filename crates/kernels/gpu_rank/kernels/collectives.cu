// Sums over the ranks of a group whose arenas are on one GPU: element by element, in rank order or in that of a tree,
// with the bits of `comm::collectives`. A kernel reads the other ranks' memory in place; the host orders it after their
// writes.

#include "types.cuh"
#include "element.cuh"

constexpr u32 MAX_MEMBERS = 64;

// The same elements of all members.
struct Members {
    const void *start[MAX_MEMBERS];
    u32 members;
    // Neighbours that are added first: all of them for rank order.
    u32 run;
    u64 len;
};

template <typename Element_>
struct Sum {
    using Element = Element_;
    using Partial = f32;
    static __device__ f32 first(Element element) { return widen(element); }
    static __device__ f32 combine(f32 a, f32 b) { return a + b; }
    static __device__ Element round(f32 partial) { return narrow<Element>(partial); }
};

struct WrappingSum {
    using Element = u64;
    using Partial = u64;
    static __device__ u64 first(u64 element) { return element; }
    static __device__ u64 combine(u64 a, u64 b) { return a + b; }
    static __device__ u64 round(u64 partial) { return partial; }
};

struct Max {
    using Element = f32;
    using Partial = f32;
    static __device__ f32 first(f32 element) { return element; }
    // One not-a-number for all, and the positive zero of two zeros: the bits do not depend on the order of the two.
    static __device__ f32 combine(f32 a, f32 b) {
        if (a != a || b != b) {
            return __uint_as_float(0x7fc00000u);
        }
        if (a == b) {
            return __uint_as_float(__float_as_uint(a) & __float_as_uint(b));
        }
        return a > b ? a : b;
    }
    static __device__ f32 round(f32 partial) { return partial; }
};

template <typename Reduction>
__device__ void reduce(const Members &from, void *out) {
    using Element = typename Reduction::Element;
    using Partial = typename Reduction::Partial;
    const u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 index = (u64)blockIdx.x * blockDim.x + threadIdx.x; index < from.len; index += step) {
        Partial sum = 0;
        for (u32 start = 0; start < from.members; start += from.run) {
            Partial partial = Reduction::first(static_cast<const Element *>(from.start[start])[index]);
            for (u32 member = start + 1; member < from.members && member < start + from.run; ++member) {
                const Element element = static_cast<const Element *>(from.start[member])[index];
                partial = Reduction::combine(partial, Reduction::first(element));
            }
            sum = start == 0 ? partial : Reduction::combine(sum, partial);
        }
        static_cast<Element *>(out)[index] = Reduction::round(sum);
    }
}

extern "C" __global__ void reduce_sum_f32(const Members from, f32 *out) {
    reduce<Sum<f32>>(from, out);
}

extern "C" __global__ void reduce_sum_bf16(const Members from, Bf16 *out) {
    reduce<Sum<Bf16>>(from, out);
}

extern "C" __global__ void reduce_sum_f16(const Members from, F16 *out) {
    reduce<Sum<F16>>(from, out);
}

extern "C" __global__ void reduce_sum_i64(const Members from, u64 *out) {
    reduce<WrappingSum>(from, out);
}

extern "C" __global__ void reduce_max_f32(const Members from, f32 *out) {
    reduce<Max>(from, out);
}
