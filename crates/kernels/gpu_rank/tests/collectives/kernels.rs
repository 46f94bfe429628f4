//! The kernels of collectives as NVRTC compiles them, on the GPU in software: whole collectives with the bits of the
//! host, and sums of any number of members, types and runs.
//! They need NVRTC in the folder of PLEACH_CUDA.

use std::path::PathBuf;
use std::sync::Arc;

use cuda::CompiledSource;
use cuda::code::OPTIONS;
use device::{Bf16, Element, F16, Stream};
use gpu::{Arguments, DevicePointer, Driver, Gpu, LaunchShape};
use gpu_rank::{COLLECTIVES, MAX_MEMBERS};
use nvidia::Search;
use nvidia::nvrtc::{Compiler, Source, Target};
use softgpu::{Settings, SoftDriver};

use crate::collectives::{Kind, devices, expected, on_gpu, values};

/// NVRTC of the folder in PLEACH_CUDA.
pub fn compiler() -> Compiler {
    let folder = std::env::var_os("PLEACH_CUDA").expect("PLEACH_CUDA must name a folder with NVRTC");
    Compiler::open(&Search::only([PathBuf::from(folder)])).expect("NVRTC in PLEACH_CUDA")
}

/// The code of a text for the oldest GPU; `None` where it does not compile.
pub fn compiled(compiler: &Compiler, text: &str) -> Option<CompiledSource> {
    let target: Target = "compute_80".parse().expect("a target");
    let made = compiler.compile(&Source::new("collectives.cu", text), &target, OPTIONS).ok()?;
    Some(CompiledSource { source: COLLECTIVES, code: made.code })
}

pub fn soft_gpu(seed: u64) -> Arc<dyn Gpu> {
    let settings = Settings { seed, max_warp_instructions: 1_000_000, ..Settings::default() };
    SoftDriver::new(1, settings).open(0).expect("a GPU")
}

#[needs::cuda]
#[test]
fn collectives_on_the_gpu_in_software_have_the_bits_of_the_host() {
    let compiler = compiler();
    let code = compiled(&compiler, &COLLECTIVES.whole()).expect("code");
    for (seed, members) in [2, 3, 4, 6].into_iter().enumerate() {
        let devices = devices(members, &soft_gpu(seed as u64));
        let done = on_gpu(&devices, &code, Kind::Peers, (Stream::Reduce, &[Stream::Reduce, Stream::Transfer]));
        assert_eq!(done, expected(members), "{members} members");
    }
}

/// A sum, or a maximum, of members.
#[derive(Clone, Copy, Debug)]
pub struct Reduced {
    pub kernel: &'static str,
    pub members: usize,
    /// Neighbours that are added first.
    pub run: usize,
    pub len: usize,
}

impl Reduced {
    fn width(self) -> usize {
        match self.kernel {
            "reduce_sum_i64" => 8,
            "reduce_sum_bf16" | "reduce_sum_f16" => 2,
            _ => 4,
        }
    }

    /// The bytes of a member: numbers of every kind in some, and sums that wrap.
    pub fn member(self, member: usize) -> Vec<u8> {
        let dtype = match self.kernel {
            "reduce_sum_i64" => device::Dtype::I64,
            "reduce_sum_bf16" => device::Dtype::Bf16,
            "reduce_sum_f16" => device::Dtype::F16,
            _ => device::Dtype::F32,
        };
        let mut bytes = values(member, self.len, dtype, self.len);
        // Some elements are of any bits: infinities, NaNs, zeros of both signs.
        for place in (0..bytes.len()).step_by(3 * self.width() + 1) {
            bytes[place] = bytes[place].wrapping_mul(31).wrapping_add(member as u8);
        }
        for place in (0..self.len).step_by(5) {
            let special: [u8; 4] = [0.0f32, -0.0, f32::INFINITY, f32::NAN][(place / 5 + member) % 4].to_le_bytes();
            if self.width() == 4 {
                bytes[4 * place..4 * place + 4].copy_from_slice(&special);
            }
        }
        bytes
    }

    /// The result in the order of `comm::collectives`: the sum of the sums of runs.
    pub fn expected(self) -> Vec<u8> {
        let all: Vec<Vec<u8>> = (0..self.members).map(|member| self.member(member)).collect();
        let element = |index: usize| {
            let place = index * self.width();
            let words: Vec<&[u8]> = all.iter().map(|bytes| &bytes[place..place + self.width()]).collect();
            match self.kernel {
                "reduce_sum_i64" => {
                    let sum = words.iter().map(|word| i64::from_le_bytes((*word).try_into().expect("8 bytes")));
                    sum.fold(0, i64::wrapping_add).to_le_bytes().to_vec()
                }
                "reduce_sum_bf16" => self.sum::<Bf16>(&words),
                "reduce_sum_f16" => self.sum::<F16>(&words),
                "reduce_sum_f32" => self.sum::<f32>(&words),
                _ => {
                    let each = words.iter().map(|word| f32::from_le_bytes((*word).try_into().expect("4 bytes")));
                    each.reduce(larger).expect("a member").to_le_bytes().to_vec()
                }
            }
        };
        (0..self.len).flat_map(element).collect()
    }

