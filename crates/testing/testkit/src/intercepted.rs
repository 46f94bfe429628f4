//! A device and a communicator that hand every call to a closure, which passes it on, changes it or drops it.
//!
//! The closures hold what they count in cells: a rank opens its own, on its own thread.

use std::rc::Rc;

use device::{Communicator, Device, DeviceError, DropoutKey, MemoryReader, Op, Reduction, Stream, SumTree, Tensor};
use program::PeerGroup;
use train::RankEngine;

/// Handles one operation that was submitted to a device: `(device, stream, op)`.
pub type OnOp = dyn Fn(&dyn Device, Stream, &Op) -> Result<(), DeviceError>;

/// Handles one call of a group: `(device of the rank, group, stream, call)`.
pub type OnCall = dyn Fn(&dyn Device, &dyn Communicator, Stream, Call) -> Result<(), DeviceError>;

/// One call of a communicator as a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Call {
    /// [`Communicator::all_reduce`]
    AllReduce(Tensor, Reduction),
    /// [`Communicator::reduce_scatter`]
    ReduceScatter(Tensor, SumTree),
    /// [`Communicator::all_gather`]
    AllGather(Tensor),
    /// [`Communicator::all_to_all`]
    AllToAll {
        /// The tensor that is sent.
        from: Tensor,
        /// The tensor that is filled.
        to: Tensor,
    },
    /// [`Communicator::shift`]
    Shift {
        /// The tensor that is sent.
        from: Tensor,
        /// The tensor that is filled.
        to: Tensor,
    },
    /// [`Communicator::send`]
    Send {
        /// Receiver.
        to: usize,
        /// Number of the message.
        tag: u64,
        /// The sent tensor.
        x: Tensor,
    },
    /// [`Communicator::receive`]
    Receive {
        /// Sender.
        from: usize,
        /// Number of the message.
        tag: u64,
        /// The received tensor.
        x: Tensor,
    },
}

/// A tensor that dropout masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Masked {
    /// The probabilities of attention.
    Probabilities,
    /// A block's output, before it is added to the residual stream.
    Residual,
}

/// The key of the mask that the operation draws, and what it masks.
pub fn dropout_key(op: &mut Op) -> Option<(&mut DropoutKey, Masked)> {
    if let Op::Attention { operands } | Op::AttentionBackward { operands, .. } = op {
        return operands.dropout.as_mut().map(|key| (key, Masked::Probabilities));
    }
    if let Op::DropoutAdd { dropout: Some(key), .. } | Op::DropoutBackward { dropout: key, .. } = op {
        return Some((key, Masked::Residual));
    }
    None
}

impl Call {
    /// Makes the call on `group`.
    ///
    /// # Errors
    /// The group's.
    pub fn perform(self, group: &dyn Communicator, stream: Stream) -> Result<(), DeviceError> {
        match self {
            Call::AllReduce(x, reduction) => group.all_reduce(stream, x, reduction),
            Call::ReduceScatter(x, tree) => group.reduce_scatter(stream, x, tree),
            Call::AllGather(x) => group.all_gather(stream, x),
            Call::AllToAll { from, to } => group.all_to_all(stream, from, to),
            Call::Shift { from, to } => group.shift(stream, from, to),
            Call::Send { to, tag, x } => group.send(stream, to, tag, x),
            Call::Receive { from, tag, x } => group.receive(stream, from, tag, x),
        }
    }
}

/// The same rank, every operation handed to `on_op`.
pub fn intercept_ops(
    rank: RankEngine,
    on_op: impl Fn(&dyn Device, Stream, &Op) -> Result<(), DeviceError> + 'static,
) -> RankEngine {
    RankEngine { device: Box::new(InterceptedDevice { inner: rank.device, on_op: Box::new(on_op) }), ..rank }
}

/// The same rank, every operation changed by `alter` before it is executed.
pub fn alter_ops(rank: RankEngine, alter: impl Fn(&mut Op) + 'static) -> RankEngine {
    intercept_ops(rank, move |device, stream, op| {
        let mut op = *op;
        alter(&mut op);
        device.submit(stream, &op)
    })
}

/// The same rank without the operations that `is_dropped` names.
pub fn drop_ops(rank: RankEngine, is_dropped: impl Fn(&Op) -> bool + 'static) -> RankEngine {
    intercept_ops(rank, move |device, stream, op| if is_dropped(op) { Ok(()) } else { device.submit(stream, op) })
}

/// The same rank without the calls of one group that `is_dropped` names; all members must drop the same.
pub fn drop_calls(rank: RankEngine, kind: PeerGroup, is_dropped: impl Fn(&Call) -> bool + 'static) -> RankEngine {
    intercept_calls(
        rank,
        kind,
        move |_, group, stream, call| {
            if is_dropped(&call) { Ok(()) } else { call.perform(group, stream) }
        },
    )
}

