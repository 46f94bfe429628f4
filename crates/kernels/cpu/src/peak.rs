//! The most that cores do: floating-point operations, in independent chains of fused multiply-adds that never leave the
//! registers; and bytes, copied between buffers that no cache holds.

use std::hint::black_box;
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

use device::Mapping;
use sync::start_scoped;

use crate::instruction_set::InstructionSet;

/// Enough chains to hide the latency of a multiply-add on every core of the last ten years.
const CHAINS: usize = 12;
/// Steps of one burst: some tenths of a millisecond.
const STEPS: usize = 100_000;
/// How long a core is measured. The first bursts only bring it to its speed.
const MEASURED: Duration = Duration::from_millis(4);

/// FLOP/s of `cores` cores at once, each with the best instruction set of this machine: a burst of 4 ms on as many
/// threads. A multiply-add counts as two operations.
pub fn flops_per_second(cores: usize) -> f64 {
    let instruction_set = InstructionSet::detect();
    on_cores(cores, |start| {
        start.wait();
        core_flops_per_second(instruction_set)
    })
}

/// Bytes that all cores copy at once: more than caches hold, yet a short copy.
const COPIED_BYTES: usize = 256 << 20;
/// Copies of which the fastest counts; the first is the first to touch the memory.
const COPIES: usize = 4;

/// Bytes that `cores` cores at once read plus bytes that they write, per second, in copies of 256 MiB together, on
/// pages like those of an arena. Memory is taken for twice as much.
pub fn copy_bytes_per_second(cores: usize) -> f64 {
    let bytes = COPIED_BYTES / cores.max(1);
    on_cores(cores, |start| {
        let (mut source, mut target) = (Mapping::or_abort(bytes), Mapping::or_abort(bytes));
        // Memory that was never written is one page of zeros.
        source.fill(1);
        let mut best = f64::INFINITY;
        for _ in 0..COPIES {
            start.wait();
            let started = Instant::now();
            black_box(&mut target[..]).copy_from_slice(black_box(&source[..]));
            best = best.min(started.elapsed().as_secs_f64());
        }
        (2 * bytes) as f64 / best
    })
}

/// The sum of what `measure` finds on `cores` threads, or on as many as the system starts. They meet at the barrier.
fn on_cores(cores: usize, measure: impl Fn(&Barrier) -> f64 + Sync) -> f64 {
    let begun = OnceLock::new();
    std::thread::scope(|scope| {
        let work = || measure(begun.wait());
        let start = |core: usize| start_scoped(scope, &format!("core {core}"), work);
        let threads: Vec<_> = (0..cores).map_while(|core| start(core).ok()).collect();
        begun.get_or_init(|| Barrier::new(threads.len()));
        threads.into_iter().map(|thread| thread.join().unwrap_or(0.0)).sum()
    })
}

/// FLOP/s of the calling thread's core, the best of its bursts.
///
/// # Panics
/// Where this machine does not have the instructions.
pub fn core_flops_per_second(instruction_set: InstructionSet) -> f64 {
    assert!(instruction_set.is_available(), "this machine has no {instruction_set:?}");
    let (lanes, run) = kernel(instruction_set);
    // SAFETY: the machine has the instructions, as asserted above.
    (2 * lanes * CHAINS * STEPS) as f64 / least_seconds(|| unsafe { run() })
}

/// Seconds of the fastest of a core's bursts.
fn least_seconds(burst: impl Fn() -> f32) -> f64 {
    let (begin, mut best) = (Instant::now(), f64::INFINITY);
    while begin.elapsed() < MEASURED {
        let started = Instant::now();
        black_box(burst());
        best = best.min(started.elapsed().as_secs_f64());
    }
    best
}

/// FLOP/s of the calling thread's core in `VDPBF16PS`, which adds two products of bf16 to each sum; `None` where the
/// machine does not have the instruction. No kernel uses it.
#[cfg(target_arch = "x86_64")]
pub fn core_dot_flops_per_second() -> Option<f64> {
    if !is_x86_feature_detected!("avx512bf16") || !InstructionSet::Avx512.is_available() {
        return None;
    }
    // SAFETY: the machine has the instructions, as was just asked.
    Some((4 * 16 * CHAINS * STEPS) as f64 / least_seconds(|| unsafe { x86_64::chains_of_dots() }))
}

/// Only processors of this family have the instruction.
#[cfg(not(target_arch = "x86_64"))]
pub fn core_dot_flops_per_second() -> Option<f64> {
    None
}

