//! A GPU with one stream, and kernels that compute one value in each thread.

use std::sync::Arc;

use gpu::{Arguments, DevicePointer, Driver, DriverError, FunctionHandle, Gpu, LaunchShape, ModuleImage, StreamHandle};
use softgpu::{Settings, SoftDriver, SoftGpu};

/// A GPU with one stream.
pub struct Machine {
    pub gpu: Arc<SoftGpu>,
    pub stream: StreamHandle,
}

impl Machine {
    pub fn new(settings: Settings) -> Machine {
        let gpu = Arc::new(SoftGpu::new(0, settings));
        let stream = gpu.create_stream().expect("a stream");
        Machine { gpu, stream }
    }

    pub fn function(&self, ptx: &str, name: &str) -> FunctionHandle {
        let module = self.gpu.load(ModuleImage::Ptx(ptx)).expect("PTX");
        self.gpu.function(module, name).expect("a kernel")
    }

    pub fn upload(&self, bytes: &[u8]) -> DevicePointer {
        let pointer = self.gpu.allocate(bytes.len()).expect("memory");
        let pinned = self.gpu.allocate_pinned(bytes.len()).expect("memory");
        self.gpu.write_pinned(pinned, 0, bytes).expect("a range");
        self.gpu.upload(self.stream, pointer, pinned, 0, bytes.len()).expect("a copy");
        pointer
    }

    pub fn download(&self, pointer: DevicePointer, bytes: usize) -> Result<Vec<u8>, DriverError> {
        let pinned = self.gpu.allocate_pinned(bytes)?;
        self.gpu.download(self.stream, pinned, 0, pointer, bytes)?;
        self.gpu.synchronize(self.stream)?;
        let mut to = vec![0; bytes];
        self.gpu.read_pinned(pinned, 0, &mut to)?;
        Ok(to)
    }

    pub fn launch(&self, function: FunctionHandle, shape: LaunchShape, pointers: &[DevicePointer]) {
        let arguments = pointers.iter().fold(Arguments::new(), |all, pointer| all.with(&pointer.0.to_le_bytes()));
        self.gpu.launch(self.stream, function, shape, &arguments).expect("a launch");
    }
}

pub fn header(target: &str) -> String {
    format!(".version 9.0\n.target {target}\n.address_size 64\n")
}

/// A kernel `k(out)` in which `%r0` is the thread and `%d0` the address of its own 32-bit word of `out`.
pub fn threads_kernel(declarations: &str, body: &str) -> String {
    let header = header("sm_90a");
    format!(
        "{header}{declarations}\n.visible .entry k(.param .u64 out) {{
.reg .pred %p<8>;\n.reg .b32 %r<32>;\n.reg .b64 %d<16>;\n.reg .f32 %f<16>;
ld.param.u64 %d1, [out];\nmov.u32 %r0, %tid.x;\nmul.wide.u32 %d2, %r0, 4;\nadd.s64 %d0, %d1, %d2;
{body}\n}}\n"
    )
}

/// Runs a kernel of [`threads_kernel`] in one block; returns the words.
pub fn run_threads(settings: Settings, ptx: &str, threads: u32) -> Result<Vec<u32>, String> {
    run_shape(settings, ptx, LaunchShape::linear(1, threads), threads as usize)
}

/// The same with blocks; returns the first `words` words.
pub fn run_shape(settings: Settings, ptx: &str, shape: LaunchShape, words: usize) -> Result<Vec<u32>, String> {
    let machine = Machine::new(settings);
    let out = machine.gpu.allocate(words * 4).map_err(|error| error.to_string())?;
    let function = machine.function(ptx, "k");
    machine.gpu.allow_shared(function, shape.shared_bytes).map_err(|error| error.to_string())?;
    machine.launch(function, shape, &[out]);
    let bytes = machine.download(out, words * 4).map_err(|error| error.text)?;
    Ok(bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("4 bytes"))).collect())
}

