//! The same lanes with the vector instructions of the processor.

use super::arithmetic::arithmetic;
use super::matrix::{product, warpgroup_product};
use super::registers::{Lanes, Registers};
use super::tensor_core::Rule;
use super::warpgroups::Operands;
use crate::code::{Instruction, MatrixProduct, NumberFormat, Op};

/// A set of vector instructions that the processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstructionSet(Set);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    /// The set of the compiler's target.
    Portable,
    /// AVX2, fused multiply-add and bit counts.
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl InstructionSet {
    /// The set that every processor has.
    pub fn portable() -> InstructionSet {
        InstructionSet(Set::Portable)
    }

    /// The widest set of this processor.
    pub fn widest() -> InstructionSet {
        #[cfg(target_arch = "x86_64")]
        if ["avx2", "fma", "bmi1", "bmi2", "lzcnt", "popcnt"].iter().all(|feature| has(feature)) {
            return InstructionSet(Set::Avx2);
        }
        InstructionSet::portable()
    }

    /// Runs the leading instructions of `instructions` that need no other lane and no memory; returns their number.
    pub fn run(self, registers: &mut Registers, lanes: Lanes, instructions: &[Instruction]) -> usize {
        match self.0 {
            Set::Portable => run_lanes(registers, lanes, instructions),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `widest` makes this set only where the processor has all features of `run_avx2`.
            Set::Avx2 => unsafe { run_avx2(registers, lanes, instructions) },
        }
    }
}

impl InstructionSet {
    /// Runs a product of matrices.
    pub fn multiply(self, registers: &mut Registers, op: &MatrixProduct, rule: Rule) {
        match self.0 {
            Set::Portable => product(registers, op, rule),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `widest` makes this set only where the processor has all features of `multiply_avx2`.
            Set::Avx2 => unsafe { multiply_avx2(registers, op, rule) },
        }
    }

