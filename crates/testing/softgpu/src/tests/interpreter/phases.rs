//! mbarriers, and copies that they count.

use gpu::{Arguments, DevicePointer, Gpu, LaunchShape, TensorElement, TensorPromotion, TensorSwizzle, TensorTiles};
use softgpu::Settings;

use crate::tests::interpreter::machine::{Machine, header, run_threads, threads_kernel};

const WORDS: &str = ".shared .align 8 .b8 bar[64];\n.shared .align 1024 .b8 words[4096];";

fn run(body: &str, threads: u32) -> Result<Vec<u32>, String> {
    run_threads(Settings::default(), &threads_kernel(WORDS, body), threads)
}

fn contains(error: &str, parts: &[&str]) {
    for part in parts {
        assert!(error.contains(part), "{error} lacks {part}");
    }
}

/// Thread 0 makes an mbarrier for `count` arrivals.
fn made(count: u32) -> String {
    format!(
        "setp.eq.u32 %p1, %r0, 0;\nmov.u32 %r9, {count};\n@%p1 mbarrier.init.shared::cta.b64 [bar], %r9;
@%p1 fence.mbarrier_init.release.cluster;\nbar.sync 0;\n"
    )
}

/// Waits for the phase of a parity.
fn wait(parity: u32, label: &str) -> String {
    format!(
        "mov.u32 %r8, {parity};\n{label}:\nmbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], %r8;\n@!%p2 bra {label};\n"
    )
}

#[test]
fn a_phase_orders_what_comes_before_its_arrivals() {
    // Threads 0 to 31 write words, arrive, and threads 32 to 63 read them.
    let exchange = |arrive: &str, wait: &str| {
        format!(
            "{}setp.lt.u32 %p3, %r0, 32;\nmov.u64 %d3, words;\nand.b32 %r1, %r0, 31;\nmad.wide.u32 %d4, %r1, 4, %d3;
@!%p3 bra READ;\nst.shared.u32 [%d4], %r0;\n{arrive}\nret;\nREAD:\n{wait}ld.shared.u32 %r2, [%d4];\nst.global.u32 [%d0], %r2;\nret;",
            made(32)
        )
    };
    let arrive = "mbarrier.arrive.release.cta.shared::cta.b64 _, [bar];";
    let words = run(&exchange(arrive, &wait(0, "WAIT")), 64).expect("a phase");
    assert_eq!(words[32..], (0..32).collect::<Vec<u32>>());
    let none = run(&exchange(arrive, ""), 64).expect_err("no wait");
    contains(&none, &["is written by thread 0 of the block and read here, without a barrier between"]);
    // The wait for the other parity is one for the phase after the first.
    contains(&run(&exchange(arrive, &wait(1, "WAIT")), 64).expect_err("a parity"), &["phase 1 has 0 of 32 arrivals"]);
    let missing = run(&exchange(&format!("@%p1 {arrive}"), &wait(0, "WAIT")), 64).expect_err("31 arrivals less");
    contains(
        &missing,
        &["no warp can continue: warp 1 (PTX line", "phase 0 has 1 of 32 arrivals and 0 of 0 expected bytes"],
    );
    let test = wait(0, "WAIT").replace("try_wait", "test_wait");
    assert!(run(&exchange(arrive, &test), 64).is_ok());
    let endless = run(&exchange("", &test), 64).expect_err("no arrival");
    contains(&endless, &["no warp can continue", "0 of 32 arrivals"]);
    // A test that fails once is not repeated here.
    let once = "mov.u32 %r8, 0;\nmbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], %r8;\n";
    let reversed = exchange(arrive, once).replace("setp.lt.u32 %p3, %r0, 32", "setp.ge.u32 %p3, %r0, 32");
    contains(&run(&reversed, 64).expect_err("one test"), &["and read here, without a barrier between"]);
}

