// The dialect of `crates/kernels/cuda/kernels` for clang and GPUs of AMD: the names that NVRTC knows without an include. A warp
// is half of a wave of 64 lanes. The test beside this file compiles the kernels and runs none.
#pragma once

#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(BYTES) __attribute__((aligned(BYTES)))

// A dim of a grid or a block, read from the registers of the GPU.
#define DIALECT_DIMS(NAME, X, Y, Z)                                                                                    \
    struct NAME##_of_thread {                                                                                          \
        __declspec(property(get = get_x)) unsigned x;                                                                  \
        __declspec(property(get = get_y)) unsigned y;                                                                  \
        __declspec(property(get = get_z)) unsigned z;                                                                  \
        __device__ unsigned get_x() const { return X; }                                                                \
        __device__ unsigned get_y() const { return Y; }                                                                \
        __device__ unsigned get_z() const { return Z; }                                                                \
    };                                                                                                                 \
    extern const __device__ __attribute__((weak)) NAME##_of_thread NAME

DIALECT_DIMS(threadIdx, __builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(),
             __builtin_amdgcn_workitem_id_z());
DIALECT_DIMS(blockIdx, __builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(),
             __builtin_amdgcn_workgroup_id_z());
DIALECT_DIMS(blockDim, __builtin_amdgcn_workgroup_size_x(), __builtin_amdgcn_workgroup_size_y(),
             __builtin_amdgcn_workgroup_size_z());
DIALECT_DIMS(gridDim, __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x(),
             __builtin_amdgcn_grid_size_y() / __builtin_amdgcn_workgroup_size_y(),
             __builtin_amdgcn_grid_size_z() / __builtin_amdgcn_workgroup_size_z());

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(8) float2 {
    float x, y;
};

__device__ inline unsigned __float_as_uint(float value) { return __builtin_bit_cast(unsigned, value); }
__device__ inline int __float_as_int(float value) { return __builtin_bit_cast(int, value); }
__device__ inline float __uint_as_float(unsigned bits) { return __builtin_bit_cast(float, bits); }
__device__ inline float __int_as_float(int bits) { return __builtin_bit_cast(float, bits); }
__device__ inline long long __double_as_longlong(double value) { return __builtin_bit_cast(long long, value); }
__device__ inline double __longlong_as_double(long long bits) { return __builtin_bit_cast(double, bits); }
__device__ inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
__device__ inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
__device__ inline int __clzll(long long value) { return value == 0 ? 64 : __builtin_clzll(value); }
__device__ inline int __clz(int value) { return value == 0 ? 32 : __builtin_clz(value); }
__device__ inline int __popc(unsigned value) { return __builtin_popcount(value); }
__device__ inline int __ffs(int value) { return __builtin_ffs(value); }
__device__ inline float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
__device__ inline double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
__device__ inline float sqrtf(float value) { return __builtin_sqrtf(value); }
__device__ inline double sqrt(double value) { return __builtin_sqrt(value); }
__device__ inline float fabsf(float value) { return __builtin_fabsf(value); }
__device__ inline double fabs(double value) { return __builtin_fabs(value); }
__device__ inline float rintf(float value) { return __builtin_rintf(value); }
__device__ inline double rint(double value) { return __builtin_rint(value); }
__device__ inline float floorf(float value) { return __builtin_floorf(value); }
__device__ inline float fminf(float a, float b) { return __builtin_fminf(a, b); }
__device__ inline float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
__device__ inline float copysignf(float a, float b) { return __builtin_copysignf(a, b); }
__device__ inline bool isnan(float value) { return __builtin_isnan(value); }
__device__ inline int __float2int_rn(float value) { return (int)__builtin_rintf(value); }
__device__ inline int __float2int_rz(float value) { return (int)value; }
__device__ inline long long __float2ll_rz(float value) { return (long long)value; }
__device__ inline long long __double2ll_rz(double value) { return (long long)value; }
__device__ inline unsigned long long atomicAdd(unsigned long long *to, unsigned long long value) {
    return __hip_atomic_fetch_add(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
__device__ inline float __fadd_rn(float a, float b) { return a + b; }
__device__ inline float __fmul_rn(float a, float b) { return a * b; }
__device__ inline float __fdiv_rn(float a, float b) { return a / b; }
__device__ inline float __frcp_rn(float value) { return 1.0f / value; }
__device__ inline float __fsqrt_rn(float value) { return __builtin_sqrtf(value); }
template <typename T>
__device__ inline T min(T a, T b) {
    return b < a ? b : a;
}
template <typename T>
__device__ inline T max(T a, T b) {
    return a < b ? b : a;
}

__device__ inline void __syncthreads() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
__device__ inline void __syncwarp(unsigned = ~0u) { __builtin_amdgcn_wave_barrier(); }
__device__ inline void __threadfence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
__device__ inline void __trap() { __builtin_trap(); }

__device__ inline unsigned dialect_lane() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)); }

// The bits of `value` in another lane of this wave.
template <typename T>
__device__ inline T dialect_of_lane(T value, unsigned lane) {
    static_assert(sizeof(T) % sizeof(int) == 0, "words");
    struct Words {
        int words[sizeof(T) / sizeof(int)];
    };
    Words words = __builtin_bit_cast(Words, value);
    for (int &word : words.words) {
        word = __builtin_amdgcn_ds_bpermute((int)(lane * sizeof(int)), word);
    }
    return __builtin_bit_cast(T, words);
}
template <typename T>
__device__ inline T __shfl_xor_sync(unsigned, T value, int mask, int width = 32) {
    const unsigned own = dialect_lane();
    const unsigned inside = (unsigned)width - 1;
    return dialect_of_lane(value, (own & ~inside) | ((own ^ (unsigned)mask) & inside));
}
template <typename T>
__device__ inline T __shfl_sync(unsigned, T value, int lane, int width = 32) {
    const unsigned inside = (unsigned)width - 1;
    return dialect_of_lane(value, (dialect_lane() & ~inside) | ((unsigned)lane & inside));
}
__device__ inline bool __any_sync(unsigned, bool vote) {
    return (unsigned)(__builtin_amdgcn_ballot_w64(vote) >> (dialect_lane() & 32u)) != 0;
}
__device__ inline unsigned __ballot_sync(unsigned, bool vote) {
    return (unsigned)(__builtin_amdgcn_ballot_w64(vote) >> (dialect_lane() & 32u));
}
