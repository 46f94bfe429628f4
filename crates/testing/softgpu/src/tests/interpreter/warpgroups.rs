//! Products of warpgroups: every layout of their factors, against the rule of crate `cpu`, and the rules of registers.

use cpu::gemm::{BlockRule, Term};
use device::{Bf16, F16};
use gpu::{Arguments, DevicePointer, Gpu, LaunchShape};
use softgpu::Settings;

use crate::tests::interpreter::machine::{Machine, header};

/// The order of 16-byte chunks in rows of 8 chunks, 4, 2 or 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Swizzle {
    None,
    Bytes32,
    Bytes64,
    Bytes128,
}

/// The dim along which elements are neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Major {
    K,
    Outer,
}

/// A matrix `[outer][16]` in shared memory.
#[derive(Clone, Copy, Debug)]
struct Layout {
    swizzle: Swizzle,
    major: Major,
    start: usize,
    leading: usize,
    stride: usize,
    /// The steps begin at 16 times this in rows of K.
    step: usize,
}

impl Layout {
    /// The place of an element, by the figures of the PTX ISA: rows of a pattern, with chunks exchanged by the row.
    fn place(&self, outer: usize, k: usize) -> usize {
        let k = k + 16 * self.step;
        let (chunks, rows_a_change) = match self.swizzle {
            Swizzle::None => (1, 8),
            Swizzle::Bytes32 => (2, 4),
            Swizzle::Bytes64 => (4, 2),
            Swizzle::Bytes128 => (8, 1),
        };
        // Without a swizzle, a pattern is one chunk long, and the other dim has chunks of its own.
        let (along, across) = match self.major {
            Major::K => (k, outer),
            Major::Outer => (outer, k),
        };
        let row = across % 8;
        let in_pattern = |chunk: usize| row * chunks * 16 + (chunk ^ (row / rows_a_change)) * 16 + along % 8 * 2;
        let base = match (self.swizzle, self.major) {
            (Swizzle::None, Major::K) => k / 8 * self.leading + outer / 8 * self.stride + row * 16 + k % 8 * 2,
            (Swizzle::None, Major::Outer) => outer / 8 * self.stride + k / 8 * self.leading + row * 16 + outer % 8 * 2,
            (_, Major::K) => outer / 8 * self.stride + in_pattern(k / 8),
            (_, Major::Outer) => {
                let width = chunks * 8;
                outer / width * self.leading + k / 8 * self.stride + in_pattern(outer % width / 8)
            }
        };
        self.start + base
    }

    fn descriptor(&self) -> u64 {
        let swizzle = match self.swizzle {
            Swizzle::None => 0,
            Swizzle::Bytes128 => 1,
            Swizzle::Bytes64 => 2,
            Swizzle::Bytes32 => 3,
        };
        let field = |bytes: usize| bytes as u64 >> 4 & 0x3fff;
        field(self.start + 32 * self.step) | field(self.leading) << 16 | field(self.stride) << 32 | swizzle << 62
    }

    /// A layout whose patterns are one after the other, from `start` on.
    fn packed(swizzle: Swizzle, major: Major, outer: usize, start: usize) -> Layout {
        let pattern = match swizzle {
            Swizzle::None => 128,
            Swizzle::Bytes32 => 256,
            Swizzle::Bytes64 => 512,
            Swizzle::Bytes128 => 1024,
        };
        let (leading, stride) = match (swizzle, major) {
            (Swizzle::None, _) => (outer / 8 * pattern, pattern),
            (_, Major::K) => (16, pattern),
            (_, Major::Outer) => (2 * pattern, pattern),
        };
        Layout { swizzle, major, start, leading, stride, step: 0 }
    }
}

const BYTES: usize = 65536;
/// The second factor begins here.
const SECOND: usize = 32768;

/// A product of a warpgroup.
#[derive(Clone, Debug)]
struct Product {
    columns: usize,
    format: &'static str,
    /// The first factor in shared memory; in registers where there is none.
    a: Option<Layout>,
    b: Layout,
    signs: [i32; 2],
    adds: u32,
}

impl Product {
    fn new(columns: usize, swizzles: [Swizzle; 2], majors: [Major; 2]) -> Product {
        Product {
            columns,
            format: "bf16",
            a: Some(Layout::packed(swizzles[0], majors[0], 64, 0)),
            b: Layout::packed(swizzles[1], majors[1], columns, SECOND),
            signs: [1; 2],
            adds: 1,
        }
    }

