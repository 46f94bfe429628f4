//! The GPU in software through the C interface of a driver, opened by its path, against the same GPU in process.

use std::path::PathBuf;

use gpu::{
    Arguments, DevicePointer, Driver, DriverErrorKind, GraphHandle, KernelNode, LaunchShape, ModuleImage,
    TensorElement, TensorPromotion, TensorSwizzle, TensorTiles,
};
use nvidia::Search;
use nvidia::driver::Library;
use softgpu::{Settings, SoftDriver};

/// `x[i] += 1` for `i < n`, as NVRTC compiles it.
const ADD_ONE: &str = "
.version 9.0
.target sm_90
.address_size 64
.visible .entry add_one(.param .u64 add_one_param_0, .param .u32 add_one_param_1)
{
    .reg .pred %p<2>;
    .reg .f32 %f<3>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [add_one_param_0];
    ld.param.u32 %r2, [add_one_param_1];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.s32 %r1, %r3, %r4, %r5;
    setp.ge.u32 %p1, %r1, %r2;
    @%p1 bra $L__BB0_2;
    cvta.to.global.u64 %rd2, %rd1;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.f32 %f1, [%rd4];
    add.f32 %f2, %f1, 0f3F800000;
    st.global.f32 [%rd4], %f2;
$L__BB0_2:
    ret;
}
";
const COUNT: usize = 1000;

/// The shared library, which cargo builds as a dependency of this test: next to the test's own program.
fn shared_library() -> PathBuf {
    let program = std::env::current_exe().expect("a program");
    program.parent().expect("the folder of the program").join("libsoftgpu_driver.so")
}

/// A folder with the library under names of NVIDIA's, and its settings. Its file is a copy, so that the loader gives
/// each test GPUs of its own.
pub fn folder(name: &str, settings: &str, libraries: &[&str]) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("pleach-soft-library-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("softgpu.settings"), settings).expect("written");
    std::fs::copy(shared_library(), folder.join(libraries[0])).expect("a copy");
    for other in &libraries[1..] {
        std::fs::hard_link(folder.join(libraries[0]), folder.join(other)).expect("another name");
    }
    folder
}

/// The driver, with one GPU.
fn opened(name: &str) -> Library {
    opened_with(name, "").0
}

/// The driver with these settings, and its symbols.
fn opened_with(name: &str, settings: &str) -> (Library, libloading::Library) {
    let folder = folder(name, settings, &["libcuda.so.1"]);
    let driver = Library::open(&Search::only([folder.clone()])).unwrap_or_else(|error| panic!("{error}"));
    // SAFETY: the library is loaded in this process already.
    let symbols = unsafe { libloading::Library::new(folder.join("libcuda.so.1")) }.expect("the library");
    // Settings are read with the first GPU.
    driver.devices().expect("GPUs");
    std::fs::remove_dir_all(&folder).expect("removed");
    (driver, symbols)
}

