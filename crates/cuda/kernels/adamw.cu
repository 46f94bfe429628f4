// AdamW in one pass, as `cpu::adamw`.

#include "element.cuh"
#include "tensor.cuh"

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

// What the updated parameter is copied to.
struct NoCopy {
    __device__ void operator()(u64, f32) const {}
};

template <typename Element>
struct CopyTo {
    Matrix<Element> copy;
    __device__ void operator()(u64 i, f32 value) const {
        copy.start[i] = narrow<Element>(value);
    }
};

template <typename Copy>
__device__ void update(Matrix<f32> param, Matrix<const f32> grad, Matrix<f32> first_moment, Matrix<f32> second_moment,
                       Matrix<const f32> coefficient, const Factors& factors, Copy copy) {
    const u64 i = blockIdx.x * (u64)THREADS + threadIdx.x;
    if (i >= param.len()) {
        return;
    }
    const f32 gradient = grad.start[i] * coefficient.start[0];
    const f32 first = fmaf(first_moment.start[i], factors.beta1_kept, factors.beta1_new * gradient);
    const f32 square = gradient * gradient;
    const f32 second = fmaf(second_moment.start[i], factors.beta2_kept, factors.beta2_new * square);
    const f32 denominator = fmaf(sqrtf(second), factors.root_correction, factors.epsilon);
    const f32 kept = param.start[i] * factors.keep;
    const f32 updated = fmaf(first / denominator, factors.step, kept);
    first_moment.start[i] = first;
    second_moment.start[i] = second;
    param.start[i] = updated;
    copy(i, updated);
}

extern "C" __global__ void __launch_bounds__(THREADS)
adamw(Matrix<f32> param, Matrix<const f32> grad, Matrix<f32> first_moment, Matrix<f32> second_moment,
      Matrix<const f32> coefficient, Factors factors) {
    update(param, grad, first_moment, second_moment, coefficient, factors, NoCopy());
}

extern "C" __global__ void __launch_bounds__(THREADS)
adamw_copy_f32(Matrix<f32> param, Matrix<const f32> grad, Matrix<f32> first_moment, Matrix<f32> second_moment,
               Matrix<const f32> coefficient, Factors factors, Matrix<f32> copy) {
    update(param, grad, first_moment, second_moment, coefficient, factors, CopyTo<f32>{copy});
}

extern "C" __global__ void __launch_bounds__(THREADS)
adamw_copy_bf16(Matrix<f32> param, Matrix<const f32> grad, Matrix<f32> first_moment, Matrix<f32> second_moment,
               Matrix<const f32> coefficient, Factors factors, Matrix<Bf16> copy) {
    update(param, grad, first_moment, second_moment, coefficient, factors, CopyTo<Bf16>{copy});
}

extern "C" __global__ void __launch_bounds__(THREADS)
adamw_copy_f16(Matrix<f32> param, Matrix<const f32> grad, Matrix<f32> first_moment, Matrix<f32> second_moment,
               Matrix<const f32> coefficient, Factors factors, Matrix<F16> copy) {
    update(param, grad, first_moment, second_moment, coefficient, factors, CopyTo<F16>{copy});
}
