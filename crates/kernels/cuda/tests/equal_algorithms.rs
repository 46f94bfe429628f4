//! The choice among pleach's kernels and algorithms of a library, whose results are compared on a GPU in software and
//! whose times the test gives.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use config::{Activation, TimedAlgorithms};
use cuda::code::{CompiledSource, compile};
use cuda::kernels::SOURCES;
use cuda::{BY_KERNELS, Choice, ChosenAlgorithms, ChosenTiles, CudaDevice, RunProduct, Source, choose};
use device::{Device, Dtype, Op, Orientation, Stream, Tensor, Write};
use gpu::{
    Arguments, DevicePointer, Driver, DriverError, EventHandle, FunctionHandle, Gpu, LaunchShape, MatrixElement,
    MatrixPlaces, MatrixProduct, ModuleHandle, ProductAlgorithm, ProductLibrary, ProductLimits, StreamHandle,
};
use nvidia::Search;
use nvidia::nvrtc::{Cache, Compiler};
use soft_products::SoftProducts;
use softgpu::{HostWork, Settings, SoftDriver, SoftGpu};
use sync::lock;

/// The algorithms of [`Library`], by their second words: sums in two pieces; whole sums, which are those of blocks; and
/// whole sums of which one lane is wrong where it is large.
const CUT: u64 = 2;
const WHOLE: u64 = 1;
const RARELY_WRONG: u64 = 7;

/// Sums that are wrong exceed this.
const LARGE: f32 = 1_073_741_824.0;

/// Calls of algorithms, and launches of kernels of products.
#[derive(Debug, Default)]
struct Calls {
    since_event: Mutex<usize>,
    launches_since_event: Mutex<usize>,
    all: Mutex<BTreeMap<u64, usize>>,
    kernels: Mutex<BTreeSet<u64>>,
}

/// Milliseconds of a product by the library, and by a kernel.
#[derive(Clone, Copy, Debug)]
struct Times {
    library: f32,
    kernels: f32,
}

/// A GPU whose events are as far apart as these times.
struct TimedGpu {
    inner: Arc<dyn Gpu>,
    times: Times,
    calls: Arc<Calls>,
}

impl Gpu for TimedGpu {
    fn launch(
        &self,
        stream: StreamHandle,
        function: FunctionHandle,
        shape: LaunchShape,
        arguments: &Arguments,
    ) -> Result<(), DriverError> {
        if lock(&self.calls.kernels).contains(&function.0) {
            *lock(&self.calls.launches_since_event) += 1;
        }
        self.inner.launch(stream, function, shape, arguments)
    }

    fn function(&self, module: ModuleHandle, name: &str) -> Result<FunctionHandle, DriverError> {
        let function = self.inner.function(module, name)?;
        if name.starts_with("mat_mul") {
            lock(&self.calls.kernels).insert(function.0);
        }
        Ok(function)
    }

    fn elapsed_ms(&self, from: EventHandle, to: EventHandle) -> Result<f32, DriverError> {
        self.inner.elapsed_ms(from, to)?;
        let calls = [&self.calls.since_event, &self.calls.launches_since_event];
        let [by_library, by_kernels] = calls.map(|calls| std::mem::take(&mut *lock(calls)) as f32);
        Ok(by_library * self.times.library + by_kernels * self.times.kernels)
    }

    gpu::forward!(
        inner: facts, enter, memory, copies, streams, events, load, unload, function_facts, allow_shared, tensor_map,
        graphs
    );
}

/// The soft GPU's library with one more algorithm.
struct Library {
    inner: SoftProducts,
    soft: Arc<SoftGpu>,
    calls: Arc<Calls>,
}

impl ProductLibrary for Library {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn algorithms(&self, product: &MatrixProduct, limits: ProductLimits) -> Result<Vec<ProductAlgorithm>, DriverError> {
        let mut all = self.inner.algorithms(product, limits)?;
        all.retain(|algorithm| algorithm.words[1] <= CUT);
        let whole = all.iter().find(|algorithm| algorithm.words[1] == WHOLE);
        let rarely_wrong = whole.map(|whole| {
            let [mark, _, rest @ ..] = whole.words;
            let [a, b, c, d, e, f] = rest;
            ProductAlgorithm { words: [mark, RARELY_WRONG, a, b, c, d, e, f], ..*whole }
        });
        Ok(rarely_wrong.into_iter().chain(all).collect())
    }