    /// The instruction, with results in `%f0..`, a in `%r4..7` or by `%d4`, and b by `%d5`.
    fn instruction(&self) -> String {
        let results: Vec<String> = (0..self.columns / 2).map(|index| format!("%f{index}")).collect();
        let transposed = |layout: Layout| usize::from(layout.major == Major::Outer);
        let a = if self.a.is_some() { "%d4" } else { "{%r4, %r5, %r6, %r7}" };
        let transposes = match self.a {
            Some(a) => format!("{}, {}", transposed(a), transposed(self.b)),
            None => format!("{}", transposed(self.b)),
        };
        format!(
            "wgmma.mma_async.sync.aligned.m64n{}k16.f32.{}.{} {{{}}}, {a}, %d5, %p1, {}, {}, {transposes};",
            self.columns,
            self.format,
            self.format,
            results.join(", "),
            self.signs[0],
            self.signs[1]
        )
    }

    /// A kernel that copies an image to shared memory, and runs `steps` on registers from `c` and `a`.
    fn kernel(&self, steps: &str) -> String {
        let header = header("sm_90a");
        let count = self.columns / 2;
        let each = |line: &dyn Fn(usize) -> String| (0..count).map(line).collect::<Vec<_>>().join("\n");
        let loads = each(&|index| format!("ld.global.f32 %f{index}, [%d9+{}];", index * 4));
        let stores = each(&|index| format!("st.global.f32 [%d10+{}], %f{index};", index * 4));
        format!(
            "{header}.visible .entry k(.param .u64 image, .param .u64 pa, .param .u64 pc, .param .u64 out, .param .u64 da,
 .param .u64 db, .param .u32 adds) {{
.shared .align 1024 .b8 mem[{BYTES}];
.reg .pred %p<8>;\n.reg .b32 %r<32>;\n.reg .b64 %d<32>;\n.reg .f32 %f<256>;
ld.param.u64 %d1, [image];\nld.param.u64 %d2, [pc];\nld.param.u64 %d3, [out];\nld.param.u64 %d4, [da];
ld.param.u64 %d5, [db];\nld.param.u64 %d6, [pa];\nld.param.u32 %r0, [adds];\nsetp.ne.u32 %p1, %r0, 0;
mov.u32 %r1, %tid.x;\nmul.lo.u32 %r2, %r1, 16;
COPY:\ncvt.u64.u32 %d7, %r2;\nadd.s64 %d8, %d1, %d7;\nld.global.v4.u32 {{%r8, %r9, %r10, %r11}}, [%d8];
st.shared.v4.u32 [%r2], {{%r8, %r9, %r10, %r11}};\nadd.u32 %r2, %r2, 2048;\nsetp.lt.u32 %p2, %r2, {BYTES};\n@%p2 bra COPY;
mul.wide.u32 %d9, %r1, {};\nadd.s64 %d10, %d3, %d9;\nadd.s64 %d9, %d2, %d9;\n{loads}
mul.wide.u32 %d11, %r1, 16;\nadd.s64 %d11, %d6, %d11;\nld.global.v4.u32 {{%r4, %r5, %r6, %r7}}, [%d11];
{}\n{stores}\nret;\n}}\n",
            count * 4,
            steps.replace("PRODUCT", &self.instruction())
        )
    }

    /// Runs a kernel on random factors and addends; compares the results with the rule.
    fn run(&self, steps: &str, seed: u64) -> Result<(), String> {
        let mut seed = seed;
        let (one, term): (u16, fn(u16) -> Term) = if self.format == "bf16" {
            (0x3f80, |bits| Term::from(Bf16(bits)))
        } else {
            (0x3c00, |bits| Term::from(F16(bits)))
        };
        let mut next = |mask: u16| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            one & !mask | (seed >> 40) as u16 & mask
        };
        let a: Vec<[u16; 16]> = (0..64).map(|_| std::array::from_fn(|_| next(0x83ff))).collect();
        let b: Vec<[u16; 16]> = (0..self.columns).map(|_| std::array::from_fn(|_| next(0x83ff))).collect();
        let c: Vec<f32> =
            (0..64 * self.columns).map(|_| f32::from_bits(u32::from(next(0x83ff)) << 16 | 0x1234)).collect();
        let (results, machine) = self.results(steps, &a, &b, &c);
        let results = machine.download(results, 64 * self.columns * 4).map_err(|error| error.text)?;
        let count = self.columns / 2;
        for thread in 0..128 {
            for index in 0..count {
                let (row, column) = place(thread, index);
                let at = (thread * count + index) * 4;
                let got = u32::from_le_bytes(results[at..at + 4].try_into().expect("4 bytes"));
                let sign = |bits: u16, sign: i32| if sign < 0 { bits ^ 0x8000 } else { bits };
                let factors: Vec<[Term; 2]> = (0..16)
                    .map(|k| [term(sign(a[row][k], self.signs[0])), term(sign(b[column][k], self.signs[1]))])
                    .collect();
                let addend = if self.adds == 0 { 0.0 } else { c[row * self.columns + column] };
                let expected = BlockRule::BLOCKS16.add(addend, &factors);
                assert_eq!(got, expected.to_bits(), "{self:?}, row {row}, column {column}: expected {expected:e}");
            }
        }
        Ok(())
    }

    fn results(&self, steps: &str, a: &[[u16; 16]], b: &[[u16; 16]], c: &[f32]) -> (DevicePointer, Machine) {
        // Elements may be placed past the memory of the block, for tests of that.
        let mut image = vec![0u8; 2 * BYTES];
        let mut put = |layout: Layout, matrix: &[[u16; 16]]| {
            for (outer, row) in matrix.iter().enumerate() {
                for (k, bits) in row.iter().enumerate() {
                    let place = layout.place(outer, k);
                    image[place..place + 2].copy_from_slice(&bits.to_le_bytes());
                }
            }
        };
        if let Some(layout) = self.a {
            put(layout, a);
        }
        put(self.b, b);
        let count = self.columns / 2;
        let c_bytes: Vec<u8> = (0..128 * count)
            .map(|index| place(index / count, index % count))
            .flat_map(|(row, column)| c[row * self.columns + column].to_le_bytes())
            .collect();
        // Word i of a thread has two neighbours of K, from row g or g + 8 and from K 2 p or 2 p + 8 on.
        let word = |thread: usize, index: usize| {
            let (row, k) = (thread / 32 * 16 + thread % 32 / 4 + index % 2 * 8, thread % 4 * 2 + index / 2 * 8);
            u32::from(a[row][k + 1]) << 16 | u32::from(a[row][k])
        };
        let a_bytes: Vec<u8> = (0..512).flat_map(|index| word(index / 4, index % 4).to_le_bytes()).collect();
        let machine = Machine::new(Settings::default());
        let function = machine.function(&self.kernel(steps), "k");
        let out = machine.gpu.allocate(64 * self.columns * 4).expect("memory");
        let pointers = [machine.upload(&image), machine.upload(&a_bytes), machine.upload(&c_bytes), out];
        let arguments = pointers.iter().fold(Arguments::new(), |all, pointer| all.with(&pointer.0.to_le_bytes()));
        let arguments = arguments
            .with(&self.a.map_or(0, |a| a.descriptor()).to_le_bytes())
            .with(&self.b.descriptor().to_le_bytes())
            .with(&self.adds.to_le_bytes());
        machine.gpu.launch(machine.stream, function, LaunchShape::linear(1, 128), &arguments).expect("a launch");
        (out, machine)
    }
}

