//! A product with all of Hopper's asynchronous operations: one warp copies boxes into a ring of two stages, and a
//! warpgroup multiplies them. Every line that orders something is taken out or changed, and is missed.

use cpu::gemm::{BlockRule, Term};
use device::Bf16;
use gpu::{Arguments, DevicePointer, Gpu, LaunchShape, TensorElement, TensorPromotion, TensorSwizzle, TensorTiles};
use softgpu::Settings;

use crate::tests::interpreter::machine::{Machine, header};

const ROWS: usize = 64;
const COLUMNS: usize = 16;
const STEPS: usize = 5;
/// Elements of K in a stage.
const STAGE: usize = 64;

/// The kernel: `out[thread][8] = a[64, 64 steps] b[16, 64 steps]^T`.
fn kernel() -> String {
    let header = header("sm_90a");
    let products: String = (0..4)
        .map(|part| {
            format!(
                "add.s64 %d3, %d1, {0};\nadd.s64 %d4, %d2, {0};
wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {{%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}}, %d3, %d4, 1, 1, 1, 0, 0;\n",
                2 * part
            )
        })
        .collect();
    let zeros: String = (0..8).map(|index| format!("mov.f32 %f{index}, 0f00000000;\n")).collect();
    let stores: String = (0..8).map(|index| format!("st.global.f32 [%d6+{}], %f{index};\n", 4 * index)).collect();
    // The stage of step %r1 in %r2, its turn of the ring in %r3, and its mbarriers in %r5 and %r8.
    let stage =
        "and.b32 %r2, %r1, 1;\nshr.u32 %r3, %r1, 1;\nand.b32 %r3, %r3, 1;\nshl.b32 %r4, %r2, 3;\nmov.u32 %r5, full;
add.u32 %r5, %r5, %r4;\nmov.u32 %r8, empty;\nadd.u32 %r8, %r8, %r4;\nmov.u32 %r6, a;\nmad.lo.u32 %r6, %r2, 8192, %r6;
mov.u32 %r7, b;\nmad.lo.u32 %r7, %r2, 2048, %r7;";
    format!(
        "{header}.visible .entry k(.param .align 64 .b8 map_a[128], .param .align 64 .b8 map_b[128], .param .u64 out, .param .u32 steps) {{
.shared .align 1024 .b8 a[16384];\n.shared .align 1024 .b8 b[4096];\n.shared .align 8 .b8 full[16];\n.shared .align 8 .b8 empty[16];
.reg .pred %p<8>;\n.reg .b32 %r<16>;\n.reg .b64 %d<16>;\n.reg .f32 %f<8>;
ld.param.u32 %r10, [steps];\nld.param.u64 %d5, [out];\nmov.u32 %r0, %tid.x;\nsetp.ne.u32 %p0, %r0, 0;\n@%p0 bra READY;
mbarrier.init.shared::cta.b64 [full], 1;\nmbarrier.init.shared::cta.b64 [full+8], 1;
mbarrier.init.shared::cta.b64 [empty], 1;\nmbarrier.init.shared::cta.b64 [empty+8], 1;\nfence.mbarrier_init.release.cluster;
READY:\nbar.sync 0;\nmov.u32 %r1, 0;\nsetp.ge.u32 %p1, %r0, 128;\n@%p1 bra PRODUCER;\n{zeros}
LOOP:\n{stage}\nWAIT_FULL:\nmbarrier.try_wait.parity.shared::cta.b64 %p2, [%r5], %r3;\n@!%p2 bra WAIT_FULL;
shr.u32 %r6, %r6, 4;\ncvt.u64.u32 %d1, %r6;\nor.b64 %d1, %d1, 0x4000004000010000;
shr.u32 %r7, %r7, 4;\ncvt.u64.u32 %d2, %r7;\nor.b64 %d2, %d2, 0x4000004000010000;
wgmma.fence.sync.aligned;\n{products}wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;
@!%p0 mbarrier.arrive.shared::cta.b64 _, [%r8];\nadd.u32 %r1, %r1, 1;\nsetp.lt.u32 %p4, %r1, %r10;\n@%p4 bra LOOP;
mul.wide.u32 %d6, %r0, 32;\nadd.s64 %d6, %d6, %d5;\n{stores}ret;
PRODUCER:\nsetp.ne.u32 %p5, %r0, 128;\n@%p5 ret;\nmov.b64 %d7, map_a;\ncvta.param.u64 %d7, %d7;\nmov.b64 %d8, map_b;
cvta.param.u64 %d8, %d8;\nmov.u32 %r12, 0;
LOAD:\n{stage}\nxor.b32 %r9, %r3, 1;\nWAIT_EMPTY:\nmbarrier.try_wait.parity.shared::cta.b64 %p6, [%r8], %r9;
@!%p6 bra WAIT_EMPTY;\nmul.lo.u32 %r11, %r1, 64;\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], 10240;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r6], [%d7, {{%r11, %r12}}], [%r5];
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r7], [%d8, {{%r11, %r12}}], [%r5];
add.u32 %r1, %r1, 1;\nsetp.lt.u32 %p7, %r1, %r10;\n@%p7 bra LOAD;\nret;\n}}\n"
    )
}

