//! Speed of attention in blocks on a GPU as TFLOP/s, counting two per multiply-add on visible pairs only, after a
//! comparison of its bits with the CPU. The code is made where NVRTC is, and measured where a GPU is:
//!
//! ```text
//! PLEACH_CUDA=FOLDER cargo bench -p cuda --bench attention -- pack CODE sm_90a
//! cargo bench -p cuda --bench attention -- run CODE
//! ```

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use config::Products;
use cpu::CpuDevice;
use cuda::CudaDevice;
use cuda::code::{CompiledSource, compile_afresh};
use cuda::kernels::SOURCES;
use device::{Arena, AttentionGradients, AttentionOperands, AttentionShape, Device, Dtype, Op, Stream, Tensor};
use gpu::Driver;
use nvidia::Search;
use nvidia::driver::Library;
use nvidia::nvrtc::{Code, Compiler, Target};

type Failed = Box<dyn Error>;

const NAMES: [&str; 4] = ["attention_blocks", "attention_blocks_queries", "attention_blocks_keys", "initialize"];

/// Sequences, tokens per sequence, heads, key and value heads, channels per head.
const SHAPES: [[usize; 5]; 5] = [
    [16, 1024, 12, 12, 64],
    [1, 8192, 32, 8, 128],
    [4, 2048, 16, 16, 128],
    [1, 8192, 32, 32, 64],
    [1, 32_768, 8, 8, 128],
];
/// Shapes whose bits are compared with those of the CPU.
const SMALL: [[usize; 5]; 3] = [[2, 333, 4, 2, 64], [1, 400, 4, 1, 128], [1, 77, 2, 2, 80]];

/// Seconds that a measurement takes.
const SECONDS: f64 = 0.3;

fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["pack", folder, target] => pack(Path::new(folder), target),
        ["run", folder] => run(Path::new(folder)),
        _ => Err("use `pack CODE TARGET` or `run CODE`".into()),
    }
}

/// Compiles the kernels.
fn pack(folder: &Path, target: &str) -> Result<(), Failed> {
    let cuda = std::env::var_os("PLEACH_CUDA").ok_or("PLEACH_CUDA is not set")?;
    let compiler = Compiler::open(&Search::only([PathBuf::from(cuda)]))?;
    let target: Target = target.parse()?;
    std::fs::create_dir_all(folder)?;
    for source in SOURCES.iter().filter(|source| NAMES.contains(&source.name)) {
        let compiled = compile_afresh(&compiler, source, &target)?;
        std::fs::write(folder.join(source.name), compiled.code.bytes())?;
    }
    Ok(())
}

/// Compares bits, and measures.
fn run(folder: &Path) -> Result<(), Failed> {
    let code: Result<Vec<CompiledSource>, Failed> = SOURCES
        .iter()
        .filter(|source| NAMES.contains(&source.name))
        .map(|source| {
            let code = Code::Cubin(std::fs::read(folder.join(source.name))?);
            Ok(CompiledSource { source: *source, code })
        })
        .collect();
    let code = code?;
    let library = Library::open(&Search::default())?;
    let gpu = library.open(0)?;
    let facts = gpu.facts().clone();
    println!("{}, compute capability {}", facts.name, facts.capability);
    let products = if facts.capability.major < 9 { Products::Blocks8 } else { Products::Blocks16 };
    for shape in SMALL {
        let attention = Attend::new(shape, Dtype::Bf16);
        let cpu = CpuDevice::new(Arc::new(Arena::new(attention.bytes)?))?.with_products(products);
        let cuda = CudaDevice::open(Arc::clone(&gpu), &code, attention.bytes)?.with_products(products);
        compare(&attention, &cpu, &cuda)?;
    }
    for shape in SHAPES {
        let attention = Attend::new(shape, Dtype::Bf16);
        let device = CudaDevice::open(Arc::clone(&gpu), &code, attention.bytes)?.with_products(products);
        attention.begin(&device)?;
        measure(&attention, &device)?;
    }
    Ok(())
}

/// A causal attention and its tensors.
struct Attend {
    shape: AttentionShape,
    operands: AttentionOperands,
    gradients: AttentionGradients,
    /// Of the arena.
    bytes: usize,
}

impl Attend {
    fn new([sequences, sequence_length, heads, kv_heads, head_dim]: [usize; 5], dtype: Dtype) -> Attend {
        let shape = AttentionShape { sequences, sequence_length, heads, kv_heads, head_dim };
        let tokens = sequences * sequence_length;
        let mut bytes = 0;
        let mut place = |rows: usize, cols: usize, dtype: Dtype| {
            let tensor = Tensor::new(bytes, rows, cols, dtype);
            bytes = (bytes + tensor.span_bytes()).next_multiple_of(256);
            tensor
        };
        let [q_cols, kv_cols] = [heads, kv_heads].map(|heads| heads * head_dim);
        // As a layer has them: queries, keys and values of a token side by side.
        let all = place(tokens, q_cols + 2 * kv_cols, dtype);
        let gradients = place(tokens, q_cols + 2 * kv_cols, dtype);
        let columns = |of: Tensor, first: usize, cols: usize| {
            let offset_bytes = of.offset_bytes + first * of.dtype.size_bytes();
            Tensor { offset_bytes, cols, ..of }
        };
        let parts = |of| {
            [(0, q_cols), (q_cols, kv_cols), (q_cols + kv_cols, kv_cols)].map(|(first, cols)| columns(of, first, cols))
        };
        let ([q, k, v], [dq, dk, dv]) = (parts(all), parts(gradients));
        let operands = AttentionOperands {
            places: None,
            shape,
            q,
            k,
            v,
            visible: place(tokens, 2, Dtype::I32),
            window: None,
            scale: 1.0 / (head_dim as f32).sqrt(),
            soft_cap: None,
            alibi: None,
            dropout: None,
            out: place(tokens, q_cols, dtype),
            log_sum_exp: place(tokens, heads, Dtype::F32),
        };
        let dout = place(tokens, q_cols, dtype);
        let key_sums = place(2 * tokens * kv_heads, head_dim, Dtype::F32);
        Attend { shape, operands, gradients: AttentionGradients { dout, dq, dk, dv, key_sums }, bytes }
    }

