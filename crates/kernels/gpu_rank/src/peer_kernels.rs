//! Kernels of collectives over the memory of one GPU: their source, and their launch.

use cuda::CompiledSource;
use cuda::kernels::{Instructions, Source};
use device::{DeviceError, Dtype, Reduction, SumTree, Tensor};
use gpu::{Arguments, DevicePointer, DriverError, FunctionHandle, Gpu, LaunchShape, StreamHandle};

use crate::rank_streams::driver_error;

/// The most members of a group: a kernel takes the addresses of all of them as arguments.
pub const MAX_MEMBERS: usize = 64;

/// Threads of a block.
const THREADS: u32 = 256;
/// Blocks at most: each thread takes every N-th element.
const MAX_BLOCKS: u32 = 1024;

/// The source of the kernels, in the order of [`Kernel::ALL`].
pub const COLLECTIVES: Source = Source {
    name: "collectives",
    text: include_str!("../kernels/collectives.cu"),
    entries: &["reduce_sum_f32", "reduce_sum_bf16", "reduce_sum_f16", "reduce_sum_i64", "reduce_max_f32"],
    instructions: Instructions::Common,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kernel {
    SumF32,
    SumBf16,
    SumF16,
    SumI64,
    MaxF32,
}

impl Kernel {
    /// The kernel that joins elements of this type.
    fn of(dtype: Dtype, reduction: Reduction) -> Result<Kernel, DeviceError> {
        match (dtype, reduction) {
            (Dtype::F32, Reduction::Sum(_)) => Ok(Kernel::SumF32),
            (Dtype::Bf16, Reduction::Sum(SumTree::RANK_ORDER)) => Ok(Kernel::SumBf16),
            (Dtype::F16, Reduction::Sum(SumTree::RANK_ORDER)) => Ok(Kernel::SumF16),
            (Dtype::I64, Reduction::Sum(_)) => Ok(Kernel::SumI64),
            (Dtype::F32, Reduction::Max) => Ok(Kernel::MaxF32),
            (Dtype::Bf16 | Dtype::F16, Reduction::Sum(tree)) => Err(DeviceError::Shape {
                op: "reduce",
                what: format!("the sum of {dtype:?} in {tree}; sums in runs take F32 or I64, or use rank order"),
            }),
            (Dtype::I32, _) | (Dtype::I64 | Dtype::Bf16 | Dtype::F16, Reduction::Max) => Err(DeviceError::Shape {
                op: "reduce",
                what: format!("{reduction:?} of {dtype:?}; real numbers and I64 have Sum, F32 has Max"),
            }),
        }
    }

    fn index(self) -> usize {
        match self {
            Kernel::SumF32 => 0,
            Kernel::SumBf16 => 1,
            Kernel::SumF16 => 2,
            Kernel::SumI64 => 3,
            Kernel::MaxF32 => 4,
        }
    }
}

/// The kernels, loaded on one GPU.
#[derive(Clone, Debug)]
pub struct PeerKernels {
    functions: Vec<FunctionHandle>,
}

impl PeerKernels {
    /// Loads the code of [`COLLECTIVES`]. It stays loaded as long as the GPU is open.
    ///
    /// # Errors
    /// The driver's.
    pub fn load(gpu: &dyn Gpu, code: &CompiledSource) -> Result<PeerKernels, DeviceError> {
        let load = || {
            let module = gpu.load(code.code.image())?;
            COLLECTIVES.entries.iter().map(|entry| gpu.function(module, entry)).collect::<Result<Vec<_>, _>>()
        };
        let functions = load().map_err(driver_error("load the kernels of collectives.cu"))?;
        Ok(PeerKernels { functions })
    }

    /// The launch that joins `len` elements at each of `members`, in rank order, into `out`.
    ///
    /// # Errors
    /// A type without such a reduction.
    pub(crate) fn reduction(
        &self,
        x: Tensor,
        reduction: Reduction,
        members: &[DevicePointer],
        out: DevicePointer,
    ) -> Result<impl FnOnce(&dyn Gpu, StreamHandle) -> Result<(), DriverError> + use<>, DeviceError> {
        let kernel = Kernel::of(x.dtype, reduction)?;
        let function = self.functions[kernel.index()];
        let run = match reduction {
            Reduction::Sum(tree) => tree.run_in(members.len()).map_or(members.len(), std::num::NonZeroUsize::get),
            Reduction::Max => members.len(),
        };
        let blocks = (x.len() as u64).div_ceil(u64::from(THREADS)).clamp(1, u64::from(MAX_BLOCKS));
        let arguments = Arguments::new().with(&group(members, run, x.len())).with(&out.0.to_le_bytes());
        let shape = LaunchShape::linear(blocks as u32, THREADS);
        Ok(move |gpu: &dyn Gpu, stream: StreamHandle| gpu.launch(stream, function, shape, &arguments))
    }
}

/// The struct `Members` of the kernels.
fn group(members: &[DevicePointer], run: usize, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = members.iter().flat_map(|start| start.0.to_le_bytes()).collect();
    bytes.resize(8 * MAX_MEMBERS, 0);
    bytes.extend((members.len() as u32).to_le_bytes());
    bytes.extend((run as u32).to_le_bytes());
    bytes.extend((len as u64).to_le_bytes());
    bytes
}
