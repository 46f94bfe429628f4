//! Products of cuBLASLt and collectives of NCCL on the GPU in software, opened by name as NVIDIA's libraries are: their
//! bits, their order among the work of streams, and ranks that leave.

use std::sync::{Arc, Barrier};

use cpu::gemm::{BlockRule, Term};
use device::{Bf16, Element as _, F16};
use gpu::{
    BiasForm, DevicePointer, Driver, DriverErrorKind, FactorForm, Gpu, MatrixElement, MatrixPlaces, MatrixProduct,
    ProductLibrary as _, ProductLimits, ResultForm, StreamHandle, SumForm,
};
use nvidia::nccl::{CollectiveError, Communicator, Element, Progress};
use nvidia::{Search, cublaslt, driver, nccl};

use crate::tests::soft_library::folder;

/// The three libraries, which are one file under three names, and a GPU.
#[derive(Clone)]
struct Libraries {
    gpu: Arc<dyn Gpu>,
    products: Arc<cublaslt::Library>,
    collectives: Arc<nccl::Library>,
    driver: Arc<driver::Library>,
}

fn opened(name: &str) -> Libraries {
    let folder = folder(name, &format!("gpus = {RANKS}\n"), &["libcuda.so.1", "libcublasLt.so.13", "libnccl.so.2"]);
    let search = Search::only([folder.clone()]);
    let driver = Arc::new(driver::Library::open(&search).unwrap_or_else(|error| panic!("{error}")));
    let products = cublaslt::Library::open(&search).unwrap_or_else(|error| panic!("{error}"));
    let collectives = nccl::Library::open(&search).unwrap_or_else(|error| panic!("{error}"));
    // Settings are read with the first GPU.
    let gpu = driver.open(0).expect("a GPU");
    std::fs::remove_dir_all(&folder).expect("removed");
    Libraries { gpu, products: Arc::new(products), collectives: Arc::new(collectives), driver }
}

impl Libraries {
    /// Memory of the GPU with these bytes, written as work of `stream`.
    fn placed(&self, stream: StreamHandle, bytes: &[u8]) -> DevicePointer {
        let memory = self.gpu.allocate(bytes.len().max(1)).expect("memory");
        self.upload(stream, memory, bytes);
        memory
    }

    fn upload(&self, stream: StreamHandle, memory: DevicePointer, bytes: &[u8]) {
        let pinned = self.gpu.allocate_pinned(bytes.len().max(1)).expect("pinned memory");
        self.gpu.write_pinned(pinned, 0, bytes).expect("written");
        self.gpu.upload(stream, memory, pinned, 0, bytes.len()).expect("a copy");
    }

    fn read(&self, stream: StreamHandle, memory: DevicePointer, bytes: usize) -> Result<Vec<u8>, gpu::DriverError> {
        let pinned = self.gpu.allocate_pinned(bytes)?;
        self.gpu.download(stream, pinned, 0, memory, bytes)?;
        self.gpu.synchronize(stream)?;
        let mut result = vec![0; bytes];
        self.gpu.read_pinned(pinned, 0, &mut result)?;
        Ok(result)
    }
}

/// Number `index` of a seed, from -2 to 2.
fn number(seed: usize, index: usize) -> f32 {
    let mixed = ((seed * 7919 + index) as u32).wrapping_mul(0x9e37_79b1);
    ((mixed ^ mixed >> 13).wrapping_mul(0x85eb_ca6b) >> 8) as f32 / (1 << 22) as f32 - 2.0
}

/// Numbers as bytes of a type, and as they are read from it.
fn stored(seed: usize, count: usize, element: MatrixElement) -> (Vec<u8>, Vec<f32>) {
    let numbers: Vec<f32> = (0..count).map(|index| number(seed, index)).collect();
    let bytes = rounded(element, &numbers);
    let read = match element {
        MatrixElement::F32 => numbers,
        MatrixElement::Bf16 => numbers.into_iter().map(|number| Bf16::narrow(number).widen()).collect(),
        MatrixElement::F16 => numbers.into_iter().map(|number| F16::narrow(number).widen()).collect(),
    };
    (bytes, read)
}