/// Allocates, copies, loads, launches, records, captures, and returns the memory in the end.
fn sequence(driver: &dyn Driver) -> Vec<f32> {
    assert!(driver.version().expect("a version") >= 13_000);
    assert_eq!(driver.devices().expect("GPUs").len(), 1);
    let gpu = driver.open(0).expect("a GPU");
    let bytes = COUNT * 4;
    let memory = gpu.allocate(bytes).expect("memory");
    let (work, other) = (gpu.create_stream().expect("a stream"), gpu.create_stream().expect("a stream"));
    let pinned = gpu.allocate_pinned(2 * bytes).expect("pinned memory");
    let values: Vec<u8> = (0..COUNT).flat_map(|index| (index as f32 * 0.5).to_le_bytes()).collect();
    gpu.write_pinned(pinned, 0, &values).expect("written");
    gpu.upload(work, memory, pinned, 0, bytes).expect("a copy");

    let module = gpu.load(ModuleImage::Ptx(ADD_ONE)).expect("code");
    let kernel = gpu.function(module, "add_one").expect("a kernel");
    assert!(gpu.function_facts(kernel).expect("facts").max_threads_per_block >= 128);
    let place = Arguments::new().with(&memory.0.to_le_bytes());
    let arguments = place.clone().with(&(COUNT as u32).to_le_bytes());
    let shape = LaunchShape::linear(8, 128);
    gpu.launch(work, kernel, shape, &arguments).expect("a launch");
    let short = gpu.launch(work, kernel, shape, &place).expect_err("one argument of two");
    assert_eq!(short.kind, DriverErrorKind::InvalidArgument);

    // Another stream continues where the first one is.
    let (from, to) = (gpu.create_event().expect("an event"), gpu.create_event().expect("an event"));
    gpu.record(from, work).expect("recorded");
    gpu.wait(other, from).expect("a wait");
    gpu.launch(other, kernel, shape, &arguments).expect("a launch");
    gpu.record(to, other).expect("recorded");
    gpu.synchronize(other).expect("its end");
    assert_eq!((gpu.is_reached(to), gpu.has_ended(other)), (Ok(true), Ok(true)));
    assert!(gpu.elapsed_ms(from, to).expect("a time") >= 0.0);

    // Copies of a graph read and write the host's memory when it runs.
    let host = gpu.allocate_pinned(8).expect("pinned memory");
    let last = memory.offset(bytes - 4);
    gpu.begin_capture(work).expect("a capture");
    gpu.upload(work, last, host, 0, 4).expect("a copy");
    gpu.launch(work, kernel, shape, &arguments).expect("a launch");
    gpu.launch(work, kernel, shape, &arguments).expect("a launch");
    gpu.download(work, host, 4, last, 4).expect("a copy");
    let graph = gpu.end_capture(work).expect("a graph");
    for round in [20.0f32, 10.0, (COUNT - 1) as f32 * 0.5 + 6.0] {
        gpu.write_pinned(host, 0, &round.to_le_bytes()).expect("written");
        gpu.launch_graph(work, graph).expect("launched");
        gpu.synchronize(work).expect("its end");
        let mut word = [0; 4];
        gpu.read_pinned(host, 4, &mut word).expect("read");
        assert_eq!(f32::from_le_bytes(word), round + 2.0);
    }
    gpu.fill(work, memory, 0, 4).expect("filled");
    gpu.copy(work, memory.offset(4), memory, 4).expect("a copy");
    gpu.download(work, pinned, bytes, memory, bytes).expect("a copy");
    gpu.synchronize(work).expect("its end");
    let mut result = vec![0; bytes];
    gpu.read_pinned(pinned, bytes, &mut result).expect("read");

    let error = gpu.load(ModuleImage::Ptx(&ADD_ONE.replace("add.f32 %f2", "sub.zz %f2"))).expect_err("no such opcode");
    assert_eq!(error.kind, DriverErrorKind::InvalidImage);
    assert!(error.text.contains("sub.zz"), "{error}");
    assert_eq!(gpu.function(module, "none").map_err(|error| error.kind), Err(DriverErrorKind::InvalidArgument));
    gpu.destroy_graph(graph).expect("destroyed");
    gpu.unload(module).expect("unloaded");
    gpu.free_pinned(pinned).expect("freed");
    gpu.free(memory).expect("freed");
    result.chunks_exact(4).map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
}

#[test]
fn the_same_calls_have_the_same_results_in_process_and_through_the_c_interface() {
    let expected: Vec<f32> = (0..COUNT).map(|index| if index < 2 { 0.0 } else { index as f32 * 0.5 + 8.0 }).collect();
    assert_eq!(sequence(&SoftDriver::new(1, Settings::default())), expected);
    // The file does not have the driver's name.
    assert!(Library::open(&Search::only([shared_library()])).is_err());
    assert_eq!(sequence(&opened("calls")), expected);
}

