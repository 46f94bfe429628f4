//! Two devices next to each other: the CPU, and a GPU in software that runs what NVRTC makes of the kernels. An
//! operation is submitted to both on the same bytes, and afterwards all bytes of both arenas must be equal.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use config::Products;
use cpu::CpuDevice;
use cuda::code::{CompiledSource, compile};
use cuda::kernels::SOURCES;
use cuda::{CudaDevice, ProductTile};
use device::{Arena, Device, Dtype, Op, Stream, Tensor};
use gpu::{Capability, Gpu};
use nvidia::Search;
use nvidia::nvrtc::{Cache, Compiler, Target};
use softgpu::{Checks, Settings};

use crate::operations::case::{Case, STORED};
use crate::operations::declared::Declared;

/// Bytes of both arenas.
pub const ARENA_BYTES: usize = 16 << 20;

/// Of code without products in blocks: that of archives, which tests of all crates compile once.
pub const TARGET: &str = "compute_90a";

/// Of the code that all GPUs run.
const OLDEST_TARGET: &str = "compute_80";

/// The most instructions of warps of a launch: no case needs as many, and who loops forever is stopped there.
const MOST_INSTRUCTIONS: u64 = 1_000_000_000;

/// In the message of a GPU without a kernel that an operation needs.
const NOT_LOADED: &str = "is in no source that was loaded";

/// Two devices. After the first difference nothing is compared any more.
pub struct Bench {
    cpu: CpuDevice,
    gpu: Arc<Declared>,
    cuda: CudaDevice,
    purpose: Purpose,
    first: RefCell<Option<String>>,
}

/// The purpose of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Kernels as they are.
    Test,
    /// Kernels with a fault.
    Hunt(Loaded),
}

/// Which kernels of the sources that cases use a GPU has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loaded {
    All,
    /// Operations whose kernels it does not have are not compared.
    Some,
}

/// Cases that a bench compares.
pub type Cases = fn(&Bench);

/// The order of products of both devices, and the GPU whose tensor cores have it.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    pub products: Products,
    pub capability: Capability,
    /// Of the code.
    pub target: &'static str,
    /// Of the GPU: kernels choose their tiles by them.
    pub multiprocessors: u32,
    /// The tile that products by warpgroups take, where it is not the one of the kernels' own choice.
    pub tile: Option<ProductTile>,
    /// Of warps, in a launch.
    pub max_instructions: u64,
}

impl Order {
    pub const CHAINED: Order = Order { target: TARGET, ..Order::on(Products::Chained, 9) };
    pub const BLOCKS16: Order = Order::on(Products::Blocks16, 9);
    pub const BLOCKS8: Order = Order::on(Products::Blocks8, 8);
    /// With the kernels that only GPUs of compute capability 9.0 run.
    pub const BLOCKS16_OF_90: Order = Order { target: TARGET, ..Order::BLOCKS16 };
    pub const BLOCKS16_OF_ONE_90: Order = Order { multiprocessors: 1, ..Order::BLOCKS16_OF_90 };

    /// With warpgroups that multiply in turns, of a GPU on which blocks have one or two tiles each.
    pub const IN_TURNS: Order = Order { tile: Some(ProductTile::InTurnsOf128), ..Order::BLOCKS16_OF_90 };
    /// With activations in the kernels of products.
    pub const FUSED: Order = Order { tile: Some(ProductTile::Fused), ..Order::BLOCKS16_OF_90 };
    pub const FUSED_OF_ONE: Order = Order { multiprocessors: 1, ..Order::FUSED };
    /// The same by warps, in tiles of 64.
    pub const FUSED_BY_WARPS: Order = Order { tile: Some(ProductTile::Fused), multiprocessors: 64, ..Order::BLOCKS16 };
    /// In tiles of 128.
    pub const FUSED_BY_WARPS_OF_ONE: Order = Order { multiprocessors: 1, ..Order::FUSED_BY_WARPS };
    pub const FUSED_IN_BLOCKS8: Order = Order { tile: Some(ProductTile::Fused), ..Order::BLOCKS8 };
    /// On a GPU whose block has all tiles.
    pub const IN_TURNS_OF_ONE: Order = Order { multiprocessors: 1, ..Order::IN_TURNS };

    const fn on(products: Products, major: u32) -> Order {
        let capability = Capability { major, minor: 0 };
        let (target, max_instructions) = (OLDEST_TARGET, MOST_INSTRUCTIONS);
        Order { products, capability, target, multiprocessors: 4, tile: None, max_instructions }
    }
}

/// Asserts the same as [`assert_same`], with products in this order.
pub fn assert_same_in(order: Order, sources: &[&str], cases: Cases) {
    let code = code_for(order.target, sources);
    let bench = Bench::in_order(order, &code, Checks::default());
    cases(&bench);
    if let Some(difference) = bench.first_difference() {
        panic!("{order:?}: {difference}");
    }
}