/// The bytes of numbers in a type.
fn rounded(element: MatrixElement, numbers: &[f32]) -> Vec<u8> {
    match element {
        MatrixElement::F32 => numbers.iter().flat_map(|number| number.to_le_bytes()).collect(),
        MatrixElement::Bf16 => numbers.iter().flat_map(|number| Bf16::narrow(*number).0.to_le_bytes()).collect(),
        MatrixElement::F16 => numbers.iter().flat_map(|number| F16::narrow(*number).0.to_le_bytes()).collect(),
    }
}

/// A sum of products in the order of the definition: chains of 256 steps for fp32, blocks of tensor cores for others.
fn summed(factors: MatrixElement, terms: &[[f32; 2]]) -> f32 {
    let in_blocks = |narrow: &dyn Fn(f32) -> Term| {
        let blocks = terms.chunks(16).map(|block| block.iter().map(|term| term.map(narrow)).collect::<Vec<_>>());
        blocks.fold(0.0, |sum, block| BlockRule::BLOCKS16.add(sum, &block))
    };
    match factors {
        MatrixElement::F32 => {
            let chain = |terms: &[[f32; 2]]| terms.iter().fold(0.0f32, |sum, [a, b]| a.mul_add(*b, sum));
            terms.chunks(256).map(chain).reduce(|total, sum| total + sum).unwrap_or_default()
        }
        MatrixElement::Bf16 => in_blocks(&|number| Term::from(Bf16::narrow(number))),
        MatrixElement::F16 => in_blocks(&|number| Term::from(F16::narrow(number))),
    }
}

/// A product without gaps, bias and what was there.
type Dense = ([u64; 3], [FactorForm; 2], [MatrixElement; 2]);

/// Sizes, transposes, types, gaps between rows, and all that is added, each with the others in turns.
fn all_products() -> Vec<MatrixProduct> {
    use FactorForm::{Plain, Transposed};
    use MatrixElement::{Bf16, F16, F32};
    let sizes = [[1, 1, 1], [3, 5, 17], [16, 1, 33], [7, 20, 300], [17, 2, 700]];
    let forms = [[Plain, Plain], [Plain, Transposed], [Transposed, Plain], [Transposed, Transposed]];
    let elements = [[F32, F32], [Bf16, F32], [Bf16, Bf16], [F16, F32], [F16, F16]];
    let cases = sizes.into_iter().flat_map(|sizes| forms.map(|forms| (sizes, forms)));
    let cases = cases.flat_map(|(sizes, forms)| elements.map(|elements| (sizes, forms, elements))).enumerate();
    let product = |(index, (sizes, forms, elements)): (usize, Dense)| {
        let dense = MatrixProduct::dense(sizes, elements, forms);
        let gaps = [[0, 0, 0], [3, 0, 1], [0, 8, 0]][index % 3];
        MatrixProduct {
            strides: [0, 1, 2].map(|matrix| dense.strides[matrix] + gaps[matrix]),
            write: [ResultForm::Assigned, ResultForm::Accumulated][index / 2 % 2],
            bias: [BiasForm::Absent, BiasForm::Present][index / 4 % 2],
            ..dense
        }
    };
    cases.map(product).collect()
}

/// The limits of a search.
fn limits(sums: SumForm, workspace_bytes: usize) -> ProductLimits {
    ProductLimits { workspace_bytes, sums, most: 4 }
}

/// Numbers of a matrix in memory with gaps.
struct Placed {
    place: DevicePointer,
    numbers: Vec<f32>,
    stride: usize,
    bytes: Vec<u8>,
}

impl Libraries {
    fn matrix(&self, stream: StreamHandle, seed: usize, rows: u64, stride: u64, element: MatrixElement) -> Placed {
        let (bytes, numbers) = stored(seed, (rows * stride) as usize, element);
        Placed { place: self.placed(stream, &bytes), numbers, stride: stride as usize, bytes }
    }
}