    fn multiply(
        &self,
        stream: StreamHandle,
        product: &MatrixProduct,
        algorithm: &ProductAlgorithm,
        places: MatrixPlaces,
        workspace: DevicePointer,
    ) -> Result<(), DriverError> {
        *lock(&self.calls.since_event) += 1;
        *lock(&self.calls.all).entry(algorithm.words[1]).or_default() += 1;
        if algorithm.words[1] != RARELY_WRONG {
            return self.inner.multiply(stream, product, algorithm, places, workspace);
        }
        let mut whole = *algorithm;
        whole.words[1] = WHOLE;
        self.inner.multiply(stream, product, &whole, places, workspace)?;
        let (lane, element) = (vec![(places.d, product.result.bytes())], product.result);
        let compute = move |read: &[Vec<u8>]| {
            let mut bytes = read[0].clone();
            let number = match element {
                MatrixElement::F32 => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
                MatrixElement::Bf16 => f32::from_bits(u32::from(u16::from_le_bytes([bytes[0], bytes[1]])) << 16),
                MatrixElement::F16 => panic!("the test has no such result"),
            };
            if number.abs() > LARGE {
                bytes[0] ^= 1;
            }
            vec![bytes]
        };
        let work = HostWork { call: "multiply", reads: lane.clone(), writes: lane, compute: Box::new(compute) };
        self.soft.submit_host_work(stream, work)
    }
}

/// The kernels of a GPU of 9.0.
fn code() -> Vec<CompiledSource> {
    let folder = std::env::var_os("PLEACH_CUDA").expect("PLEACH_CUDA must name a folder with NVRTC");
    let compiler = Compiler::open(&Search::only([PathBuf::from(folder)])).expect("NVRTC in PLEACH_CUDA");
    let cache = Cache::in_folder(std::env::temp_dir().join("pleach-of-tests/pleach/kernels"));
    let target = "compute_90a".parse().expect("a target");
    let is_used = |name: &str| name.starts_with("mat_mul_wgmma") || name == "activation";
    let sources = SOURCES.iter().filter(|source| is_used(source.name));
    sources.map(|source| compile(&compiler, &cache, source, &target).expect("compiled")).collect()
}

/// A GPU with its library.
struct Rig {
    gpu: Arc<dyn Gpu>,
    library: Library,
    calls: Arc<Calls>,
}

impl Rig {
    fn new(times: Times, settings: Settings) -> Rig {
        let driver = SoftDriver::new(1, settings);
        let (inner, calls) = (driver.open(0).expect("a GPU"), Arc::new(Calls::default()));
        let soft = driver.opened(0).expect("it is open");
        let products = SoftProducts::new(Arc::clone(&soft));
        let library = Library { inner: products, soft, calls: Arc::clone(&calls) };
        Rig { gpu: Arc::new(TimedGpu { inner, times, calls: Arc::clone(&calls) }), library, calls }
    }

    fn choose(
        &self,
        code: &[CompiledSource],
        products: &[RunProduct],
        known: &ChosenAlgorithms,
        limit: Duration,
    ) -> Choice {
        let (library, algorithms, tiles) = (&self.library, TimedAlgorithms::Equal, &ChosenTiles::new());
        let source = Source::Library { library, algorithms, known, tiles };
        choose(&self.gpu, code, products, (source, limit)).expect("a choice")
    }
}

const FAST: Times = Times { library: 0.5, kernels: 1.0 };
const SLOW: Times = Times { library: 1.5, kernels: 1.0 };
const LONG: Duration = Duration::from_secs(3600);

/// bf16 matrices at multiples of 64 KiB.
fn matrix(place: usize, rows: usize, cols: usize, dtype: Dtype) -> Tensor {
    Tensor::new(place << 16, rows, cols, dtype)
}

/// A product of every orientation, with bias, accumulated, and with the activation that follows.
fn ops() -> [Op; 4] {
    use Dtype::{Bf16, F32};
    let (a, b, bias, x) =
        (matrix(0, 40, 64, Bf16), matrix(1, 48, 64, Bf16), matrix(2, 1, 48, Bf16), matrix(3, 40, 48, Bf16));
    let transposed = [matrix(0, 64, 40, Bf16), matrix(1, 64, 48, Bf16)];
    let bias = Some(bias);
    [
        Op::MatMul { orientation: Orientation::Nt, a, b, bias, out: x, write: Write::Assign },
        Op::MatMul {
            orientation: Orientation::Nn,
            a,
            b: matrix(1, 64, 56, Bf16),
            bias: None,
            out: matrix(3, 40, 56, Bf16),
            write: Write::Accumulate,
        },
        Op::MatMul {
            orientation: Orientation::Tn,
            a: transposed[0],
            b: transposed[1],
            bias: None,
            out: matrix(3, 40, 48, F32),
            write: Write::Accumulate,
        },
        Op::MatMulActivation { a, b, bias: None, activation: Activation::Relu, x, y: matrix(4, 40, 48, Bf16) },
    ]
}

fn products() -> Vec<RunProduct> {
    ops().iter().map(|op| RunProduct::of(op, Stream::Compute).expect("a product")).collect()
}

/// The second words of the algorithms of products, a line each.
fn described(choice: &Choice, products: &[RunProduct]) -> String {
    let word = |product: &RunProduct| choice.algorithms.get(&product.of_library).map_or(0, |words| words[1]);
    let by = |product| match word(product) {
        WHOLE => "whole sums",
        CUT => "cut sums",
        RARELY_WRONG => "whole sums that are rarely wrong",
        u64::MAX => "pleach's kernels",
        _ => "nothing",
    };
    let lines = products.iter().map(|product| format!("{} by {}\n", product.of_library, by(product)));
    let Choice { timed, equal, other_than_first, not_proposed, .. } = choice;
    lines.collect::<String>()
        + &format!("{timed} compared, {equal} equal, {other_than_first} by the library, {not_proposed} not proposed\n")
}

