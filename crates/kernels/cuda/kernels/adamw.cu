// AdamW in one pass, as `cpu::adamw`.

#include "vectors.cuh"

constexpr u32 THREADS = 256;

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

// The target of copies of updated parameters.
struct NoCopy {
    __device__ bool in_fours() const {
        return true;
    }

    template <u32 COUNT>
    __device__ void put(u64, const f32 (&)[COUNT]) const {}
};

template <typename E>
struct CopyTo {
    Matrix<E> copy;

    __device__ bool in_fours() const {
        return has_vectors<FOUR>(copy);
    }

    template <u32 COUNT>
    __device__ void put(u64 i, const f32 (&values)[COUNT]) const {
        store(copy.start + i, values);
    }
};

template <typename Copy>
struct Update {
    Matrix<f32> param;
    Matrix<const f32> grad;
    Matrix<f32> first_moment;
    Matrix<f32> second_moment;
    Matrix<const f32> coefficient;
    Factors factors;
    Copy copy;

    template <u32 COUNT>
    __device__ void at(u64, u64 i) const {
        f32 params[COUNT];
        f32 gradients[COUNT];
        f32 firsts[COUNT];
        f32 seconds[COUNT];
        load(params, param.start + i);
        load(gradients, grad.start + i);
        load(firsts, first_moment.start + i);
        load(seconds, second_moment.start + i);
#pragma unroll
        for (u32 index = 0; index < COUNT; index++) {
            const f32 gradient = gradients[index] * coefficient.start[0];
            const f32 first = fmaf(firsts[index], factors.beta1_kept, factors.beta1_new * gradient);
            const f32 square = gradient * gradient;
            const f32 second = fmaf(seconds[index], factors.beta2_kept, factors.beta2_new * square);
            const f32 denominator = fmaf(sqrtf(second), factors.root_correction, factors.epsilon);
            const f32 kept = params[index] * factors.keep;
            params[index] = fmaf(first / denominator, factors.step, kept);
            firsts[index] = first;
            seconds[index] = second;
        }
        store(first_moment.start + i, firsts);
        store(second_moment.start + i, seconds);
        store(param.start + i, params);
        copy.put(i, params);
    }

    __device__ void run() const {
        const bool in_fours = has_vectors<FOUR>(param) && has_vectors<FOUR>(grad) && has_vectors<FOUR>(first_moment) &&
                              has_vectors<FOUR>(second_moment) && copy.in_fours();
        for_each_vector<FOUR>(1, param.len(), in_fours, *this);
    }
};

extern "C" __global__ void __launch_bounds__(THREADS)
adamw(Matrix<f32> param, Matrix<const f32> grad, Matrix<f32> first_moment, Matrix<f32> second_moment,
      Matrix<const f32> coefficient, Factors factors) {
    Update<NoCopy>{param, grad, first_moment, second_moment, coefficient, factors, {}}.run();
}

#define ADAMW_COPY(NAME, E)                                                                                            \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                              \
        NAME(Matrix<f32> param, Matrix<const f32> grad, Matrix<f32> first_moment, Matrix<f32> second_moment,           \
             Matrix<const f32> coefficient, Factors factors, Matrix<E> copy) {                                         \
        Update<CopyTo<E>>{param, grad, first_moment, second_moment, coefficient, factors, {copy}}.run();               \
    }

ADAMW_COPY(adamw_copy_f32, f32)
ADAMW_COPY(adamw_copy_bf16, Bf16)
ADAMW_COPY(adamw_copy_f16, F16)
