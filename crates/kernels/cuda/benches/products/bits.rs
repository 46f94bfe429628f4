//! Products by `mma.sync` against those of the CPU.

use std::path::Path;
use std::sync::Arc;

use config::Products;
use cpu::CpuDevice;
use cuda::CudaDevice;
use cuda::code::CompiledSource;
use cuda::kernels::SOURCES;
use device::{Arena, Bf16, Device, Dtype, Element, F16, Op, Orientation, Stream, Tensor, Write};
use gpu::Gpu;

use crate::{Failed, kernels};

const ARENA_BYTES: usize = 24 << 20;

/// Compares small products of every orientation and type.
pub fn compare_with_cpu(gpu: &Arc<dyn Gpu>, folder: &Path) -> Result<(), Failed> {
    let products = if gpu.facts().capability.major < 9 { Products::Blocks8 } else { Products::Blocks16 };
    let source = *SOURCES.iter().find(|source| source.name == "mat_mul_blocks").ok_or("no such source")?;
    let code = [CompiledSource { source, code: kernels::packed(folder, source.name)? }];
    let cuda = CudaDevice::open(Arc::clone(gpu), &code, ARENA_BYTES)?.with_products(products);
    let cpu = CpuDevice::new(Arc::new(Arena::new(ARENA_BYTES)?))?.with_products(products);
    let (mut equal, mut all) = (0, 0);
    for orientation in [Orientation::Nt, Orientation::Nn, Orientation::Tn] {
        for dtype in [Dtype::Bf16, Dtype::F16] {
            for ([m, n, k], gap) in [([200, 264, 520], 0), ([67, 45, 131], 3), ([130, 136, 9000], 0)] {
                let (a, b) = match orientation {
                    Orientation::Nt => ([m, k], [n, k]),
                    Orientation::Nn => ([m, k], [k, n]),
                    Orientation::Tn => ([k, m], [k, n]),
                };
                let mut used = 0;
                let mut place = |[rows, cols]: [usize; 2], dtype: Dtype| {
                    let tensor = Tensor { row_stride: cols + gap, ..Tensor::new(used, rows, cols, dtype) };
                    used = (used + rows * (cols + gap) * dtype.size_bytes()).next_multiple_of(256);
                    tensor
                };
                let (a, b, out) = (place(a, dtype), place(b, dtype), place([m, n], Dtype::F32));
                let bytes = numbers(dtype, used);
                let op = Op::MatMul { orientation, a, b, bias: None, out, write: Write::Assign };
                all += 1;
                let results = [run(&cpu, &bytes, &op)?, run(&cuda, &bytes, &op)?];
                if results[0] == results[1] {
                    equal += 1;
                } else {
                    println!("{op:?} has other bits than on the CPU");
                }
            }
        }
    }
    println!("mma.sync: {equal} of {all} products have the bits of the CPU");
    Ok(())
}

/// Numbers of a type from -2 to 2.
fn numbers(dtype: Dtype, bytes: usize) -> Vec<u8> {
    let mut state = 1u64;
    let number = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let value = (state >> 40) as f32 / (1 << 22) as f32 - 2.0;
        if dtype == Dtype::Bf16 { Bf16::narrow(value).0.to_le_bytes() } else { F16::narrow(value).0.to_le_bytes() }
    };
    (0..bytes / 2).flat_map(number).collect()
}

fn run(device: &dyn Device, bytes: &[u8], op: &Op) -> Result<Vec<u8>, Failed> {
    let all = Tensor::new(0, 1, bytes.len() / 4, Dtype::I32);
    device.write(all, bytes)?;
    device.submit(Stream::Compute, op)?;
    device.synchronize()?;
    let mut result = vec![0; bytes.len()];
    device.read(all, &mut result)?;
    Ok(result)
}
