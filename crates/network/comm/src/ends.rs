//! The ends of a group on the transports of a rank, by stream.

use std::sync::Arc;

use device::Stream;

use crate::transport::Transport;

/// A rank's ends of a transport, by stream: one for each thread that communicates.
pub type StreamTransports = [Arc<dyn Transport>; Stream::COUNT];

/// The ends of a group, one for each thread of a rank that communicates. Streams that share an end of the transport
/// share it.
#[derive(Clone, Debug)]
pub struct StreamEnds<E>([Arc<E>; Stream::COUNT]);

impl<E> StreamEnds<E> {
    /// Opens one for each end among `transports`. `open` takes the first stream of that end, which is the same on all
    /// ranks, and the end.
    pub fn open(
        transports: &StreamTransports,
        mut open: impl FnMut(Stream, &Arc<dyn Transport>) -> E,
    ) -> StreamEnds<E> {
        let mut opened: Vec<(&Arc<dyn Transport>, Arc<E>)> = vec![];
        StreamEnds(Stream::ALL.map(|stream| {
            let transport = &transports[stream.index()];
            if let Some((_, end)) = opened.iter().find(|(other, _)| Arc::ptr_eq(other, transport)) {
                return Arc::clone(end);
            }
            let end = Arc::new(open(stream, transport));
            opened.push((transport, Arc::clone(&end)));
            end
        }))
    }

    /// The end of `stream`.
    pub fn of(&self, stream: Stream) -> &Arc<E> {
        &self.0[stream.index()]
    }
}