/// GPUs have memory of their own, at the same addresses, and a context each.
#[test]
fn a_driver_has_as_many_gpus_as_its_settings_say() {
    let (library, _) = opened_with("several", "gpus = 2\ncapability = 8.0\nmemory_bytes = 1073741824\n");
    let devices = library.devices().expect("GPUs");
    assert_eq!((devices.len(), devices[0].memory_bytes), (2, 1 << 30));
    assert_eq!([0, 1].map(|gpu| devices[gpu].capability.to_string()), ["sm_80", "sm_80"]);
    assert_ne!(devices[0].uuid, devices[1].uuid);
    assert_ne!(devices[0].bus_id, devices[1].bus_id);
    let gpus = [0, 1].map(|ordinal| library.open(ordinal).expect("a GPU"));
    let memory = [0, 1].map(|gpu: usize| gpus[gpu].allocate(4).expect("memory"));
    assert_eq!(memory[0], memory[1]);
    let streams = [0, 1].map(|gpu: usize| gpus[gpu].create_stream().expect("a stream"));
    for (gpu, value) in [(0, 7), (1, 9)] {
        gpus[gpu].fill(streams[gpu], memory[gpu], value, 4).expect("filled");
    }
    for (gpu, value) in [(1, 9), (0, 7)] {
        let pinned = gpus[gpu].allocate_pinned(4).expect("pinned memory");
        gpus[gpu].download(streams[gpu], pinned, 0, memory[gpu], 4).expect("a copy");
        gpus[gpu].synchronize(streams[gpu]).expect("its end");
        let mut bytes = [0; 4];
        gpus[gpu].read_pinned(pinned, 0, &mut bytes).expect("read");
        assert_eq!(bytes, [value; 4]);
    }
}

/// Memory can be registered by libraries that map it elsewhere, where the GPU says that it can be.
#[test]
fn memory_has_the_handles_that_the_gpu_has() {
    type Retain = unsafe extern "C" fn(*mut u64, u64) -> u32;
    type Properties = unsafe extern "C" fn(*mut [u8; 32], u64) -> u32;
    let properties = |sharing: &str| {
        let (driver, library) = opened_with(&format!("sharing-{sharing}"), &format!("sharing = {sharing}\n"));
        // SAFETY: the type is that of the driver's header.
        let retain = unsafe { library.get::<Retain>(b"cuMemRetainAllocationHandle") }.expect("the function");
        // SAFETY: the type is that of the driver's header, where a structure has these bytes.
        let read =
            unsafe { library.get::<Properties>(b"cuMemGetAllocationPropertiesFromHandle") }.expect("the function");
        let gpu = driver.open(0).expect("a GPU");
        let memory = gpu.allocate(1000).expect("memory");
        gpu.enter().expect("entered");
        let (mut handle, mut bytes) = (0, [0; 32]);
        // SAFETY: the call writes one number.
        assert_eq!(unsafe { retain(&mut handle, memory.0) }, 0);
        // SAFETY: the call writes as many bytes.
        assert_eq!(unsafe { read(&mut bytes, handle) }, 0);
        gpu.free(memory).expect("freed");
        // The kinds of handles, and whether network cards reach it.
        (u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]), bytes[25])
    };
    let all = ["none", "files", "fabric", "unpermitted"].map(properties);
    assert_eq!(all, [(0, 0), (1, 1), (9, 1), (1, 1)]);
}

/// As instances of one GPU.
#[test]
fn gpus_on_one_bus_have_identifiers_of_their_own() {
    let devices = opened_with("bus", "gpus = 2\nbus = 0000:1b:00.0\n").0.devices().expect("GPUs");
    assert_eq!([0, 1].map(|gpu| devices[gpu].bus_id.as_str()), ["0000:1b:00.0"; 2]);
    assert_ne!(devices[0].uuid, devices[1].uuid);
}

#[test]
fn cublaslt_of_cuda_12_is_opened_where_that_of_cuda_13_is_missing() {
    let folder = folder("cublaslt-12", "", &["libcublasLt.so.12"]);
    let opened =
        || nvidia::cublaslt::Library::open(&Search::only([folder.clone()])).map(|found| found.path().to_owned());
    assert_eq!(opened(), Ok(folder.join("libcublasLt.so.12")));
    std::fs::hard_link(folder.join("libcublasLt.so.12"), folder.join("libcublasLt.so.13")).expect("another name");
    assert_eq!(opened(), Ok(folder.join("libcublasLt.so.13")));
    std::fs::remove_dir_all(&folder).expect("removed");
}