/// Compares all cases with the kernels of the named sources.
pub fn assert_same(sources: &[&str], cases: Cases) {
    let bench = Bench::of(sources);
    cases(&bench);
    if let Some(difference) = bench.first_difference() {
        panic!("{difference}");
    }
}

/// NVRTC of the folder in PLEACH_CUDA.
pub fn compiler() -> Compiler {
    let folder = std::env::var_os("PLEACH_CUDA").expect("PLEACH_CUDA must name a folder with NVRTC");
    Compiler::open(&Search::only([PathBuf::from(folder)])).expect("NVRTC in PLEACH_CUDA")
}

/// The code of the named sources.
pub fn code(names: &[&str]) -> Vec<CompiledSource> {
    code_for(TARGET, names)
}

/// The code of a source for a target, once one thread has read or compiled it.
type Kept = Arc<OnceLock<CompiledSource>>;

/// The code of the named sources for a target. Test programs of all crates keep theirs in one folder.
pub fn code_for(target: &str, names: &[&str]) -> Vec<CompiledSource> {
    static KEPT: LazyLock<Mutex<HashMap<String, Kept>>> = LazyLock::new(Mutex::default);
    let compiler = compiler();
    let cache = Cache::in_folder(std::env::temp_dir().join("pleach-of-tests/pleach/kernels"));
    let parsed: Target = target.parse().expect("a target");
    let of = |name: &&str| {
        let kept = Arc::clone(KEPT.lock().expect("no panic").entry(format!("{name} {target}")).or_default());
        let source = *SOURCES.iter().find(|source| source.name == *name).expect("a source");
        kept.get_or_init(|| compile(&compiler, &cache, &source, &parsed).expect("compiled")).clone()
    };
    names.iter().map(of).collect()
}

impl Bench {
    /// Devices with the kernels of the named sources.
    pub fn of(names: &[&str]) -> Bench {
        Bench::with_code(&code(names), Checks::default())
    }

    /// Devices with these kernels, on a GPU with these checks.
    pub fn with_code(code: &[CompiledSource], checks: Checks) -> Bench {
        Bench::in_order(Order::CHAINED, code, checks)
    }

    /// Devices with these kernels and products in this order, on a GPU with these checks.
    pub fn in_order(order: Order, code: &[CompiledSource], checks: Checks) -> Bench {
        let Order { products, capability, target: _, multiprocessors, tile, max_instructions } = order;
        let gpu = Declared::new(Settings {
            checks,
            capability,
            multiprocessors,
            max_warp_instructions: max_instructions,
            ..Settings::default()
        });
        let shared: Arc<dyn Gpu> = Arc::clone(&gpu) as _;
        let cuda = CudaDevice::open(shared, code, ARENA_BYTES).expect("a device").with_products(products);
        let cuda = match tile {
            Some(tile) => cuda.with_tile(tile),
            None => cuda,
        };
        let cpu =
            CpuDevice::new(Arc::new(Arena::new(ARENA_BYTES).expect("memory"))).expect("memory").with_products(products);
        Bench { cpu, gpu, cuda, purpose: Purpose::Test, first: RefCell::new(None) }
    }

    /// The same devices, of which the GPU has these kernels, one of them with a fault.
    pub fn hunting(self, loaded: Loaded) -> Bench {
        Bench { purpose: Purpose::Hunt(loaded), ..self }
    }

    /// Types in which a case of this seed is compared where all are costly: one, and all to find a fault.
    pub fn types_of(&self, seed: u64) -> Vec<Dtype> {
        match self.purpose {
            Purpose::Test => vec![STORED[seed as usize % STORED.len()]],
            Purpose::Hunt(_) => STORED.to_vec(),
        }
    }

    /// Runs `op` on both devices on the bytes of `case`, and keeps the first difference of all.
    pub fn compare(&self, case: &Case, op: &Op) {
        self.compare_all(case, &[*op]);
    }

    /// Compares as [`Bench::compare`] does, for operations one after the other.
    pub fn compare_all(&self, case: &Case, ops: &[Op]) {
        let mut first = self.first.borrow_mut();
        if first.is_none() {
            *first = self.difference(case, ops).map(|difference| format!("{ops:?}: {difference}"));
        }
    }

    /// The first difference of all that were compared.
    pub fn first_difference(&self) -> Option<String> {
        self.first.borrow().clone()
    }

    /// Runs operations one after the other on both devices on the bytes of `case`; the first difference, if there
    /// is one. Operations that fail are one, also where both devices say the same: nothing was compared.
    pub fn difference(&self, case: &Case, ops: &[Op]) -> Option<String> {
        let (expected, got) = (run(&self.cpu, case, ops, |_| {}), self.run(case, ops));
        let (expected, got) = match (expected, got) {
            (Ok(expected), Ok(got)) => (expected, got),
            (Ok(_), Err(error)) if error.contains(NOT_LOADED) => match self.purpose {
                Purpose::Test | Purpose::Hunt(Loaded::All) => panic!("the bench lacks a source: {error}"),
                Purpose::Hunt(Loaded::Some) => return None,
            },
            (expected, got) => {
                let text = |result: Result<Vec<u8>, String>| result.map_or_else(|error| error, |_| "ran".into());
                return Some(format!("the CPU: {}; the GPU: {}", text(expected), text(got)));
            }
        };
        first_difference(ops, &expected, &got)
    }

