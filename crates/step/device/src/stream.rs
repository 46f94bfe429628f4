//! The queues of a device.

/// An in-order queue of a device. A device may have fewer queues than there are streams: on a CPU rank without overlap
/// all streams are the rank's own thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    /// Forward, backward and optimizer.
    Compute,
    /// Parameter gathers and gradient reductions.
    Reduce,
    /// Pipeline sends and receives.
    Transfer,
    /// Saving.
    Io,
    /// Ring shifts inside of a layer's passes, during the attention of the same pass.
    Shift,
    /// Copies from memory of the host.
    Fetch,
    /// Copies to memory of the host.
    Offload,
}

impl Stream {
    /// All streams.
    pub const ALL: [Stream; 7] =
        [Stream::Compute, Stream::Reduce, Stream::Transfer, Stream::Io, Stream::Shift, Stream::Fetch, Stream::Offload];
    /// How many there are.
    pub const COUNT: usize = Stream::ALL.len();

    /// Its place in [`Stream::ALL`].
    pub fn index(self) -> usize {
        match self {
            Stream::Compute => 0,
            Stream::Reduce => 1,
            Stream::Transfer => 2,
            Stream::Io => 3,
            Stream::Shift => 4,
            Stream::Fetch => 5,
            Stream::Offload => 6,
        }
    }
}
