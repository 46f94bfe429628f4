//! Failures that a test plans.

use crate::streams::Random;

/// A failure at a number, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlannedFault {
    /// The GPU is lost at this call, and stays lost.
    LostAtCall(u64),
    /// This allocation does not find memory.
    OutOfMemoryAtAllocation(u64),
    /// This launch meets an error of the memory that cannot be corrected.
    EccAtLaunch(u64),
    /// This launch does not end.
    TimeoutAtLaunch(u64),
}

/// The failures of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    faults: Vec<PlannedFault>,
}

impl FaultPlan {
    /// Exactly these.
    pub fn new(faults: &[PlannedFault]) -> FaultPlan {
        FaultPlan { faults: faults.to_vec() }
    }

    /// One failure that `seed` draws: a kind, and a number up to 200.
    pub fn seeded(seed: u64) -> FaultPlan {
        let mut random = Random::new(seed);
        let kind = [
            PlannedFault::LostAtCall,
            PlannedFault::OutOfMemoryAtAllocation,
            PlannedFault::EccAtLaunch,
            PlannedFault::TimeoutAtLaunch,
        ][random.below(4)];
        FaultPlan { faults: vec![kind(1 + random.below(200) as u64)] }
    }

    /// Whether a failure is planned.
    pub fn has(&self, fault: PlannedFault) -> bool {
        self.faults.contains(&fault)
    }
}
