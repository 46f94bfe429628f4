//! Every check on a kernel that breaks its rule, and on one that does not.

use gpu::{DriverErrorKind, Gpu, LaunchShape, ModuleImage};
use softgpu::{AccessRanges, Check, Checks, Settings};

use crate::tests::interpreter::machine::{Machine, opened, run_shape, run_threads, threads_kernel};

const WORDS: &str = ".shared .align 4 .b8 words[256];\n.global .align 4 .b8 far[256];";

fn error(body: &str, threads: u32) -> String {
    run_threads(Settings::default(), &threads_kernel(WORDS, body), threads).expect_err(body)
}

fn contains(error: &str, parts: &[&str]) {
    for part in parts {
        assert!(error.contains(part), "{error} lacks {part}");
    }
}

#[test]
fn accesses_outside_of_memory() {
    let found = error("st.global.u32 [%d0+128], %r0;\nret;", 32);
    contains(
        &found,
        &[
            "kernel k, PTX line 15 `st.global.u32 [%d0+128], %r0;`, block (0, 0, 0), thread (0, 0, 0)",
            "0 bytes past the end of the allocation",
        ],
    );
    contains(&error("ld.global.u32 %r1, [12];\nret;", 1), &["4 bytes at 0xc have no memory"]);
    contains(&error("ld.shared.u32 %r1, [words+256];\nret;", 1), &["outside of shared memory", "256 bytes"]);
    contains(&error("add.s64 %d0, %d0, 2;\nst.global.u32 [%d0], %r0;\nret;", 1), &["is not a multiple of the 4 bytes"]);
    contains(&error("trap;", 1), &["trap"]);
}

#[test]
fn an_access_outside_of_declared_ranges() {
    let machine = Machine::new(Settings::default());
    let out = machine.gpu.allocate(256).expect("memory");
    let function = machine.function(&threads_kernel("", "st.global.u32 [%d0], %r0;\nret;"), "k");
    let declare = |bytes| machine.gpu.expect_access(machine.stream, AccessRanges::new(&[], &[(out, bytes)]));
    declare(128);
    machine.launch(function, LaunchShape::linear(1, 32), &[out]);
    machine.gpu.synchronize(machine.stream).expect("within the range");
    declare(124);
    machine.launch(function, LaunchShape::linear(1, 32), &[out]);
    let found = machine.gpu.synchronize(machine.stream).expect_err("outside of the range");
    assert_eq!(found.kind, DriverErrorKind::KernelFault);
    contains(&found.text, &["thread (31, 0, 0)", "which the launch did not declare"]);
}

#[test]
fn reads_of_bytes_that_nothing_has_written() {
    contains(&error("ld.shared.u32 %r1, [words+4];\nret;", 1), &["shared memory at 0x4", "were never written"]);
    let local = ".local .align 4 .b8 own[16];\nst.local.u32 [own], %r0;\nld.local.u32 %r1, [own+4];\nret;";
    contains(&error(local, 1), &["local memory at 0x4", "were never written"]);
    let body = "ld.global.u32 %r1, [%d0];\nret;";
    let ptx = threads_kernel("", body);
    assert_eq!(run_threads(Settings::default(), &ptx, 1), Ok(vec![0]));
    let checks = Checks { unwritten_global: Check::On, ..Checks::default() };
    let found = run_threads(Settings { checks, ..Settings::default() }, &ptx, 1).expect_err("zeros of nobody");
    contains(&found, &["were never written"]);
}

/// Thread t writes word t and reads that of its neighbour, with `between` in between.
fn neighbours(between: &str) -> String {
    format!(
        "mov.u64 %d3, words;\nmad.wide.u32 %d4, %r0, 4, %d3;\nst.shared.u32 [%d4], %r0;\n{between}\nxor.b32 %r1, %r0, 1;
mad.wide.u32 %d4, %r1, 4, %d3;\nld.shared.u32 %r2, [%d4];\nst.global.u32 [%d0], %r2;\nret;"
    )
}

