//! The choice among the kernels that compute a product with other tiles, whose times the test gives. The GPU launches
//! nothing, so kernels need no code.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use config::{Activation, Products, TimedTiles};
use cuda::code::CompiledSource;
use cuda::kernels::{Instructions, SOURCES};
use cuda::{Choice, ChosenTiles, CudaDevice, KernelProduct, RunProduct, Source, StreamProduct, choose};
use device::{Device, Dtype, Op, Orientation, Stream, Tensor, Write};
use gpu::{
    Arguments, Driver, DriverError, EventHandle, FactorForm, FunctionHandle, Gpu, LaunchShape, MatrixElement,
    MatrixProduct, ModuleHandle, ModuleImage, StreamHandle,
};
use nvidia::nvrtc::Code;
use softgpu::{Settings, SoftDriver};
use sync::lock;

/// Milliseconds of kernels by the ends of their names; 1 for all others.
type Times = &'static [(&'static str, f32)];

/// A GPU that notes kernels in place of launching them, and whose events are as far apart as their times.
struct TimedGpu {
    inner: Arc<dyn Gpu>,
    times: Times,
    functions: Mutex<Vec<String>>,
    /// Kernels since the last events, and all.
    launched: Mutex<Vec<String>>,
    all: Mutex<Vec<String>>,
}

impl Gpu for TimedGpu {
    fn load(&self, _image: ModuleImage) -> Result<ModuleHandle, DriverError> {
        Ok(ModuleHandle(0))
    }

    fn unload(&self, _module: ModuleHandle) -> Result<(), DriverError> {
        Ok(())
    }

    fn function(&self, _module: ModuleHandle, name: &str) -> Result<FunctionHandle, DriverError> {
        let mut functions = lock(&self.functions);
        functions.push(name.into());
        Ok(FunctionHandle(functions.len() as u64 - 1))
    }

    fn allow_shared(&self, _function: FunctionHandle, _bytes: u32) -> Result<(), DriverError> {
        Ok(())
    }

    fn launch(
        &self,
        _stream: StreamHandle,
        function: FunctionHandle,
        _shape: LaunchShape,
        _arguments: &Arguments,
    ) -> Result<(), DriverError> {
        let name = lock(&self.functions)[function.0 as usize].clone();
        lock(&self.launched).push(name.clone());
        lock(&self.all).push(name);
        Ok(())
    }

    fn elapsed_ms(&self, from: EventHandle, to: EventHandle) -> Result<f32, DriverError> {
        // Asks the GPU, too: both events must have been reached.
        self.inner.elapsed_ms(from, to)?;
        let launched = std::mem::take(&mut *lock(&self.launched));
        let products: BTreeSet<&String> = launched.iter().filter(|name| name.starts_with("mat_mul")).collect();
        assert!(products.len() == 1, "one kernel at a time: {launched:?}");
        let time = |name: &String| self.times.iter().find(|(end, _)| name.ends_with(end)).map_or(1.0, |(_, ms)| *ms);
        Ok(launched.iter().map(time).sum())
    }

    gpu::forward!(inner: facts, enter, memory, copies, streams, events, function_facts, tensor_map, graphs);
}

impl TimedGpu {
    fn new(times: Times, settings: Settings) -> Arc<TimedGpu> {
        let inner = SoftDriver::new(1, settings).open(0).expect("a GPU");
        let (functions, launched, all) = (Mutex::default(), Mutex::default(), Mutex::default());
        Arc::new(TimedGpu { inner, times, functions, launched, all })
    }

    fn choose(self: &Arc<TimedGpu>, products: &[KernelProduct], limit: Duration) -> Choice {
        self.choose_of(TimedTiles::All, products, limit)
    }

    fn choose_of(self: &Arc<TimedGpu>, which: TimedTiles, products: &[KernelProduct], limit: Duration) -> Choice {
        let gpu: Arc<dyn Gpu> = Arc::clone(self) as _;
        choose_tiles(&gpu, &code(), products, (which, limit))
    }
}