/// A driver of CUDA 12.4, and one of 12.8, which has the newest form of times.
#[test]
fn drivers_before_cuda_13_are_accepted_from_12_4_on() {
    let open = |cuda: &str| {
        let folder = folder(&format!("cuda-{cuda}"), &format!("cuda = {cuda}\n"), &["libcuda.so.1"]);
        let opened = Library::open(&Search::only([folder.clone()]));
        std::fs::remove_dir_all(&folder).expect("removed");
        opened
    };
    for (cuda, version) in [("12.4", 12_040), ("12.8", 12_080)] {
        let driver = open(cuda).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((driver.version(), driver.cuda().as_str()), (Ok(version), cuda));
        let gpu = driver.open(0).expect("a GPU");
        let stream = gpu.create_stream().expect("a stream");
        let event = gpu.create_event().expect("an event");
        gpu.record(event, stream).expect("recorded");
        gpu.synchronize(stream).expect("its end");
        assert_eq!(gpu.elapsed_ms(event, event), Ok(0.0));
    }
    let refused = open("12.3").err().map(|error| error.to_string()).expect("too old");
    assert!(refused.contains("is NVIDIA's driver for CUDA 12.3; pleach needs 550 or later (CUDA 12.4): "), "{refused}");
}

/// The driver keeps the priority of each stream: the highest one of an urgent stream.
#[test]
fn urgent_streams_have_the_highest_priority() {
    type Priority = unsafe extern "C" fn(u64, *mut i32) -> u32;
    let (driver, library) = opened_with("priorities", "");
    // SAFETY: the type is that of the driver's header.
    let priority = unsafe { library.get::<Priority>(b"cuStreamGetPriority") }.expect("the function");
    let gpu = driver.open(0).expect("a GPU");
    let streams = [gpu.create_stream(), gpu.create_urgent_stream()].map(|stream| stream.expect("a stream"));
    gpu.enter().expect("entered");
    let priorities = streams.map(|stream| {
        let mut known = 7;
        // SAFETY: the call writes one number.
        assert_eq!(unsafe { priority(stream.0, &mut known) }, 0);
        known
    });
    assert_eq!(priorities, [0, -5]);
}

#[test]
fn settings_that_cannot_be_read_stop_the_driver() {
    let folder = folder("settings", "gpus = many\n", &["libcuda.so.1"]);
    let library = Library::open(&Search::only([folder.clone()])).unwrap_or_else(|error| panic!("{error}"));
    let error = library.devices().expect_err("no number");
    std::fs::remove_dir_all(&folder).expect("removed");
    assert!(error.to_string().contains("CUDA_ERROR_NOT_INITIALIZED"), "{error}");
}

/// Launches a graph of kernels twice, with other arguments for a node in between, before the first launch has run: the
/// memory in the end. `breaks` leaves out what the last node comes after.
fn chain(driver: &dyn Driver, breaks: bool) -> Result<Vec<f32>, DriverErrorKind> {
    let gpu = driver.open(0).expect("a GPU");
    let stream = gpu.create_stream().expect("a stream");
    let memory = gpu.allocate(16).expect("memory");
    gpu.fill(stream, memory, 0, 16).expect("filled");
    let module = gpu.load(ModuleImage::Ptx(ADD_ONE)).expect("code");
    let function = gpu.function(module, "add_one").expect("a kernel");
    let shape = LaunchShape::linear(1, 32);
    let first = |count: u32| Arguments::new().with(&memory.0.to_le_bytes()).with(&count.to_le_bytes());
    let (all, two, short) = (first(4), first(2), Arguments::new().with(&memory.0.to_le_bytes()));
    let node = |arguments, after| KernelNode { function, shape, arguments, after };
    let last = if breaks { None } else { Some(1) };
    let graph = gpu.create_graph(&[node(&all, None), node(&two, Some(0)), node(&all, last)]).expect("a graph");
    gpu.launch_graph(stream, graph).expect("launched");
    gpu.set_node(graph, 1, &node(&all, None)).expect("changed");
    gpu.set_node(graph, 2, &node(&two, None)).expect("changed");
    gpu.launch_graph(stream, graph).expect("launched");
    let refused = [
        gpu.set_node(graph, 3, &node(&all, None)),
        gpu.set_node(graph, 0, &node(&short, None)),
        gpu.create_graph(&[node(&all, Some(0))]).map(|_| ()),
        gpu.create_graph(&[node(&short, None)]).map(|_| ()),
        gpu.launch_graph(stream, GraphHandle(12_345)),
    ];
    for refused in refused {
        assert_eq!(refused.map_err(|error| error.kind), Err(DriverErrorKind::InvalidArgument));
    }
    let pinned = gpu.allocate_pinned(16).expect("pinned memory");
    gpu.download(stream, pinned, 0, memory, 16).map_err(|error| error.kind)?;
    gpu.synchronize(stream).map_err(|error| error.kind)?;
    let mut bytes = [0; 16];
    gpu.read_pinned(pinned, 0, &mut bytes).expect("read");
    gpu.destroy_graph(graph).expect("destroyed");
    assert!(gpu.launch_graph(stream, graph).is_err() && gpu.destroy_graph(graph).is_err(), "it is destroyed");
    gpu.unload(module).expect("unloaded");
    Ok(bytes.chunks_exact(4).map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect())
}