#[test]
fn races_in_shared_memory() {
    let found = error(&neighbours(""), 32);
    contains(
        &found,
        &["ld.shared.u32", "is written by thread 1 of the block and read here, without a barrier between"],
    );
    let expected: Vec<u32> = (0..32).map(|t| t ^ 1).collect();
    for between in ["bar.sync 0;", "bar.warp.sync -1;"] {
        let ptx = threads_kernel(WORDS, &neighbours(between));
        assert_eq!(run_threads(Settings::default(), &ptx, 32).as_ref(), Ok(&expected));
    }
    // A barrier of each warp orders nothing between two of them.
    let first = "mov.u64 %d3, words;\nmad.wide.u32 %d4, %r0, 4, %d3;\nst.shared.u32 [%d4], 77;\nbar.sync 0;\n";
    let across = neighbours("bar.warp.sync -1;").replace("xor.b32 %r1, %r0, 1", "xor.b32 %r1, %r0, 32");
    let across = format!("{first}{across}");
    contains(&error(&across, 64), &["without a barrier between"]);
    // Two threads write different values, then a read is overwritten.
    contains(
        &error("st.shared.u32 [words], %r0;\nret;", 32),
        &["is written by thread 0 of the block and written here"],
    );
    let overwritten = "mov.u32 %r2, 1;\nsetp.eq.u32 %p1, %r0, 0;\n@%p1 st.shared.u32 [words], %r2;\nbar.sync 0;
ld.shared.u32 %r1, [words];\n@%p1 st.shared.u32 [words], %r0;\nret;";
    contains(&error(overwritten, 32), &["is read by several threads", "and written here"]);
}

#[test]
fn bytes_of_one_word_are_apart() {
    // Two-byte elements of neighbouring threads share a word, and do not race.
    let body = ".reg .b16 %h<2>;\nmov.u64 %d3, words;\nmad.wide.u32 %d4, %r0, 2, %d3;\ncvt.u16.u32 %h0, %r0;
st.shared.u16 [%d4], %h0;\nld.shared.u16 %h1, [%d4];\ncvt.u32.u16 %r1, %h1;\nst.global.u32 [%d0], %r1;\nret;";
    assert_eq!(run_threads(Settings::default(), &threads_kernel(WORDS, body), 32), Ok((0..32).collect()));
}

fn run_blocks(body: &str, blocks: u32) -> Result<Vec<u32>, String> {
    run_shape(Settings::default(), &threads_kernel(WORDS, body), LaunchShape::linear(blocks, 1), blocks as usize)
}

#[test]
fn races_between_blocks() {
    let found = run_blocks("mov.u32 %r1, %ctaid.x;\nst.global.u32 [%d0], %r1;\nret;", 2).expect_err("one word");
    contains(&found, &["block (1, 0, 0)", "was written by block 0 of this launch", "without an order between"]);
    let read = "mov.u32 %r1, %ctaid.x;\nsetp.eq.u32 %p1, %r1, 0;\nmov.u32 %r2, 3;\n@%p1 st.global.u32 [%d0], %r2;
@!%p1 ld.global.u32 %r3, [%d0];\nret;";
    contains(&run_blocks(read, 2).expect_err("a word of another block"), &["read here: was written by block 0"]);
    assert_eq!(run_blocks("atom.global.add.u32 %r1, [%d0], 1;\nret;", 5), Ok(vec![5, 0, 0, 0, 0]));
}

/// Each block writes its word of `far`, counts itself, and the last of three adds all words up.
fn last_block(fence: &str) -> String {
    format!(
        "mov.u32 %r1, %ctaid.x;\nmov.u64 %d3, far;\nadd.u32 %r2, %r1, 10;\nmad.wide.u32 %d4, %r1, 4, %d3;\nst.global.u32 [%d4], %r2;
{fence}\natom.global.add.u32 %r3, [%d0], 1;\nsetp.ne.u32 %p1, %r3, 2;\n@%p1 ret;\nld.global.u32 %r4, [%d3];
ld.global.u32 %r5, [%d3+4];\nld.global.u32 %r6, [%d3+8];\nadd.u32 %r4, %r4, %r5;\nadd.u32 %r4, %r4, %r6;
st.global.u32 [%d0+4], %r4;\nret;"
    )
}