fn choose_tiles(
    gpu: &Arc<dyn Gpu>,
    code: &[CompiledSource],
    products: &[KernelProduct],
    (which, limit): (TimedTiles, Duration),
) -> Choice {
    let of_run = |of_kernels: &KernelProduct| {
        let of_library = StreamProduct { product: of_kernels.product, workspace_bytes: 0 };
        RunProduct { of_kernels: *of_kernels, of_library }
    };
    let products: Vec<RunProduct> = products.iter().map(of_run).collect();
    choose(gpu, code, &products, (Source::Tiles(which), limit)).expect("a choice")
}

/// All sources, without code.
fn code() -> Vec<CompiledSource> {
    let source = |source: &cuda::kernels::Source| CompiledSource { source: *source, code: Code::Ptx(String::new()) };
    SOURCES.iter().map(source).collect()
}

fn alone(product: MatrixProduct) -> KernelProduct {
    KernelProduct::alone(product)
}

fn dense(sizes: [u64; 3], elements: [MatrixElement; 2], forms: [FactorForm; 2]) -> KernelProduct {
    alone(MatrixProduct::dense(sizes, elements, forms))
}

const LONG: Duration = Duration::from_secs(3600);
const NARROW: [MatrixElement; 2] = [MatrixElement::Bf16; 2];
const TO_F32: [MatrixElement; 2] = [MatrixElement::Bf16, MatrixElement::F32];
const NT: [FactorForm; 2] = [FactorForm::Plain, FactorForm::Transposed];
const NN: [FactorForm; 2] = [FactorForm::Plain; 2];
const TN: [FactorForm; 2] = [FactorForm::Transposed, FactorForm::Plain];

/// The tiles of products, a line each.
fn described(choice: &Choice, products: &[KernelProduct]) -> String {
    let Choice { tiles, timed, other_than_first, left, .. } = choice;
    let lines = products.iter().map(|product| format!("{:?} {:?}\n", product.product.sizes, tiles.get(product)));
    lines.collect::<String>() + &format!("{timed} timed, {other_than_first} not as estimated, {left} left\n")
}

#[test]
fn the_fastest_tile_is_chosen_where_it_is_clearly_faster_than_the_estimated_one() {
    let products = [
        dense([512, 2304, 768], NARROW, NT),
        dense([512, 768, 768], NARROW, NN),
        dense([768, 768, 512], TO_F32, TN),
        // Sums of pieces have fewer tiles where the output is narrow.
        dense([256, 256, 8200], NARROW, TN),
    ];
    let said = |times| described(&TimedGpu::new(times, Settings::default()).choose(&products, LONG), &products);
    let equal = "[512, 2304, 768] Some(Of256)\n\
                 [512, 768, 768] Some(Of256)\n\
                 [768, 768, 512] Some(Of192)\n\
                 [256, 256, 8200] Some(Of128)\n\
                 4 timed, 0 not as estimated, 0 left\n";
    assert_eq!(said(&[]), equal);
    assert_eq!(said(&[("_64", 0.99)]), equal, "a hundredth is as long");
    let other = "[512, 2304, 768] Some(InTurnsOf128)\n\
                 [512, 768, 768] Some(InTurnsOf128)\n\
                 [768, 768, 512] Some(InTurnsOf128)\n\
                 [256, 256, 8200] Some(Of64)\n\
                 4 timed, 4 not as estimated, 0 left\n";
    let times = &[("turns_nt_128", 0.5), ("turns_nn_128", 0.5), ("turns_tn_128", 0.5), ("_64", 0.6)];
    assert_eq!(said(times), other);
    let gpu = TimedGpu::new(times, Settings::default());
    let chosen = described(&gpu.choose_of(TimedTiles::HaveRun, &products, LONG), &products);
    assert_eq!(chosen, other.replace("InTurnsOf128", "Of64"), "tiles in turns have not run on a GPU");
    assert!(launches(&gpu).keys().all(|kernel| !kernel.contains("turns")), "nor are they launched");
}

/// Launches of each kernel.
fn launches(gpu: &TimedGpu) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for name in lock(&gpu.all).iter() {
        *counts.entry(name.clone()).or_default() += 1;
    }
    counts
}

