//! Elementary functions of kernels have the bits of those of the CPU: for a sample of all numbers of single precision,
//! and for all of them with `PLEACH_CASES=all cargo test --release -p cuda --test suite operations::every_number`.
//! They run on the first GPU of this machine, or on one in software.

use std::sync::Arc;

use cpu::instruction_set::InstructionSet;
use cpu::lanes::{self, LANES, Lanes};
use cpu::math;
use cuda::code::OPTIONS;
use cuda::kernels::SOURCES;
use gpu::{
    Arguments, DevicePointer, Driver, FunctionHandle, Gpu, LaunchShape, ModuleHandle, PinnedHandle, StreamHandle,
};
use nvidia::Search;
use nvidia::driver::Library;
use nvidia::nvrtc::{Compiler, Source, Target};
use softgpu::{Settings, SoftGpu};

use crate::operations::bench::{TARGET, compiler};

/// Numbers of a launch.
const COUNT: usize = 1 << 20;
const THREADS: u32 = 256;
/// Parts of all numbers, each of which has a thread and a stream for each function.
const PARTS: usize = 3;
/// Distance of the numbers of a sample: odd, so that all exponents and all last bits are among them.
const SAMPLED: u32 = 4093;
/// Distance of the numbers whose last 12 bits are zeros. Halves between two whole numbers are among them, which the
/// sample misses.
const SHORT: u32 = 1 << 12;

/// Functions by their names in `math.cuh`.
const FUNCTIONS: [&str; 5] = ["exp", "log", "sigmoid", "tanh", "erf"];
/// The powers of attention in blocks: of any number, and of those from zero on.
const POWERS: [&str; 2] = ["power_of_any", "power_from_zero"];

/// The bits of a function of numbers whose bits are `first`, `first + step` and so on.
struct OnCpu {
    function: &'static str,
    first: u32,
    step: u32,
}

impl lanes::Kernel for OnCpu {
    type Output = Vec<u32>;

    fn run<L: Lanes>(self) -> Vec<u32> {
        let numbers = |block: usize| -> [f32; LANES] {
            std::array::from_fn(|lane| {
                let index = (block * LANES + lane) as u32;
                f32::from_bits(self.first.wrapping_add(index.wrapping_mul(self.step)))
            })
        };
        let mut all = Vec::with_capacity(COUNT);
        for block in 0..COUNT / LANES {
            let x = L::load(&numbers(block));
            let y = match self.function {
                "exp" => math::exp(x),
                "log" => math::log(x),
                "sigmoid" => math::sigmoid(x),
                "tanh" => math::tanh(x),
                "power_of_any" | "power_from_zero" => math::power_of_depth(x),
                _ => math::erf(x),
            };
            let mut results = [0.0; LANES];
            y.store(&mut results);
            all.extend(results.map(f32::to_bits));
        }
        all
    }
}

/// A text with a kernel of each function of a namespace, after a source that has it.
fn text(name: &str, (namespace, functions): (&str, &[&str])) -> String {
    let source = SOURCES.iter().find(|source| source.name == name).expect("a source");
    let kernel = |name: &str| {
        format!(
            "extern \"C\" __global__ void __launch_bounds__({THREADS}) every_{name}(u32 first, u32 step, u32 *out) {{\n\
             const u32 index = blockIdx.x * {THREADS} + threadIdx.x;\n\
             out[index] = __float_as_uint({namespace}::{name}(__uint_as_float(first + index * step)));\n}}\n"
        )
    };
    let kernels: Vec<String> = functions.iter().map(|name| kernel(name)).collect();
    source.whole() + &kernels.concat()
}

/// The GPU that computes.
fn gpu() -> Arc<dyn Gpu> {
    let of_driver = Library::open(&Search::default()).ok().and_then(|driver| driver.open(0).ok());
    of_driver.unwrap_or_else(|| Arc::new(SoftGpu::new(0, Settings::default())))
}

#[needs::cuda]
#[test]
fn functions_of_every_number_have_the_bits_of_the_cpu() {
    let compiler = compiler();
    let step = if needs::all_cases!() { 1 } else { SAMPLED };
    let gpu = gpu();
    let functions = all_functions(&*gpu, &compiler);
    std::thread::scope(|scope| {
        for ((module, function), part) in
            functions.into_iter().flat_map(|function| (0..PARTS).map(move |part| (function, part)))
        {
            let gpu = &*gpu;
            scope.spawn(move || compare_part(gpu, module, (function, step), part));
        }
    });
}

#[needs::cuda]
#[test]
fn functions_of_numbers_with_few_digits_have_the_bits_of_the_cpu() {
    let compiler = compiler();
    let gpu = gpu();
    // They are one launch, the first of the parts.
    for (module, function) in all_functions(&*gpu, &compiler) {
        compare_part(&*gpu, module, (function, SHORT), 0);
    }
}

