//! Compute capabilities.

use std::fmt;

/// The compute capability of a GPU: 9.0 for Hopper. Printed as `sm_90`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capability {
    /// Before the point.
    pub major: u32,
    /// After the point, one digit.
    pub minor: u32,
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.major, self.minor)
    }
}