/// The row and column of a register of a thread.
fn place(thread: usize, index: usize) -> (usize, usize) {
    let row = thread / 32 * 16 + thread % 32 / 4 + index / 2 % 2 * 8;
    (row, index / 4 * 8 + thread % 4 * 2 + index % 2)
}

/// A product as it must be.
const STEPS: &str = "fence.proxy.async.shared::cta;\nbar.sync 0;\nwgmma.fence.sync.aligned;\nPRODUCT
wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;";

const SWIZZLES: [Swizzle; 4] = [Swizzle::None, Swizzle::Bytes32, Swizzle::Bytes64, Swizzle::Bytes128];

#[test]
fn every_layout_has_the_bits_of_the_cpu() {
    for a in SWIZZLES {
        for b in SWIZZLES {
            for majors in [[Major::K, Major::K], [Major::K, Major::Outer], [Major::Outer, Major::K], [Major::Outer; 2]]
            {
                Product::new(96, [a, b], majors).run(STEPS, 1).expect("a product");
            }
        }
    }
}

#[test]
fn every_width_has_the_bits_of_the_cpu() {
    for columns in (8..=256).step_by(8) {
        for major in [Major::K, Major::Outer] {
            Product::new(columns, [Swizzle::Bytes128; 2], [Major::K, major])
                .run(STEPS, columns as u64)
                .expect("a product");
        }
    }
}

