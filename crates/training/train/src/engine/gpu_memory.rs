//! The memory of GPUs before a run.

use std::fmt;

/// The memory of a GPU before a run, and what its ranks need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuMemory {
    /// `GPU 0 (NVIDIA H100)`.
    pub gpu: String,
    pub ranks: usize,
    /// Their arenas.
    pub arena_bytes: u64,
    /// Memory of processes and ranks in addition to arenas.
    pub margin_bytes: u64,
    /// Free now.
    pub free_bytes: u64,
    pub total_bytes: u64,
}

impl GpuMemory {
    /// Bytes of arenas and margin.
    pub fn needed_bytes(&self) -> u64 {
        self.arena_bytes.saturating_add(self.margin_bytes)
    }
}

impl fmt::Display for GpuMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranks = if self.ranks == 1 { "1 rank".into() } else { format!("{} ranks", self.ranks) };
        write!(
            f,
            "{}: {ranks} with {} of arenas and {} more, of {} free ({} in all)",
            self.gpu,
            shown(self.arena_bytes),
            shown(self.margin_bytes),
            shown(self.free_bytes),
            shown(self.total_bytes)
        )
    }
}

/// Bytes in units of a thousand, three digits: `1.23 MB`.
fn shown(bytes: u64) -> String {
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    // A number that rounds up to 1000 is written in the larger unit.
    let Some((unit, name)) = units.into_iter().find(|(unit, _)| bytes as f64 >= 0.9995 * unit) else {
        return format!("{bytes} B");
    };
    let number = bytes as f64 / unit;
    let decimals = if number < 9.995 { 2 } else { usize::from(number < 99.95) };
    format!("{number:.decimals$} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_three_digits_in_the_unit_that_fits() {
        let all = [0, 999, 3_624_960, 268_435_456, 8_589_934_592, 999_600_000, 2_000_000_000_000].map(shown);
        assert_eq!(all, ["0 B", "999 B", "3.62 MB", "268 MB", "8.59 GB", "1.00 GB", "2.00 TB"]);
    }
}
