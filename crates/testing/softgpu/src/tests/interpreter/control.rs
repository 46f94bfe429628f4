//! Branches, loops and barriers.

use softgpu::Settings;

use crate::tests::interpreter::machine::{run_threads, threads_kernel};

fn run(body: &str, threads: u32) -> Result<Vec<u32>, String> {
    run_threads(Settings::default(), &threads_kernel(".shared .align 4 .b8 words[4096];", body), threads)
}

#[test]
fn lanes_leave_a_loop_one_by_one_and_meet_after_it() {
    // Thread t runs t times; the vote after the loop sees all lanes.
    let body = "mov.u32 %r1, 0;\nmov.u32 %r2, 0;\nLOOP: setp.ge.u32 %p1, %r1, %r0;\n@%p1 bra END;
add.u32 %r1, %r1, 1;\nadd.u32 %r2, %r2, %r1;\nbra LOOP;
END: activemask.b32 %r3;\npopc.b32 %r3, %r3;\nmad.lo.u32 %r2, %r3, 1000, %r2;\nst.global.u32 [%d0], %r2;\nret;";
    let expected: Vec<u32> = (0..32).map(|t| 32_000 + t * (t + 1) / 2).collect();
    assert_eq!(run(body, 32), Ok(expected));
}

#[test]
fn nested_conditions_and_early_ends() {
    let body = "and.b32 %r1, %r0, 1;\nsetp.eq.u32 %p1, %r1, 0;\nmov.u32 %r2, 5;\nst.global.u32 [%d0], %r2;
@%p1 bra EVEN;\nsetp.gt.u32 %p2, %r0, 20;\n@%p2 ret;\nmov.u32 %r2, 7;\nbra MEET;
EVEN: setp.lt.u32 %p3, %r0, 10;\n@!%p3 bra MEET;\nmov.u32 %r2, 9;
MEET: bar.sync 0;\nactivemask.b32 %r3;\npopc.b32 %r3, %r3;\nmad.lo.u32 %r2, %r3, 100, %r2;\nst.global.u32 [%d0], %r2;\nret;";
    let expected: Vec<u32> = (0..32u32)
        .map(|t| match (t % 2, t) {
            (1, 21..) => 5,
            (1, _) => 2607,
            (_, 0..10) => 2609,
            _ => 2605,
        })
        .collect();
    assert_eq!(run(body, 32), Ok(expected));
}

#[test]
fn a_tree_of_sums_over_warps_with_barriers() {
    // A block of 128 threads adds 0 to 127 in shared memory.
    let body =
        "mov.u64 %d3, words;\nmad.wide.u32 %d4, %r0, 4, %d3;\nst.shared.u32 [%d4], %r0;\nbar.sync 0;\nmov.u32 %r1, 64;
LOOP: setp.ge.u32 %p1, %r0, %r1;\n@%p1 bra SKIP;\nmad.wide.u32 %d5, %r1, 4, %d4;\nld.shared.u32 %r2, [%d5];
ld.shared.u32 %r3, [%d4];\nadd.u32 %r2, %r2, %r3;\nst.shared.u32 [%d4], %r2;
SKIP: bar.sync 0;\nshr.u32 %r1, %r1, 1;\nsetp.ne.u32 %p2, %r1, 0;\n@%p2 bra LOOP;
ld.shared.u32 %r4, [words];\nst.global.u32 [%d0], %r4;\nret;";
    assert_eq!(run(body, 128), Ok(vec![127 * 128 / 2; 128]));
}

#[test]
fn named_barriers_order_producers_and_consumers() {
    // Warp 0 writes and arrives; warp 1 waits and reads.
    let body = "mov.u64 %d3, words;\nand.b32 %r1, %r0, 31;\nmad.wide.u32 %d4, %r1, 4, %d3;\nsetp.ge.u32 %p1, %r0, 32;\n@%p1 bra READ;
add.u32 %r2, %r1, 100;\nst.shared.u32 [%d4], %r2;\nbar.arrive 1, 64;\nst.global.u32 [%d0], %r1;\nret;
READ: bar.sync 1, 64;\nxor.b32 %r1, %r1, 1;\nmad.wide.u32 %d4, %r1, 4, %d3;\nld.shared.u32 %r2, [%d4];\nst.global.u32 [%d0], %r2;\nret;";
    let expected: Vec<u32> = (0..32).chain((0..32).map(|t| 100 + (t ^ 1))).collect();
    assert_eq!(run(body, 64), Ok(expected));
}

#[test]
fn barriers_that_cannot_end_are_named() {
    // Half of a warp takes another barrier than the other half.
    let body = "setp.lt.u32 %p1, %r0, 16;\n@%p1 bra LOW;\nbar.sync 0;\nbra END;\nLOW: bar.sync 0;\nEND: ret;";
    let error = run(body, 32).expect_err("a warp that is apart");
    assert!(error.contains("lanes wait for others that do not come"), "{error}");
    // Warp 1 does not come to the barrier of 64 threads.
    let body = "setp.ge.u32 %p1, %r0, 32;\n@%p1 ret;\nbar.sync 1, 64;\nret;";
    let error = run(body, 64).expect_err("a barrier without its second warp");
    assert!(error.contains("warp 0 at barrier 1 (PTX line") && error.contains("32 of 64 threads"), "{error}");
    // Warps at different __syncthreads.
    let body = "setp.ge.u32 %p1, %r0, 32;\n@%p1 bra HIGH;\nbar.sync 0;\nret;\nHIGH: bar.sync 0;\nret;";
    let error = run(body, 64).expect_err("two places");
    assert!(error.contains("meet at different barriers"), "{error}");
    // Lanes of a shuffle that never come.
    let body = "setp.ge.u32 %p1, %r0, 16;\n@%p1 bra SPIN;\nshfl.sync.idx.b32 %r1, %r0, 0, 31, -1;\nret;\nSPIN: bar.warp.sync -1;\nret;";
    let error = run(body, 32).expect_err("a shuffle of half a warp");
    assert!(error.contains("for lanes 0xffff0000"), "{error}");
}

#[test]
fn an_endless_loop_is_ended() {
    let settings = Settings { max_warp_instructions: 10_000, ..Settings::default() };
    let ptx = threads_kernel("", "LOOP: add.u32 %r1, %r1, 1;\nbra LOOP;");
    let error = run_threads(settings, &ptx, 32).expect_err("a kernel without an end");
    assert!(error.starts_with("kernel k, PTX line 15 `bra LOOP;`, block (0, 0, 0)"), "{error}");
}
