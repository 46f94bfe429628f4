//! Memory and streams of a rank on the GPU in software: uploads through the ring, order between streams, reading during
//! the run. No kernel is launched, so these tests need no compiler.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use config::{Format, GradientSums, Products};
use cuda::CudaDevice;
use device::{Device, DeviceError, DeviceKind, Dtype, MemoryReader, Numerics, Stream, Tensor};
use gpu::{Driver, DriverError, Gpu, StreamHandle};
use proptest::prelude::*;
use softgpu::{Settings, SoftDriver};

const ARENA_BYTES: usize = 32 << 20;

fn soft_gpu(settings: Settings) -> Arc<dyn Gpu> {
    SoftDriver::new(1, settings).open(0).expect("a GPU")
}

/// A device without kernels. The seed decides which stream of the GPU continues.
fn open(seed: u64) -> CudaDevice {
    CudaDevice::open(soft_gpu(Settings { seed, ..Settings::default() }), &[], ARENA_BYTES).expect("a device")
}

fn bytes_at(offset_bytes: usize, len: usize) -> Tensor {
    Tensor::new(offset_bytes, 1, len / 4, Dtype::I32)
}

fn read(device: &CudaDevice, tensor: Tensor) -> Vec<u8> {
    let mut bytes = vec![0; tensor.size_bytes()];
    device.read(tensor, &mut bytes).expect("read");
    bytes
}

fn text<T>(result: Result<T, DeviceError>) -> String {
    match result {
        Ok(_) => "accepted".into(),
        Err(error) => error.to_string(),
    }
}

/// Sizes from a word to more than the ring holds, so that it goes around many times; every place once.
#[test]
fn uploads_of_any_size_arrive_and_their_source_may_change_at_once() {
    let sizes = prop_oneof![8 => 1usize..5000, 2 => 100_000usize..400_000, 1 => Just(2_500_000usize)];
    let uploads = prop::collection::vec((sizes, 0..Stream::COUNT, any::<u8>()), 1..40);
    proptest!(ProptestConfig::with_cases(24), |(uploads in uploads, seed in any::<u64>())| {
        let device = open(seed);
        let mut expected = vec![];
        for (words, stream, value) in uploads {
            if expected.len() + 4 * words > ARENA_BYTES {
                break;
            }
            let mut source: Vec<u8> = (0..4 * words).map(|index| (index as u8).wrapping_mul(3).wrapping_add(value)).collect();
            let place = bytes_at(expected.len(), source.len());
            device.upload(Stream::ALL[stream], place, &source).expect("uploaded");
            expected.extend_from_slice(&source);
            source.fill(0);
        }
        prop_assert!(read(&device, bytes_at(0, expected.len())) == expected);
    });
}

/// Streams overwrite a place one after the other: its last byte, or what the GPU says of a race.
fn last_of_chain(seed: u64, waits: bool) -> Result<u8, String> {
    let device = open(seed);
    let place = bytes_at(0, 4096);
    for round in 0..20u8 {
        let stream = Stream::ALL[usize::from(round) % Stream::COUNT];
        if waits && round > 0 {
            let previous = Stream::ALL[usize::from(round - 1) % Stream::COUNT];
            device.wait(stream, device.record(previous)).map_err(|error| error.to_string())?;
        }
        device.upload(stream, place, &[round; 4096]).map_err(|error| error.to_string())?;
    }
    let mut bytes = vec![0; place.size_bytes()];
    device.read(place, &mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes[4095])
}

#[test]
fn a_stream_that_waits_continues_after_the_other() {
    for seed in 0..40 {
        assert_eq!(last_of_chain(seed, true), Ok(19), "seed {seed}");
        assert_ne!(last_of_chain(seed, false), Ok(19), "the GPU misses the wait with seed {seed}");
    }
}

/// More points than are kept: who waits for one that is not waits for a later one.
#[test]
fn points_that_are_long_past_are_waited_for_as_well() {
    for seed in 0..4 {
        let device = open(seed);
        let place = bytes_at(0, 4096);
        device.upload(Stream::Reduce, place, &[1; 4096]).expect("uploaded");
        let first = device.record(Stream::Reduce);
        for _ in 0..300 {
            device.upload(Stream::Reduce, bytes_at(8192, 64), &[2; 64]).expect("uploaded");
            let _ = device.record(Stream::Reduce);
        }
        device.wait(Stream::Compute, first).expect("waits");
        device.upload(Stream::Compute, place, &[3; 4096]).expect("uploaded");
        assert!(read(&device, place).iter().all(|byte| *byte == 3), "seed {seed}");
    }
}

