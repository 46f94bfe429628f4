//! The most multiply-adds that one core does: independent chains in registers.

use std::arch::x86_64::*;
use std::hint::black_box;
use std::time::Instant;

use cpu::instruction_set::InstructionSet;

const CHAINS: usize = 12;
const STEPS: usize = 1_000_000;

/// GFLOP/s of fused multiply-adds in an instruction set's registers, the best of several runs.
pub fn gflops(instruction_set: InstructionSet) -> f64 {
    assert!(instruction_set.is_available(), "this machine has no {instruction_set:?}");
    let (lanes, run): (usize, unsafe fn() -> f32) = match instruction_set {
        InstructionSet::Avx512 => (16, chains_of_512_bits),
        InstructionSet::Avx2 => (8, chains_of_256_bits),
        InstructionSet::Scalar => return f64::NAN,
    };
    let mut best = f64::INFINITY;
    for _ in 0..20 {
        let start = Instant::now();
        // SAFETY: the machine has the instructions.
        black_box(unsafe { run() });
        best = best.min(start.elapsed().as_secs_f64());
    }
    (2 * lanes * CHAINS * STEPS) as f64 / best / 1e9
}

#[target_feature(enable = "avx512f")]
fn chains_of_512_bits() -> f32 {
    let factor = _mm512_set1_ps(black_box(0.5));
    let mut chains: [__m512; CHAINS] = std::array::from_fn(|i| _mm512_set1_ps(i as f32));
    for _ in 0..STEPS {
        for chain in &mut chains {
            *chain = _mm512_fmadd_ps(*chain, factor, factor);
        }
    }
    chains.into_iter().map(|chain| _mm512_reduce_add_ps(chain)).sum()
}

#[target_feature(enable = "avx2,fma")]
fn chains_of_256_bits() -> f32 {
    let factor = _mm256_set1_ps(black_box(0.5));
    let mut chains: [__m256; CHAINS] = std::array::from_fn(|i| _mm256_set1_ps(i as f32));
    for _ in 0..STEPS {
        for chain in &mut chains {
            *chain = _mm256_fmadd_ps(*chain, factor, factor);
        }
    }
    chains.into_iter().map(|chain| _mm_cvtss_f32(_mm256_castps256_ps128(chain))).sum()
}
