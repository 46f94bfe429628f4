//! A group of ranks, each on a GPU of its own, as layers and the executor see it.

use std::sync::Arc;

use comm::{Channel, GroupChannels, StreamTransports};
use device::{Communicator, DeviceError, Reduction, Stream, StreamQueues, SumTree, Tensor};
use mesh::Group;

use super::end::NcclEnd;
use super::rank::NcclRank;

/// Everything that a group needs of its rank.
pub struct NcclLanes<'a> {
    /// The rank's ends of the transport, by stream.
    pub transports: &'a StreamTransports,
    /// Which messages are the group's.
    pub channels: GroupChannels,
    /// The threads of streams.
    pub queues: Arc<StreamQueues>,
    /// NCCL on its GPU.
    pub rank: Arc<NcclRank>,
}

/// The ranks of a group, of any processes and hosts, each on a GPU of its own.
///
/// A call on a stream without a thread waits until the previous member has come to the same call, and not for GPUs. On
/// the others it is handed to the thread.
pub struct NcclCommunicator {
    group: Group,
    queues: Arc<StreamQueues>,
    /// By stream. Streams that share an end of the transport share the same one.
    ends: [Arc<NcclEnd>; Stream::COUNT],
}

impl NcclCommunicator {
    /// The communicator of `group`, seen from the rank of `lanes`. Ranks meet at the first call.
    pub fn new(group: Group, lanes: NcclLanes<'_>) -> NcclCommunicator {
        let NcclLanes { transports, channels, queues, rank } = lanes;
        let mut opened: Vec<(usize, Arc<NcclEnd>)> = vec![];
        let ends = Stream::ALL.map(|stream| {
            let transport = &transports[stream.index()];
            let is_same = |(other, _): &&(usize, Arc<NcclEnd>)| Arc::ptr_eq(&transports[*other], transport);
            if let Some((_, end)) = opened.iter().find(is_same) {
                return Arc::clone(end);
            }
            let channel = |channel| Channel::new(Arc::clone(transport), group.clone(), channel);
            let [calls, messages] = [channel(channels.collectives), channel(channels.sends)];
            // All ranks have the same lanes, so the first stream of one is the same on all of them.
            let end = Arc::new(NcclEnd::new(Arc::clone(&rank), (stream.index(), channels), calls, messages));
            opened.push((stream.index(), Arc::clone(&end)));
            end
        });
        NcclCommunicator { group, queues, ends }
    }

    fn on(
        &self,
        stream: Stream,
        call: impl FnOnce(&NcclEnd) -> Result<(), DeviceError> + Send + 'static,
    ) -> Result<(), DeviceError> {
        let end = Arc::clone(&self.ends[stream.index()]);
        self.ends[stream.index()].rank.streams.on(&self.queues, stream, move || call(&end))
    }
}

impl Communicator for NcclCommunicator {
    fn size(&self) -> usize {
        self.group.size()
    }

    fn position(&self) -> usize {
        self.group.position()
    }

    fn all_reduce(&self, stream: Stream, x: Tensor, reduction: Reduction) -> Result<(), DeviceError> {
        self.on(stream, move |end| end.all_reduce(stream, x, reduction))
    }

    fn reduce_scatter(&self, stream: Stream, x: Tensor, tree: SumTree) -> Result<(), DeviceError> {
        self.on(stream, move |end| end.reduce_scatter(stream, x, tree))
    }

    fn all_gather(&self, stream: Stream, x: Tensor) -> Result<(), DeviceError> {
        self.on(stream, move |end| end.all_gather(stream, x))
    }

    fn all_to_all(&self, stream: Stream, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        self.on(stream, move |end| end.all_to_all(stream, from, to))
    }

    fn shift(&self, stream: Stream, from: Tensor, to: Tensor) -> Result<(), DeviceError> {
        self.on(stream, move |end| end.shift(stream, from, to))
    }

    fn send(&self, stream: Stream, to: usize, tag: u64, x: Tensor) -> Result<(), DeviceError> {
        self.on(stream, move |end| end.send(stream, to, tag, x))
    }

    fn receive(&self, stream: Stream, from: usize, tag: u64, x: Tensor) -> Result<(), DeviceError> {
        self.on(stream, move |end| end.receive(stream, from, tag, x))
    }
}
