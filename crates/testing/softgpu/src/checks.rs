//! Checks of a launch.

use std::fmt;
use std::ops::Range;

use gpu::DevicePointer;

/// Whether something is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// It is.
    On,
    /// It is not.
    Off,
}

/// Checks of a launch that hardware does not make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checks {
    /// Races in shared memory, and reads of shared memory that nothing has written.
    pub shared: Check,
    /// Reads of local memory that nothing has written.
    pub local: Check,
    /// Races in global memory between blocks, and between streams.
    pub global: Check,
    /// Reads of global memory that nothing has written since it was allocated, although allocations are zeroed.
    pub unwritten_global: Check,
}

impl Default for Checks {
    fn default() -> Checks {
        Checks { shared: Check::On, local: Check::On, global: Check::On, unwritten_global: Check::Off }
    }
}

/// The ranges of memory that a launch may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessRanges {
    reads: Vec<Range<u64>>,
    writes: Vec<Range<u64>>,
}

impl AccessRanges {
    /// Ranges that are only read, and ranges that are read and written: addresses and bytes.
    pub fn new(reads: &[(DevicePointer, usize)], writes: &[(DevicePointer, usize)]) -> AccessRanges {
        let ranges = |from: &[(DevicePointer, usize)]| {
            from.iter().map(|(start, bytes)| start.0..start.0 + *bytes as u64).collect::<Vec<_>>()
        };
        AccessRanges { reads: ranges(reads), writes: ranges(writes) }
    }

    /// Whether bytes may be read.
    pub fn may_read(&self, address: u64, bytes: usize) -> bool {
        self.reads.iter().chain(&self.writes).any(|range| holds(range, address, bytes))
    }

    /// Whether bytes may be written.
    pub fn may_write(&self, address: u64, bytes: usize) -> bool {
        self.writes.iter().any(|range| holds(range, address, bytes))
    }
}

fn holds(range: &Range<u64>, address: u64, bytes: usize) -> bool {
    range.start <= address && address.saturating_add(bytes as u64) <= range.end
}

impl fmt::Display for AccessRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed = |ranges: &[Range<u64>]| {
            let each = ranges.iter().map(|range| format!("{:#x}..{:#x}", range.start, range.end));
            each.collect::<Vec<_>>().join(", ")
        };
        write!(f, "it reads {} and writes {}", listed(&self.reads), listed(&self.writes))
    }
}
