// Copies of boxes of a tensor to shared memory by tensor maps, and the barriers in shared memory that count their
// bytes. For compute capability 9.0 and later.
#pragma once

#include "types.cuh"

namespace bulk {

// A tensor map, as the driver encodes it.
struct alignas(64) TensorMap {
    u8 bytes[128];
};

// A barrier whose phase ends with `arrivals`, and with all bytes that are expected.
__device__ inline void initialize_barrier(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Copies that follow see the barriers.
__device__ inline void publish_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Arrives, and announces the bytes of copies.
__device__ inline void expect_bytes(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Arrives at this block's barrier.
__device__ inline void arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Tries to see the end of the phase of this parity, up to a limit of the hardware.
__device__ inline bool has_ended(u32 barrier, u32 parity) {
    u32 ended;
    asm volatile("{\n.reg .pred ended;\nmbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, ended;\n}"
                 : "=r"(ended)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return ended != 0;
}

// Waits for the end of the phase of this parity. A phase that does not end is a fault of the kernel, which stops it.
__device__ inline void wait(u32 barrier, u32 parity) {
    constexpr u32 MOST_TRIES = 1u << 26;
    u32 tries = 0;
    while (!has_ended(barrier, parity)) {
        tries++;
        if (tries == MOST_TRIES) {
            __trap();
        }
    }
}

// Starts the copy of the box whose first element has these places along both dims, the inner one first.
__device__ inline void start_copy(u32 to, const TensorMap &map, u32 inner, u32 outer, u32 barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
                 ::"r"(to), "l"(&map), "r"(barrier), "r"(inner), "r"(outer)
                 : "memory");
}

// This warpgroup gives registers back, down to `COUNT` of each thread.
template <u32 COUNT>
__device__ inline void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// This warpgroup takes registers, up to `COUNT` of each thread.
template <u32 COUNT>
__device__ inline void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

}  // namespace bulk
