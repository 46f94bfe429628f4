//! The choice among a library's algorithms, whose times the test gives: events of the GPU that measure them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use config::TimedAlgorithms;
use cuda::{Choice, ChosenAlgorithms, ChosenTiles, CudaDevice, RunProduct, Source, choose};
use device::{Device, Dtype, Op, Orientation, Stream, Tensor, Write};
use gpu::{
    DevicePointer, Driver, DriverError, DriverErrorKind, EventHandle, Gpu, MatrixPlaces, MatrixProduct,
    ProductAlgorithm, ProductLibrary, ProductLimits, StreamHandle,
};
use soft_products::SoftProducts;
use softgpu::{Settings, SoftDriver};
use sync::lock;

/// Milliseconds of the algorithms that cut sums into 1, 2 and 4 pieces.
type Times = [f32; 3];

fn time_of(times: Times, splits: u32) -> f32 {
    times[splits.trailing_zeros() as usize]
}

/// Pieces of products that were submitted since the last event.
#[derive(Debug, Default)]
struct Submitted(Mutex<Vec<u32>>);

/// A GPU whose events are as far apart as the given times of the products between them.
struct TimedGpu {
    inner: Arc<dyn Gpu>,
    times: Times,
    submitted: Arc<Submitted>,
}

impl Gpu for TimedGpu {
    fn elapsed_ms(&self, from: EventHandle, to: EventHandle) -> Result<f32, DriverError> {
        // Asks the GPU, too: both events must have been reached.
        self.inner.elapsed_ms(from, to)?;
        let submitted = std::mem::take(&mut *lock(&self.submitted.0));
        assert!(submitted.windows(2).all(|pair| pair[0] == pair[1]), "one algorithm at a time: {submitted:?}");
        Ok(submitted.iter().map(|splits| time_of(self.times, *splits)).sum())
    }

    gpu::forward!(
        inner: facts, enter, memory, copies, streams, events, load, unload, function, function_facts, allow_shared,
        tensor_map, launch, graphs
    );
}

/// The soft GPU's library, which counts, and refuses algorithms of `refused` pieces.
struct CountedLibrary {
    inner: SoftProducts,
    submitted: Arc<Submitted>,
    refused: Option<u32>,
}

impl ProductLibrary for CountedLibrary {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn algorithms(&self, product: &MatrixProduct, limits: ProductLimits) -> Result<Vec<ProductAlgorithm>, DriverError> {
        self.inner.algorithms(product, limits)
    }

    fn multiply(
        &self,
        stream: StreamHandle,
        product: &MatrixProduct,
        algorithm: &ProductAlgorithm,
        places: MatrixPlaces,
        workspace: DevicePointer,
    ) -> Result<(), DriverError> {
        if self.refused == Some(algorithm.splits) {
            let kind = DriverErrorKind::Other(15);
            return Err(DriverError { call: "multiply", kind, text: "not supported".into() });
        }
        lock(&self.submitted.0).push(algorithm.splits);
        self.inner.multiply(stream, product, algorithm, places, workspace)
    }
}

/// A GPU with its library.
struct Rig {
    gpu: Arc<dyn Gpu>,
    library: CountedLibrary,
}

impl Rig {
    fn new(times: Times, refused: Option<u32>, settings: Settings) -> Rig {
        let driver = SoftDriver::new(1, settings);
        let (inner, submitted) = (driver.open(0).expect("a GPU"), Arc::new(Submitted::default()));
        let products = SoftProducts::new(driver.opened(0).expect("it is open"));
        let library = CountedLibrary { inner: products, submitted: Arc::clone(&submitted), refused };
        Rig { gpu: Arc::new(TimedGpu { inner, times, submitted }), library }
    }

    fn choose(&self, products: &[RunProduct], known: &ChosenAlgorithms) -> Choice {
        let (library, algorithms, tiles) = (&self.library, TimedAlgorithms::Proposed, &ChosenTiles::new());
        let source = Source::Library { library, algorithms, known, tiles };
        choose(&self.gpu, &[], products, (source, Duration::MAX)).expect("a choice")
    }

    /// Pieces of the algorithm that was chosen.
    fn splits(&self, choice: &Choice, RunProduct { of_library: product, .. }: &RunProduct) -> Option<u32> {
        let words = *choice.algorithms.get(product)?;
        let limits = ProductLimits { workspace_bytes: usize::MAX, sums: gpu::SumForm::Split, most: 8 };
        let all = self.library.algorithms(&product.product, limits).expect("algorithms");
        all.into_iter().find(|algorithm| algorithm.words == words).map(|algorithm| algorithm.splits)
    }
}

/// bf16 tensors at multiples of 64 KiB, or some elements later.
fn tensor(place: usize, elements: usize, [rows, cols]: [usize; 2], dtype: Dtype) -> Tensor {
    Tensor::new((place << 16) + elements * dtype.size_bytes(), rows, cols, dtype)
}

fn product(later: usize, k: usize, has_bias: bool, write: Write) -> Op {
    let [a, b] = [0, 1].map(|place| tensor(place, later, [20, k], Dtype::Bf16));
    let bias = has_bias.then_some(tensor(2, later, [1, 20], Dtype::F32));
    Op::MatMul { orientation: Orientation::Nt, a, b, bias, out: tensor(3, later, [20, 20], Dtype::F32), write }
}

fn on_compute(op: &Op) -> RunProduct {
    RunProduct::of(op, Stream::Compute).expect("a product")
}