#[test]
fn a_point_is_reached_when_its_work_has_ended_and_the_first_point_before_the_second() {
    let device = open(0);
    let nothing = device.record(Stream::Transfer);
    assert_eq!(nothing.number(), 0);
    assert_eq!(device.reached(nothing), None, "nothing was submitted");
    device.upload(Stream::Transfer, bytes_at(0, 64), &[1; 64]).expect("uploaded");
    let first = device.record(Stream::Transfer);
    assert_eq!(device.record(Stream::Transfer), first, "no work between");
    device.upload(Stream::Transfer, bytes_at(0, 64), &[2; 64]).expect("uploaded");
    let second = device.record(Stream::Transfer);
    device.synchronize().expect("ended");
    let [first, second] = [first, second].map(|point| device.reached(point).expect("reached"));
    assert!(first <= second);
    device.hand_over(Stream::Transfer).expect("a stream");
    assert!(device.record(Stream::Transfer).number() > 2, "work of others counts");
}

#[test]
fn a_reader_sees_all_work_that_was_submitted_before() {
    for seed in 0..20 {
        let device = open(seed);
        let reader = device.reader().expect("a reader");
        let words = Tensor::new(64, 1, 2_000_000, Dtype::I32);
        for round in 1..4u8 {
            device.upload(Stream::ALL[usize::from(round)], words, &vec![round; words.size_bytes()]).expect("uploaded");
            let copied = std::thread::scope(|scope| {
                let reading = scope.spawn(|| {
                    let mut bytes = vec![0; words.size_bytes()];
                    reader.read(words, &mut bytes).map(|()| bytes)
                });
                reading.join().expect("no panic").expect("read")
            });
            assert!(copied.iter().all(|byte| *byte == round), "seed {seed}, round {round}");
        }
    }
}

/// A GPU on which the host's wait for the stream of a reader ends only when the test lets it.
struct HeldGpu {
    inner: Arc<dyn Gpu>,
    /// The device's own, and the reader's.
    streams: Mutex<Vec<StreamHandle>>,
    /// The streams among them that come first.
    urgent: Mutex<Vec<StreamHandle>>,
    /// Tells that the wait has begun, and hears that it may end.
    ends: Mutex<(Sender<()>, Receiver<()>)>,
}

/// Only a failure waits so long.
const PATIENCE: Duration = Duration::from_secs(120);

impl Gpu for HeldGpu {
    fn create_stream(&self) -> Result<StreamHandle, DriverError> {
        let stream = self.inner.create_stream()?;
        self.streams.lock().expect("whole").push(stream);
        Ok(stream)
    }

    fn create_urgent_stream(&self) -> Result<StreamHandle, DriverError> {
        let stream = self.create_stream()?;
        self.urgent.lock().expect("whole").push(stream);
        Ok(stream)
    }

    fn synchronize(&self, stream: StreamHandle) -> Result<(), DriverError> {
        let is_held = self.streams.lock().expect("whole").get(Stream::COUNT) == Some(&stream);
        if is_held {
            let ends = self.ends.lock().expect("whole");
            ends.0.send(()).expect("the test hears");
            ends.1.recv_timeout(PATIENCE).expect("the test continues while this stream is held");
        }
        self.inner.synchronize(stream)
    }

    gpu::forward!(
        inner: facts, enter, memory, copies, destroy_stream, has_ended, events, elapsed_ms, load, unload, function,
        function_facts, allow_shared, tensor_map, launch, graphs
    );
}

#[test]
fn all_streams_continue_while_a_reader_waits_for_its_copy() {
    for seed in 0..4 {
        let (tell, begun) = channel();
        let (let_go, go) = channel();
        let inner = soft_gpu(Settings { seed, ..Settings::default() });
        let (streams, urgent) = (Mutex::default(), Mutex::default());
        let gpu = HeldGpu { inner, streams, urgent, ends: Mutex::new((tell, go)) };
        let device = CudaDevice::open(Arc::new(gpu), &[], ARENA_BYTES).expect("a device");
        let reader = device.reader().expect("a reader");
        // More than the reader's pinned memory, so that it waits more than once.
        let state = bytes_at(0, 10 << 20);
        device.upload(Stream::Compute, state, &vec![7; state.size_bytes()]).expect("uploaded");
        let copied = std::thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let mut bytes = vec![0; state.size_bytes()];
                reader.read(state, &mut bytes).map(|()| bytes)
            });
            for piece in 0..3 {
                begun.recv_timeout(PATIENCE).expect("the reader has submitted a copy");
                for (number, stream) in Stream::ALL.into_iter().enumerate() {
                    let value = (16 * piece + number) as u8;
                    let other = bytes_at((16 + number) << 20, 1 << 20);
                    device.upload(stream, other, &vec![value; 1 << 20]).expect("uploaded");
                    assert!(read(&device, other).iter().all(|byte| *byte == value), "seed {seed}, {stream:?}");
                }
                assert!(!reading.is_finished(), "the reader is held");
                let_go.send(()).expect("the reader hears");
            }
            reading.join().expect("no panic").expect("read")
        });
        assert!(copied.iter().all(|byte| *byte == 7), "seed {seed}");
    }
}