#[test]
fn states_and_counts_of_arrivals() {
    let body = format!(
        "{}@!%p1 ret;\nmov.u32 %r1, 2;\nmbarrier.arrive.shared::cta.b64 %d3, [bar], %r1;\nmbarrier.pending_count.b64 %r2, %d3;
st.global.u32 [%d0], %r2;\nmbarrier.arrive.shared::cta.b64 %d4, [bar];\nmbarrier.pending_count.b64 %r3, %d4;
st.global.u32 [%d0+4], %r3;\nWAIT:\nmbarrier.test_wait.shared::cta.b64 %p2, [bar], %d4;\n@!%p2 bra WAIT;
mbarrier.arrive.shared::cta.b64 %d5, [bar];\nmbarrier.test_wait.shared::cta.b64 %p3, [bar], %d5;\nselp.u32 %r4, 1, 0, %p3;
st.global.u32 [%d0+8], %r4;\nmbarrier.inval.shared::cta.b64 [bar];\nst.shared.u32 [bar], 7;\nld.shared.u32 %r5, [bar];
st.global.u32 [%d0+12], %r5;\nret;",
        made(3)
    );
    assert_eq!(run(&body, 32).map(|words| words[..4].to_vec()), Ok(vec![3, 1, 0, 7]));
}

#[test]
fn mbarriers_that_are_used_wrongly() {
    let fault = |body: &str| run(&format!("{}{body}\nret;", made(2)), 32).expect_err(body);
    contains(
        &fault("@%p1 mbarrier.arrive.shared::cta.b64 _, [bar], 3;"),
        &["3 arrivals", "phase 0 waits for 2 of 2 more"],
    );
    contains(&fault("mbarrier.arrive.shared::cta.b64 _, [bar+8];"), &["there is no mbarrier at 0x8"]);
    contains(&fault("@%p1 mbarrier.init.shared::cta.b64 [bar], 1;"), &["an mbarrier is at 0x0 already"]);
    contains(&fault("@%p1 mbarrier.init.shared::cta.b64 [bar+16], 0;"), &["must have 1 to 1048575 arrivals; got 0"]);
    contains(&fault("@%p1 mbarrier.init.shared::cta.b64 [bar+20], 1;"), &["is not a multiple of the 8 bytes"]);
    contains(&fault("@%p1 st.shared.u32 [bar+4], 1;"), &["written here, is part of the mbarrier that PTX line"]);
    contains(&fault("@%p1 ld.shared.u32 %r1, [bar];"), &["read here, is part of the mbarrier"]);
    contains(&fault(&wait(2, "WAIT")), &["the parity of a phase must be 0 or 1; got 2"]);
    contains(
        &fault("@%p1 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 0x100000;"),
        &["must expect at most 1048575 bytes; got 1048576"],
    );
    let early = "setp.eq.u32 %p1, %r0, 0;\n@%p1 mbarrier.init.shared::cta.b64 [bar], 1;\nmbarrier.arrive.shared::cta.b64 _, [bar];\nret;";
    contains(
        &run(early, 32).expect_err("no barrier"),
        &["is initialised by thread 0 of the block, without a barrier between"],
    );
}

/// Copies 512 bytes of `far`, which thread t has filled with its number, and reads them.
fn bulk(expected: u32, before: &str, after: &str) -> String {
    format!(
        "{}mov.u64 %d3, far;\nmad.wide.u32 %d4, %r0, 4, %d3;\nst.global.u32 [%d4], %r0;\nbar.sync 0;\n{before}
@!%p1 bra READ;\nmov.u32 %r1, {expected};\nmov.u32 %r2, 512;\nmov.u32 %r3, words;\nmov.u32 %r4, bar;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], %r1;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%d3], %r2, [%r4];
READ:\n{after}mov.u64 %d5, words;\nmad.wide.u32 %d6, %r0, 4, %d5;\nld.shared.u32 %r5, [%d6];\nst.global.u32 [%d0], %r5;\nret;",
        made(1)
    )
}

fn run_bulk(expected: u32, before: &str, after: &str) -> Result<Vec<u32>, String> {
    let words = format!("{WORDS}\n.global .align 16 .b8 far[512];");
    run_threads(Settings::default(), &threads_kernel(&words, &bulk(expected, before, after)), 128)
}