#[test]
fn slow_tiles_and_long_products_are_launched_a_few_times() {
    let product = dense([512, 2304, 768], NARROW, NT);
    let counts = |times| {
        let gpu = TimedGpu::new(times, Settings::default());
        gpu.choose(&[product, product], LONG);
        launches(&gpu).into_iter().map(|(name, count)| format!("{name} {count}\n")).collect::<String>()
    };
    let long = "mat_mul_wgmma_nt_128 2\n\
                mat_mul_wgmma_nt_192 6\n\
                mat_mul_wgmma_nt_256 6\n\
                mat_mul_wgmma_nt_64 2\n\
                mat_mul_wgmma_turns_nt_128 2\n";
    assert_eq!(counts(&[("_64", 1.6), ("_128", 2.0)]), long);
    let short = "mat_mul_wgmma_nt_128 18\n\
                 mat_mul_wgmma_nt_192 2\n\
                 mat_mul_wgmma_nt_256 2\n\
                 mat_mul_wgmma_nt_64 18\n\
                 mat_mul_wgmma_turns_nt_128 18\n";
    assert_eq!(counts(&[("_64", 0.1), ("_128", 0.12)]), short);
}

#[test]
fn products_that_other_kernels_compute_are_not_timed() {
    let dense = MatrixProduct::dense([64, 64, 64], NARROW, NT);
    let products = [
        MatrixProduct { strides: [65, 64, 64], ..dense },
        MatrixProduct { alignments: [256, 8, 256, 256], ..dense },
        MatrixProduct { factors: MatrixElement::F32, result: MatrixElement::F32, ..dense },
        MatrixProduct { a: FactorForm::Transposed, ..dense },
    ]
    .map(alone);
    let gpu = TimedGpu::new(&[], Settings::default());
    assert_eq!(gpu.choose(&products, LONG), Choice::default());
    // GPUs of other capabilities have one kernel for it.
    let shared: Arc<dyn Gpu> = gpu;
    let chosen = choose_tiles(&shared, &common(), &[alone(dense)], (TimedTiles::All, LONG));
    assert_eq!(chosen, Choice::default());
}

/// The sources of GPUs without warpgroups.
fn common() -> Vec<CompiledSource> {
    code().into_iter().filter(|code| code.source.instructions == Instructions::Common).collect()
}

#[test]
fn products_keep_the_estimated_tile_where_time_or_memory_ends() {
    let products = [128, 256].map(|m| dense([m, 2304, 768], NARROW, NT));
    let gpu = TimedGpu::new(&[], Settings::default());
    let left = Choice { left: 2, ..Choice::default() };
    let free = gpu.free_memory().expect("facts").free_bytes;
    assert_eq!(gpu.choose(&products, Duration::ZERO), left);
    assert_eq!(gpu.free_memory().expect("facts").free_bytes, free, "all memory is released");
    // The margin and no matrix, and a margin with the smaller product alone.
    let gpu = |more: u64| TimedGpu::new(&[], Settings { memory_bytes: (256 << 20) + more, ..Settings::default() });
    assert_eq!(gpu(0).choose(&products, LONG), left);
    let said = described(&gpu(4_500_000).choose(&products, LONG), &products);
    assert_eq!(said, "[128, 2304, 768] Some(Of192)\n[256, 2304, 768] None\n1 timed, 0 not as estimated, 1 left\n");
}

/// A device launches the chosen kernels, and those that are estimated to be the fastest elsewhere.
#[test]
fn a_device_takes_the_chosen_tile() {
    let product = |m| {
        let matrix = |place: usize, rows, cols| Tensor::new(place << 21, rows, cols, Dtype::Bf16);
        let (a, b, out) = (matrix(0, m, 256), matrix(1, 768, 256), matrix(2, m, 768));
        Op::MatMul { orientation: Orientation::Nt, a, b, bias: None, out, write: Write::Assign }
    };
    let chosen = KernelProduct::of(&product(512)).expect("a product");
    let launched = |tiles: ChosenTiles| {
        let gpu = TimedGpu::new(&[], Settings::default());
        let shared: Arc<dyn Gpu> = Arc::clone(&gpu) as _;
        let device = CudaDevice::open(shared, &code(), 6 << 20).expect("a device").with_products(Products::Blocks16);
        let device = device.with_tiles(Arc::new(tiles));
        for m in [512, 1024] {
            device.submit(Stream::Shift, &product(m)).expect("submitted");
        }
        lock(&gpu.all).clone()
    };
    let tiles = |times| TimedGpu::new(times, Settings::default()).choose(&[chosen], LONG).tiles;
    assert_eq!(launched(ChosenTiles::default()), ["mat_mul_wgmma_nt_256"; 2]);
    assert_eq!(launched(tiles(&[("_192", 0.5)])), ["mat_mul_wgmma_nt_192", "mat_mul_wgmma_nt_256"]);
    assert_eq!(launched(tiles(&[("_turns_nt_128", 0.5)])), ["mat_mul_wgmma_turns_nt_128", "mat_mul_wgmma_nt_256"]);
}

