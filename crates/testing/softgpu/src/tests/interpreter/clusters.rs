//! Clusters of one block, elections, and the number of registers of a warpgroup.

use gpu::ModuleImage;
use softgpu::Settings;

use crate::tests::interpreter::machine::{opened, run_threads, threads_kernel};

const WORDS: &str = ".shared .align 4 .b8 words[256];";

fn run(body: &str, threads: u32) -> Result<Vec<u32>, String> {
    run_threads(Settings::default(), &threads_kernel(WORDS, body), threads)
}

/// Thread t writes word t and reads that of the other warp.
fn exchange(between: &str) -> String {
    format!(
        "mov.u64 %d3, words;\nmad.wide.u32 %d4, %r0, 4, %d3;\nst.shared.u32 [%d4], %r0;\n{between}\nxor.b32 %r1, %r0, 32;
mad.wide.u32 %d4, %r1, 4, %d3;\nld.shared.u32 %r2, [%d4];\nst.global.u32 [%d0], %r2;\nret;"
    )
}

#[test]
fn the_barrier_of_a_cluster_orders_its_block() {
    let both = "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;";
    assert_eq!(run(&exchange(both), 64), Ok((0..64).map(|thread| thread ^ 32).collect()));
    let again = exchange(&format!("{both}\n{both}"));
    assert!(run(&again, 64).is_ok());
    let only = exchange("barrier.cluster.arrive;");
    assert!(run(&only, 64).is_err_and(|text| text.contains("were never written")));
    let wait = exchange("barrier.cluster.wait;");
    assert!(run(&wait, 64).is_err_and(|text| text.contains("without having arrived")));
    let twice = exchange("barrier.cluster.arrive;\nbarrier.cluster.arrive;\nbarrier.cluster.wait;");
    assert!(run(&twice, 64).is_err_and(|text| text.contains("arrives twice")));
    let half = "setp.lt.u32 %p1, %r0, 32;\n@%p1 bar.sync 1, 64;\nbarrier.cluster.arrive;\nbarrier.cluster.wait;";
    let text = run(&exchange(half), 64).expect_err("half of the warps");
    assert!(text.contains("waits for the barrier of its cluster"), "{text}");
}

#[test]
fn a_cluster_has_one_block() {
    let body = "mov.u32 %r1, %cluster_ctarank;\nmov.u32 %r2, %cluster_nctarank;\nmov.u32 %r3, %cluster_ctaid.x;
mov.u32 %r4, %cluster_nctaid.y;\nmov.u32 %r5, %clusterid.x;\nmov.u32 %r6, %nclusterid.x;\nmad.lo.u32 %r7, %r1, 10, %r2;
mad.lo.u32 %r7, %r7, 10, %r3;\nmad.lo.u32 %r7, %r7, 10, %r4;\nmad.lo.u32 %r7, %r7, 10, %r5;\nmad.lo.u32 %r7, %r7, 10, %r6;
st.global.u32 [%d0], %r7;\nret;";
    assert_eq!(run(body, 1), Ok(vec![10_101]));
    let mapped =
        "mov.u32 %r1, words;\nmov.u32 %r2, 0;\nmapa.shared::cluster.u32 %r3, %r1, %r2;\nst.shared.u32 [%r3], 9;
ld.shared.u32 %r4, [words];\nst.global.u32 [%d0], %r4;\nret;";
    assert_eq!(run(mapped, 1), Ok(vec![9]));
    let other = mapped.replace("mov.u32 %r2, 0", "mov.u32 %r2, 1");
    assert!(run(&other, 1).is_err_and(|text| text.contains("block 1 of a cluster of one block")));
    let wide = threads_kernel("", "ret;").replace("out) {", "out)\n.explicitcluster\n.reqnctapercluster 2, 1, 1\n{");
    let refused = opened(Settings::default()).load(ModuleImage::Ptx(&wide)).expect_err("two blocks").text;
    assert!(refused.contains("a cluster of 2 blocks; this GPU has clusters of one"), "{refused}");
    assert!(opened(Settings::default()).load(ModuleImage::Ptx(&wide.replace("2, 1, 1", "1, 1, 1"))).is_ok());
}

#[test]
fn one_lane_is_elected_and_registers_change_nothing() {
    let body = "setmaxnreg.dec.sync.aligned.u32 40;\nelect.sync %r1|%p1, -1;\nselp.u32 %r2, 1, 0, %p1;\nst.global.u32 [%d0], %r2;
setmaxnreg.inc.sync.aligned.u32 232;\nret;";
    let expected: Vec<u32> = (0..32).map(|lane| u32::from(lane == 0)).collect();
    assert_eq!(run(body, 32), Ok(expected));
}

#[test]
fn forms_that_do_not_exist_are_refused() {
    let gpu = opened(Settings::default());
    let declarations = ".reg .pred %q<2>;";
    for body in [
        "mbarrier.init.shared::cta.b32 [words], 1;",
        "mbarrier.arrive.noComplete.shared::cta.b64 _, [words];",
        "fence.proxy.tensormap;",
        "wgmma.fence.sync;",
        "wgmma.mma_async.sync.aligned.m64n12k16.f32.bf16.bf16 {%f0}, %d1, %d2, %p1, 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.f16 {%f0, %f1, %f2, %f3}, %d1, %d2, %p1, 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {%r0, %r1}, %d1, %d2, %p1, 1, 1, 0, 0;",
        "cp.async.bulk.tensor.2d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r0], [%d1, {%r1, %r2}], [%r3];",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%d1], [%r0], 16;",
    ] {
        let opcode = body.split(' ').next().expect("an opcode").trim_end_matches(';');
        let ptx = threads_kernel(WORDS, &format!("{declarations}\n{body}\nret;"));
        let error = gpu.load(ModuleImage::Ptx(&ptx)).expect_err(body).text;
        assert!(error.contains(opcode) && error.contains("not supported"), "{error}");
    }
    let texts = [
        (
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1}, %d1, %d2, %p1, 1, 1, 0, 0;",
            "2 registers; 4 are expected",
        ),
        (
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %d1, %d2, %p1, 2, 1, 0, 0;",
            "a sign must be 1 or -1; got 2",
        ),
        (
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %d1, %d2, %p1, 1, 1, 0, 3;",
            "a transpose must be 0 or 1; got 3",
        ),
        (
            "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%d1, {%r1}], [%r0];",
            "a box has 1 coordinates; 2 are expected",
        ),
        ("cp.async.bulk.wait_group %r1;", "the number of groups must be a constant"),
    ];
    for (body, text) in texts {
        let ptx = threads_kernel(WORDS, &format!("{body}\nret;"));
        let error = gpu.load(ModuleImage::Ptx(&ptx)).expect_err(body).text;
        assert!(error.contains(text), "{error} lacks {text}");
    }
    let old = threads_kernel("", "wgmma.fence.sync.aligned;\nret;").replace("sm_90a", "sm_90");
    let error = gpu.load(ModuleImage::Ptx(&old)).expect_err("sm_90").text;
    assert!(error.contains("wgmma needs .target sm_90a; got sm_90"), "{error}");
}
