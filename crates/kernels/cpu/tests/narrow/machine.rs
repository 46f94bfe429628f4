//! A device whose operands are stored in the type under test, or in single precision with the same values.

use std::sync::Arc;

use cpu::CpuDevice;
use cpu::instruction_set::InstructionSet;
use device::{Arena, Bf16, Device, Dtype, Element, F16, Frame, Op, Stream, Tensor};

/// `value` rounded to `dtype`.
pub fn rounded(value: f32, dtype: Dtype) -> f32 {
    match dtype {
        Dtype::F32 => value,
        Dtype::Bf16 => Bf16::narrow(value).widen(),
        Dtype::F16 => F16::narrow(value).widen(),
        Dtype::I32 | Dtype::I64 => panic!("{dtype:?}"),
    }
}

/// Lays out operands and runs operations on them.
pub struct Machine {
    device: CpuDevice,
    frame: Frame,
    /// The type that is tested: stored values are numbers of it.
    narrow: Dtype,
    /// The type that stored operands have.
    stored: Dtype,
    /// Counts operands: each has values of its own.
    seed: u32,
}

impl Machine {
    fn new(set: InstructionSet, narrow: Dtype, stored: Dtype) -> Machine {
        const BYTES: usize = 8 << 20;
        let arena = Arc::new(Arena::new(BYTES).expect("memory"));
        let device = CpuDevice::with_instruction_set(arena, set).expect("memory");
        Machine { device, frame: Frame::new(0, BYTES), narrow, stored, seed: 0 }
    }

    fn random(&mut self, len: usize) -> Vec<f32> {
        self.seed += 1;
        let word = |i: usize| philox::philox4x32_10([i as u32, self.seed, 0, 0], [7, 11])[0];
        (0..len).map(|i| philox::half_open_f32(word(i)) * 2.0 - 1.0).collect()
    }

    /// An operand of the stored type.
    pub fn stored(&mut self, rows: usize, cols: usize) -> Tensor {
        let values: Vec<f32> = self.random(rows * cols).into_iter().map(|value| rounded(value, self.narrow)).collect();
        self.put(rows, cols, self.stored, &values)
    }

    /// An operand in single precision.
    pub fn single(&mut self, rows: usize, cols: usize) -> Tensor {
        let values = self.random(rows * cols);
        self.put(rows, cols, Dtype::F32, &values)
    }

    /// A tensor with these values.
    pub fn put(&self, rows: usize, cols: usize, dtype: Dtype, values: &[f32]) -> Tensor {
        let tensor = self.frame.tensor(rows, cols, dtype);
        device::write_floats(&self.device, tensor, values).expect("in the arena");
        tensor
    }

    /// Integers.
    pub fn ints(&self, rows: usize, values: &[i32]) -> Tensor {
        let tensor = self.frame.tensor(rows, values.len() / rows, Dtype::I32);
        self.device.write(tensor, bytemuck::cast_slice(values)).expect("in the arena");
        tensor
    }

    /// The bits of a tensor's numbers.
    pub fn bits(&self, tensor: Tensor) -> Vec<u32> {
        let row = |row| device::read_floats(&self.device, tensor.rows_of(row..row + 1)).expect("in the arena");
        (0..tensor.rows).flat_map(row).map(f32::to_bits).collect()
    }

    /// Runs one operation.
    pub fn submit(&self, op: Op) {
        self.device.submit(Stream::Compute, &op).unwrap_or_else(|error| panic!("{op:?}: {error}"));
    }
}

/// Calls `check` with a machine of each instruction set and each stored type.
pub fn on_each(check: impl Fn(&mut Machine)) {
    for stored in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
        for set in InstructionSet::available() {
            check(&mut Machine::new(set, stored, stored));
        }
    }
}

/// Holds that `run`, which returns its results, gives on every instruction set and with operands stored narrow what it
/// gives in single precision from the same values, rounded once where a result is stored: bit for bit.
///
/// The single-precision kernels are held to f64 references within their bounds elsewhere. With `e` such a bound, a
/// narrow result is therefore within `e + u (|exact| + e)`, `u` the unit roundoff of its type.
pub fn assert_rounded_once(what: &str, run: impl Fn(&mut Machine) -> Vec<Tensor>) {
    for narrow in [Dtype::Bf16, Dtype::F16] {
        let results = |set, stored| -> Vec<(Dtype, Vec<f32>)> {
            let mut machine = Machine::new(set, narrow, stored);
            let tensors = run(&mut machine);
            let read =
                |tensor: Tensor| (tensor.dtype, device::read_floats(&machine.device, tensor).expect("in the arena"));
            tensors.into_iter().map(read).collect()
        };
        let single = results(InstructionSet::Scalar, Dtype::F32);
        for set in InstructionSet::available() {
            for (index, ((dtype, actual), (_, single))) in results(set, narrow).iter().zip(&single).enumerate() {
                for (element, (actual, single)) in actual.iter().zip(single).enumerate() {
                    let expected = rounded(*single, *dtype);
                    assert!(
                        actual.to_bits() == expected.to_bits() || actual.is_nan() && expected.is_nan(),
                        "{what}, result {index} in {dtype:?} on {set:?}: element {element} is {actual:e}, not {expected:e} \
                         ({single:e} rounded)"
                    );
                }
            }
        }
    }
}