#[test]
fn the_fastest_algorithm_is_chosen_and_equal_ones_in_the_library_s_order() {
    let product = on_compute(&product(0, 200, true, Write::Accumulate));
    for (times, pieces) in [([3.0, 2.0, 1.0], 4), ([1.0, 2.0, 3.0], 1), ([2.0, 1.0, 3.0], 2), ([1.0; 3], 2)] {
        let rig = Rig::new(times, None, Settings::default());
        let choice = rig.choose(&[product], &ChosenAlgorithms::default());
        assert_eq!(rig.splits(&choice, &product), Some(pieces), "{times:?}");
        assert_eq!((choice.timed, choice.other_than_first), (1, usize::from(pieces != 2)), "{times:?}");
    }
    // One that the library proposes and refuses is not chosen.
    let rig = Rig::new([3.0, 2.0, 1.0], Some(4), Settings::default());
    let choice = rig.choose(&[product], &ChosenAlgorithms::default());
    assert_eq!(rig.splits(&choice, &product), Some(2));
}

/// Addresses that are multiples of 2 or 8 only, with bias and without: the soft GPU reports accesses outside of memory.
#[test]
fn every_product_is_timed_on_memory_of_its_own() {
    let rig = Rig::new([3.0, 2.0, 1.0], None, Settings::default());
    let mut products = vec![];
    for (later, write) in [(0, Write::Assign), (1, Write::Accumulate), (4, Write::Assign)] {
        for has_bias in [false, true] {
            let op = product(later, 96, has_bias, write);
            products.push(on_compute(&op));
            products.push(RunProduct::of(&op, Stream::Shift).expect("a product"));
        }
    }
    let free = rig.gpu.free_memory().expect("facts").free_bytes;
    let choice = rig.choose(&products, &ChosenAlgorithms::default());
    assert_eq!(rig.gpu.free_memory().expect("facts").free_bytes, free, "all memory is released");
    for product in &products {
        // Without a workspace there is one algorithm, which is not timed.
        let pieces = if product.of_library.workspace_bytes == 0 { 1 } else { 4 };
        assert_eq!(rig.splits(&choice, product), Some(pieces), "{}", product.of_library);
    }
    assert_eq!((choice.algorithms.len(), choice.timed), (products.len(), products.len() / 2));
}

#[test]
fn known_algorithms_are_kept_where_the_library_proposes_them() {
    let [one, other] = [64, 128].map(|k| on_compute(&product(0, k, false, Write::Assign)));
    let first = Rig::new([1.0, 2.0, 3.0], None, Settings::default()).choose(&[one], &ChosenAlgorithms::default());
    let rig = Rig::new([3.0, 2.0, 1.0], None, Settings::default());
    let choice = rig.choose(&[one, other], &first.algorithms);
    assert_eq!([one, other].map(|product| rig.splits(&choice, &product)), [Some(1), Some(4)]);
    assert_eq!((choice.timed, choice.not_proposed), (1, 0));
    // Words of another library.
    let foreign: ChosenAlgorithms = [(one.of_library, [7; 8])].into_iter().collect();
    let choice = rig.choose(&[one], &foreign);
    assert_eq!((rig.splits(&choice, &one), choice.not_proposed), (Some(4), 1));
}

#[test]
fn products_that_do_not_fit_are_not_timed() {
    // The margin and the workspace, and no matrix.
    let settings = Settings { memory_bytes: (256 + 32) << 20, ..Settings::default() };
    let rig = Rig::new([3.0, 2.0, 1.0], None, settings);
    let product = on_compute(&product(0, 64, false, Write::Assign));
    let left = Choice { left: 1, ..Choice::default() };
    assert_eq!(rig.choose(&[product], &ChosenAlgorithms::default()), left);
}

/// A device computes by the algorithm that was chosen, and by the first one elsewhere.
#[test]
fn a_device_takes_the_chosen_algorithm() {
    let (chosen, other) = (product(0, 64, false, Write::Assign), product(0, 128, false, Write::Assign));
    let choose = |times| {
        let rig = Rig::new(times, None, Settings::default());
        rig.choose(&[on_compute(&chosen)], &ChosenAlgorithms::default()).algorithms
    };
    let pieces = |algorithms: ChosenAlgorithms| {
        let rig = Rig::new([1.0; 3], None, Settings::default());
        let device = CudaDevice::open(Arc::clone(&rig.gpu), &[], 1 << 20).expect("a device");
        let submitted = Arc::clone(&rig.library.submitted);
        let device = device.with_library(Box::new(rig.library), Arc::new(algorithms)).expect("a workspace");
        device.submit(Stream::Compute, &chosen).expect("submitted");
        device.submit(Stream::Compute, &other).expect("submitted");
        device.synchronize().expect("computed");
        std::mem::take(&mut *lock(&submitted.0))
    };
    assert_eq!(pieces(choose([3.0, 2.0, 1.0])), [4, 2]);
    assert_eq!(pieces(choose([1.0, 2.0, 3.0])), [1, 2]);
    assert_eq!(pieces(ChosenAlgorithms::default()), [2, 2]);
    let rig = Rig::new([1.0; 3], None, Settings::default());
    let device = CudaDevice::open(Arc::clone(&rig.gpu), &[], 1 << 20).expect("a device");
    let foreign = [(on_compute(&chosen).of_library, [7; 8])].into_iter().collect();
    let device = device.with_library(Box::new(rig.library), Arc::new(foreign)).expect("a workspace");
    let error = device.submit(Stream::Compute, &chosen).expect_err("refused").to_string();
    let said =
        "the algorithm that was chosen for 20 x 20 x 64 NT from bf16 to fp32 is not among the 3 that are proposed here";
    assert!(error.contains(said), "{error}");
}
