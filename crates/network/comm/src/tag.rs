//! Which message is meant: a channel, and a number on it.

use mesh::AxisSet;
use std::fmt;

/// A tag space. Two ranks may share several groups; messages on different channels never meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(u32);

impl ChannelId {
    /// The channel of the groups along `axes`, for use number `usage`. Equal arguments give equal
    /// channels on every rank; two groups that share two ranks differ in their axes, so they get
    /// different channels. Two communicators of the same group differ in their usage.
    pub const fn new(axes: AxisSet, usage: u16) -> ChannelId {
        ChannelId((usage as u32) << 8 | axes.number() as u32)
    }

    /// The channel as a number, for a wire.
    #[cfg(target_os = "linux")]
    pub(crate) const fn number(self) -> u32 {
        self.0
    }

    /// The channel of a [`ChannelId::number`].
    #[cfg(target_os = "linux")]
    pub(crate) const fn from_number(number: u32) -> ChannelId {
        ChannelId(number)
    }
}

impl fmt::Display for ChannelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axes: AxisSet =
            mesh::Axis::ALL.into_iter().filter(|&axis| self.0 as u8 & AxisSet::of(axis).number() != 0).collect();
        write!(f, "channel {axes}.{}", self.0 >> 8)
    }
}

/// The name of a message between two ranks. Messages of the same tag arrive in the order sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag {
    /// The tag space.
    pub channel: ChannelId,
    /// The number in that space: how many collectives came before, or what a pipeline chose.
    pub number: u64,
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, message {}", self.channel, self.number)
    }
}