/// Multiplies as `pieces` of each sum, and compares all bytes of the result with the definition.
fn compare(libraries: &Libraries, handle: &cublaslt::Handle, stream: StreamHandle, seed: usize, sums: SumForm) {
    let product = &all_products()[seed];
    let [m, n, k] = product.sizes.map(|size| size as usize);
    let found = handle.algorithms(product, limits(sums, 1 << 20)).expect("algorithms");
    let pieces = if sums == SumForm::Split && k >= 32 { 2 } else { 1 };
    let workspace_bytes = if pieces > 1 { 8 * m * n } else { 0 };
    let algorithm = found[0];
    assert_eq!((algorithm.splits, algorithm.workspace_bytes), (pieces, workspace_bytes), "{product:?}");
    let [a_shape, b_shape, d_shape] = product.shapes();
    // Nobody waits for the copies but the stream.
    let a = libraries.matrix(stream, 4 * seed, a_shape[0], product.strides[0], product.factors);
    let b = libraries.matrix(stream, 4 * seed + 1, b_shape[0], product.strides[1], product.factors);
    let d = libraries.matrix(stream, 4 * seed + 2, d_shape[0], product.strides[2], product.result);
    let bias = libraries.matrix(stream, 4 * seed + 3, 1, product.sizes[1], product.result);
    let places = MatrixPlaces { a: a.place, b: b.place, d: d.place, bias: bias.place };
    let workspace = libraries.gpu.allocate(workspace_bytes.max(1)).expect("memory");
    handle.multiply(stream, product, &algorithm, places, workspace).expect("submitted");
    let got = libraries.read(stream, d.place, d.bytes.len()).expect("a result");
    let at = |matrix: &Placed, form, row: usize, col: usize| match form {
        FactorForm::Plain => matrix.numbers[row * matrix.stride + col],
        FactorForm::Transposed => matrix.numbers[col * matrix.stride + row],
    };
    let mut expected = d.bytes.clone();
    let width = product.result.bytes();
    for (row, col) in (0..m).flat_map(|row| (0..n).map(move |col| (row, col))) {
        let terms: Vec<[f32; 2]> =
            (0..k).map(|step| [at(&a, product.a, row, step), at(&b, product.b, step, col)]).collect();
        let cut = if pieces > 1 { k.div_ceil(2).next_multiple_of(16) } else { k };
        let sums = terms.chunks(cut).map(|piece| summed(product.factors, piece));
        let sum = sums.reduce(|sum, piece| sum + piece).expect("a piece");
        let place = row * d.stride + col;
        let sum = if product.write == ResultForm::Accumulated { d.numbers[place] + sum } else { sum };
        let sum = if product.bias == BiasForm::Present { sum + bias.numbers[col] } else { sum };
        expected[place * width..][..width].copy_from_slice(&rounded(product.result, &[sum]));
    }
    assert!(got == expected, "{product:?} in {pieces} pieces");
}

#[test]
fn products_have_the_bits_of_their_definition_for_every_type_and_transpose() {
    let libraries = opened("products");
    let stream = libraries.gpu.create_stream().expect("a stream");
    let handle = cublaslt::Handle::open(Arc::clone(&libraries.products), Arc::clone(&libraries.gpu)).expect("a handle");
    for seed in 0..all_products().len() {
        compare(&libraries, &handle, stream, seed, [SumForm::Unbroken, SumForm::Split][seed % 2]);
    }
}

/// The operands of a product of one element.
fn one_element() -> MatrixProduct {
    MatrixProduct::dense([1, 1, 1], [MatrixElement::F32; 2], [FactorForm::Plain; 2])
}

#[test]
fn a_product_without_an_order_with_its_operands_is_a_fault() {
    let libraries = opened("race");
    let [stream, other] = [(); 2].map(|()| libraries.gpu.create_stream().expect("a stream"));
    let handle = cublaslt::Handle::open(Arc::clone(&libraries.products), Arc::clone(&libraries.gpu)).expect("a handle");
    let product = one_element();
    let algorithm = handle.algorithms(&product, limits(SumForm::Unbroken, 0)).expect("algorithms")[0];
    let place = libraries.placed(stream, &1.5f32.to_le_bytes());
    let d = libraries.gpu.allocate(4).expect("memory");
    let places = MatrixPlaces { a: place, b: place, d, bias: DevicePointer(0) };
    handle.multiply(other, &product, &algorithm, places, DevicePointer(0)).expect("submitted");
    let errors = [stream, other].map(|stream| libraries.gpu.synchronize(stream).err());
    let error = errors.into_iter().flatten().next().expect("a race");
    assert_eq!(error.kind, DriverErrorKind::KernelFault);
}