/// Computes `%d0` from `%d1`, `%d2` and `%d3` in each thread. The low bits of the operands are in `%r1..`, `%f1..`,
/// `%h1..` and all of them in `%g1..` too; a result of 32 bits is in `%r0` or `%f0`, and `end` moves it.
pub fn evaluate(body: &str, end: &str, inputs: &[[u64; 3]]) -> Vec<u64> {
    let header = header("sm_90a");
    let loads: String = (1..=3)
        .map(|n| {
            format!(
                "add.s64 %d9, %d8, {};\nld.global.u64 %d{n}, [%d9];\ncvt.u32.u64 %r{n}, %d{n};\ncvt.u16.u64 %h{n}, %d{n};
mov.b32 %f{n}, %r{n};\nmov.b64 %g{n}, %d{n};\n",
                (n - 1) * 8
            )
        })
        .collect();
    let ptx = format!(
        "{header}.visible .entry k(.param .u64 in, .param .u64 out, .param .u64 count) {{
.reg .pred %p<8>;\n.reg .b16 %h<16>;\n.reg .b32 %r<32>;\n.reg .b64 %d<16>;\n.reg .f32 %f<16>;\n.reg .f64 %g<16>;
ld.param.u64 %d4, [in];\nld.param.u64 %d5, [out];\nld.param.u64 %d6, [count];
mov.u32 %r10, %tid.x;\nmov.u32 %r11, %ctaid.x;\nmad.lo.u32 %r12, %r11, 64, %r10;\ncvt.u64.u32 %d7, %r12;
setp.ge.u64 %p7, %d7, %d6;\n@%p7 bra DONE;\nmad.lo.u64 %d8, %d7, 24, %d4;
{loads}{body}\n{end}\nmad.lo.u64 %d8, %d7, 8, %d5;\nst.global.u64 [%d8], %d0;\nDONE: ret;\n}}\n"
    );
    let machine = Machine::new(Settings::default());
    let bytes: Vec<u8> = inputs.iter().flatten().flat_map(|value| value.to_le_bytes()).collect();
    let (input, out) = (machine.upload(&bytes), machine.gpu.allocate(inputs.len() * 8).expect("memory"));
    let function = machine.function(&ptx, "k");
    let arguments = Arguments::new()
        .with(&input.0.to_le_bytes())
        .with(&out.0.to_le_bytes())
        .with(&(inputs.len() as u64).to_le_bytes());
    let shape = LaunchShape::linear(inputs.len().div_ceil(64) as u32, 64);
    machine.gpu.launch(machine.stream, function, shape, &arguments).expect("a launch");
    let bytes = machine.download(out, inputs.len() * 8).expect("a result");
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect()
}

/// Results of 32 bits in `%r0`.
pub const WORD: &str = "cvt.u64.u32 %d0, %r0;";
/// Results of single precision in `%f0`.
pub const SINGLE: &str = "mov.b32 %r0, %f0;\ncvt.u64.u32 %d0, %r0;";
/// Results of double precision in `%g0`.
pub const DOUBLE: &str = "mov.b64 %d0, %g0;";
/// Results of 16 bits in `%h0`.
pub const HALF: &str = "cvt.u64.u16 %d0, %h0;";
/// Predicates in `%p0`.
pub const PREDICATE: &str = "selp.u64 %d0, 1, 0, %p0;";
/// Results of 64 bits in `%d0`.
pub const WIDE: &str = "";

/// Words with every exponent, and those at which formats end.
pub fn inputs(seed: u64) -> Vec<[u64; 3]> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    };
    let special: [u64; 24] = [
        0,
        1,
        2,
        31,
        32,
        33,
        63,
        64,
        255,
        0x7fff,
        0x8000,
        0xffff,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0001,
        0x0080_0000,
        0x007f_ffff,
        0x8000_0000_0000_0000,
        0x7ff0_0000_0000_0000,
        0x7ff8_0000_0000_0001,
        u64::MAX,
    ];
    let mut all: Vec<[u64; 3]> = Vec::new();
    for a in special {
        for b in special {
            all.push([a, b, special[next() as usize % special.len()]]);
        }
    }
    // Numbers of similar size, too: their sums round.
    for _ in 0..600 {
        let [a, b, c] = [next(), next(), next()];
        all.push([a, b, c]);
        let near = |word: u64| 0x3f00_0000 | word & 0x81ff_ffff;
        all.push([near(a), near(b), near(c)]);
        let near = |word: u64| 0x3fe0_0000_0000_0000 | word & 0x803f_ffff_ffff_ffff;
        all.push([near(a), near(b), near(c)]);
    }
    all
}

/// Compares `body` with `expected` on all inputs.
pub fn compare(body: &str, end: &str, expected: impl Fn(u64, u64, u64) -> u64) {
    let inputs = inputs(body.len() as u64);
    for (input, result) in inputs.iter().zip(evaluate(body, end, &inputs)) {
        let [a, b, c] = *input;
        let wanted = expected(a, b, c);
        assert_eq!(result, wanted, "{body} of {a:#x}, {b:#x}, {c:#x}: {result:#x}, expected {wanted:#x}");
    }
}

/// The driver's trait object, as callers have it.
pub fn opened(settings: Settings) -> Arc<dyn Gpu> {
    SoftDriver::new(1, settings).open(0).expect("a GPU")
}