    /// The message of both devices for an operation that they refuse.
    ///
    /// # Panics
    /// A device does not refuse it, or the messages differ.
    pub fn refusal(&self, case: &Case, op: &Op) -> String {
        let refused = run(&self.cpu, case, &[*op], |_| {}).expect_err("the CPU refuses the operation");
        assert_eq!(self.failure(case, op), refused, "{op:?}");
        refused
    }

    /// The message of the GPU for an operation that fails.
    pub fn failure(&self, case: &Case, op: &Op) -> String {
        match self.run(case, &[*op]) {
            Ok(_) => "ran".into(),
            Err(error) => error,
        }
    }

    /// The memory that the GPU leaves, whose kernels use the operations' tensors and nothing else.
    fn run(&self, case: &Case, ops: &[Op]) -> Result<Vec<u8>, String> {
        run(&self.cuda, case, ops, |op| self.gpu.expect(op, self.cuda.arena()))
    }
}

/// All bytes after the operations, or what the device said.
fn run(device: &dyn Device, case: &Case, ops: &[Op], announce: impl Fn(&Op)) -> Result<Vec<u8>, String> {
    let all = Tensor::new(0, 1, case.bytes().len() / 4, Dtype::I32);
    device.write(all, case.bytes()).map_err(|error| error.to_string())?;
    for op in ops {
        announce(op);
        device.submit(Stream::Compute, op).map_err(|error| error.to_string())?;
    }
    device.synchronize().map_err(|error| error.to_string())?;
    let mut bytes = vec![0; case.bytes().len()];
    device.read(all, &mut bytes).expect("read");
    Ok(bytes)
}

/// The memory that an operation may leave with any contents.
fn free_memory(op: &Op) -> Option<Tensor> {
    if let Op::MatMulActivationBackward { dy, .. } = *op { Some(dy) } else { None }
}

/// The first place where the bytes differ. Of a NaN in a written tensor of real numbers the payload is left to the
/// device: it depends on the instruction set on CPUs, too.
fn first_difference(ops: &[Op], expected: &[u8], got: &[u8]) -> Option<String> {
    let written: Vec<Tensor> = ops.iter().flat_map(|op| op.operands().writes().collect::<Vec<_>>()).collect();
    let free: Vec<Tensor> = ops.iter().filter_map(free_memory).collect();
    let at = |bytes: &[u8], place: usize, size: usize| -> u64 {
        bytes[place..place + size].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
    };
    let mut place = 0;
    while place < expected.len() {
        let next = expected.len().min(place + 64);
        if expected[place..next] == got[place..next] {
            place = next;
            continue;
        }
        let tensor = written.iter().find(|tensor| holds(tensor, place));
        let (dtype, size) = tensor.map_or((Dtype::I32, 2), |tensor| (tensor.dtype, tensor.dtype.size_bytes()));
        // After elements of another size, the place can be inside of an element.
        place -= tensor.map_or(0, |tensor| (place - tensor.offset_bytes) % size);
        let words = [expected, got].map(|bytes| at(bytes, place, size));
        let is_free = free.iter().any(|tensor| holds(tensor, place));
        if words[0] != words[1] && !is_free && !words.iter().all(|word| is_nan(dtype, *word)) {
            let name = tensor.map_or("bytes that the operation does not write".into(), |t| element(t, place));
            return Some(format!("{name} at byte {place}: the CPU has {:#x}, the GPU {:#x}", words[0], words[1]));
        }
        place += size;
    }
    None
}

/// Whether an element of the tensor begins or is at this place.
fn holds(tensor: &Tensor, place: usize) -> bool {
    let Some(distance) = place.checked_sub(tensor.offset_bytes) else { return false };
    let element = distance / tensor.dtype.size_bytes();
    tensor.bytes().contains(&place) && element % tensor.row_stride.max(1) < tensor.cols
}

fn element(tensor: &Tensor, place: usize) -> String {
    let element = (place - tensor.offset_bytes) / tensor.dtype.size_bytes();
    let stride = tensor.row_stride.max(1);
    format!("row {}, column {} of {tensor:?}", element / stride, element % stride)
}

fn is_nan(dtype: Dtype, word: u64) -> bool {
    match dtype {
        Dtype::F32 => f32::from_bits(word as u32).is_nan(),
        Dtype::Bf16 => f32::from_bits((word as u32) << 16).is_nan(),
        Dtype::F16 => word & 0x7fff > 0x7c00,
        Dtype::I32 | Dtype::I64 => false,
    }
}