fn numbers(count: usize, seed: u64) -> Vec<u16> {
    let mut seed = seed;
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        0x3e00 | (seed >> 48) as u16 & 0x81ff
    };
    (0..count).map(|_| next()).collect()
}

/// Runs a kernel; whether its result has the bits of the rule.
fn run(ptx: &str) -> Result<bool, String> {
    let machine = Machine::new(Settings::default());
    let depth = STEPS * STAGE;
    let (a, b) = (numbers(ROWS * depth, 1), numbers(COLUMNS * depth, 2));
    let map = |words: &[u16], rows: usize| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let tiles = TensorTiles {
            element: TensorElement::Bf16,
            address: machine.upload(&bytes),
            dims: vec![depth as u64, rows as u64],
            strides_bytes: vec![2 * depth as u64],
            box_dims: vec![STAGE as u32, rows as u32],
            swizzle: TensorSwizzle::Bytes128,
            promotion: TensorPromotion::Bytes128,
        };
        machine.gpu.tensor_map(&tiles).expect("a map")
    };
    let out: DevicePointer = machine.gpu.allocate(ROWS * COLUMNS * 4).expect("memory");
    let arguments = Arguments::new().with(map(&a, ROWS).bytes()).with(map(&b, COLUMNS).bytes());
    let arguments = arguments.with(&out.0.to_le_bytes()).with(&(STEPS as u32).to_le_bytes());
    let function = machine.function(ptx, "k");
    machine.gpu.launch(machine.stream, function, LaunchShape::linear(1, 160), &arguments).expect("a launch");
    let result = machine.download(out, ROWS * COLUMNS * 4).map_err(|error| error.text)?;
    let has_bits = |index: usize, word: &[u8]| {
        let (thread, register) = (index / 8, index % 8);
        let row = thread / 32 * 16 + thread % 32 / 4 + register / 2 % 2 * 8;
        let column = register / 4 * 8 + thread % 4 * 2 + register % 2;
        let sum = (0..depth).step_by(16).fold(0.0, |sum, first| {
            let term = |from: &[u16], row: usize, k: usize| Term::from(Bf16(from[row * depth + first + k]));
            let factors: Vec<[Term; 2]> = (0..16).map(|k| [term(&a, row, k), term(&b, column, k)]).collect();
            BlockRule::BLOCKS16.add(sum, &factors)
        });
        word == sum.to_bits().to_le_bytes()
    };
    Ok(result.chunks_exact(4).enumerate().all(|(index, word)| has_bits(index, word)))
}

#[test]
fn a_pipeline_has_the_bits_of_the_cpu() {
    assert_eq!(run(&kernel()), Ok(true));
}

#[test]
fn every_line_that_orders_something_is_missed() {
    let lines = [
        ("fence.mbarrier_init.release.cluster;", "", "is not visible to copies"),
        ("bar.sync 0;", "", "is initialised by thread 0 of the block, without a barrier between"),
        ("@!%p2 bra WAIT_FULL;", "", "whose mbarrier phase this warp has not waited for"),
        ("@!%p6 bra WAIT_EMPTY;", "", "written by a copy here, is written by a copy of PTX line"),
        ("[%r5], %r3;", "[%r5], %r12;", "whose mbarrier phase this warp has not waited for"),
        ("xor.b32 %r9, %r3, 1;", "mov.u32 %r9, %r3;", "no warp can continue"),
        ("_, [%r5], 10240;", "_, [%r5], 8192;", "whose mbarrier phase this warp has not waited for"),
        ("_, [%r5], 10240;", "_, [%r5], 10256;", "10240 of 10256 expected bytes"),
        ("wgmma.fence.sync.aligned;", "", "a product comes before any wgmma.fence"),
        ("wgmma.commit_group.sync.aligned;", "", "is read by a product of PTX line"),
        ("wgmma.wait_group.sync.aligned 0;", "", "is read by a product of PTX line"),
        ("wgmma.wait_group.sync.aligned 0;", "wgmma.wait_group.sync.aligned 1;", "is read by a product of PTX line"),
        ("@!%p0 mbarrier.arrive.shared::cta.b64 _, [%r8];", "", "0 of 1 arrivals"),
        ("[empty], 1;", "[empty], 2;", "1 of 2 arrivals"),
        ("[full+8], 1;", "[full+8], 2;", "1 of 2 arrivals"),
        (
            "or.b64 %d1, %d1, 0x4000004000010000;",
            "or.b64 %d1, %d1, 0x4000002000010000;",
            "must be a multiple of 1024 bytes",
        ),
        (
            "mad.lo.u32 %r7, %r2, 2048, %r7;",
            "mad.lo.u32 %r7, %r2, 1024, %r7;",
            "whose mbarrier phase this warp has not waited for",
        ),
    ];
    for (line, changed, expected) in lines {
        let whole = kernel();
        assert!(whole.contains(line), "{line}");
        match run(&whole.replace(line, changed)) {
            Ok(has_bits) => panic!("{line} -> {changed}: no fault, the same bits: {has_bits}"),
            Err(text) => assert!(text.contains(expected), "{line} -> {changed}: {text} lacks {expected}"),
        }
    }
}
