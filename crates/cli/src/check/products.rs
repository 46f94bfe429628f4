//! What a run tells about products whose order its run file chose.

use config::{Precision, Products};
use cpu::instruction_set::InstructionSet;

/// How products are computed on a machine with these sets, the best first; nothing where a run has the usual order.
pub fn line(precision: Precision, sets: &[InstructionSet]) -> String {
    let slower = match (precision.products(), precision) {
        (Products::Chained, _) => return String::new(),
        (Products::Pairs, Precision::Fp32(_)) => "12 to 20 times",
        (Products::Pairs, Precision::Bf16(_) | Precision::Fp16(_)) => "1.3 to 1.5 times",
    };
    match sets.first() {
        Some(InstructionSet::Amx) => "numbers products in pairs, by tiles of AMX\n".into(),
        Some(InstructionSet::Avx512 | InstructionSet::Avx2 | InstructionSet::Scalar) | None => format!(
            "numbers products in pairs; without AMX they take {slower} as long as with train.products = \"chained\"\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_that_is_slow_here_is_told_with_the_other_one() {
        let (amx, none) = ([InstructionSet::Amx, InstructionSet::Avx512], [InstructionSet::Avx2]);
        assert_eq!(line(Precision::Fp32(Products::Chained), &none), "");
        assert_eq!(line(Precision::Bf16(Products::Pairs), &amx), "numbers products in pairs, by tiles of AMX\n");
        assert_eq!(
            line(Precision::Fp32(Products::Pairs), &none),
            "numbers products in pairs; without AMX they take 12 to 20 times as long as with train.products = \"chained\"\n"
        );
    }
}