#[needs::cuda]
#[test]
fn algorithms_with_the_bits_of_blocks_compete_and_those_with_rare_faults_do_not() {
    let code = code();
    let products = products();
    let rig = Rig::new(FAST, Settings::default());
    let choice = rig.choose(&code, &products, &ChosenAlgorithms::default(), LONG);
    let expected = "40 x 48 x 64 NT from bf16 to bf16, with bias by whole sums\n\
                    40 x 56 x 64 NN from bf16 to bf16, accumulated by whole sums\n\
                    40 x 48 x 64 TN from bf16 to fp32, accumulated by whole sums\n\
                    40 x 48 x 64 NT from bf16 to bf16 by whole sums\n\
                    4 compared, 4 equal, 4 by the library, 0 not proposed\n";
    assert_eq!(described(&choice, &products), expected);
    // Cut sums differ in the first draw, and the rare fault in the second one.
    let calls = lock(&rig.calls.all).clone();
    assert_eq!((calls[&CUT], calls[&RARELY_WRONG]), (4, 4 * 2));
    // Slower ones compute nothing.
    let choice = Rig::new(SLOW, Settings::default()).choose(&code, &products, &ChosenAlgorithms::default(), LONG);
    let by_kernels = expected.replace("whole sums", "pleach's kernels").replace("4 by the library", "0 by the library");
    assert_eq!(described(&choice, &products), by_kernels);
    // A known algorithm is compared no more, whatever its time.
    let rig = Rig::new(FAST, Settings::default());
    let known = rig.choose(&code, &products, &choice.algorithms, LONG);
    let counts = "4 compared, 4 equal, 0 by the library";
    let nothing = "0 compared, 0 equal, 0 by the library";
    assert_eq!(described(&known, &products), by_kernels.replace(counts, nothing));
    assert!(lock(&rig.calls.all).is_empty());
}

#[needs::cuda]
#[test]
fn products_that_cannot_be_compared_are_those_of_pleach_s_kernels() {
    let code = code();
    let products = products();
    let none = ChosenAlgorithms::default();
    let counts = |choice: Choice| (choice.timed, choice.other_than_first, choice.algorithms.len());
    assert_eq!(counts(Rig::new(FAST, Settings::default()).choose(&code, &products, &none, Duration::ZERO)), (0, 0, 4));
    let small = Settings { memory_bytes: (256 + 32) << 20, ..Settings::default() };
    assert_eq!(counts(Rig::new(FAST, small).choose(&code, &products, &none, LONG)), (0, 0, 4));
    // Words of another library.
    let foreign: ChosenAlgorithms = [(products[0].of_library, [5; 8])].into_iter().collect();
    let choice = Rig::new(FAST, Settings::default()).choose(&code, &products[..1], &foreign, LONG);
    assert_eq!((choice.not_proposed, choice.other_than_first), (1, 1));
}

/// A device computes by the library what has an algorithm, and all else by pleach's kernels, with the same bits.
#[needs::cuda]
#[test]
fn a_device_takes_equal_algorithms_where_they_were_chosen() {
    let code = code();
    let (products, ops) = (products(), ops());
    let algorithms = Rig::new(FAST, Settings::default()).choose(&code, &products, &ChosenAlgorithms::default(), LONG);
    let run = |chosen: ChosenAlgorithms| {
        let rig = Rig::new(FAST, Settings::default());
        let device = CudaDevice::open(Arc::clone(&rig.gpu), &code, 5 << 16).expect("a device");
        let device = device.with_equal_algorithms(Box::new(rig.library), Arc::new(chosen)).expect("a workspace");
        let all = Tensor::new(0, 1, (5 << 16) / 2, Dtype::Bf16);
        let numbers: Vec<u8> =
            (0..all.len()).flat_map(|index| (0x3f80 + (index * 37 % 128) as u16).to_le_bytes()).collect();
        device.write(all, &numbers).expect("written");
        for op in &ops {
            device.submit(Stream::Compute, op).expect("submitted");
        }
        let mut bytes = vec![0; all.size_bytes()];
        device.read(all, &mut bytes).expect("read");
        let calls = *lock(&rig.calls.since_event);
        (bytes, calls)
    };
    let (by_library, calls) = run(algorithms.algorithms.clone());
    let (by_kernels, none) = run(ChosenAlgorithms::default());
    assert!(by_library == by_kernels && (calls, none) == (4, 0), "{calls} and {none} calls");
    let half = products.iter().zip([true, false].into_iter().cycle()).map(|(product, is_kept)| {
        let words = algorithms.algorithms[&product.of_library];
        (product.of_library, if is_kept { words } else { BY_KERNELS })
    });
    assert_eq!(run(half.collect()).1, 2);
}
