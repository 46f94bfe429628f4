//! CPU time of this process: of all its threads, and so of all ranks.

use std::time::Duration;

/// CPU time so far; `None` where the system has no clock for it.
pub fn cpu_time() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}
