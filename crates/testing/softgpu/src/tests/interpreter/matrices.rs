//! Products of matrices against the rule of crate `cpu`, fragments and asynchronous copies.

use cpu::gemm::{BlockRule, Term};
use device::{Bf16, F16};
use gpu::{Capability, Gpu, LaunchShape};
use softgpu::Settings;

use crate::tests::interpreter::machine::{Machine, header, run_threads, threads_kernel};

/// One warp: `out = a b + c` with a[16,16] and b[16,8] as halves in rows, and c[16,8] in single precision. A depth of 8
/// uses the first 8 columns of a and rows of b.
fn product_kernel(target: &str, format: &str, depth: usize) -> String {
    let header = header(target);
    let (a, b) = if depth == 8 { ("%r4, %r5", "%r9") } else { ("%r4, %r5, %r6, %r7", "%r9, %r10") };
    // Halves of a at row g, columns 2 p and 2 p + 1; the other registers are 8 rows and 8 columns on.
    format!(
        "{header}.visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd) {{
.reg .b16 %h<8>;\n.reg .b32 %r<32>;\n.reg .b64 %d<32>;\n.reg .f32 %f<8>;
ld.param.u64 %d1, [pa];\nld.param.u64 %d2, [pb];\nld.param.u64 %d3, [pc];\nld.param.u64 %d4, [pd];
mov.u32 %r0, %laneid;\nshr.u32 %r1, %r0, 2;\nand.b32 %r2, %r0, 3;
mad.lo.u32 %r3, %r1, 32, 0;\nmad.lo.u32 %r3, %r2, 4, %r3;\nmad.wide.u32 %d5, %r3, 1, %d1;
ld.global.u32 %r4, [%d5];\nld.global.u32 %r5, [%d5+256];\nld.global.u32 %r6, [%d5+16];\nld.global.u32 %r7, [%d5+272];
mul.lo.u32 %r8, %r2, 32;\nmad.lo.u32 %r8, %r1, 2, %r8;\nmad.wide.u32 %d6, %r8, 1, %d2;
ld.global.u16 %h0, [%d6];\nld.global.u16 %h1, [%d6+16];\nld.global.u16 %h2, [%d6+128];\nld.global.u16 %h3, [%d6+144];
mov.b32 %r9, {{%h0, %h1}};\nmov.b32 %r10, {{%h2, %h3}};
mul.lo.u32 %r11, %r1, 32;\nmad.lo.u32 %r11, %r2, 8, %r11;\nmad.wide.u32 %d7, %r11, 1, %d3;
mad.wide.u32 %d8, %r11, 1, %d4;
ld.global.v2.f32 {{%f0, %f1}}, [%d7];\nld.global.v2.f32 {{%f2, %f3}}, [%d7+256];
mma.sync.aligned.m16n8k{depth}.row.col.f32.{format}.{format}.f32 {{%f4, %f5, %f6, %f7}}, {{{a}}},
 {{{b}}}, {{%f0, %f1, %f2, %f3}};
st.global.v2.f32 [%d8], {{%f4, %f5}};\nst.global.v2.f32 [%d8+256], {{%f6, %f7}};\nret;\n}}\n"
    )
}

/// Halves of any bits under `mask`, and of 1.0 elsewhere.
fn halves(seed: &mut u64, count: usize, mask: u16, one: u16) -> Vec<u16> {
    let mut next = || {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 40) as u16
    };
    (0..count).map(|_| one & !mask | next() & mask).collect()
}

fn compare(settings: &Settings, target: &str, format: &str, rule: BlockRule, term: fn(u16) -> Term, one: u16) {
    for depth in [16, 8] {
        compare_depth(settings, &product_kernel(target, format, depth), depth, rule, term, one);
    }
}

fn compare_depth(settings: &Settings, kernel: &str, depth: usize, rule: BlockRule, term: fn(u16) -> Term, one: u16) {
    let machine = Machine::new(settings.clone());
    let function = machine.function(kernel, "k");
    let width = rule.steps.min(depth);
    let mut seed = 7;
    // Wild bits with NaNs and infinities, any finite size, and sizes near 1.
    for round in 0..60 {
        let mask = [0xffff, 0xbfff, 0x81ff][round % 3];
        let (a, b) = (halves(&mut seed, 256, mask, one), halves(&mut seed, 128, mask, one));
        let c: Vec<f32> = halves(&mut seed, 128, mask, 0x3f80)
            .into_iter()
            .zip(halves(&mut seed, 128, 0xffff, 0))
            .map(|(high, low)| f32::from_bits(u32::from(high) << 16 | u32::from(low)))
            .collect();
        let bytes = |words: &[u16]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let c_bytes: Vec<u8> = c.iter().flat_map(|value| value.to_le_bytes()).collect();
        let pointers = [machine.upload(&bytes(&a)), machine.upload(&bytes(&b)), machine.upload(&c_bytes)];
        let out = machine.gpu.allocate(512).expect("memory");
        machine.launch(function, LaunchShape::linear(1, 32), &[pointers[0], pointers[1], pointers[2], out]);
        let result = machine.download(out, 512).expect("a result");
        for (index, word) in result.chunks_exact(4).enumerate() {
            let (row, column) = (index / 8, index % 8);
            let mut sum = c[index];
            for first in (0..depth).step_by(width) {
                let steps = first..first + width;
                let factors: Vec<[Term; 2]> =
                    steps.map(|step| [term(a[row * 16 + step]), term(b[step * 8 + column])]).collect();
                sum = rule.add(sum, &factors);
            }
            let got = u32::from_le_bytes(word.try_into().expect("4 bytes"));
            assert_eq!(got, sum.to_bits(), "depth {depth}, round {round}, row {row}, column {column}: {sum:e}");
        }
    }
}

