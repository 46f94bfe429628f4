//! Time of an instruction of a warp: the time of a launch over the instructions that its warps run.
//!
//! `cargo bench -p softgpu` prints a line per kernel, with all checks and without any.

use std::time::{Duration, Instant};

use gpu::{Arguments, DriverError, Gpu, LaunchShape, ModuleImage};
use softgpu::{Check, Checks, Settings, SoftGpu};

/// Blocks of 256 threads.
const BLOCKS: u32 = 8;
const THREADS: u32 = 256;
/// Bytes of memory that a kernel reads and writes.
const BYTES: usize = 4 * (BLOCKS * THREADS) as usize * 4;

/// Stages of 16 steps go through shared memory; each thread reads 4 + 4 numbers of a step and adds 16 products.
fn product() -> String {
    let mut body = String::from(
        "mov.u64 %d3, stage;\nshl.b32 %r1, %r0, 4;\ncvt.u64.u32 %d4, %r1;\nadd.s64 %d4, %d4, %d3;
shr.u32 %r2, %r0, 4;\nmad.wide.u32 %d5, %r2, 16, %d3;
and.b32 %r3, %r0, 15;\nmad.wide.u32 %d6, %r3, 16, %d3;\nmov.u32 %r4, 0;
NEXT: ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%d0];
bar.sync 0;
st.shared.v4.f32 [%d4], {%f1, %f2, %f3, %f4};\nbar.sync 0;\n",
    );
    for step in 0..16 {
        body += &format!(
            "ld.shared.v4.f32 {{%f1, %f2, %f3, %f4}}, [%d5+{}];\nld.shared.v4.f32 {{%f5, %f6, %f7, %f8}}, [%d6+{}];\n",
            step * 256 % 3072,
            step * 256
        );
        for product in 0..16 {
            let (sum, a, b) = (10 + product, 1 + product / 4, 5 + product % 4);
            body += &format!("fma.rn.f32 %f{sum}, %f{a}, %f{b}, %f{sum};\n");
        }
    }
    body + "add.u32 %r4, %r4, 1;\nsetp.lt.u32 %p1, %r4, 16;\n@%p1 bra NEXT;
st.global.v4.f32 [%d0], {%f10, %f11, %f12, %f13};\n"
}

/// Each thread reads a number, applies a polynomial of degree 16 to it, and writes it.
fn polynomial() -> String {
    let fused = "fma.rn.f32 %f2, %f2, %f1, %f3;\n".repeat(16);
    format!(
        "mov.u32 %r4, 0;\nNEXT: ld.global.f32 %f1, [%d2];\n{fused}st.global.f32 [%d2], %f2;\nadd.u32 %r4, %r4, 1;
setp.lt.u32 %p1, %r4, 128;\n@%p1 bra NEXT;\n"
    )
}

/// Sums of integers alone.
fn integers() -> String {
    let sums = "add.u32 %r1, %r1, %r0;\nxor.b32 %r2, %r1, %r2;\nmad.lo.u32 %r3, %r1, %r2, %r3;\n".repeat(8);
    format!(
        "mov.u32 %r4, 0;\nNEXT: {sums}add.u32 %r4, %r4, 1;\nsetp.lt.u32 %p1, %r4, 256;
@%p1 bra NEXT;\nst.global.u32 [%d0], %r3;\n"
    )
}

/// Each lane reads a row of its own, which no other lane's read is next to.
fn rows() -> String {
    let reads: String =
        (0..8).map(|word| format!("ld.global.f32 %f2, [%d0+{}];\nadd.f32 %f1, %f1, %f2;\n", word % 4 * 4)).collect();
    format!(
        "mov.u32 %r4, 0;\nNEXT: {reads}add.u32 %r4, %r4, 1;\nsetp.lt.u32 %p1, %r4, 64;
@%p1 bra NEXT;\nst.global.f32 [%d0], %f1;\n"
    )
}

fn kernel(body: &str) -> String {
    format!(
        ".version 9.0\n.target sm_80\n.address_size 64\n.shared .align 16 .b8 stage[4096];
.visible .entry k(.param .u64 memory) {{
.reg .pred %p<2>;\n.reg .b32 %r<8>;\n.reg .b64 %d<8>;\n.reg .f32 %f<32>;
ld.param.u64 %d1, [memory];\nmov.u32 %r0, %tid.x;\nmov.u32 %r1, %ctaid.x;\nmad.lo.u32 %r1, %r1, {THREADS}, %r0;
mad.wide.u32 %d0, %r1, 16, %d1;\nmad.wide.u32 %d2, %r1, 4, %d1;\n{body}ret;\n}}\n"
    )
}

/// The best time of a launch, and the instructions of its warps.
fn measured(ptx: &str, checks: Checks) -> Result<(Duration, u64), DriverError> {
    let gpu = SoftGpu::new(0, Settings { checks, ..Settings::default() });
    let memory = gpu.allocate(BYTES)?;
    let function = gpu.function(gpu.load(ModuleImage::Ptx(ptx))?, "k")?;
    let stream = gpu.create_stream()?;
    let arguments = Arguments::new().with(&memory.0.to_le_bytes());
    let mut best = Duration::MAX;
    let begin = Instant::now();
    let mut launches = 0;
    while launches < 3 || begin.elapsed() < Duration::from_secs(1) {
        let start = Instant::now();
        gpu.launch(stream, function, LaunchShape::linear(BLOCKS, THREADS), &arguments)?;
        gpu.synchronize(stream)?;
        best = best.min(start.elapsed());
        launches += 1;
    }
    Ok((best, gpu.counters().total() / launches))
}

fn main() -> Result<(), DriverError> {
    let off = Checks { shared: Check::Off, local: Check::Off, global: Check::Off, unwritten_global: Check::Off };
    let kernels = [("product", product()), ("polynomial", polynomial()), ("integers", integers()), ("rows", rows())];
    for (name, body) in kernels {
        print!("{name:12}");
        for (checks, with) in [(Checks::default(), "with checks"), (off.clone(), "without")] {
            let (time, instructions) = measured(&kernel(&body), checks)?;
            print!(" {:7.1} ns {with}", time.as_nanos() as f64 / instructions as f64);
        }
        println!();
    }
    Ok(())
}