#[test]
fn bytes_come_when_their_phase_is_waited_for() {
    assert_eq!(run_bulk(512, "", &wait(0, "WAIT")), Ok((0..128).collect()));
    let none = run_bulk(512, "", "").expect_err("no wait");
    contains(
        &none,
        &["read here, is written by a copy of PTX line", "whose mbarrier phase this warp has not waited for"],
    );
    contains(
        &run_bulk(512, "", &wait(1, "WAIT")).expect_err("a parity"),
        &["whose mbarrier phase this warp has not waited for"],
    );
    contains(
        &run_bulk(528, "", &wait(0, "WAIT")).expect_err("too many"),
        &["phase 0 has 1 of 1 arrivals and 512 of 528 expected bytes"],
    );
    contains(
        &run_bulk(496, "", &wait(0, "WAIT")).expect_err("too few"),
        &["phase 0 has 1 of 1 arrivals and 512 of 496 expected bytes"],
    );
    // One warp that waits is enough for a barrier of all to order the rest.
    let one = format!("setp.ge.u32 %p4, %r0, 32;\n@%p4 bra MEET;\n{}MEET:\nbar.sync 0;\n", wait(0, "WAIT"));
    assert_eq!(run_bulk(512, "", &one), Ok((0..128).collect()));
    let apart = one.replace("MEET:\nbar.sync 0;", "MEET:");
    contains(
        &run_bulk(512, "", &apart).expect_err("no barrier"),
        &["whose mbarrier phase this warp has not waited for"],
    );
}

#[test]
fn copies_keep_off_what_threads_use() {
    let own = "mov.u64 %d7, words;\nmad.wide.u32 %d8, %r0, 4, %d7;\nst.shared.u32 [%d8], %r0;\n";
    let none = run_bulk(512, &format!("{own}fence.proxy.async;\n"), &wait(0, "WAIT")).expect_err("other warps");
    contains(&none, &["written here, is written by a copy of PTX line"]);
    let met = format!("{own}bar.sync 0;\n");
    contains(&run_bulk(512, &met, &wait(0, "WAIT")).expect_err("no fence"), &["without a fence.proxy.async between"]);
    assert!(run_bulk(512, &format!("{own}fence.proxy.async;\nbar.sync 0;\n"), &wait(0, "WAIT")).is_ok());
    // A write while the copy is on its way.
    let late = format!("@%p1 st.shared.u32 [words+8], 1;\n{}", wait(0, "WAIT"));
    contains(&run_bulk(512, "", &late).expect_err("a write"), &["written here, is written by a copy of PTX line"]);
    let unseen = bulk(512, "", &wait(0, "WAIT")).replace("@%p1 fence.mbarrier_init.release.cluster;", "");
    let words = format!("{WORDS}\n.global .align 16 .b8 far[512];");
    let found = run_threads(Settings::default(), &threads_kernel(&words, &unseen), 128).expect_err("no fence");
    contains(&found, &["the mbarrier at 0x0 is not visible to copies: use fence.mbarrier_init"]);
    let odd = bulk(512, "", &wait(0, "WAIT")).replace("mov.u32 %r2, 512;", "mov.u32 %r2, 504;");
    let found = run_threads(Settings::default(), &threads_kernel(&words, &odd), 128).expect_err("504 bytes");
    contains(&found, &["a copy of 504 bytes", "all must be multiples of 16"]);
}

#[test]
fn a_block_waits_for_its_copies() {
    let left = bulk(512, "", "ret;\n");
    let words = format!("{WORDS}\n.global .align 16 .b8 far[512];");
    let found = run_threads(Settings::default(), &threads_kernel(&words, &left), 128).expect_err("nobody waits");
    contains(
        &found,
        &["the block ends, and nobody waited for the mbarrier at 0x0", "with 512 more in copies that have begun"],
    );
}