/// Each function with the module that has it.
fn all_functions(gpu: &dyn Gpu, compiler: &Compiler) -> Vec<(ModuleHandle, &'static str)> {
    let module = loaded(gpu, compiler, text("initialize", ("math", &FUNCTIONS)));
    let powers = loaded(gpu, compiler, text("attention_blocks_queries", ("attention_blocks", &POWERS)));
    FUNCTIONS.map(|function| (module, function)).into_iter().chain(POWERS.map(|function| (powers, function))).collect()
}

/// All significands, with the smallest exponent and the largest: the steps between scale with powers of two.
#[needs::cuda]
#[test]
fn reciprocals_of_every_significand_are_rounded_to_nearest() {
    let compiler = compiler();
    let gpu = gpu();
    let module = loaded(&*gpu, &compiler, text("initialize", ("math", &["reciprocal"])));
    let work = Work::open(&*gpu, module, "reciprocal");
    for exponent in [127, 127 + 116] {
        for launch in 0..(1u32 << 23) / COUNT as u32 {
            let first = (exponent << 23) + launch * COUNT as u32;
            work.launch(first, 1);
            for (number, got) in (first..).zip(work.results()) {
                assert_eq!(f32::from_bits(got), 1.0 / f32::from_bits(number), "of {number:#x}");
            }
        }
    }
}

/// The module of a text.
fn loaded(gpu: &dyn Gpu, compiler: &Compiler, text: String) -> ModuleHandle {
    let target: Target = TARGET.parse().expect("a target");
    let code = compiler.compile(&Source::new("every_number.cu", text), &target, OPTIONS).expect("compiled").code;
    gpu.load(code.image()).expect("loaded")
}

/// A stream with the kernel of a function, and memory for its results.
struct Work<'a> {
    gpu: &'a dyn Gpu,
    kernel: FunctionHandle,
    stream: StreamHandle,
    out: DevicePointer,
    pinned: PinnedHandle,
}

impl Work<'_> {
    fn open<'a>(gpu: &'a dyn Gpu, module: ModuleHandle, function: &str) -> Work<'a> {
        let kernel = gpu.function(module, &format!("every_{function}")).expect("a kernel");
        let stream = gpu.create_stream().expect("a stream");
        let (out, pinned) = (gpu.allocate(4 * COUNT).expect("memory"), gpu.allocate_pinned(4 * COUNT).expect("memory"));
        Work { gpu, kernel, stream, out, pinned }
    }

    /// Starts with numbers whose bits are `first`, `first + step` and so on.
    fn launch(&self, first: u32, step: u32) {
        let Work { gpu, kernel, stream, out, pinned } = self;
        let arguments =
            Arguments::new().with(&first.to_le_bytes()).with(&step.to_le_bytes()).with(&out.0.to_le_bytes());
        let shape = LaunchShape::linear(COUNT as u32 / THREADS, THREADS);
        gpu.launch(*stream, *kernel, shape, &arguments).expect("work");
        gpu.download(*stream, *pinned, 0, *out, 4 * COUNT).expect("work");
    }

    /// The bits of what was started, when it has ended.
    fn results(&self) -> Vec<u32> {
        self.gpu.synchronize(self.stream).expect("ended");
        let mut bytes = vec![0; 4 * COUNT];
        self.gpu.read_pinned(self.pinned, 0, &mut bytes).expect("read");
        bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
    }
}

/// Compares a function of every number whose bits are a multiple of `step`, in one of the parts.
fn compare_part(gpu: &dyn Gpu, module: ModuleHandle, (function, step): (&'static str, u32), part: usize) {
    let work = Work::open(gpu, module, function);
    for launch in (0..(1u64 << 32).div_ceil(COUNT as u64 * u64::from(step))).skip(part).step_by(PARTS) {
        let first = (launch * COUNT as u64 * u64::from(step)) as u32;
        work.launch(first, step);
        let expected = lanes::run(InstructionSet::detect(), OnCpu { function, first, step });
        for (index, (expected, got)) in expected.into_iter().zip(work.results()).enumerate() {
            let both_are_nan = f32::from_bits(expected).is_nan() && f32::from_bits(got).is_nan();
            let number = first.wrapping_add((index as u32).wrapping_mul(step));
            // Of what is negative or not a number the function is anything.
            let is_anything = function == "power_from_zero" && number > f32::INFINITY.to_bits();
            assert!(
                expected == got || both_are_nan || is_anything,
                "{function} of {number:#x}: {expected:#x}, {got:#x}"
            );
        }
    }
}