/// FLOP/s of the calling thread's core in tiles of AMX, the best of bursts; `None` where the machine has none. Such
/// tiles slow a core down after some milliseconds, so that this is measured for as long as a step takes.
#[cfg(target_arch = "x86_64")]
pub fn core_tile_flops_per_second() -> Option<f64> {
    use crate::gemm::pairs::amx::{REGISTER_MULTIPLY_ADDS, multiply_registers};
    const ROUNDS: usize = 50_000;
    const HEATED: Duration = Duration::from_millis(200);
    if !InstructionSet::Amx.is_available() {
        return None;
    }
    let (begin, mut best) = (Instant::now(), f64::INFINITY);
    while begin.elapsed() < HEATED + 10 * MEASURED {
        let (started, heated) = (Instant::now(), begin.elapsed() >= HEATED);
        // SAFETY: the machine has the instructions, as was just asked.
        unsafe { multiply_registers(ROUNDS) };
        if heated {
            best = best.min(started.elapsed().as_secs_f64());
        }
    }
    Some((2 * REGISTER_MULTIPLY_ADDS * ROUNDS) as f64 / best)
}

/// Only processors of this family have such tiles.
#[cfg(not(target_arch = "x86_64"))]
pub fn core_tile_flops_per_second() -> Option<f64> {
    None
}

/// Chains in registers of one instruction set, with the number of lanes of a register.
type Kernel = (usize, unsafe fn() -> f32);

#[cfg(target_arch = "x86_64")]
fn kernel(instruction_set: InstructionSet) -> Kernel {
    match instruction_set {
        InstructionSet::Amx | InstructionSet::Avx512 => (16, x86_64::chains_of_512_bits),
        InstructionSet::Avx2 => (8, x86_64::chains_of_256_bits),
        InstructionSet::Scalar => (4, chains_of_128_bits),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn kernel(_: InstructionSet) -> Kernel {
    (4, chains_of_128_bits)
}

/// Four lanes that the compiler makes one vector of.
fn chains_of_128_bits() -> f32 {
    let factor = black_box([0.5f32; 4]);
    let mut chains: [[f32; 4]; CHAINS] = std::array::from_fn(|i| [i as f32; 4]);
    for _ in 0..STEPS {
        for chain in &mut chains {
            for (lane, factor) in chain.iter_mut().zip(factor) {
                *lane = *lane * factor + factor;
            }
        }
    }
    chains.iter().flatten().sum()
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::x86_64::*;
    use std::hint::black_box;

    use super::{CHAINS, STEPS};

    /// Chains of fused multiply-adds in AVX-512.
    #[target_feature(enable = "avx512f")]
    pub fn chains_of_512_bits() -> f32 {
        let factor = _mm512_set1_ps(black_box(0.5));
        let mut chains: [__m512; CHAINS] = std::array::from_fn(|i| _mm512_set1_ps(i as f32));
        for _ in 0..STEPS {
            for chain in &mut chains {
                *chain = _mm512_fmadd_ps(*chain, factor, factor);
            }
        }
        chains.into_iter().map(|chain| _mm512_reduce_add_ps(chain)).sum()
    }

    /// Chains of `VDPBF16PS`.
    #[target_feature(enable = "avx512f,avx512bf16")]
    pub fn chains_of_dots() -> f32 {
        let factors = _mm512_set1_ps(black_box(0.5));
        let factors = _mm512_cvtne2ps_pbh(factors, factors);
        let mut chains: [__m512; CHAINS] = std::array::from_fn(|i| _mm512_set1_ps(i as f32));
        for _ in 0..STEPS {
            for chain in &mut chains {
                *chain = _mm512_dpbf16_ps(*chain, factors, factors);
            }
        }
        chains.into_iter().map(|chain| _mm512_reduce_add_ps(chain)).sum()
    }

    /// Chains of fused multiply-adds in AVX2.
    #[target_feature(enable = "avx2,fma")]
    pub fn chains_of_256_bits() -> f32 {
        let factor = _mm256_set1_ps(black_box(0.5));
        let mut chains: [__m256; CHAINS] = std::array::from_fn(|i| _mm256_set1_ps(i as f32));
        for _ in 0..STEPS {
            for chain in &mut chains {
                *chain = _mm256_fmadd_ps(*chain, factor, factor);
            }
        }
        chains.into_iter().map(|chain| _mm_cvtss_f32(_mm256_castps256_ps128(chain))).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_set_has_a_peak() {
        for instruction_set in InstructionSet::available() {
            assert!(core_flops_per_second(instruction_set) > 0.0, "{instruction_set:?}");
        }
        assert!(flops_per_second(2) > 0.0);
        assert!(copy_bytes_per_second(2) > 0.0);
    }
}
