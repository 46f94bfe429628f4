//! Loads a file of PTX, and launches one of its kernels:
//!
//! ```text
//! cargo run -p softgpu --example ptx -- FILE
//! cargo run -p softgpu --example ptx -- FILE KERNEL BLOCKS THREADS SHARED_BYTES ARGUMENT...
//! ```
//!
//! An argument is `u32:5`, `u64:5`, `f32:0.5`, `zeros:BYTES` or `random:COUNT` (numbers of single precision from -1 to
//! 1). Memory is printed as a hash and its first values after the launch.

use std::error::Error;
use std::sync::Arc;

use gpu::{Arguments, DevicePointer, Driver, Gpu, LaunchShape, ModuleImage, StreamHandle};
use softgpu::{Settings, SoftDriver};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, rest @ ..] = &*arguments else { return Err("usage: FILE [KERNEL BLOCKS THREADS SHARED ARG...]".into()) };
    let text = std::fs::read_to_string(file)?;
    let gpu = SoftDriver::new(1, Settings::default()).open(0)?;
    let module = gpu.load(ModuleImage::Ptx(&text))?;
    let names = text.lines().filter_map(|line| line.split_once(".entry ")).map(|(_, name)| name.trim_end_matches('('));
    let [kernel, blocks, threads, shared, values @ ..] = rest else {
        for name in names {
            println!("{name}: {:?}", gpu.function_facts(gpu.function(module, name.trim())?)?);
        }
        return Ok(());
    };
    let function = gpu.function(module, kernel)?;
    let stream = gpu.create_stream()?;
    let mut buffers = Vec::new();
    let mut arguments = Arguments::new();
    for value in values {
        let (kind, value) = value.split_once(':').ok_or("an argument is KIND:VALUE")?;
        arguments = match kind {
            "u32" => arguments.with(&value.parse::<u32>()?.to_le_bytes()),
            "u64" => arguments.with(&value.parse::<u64>()?.to_le_bytes()),
            "f32" => arguments.with(&value.parse::<f32>()?.to_le_bytes()),
            "zeros" => with_memory(&*gpu, stream, arguments, &mut buffers, &vec![0; value.parse()?])?,
            "random" => with_memory(&*gpu, stream, arguments, &mut buffers, &random(value.parse()?))?,
            other => return Err(format!("unknown kind {other} of an argument").into()),
        };
    }
    let shape = LaunchShape { shared_bytes: shared.parse()?, ..LaunchShape::linear(blocks.parse()?, threads.parse()?) };
    gpu.allow_shared(function, shape.shared_bytes)?;
    let start = std::time::Instant::now();
    gpu.launch(stream, function, shape, &arguments)?;
    gpu.synchronize(stream)?;
    println!("{:?}", start.elapsed());
    for (pointer, bytes) in buffers {
        let memory = download(&gpu, stream, pointer, bytes)?;
        let hash = memory
            .iter()
            .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
        let numbers =
            memory.chunks_exact(4).take(4).map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        println!("{:#x}: hash {hash:016x}, {:?}", pointer.0, numbers.collect::<Vec<_>>());
    }
    Ok(())
}

fn with_memory(
    gpu: &dyn Gpu,
    stream: StreamHandle,
    arguments: Arguments,
    buffers: &mut Vec<(DevicePointer, usize)>,
    bytes: &[u8],
) -> Result<Arguments, Box<dyn Error>> {
    let pointer = gpu.allocate(bytes.len())?;
    let pinned = gpu.allocate_pinned(bytes.len())?;
    gpu.write_pinned(pinned, 0, bytes)?;
    gpu.upload(stream, pointer, pinned, 0, bytes.len())?;
    buffers.push((pointer, bytes.len()));
    Ok(arguments.with(&pointer.0.to_le_bytes()))
}

fn download(
    gpu: &Arc<dyn Gpu>,
    stream: StreamHandle,
    pointer: DevicePointer,
    bytes: usize,
) -> Result<Vec<u8>, Box<dyn Error>> {
    let pinned = gpu.allocate_pinned(bytes)?;
    gpu.download(stream, pinned, 0, pointer, bytes)?;
    gpu.synchronize(stream)?;
    let mut memory = vec![0; bytes];
    gpu.read_pinned(pinned, 0, &mut memory)?;
    Ok(memory)
}

fn random(count: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).flat_map(|_| next().to_le_bytes()).collect()
}
