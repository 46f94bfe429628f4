//! A device over a small arena, and comparisons.

use std::sync::Arc;

use cpu::CpuDevice;
use cpu::instruction_set::InstructionSet;
use device::{Arena, Device, Dtype, Frame, Op, Stream, Tensor};

use crate::vectors::file::Case;

/// u: the largest relative error of one operation.
pub const U: f64 = f32::EPSILON as f64 / 2.0;

const ARENA_BYTES: usize = 1 << 20;

/// Hands out tensors of its arena and executes operations on them.
pub struct Machine {
    device: CpuDevice,
    frame: Frame,
}

impl Machine {
    fn new(instruction_set: InstructionSet) -> Machine {
        let arena = Arc::new(Arena::new(ARENA_BYTES).expect("memory"));
        let device = CpuDevice::with_instruction_set(arena, instruction_set).expect("memory");
        Machine { device, frame: Frame::new(0, ARENA_BYTES) }
    }

    /// A tensor of `values`.
    pub fn put(&self, rows: usize, values: &[f32]) -> Tensor {
        let tensor = self.frame.floats(rows, values.len() / rows);
        self.device.write(tensor, bytemuck::cast_slice(values)).expect("inside the arena");
        tensor
    }

    /// An input of `case`, in its shape.
    pub fn input(&self, case: Case, name: &str) -> Tensor {
        self.put(case.shape(name, Dtype::F32).0, &case.floats(name))
    }

    /// A tensor of integers.
    pub fn put_ints(&self, rows: usize, values: &[i32]) -> Tensor {
        let tensor = self.frame.tensor(rows, values.len() / rows, Dtype::I32);
        self.device.write(tensor, bytemuck::cast_slice(values)).expect("inside the arena");
        tensor
    }

    /// Integers of `case`, in their shape.
    pub fn input_ints(&self, case: Case, name: &str) -> Tensor {
        self.put_ints(case.shape(name, Dtype::I32).0, &case.ints(name))
    }

    /// A tensor to be assigned: it is full of NaN, so that an element that is left out shows.
    pub fn empty(&self, rows: usize, cols: usize) -> Tensor {
        self.full(rows, cols, f32::NAN)
    }

    /// A tensor of one value.
    pub fn full(&self, rows: usize, cols: usize, value: f32) -> Tensor {
        self.put(rows, &vec![value; rows * cols])
    }

    /// Sums of zero.
    pub fn sums(&self) -> Tensor {
        let tensor = self.frame.tensor(1, device::SUM_WORDS, Dtype::I64);
        self.device.write(tensor, &[0; 8 * device::SUM_WORDS]).expect("inside the arena");
        tensor
    }

    /// Executes `op`.
    pub fn submit(&self, op: Op) {
        self.device.submit(Stream::Compute, &op).unwrap_or_else(|error| panic!("{op:?}: {error}"));
    }

    /// The elements of a tensor.
    pub fn read(&self, tensor: Tensor) -> Vec<f32> {
        let mut values = vec![0.0f32; tensor.len()];
        self.device.read(tensor, bytemuck::cast_slice_mut(&mut values)).expect("inside the arena");
        values
    }
}

/// The result of `compute`, after checking that every instruction set returns the same bits.
pub fn on_all_sets(compute: impl Fn(&Machine) -> Vec<Vec<f32>>) -> Vec<Vec<f32>> {
    let on = |set| compute(&Machine::new(set));
    let expected = on(InstructionSet::Scalar);
    let bits = |lists: &[Vec<f32>]| -> Vec<u32> { lists.iter().flatten().map(|value| value.to_bits()).collect() };
    for set in InstructionSet::available() {
        assert_eq!(bits(&on(set)), bits(&expected), "{set:?} and scalar");
    }
    expected
}

/// Holds `|actual - exact| <= bound` for every element.
pub fn assert_within(what: &str, actual: &[f32], exact: &[f64], bound: impl Fn(usize) -> f64) {
    assert_eq!(actual.len(), exact.len(), "{what}");
    let mut largest: f64 = 0.0;
    for (i, (&actual, &exact)) in actual.iter().zip(exact).enumerate() {
        let (error, bound) = ((f64::from(actual) - exact).abs(), bound(i));
        assert!(error <= bound, "{what}[{i}] = {actual:e}, PyTorch {exact:e}: error {error:e} > bound {bound:e}");
        if bound > 0.0 {
            largest = largest.max(error / bound);
        }
    }
    println!("{what}: largest error is {largest:.3} of its bound");
}