/// Copies a box of a tensor of 32-bit numbers to shared memory, and 4,096 bytes of it to `out`.
fn box_kernel(dims: usize, store: &str) -> String {
    let header = header("sm_90a");
    let coordinates = ["%r20", "%r20, %r21", "%r20, %r21, %r22"][dims - 1];
    let load = format!(
        "@%p1 cp.async.bulk.tensor.{dims}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [words], [%d1, {{{coordinates}}}], [bar];"
    );
    format!(
        "{header}{WORDS}\n.visible .entry k(.param .align 64 .b8 map[128], .param .u64 out, .param .u32 x, .param .u32 y, .param .u32 z,
 .param .u32 bytes) {{
.reg .pred %p<8>;\n.reg .b32 %r<32>;\n.reg .b64 %d<16>;\nmov.b64 %d2, map;\ncvta.param.u64 %d1, %d2;\nld.param.u64 %d3, [out];
ld.param.u32 %r20, [x];\nld.param.u32 %r21, [y];\nld.param.u32 %r22, [z];\nld.param.u32 %r23, [bytes];\nmov.u32 %r0, %tid.x;
mul.wide.u32 %d4, %r0, 4;\nmov.u64 %d5, words;\nadd.s64 %d6, %d5, %d4;\nadd.s64 %d7, %d3, %d4;\nmov.u32 %r24, 7;
mov.u32 %r1, 0;\nZERO:\nst.shared.u32 [%d6], %r24;\nadd.s64 %d6, %d6, 128;\nadd.u32 %r1, %r1, 1;\nsetp.lt.u32 %p5, %r1, 32;
@%p5 bra ZERO;\nfence.proxy.async;\n{}@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], %r23;
{load}\n{}{store}add.s64 %d6, %d5, %d4;\nmov.u32 %r1, 0;\nCOPY:\nld.shared.u32 %r2, [%d6];\nst.global.u32 [%d7], %r2;
add.s64 %d6, %d6, 128;\nadd.s64 %d7, %d7, 128;\nadd.u32 %r1, %r1, 1;\nsetp.lt.u32 %p5, %r1, 32;\n@%p5 bra COPY;\nret;\n}}\n",
        made(1),
        wait(0, "WAIT")
    )
}

/// A tensor `[4][6][20]` of 32-bit numbers, each its place in memory, with gaps between rows.
fn tensor(address: DevicePointer, dims: usize, box_dims: [u32; 3], swizzle: TensorSwizzle) -> TensorTiles {
    TensorTiles {
        element: TensorElement::U32,
        address,
        dims: [20, 6, 4][..dims].to_vec(),
        strides_bytes: [96, 96 * 7][..dims - 1].to_vec(),
        box_dims: box_dims[..dims].to_vec(),
        swizzle,
        promotion: TensorPromotion::None,
    }
}

const TENSOR_BYTES: usize = 96 * 7 * 4;

fn run_box(
    dims: usize,
    box_dims: [u32; 3],
    swizzle: TensorSwizzle,
    at: [i32; 3],
    store: &str,
) -> Result<[Vec<u32>; 2], String> {
    let machine = Machine::new(Settings::default());
    let numbers: Vec<u8> = (0..TENSOR_BYTES as u32 / 4).flat_map(|place| (place + 100).to_le_bytes()).collect();
    let memory = machine.upload(&numbers);
    let out = machine.gpu.allocate(4096).expect("memory");
    let tiles = tensor(memory, dims, box_dims, swizzle);
    let map = machine.gpu.tensor_map(&tiles).map_err(|error| error.text)?;
    let function = machine.function(&box_kernel(dims, store), "k");
    let arguments = Arguments::new().with(map.bytes()).with(&out.0.to_le_bytes());
    let arguments = at.iter().fold(arguments, |all, at| all.with(&at.to_le_bytes()));
    let arguments = arguments.with(&(tiles.box_bytes() as u32).to_le_bytes());
    machine.gpu.launch(machine.stream, function, LaunchShape::linear(1, 32), &arguments).expect("a launch");
    let words =
        |bytes: Vec<u8>| bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("4"))).collect();
    let shared = machine.download(out, 4096).map_err(|error| error.text)?;
    Ok([words(shared), words(machine.download(memory, TENSOR_BYTES).map_err(|error| error.text)?)])
}