#[test]
fn the_first_factor_in_registers_formats_signs_and_no_addend() {
    let product = Product::new(32, [Swizzle::Bytes128; 2], [Major::K; 2]);
    let changes: [fn(&mut Product); 6] = [
        |product| product.a = None,
        |product| product.format = "f16",
        |product| product.adds = 0,
        |product| product.signs = [-1, 1],
        |product| product.signs = [1, -1],
        |product| (product.a, product.format, product.signs, product.adds) = (None, "f16", [-1, -1], 0),
    ];
    for change in changes {
        let mut product = product.clone();
        change(&mut product);
        product.run(STEPS, 5).expect("a product");
    }
}

#[test]
fn a_product_may_begin_within_a_row_of_its_patterns() {
    // 16 of 64 steps in rows of 128 bytes, as in the loop over K of a tile.
    for step in 0..4 {
        let mut product = Product::new(64, [Swizzle::Bytes128; 2], [Major::K; 2]);
        product.a = product.a.map(|a| Layout { step, ..a });
        product.b.step = step;
        product.run(STEPS, 7).expect("a product");
    }
}

/// The fault of a kernel with other steps.
fn fault(product: &Product, steps: &str) -> String {
    product.run(steps, 3).expect_err(steps)
}

fn contains(error: &str, part: &str) {
    assert!(error.contains(part), "{error} lacks {part}");
}

#[test]
fn registers_belong_to_a_product_until_it_is_waited_for() {
    let product = Product::new(16, [Swizzle::Bytes128; 2], [Major::K; 2]);
    let without = |line: &str| STEPS.replace(line, "");
    contains(&fault(&product, &without("wgmma.fence.sync.aligned;\n")), "a product comes before any wgmma.fence");
    let waits = "wgmma.wait_group.sync.aligned 0;";
    contains(
        &fault(&product, &without(waits)),
        "st.global.f32 [%d10+0], %f0;`, block (0, 0, 0), warp 0: a register is read that a product writes: use wgmma.wait_group before",
    );
    contains(
        &fault(&product, &without("wgmma.commit_group.sync.aligned;\n")),
        "a register is read that a product writes",
    );
    contains(
        &fault(&product, &STEPS.replace(waits, "wgmma.wait_group.sync.aligned 1;")),
        "a register is read that a product writes",
    );
    let written = STEPS.replace("wgmma.commit_group", "add.f32 %f3, %f200, %f201;\nwgmma.commit_group");
    contains(&fault(&product, &written), "a register is written that a product writes, too");
    let moved = STEPS.replace("wgmma.commit_group", "mov.f32 %f3, %f200;\nwgmma.commit_group");
    contains(&fault(&product, &moved), "a register is written that a product uses");
    // A copy of a result is a result; it may be read after the wait, and not before.
    let copied = STEPS.replace("wgmma.commit_group", "mov.f32 %f200, %f3;\nwgmma.commit_group");
    product.run(&copied, 3).expect("a copy");
    let read = copied.replace(waits, "add.f32 %f201, %f200, %f200;\nwgmma.wait_group.sync.aligned 0;");
    contains(&fault(&product, &read), "a register is read that a product writes");
}

#[test]
fn registers_that_were_used_need_a_fence() {
    let product = Product::new(16, [Swizzle::Bytes128; 2], [Major::K; 2]);
    let late = STEPS.replace("PRODUCT", "neg.f32 %f5, %f5;\nneg.f32 %f5, %f5;\nPRODUCT");
    contains(&fault(&product, &late), "a register of the result was used since the last wgmma.fence");
    let in_registers = Product { a: None, ..product.clone() };
    let late = STEPS.replace("PRODUCT", "add.u32 %r6, %r6, 0;\nPRODUCT");
    contains(&fault(&in_registers, &late), "a register of the first factor was written since the last wgmma.fence");
    let overwritten = STEPS.replace("wgmma.commit_group", "add.u32 %r6, %r6, 1;\nwgmma.commit_group");
    contains(&fault(&in_registers, &overwritten), "a register is written that a product reads");
    // Products of one shape may follow each other on the same results; of another they may not.
    let narrow = Product::new(8, [Swizzle::Bytes128; 2], [Major::K; 2]).instruction();
    contains(
        &fault(&product, &STEPS.replace("wgmma.commit_group", &format!("{narrow}\nwgmma.commit_group"))),
        "a product of another shape",
    );
}

