//! Values of other lanes, and atomics.

use softgpu::Settings;

use crate::tests::interpreter::machine::{run_threads, threads_kernel};

fn run(body: &str) -> Vec<u32> {
    run_threads(Settings::default(), &threads_kernel(".shared .align 4 .b8 words[64];", body), 32).expect("a result")
}

fn each(f: impl Fn(u32) -> u32) -> Vec<u32> {
    (0..32).map(f).collect()
}

const STORE: &str = "st.global.u32 [%d0], %r1;\nret;";

#[test]
fn shuffles() {
    let shuffle = |text: &str| run(&format!("mad.lo.u32 %r2, %r0, 3, 1;\nshfl.sync.{text};\n{STORE}"));
    let value = |lane: u32| lane * 3 + 1;
    assert_eq!(shuffle("bfly.b32 %r1, %r2, 5, 31, -1"), each(|t| value(t ^ 5)));
    assert_eq!(shuffle("down.b32 %r1, %r2, 4, 31, -1"), each(|t| value(if t + 4 < 32 { t + 4 } else { t })));
    assert_eq!(shuffle("up.b32 %r1, %r2, 4, 0, -1"), each(|t| value(if t >= 4 { t - 4 } else { t })));
    assert_eq!(shuffle("idx.b32 %r1, %r2, 9, 31, -1"), each(|_| value(9)));
    // Segments of 8 lanes: mask 0x18 in bits 8 to 12, clamp 7.
    let clamp = 0x1800 + 7;
    let down = format!("down.b32 %r1, %r2, 2, {clamp}, -1");
    assert_eq!(shuffle(&down), each(|t| value(if t % 8 + 2 < 8 { t + 2 } else { t })));
    let range = "bfly.b32 %r2|%p1, %r2, 16, 15, -1;\nselp.u32 %r1, 1, 0, %p1";
    assert_eq!(shuffle(range), each(|t| u32::from(t >= 16)));
}

#[test]
fn votes_reductions_and_matches() {
    let odd = "and.b32 %r2, %r0, 1;\nsetp.eq.u32 %p1, %r2, 1;\n";
    let of = |text: &str| run(&format!("{odd}{text};\n{STORE}"));
    assert_eq!(of("vote.sync.ballot.b32 %r1, %p1, -1"), each(|_| 0xaaaa_aaaa));
    assert_eq!(of("vote.sync.any.pred %p2, %p1, -1;\nselp.u32 %r1, 1, 0, %p2"), each(|_| 1));
    assert_eq!(of("vote.sync.all.pred %p2, %p1, -1;\nselp.u32 %r1, 1, 0, %p2"), each(|_| 0));
    assert_eq!(of("redux.sync.add.u32 %r1, %r0, -1"), each(|_| 31 * 16));
    assert_eq!(of("neg.s32 %r3, %r0;\nredux.sync.min.s32 %r1, %r3, -1"), each(|_| -31i32 as u32));
    assert_eq!(of("match.any.sync.b32 %r1, %r2, -1"), each(|t| if t % 2 == 0 { 0x5555_5555 } else { 0xaaaa_aaaa }));
    assert_eq!(of("elect.sync %r1|%p2, -1"), each(|_| 0));
}

#[test]
fn atomics_are_counted_once_each() {
    let body = "mov.u32 %r2, 0;\nsetp.ne.u32 %p1, %r0, 0;\n@!%p1 st.shared.u32 [words], %r2;\nbar.warp.sync -1;
atom.shared.add.u32 %r1, [words], 2;\nst.global.u32 [%d0], %r1;\nret;";
    assert_eq!(run(body), each(|t| 2 * t));
    let body = "mov.u32 %r2, 5;\nsetp.ne.u32 %p1, %r0, 0;\n@!%p1 st.shared.u32 [words], %r2;\nbar.warp.sync -1;
atom.shared.cas.b32 %r1, [words], 5, %r0;\nst.global.u32 [%d0], %r1;\nret;";
    assert_eq!(run(body), each(|t| if t == 0 { 5 } else { 0 }));
}

#[test]
fn a_warp_has_32_lanes() {
    assert_eq!(run(&format!("mov.u32 %r1, WARP_SZ;\nadd.s32 %r1, %r1, %r0;\n{STORE}")), each(|lane| lane + 32));
}