/// Pieces of sums are in the workspace until they are added.
#[test]
fn a_workspace_of_two_streams_is_a_fault() {
    let libraries = opened("workspace");
    let handle = cublaslt::Handle::open(Arc::clone(&libraries.products), Arc::clone(&libraries.gpu)).expect("a handle");
    let product = MatrixProduct::dense([4, 4, 64], [MatrixElement::Bf16; 2], [FactorForm::Plain; 2]);
    let algorithm = handle.algorithms(&product, limits(SumForm::Split, 1 << 10)).expect("algorithms")[0];
    let workspace = libraries.gpu.allocate(1 << 10).expect("memory");
    let streams = [(); 2].map(|()| libraries.gpu.create_stream().expect("a stream"));
    for stream in streams {
        let [a, b, d] = [(); 3].map(|()| libraries.gpu.allocate(4 * 64 * 2).expect("memory"));
        let places = MatrixPlaces { a, b, d, bias: DevicePointer(0) };
        handle.multiply(stream, &product, &algorithm, places, workspace).expect("submitted");
    }
    let errors = streams.map(|stream| libraries.gpu.synchronize(stream).err());
    let error = errors.into_iter().flatten().next().expect("a race");
    assert_eq!(error.kind, DriverErrorKind::KernelFault);
}

#[test]
fn products_that_the_library_does_not_have_are_refused() {
    let libraries = opened("refused");
    let handle = cublaslt::Handle::open(Arc::clone(&libraries.products), Arc::clone(&libraries.gpu)).expect("a handle");
    let huge = MatrixProduct { sizes: [1 << 30, 1, 1], ..one_element() };
    assert_eq!(handle.algorithms(&huge, limits(SumForm::Split, 0)), Ok(vec![]));
    // An algorithm of another product.
    let product = MatrixProduct::dense([4, 4, 64], [MatrixElement::Bf16; 2], [FactorForm::Plain; 2]);
    let algorithm = handle.algorithms(&product, limits(SumForm::Split, 1 << 10)).expect("algorithms")[0];
    let place = libraries.gpu.allocate(4).expect("memory");
    let places = MatrixPlaces { a: place, b: place, d: place, bias: place };
    let stream = libraries.gpu.create_stream().expect("a stream");
    let error = handle.multiply(stream, &one_element(), &algorithm, places, place).expect_err("refused").to_string();
    assert!(error.starts_with("cublasLtMatmul: error 13: CUBLAS_STATUS_EXECUTION_FAILED"), "{error}");
    // A thread without the context has no handle, and one that calls a handle gets it.
    let library = Arc::clone(&libraries.products);
    let opened = std::thread::spawn(move || library.check_context().err()).join().expect("a thread");
    let error = opened.expect("no context").to_string();
    assert!(error.starts_with("cublasLtCreate: CUBLAS_STATUS_NOT_INITIALIZED"), "{error}");
    let found = std::thread::spawn(move || handle.algorithms(&product, limits(SumForm::Unbroken, 0)));
    assert_eq!(found.join().expect("a thread").expect("algorithms").len(), 1);
}

const RANKS: usize = 3;