/// The numbers of a box, row after row: zeros outside of the tensor.
fn expected(dims: usize, box_dims: [u32; 3], at: [i32; 3]) -> Vec<u32> {
    let extent = |dim: usize| if dim < dims { box_dims[dim] as i32 } else { 1 };
    let mut all = vec![];
    for z in 0..extent(2) {
        for y in 0..extent(1) {
            for x in 0..extent(0) {
                let place = |dim: usize, offset: i32| if dim < dims { at[dim] + offset } else { 0 };
                let (x, y, z) = (place(0, x), place(1, y), place(2, z));
                let is_inside = (0..20).contains(&x) && (0..6).contains(&y) && (0..4).contains(&z);
                all.push(if is_inside { (x + 24 * y + 24 * 7 * z) as u32 + 100 } else { 0 });
            }
        }
    }
    all
}

#[test]
fn boxes_of_every_rank_with_parts_outside_of_the_tensor() {
    for (dims, box_dims) in [(1, [16, 1, 1]), (2, [8, 5, 1]), (3, [12, 3, 4]), (3, [4, 8, 2])] {
        for at in [[0, 0, 0], [3, 2, 1], [-5, 0, 0], [15, 4, 2], [2, -2, -1], [40, 0, 0], [0, 6, 3]] {
            let [shared, _] = run_box(dims, box_dims, TensorSwizzle::None, at, "").expect("a box");
            let expected = expected(dims, box_dims, at);
            assert_eq!(shared[..expected.len()], expected, "{box_dims:?} at {at:?}");
            assert!(shared[expected.len()..].iter().all(|word| *word == 7), "{box_dims:?} at {at:?}");
        }
    }
}

#[test]
fn boxes_with_a_swizzle_have_their_chunks_exchanged() {
    let spans = [(TensorSwizzle::Bytes32, 8, 4), (TensorSwizzle::Bytes64, 16, 2), (TensorSwizzle::Bytes128, 32, 1)];
    for (swizzle, words, rows_a_change) in spans {
        let box_dims = [words, 10, 1];
        let [shared, _] = run_box(2, box_dims, swizzle, [-1, 1, 0], "").expect("a box");
        let chunks = words as usize / 4;
        for (place, number) in expected(2, box_dims, [-1, 1, 0]).into_iter().enumerate() {
            let (row, column) = (place / words as usize, place % words as usize);
            let chunk = (column / 4) ^ (row % 8 / rows_a_change % chunks);
            assert_eq!(shared[row * words as usize + chunk * 4 + column % 4], number, "{swizzle:?}, place {place}");
        }
    }
}

/// Stores what was loaded at other coordinates.
const STORE: &str = "@!%p1 bra STORED;\nadd.s32 %r20, %r20, 3;\nadd.s32 %r21, %r21, -2;
cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d1, {%r20, %r21}], [words];
cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;\nSTORED:\nbar.sync 0;\n";

#[test]
fn boxes_are_stored_within_the_tensor() {
    for swizzle in [TensorSwizzle::None, TensorSwizzle::Bytes64] {
        let [_, memory] = run_box(2, [16, 5, 1], swizzle, [0, 1, 0], STORE).expect("a box");
        for (place, number) in memory.iter().enumerate() {
            let (x, y) = (place as i32 % 24, place as i32 / 24);
            // Element (x, y) is what was at (x - 3, y + 2), where the box has one.
            let is_written = (3..19).contains(&x) && (0..4).contains(&y);
            let source = if is_written { place as u32 - 3 + 48 + 100 } else { place as u32 + 100 };
            let source = if is_written && y + 2 >= 6 { 0 } else { source };
            assert_eq!(*number, source, "{swizzle:?}, ({x}, {y})");
        }
    }
}