/// The same rank without the writes from the host to tensors that `is_dropped` names.
pub fn drop_writes(rank: RankEngine, is_dropped: impl Fn(&Tensor) -> bool + 'static) -> RankEngine {
    RankEngine { device: Box::new(DeafDevice { inner: rank.device, is_dropped: Box::new(is_dropped) }), ..rank }
}

/// The same rank, every read of its memory by storage changed by `alter` after it was made.
pub fn alter_saved(rank: RankEngine, alter: impl Fn(Tensor, &mut [u8]) + Send + 'static) -> RankEngine {
    RankEngine { memory: Box::new(AlteredMemory { inner: rank.memory, alter: Box::new(alter) }), ..rank }
}

/// The same rank, every call of one group handed to `on_call`.
pub fn intercept_calls(
    rank: RankEngine,
    kind: PeerGroup,
    on_call: impl Fn(&dyn Device, &dyn Communicator, Stream, Call) -> Result<(), DeviceError> + 'static,
) -> RankEngine {
    let (device, on_call): (Rc<dyn Device>, Rc<OnCall>) = (rank.device.into(), Rc::new(on_call));
    let wrap = |of: PeerGroup, inner: Box<dyn Communicator>| -> Box<dyn Communicator> {
        if of != kind {
            return inner;
        }
        Box::new(InterceptedGroup { inner, device: Rc::clone(&device), on_call: Rc::clone(&on_call) })
    };
    let communicators = rank.communicators.wrapped(wrap);
    RankEngine { device: Box::new(SharedDevice(device)), memory: rank.memory, communicators }
}

struct InterceptedDevice {
    inner: Box<dyn Device>,
    on_op: Box<OnOp>,
}

impl Device for InterceptedDevice {
    fn submit(&self, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        (self.on_op)(&*self.inner, stream, op)
    }

    fn upload(&self, stream: Stream, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.inner.upload(stream, to, from)
    }

    fn write(&self, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.inner.write(to, from)
    }

    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read(from, to)
    }

    device::forward_order!(inner);
}

struct DeafDevice {
    inner: Box<dyn Device>,
    is_dropped: Box<dyn Fn(&Tensor) -> bool>,
}

impl Device for DeafDevice {
    fn submit(&self, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        self.inner.submit(stream, op)
    }

    fn upload(&self, stream: Stream, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        if (self.is_dropped)(&to) { Ok(()) } else { self.inner.upload(stream, to, from) }
    }

    fn write(&self, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        if (self.is_dropped)(&to) { Ok(()) } else { self.inner.write(to, from) }
    }

    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read(from, to)
    }

    device::forward_order!(inner);
}

/// Changes the bytes that were read from a tensor.
type Alter = dyn Fn(Tensor, &mut [u8]) + Send;

struct AlteredMemory {
    inner: Box<dyn MemoryReader>,
    alter: Box<Alter>,
}

impl MemoryReader for AlteredMemory {
    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read(from, to)?;
        (self.alter)(from, to);
        Ok(())
    }
}

/// A rank's device that its intercepted groups hold too.
struct SharedDevice(Rc<dyn Device>);

impl Device for SharedDevice {
    fn submit(&self, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        self.0.submit(stream, op)
    }

    fn upload(&self, stream: Stream, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.0.upload(stream, to, from)
    }

    fn write(&self, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.0.write(to, from)
    }

    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        self.0.read(from, to)
    }

    device::forward_order!(0);
}

struct InterceptedGroup {
    inner: Box<dyn Communicator>,
    device: Rc<dyn Device>,
    on_call: Rc<OnCall>,
}

impl InterceptedGroup {
    fn on(&self, stream: Stream, call: Call) -> Result<(), DeviceError> {
        (self.on_call)(&*self.device, &*self.inner, stream, call)
    }
}

impl Communicator for InterceptedGroup {
    fn size(&self) -> usize {
        self.inner.size()
    }

    fn position(&self) -> usize {
        self.inner.position()
    }

    fn all_reduce(&self, stream: Stream, x: Tensor, reduction: Reduction) -> Result<(), DeviceError> {
        self.on(stream, Call::AllReduce(x, reduction))
    }

    fn reduce_scatter(&self, stream: Stream, x: Tensor, tree: SumTree) -> Result<(), DeviceError> {
        self.on(stream, Call::ReduceScatter(x, tree))
    }

    fn all_gather(&self, stream: Stream, x: Tensor) -> Result<(), DeviceError> {
        self.on(stream, Call::AllGather(x))
    }

    fn all_to_all(&self, stream: Stream, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        self.on(stream, Call::AllToAll { from, to })
    }

    fn shift(&self, stream: Stream, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        self.on(stream, Call::Shift { from, to })
    }

    fn send(&self, stream: Stream, to: usize, tag: u64, x: Tensor) -> Result<(), DeviceError> {
        self.on(stream, Call::Send { to, tag, x })
    }

    fn receive(&self, stream: Stream, from: usize, tag: u64, x: Tensor) -> Result<(), DeviceError> {
        self.on(stream, Call::Receive { from, tag, x })
    }
}