    fn forward(&self) -> Op {
        Op::Attention { operands: self.operands }
    }

    fn backward(&self) -> Op {
        Op::AttentionBackward { operands: self.operands, gradients: self.gradients }
    }

    /// Queries, keys, values and gradients of outputs at random.
    fn begin(&self, device: &dyn Device) -> Result<(), Failed> {
        let length = self.shape.sequence_length;
        let tokens = self.shape.sequences * length;
        let visible: Vec<u8> =
            (0..tokens).flat_map(|token| [0, (token % length) as i32 + 1]).flat_map(i32::to_le_bytes).collect();
        let tensor = self.operands.visible;
        device.write(Tensor { rows: 1, cols: 2 * tokens, row_stride: 2 * tokens, ..tensor }, &visible)?;
        for (parameter, out) in
            [self.operands.q, self.operands.k, self.operands.v, self.gradients.dout].iter().enumerate()
        {
            let (seed, parameter, out) = (1, parameter as u64, *out);
            let (first_row, first_col, global_cols) = (0, 0, out.cols);
            let op = Op::InitializeNormal { out, seed, parameter, std: 1.0, first_row, first_col, global_cols };
            device.submit(Stream::Compute, &op)?;
        }
        Ok(device.synchronize()?)
    }
}

fn name(shape: AttentionShape) -> String {
    let AttentionShape { sequences, sequence_length, heads, kv_heads, head_dim } = shape;
    format!("{sequences} x {sequence_length} tokens, {heads} heads, {kv_heads} of keys, {head_dim} channels")
}

/// Fails where a result is not that of the CPU.
fn compare(attention: &Attend, cpu: &CpuDevice, cuda: &CudaDevice) -> Result<(), Failed> {
    let results = |device: &dyn Device| -> Result<Vec<Vec<u8>>, Failed> {
        attention.begin(device)?;
        device.submit(Stream::Compute, &attention.forward())?;
        device.submit(Stream::Compute, &attention.backward())?;
        device.synchronize()?;
        let tokens = attention.operands.q.rows;
        let AttentionGradients { dq, .. } = attention.gradients;
        // Gradients of queries, keys and values are side by side.
        let gradients = Tensor { cols: dq.row_stride, ..dq };
        [attention.operands.out, attention.operands.log_sum_exp, gradients]
            .iter()
            .map(|tensor| {
                let mut bytes = vec![0; tokens * tensor.cols * tensor.dtype.size_bytes()];
                device.read(*tensor, &mut bytes)?;
                Ok(bytes)
            })
            .collect()
    };
    let (expected, got) = (results(cpu)?, results(cuda)?);
    let equal: Vec<bool> = expected.iter().zip(&got).map(|(expected, got)| expected == got).collect();
    let verdict = if equal.iter().all(|equal| *equal) { "the bits of the CPU" } else { "OTHER BITS than the CPU" };
    println!("{}: {verdict} (outputs, log-sum-exps, gradients: {equal:?})", name(attention.shape));
    Ok(())
}

/// Prints the speed of both passes.
fn measure(attention: &Attend, device: &CudaDevice) -> Result<(), Failed> {
    let AttentionShape { sequences, sequence_length: length, heads, head_dim, .. } = attention.shape;
    let pairs = (sequences * heads * length) as f64 * (length + 1) as f64 / 2.0;
    for (pass, op, products) in [("forward", attention.forward(), 2.0), ("backward", attention.backward(), 5.0)] {
        let flops = 2.0 * products * pairs * head_dim as f64;
        let seconds = |count: usize| -> Result<f64, Failed> {
            device.synchronize()?;
            let start = Instant::now();
            for _ in 0..count {
                device.submit(Stream::Compute, &op)?;
            }
            device.synchronize()?;
            Ok(start.elapsed().as_secs_f64() / count as f64)
        };
        seconds(3)?;
        let count = (SECONDS / seconds(3)?).ceil().clamp(1.0, 2000.0) as usize;
        let best = (0..3).map(|_| seconds(count.div_ceil(3))).collect::<Result<Vec<_>, _>>()?;
        let best = best.into_iter().fold(f64::INFINITY, f64::min);
        let (ms, speed) = (1e3 * best, flops / best / 1e12);
        println!("{}, {pass}: {ms:.3} ms, {speed:.0} TFLOP/s", name(attention.shape));
    }
    Ok(())
}