/// Does `rank` on a thread for each rank, with a GPU of its own, a communicator that has met and a stream.
fn on_ranks<T: Send>(
    libraries: &Libraries,
    rank: impl Fn(&Libraries, usize, Communicator, StreamHandle) -> T + Sync,
) -> Vec<T> {
    let id = libraries.collectives.group_id().expect("a name");
    let all_have_met = Barrier::new(RANKS);
    let (rank, all_have_met) = (&rank, &all_have_met);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..RANKS)
            .map(|number| {
                scope.spawn(move || {
                    let gpu = libraries.driver.open(number).expect("a GPU");
                    let own = Libraries { gpu, ..libraries.clone() };
                    let library = Arc::clone(&own.collectives);
                    let met = Communicator::begin(library, &*own.gpu, id, RANKS, number).expect("begun");
                    settled(&met, Ok(Progress::Continues));
                    all_have_met.wait();
                    let stream = own.gpu.create_stream().expect("a stream");
                    rank(&own, number, met, stream)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

/// Waits until a call is launched.
fn settled(met: &Communicator, submitted: Result<Progress, CollectiveError>) {
    let mut progress = submitted.expect("submitted");
    while progress == Progress::Continues {
        std::thread::yield_now();
        progress = met.poll().expect("no failure");
    }
}

/// `count` elements of a rank.
fn elements(rank: usize, count: usize, element: Element) -> Vec<u8> {
    let numbers = (0..count).map(|index| number(100 + rank, index));
    match element {
        Element::Bytes => numbers.map(|number| (number * 60.0) as i8 as u8).collect(),
        Element::I64 => numbers.flat_map(|number| ((number * 1e18) as i64).to_le_bytes()).collect(),
        Element::F32 => numbers.flat_map(f32::to_le_bytes).collect(),
        Element::Bf16 => numbers.flat_map(|number| Bf16::narrow(number).0.to_le_bytes()).collect(),
    }
}

fn width(element: Element) -> usize {
    match element {
        Element::Bytes => 1,
        Element::I64 => 8,
        Element::F32 => 4,
        Element::Bf16 => 2,
    }
}

/// The sum over ranks in their order, rounded once.
fn sum(all: &[Vec<u8>], element: Element) -> Vec<u8> {
    let places = (0..all[0].len()).step_by(width(element));
    let words = |place: usize| all.iter().map(move |bytes| &bytes[place..place + width(element)]);
    let four = |word: &[u8]| f32::from_le_bytes(word.try_into().expect("4 bytes"));
    let two = |word: &[u8]| Bf16(u16::from_le_bytes(word.try_into().expect("2 bytes"))).widen();
    let eight = |word: &[u8]| i64::from_le_bytes(word.try_into().expect("8 bytes"));
    places
        .flat_map(|place| match element {
            Element::Bytes => panic!("bytes are not added"),
            Element::I64 => words(place).map(eight).fold(0, i64::wrapping_add).to_le_bytes().to_vec(),
            Element::F32 => words(place).map(four).reduce(|a, b| a + b).expect("ranks").to_le_bytes().to_vec(),
            Element::Bf16 => {
                let sum = words(place).map(two).reduce(|a, b| a + b).expect("ranks");
                Bf16::narrow(sum).0.to_le_bytes().to_vec()
            }
        })
        .collect()
}

/// Every collective of one type, one after the other; the results of each rank with what is expected.
fn collectives(
    libraries: &Libraries,
    (rank, met, stream): (usize, &Communicator, StreamHandle),
    element: Element,
    count: usize,
) -> Vec<(&'static str, Vec<u8>, Vec<u8>)> {
    let all: Vec<Vec<u8>> = (0..RANKS).map(|rank| elements(rank, RANKS * count, element)).collect();
    let piece = count * width(element);
    let short = |bytes: &Vec<u8>| bytes[..piece].to_vec();
    let part = |bytes: &[u8], index: usize| bytes[index * piece..(index + 1) * piece].to_vec();
    let short_all: Vec<Vec<u8>> = all.iter().map(short).collect();
    let from = libraries.placed(stream, &all[rank]);
    let one = |bytes: usize| libraries.gpu.allocate(bytes).expect("memory");
    let (a, b) = (one(piece), one(RANKS * piece));
    let elements = (count, element);
    let mut results = vec![];
    let mut keep = |name, memory, expected: Vec<u8>| {
        results.push((name, libraries.read(stream, memory, expected.len()).expect("a result"), expected));
    };
    if element != Element::Bytes {
        settled(met, met.all_reduce((from, a), elements, stream));
        keep("all_reduce", a, sum(&short_all, element));
        settled(met, met.reduce_scatter((from, a), elements, stream));
        keep("reduce_scatter", a, part(&sum(&all, element), rank));
        // In place.
        settled(met, met.all_reduce((a, a), elements, stream));
        let scattered: Vec<Vec<u8>> = (0..RANKS).map(|rank| part(&sum(&all, element), rank)).collect();
        keep("all_reduce in place", a, sum(&scattered, element));
    }
    settled(met, met.all_gather((from, b), elements, stream));
    keep("all_gather", b, short_all.concat());
    // Messages around the ring, all on one stream: alone, each would wait for the next one.
    let (next, previous) = ((rank + 1) % RANKS, (rank + RANKS - 1) % RANKS);
    let sent = met.together(|messages| {
        messages.send(from, elements, next, stream)?;
        messages.receive(a, elements, previous, stream)
    });
    settled(met, sent);
    keep("send and receive", a, short_all[previous].clone());
    results
}

#[test]
fn collectives_among_threads_have_the_bits_of_sums_in_rank_order() {
    let libraries = opened("collectives");
    let all = on_ranks(&libraries, |libraries, rank, met, stream| {
        let mut results = vec![];
        for (element, count) in [(Element::F32, 7), (Element::I64, 3), (Element::Bf16, 65), (Element::Bytes, 5)] {
            results.extend(collectives(libraries, (rank, &met, stream), element, count));
        }
        while met.finish().expect("no failure") == Progress::Continues {}
        met.close().expect("finished");
        results
    });
    for (rank, results) in all.into_iter().enumerate() {
        assert_eq!(results.len(), 3 * 5 + 2);
        for (name, got, expected) in results {
            assert_eq!(got, expected, "{name} of rank {rank}");
        }
    }
}

/// Each rank sums on one stream and copies the sum on by another one, which waits for the first or does not.
fn copied_sums(waits: bool) -> Vec<Result<Vec<u8>, DriverErrorKind>> {
    let libraries = opened(if waits { "waits" } else { "waits-not" });
    let submitted = Barrier::new(RANKS);
    on_ranks(&libraries, |libraries, rank, met, stream| {
        let other = libraries.gpu.create_stream().expect("a stream");
        let copy = || {
            let memory = libraries.placed(stream, &(rank as f32).to_le_bytes());
            let to = libraries.gpu.allocate(4).expect("memory");
            settled(&met, met.all_reduce((memory, memory), (1, Element::F32), stream));
            submitted.wait();
            if waits {
                let event = libraries.gpu.create_event()?;
                libraries.gpu.record(event, stream)?;
                libraries.gpu.wait(other, event)?;
            }
            libraries.gpu.copy(other, to, memory, 4)?;
            libraries.read(other, to, 4)
        };
        copy().map_err(|error: gpu::DriverError| error.kind)
    })
}

#[test]
fn work_that_does_not_wait_for_a_collective_is_a_fault() {
    assert_eq!(copied_sums(true), vec![Ok(3.0f32.to_le_bytes().to_vec()); RANKS]);
    let failed = copied_sums(false);
    assert!(failed.contains(&Err(DriverErrorKind::KernelFault)), "{failed:?}");
}

#[test]
fn a_rank_that_leaves_is_reported_to_the_others_whose_streams_continue() {
    let libraries = opened("leaves");
    let left = Barrier::new(RANKS);
    on_ranks(&libraries, |libraries, rank, met, stream| {
        let memory = libraries.placed(stream, &(1.0 + rank as f32).to_le_bytes());
        if rank == 2 {
            // It comes to no collective any more.
            drop(met);
            left.wait();
            return;
        }
        // Either the call comes before the peer has left, and waits for it, or it is refused.
        let submitted = met.all_reduce((memory, memory), (1, Element::F32), stream);
        left.wait();
        let expected = "remote process exited or there was a network error";
        if let Err(error) = submitted {
            assert_eq!(error.text, expected);
        }
        // The library hears of it a moment later.
        let heard = loop {
            match met.poll() {
                Ok(_) => std::thread::yield_now(),
                Err(error) => break error,
            }
        };
        assert_eq!(heard.text, expected);
        assert_eq!(libraries.collectives.abort([&met].into_iter()), Ok(()));
        // Work that waited for the peer has ended.
        libraries.gpu.synchronize(stream).expect("no hang");
        assert!(met.poll().is_err(), "it was aborted");
    });
}

#[test]
fn calls_of_ranks_that_do_not_fit_together_fail() {
    let libraries = opened("misused");
    let failures = on_ranks(&libraries, |libraries, rank, met, stream| {
        let memory = libraries.placed(stream, &[0; 64]);
        let submitted = met.all_reduce((memory, memory), (1 + rank, Element::F32), stream).map(|_| ());
        // All that were submitted end, and the failure is reported by the next question at the latest.
        let ended = libraries.gpu.synchronize(stream);
        let reported = loop {
            match met.poll() {
                Ok(_) if submitted.is_ok() => std::thread::yield_now(),
                other => break other.err(),
            }
        };
        (ended, submitted.err().or(reported).map(|error| error.text))
    });
    for (ended, text) in failures {
        assert_eq!((ended, text.as_deref()), (Ok(()), Some("invalid usage")));
    }
}