#[test]
fn stores_that_break_a_rule() {
    let fault = |store: &str| run_box(2, [16, 5, 1], TensorSwizzle::None, [0, 0, 0], store).expect_err(store);
    let without = |line: &str| STORE.replace(line, "");
    contains(
        &fault(&without("cp.async.bulk.wait_group.read 0;\n")),
        &["the block ends while the copy of PTX line", "reads its shared memory"],
    );
    contains(&fault(&without("cp.async.bulk.commit_group;\n")), &["the block ends while the copy of PTX line"]);
    let early = STORE
        .replace("cp.async.bulk.wait_group.read 0;", "st.shared.u32 [words], %r0;\ncp.async.bulk.wait_group.read 0;");
    contains(&fault(&early), &["written here, is read by a copy of PTX line", "that this warp has not waited for"]);
    let unfenced = STORE.replace("cp.async.bulk.tensor", "st.shared.u32 [words], %r0;\ncp.async.bulk.tensor");
    contains(&fault(&unfenced), &["and read by a copy here, without a fence.proxy.async between"]);
    let fenced = STORE.replace(
        "cp.async.bulk.tensor",
        "st.shared.u32 [words], %r0;\nfence.proxy.async.shared::cta;\ncp.async.bulk.tensor",
    );
    assert!(run_box(2, [16, 5, 1], TensorSwizzle::None, [0, 0, 0], &fenced).is_ok());
}

#[test]
fn boxes_that_break_a_rule() {
    let boxes = |change: &dyn Fn(String) -> String| {
        let machine = Machine::new(Settings::default());
        let memory = machine.upload(&vec![1; 96 * 3]);
        let out = machine.gpu.allocate(4096).expect("memory");
        let tiles = tensor(memory, 2, [8, 4, 1], TensorSwizzle::Bytes32);
        let map = machine.gpu.tensor_map(&tiles).expect("a map");
        let function = machine.function(&change(box_kernel(2, "")), "k");
        let arguments = Arguments::new().with(map.bytes()).with(&out.0.to_le_bytes());
        let arguments = [0, 0, 0].iter().fold(arguments, |all, at: &i32| all.with(&at.to_le_bytes()));
        let arguments = arguments.with(&128u32.to_le_bytes());
        machine.gpu.launch(machine.stream, function, LaunchShape::linear(1, 32), &arguments).expect("a launch");
        machine.gpu.synchronize(machine.stream).expect_err("a fault").text
    };
    contains(&boxes(&|ptx| ptx), &["0 bytes past the end of the allocation"]);
    let moved = |from: &str, to: &str| boxes(&|ptx| ptx.replace(from, to));
    contains(
        &moved("bytes [words],", "bytes [words+128],"),
        &["a box with a 32-byte swizzle must be at a multiple of 256 bytes of shared memory"],
    );
    contains(&moved("bytes [words],", "bytes [words+4096],"), &["outside of shared memory of the block"]);
    contains(
        &moved("cvta.param.u64 %d1, %d2;", "cvta.param.u64 %d1, %d2;\nadd.s64 %d1, %d1, 16;"),
        &["must be at a multiple of 64"],
    );
    contains(
        &moved("cvta.param.u64 %d1, %d2;", "cvta.param.u64 %d1, %d2;\nadd.s64 %d1, %d1, 64;"),
        &["outside of the arguments"],
    );
    contains(&moved("cvta.param.u64 %d1, %d2;", "ld.param.u64 %d1, [out];"), &["memory, are not a tensor map"]);
    let line = boxes(&|ptx| ptx.replace("tensor.2d", "tensor.1d").replace("{%r20, %r21}", "{%r20}"));
    contains(&line, &["a tensor map of 2 dims with an instruction for 1"]);
}

#[test]
fn maps_are_refused_where_there_are_none() {
    let ampere = Settings { capability: gpu::Capability { major: 8, minor: 0 }, ..Settings::default() };
    let tiles = tensor(DevicePointer(0), 2, [8, 4, 1], TensorSwizzle::None);
    let error = Machine::new(ampere).gpu.tensor_map(&tiles).expect_err("8.0");
    contains(&error.text, &["tensor maps need sm_90 or later; got sm_80"]);
    let wide = TensorTiles { swizzle: TensorSwizzle::Bytes32, box_dims: vec![16, 4], ..tiles };
    let error = Machine::new(Settings::default()).gpu.tensor_map(&wide).expect_err("64 bytes");
    contains(&error.text, &["with a swizzle of 32 bytes must have at most 32 bytes; got 64"]);
}
