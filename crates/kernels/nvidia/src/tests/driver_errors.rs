//! The driver's errors end to end, and every call of the table, on a driver of a few lines of C that has no GPU.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use gpu::{
    Arguments, DevicePointer, Driver, DriverErrorKind, EventHandle, Gpu, KernelNode, LaunchShape, ModuleImage,
    StreamHandle, TensorElement, TensorPromotion, TensorSwizzle, TensorTiles,
};
use nvidia::Search;
use nvidia::driver::Library;

/// A folder with the stub as libcuda.so.1, removed at its end.
struct Stub(PathBuf);

impl Stub {
    fn built(name: &str, defines: &[&str]) -> Stub {
        let stub = Stub(std::env::temp_dir().join(format!("pleach-stub-{name}-{}", std::process::id())));
        std::fs::create_dir_all(&stub.0).expect("a folder");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/stub/driver.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]).arg(stub.library());
        compiler.args(defines.iter().map(|define| format!("-D{define}"))).arg(source);
        let output = compiler.output().expect("cc, which Rust links with");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        stub
    }

    fn library(&self) -> PathBuf {
        self.0.join("libcuda.so.1")
    }

    fn open(&self) -> Library {
        Library::open(&Search::only([self.0.clone()])).unwrap_or_else(|error| panic!("{error}"))
    }

    fn open_error(&self) -> String {
        Library::open(&Search::only([self.0.clone()])).err().map(|error| error.to_string()).expect("refused")
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const REMEDY: &str = "install or update the driver of the GPU; in a container, pass the GPU through to it";
const NEEDS: &str = "550 or later (CUDA 12.4)";

#[test]
fn a_missing_driver_is_named_with_the_folders_that_were_searched() {
    let error = Library::open(&Search::only(["/no/such/folder".into()])).err().expect("missing");
    let expected = format!("NVIDIA's driver is missing: libcuda.so.1 is not in /no/such/folder; {REMEDY}");
    assert_eq!(error.to_string(), expected);
    let error = gpu::DriverError::from(error);
    assert_eq!((error.kind, error.text), (DriverErrorKind::Unavailable, expected));
}

#[test]
fn an_old_driver_is_named_with_the_version_that_is_enough() {
    let stub = Stub::built("old", &["VERSION=12030", "WITHOUT_GRAPHS", "WITHOUT_LOOKUP"]);
    let path = stub.library();
    let expected = format!("{} is NVIDIA's driver for CUDA 12.3; pleach needs {NEEDS}: {REMEDY}", path.display());
    assert_eq!(stub.open_error(), expected);
}

#[test]
fn a_driver_without_a_function_is_named_with_the_function() {
    let stub = Stub::built("lacks", &["VERSION=13000", "WITHOUT_COPY"]);
    let expected = format!(
        "{} is too old for pleach: it has no cuMemcpyDtoDAsync_v2; it needs NVIDIA's driver {NEEDS}: {REMEDY}",
        stub.library().display()
    );
    assert_eq!(stub.open_error(), expected);
}

/// The driver of CUDA 12.4 has neither the newest form of times nor, here, the sizes of parameters.
#[test]
fn a_driver_without_functions_that_are_not_essential_is_used_without_them() {
    for version in ["VERSION=12040", "VERSION=12080"] {
        let stub = Stub::built(version, &[version, "WITHOUT_OPTIONAL"]);
        let gpu = stub.open().open(0).expect("a GPU");
        let stream = gpu.create_stream().expect("a stream");
        let (from, to) = (gpu.create_event().expect("an event"), gpu.create_event().expect("an event"));
        gpu.record(from, stream).expect("recorded");
        gpu.record(to, stream).expect("recorded");
        assert_eq!(gpu.elapsed_ms(from, to), Ok(2.5), "the earlier form");
        let memory = gpu.allocate(16).expect("memory");
        let module = gpu.load(ModuleImage::Ptx("ok")).expect("code");
        let kernel = gpu.function(module, "add_one").expect("a kernel");
        let arguments = Arguments::new().with(&memory.0.to_le_bytes()).with(&4u32.to_le_bytes());
        gpu.launch(stream, kernel, LaunchShape::linear(1, 32), &arguments).expect("a launch");
        assert_eq!(words(&*gpu, stream, memory, 4), [1.0; 4]);
    }
}

/// A driver is asked for no form that is newer than itself: it would return an earlier one.
#[test]
fn an_earlier_driver_gives_the_earlier_form_of_times() {
    let gpu = Stub::built("earlier", &["VERSION=12060"]).open().open(0).expect("a GPU");
    let stream = gpu.create_stream().expect("a stream");
    let event = gpu.create_event().expect("an event");
    gpu.record(event, stream).expect("recorded");
    assert_eq!(gpu.elapsed_ms(event, event), Ok(2.5));
}

/// Kernels can be launched one by one there.
#[test]
fn a_driver_without_a_function_of_graphs_refuses_graphs_alone() {
    let gpu = Stub::built("graphs", &["VERSION=13000", "WITHOUT_GRAPHS"]).open().open(0).expect("a GPU");
    let error = gpu.create_graph(&[]).expect_err("no graphs");
    assert_eq!((error.call, error.kind), ("cuGraphCreate", DriverErrorKind::Unavailable));
    assert!(error.text.starts_with("this driver lacks a function of graphs"), "{}", error.text);
}

#[test]
fn gpus_that_cannot_be_used_are_named() {
    let stub = Stub::built("volta", &["VERSION=13000", "CAPABILITY=70"]);
    let error = stub.open().open(0).err().map(|error| error.to_string());
    let expected = "cuDeviceGetAttribute: the driver is missing or too old: GPU 0 (Stub 0) is sm_70; pleach needs sm_80 or \
                    later: use an A100, RTX 30 or a later GPU";
    assert_eq!(error.as_deref(), Some(expected));
    let error = stub.open().open(2).err().map(|error| error.to_string());
    let expected = "cuDeviceGet: an invalid argument: GPU 2 does not exist; this machine has 2, counted from 0";
    assert_eq!(error.as_deref(), Some(expected));
    let stub = Stub::built("unmapped", &["VERSION=13000", "VIRTUAL_MEMORY=0"]);
    let error = stub.open().open(1).err().map(|error| error.text).expect("refused");
    assert!(error.starts_with("GPU 1 (Stub 1) cannot map memory at reserved addresses"), "{error}");
}

#[test]
fn a_driver_that_does_not_start_says_why_and_one_without_gpus_has_none() {
    let stub = Stub::built("mismatch", &["VERSION=13000", "INIT=803"]);
    let error = stub.open().devices().expect_err("803");
    assert_eq!((error.call, error.kind), ("cuInit", DriverErrorKind::Unavailable));
    assert!(
        error.text.ends_with(
            "the driver's library and its kernel module differ: restart the machine, or load the module \
                                  again"
        ),
        "{}",
        error.text
    );
    let stub = Stub::built("empty", &["VERSION=13000", "INIT=100"]);
    assert_eq!(stub.open().devices(), Ok(vec![]));
    assert_eq!(stub.open().open(0).err().map(|error| error.call), Some("cuInit"));
}

fn opened(name: &str) -> (Stub, Library, Arc<dyn Gpu>) {
    let stub = Stub::built(name, &["VERSION=13000"]);
    let library = stub.open();
    let gpu = library.open(1).expect("a GPU");
    (stub, library, gpu)
}

fn words(gpu: &dyn Gpu, stream: StreamHandle, from: gpu::DevicePointer, count: usize) -> Vec<f32> {
    let pinned = gpu.allocate_pinned(4 * count).expect("pinned memory");
    gpu.download(stream, pinned, 0, from, 4 * count).expect("a copy");
    gpu.synchronize(stream).expect("its end");
    let mut bytes = vec![0; 4 * count];
    gpu.read_pinned(pinned, 0, &mut bytes).expect("read");
    gpu.free_pinned(pinned).expect("freed");
    bytes.chunks_exact(4).map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
}

#[test]
fn memory_kernels_events_and_graphs() {
    let (stub, library, gpu) = opened("whole");
    assert_eq!((library.version(), library.cuda().as_str()), (Ok(13000), "13.0"));
    assert_eq!(library.path(), stub.library());
    let facts = gpu.facts();
    assert_eq!((facts.ordinal, facts.name.as_str(), facts.capability.to_string().as_str()), (1, "Stub 1", "sm_90"));
    assert_eq!((facts.memory_bytes, facts.multiprocessors, facts.max_shared_bytes), (1 << 30, 132, 232_448));
    assert_eq!((facts.uuid, facts.bus_id.as_str()), ([8; 16], "0000:1b:00.0"));
    assert_eq!(gpu.free_memory().map(|memory| memory.free_bytes), Ok(1 << 29));

    let memory = gpu.allocate(1000).expect("memory");
    assert_eq!(memory.0 % (2 << 20), 0);
    let stream = gpu.create_stream().expect("a stream");
    assert_eq!(words(&*gpu, stream, memory, 250), [0.0; 250], "new memory is zeroed");
    let pinned = gpu.allocate_pinned(16).expect("pinned memory");
    let mut fresh = [1; 16];
    gpu.read_pinned(pinned, 0, &mut fresh).expect("read");
    assert_eq!(fresh, [0; 16], "new pinned memory is zeroed");
    gpu.write_pinned(pinned, 4, &2.0f32.to_le_bytes()).expect("written");
    gpu.upload(stream, memory.offset(8), pinned, 4, 4).expect("a copy");
    gpu.copy(stream, memory.offset(20), memory.offset(8), 4).expect("a copy");
    assert_eq!(words(&*gpu, stream, memory, 6), [0.0, 0.0, 2.0, 0.0, 0.0, 2.0]);

    let module = gpu.load(ModuleImage::Ptx("ok")).expect("code");
    let kernel = gpu.function(module, "add_one").expect("a kernel");
    assert_eq!(gpu.function_facts(kernel).map(|facts| (facts.registers, facts.local_bytes)), Ok((104, 103)));
    gpu.allow_shared(kernel, 200_000).expect("less than a block can have");
    let arguments = Arguments::new().with(&memory.0.to_le_bytes()).with(&4u32.to_le_bytes());
    gpu.launch(stream, kernel, LaunchShape::linear(1, 32), &arguments).expect("a launch");
    assert_eq!(words(&*gpu, stream, memory, 6), [1.0, 1.0, 3.0, 1.0, 0.0, 2.0]);

    let (from, to) = (gpu.create_event().expect("an event"), gpu.create_event().expect("an event"));
    gpu.record(from, stream).expect("recorded");
    assert_eq!(gpu.is_reached(to), Ok(false));
    assert_eq!(gpu.elapsed_ms(from, to).map_err(|error| error.kind), Err(DriverErrorKind::NotReady));
    gpu.record(to, stream).expect("recorded");
    gpu.wait(stream, to).expect("a wait");
    assert_eq!((gpu.is_reached(to), gpu.has_ended(stream)), (Ok(true), Ok(true)));
    // The form of 12.8, which the driver gives to the version that is asked for; that before gives another number.
    assert_eq!(gpu.elapsed_ms(from, to), Ok(1.5));

    gpu.begin_capture(stream).expect("a capture");
    gpu.launch(stream, kernel, LaunchShape::linear(1, 32), &arguments).expect("a launch");
    let graph = std::thread::scope(|scope| scope.spawn(|| gpu.end_capture(stream)).join().expect("a thread"));
    let graph = graph.expect("a graph, of a capture that another thread ends");
    for _ in 0..3 {
        gpu.launch_graph(stream, graph).expect("launched");
    }
    assert_eq!(words(&*gpu, stream, memory, 4), [4.0, 4.0, 6.0, 4.0]);
    gpu.destroy_graph(graph).expect("destroyed");

    let node = |arguments, after| KernelNode { function: kernel, shape: LaunchShape::linear(1, 32), arguments, after };
    let one = Arguments::new().with(&memory.0.to_le_bytes()).with(&1u32.to_le_bytes());
    let graph = gpu.create_graph(&[node(&arguments, None), node(&one, Some(0))]).expect("a graph");
    gpu.launch_graph(stream, graph).expect("launched");
    gpu.set_node(graph, 1, &node(&arguments, Some(0))).expect("changed");
    gpu.launch_graph(stream, graph).expect("launched");
    assert_eq!(words(&*gpu, stream, memory, 4), [8.0, 7.0, 9.0, 7.0]);
    gpu.destroy_graph(graph).expect("destroyed");
    gpu.destroy_event(from).expect("destroyed");
    gpu.free(memory).expect("freed");
    gpu.unload(module).expect("unloaded");
}

#[test]
fn whatever_is_left_is_destroyed_with_its_gpu() {
    let (stub, library, gpu) = opened("left");
    let live = Live::of(&stub);
    let context_and_stream = live.count();
    let module = gpu.load(ModuleImage::Ptx("ok")).expect("code");
    gpu.function(module, "add_one").expect("a kernel");
    let stream = gpu.create_stream().expect("a stream");
    gpu.create_event().expect("an event");
    gpu.allocate(1).expect("memory");
    gpu.allocate_pinned(1).expect("pinned memory");
    gpu.begin_capture(stream).expect("a capture");
    gpu.end_capture(stream).expect("a graph");
    assert_eq!(live.count(), context_and_stream + 6);
    drop(gpu);
    assert_eq!(live.count(), 0);
    drop(library);
}

#[test]
fn failures_undo_their_first_half() {
    let (stub, _library, gpu) = opened("half");
    let live = Live::of(&stub);
    let before = live.count();
    let error = gpu.allocate(1 << 30).expect_err("1 GiB of 256 MiB");
    assert_eq!(error.to_string(), "cuMemCreate: out of memory: CUDA_ERROR_OUT_OF_MEMORY: a text");
    let error = gpu.allocate(32 << 20).expect_err("cannot be made accessible");
    assert_eq!((error.call, error.kind), ("cuMemSetAccess", DriverErrorKind::Other(801)));
    let error = gpu.allocate_pinned(1 << 30).expect_err("1 GiB of 256 MiB");
    assert_eq!((error.call, error.kind), ("cuMemHostAlloc", DriverErrorKind::OutOfMemory));
    assert_eq!(live.count(), before);
}

#[test]
fn errors_have_a_reason_and_the_drivers_words() {
    let (_stub, _library, gpu) = opened("reasons");
    let load = |text: &str| gpu.load(ModuleImage::Ptx(text)).expect_err("refused");
    let error = load("fail 222 ptxas fatal: Unsupported .version 9.9");
    assert_eq!(error.kind, DriverErrorKind::InvalidImage);
    let expected = "222: a text; update the driver to the CUDA version that compiled the PTX: 580 or later for PTX 9.0, \
                    570 for PTX 8.7:\nptxas \
                    fatal: Unsupported .version 9.9";
    assert_eq!(error.text, expected);
    assert!(load("fail 218 line 12: syntax error").text.ends_with(":\nline 12: syntax error"));
    assert_eq!(load("fail 209 ").kind, DriverErrorKind::InvalidImage);
    assert_eq!(load("zero\0byte").text, "the PTX has a zero byte");
    let error = gpu.load(ModuleImage::Cubin(b"\x7fELF")).expect_err("cut off");
    assert_eq!(error.text, "4 bytes are not a CUBIN: they do not begin with the header of ELF");

    let module = gpu.load(ModuleImage::Ptx("ok")).expect("code");
    let error = gpu.function(module, "add_two").expect_err("no such kernel");
    assert_eq!((error.kind, &error.text[..9]), (DriverErrorKind::InvalidArgument, "\"add_two\""));
    for (name, kind, text) in [
        ("status_700", DriverErrorKind::KernelFault, "an illegal memory access was encountered"),
        ("status_702", DriverErrorKind::Timeout, "a text"),
    ] {
        let stream = gpu.create_stream().expect("a stream");
        let kernel = gpu.function(module, name).expect("a kernel");
        gpu.launch(stream, kernel, LaunchShape::linear(1, 1), &Arguments::new()).expect("a launch");
        for error in [gpu.synchronize(stream).err(), gpu.has_ended(stream).err()] {
            let error = error.expect("the failure, at every later call");
            assert!(error.kind == kind && error.text.ends_with(text), "{error}");
        }
    }
}

#[test]
fn handles_ranges_and_arguments_are_checked_before_the_driver_sees_them() {
    let (_stub, _library, gpu) = opened("checked");
    let stream = gpu.create_stream().expect("a stream");
    let (memory, pinned) = (gpu.allocate(1).expect("memory"), gpu.allocate_pinned(8).expect("pinned memory"));
    let text = |result: Result<(), gpu::DriverError>| {
        let error = result.expect_err("refused");
        assert_eq!(error.kind, DriverErrorKind::InvalidArgument);
        error.text
    };
    let whole = 2 << 20;
    let beyond = text(gpu.fill(stream, memory.offset(whole - 1), 0, 2));
    assert_eq!(beyond, "2 bytes from 2097151 on are not within 2097152 bytes");
    let outside = text(gpu.fill(stream, memory.offset(whole), 0, 1));
    assert_eq!(outside, format!("1 bytes at {:#x} are not within allocated memory", memory.0 + whole as u64));
    assert_eq!(text(gpu.upload(stream, memory, pinned, 4, 5)), "5 bytes from 4 on are not within 8 bytes");
    assert_eq!(
        text(gpu.download(stream, pinned, usize::MAX, memory, 2)),
        format!("2 bytes from {} on are not within 8 bytes", usize::MAX)
    );
    assert_eq!(text(gpu.write_pinned(pinned, 1, &[0; 8])), "8 bytes from 1 on are not within 8 bytes");
    assert_eq!(
        text(gpu.copy(stream, memory, gpu::DevicePointer(64), 1)),
        "1 bytes at 0x40 are not within allocated memory"
    );
    assert_eq!(text(gpu.allocate(0).map(|_| ())), "0 bytes cannot be allocated");
    assert_eq!(
        text(gpu.free(memory.offset(1))),
        format!("memory at {:#x} does not exist here, or was destroyed", memory.0 + 1)
    );
    assert_eq!(text(gpu.record(EventHandle(1), stream)), "event 0x1 does not exist here, or was destroyed");
    gpu.destroy_stream(stream).expect("destroyed");
    assert!(text(gpu.synchronize(stream)).starts_with("stream 0x"));
    assert!(text(gpu.destroy_stream(stream)).starts_with("stream 0x"));

    let stream = gpu.create_stream().expect("a stream");
    let module = gpu.load(ModuleImage::Ptx("ok")).expect("code");
    let kernel = gpu.function(module, "add_one").expect("a kernel");
    let launch = |arguments: &Arguments| text(gpu.launch(stream, kernel, LaunchShape::linear(1, 1), arguments));
    let place = Arguments::new().with(&memory.0.to_le_bytes());
    assert_eq!(launch(&place), "1 arguments for a kernel of 2 parameters");
    assert_eq!(launch(&place.clone().with(&[0; 8])), "argument 1 has 8 bytes; its parameter has 4");
    gpu.unload(module).expect("unloaded");
    assert!(launch(&place.with(&[0; 4])).ends_with("does not exist here, or its module does not"));
}

/// The stub writes its arguments into the map.
#[test]
fn tensor_maps_reach_the_driver_once_their_rules_are_checked() {
    let (_stub, _library, gpu) = opened("maps");
    let tiles = TensorTiles {
        element: TensorElement::Bf16,
        address: DevicePointer(0x1000),
        dims: vec![100, 7],
        strides_bytes: vec![208],
        box_dims: vec![32, 5],
        swizzle: TensorSwizzle::Bytes64,
        promotion: TensorPromotion::Bytes256,
    };
    let map = gpu.tensor_map(&tiles).expect("a map");
    let words: Vec<u64> =
        map.bytes().chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect();
    assert_eq!(words[..6], [2, 0x1000, 7, 208, 5, 9 << 32 | 2 << 8 | 3]);
    let line = TensorTiles { dims: vec![64], strides_bytes: vec![], box_dims: vec![32], ..tiles.clone() };
    assert_eq!(gpu.tensor_map(&line).expect("a map").bytes()[..8], 1u64.to_le_bytes());
    let odd = gpu.tensor_map(&TensorTiles { strides_bytes: vec![200], ..tiles }).expect_err("a stride");
    assert_eq!(odd.text, "the stride of dim 1 must be a multiple of 16 below 2^40; got 200");
}

#[test]
fn threads_share_a_gpu() {
    let (_stub, _library, gpu) = opened("threads");
    std::thread::scope(|scope| {
        for value in 1..=4u8 {
            let gpu = &gpu;
            scope.spawn(move || {
                for _ in 0..50 {
                    let memory = gpu.allocate(4).expect("memory");
                    let stream = gpu.create_stream().expect("a stream");
                    gpu.fill(stream, memory, value, 4).expect("filled");
                    assert_eq!(words(&**gpu, stream, memory, 1), [f32::from_le_bytes([value; 4])]);
                    gpu.destroy_stream(stream).expect("destroyed");
                    gpu.free(memory).expect("freed");
                }
            });
        }
    });
}

/// The stub's count of things that live.
struct Live(libloading::Library);

impl Live {
    fn of(stub: &Stub) -> Live {
        // SAFETY: the stub is loaded in this process already.
        Live(unsafe { libloading::Library::new(stub.library()) }.expect("the stub"))
    }

    fn count(&self) -> i32 {
        // SAFETY: the stub declares the function with this type.
        let count = unsafe { self.0.get::<unsafe extern "C" fn() -> i32>(b"stub_live") }.expect("a function");
        // SAFETY: the function reads a number; no other thread of this test calls the stub.
        unsafe { count() }
    }
}
