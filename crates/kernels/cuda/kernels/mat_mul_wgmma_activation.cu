// Products in turns, as in `mat_mul_wgmma_turns.cu`, with the activation that follows, or its gradient, in place of the
// storing of a tile: while one warpgroup computes them, the other one multiplies. All tensors have one narrow type, and
// rows at multiples of 16 bytes.
#include "warpgroup_activation.cuh"
#include "warpgroup_activation_gradient.cuh"

#define FUSED(NAME, STAGES, OUTPUT)                                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                           \
        NAME(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, AnyMatrix bias, AnyMatrix x,    \
             AnyMatrix y, u32 steps, FactorType type, CurveNumber curve) {                                             \
        const OUTPUT output = {{bias}, x, y, type, curve};                                                             \
        multiply_in_turns<STAGES>(a, b, steps, (u32)y.cols, type, output);                                             \
    }

#define FUSED_GRADIENT(NAME, STAGES, OUTPUT)                                                                           \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                           \
        NAME(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, AnyMatrix x, AnyMatrix dx,      \
             AnyMatrix y, u32 steps, FactorType type, CurveNumber curve) {                                             \
        const OUTPUT output = {{}, x, dx, y, type, curve};                                                             \
        multiply_in_turns<STAGES>(a, b, steps, 0, type, output);                                                       \
    }

using Forward = Ring<Major::STEPS, Major::STEPS, 128>;
// 64 columns of gates, and 64 of what they let through.
using GatedForward = Ring<Major::STEPS, Major::STEPS, 128, Lanes::IN_HALVES>;
using Backward = Ring<Major::STEPS, Major::LANES, 128>;

FUSED(mat_mul_wgmma_activation, Forward, ActivationOutput)
FUSED(mat_mul_wgmma_gated, GatedForward, GatedOutput)
FUSED_GRADIENT(mat_mul_wgmma_activation_backward, Backward, GradientOutput)
FUSED_GRADIENT(mat_mul_wgmma_gated_backward, Backward, GatedGradientOutput)