#[test]
fn streams_that_communicate_come_first() {
    let (streams, urgent, ends) = (Mutex::default(), Mutex::default(), Mutex::new(channel()));
    let gpu = Arc::new(HeldGpu { inner: soft_gpu(Settings::default()), streams, urgent, ends });
    let device = CudaDevice::open(gpu.clone(), &[], ARENA_BYTES).expect("a device");
    let expected = [Stream::Reduce, Stream::Transfer, Stream::Shift].map(|stream| device.stream(stream));
    assert_eq!(*gpu.urgent.lock().expect("whole"), expected);
    assert_eq!(gpu.streams.lock().expect("whole").len(), Stream::COUNT);
}

#[test]
fn host_copies_of_other_sizes_and_places_are_refused() {
    let device = open(0);
    let reader = device.reader().expect("a reader");
    let words = Tensor::new(0, 1, 4, Dtype::I32);
    assert_eq!(text(device.write(words, &[0; 12])), "write: I32[1, 4] @0 has 16 bytes, the host 12");
    assert_eq!(text(device.read(words, &mut [0; 12])), "read: I32[1, 4] @0 has 16 bytes, the host 12");
    assert_eq!(text(reader.read(words, &mut [0; 12])), "read: I32[1, 4] @0 has 16 bytes, the host 12");
    let apart = Tensor { rows: 2, row_stride: 5, ..words };
    assert_eq!(
        text(device.upload(Stream::Io, apart, &[0; 32])),
        "slice: I32[2, 4] stride 5 @0 is not a dense I32 tensor"
    );
    let outside = Tensor { offset_bytes: ARENA_BYTES - 8, ..words };
    assert!(text(device.upload(Stream::Io, outside, &[0; 16])).contains("needs bytes up to"));
    assert!(text(reader.read(outside, &mut [0; 16])).contains("needs bytes up to"));
}

#[test]
fn memory_that_is_not_there_is_refused_with_the_remedy_and_all_is_freed() {
    let gpu = soft_gpu(Settings { memory_bytes: 64 << 20, ..Settings::default() });
    let before = gpu.free_memory().expect("memory");
    let refused = text(CudaDevice::open(Arc::clone(&gpu), &[], 100 << 20));
    let expected = "cannot allocate an arena of 104857600 bytes for one rank; a smaller microbatch, more ranks or a higher ZeRO \
                    stage need less";
    assert_eq!(refused, expected);
    let device = CudaDevice::open(Arc::clone(&gpu), &[], ARENA_BYTES).expect("a device");
    let used = before.free_bytes - gpu.free_memory().expect("memory").free_bytes;
    assert_eq!(used, device.arena_bytes() as u64);
    let reader = device.reader().expect("a reader");
    drop(device);
    assert!(gpu.free_memory().expect("memory") != before, "the reader holds the arena");
    drop(reader);
    assert_eq!(gpu.free_memory().expect("memory"), before);
}

#[test]
fn numerics_without_kernels_are_refused_by_name() {
    let refusal = |numerics: Numerics| text(numerics.accepted_by(DeviceKind::CUDA, cuda::accepts));
    assert_eq!(refusal(Numerics::SINGLE), "accepted");
    assert_eq!(refusal(Numerics { gradient_sums: GradientSums::Exact, ..Numerics::SINGLE }), "accepted");
    for products in [Products::Blocks16, Products::Blocks8] {
        assert_eq!(refusal(Numerics { products, stored: Format::Bf16, ..Numerics::SINGLE }), "accepted");
    }
    for (stored, orders) in
        [(Format::Fp32, "\"chained\""), (Format::Bf16, "\"chained\", \"blocks16\", \"blocks8\" or \"device\"")]
    {
        assert_eq!(
            refusal(Numerics { products: Products::Pairs, stored, ..Numerics::SINGLE }),
            format!("train.products = \"pairs\" must be supported by the device; the GPU refuses it; use {orders}")
        );
    }
    for stored in Format::ALL {
        assert_eq!(refusal(Numerics { stored, ..Numerics::SINGLE }), "accepted");
    }
}
