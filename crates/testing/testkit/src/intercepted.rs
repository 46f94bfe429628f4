//! A rank whose device and groups hand every call to someone else, who passes it on, changes it or drops it.
//!
//! Interceptors count in cells: a rank opens its own, on its own thread.

use std::rc::Rc;

use device::{Communicator, Device, DeviceError, DropoutKey, MemoryReader, Op, Reduction, Stream, SumTree, Tensor};
use program::PeerGroup;
use train::RankEngine;

/// Handles the calls of a rank below the executor. Each is passed on unless its method is another.
pub trait Interceptor {
    /// An operation for the device.
    ///
    /// # Errors
    /// The device's.
    fn submit(&self, device: &dyn Device, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        device.submit(stream, op)
    }

    /// Bytes that the device copies in the order of `stream`.
    ///
    /// # Errors
    /// The device's.
    fn upload(&self, device: &dyn Device, stream: Stream, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        device.upload(stream, to, from)
    }

    /// Bytes that the device copies at once.
    ///
    /// # Errors
    /// The device's.
    fn write(&self, device: &dyn Device, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        device.write(to, from)
    }

    /// Bytes that the host reads.
    ///
    /// # Errors
    /// The device's.
    fn read(&self, device: &dyn Device, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        device.read(from, to)
    }

    /// A call of the group `group`, which has the `device` of the rank.
    ///
    /// # Errors
    /// The group's.
    fn call(&self, _device: &dyn Device, group: Group<'_>, stream: Stream, call: Call) -> Result<(), DeviceError> {
        call.perform(group.communicator, stream)
    }
}

/// A group of a rank.
#[derive(Clone, Copy)]
pub struct Group<'a> {
    pub kind: PeerGroup,
    pub communicator: &'a dyn Communicator,
}

/// The same rank, all calls of its device and its groups handed to `interceptor`.
pub fn intercept(rank: RankEngine, interceptor: impl Interceptor + 'static) -> RankEngine {
    let (inner, by): (Rc<dyn Device>, Rc<dyn Interceptor>) = (rank.device.into(), Rc::new(interceptor));
    let device = InterceptedDevice { inner: Rc::clone(&inner), by: Rc::clone(&by) };
    let wrap = |kind: PeerGroup, group: Box<dyn Communicator>| -> Box<dyn Communicator> {
        Box::new(InterceptedGroup { kind, inner: group, device: Rc::clone(&inner), by: Rc::clone(&by) })
    };
    RankEngine { device: Box::new(device), memory: rank.memory, communicators: rank.communicators.wrapped(wrap) }
}

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
    /// The tensors that the group reads from the rank's memory, and those that it writes.
    pub fn operands(self) -> [Option<Tensor>; 2] {
        match self {
            Call::AllReduce(x, _) | Call::ReduceScatter(x, _) | Call::AllGather(x) => [Some(x), Some(x)],
            Call::AllToAll { from, to } | Call::Shift { from, to } => [Some(from), Some(to)],
            Call::Send { x, .. } => [Some(x), None],
            Call::Receive { x, .. } => [None, Some(x)],
        }
    }

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

/// The same rank, every operation handed to `on_op`: `(device, stream, op)`.
pub fn intercept_ops(
    rank: RankEngine,
    on_op: impl Fn(&dyn Device, Stream, &Op) -> Result<(), DeviceError> + 'static,
) -> RankEngine {
    struct OnOp<F>(F);
    impl<F: Fn(&dyn Device, Stream, &Op) -> Result<(), DeviceError>> Interceptor for OnOp<F> {
        fn submit(&self, device: &dyn Device, stream: Stream, op: &Op) -> Result<(), DeviceError> {
            (self.0)(device, stream, op)
        }
    }
    intercept(rank, OnOp(on_op))
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
    struct WithoutOps<F>(F);
    impl<F: Fn(&Tensor) -> bool> Interceptor for WithoutOps<F> {
        fn upload(&self, device: &dyn Device, stream: Stream, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
            if (self.0)(&to) { Ok(()) } else { device.upload(stream, to, from) }
        }

        fn write(&self, device: &dyn Device, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
            if (self.0)(&to) { Ok(()) } else { device.write(to, from) }
        }
    }
    intercept(rank, WithoutOps(is_dropped))
}

/// The same rank, every read of its memory by storage changed by `alter` after it was made.
pub fn alter_saved(rank: RankEngine, alter: impl Fn(Tensor, &mut [u8]) + Send + 'static) -> RankEngine {
    RankEngine { memory: Box::new(AlteredMemory { inner: rank.memory, alter: Box::new(alter) }), ..rank }
}

/// The same rank, every call of one group handed to `on_call`: `(device of the rank, group, stream, call)`.
pub fn intercept_calls(
    rank: RankEngine,
    kind: PeerGroup,
    on_call: impl Fn(&dyn Device, &dyn Communicator, Stream, Call) -> Result<(), DeviceError> + 'static,
) -> RankEngine {
    struct OnCall<F>(PeerGroup, F);
    impl<F: Fn(&dyn Device, &dyn Communicator, Stream, Call) -> Result<(), DeviceError>> Interceptor for OnCall<F> {
        fn call(&self, device: &dyn Device, group: Group<'_>, stream: Stream, call: Call) -> Result<(), DeviceError> {
            match group.kind == self.0 {
                true => (self.1)(device, group.communicator, stream, call),
                false => call.perform(group.communicator, stream),
            }
        }
    }
    intercept(rank, OnCall(kind, on_call))
}

struct InterceptedDevice {
    inner: Rc<dyn Device>,
    by: Rc<dyn Interceptor>,
}

impl Device for InterceptedDevice {
    fn submit(&self, stream: Stream, op: &Op) -> Result<(), DeviceError> {
        self.by.submit(&*self.inner, stream, op)
    }

    fn upload(&self, stream: Stream, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.by.upload(&*self.inner, stream, to, from)
    }

    fn write(&self, to: Tensor, from: &[u8]) -> Result<(), DeviceError> {
        self.by.write(&*self.inner, to, from)
    }

    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        self.by.read(&*self.inner, from, to)
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

struct InterceptedGroup {
    kind: PeerGroup,
    inner: Box<dyn Communicator>,
    device: Rc<dyn Device>,
    by: Rc<dyn Interceptor>,
}

impl InterceptedGroup {
    fn on(&self, stream: Stream, call: Call) -> Result<(), DeviceError> {
        let group = Group { kind: self.kind, communicator: &*self.inner };
        self.by.call(&*self.device, group, stream, call)
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
