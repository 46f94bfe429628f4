//! Which vector instructions the kernels use. Results never depend on it: every kernel gives the same bits on all
//! of them, so it is a matter of speed only.

#[cfg(target_arch = "x86_64")]
use crate::amx_tiles;

/// The instructions a kernel is built from. Slower sets can be forced on a machine that has faster ones, which is how
/// tests hold them against each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InstructionSet {
    /// Tiles of bf16 for products in AMX order: AMX-TILE and AMX-BF16. All other work is done as with AVX-512.
    Amx,
    /// 512-bit vectors: AVX-512 F, BW, DQ and VL, with AVX2, FMA and F16C.
    Avx512,
    /// 256-bit vectors: AVX2, FMA and F16C.
    Avx2,
    /// No vectors and no assumption about the machine.
    Scalar,
}

impl InstructionSet {
    /// The fastest set that this machine has.
    pub fn detect() -> Self {
        Self::fastest_first().find(|set| set.is_available()).unwrap_or(Self::Scalar)
    }

    /// Every set that this machine has, fastest first; the last is always [`InstructionSet::Scalar`].
    pub fn available() -> Vec<Self> {
        Self::fastest_first().filter(|set| set.is_available()).collect()
    }

    /// Whether this machine has the instructions. The answer is looked up in a cache, so asking per call is cheap.
    #[cfg(target_arch = "x86_64")]
    pub fn is_available(self) -> bool {
        let has_avx2 =
            || is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        let has_avx512 = || {
            has_avx2()
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
        };
        match self {
            Self::Amx => has_avx512() && amx_tiles::is_available(),
            Self::Avx512 => has_avx512(),
            Self::Avx2 => has_avx2(),
            Self::Scalar => true,
        }
    }

    /// Whether this machine has the instructions: only the scalar set exists off x86-64.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn is_available(self) -> bool {
        matches!(self, Self::Scalar)
    }

    fn fastest_first() -> impl Iterator<Item = Self> {
        [Self::Amx, Self::Avx512, Self::Avx2, Self::Scalar].into_iter()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn scalar_is_always_available_and_last() {
        let available = InstructionSet::available();
        // Past the harness, which hides what a passing test prints: a set that tests cannot compare here must not look
        // compared.
        let _ = writeln!(std::io::stderr(), "instruction sets that are compared on this machine: {available:?}");
        assert_eq!(available.last(), Some(&InstructionSet::Scalar));
        assert_eq!(available.first(), Some(&InstructionSet::detect()));
    }
}