    /// Runs a warp's part of a product of a warpgroup.
    pub fn multiply_warpgroup(self, registers: &mut Registers, operands: &Operands, format: NumberFormat, rule: Rule) {
        match self.0 {
            Set::Portable => warpgroup_product(registers, operands, format, rule),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `widest` makes this set only where the processor has all features of `multiply_warpgroup_avx2`.
            Set::Avx2 => unsafe { multiply_warpgroup_avx2(registers, operands, format, rule) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
fn multiply_avx2(registers: &mut Registers, op: &MatrixProduct, rule: Rule) {
    product(registers, op, rule);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
fn multiply_warpgroup_avx2(registers: &mut Registers, operands: &Operands, format: NumberFormat, rule: Rule) {
    warpgroup_product(registers, operands, format, rule);
}

#[cfg(target_arch = "x86_64")]
fn has(feature: &str) -> bool {
    match feature {
        "avx2" => std::arch::is_x86_feature_detected!("avx2"),
        "fma" => std::arch::is_x86_feature_detected!("fma"),
        "bmi1" => std::arch::is_x86_feature_detected!("bmi1"),
        "bmi2" => std::arch::is_x86_feature_detected!("bmi2"),
        "lzcnt" => std::arch::is_x86_feature_detected!("lzcnt"),
        "popcnt" => std::arch::is_x86_feature_detected!("popcnt"),
        _ => false,
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
fn run_avx2(registers: &mut Registers, lanes: Lanes, instructions: &[Instruction]) -> usize {
    run_lanes(registers, lanes, instructions)
}

#[inline(always)]
fn run_lanes(registers: &mut Registers, lanes: Lanes, instructions: &[Instruction]) -> usize {
    for (index, instruction) in instructions.iter().enumerate() {
        let lanes = match instruction.guard {
            Some(guard) => lanes & registers.lanes_of(guard),
            None => lanes,
        };
        if let Op::Arithmetic(op) = &instruction.op {
            arithmetic(registers, lanes, op);
        } else if instruction.op != Op::Nothing {
            return index;
        }
    }
    instructions.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::{Symbols, decode};
    use crate::ptx::parse;

    /// Arithmetic of every kind, without memory.
    const BODY: &str = "
add.s32 %r1, %r0, %r2;\nmul.hi.u32 %r3, %r1, %r2;\nmad.lo.s32 %r4, %r1, %r2, %r3;\nmin.s32 %r5, %r1, %r4;
shl.b32 %r6, %r5, %r1;\nshr.s32 %r7, %r4, 3;\npopc.b32 %r8, %r7;\nclz.b32 %r9, %r6;\nbrev.b32 %r10, %r3;
bfe.u32 %r11, %r4, 3, 9;\nprmt.b32 %r12, %r4, %r5, 0x5410;\nlop3.b32 %r13, %r1, %r4, %r10, 0x96;
mul.wide.u32 %d1, %r1, %r4;\nmad.lo.s64 %d2, %d1, %d0, %d1;\nmul.hi.u64 %d3, %d2, %d0;\nshr.u64 %d4, %d3, 7;
add.f32 %f1, %f0, %f2;\nmul.rz.f32 %f3, %f1, %f2;\nfma.rn.f32 %f4, %f3, %f1, %f0;\ndiv.rn.f32 %f5, %f4, %f2;
sqrt.rn.f32 %f6, %f5;\nmax.NaN.f32 %f7, %f6, %f1;\nfma.rn.ftz.f32 %f8, %f7, %f5, %f1;
add.f64 %g1, %g0, %g2;\nfma.rn.f64 %g3, %g1, %g2, %g0;\ndiv.rp.f64 %g4, %g3, %g2;\nfma.rm.f64 %g5, %g4, %g1, %g0;
cvt.rn.bf16.f32 %h1, %f4;\ncvt.rn.f16.f32 %h2, %f5;\nfma.rn.bf16 %h3, %h1, %h1, %h0;\nadd.f16 %h4, %h2, %h0;
cvt.rzi.s32.f32 %r14, %f4;\ncvt.rn.f32.u64 %f9, %d2;\ncvt.rn.f64.s32 %g6, %r4;\ncvt.rn.f32.f64 %f10, %g3;
setp.lt.f32 %p1, %f4, %f1;\nsetp.gt.u32 %p2, %r4, %r1;\n@%p1 add.s32 %r15, %r1, %r4;\n@!%p2 mul.f32 %f11, %f1, %f4;
selp.b32 %r16, %r1, %r4, %p2;\nmov.b64 %d5, {%r1, %r4};\nmov.b64 {%r17, %r18}, %d2;\nret;";

    fn words(seed: u64) -> impl FnMut() -> u64 {
        let mut state = seed;
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state ^ state >> 29
        }
    }

    #[test]
    fn all_sets_have_the_same_bits() {
        let text = format!(
            ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k() {{\n.reg .pred %p<4>;\n.reg .b16 %h<8>;
.reg .b32 %r<32>;\n.reg .b64 %d<8>;\n.reg .f32 %f<16>;\n.reg .f64 %g<8>;{BODY}\n}}\n"
        );
        let module = parse(&text).expect("PTX");
        let kernel = decode(&module.kernels[0], &[], &Symbols::default()).expect("a kernel");
        let mut word = words(1);
        for round in 0..500 {
            let mut registers = Registers::default().of_kernel(&kernel, |_| [0; 32]);
            // Any bits, or numbers near 1.
            let small = |word: u64| if round % 2 == 0 { word as u32 } else { 0x3f00_0000 | word as u32 & 0x81ff_ffff };
            let wide = |word: u64| if round % 2 == 0 { word } else { 0x3fe0 << 48 | word & 0x803f_ffff_ffff_ffff };
            registers.small[..kernel.small].iter_mut().flatten().for_each(|lane| *lane = small(word()));
            registers.wide[..kernel.wide].iter_mut().flatten().for_each(|lane| *lane = wide(word()));
            let lanes = word() as u32;
            let run = |set: InstructionSet| {
                let mut registers = registers.clone();
                let ran = set.run(&mut registers, lanes, &kernel.instructions);
                assert_eq!(ran, kernel.instructions.len());
                (registers.predicates, registers.small, registers.wide)
            };
            assert_eq!(run(InstructionSet::portable()), run(InstructionSet::widest()), "round {round}");
        }
    }
}
