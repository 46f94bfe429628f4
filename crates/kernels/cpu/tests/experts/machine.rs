//! A device whose operands are rows of experts.

use std::sync::Arc;

use config::Products;
use cpu::CpuDevice;
use cpu::instruction_set::InstructionSet;
use device::{Arena, Device, Dtype, ExpertOp, ExpertRows, Frame, Op, Stream, Tensor};

use super::rows::Routed;
use crate::kernels::support::random;

const ARENA_BYTES: usize = 16 << 20;

/// How a device computes.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    pub set: InstructionSet,
    pub threads: usize,
    pub products: Products,
    /// The type of activations and parameters.
    pub stored: Dtype,
}

impl Way {
    /// Every order of products with the types that it multiplies, on one thread.
    pub fn all() -> impl Iterator<Item = Way> {
        let orders = [
            (Products::Chained, Dtype::F32),
            (Products::Chained, Dtype::Bf16),
            (Products::Chained, Dtype::F16),
            (Products::Pairs, Dtype::F32),
            (Products::Pairs, Dtype::Bf16),
            (Products::Blocks16, Dtype::Bf16),
            (Products::Blocks8, Dtype::F16),
        ];
        let set = InstructionSet::detect();
        orders.into_iter().map(move |(products, stored)| Way { set, threads: 1, products, stored })
    }
}

/// Lays out operands and runs operations on them.
pub struct Machine {
    pub device: CpuDevice,
    frame: Frame,
    way: Way,
}

impl Machine {
    pub fn new(way: Way) -> Machine {
        let arena = Arc::new(Arena::new(ARENA_BYTES).expect("memory"));
        let device = CpuDevice::with_instruction_set(arena, way.set).expect("memory").with_products(way.products);
        let device = device.with_threads(way.threads, &[]).expect("threads");
        Machine { device, frame: Frame::new(0, ARENA_BYTES), way }
    }

    /// Random numbers, which are others for each tensor.
    pub fn of_type(&self, rows: usize, cols: usize, dtype: Dtype) -> Tensor {
        let tensor = self.frame.tensor(rows, cols, dtype);
        self.write(tensor, &random(&format!("at {}", tensor.offset_bytes), rows * cols, 1.0));
        tensor
    }

    /// Random numbers of the stored type.
    pub fn stored(&self, rows: usize, cols: usize) -> Tensor {
        self.of_type(rows, cols, self.way.stored)
    }

    /// A tensor of which every number is NaN: what is written is seen, and what is read spreads.
    pub fn poison(&self, rows: usize, cols: usize, dtype: Dtype) -> Tensor {
        let tensor = self.frame.tensor(rows, cols, dtype);
        self.write(tensor, &vec![f32::NAN; rows * cols]);
        tensor
    }

    /// Poison of the stored type.
    pub fn stored_poison(&self, rows: usize, cols: usize) -> Tensor {
        self.poison(rows, cols, self.way.stored)
    }

    pub fn ints(&self, rows: usize, values: &[i32]) -> Tensor {
        let tensor = self.frame.tensor(rows, values.len() / rows, Dtype::I32);
        self.device.write(tensor, bytemuck::cast_slice(values)).expect("in the arena");
        tensor
    }

    pub fn write(&self, tensor: Tensor, values: &[f32]) {
        device::write_floats(&self.device, tensor, values).expect("in the arena");
    }

    pub fn read(&self, tensor: Tensor) -> Vec<f32> {
        device::read_floats(&self.device, tensor).expect("in the arena")
    }

    /// Everything in memory.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.frame.used_bytes()];
        self.device.read(Tensor::new(0, 1, bytes.len() / 4, Dtype::F32), &mut bytes).expect("in the arena");
        bytes
    }

    pub fn submit(&self, op: impl Into<Op>) {
        let op = op.into();
        self.device.submit(Stream::Compute, &op).unwrap_or_else(|error| panic!("{op:?}: {error}"));
    }

    /// Rows of experts `first..first + experts`, sorted by the device, with room for some more.
    pub fn rows(&self, choice: Tensor, routed: &Routed, first: usize, experts: usize) -> ExpertRows {
        let of_rank = |expert: &&i32| (first..first + experts).contains(&(**expert as usize));
        let expected = routed.choice.iter().filter(of_rank).count();
        let rows = ExpertRows {
            places: self.ints(routed.tokens, &vec![-9; routed.choice.len()]),
            slots: self.ints(1, &vec![-9; routed.choice.len() + 3]),
            offsets: self.ints(1, &vec![-9; experts + 1]),
            expected,
        };
        self.submit(ExpertOp::GroupRows { choice, first_expert: first, rows });
        rows
    }
}