#[test]
fn the_last_block_sees_the_others_after_a_fence() {
    assert_eq!(run_blocks(&last_block("membar.gl;"), 3), Ok(vec![3, 33, 0]));
    contains(&run_blocks(&last_block(""), 3).expect_err("no fence"), &["was written by block 0 of this launch"]);
}

#[test]
fn code_that_is_refused() {
    let gpu = opened(Settings::default());
    let refuse = |body: &str| {
        let error = gpu.load(ModuleImage::Ptx(&threads_kernel("", body))).expect_err(body);
        assert_eq!(error.kind, DriverErrorKind::InvalidImage);
        error.text
    };
    contains(&refuse("ex2.approx.f32 %f0, %f1;\nret;"), &["PTX line 14: ex2.approx.f32", "approximate"]);
    contains(&refuse("div.full.f32 %f0, %f1, %f2;\nret;"), &["div.full.f32", "approximate"]);
    contains(
        &refuse("red.global.add.f32 [%d0], %f0;\nret;"),
        &["red.global.add.f32: this instruction is not supported"],
    );
    contains(&refuse("frobnicate.u32 %r0, %r1;\nret;"), &["frobnicate.u32: this instruction is not supported"]);
    contains(&refuse("add.s32.odd %r0, %r1, %r2;\nret;"), &["add.s32.odd: this instruction is not supported"]);
    for body in [
        "bfe.u64 %d3, %d1, %r1, %r2;",
        "bfe.s64 %d3, %d1, %r1, %r2;",
        "bfi.b64 %d3, %d1, %d2, %r1, %r2;",
        "add.rz.ftz.f64 %g0, %g0, %g0;",
        "add.sat.f64 %g0, %g0, %g0;",
        "max.rm.f64 %g0, %g0, %g0;",
        "add.rna.f32 %f0, %f1, %f2;",
        "add.rz.f16 %h0, %h0, %h0;",
    ] {
        let opcode = body.split(' ').next().expect("an opcode");
        let text = refuse(&format!(".reg .f64 %g<2>;\n.reg .b16 %h<2>;\n{body}\nret;"));
        contains(&text, &["PTX line 16", opcode, "not supported"]);
    }
    contains(&refuse("bra NOWHERE;\nret;"), &["must be a label"]);
    contains(&refuse("add.s32 %r0, %r99, %r2;\nret;"), &["unknown register %r99"]);
    let cubin = gpu.load(ModuleImage::Cubin(&[0; 16])).expect_err("a CUBIN");
    assert_eq!(cubin.kind, DriverErrorKind::InvalidImage);
}

#[test]
fn ptx_without_limits_is_refused() {
    let gpu = opened(Settings::default());
    let refuse =
        |words: &str, body: &str| gpu.load(ModuleImage::Ptx(&threads_kernel(words, body))).expect_err("no limit").text;
    let nested = |depth: usize| format!("{}{}ret;", "{".repeat(depth), "}".repeat(depth));
    assert!(gpu.load(ModuleImage::Ptx(&threads_kernel("", &nested(60)))).is_ok());
    contains(&refuse("", &nested(200_000)), &["braces must be nested at most 64 deep"]);
    contains(&refuse("", &format!("mov.b32 %r0, {};\nret;", "{".repeat(200_000))), &["nested at most 64 deep"]);
    contains(&refuse("", ".reg .b32 %q<4000000000>;\nret;"), &["4000000000 registers must be at most 1048576"]);
    contains(&refuse(".shared .align 3 .b8 odd[4];", "ret;"), &[".align 3 must be a power of two up to 4096"]);
    contains(&refuse(".shared .b8 big[4000000000][4000000000];", "ret;"), &["big must have at most 268435456 bytes"]);
}
