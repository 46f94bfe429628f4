//! State that a rank keeps in memory of the host.

/// Which state of a rank is in memory of the host between its uses.
///
/// A rank on a GPU has pinned memory for it, and copies each unit's part to its arena before the update of the unit,
/// and back after it. A rank on a CPU does the same within its own memory. No bit of a run depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offload {
    /// None.
    #[default]
    None,
    /// State that only the optimizer reads: moments, master weights where they are apart, and averages of the weights.
    Optimizer,
}