/// A product with the activation that follows, in one kernel or in two.
#[test]
fn products_with_activations_are_timed_as_a_whole() {
    let products = products_with_activations();
    let said = |times| {
        let timed = TimedGpu::new(times, Settings::default());
        let text = described(&timed.choose(&products, LONG), &products);
        (text, launches(&timed))
    };
    let fused = "[256, 512, 128] Some(Fused)\n\
                 [256, 512, 128] Some(Fused)\n\
                 [256, 512, 128] Some(Fused)\n\
                 [256, 512, 128] Some(Of256)\n\
                 4 timed, 3 not as estimated, 0 left\n";
    let (text, counts) = said(&[]);
    assert_eq!(text, fused, "one kernel is faster than two");
    assert!(counts["mat_mul_wgmma_gated"] == 6 && counts["mat_mul_wgmma_activation_backward"] == 6, "{counts:?}");
    let (text, _) = said(&[("mat_mul_wgmma_activation", 2.1), ("mat_mul_wgmma_gated", 2.1), ("_backward", 2.1)]);
    assert_eq!(text, fused.replace("Fused", "Of256").replace("3 not", "0 not"));
}

/// GPUs without warpgroups have one kernel or two.
#[test]
fn products_by_warps_with_activations_are_timed_as_a_whole() {
    let products = products_with_activations();
    let said = |times, which| {
        let gpu: Arc<dyn Gpu> = TimedGpu::new(times, Settings::default());
        described(&choose_tiles(&gpu, &common(), &products, (which, LONG)), &products)
    };
    let fused = "[256, 512, 128] Some(Fused)\n\
                 [256, 512, 128] Some(Fused)\n\
                 [256, 512, 128] Some(Fused)\n\
                 [256, 512, 128] None\n\
                 3 timed, 3 not as estimated, 0 left\n";
    assert_eq!(said(&[], TimedTiles::All), fused, "one kernel is faster than two");
    let slow = &[("_128_bf16", 2.1)];
    assert_eq!(said(slow, TimedTiles::All), fused.replace("Fused", "ByWarps").replace("3 not", "0 not"));
    let none = fused.replace("Some(Fused)", "None").replace("3 timed, 3 not", "0 timed, 0 not");
    assert_eq!(said(&[], TimedTiles::HaveRun), none, "fused kernels have not run on a GPU");
}

fn products_with_activations() -> [KernelProduct; 4] {
    let matrix = |place: usize, rows, cols| Tensor::new((place << 20) + 256, rows, cols, Dtype::Bf16);
    let (a, b, dy, x) = (matrix(0, 256, 128), matrix(1, 512, 128), matrix(2, 256, 512), matrix(3, 256, 512));
    let (dx, y, transposed) = (matrix(4, 256, 512), matrix(5, 256, 512), matrix(1, 128, 512));
    let activation = Activation::GeluTanh;
    let ops = [
        Op::MatMulActivation { a, b, bias: Some(matrix(6, 1, 512)), activation, x, y },
        Op::MatMulActivation { a, b, bias: None, activation: Activation::SwiGlu, x, y: matrix(5, 256, 256) },
        Op::MatMulActivationBackward { a, b: transposed, activation, dy, x, dx, y },
        Op::MatMul { orientation: Orientation::Nt, a, b, bias: None, out: x, write: Write::Assign },
    ];
    ops.map(|op| KernelProduct::of(&op).expect("a product"))
}
