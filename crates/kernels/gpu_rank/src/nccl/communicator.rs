//! A group of ranks, each on a GPU of its own, as layers and the executor see it.

use std::sync::Arc;

use comm::{Channel, GroupChannels, StreamEnds, StreamTransports};
use device::{Call, Communicator, DeviceError, Stream, StreamQueues};
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
    ends: StreamEnds<NcclEnd>,
}

impl NcclCommunicator {
    /// The communicator of `group`, seen from the rank of `lanes`. Ranks meet at the first call.
    pub fn new(group: Group, lanes: NcclLanes<'_>) -> NcclCommunicator {
        let NcclLanes { transports, channels, queues, rank } = lanes;
        let ends = StreamEnds::open(transports, |stream, transport| {
            let channel = |channel| Channel::new(Arc::clone(transport), group.clone(), channel);
            let [calls, messages] = [channel(channels.collectives), channel(channels.sends)];
            NcclEnd::new(Arc::clone(&rank), (stream.index(), channels), calls, messages)
        });
        NcclCommunicator { group, queues, ends }
    }
}

impl Communicator for NcclCommunicator {
    fn size(&self) -> usize {
        self.group.size()
    }

    fn position(&self) -> usize {
        self.group.position()
    }

    fn call(&self, stream: Stream, call: Call) -> Result<(), DeviceError> {
        let end = Arc::clone(self.ends.of(stream));
        self.ends.of(stream).rank.streams.on(&self.queues, stream, move || end.call(stream, call))
    }
}
