//! A device that computes every operation by plain loops in double precision.
//!
//! Each four bytes of the arena are one `f64`, so that central differences are exact to about ten digits; an I64 is the
//! first of its two cells. Memory starts as NaN: what is read before it is written shows.

#![allow(clippy::wildcard_enum_match_arm, reason = "`compute` matches all operations and sends each module its own")]

mod activation;
mod attention;
mod balance;
mod communicator;
mod dense;
mod experts;
mod loss;
mod norm;
mod random;

use std::cell::RefCell;

use device::{Device, DeviceError, Dtype, Op, Stream, StreamEvent, StreamQueues, Tensor};

pub use communicator::{Exchange, ReferenceCommunicator};
pub use random::uniform;

/// The cells of an arena.
pub struct Memory {
    cells: Vec<f64>,
}

impl Memory {
    fn place(tensor: Tensor, row: usize, col: usize) -> usize {
        assert!(row < tensor.rows && col < tensor.cols, "({row}, {col}) of {tensor:?}");
        let cells_per_element = tensor.dtype.size_bytes() / 4;
        tensor.offset_bytes / 4 + (row * tensor.row_stride + col) * cells_per_element
    }

    fn get(&self, tensor: Tensor, row: usize, col: usize) -> f64 {
        self.cells[Memory::place(tensor, row, col)]
    }

    fn set(&mut self, tensor: Tensor, row: usize, col: usize, value: f64) {
        self.cells[Memory::place(tensor, row, col)] = value;
    }

    fn add(&mut self, tensor: Tensor, row: usize, col: usize, value: f64) {
        self.cells[Memory::place(tensor, row, col)] += value;
    }

    fn integer(&self, tensor: Tensor, row: usize, col: usize) -> i64 {
        let value = self.get(tensor, row, col);
        assert!(value.fract() == 0.0, "{value} is not an integer in {tensor:?}");
        value as i64
    }

    /// Elements row by row.
    fn values(&self, tensor: Tensor) -> Vec<f64> {
        (0..tensor.rows)
            .flat_map(|row| (0..tensor.cols).map(move |col| (row, col)))
            .map(|(r, c)| self.get(tensor, r, c))
            .collect()
    }

    fn assign(&mut self, tensor: Tensor, values: &[f64]) {
        assert_eq!(values.len(), tensor.len(), "{tensor:?}");
        for (index, value) in values.iter().enumerate() {
            self.set(tensor, index / tensor.cols, index % tensor.cols, *value);
        }
    }
}

/// See the module's documentation.
pub struct ReferenceDevice {
    memory: RefCell<Memory>,
}

impl ReferenceDevice {
    /// An arena of NaN.
    pub fn new(arena_bytes: usize) -> ReferenceDevice {
        ReferenceDevice { memory: RefCell::new(Memory { cells: vec![f64::NAN; arena_bytes.div_ceil(4)] }) }
    }

    /// Elements of any tensor, row by row.
    pub fn values(&self, tensor: Tensor) -> Vec<f64> {
        self.memory.borrow().values(tensor)
    }

    /// Assigns all elements, row by row.
    pub fn assign(&self, tensor: Tensor, values: &[f64]) {
        self.memory.borrow_mut().assign(tensor, values);
    }

    /// Overwrites a range of bytes with NaN.
    pub fn poison(&self, bytes: std::ops::Range<usize>) {
        self.memory.borrow_mut().cells[bytes.start / 4..bytes.end / 4].fill(f64::NAN);
    }

    fn compute(&self, op: &Op) -> Result<(), DeviceError> {
        let memory = &mut *self.memory.borrow_mut();
        match *op {
            Op::MatMul { .. }
            | Op::ColumnSum { .. }
            | Op::Accumulate { .. }
            | Op::ScaledSum { .. }
            | Op::Fill { .. }
            | Op::Copy { .. }
            | Op::EmbeddingLookup { .. }
            | Op::EmbeddingBackward { .. } => dense::run(memory, op),
            Op::Norm { .. } | Op::NormBackwardInput { .. } | Op::NormBackwardWeight { .. } => norm::run(memory, op),
            Op::RotaryTable { .. } | Op::Rotary { .. } | Op::Attention { .. } | Op::AttentionBackward { .. } => {
                attention::run(memory, op);
            }
            Op::Activation { .. } | Op::ActivationBackward { .. } => activation::run(memory, op),
            Op::Experts(ref op) => experts::run(memory, op),
            Op::Balance(ref op) => balance::run(memory, op),
            Op::MatMulActivation { .. } | Op::MatMulActivationBackward { .. } => {
                return Err(DeviceError::Shape { op: op.name(), what: "is computed as two others".into() });
            }
            Op::DropoutAdd { .. } | Op::DropoutBackward { .. } | Op::InitializeNormal { .. } => {
                random::run(memory, op);
            }
            Op::SoftCap { .. }
            | Op::SoftCapBackward { .. }
            | Op::RowMax { .. }
            | Op::SumExp { .. }
            | Op::CrossEntropy { .. }
            | Op::LossSum { .. } => loss::run(memory, op),
            Op::JoinAttention { .. } => {
                return Err(DeviceError::Shape { op: op.name(), what: "no layer here shares sequences".into() });
            }
            Op::AddRounded { .. } | Op::RoundedToSingle { .. } => {
                return Err(DeviceError::Shape { op: op.name(), what: "rounds, and this device does not".into() });
            }
            Op::SquaredSum { .. } | Op::ClipCoefficient { .. } | Op::AdamW { .. } => {
                return Err(DeviceError::Shape { op: op.name(), what: "is not an operation of a layer".into() });
            }
        }
        Ok(())
    }
}

impl Device for ReferenceDevice {
    fn submit(&self, _stream: Stream, op: &Op) -> Result<(), DeviceError> {
        op.unfused().try_for_each(|op| self.compute(&op))
    }

    fn write(&self, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        assert_eq!((from.len(), to.dtype), (to.size_bytes(), Dtype::I32));
        let values: Vec<f64> = from
            .chunks(4)
            .map(|bytes| f64::from(i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])))
            .collect();
        self.assign(to, &values);
        Ok(())
    }

    fn read(&self, _from: Tensor, _to: &mut [u8]) -> Result<(), DeviceError> {
        Err(DeviceError::Shape { op: "read", what: "use `values`".into() })
    }

    fn upload(&self, _stream: Stream, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.write(to, from)
    }

    /// Everything has ended when it is submitted.
    fn record(&self, stream: Stream) -> StreamEvent {
        StreamQueues::default().record(stream)
    }

    fn reached(&self, _event: StreamEvent) -> Option<std::time::Instant> {
        None
    }

    fn wait(&self, _stream: Stream, _event: StreamEvent) -> Result<(), DeviceError> {
        Ok(())
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}