#[test]
fn a_launch_of_a_graph_has_the_arguments_that_its_nodes_had_then() {
    let expected = Ok(vec![6.0, 6.0, 4.0, 4.0]);
    assert_eq!(chain(&SoftDriver::new(1, Settings::default()), false), expected);
    assert_eq!(chain(&opened("graphs"), false), expected);
}

#[test]
fn a_node_that_comes_after_nothing_has_no_order_with_the_others() {
    let race = Err(DriverErrorKind::KernelFault);
    for seed in 0..8 {
        assert_eq!(chain(&SoftDriver::new(1, Settings { seed, ..Settings::default() }), true), race, "seed {seed}");
    }
    assert_eq!(chain(&opened("broken"), true), race);
}

/// Launches a kernel that reaches past its memory, and returns the kinds of the failures of the next calls.
fn faults(driver: &dyn Driver) -> Vec<(&'static str, DriverErrorKind)> {
    let gpu = driver.open(0).expect("a GPU");
    let stream = gpu.create_stream().expect("a stream");
    let memory = gpu.allocate(4).expect("memory");
    gpu.fill(stream, memory, 0, 4).expect("filled");
    let module = gpu.load(ModuleImage::Ptx(ADD_ONE)).expect("code");
    let kernel = gpu.function(module, "add_one").expect("a kernel");
    let launch = |count: u32| {
        let arguments = Arguments::new().with(&memory.0.to_le_bytes()).with(&count.to_le_bytes());
        gpu.launch(stream, kernel, LaunchShape::linear(1, 32), &arguments).and_then(|()| gpu.synchronize(stream))
    };
    launch(1).expect("a kernel inside of its memory");
    // The granularity of memory that the C interface maps is 2 MiB at most: word 2^20 is past it.
    let shape = LaunchShape::linear(8193, 128);
    let arguments = Arguments::new().with(&memory.0.to_le_bytes()).with(&u32::MAX.to_le_bytes());
    let launched = gpu.launch(stream, kernel, shape, &arguments).and_then(|()| gpu.synchronize(stream));
    let later = [
        ("launch", launched.map_err(|error| error.kind)),
        ("allocate", gpu.allocate(4).map(|_| ()).map_err(|error| error.kind)),
        ("synchronize", gpu.synchronize(stream).map_err(|error| error.kind)),
    ];
    later.into_iter().filter_map(|(call, result)| result.err().map(|kind| (call, kind))).collect()
}

/// A GPU whose kernel has failed fails every later call with the same kind.
#[test]
fn the_fault_of_a_kernel_comes_through_the_c_interface_and_stays() {
    let kind = DriverErrorKind::KernelFault;
    let expected = vec![("launch", kind), ("allocate", kind), ("synchronize", kind)];
    assert_eq!(faults(&SoftDriver::new(1, Settings::default())), expected);
    assert_eq!(faults(&opened("faults")), expected);
}

/// A map has the same bytes in process and through the C interface, for every element, swizzle and promotion.
#[test]
fn tensor_maps_are_those_of_the_gpu_in_process() {
    let (own, library) = (SoftDriver::new(1, Settings::default()), opened("maps"));
    let (own, other) = (own.open(0).expect("a GPU"), library.open(0).expect("a GPU"));
    for rank in 1..=5 {
        for element in TensorElement::ALL {
            for (swizzle, promotion) in TensorSwizzle::ALL.into_iter().zip(TensorPromotion::ALL) {
                let tiles = TensorTiles {
                    element,
                    address: DevicePointer(0x7_0000_0040),
                    dims: (1..=rank).map(|dim| 1000 * dim).collect(),
                    strides_bytes: (1..rank).map(|dim| 4096 << dim).collect(),
                    box_dims: (0..rank as u32)
                        .map(|dim| if dim == 0 { 32 / element.bytes() as u32 } else { dim })
                        .collect(),
                    swizzle,
                    promotion,
                };
                let map = other.tensor_map(&tiles);
                assert!(map.is_ok(), "{tiles:?}: {map:?}");
                assert_eq!(map, own.tensor_map(&tiles), "{tiles:?}");
            }
        }
    }
}