#[test]
fn shared_memory_that_threads_wrote_needs_a_fence_of_proxies() {
    let product = Product::new(16, [Swizzle::Bytes128; 2], [Major::K; 2]);
    let none = fault(&product, &STEPS.replace("fence.proxy.async.shared::cta;\n", ""));
    contains(
        &none,
        "shared memory at 0x8000 is written by thread 0 of the block and read by a product here, without a fence.proxy.async between",
    );
    // The fence of the readers is enough, too.
    product
        .run(&STEPS.replace("fence.proxy.async.shared::cta;\nbar.sync 0;", "bar.sync 0;\nfence.proxy.async;"), 3)
        .expect("a fence");
    let late = STEPS.replace(
        "wgmma.fence",
        "setp.eq.u32 %p3, %r1, 0;\n@%p3 st.shared.u32 [32776], %r1;\nfence.proxy.async;\nbar.warp.sync -1;\nwgmma.fence",
    );
    contains(
        &fault(&product, &late),
        "is written by thread 0 of the block and read by a product here, without a barrier",
    );
    let reused = STEPS.replace("wgmma.commit_group", "bar.sync 0;\nst.shared.u32 [8], %r1;\nwgmma.commit_group");
    contains(&fault(&product, &reused), "shared memory at 0x8, written here, is read by a product of PTX line");
    let after = STEPS.replace(
        "wgmma.wait_group.sync.aligned 0;",
        "wgmma.wait_group.sync.aligned 0;\nbar.sync 0;\nsetp.eq.u32 %p3, %r1, 0;\n@%p3 st.shared.u32 [8], %r1;",
    );
    product.run(&after, 3).expect("a write after the wait");
}

#[test]
fn descriptors_keep_the_rules_of_layouts() {
    let product = Product::new(32, [Swizzle::Bytes128; 2], [Major::K; 2]);
    let with_b = |change: &dyn Fn(&mut Layout)| {
        let mut product = product.clone();
        change(&mut product.b);
        fault(&product, STEPS)
    };
    contains(
        &with_b(&|b| b.start += 128),
        "begins at 0x8080: its patterns must begin at multiples of 1024, and its 32 bytes must be within a row of 128",
    );
    contains(&with_b(&|b| b.start += 112), "its 32 bytes must be within a row of 128");
    contains(
        &with_b(&|b| b.stride = 512),
        "the stride of a matrix with a 128-byte swizzle must be a multiple of 1024 bytes; got 512",
    );
    let outer = |b: &mut Layout| (b.major, b.swizzle) = (Major::Outer, Swizzle::Bytes32);
    contains(
        &with_b(&|b| {
            outer(b);
            b.stride = 128;
        }),
        "the stride of a matrix with a 32-byte swizzle must be a multiple of 256 bytes; got 128",
    );
    contains(
        &with_b(&|b| {
            outer(b);
            (b.stride, b.leading) = (256, 128);
        }),
        "the leading offset of a matrix with a 32-byte swizzle must be a multiple of 256 bytes; got 128",
    );
    contains(&with_b(&|b| b.start = BYTES - 1024), "outside of shared memory of the block");
}

#[test]
fn a_warpgroup_runs_one_product() {
    let product = Product::new(16, [Swizzle::Bytes128; 2], [Major::K; 2]);
    let other = STEPS.replace("wgmma.fence", "setp.lt.u32 %p4, %r1, 96;\n@!%p4 add.s64 %d5, %d5, 64;\nwgmma.fence");
    contains(&fault(&product, &other), "warps of a warpgroup run different products");
    let three = STEPS.replace("wgmma.fence", "setp.ge.u32 %p4, %r1, 96;\n@%p4 ret;\nwgmma.fence");
    contains(&fault(&product, &three), "waits for the other warps of its warpgroup to run the same products");
    let lanes = STEPS
        .replace("wgmma.fence", "and.b32 %r12, %r1, 1;\ncvt.u64.u32 %d12, %r12;\nadd.s64 %d5, %d5, %d12;\nwgmma.fence");
    contains(&fault(&product, &lanes), "a matrix descriptor must be the same in all lanes");
}