#[test]
fn products_have_the_bits_of_the_kernels_of_the_cpu() {
    let hopper = Settings::default();
    let ampere = Settings { capability: Capability { major: 8, minor: 0 }, ..Settings::default() };
    let bf16 = |bits| Term::from(Bf16(bits));
    let f16 = |bits| Term::from(F16(bits));
    compare(&hopper, "sm_90a", "bf16", BlockRule::BLOCKS16, bf16, 0x3f80);
    compare(&hopper, "sm_90a", "f16", BlockRule::BLOCKS16, f16, 0x3c00);
    compare(&ampere, "sm_80", "bf16", BlockRule::BLOCKS8, bf16, 0x3f80);
    compare(&ampere, "sm_80", "f16", BlockRule::BLOCKS8, f16, 0x3c00);
}

/// Thread t writes halves 2 t and 2 t + 1 of one matrix; row r of the matrix has halves 8 r to 8 r + 7.
fn fragment_kernel(modifiers: &str) -> String {
    threads_kernel(
        ".shared .align 16 .b8 tile[128];",
        &format!(
            ".reg .b16 %h<4>;\nmul.lo.u32 %r1, %r0, 2;\nadd.u32 %r2, %r1, 1;\nshl.b32 %r2, %r2, 16;\nor.b32 %r1, %r1, %r2;
mov.u32 %r3, tile;\nmad.lo.u32 %r4, %r0, 4, %r3;\nst.shared.u32 [%r4], %r1;\nbar.warp.sync -1;
and.b32 %r5, %r0, 7;\nmad.lo.u32 %r5, %r5, 16, %r3;
ldmatrix.sync.aligned.m8n8.x1{modifiers}.shared.b16 {{%r6}}, [%r5];\nst.global.u32 [%d0], %r6;\nret;"
        ),
    )
}

#[test]
fn fragments_are_rows_or_columns() {
    let plain = run_threads(Settings::default(), &fragment_kernel(""), 32).expect("a result");
    let transposed = run_threads(Settings::default(), &fragment_kernel(".trans"), 32).expect("a result");
    for lane in 0..32u32 {
        let (group, place) = (lane / 4, lane % 4 * 2);
        let pair = |low: u32, high: u32| high << 16 | low;
        assert_eq!(plain[lane as usize], pair(group * 8 + place, group * 8 + place + 1));
        assert_eq!(transposed[lane as usize], pair(place * 8 + group, (place + 1) * 8 + group));
    }
}

/// Thread t has halves 2 t and 2 t + 1 of one matrix, stores the matrix, and reads word t of shared memory.
fn stored_fragment_kernel(modifiers: &str) -> String {
    threads_kernel(
        ".shared .align 16 .b8 tile[128];",
        &format!(
            "mul.lo.u32 %r1, %r0, 2;\nadd.u32 %r2, %r1, 1;\nshl.b32 %r2, %r2, 16;\nor.b32 %r1, %r1, %r2;
mov.u32 %r3, tile;\nand.b32 %r5, %r0, 7;\nmad.lo.u32 %r5, %r5, 16, %r3;
stmatrix.sync.aligned.m8n8.x1{modifiers}.shared.b16 [%r5], {{%r1}};\nbar.warp.sync -1;
mad.lo.u32 %r4, %r0, 4, %r3;\nld.shared.u32 %r6, [%r4];\nst.global.u32 [%d0], %r6;\nret;"
        ),
    )
}

#[test]
fn stored_fragments_are_rows_or_columns() {
    let plain = run_threads(Settings::default(), &stored_fragment_kernel(""), 32).expect("a result");
    let transposed = run_threads(Settings::default(), &stored_fragment_kernel(".trans"), 32).expect("a result");
    for word in 0..32u32 {
        let (row, column) = (word / 4, word % 4 * 2);
        let pair = |low: u32, high: u32| high << 16 | low;
        assert_eq!(plain[word as usize], pair(row * 8 + column, row * 8 + column + 1));
        assert_eq!(transposed[word as usize], pair(column * 8 + row, (column + 1) * 8 + row));
    }
}

/// Each thread copies its own word of `source` (its number plus 1) to shared memory, and reads it after `wait`.
fn copy_kernel(wait: &str) -> String {
    threads_kernel(
        ".shared .align 16 .b8 tile[128];\n.global .align 4 .b8 source[128];",
        &format!(
            "mov.u64 %d3, source;\nadd.s64 %d3, %d3, 0;\nmul.wide.u32 %d4, %r0, 4;\nadd.s64 %d3, %d3, %d4;
add.u32 %r1, %r0, 1;\nst.global.u32 [%d3], %r1;\nmov.u32 %r2, tile;\nmad.lo.u32 %r2, %r0, 4, %r2;
mov.u32 %r5, 7;\nst.shared.u32 [%r2], %r5;\ncp.async.ca.shared.global [%r2], [%d3], 4;\ncp.async.commit_group;
{wait}\nld.shared.u32 %r3, [%r2];\nst.global.u32 [%d0], %r3;\nret;"
        ),
    )
}

#[test]
fn a_copy_ends_only_when_it_is_waited_for() {
    let numbers: Vec<u32> = (1..=32).collect();
    let run = |wait: &str| run_threads(Settings::default(), &copy_kernel(wait), 32).expect("a result");
    assert_eq!(run("cp.async.wait_group 0;"), numbers);
    assert_eq!(run("cp.async.wait_all;"), numbers);
    assert_eq!(run(""), vec![7; 32]);
    assert_eq!(run("cp.async.wait_group 1;"), vec![7; 32]);
}