/// The shared library gives every function of the table by its version, and refuses a version that is too old for one.
#[test]
fn functions_are_found_by_their_versions() {
    type Lookup = unsafe extern "C" fn(*const std::ffi::c_char, *mut *mut std::ffi::c_void, i32, u64, *mut u32) -> u32;
    // SAFETY: the library's initialisers do nothing.
    let library = unsafe { libloading::Library::new(shared_library()) }.expect("the library");
    // SAFETY: the type is that of the driver's header.
    let lookup = unsafe { library.get::<Lookup>(b"cuGetProcAddress_v2") }.expect("the lookup");
    let find = |name: &str, version: u32| {
        let name = std::ffi::CString::new(name).expect("a name");
        let (mut address, mut result) = (std::ptr::null_mut(), 0);
        // SAFETY: the name lives during the call, which writes one address and one number.
        let status = unsafe { lookup(name.as_ptr(), &mut address, version as i32, 0, &mut result) };
        (status, address)
    };
    let driver = nvidia::headers::all().into_iter().find(|header| header.includes[0] == "cuda.h").expect("the driver");
    assert!(driver.functions.len() >= 50);
    for function in &driver.functions {
        let since = function.since.expect("a version");
        let base = function.symbol.trim_end_matches("_v2");
        // SAFETY: only the address is taken.
        let symbol = unsafe { library.get::<*mut std::ffi::c_void>(function.symbol.as_bytes()) };
        let symbol = *symbol.expect(function.symbol);
        assert_eq!(find(base, since), (0, symbol), "{} since {since}", function.symbol);
        let older = find(base, since - 1);
        let has_earlier = driver.functions.iter().any(|other| other.symbol == base && other.since < function.since);
        let expected = if has_earlier { 0 } else { 500 };
        assert!(
            older.0 == expected && older.1.is_null() != has_earlier,
            "{} before {since}: {older:?}",
            function.symbol
        );
    }
    assert_eq!(find("cuNoSuchFunction", 13_000), (500, std::ptr::null_mut()));
}

/// Every function of the tables of all libraries is there, too, and results of the driver have the names of the header.
#[test]
fn all_tables_are_there_and_results_have_their_names() {
    type Name = unsafe extern "C" fn(u32, *mut *const std::ffi::c_char) -> u32;
    // SAFETY: the library's initialisers do nothing.
    let library = unsafe { libloading::Library::new(shared_library()) }.expect("the library");
    let headers = nvidia::headers::all();
    let functions = headers.iter().flat_map(|header| &header.functions);
    let mut count = 0;
    for function in functions {
        // SAFETY: only the address is taken.
        let symbol = unsafe { library.get::<*mut std::ffi::c_void>(function.symbol.as_bytes()) };
        assert!(symbol.is_ok_and(|symbol| !symbol.is_null()), "{}", function.symbol);
        count += 1;
    }
    assert!(count >= 102, "{count} functions");
    // SAFETY: the type is that of the driver's header.
    let name = unsafe { library.get::<Name>(b"cuGetErrorName") }.expect("a function");
    let driver = headers.iter().find(|header| header.includes[0] == "cuda.h").expect("the driver");
    let mut named = 0;
    for (expected, code) in driver.constants.iter().filter(|(name, _)| name.starts_with("CUDA_")) {
        let mut text = std::ptr::null();
        // SAFETY: the call writes one address.
        let status = unsafe { name(*code as u32, &mut text) };
        if status == 0 {
            // SAFETY: the library returns a constant text that ends with a zero.
            assert_eq!(unsafe { std::ffi::CStr::from_ptr(text) }.to_str(), Ok(*expected), "{code}");
            named += 1;
        }
    }
    assert!(named >= 10, "{named} names");
}