    fn sum<E: Element>(self, words: &[&[u8]]) -> Vec<u8> {
        let number = |word: &&[u8]| bytemuck::pod_read_unaligned::<E>(word).widen();
        let runs = words.chunks(self.run).map(|run| run.iter().map(number).reduce(|a, b| a + b).expect("a member"));
        bytemuck::bytes_of(&E::narrow(runs.reduce(|a, b| a + b).expect("a run"))).to_vec()
    }

    /// The result of a kernel; what the GPU says where it fails.
    pub fn on(self, gpu: &dyn Gpu, code: &CompiledSource) -> Result<Vec<u8>, String> {
        let run = || {
            let module = gpu.load(code.code.image())?;
            let kernel = gpu.function(module, self.kernel)?;
            let stream = gpu.create_stream()?;
            let bytes = self.len * self.width();
            let pinned = gpu.allocate_pinned(bytes)?;
            let mut group = vec![0; 8 * MAX_MEMBERS];
            for member in 0..self.members {
                gpu.write_pinned(pinned, 0, &self.member(member))?;
                let memory: DevicePointer = gpu.allocate(bytes)?;
                gpu.upload(stream, memory, pinned, 0, bytes)?;
                gpu.synchronize(stream)?;
                group[8 * member..8 * member + 8].copy_from_slice(&memory.0.to_le_bytes());
            }
            group.extend((self.members as u32).to_le_bytes());
            group.extend((self.run as u32).to_le_bytes());
            group.extend((self.len as u64).to_le_bytes());
            let out = gpu.allocate(bytes)?;
            let arguments = Arguments::new().with(&group).with(&out.0.to_le_bytes());
            // Fewer threads than elements in some, and more in others.
            gpu.launch(stream, kernel, LaunchShape::linear(2, 64), &arguments)?;
            gpu.download(stream, pinned, 0, out, bytes)?;
            gpu.synchronize(stream)?;
            let mut result = vec![0; bytes];
            gpu.read_pinned(pinned, 0, &mut result)?;
            Ok::<_, gpu::DriverError>(result)
        };
        run().map_err(|error| error.to_string())
    }
}

/// One not-a-number for all, and the positive zero of two zeros.
fn larger(a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() {
        f32::from_bits(0x7fc0_0000)
    } else if a == b {
        f32::from_bits(a.to_bits() & b.to_bits())
    } else {
        a.max(b)
    }
}

/// Every kernel with few and many members, runs that divide them and that do not, and lengths around its threads.
pub fn reductions() -> Vec<Reduced> {
    let shapes = [(1, 1), (2, 2), (3, 1), (5, 2), (7, 3), (8, 4), (63, 64), (64, 8)];
    let lens = [1, 31, 127, 128, 129, 300];
    let of_kernel = |kernel: &'static str| {
        let cases = shapes.into_iter().enumerate().flat_map(move |(index, (members, run))| {
            [lens[index % 6], lens[(index + 3) % 6]].map(|len| Reduced { kernel, members, run, len })
        });
        cases.collect::<Vec<_>>()
    };
    COLLECTIVES.entries.iter().flat_map(|kernel| of_kernel(kernel)).collect()
}

/// The first place where the results differ. Of a NaN the payload is left to the device.
pub fn difference(reduced: Reduced, expected: &[u8], got: &[u8]) -> Option<usize> {
    let is_nan = |word: &[u8]| match (reduced.kernel, word) {
        ("reduce_sum_f32", [a, b, c, d]) => f32::from_le_bytes([*a, *b, *c, *d]).is_nan(),
        ("reduce_sum_bf16", [a, b]) => Bf16(u16::from_le_bytes([*a, *b])).widen().is_nan(),
        ("reduce_sum_f16", [a, b]) => F16(u16::from_le_bytes([*a, *b])).widen().is_nan(),
        _ => false,
    };
    let words = expected.chunks(reduced.width()).zip(got.chunks(reduced.width()));
    let differs = |(expected, got): (&[u8], &[u8])| expected != got && !(is_nan(expected) && is_nan(got));
    words.into_iter().position(differs)
}

#[needs::cuda]
#[test]
fn sums_of_any_members_runs_and_types_have_their_bits() {
    let compiler = compiler();
    let code = compiled(&compiler, &COLLECTIVES.whole()).expect("code");
    for reduced in reductions() {
        let got = reduced.on(&*soft_gpu(0), &code).unwrap_or_else(|error| panic!("{reduced:?}: {error}"));
        assert_eq!(difference(reduced, &reduced.expected(), &got), None, "{reduced:?}");
    }
}
